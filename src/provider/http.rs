//! Models over HTTP: `genai` asks, and what it gets wrong is caught here.
//!
//! `genai` turns requests into each provider's form and brings the response as frames. For the dialects of OpenAI and
//! Anthropic the frames are read by `frames.rs`, which says why; Gemini's events are taken as `genai` reads them.
//! Deliberately absent: retries, pacing, prices, and where keys come from.

use std::collections::{HashSet, VecDeque};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::{Stream, StreamExt, stream};
use genai::adapter::AdapterKind;
use genai::chat::{ChatFrameSink, ChatOptions, ChatStream, ChatStreamEvent, FrameCtx, RawFrameRef, ReasoningEffort};
use genai::resolver::AuthData;
use genai::{Client, ModelIden, ServiceTarget, WebConfig};

use super::calls::{Calls, Fragment};
use super::frames::{Answer, Dialect, ending};
use super::wire::{self, Caching};
use super::{EventStream, Provider, ProviderError, ProviderEvent, Request, failure};
use crate::model::message::StopReason;
use crate::model::provider::ProviderKind;
use crate::model::time::Timestamp;
use crate::model::usage::Usage;

/// Sent where a server of the user's own needs no key, because the dialects have no way to send none.
const NO_KEY: &str = "none";

/// Where an API is, unless the user says otherwise.
const fn usual_url(kind: ProviderKind) -> &'static str {
    match kind {
        ProviderKind::Anthropic => "https://api.anthropic.com/v1/",
        ProviderKind::OpenAi => "https://api.openai.com/v1/",
        ProviderKind::Gemini => "https://generativelanguage.googleapis.com/v1beta/",
        ProviderKind::Ollama => "http://localhost:11434/v1/",
        ProviderKind::OpenRouter => "https://openrouter.ai/api/v1/",
    }
}

/// Named always: `genai` would guess by the model's name, and guess Ollama for one it does not know.
const fn adapter(kind: ProviderKind) -> AdapterKind {
    match kind {
        ProviderKind::Anthropic => AdapterKind::Anthropic,
        ProviderKind::Gemini => AdapterKind::Gemini,
        // Ollama's own API has no more than the compatible one that we know the faults of.
        ProviderKind::OpenAi | ProviderKind::Ollama | ProviderKind::OpenRouter => AdapterKind::OpenAI,
    }
}

const fn dialect(kind: ProviderKind) -> Option<Dialect> {
    match kind {
        ProviderKind::Anthropic => Some(Dialect::Anthropic),
        ProviderKind::OpenAi | ProviderKind::Ollama | ProviderKind::OpenRouter => Some(Dialect::OpenAi),
        ProviderKind::Gemini => None,
    }
}

/// Where a model is reached. Not `Debug`: it holds the key.
#[derive(Clone)]
pub(crate) struct Endpoint {
    pub(crate) kind: ProviderKind,
    pub(crate) base_url: Option<String>,
    pub(crate) key: Option<String>,
    pub(crate) connect_timeout: Duration,
    /// Until the head of the response.
    pub(crate) header_timeout: Duration,
    /// Between two reads of its body.
    pub(crate) read_timeout: Duration,
}

impl Endpoint {
    pub(crate) const fn new(kind: ProviderKind) -> Self {
        Self {
            kind,
            base_url: None,
            key: None,
            connect_timeout: Duration::from_secs(20),
            header_timeout: Duration::from_mins(1),
            read_timeout: Duration::from_mins(2),
        }
    }

    /// The base URL with a slash at its end: without one, joining drops the last part of the path.
    fn base(&self) -> String {
        let mut base = self.base_url.as_deref().unwrap_or(usual_url(self.kind)).trim().trim_end_matches('/').to_owned();
        // These two are named without the version by their own tools.
        let versionless = matches!(self.kind, ProviderKind::Anthropic | ProviderKind::Ollama);
        if versionless && !base.ends_with("/v1") {
            base.push_str("/v1");
        }
        base.push('/');
        base
    }

    fn key(&self) -> Option<&str> {
        let key = self.key.as_deref().map(str::trim).filter(|key| !key.is_empty());
        let keyless = self.base_url.is_some() || self.kind == ProviderKind::Ollama;
        key.or(keyless.then_some(NO_KEY))
    }
}

/// A provider over HTTP. Building one costs nothing; the client is made at the first request.
pub(crate) struct Http {
    endpoint: Endpoint,
    client: OnceLock<Result<Client, String>>,
}

impl Http {
    pub(crate) const fn new(endpoint: Endpoint) -> Self {
        Self { endpoint, client: OnceLock::new() }
    }

    fn client(&self) -> Result<Client, ProviderError> {
        let built = self.client.get_or_init(|| build_client(&self.endpoint));
        built.clone().map_err(|detail| ProviderError::Missing { detail })
    }

    fn target(&self, model: &str) -> Result<ServiceTarget, ProviderError> {
        let kind = self.endpoint.kind;
        let Some(key) = self.endpoint.key() else {
            return Err(ProviderError::Missing { detail: format!("there is no key for {}", kind.name()) });
        };
        Ok(ServiceTarget {
            endpoint: genai::resolver::Endpoint::from_owned(self.endpoint.base()),
            auth: AuthData::from_single(key),
            model: ModelIden::new(adapter(kind), model),
        })
    }

    fn options(&self, request: &Request, frames: &Arc<Frames>) -> ChatOptions {
        let mut options = ChatOptions::default()
            .with_max_tokens(request.max_tokens)
            .with_capture_usage(true)
            .with_stream_header_timeout(self.endpoint.header_timeout)
            .with_stream_read_timeout(self.endpoint.read_timeout);
        match dialect(self.endpoint.kind) {
            // Calls are not captured: `genai` would make an array as long as the index a server names.
            Some(_) => options = options.with_raw_frame_sink_arc(Arc::clone(frames) as Arc<dyn ChatFrameSink>),
            None => options = options.with_capture_tool_calls(true),
        }
        if adapter(self.endpoint.kind) == AdapterKind::OpenAI {
            // Otherwise `-max` or `-high` is cut off a model's name and taken as an effort. A budget is an effort that
            // this dialect does not send.
            options = options.with_reasoning_effort(ReasoningEffort::Budget(0));
        }
        options
    }

    /// The stream of `genai`, and our reading of it.
    async fn ask(
        client: Result<Client, ProviderError>,
        target: Result<ServiceTarget, ProviderError>,
        options: ChatOptions,
        request: Request,
        reading: Reading,
    ) -> EventStream {
        let caching = match reading.source {
            Source::Frames(Dialect::Anthropic, ..) => Caching::Marked,
            Source::Frames(Dialect::OpenAi, ..) | Source::Events => Caching::ByProvider,
        };
        let asked = async {
            let chat = wire::chat_request(&request, caching);
            let sent = client?.exec_chat_stream(target?, chat, Some(&options)).await;
            sent.map_err(|error| failure::of_genai(&error, now()))
        };
        match asked.await {
            Ok(response) => Box::pin(Events::new(response.stream, reading)),
            Err(error) => Box::pin(stream::once(std::future::ready(Err(error)))),
        }
    }
}

impl Provider for Http {
    fn stream(&self, request: Request) -> EventStream {
        let frames = Arc::new(Frames::default());
        let source = match dialect(self.endpoint.kind) {
            Some(dialect) => Source::Frames(dialect, Arc::clone(&frames), Answer::new(dialect)),
            None => Source::Events,
        };
        let taken = wire::call_ids(&request.messages);
        let reading = Reading { source, taken, asked: wire::bytes_of(&request), answered: 0 };
        let options = self.options(&request, &frames);
        let asked = Self::ask(self.client(), self.target(&request.model), options, request, reading);
        Box::pin(stream::once(asked).flatten())
    }
}

fn build_client(endpoint: &Endpoint) -> Result<Client, String> {
    let config = WebConfig::default().with_connect_timeout(endpoint.connect_timeout);
    // A redirect would take the key to another host.
    let mut builder = config.apply_to_builder(reqwest::Client::builder()).redirect(reqwest::redirect::Policy::none());
    if is_loopback(&endpoint.base()) {
        builder = builder.no_proxy();
    }
    if endpoint.base().starts_with("http://") {
        // Reading the system's certificates takes 10 ms and some megabytes; without TLS and redirects nothing asks them.
        builder = builder.tls_certs_only([]);
    }
    let client = builder.build().map_err(|error| format!("failed to build the HTTP client: {error}"))?;
    Client::builder().with_reqwest(client).build().map_err(|error| error.to_string())
}

fn is_loopback(base: &str) -> bool {
    let url = reqwest::Url::parse(base).ok();
    let host = url.as_ref().and_then(|url| url.host_str()).unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(since.as_millis() as i64)
}

/// Where `genai` leaves the frames of one answer for us.
#[derive(Default)]
struct Frames(Mutex<VecDeque<String>>);

impl Frames {
    fn take(&self) -> VecDeque<String> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl ChatFrameSink for Frames {
    fn on_frame(&self, _: &FrameCtx, frame: RawFrameRef<'_>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push_back(frame.data.to_owned());
    }
}

enum Source {
    Frames(Dialect, Arc<Frames>, Answer),
    Events,
}

/// How one answer is read.
struct Reading {
    source: Source,
    /// Call ids that the conversation holds.
    taken: HashSet<String>,
    asked: usize,
    answered: usize,
}

type Told = Result<ProviderEvent, ProviderError>;

/// The events of one answer: ends after `Finished` or the first error.
struct Events {
    inner: Option<ChatStream>,
    reading: Reading,
    ready: VecDeque<Told>,
}

impl Events {
    fn new(inner: ChatStream, reading: Reading) -> Self {
        Self { inner: Some(inner), reading, ready: VecDeque::new() }
    }

    /// The answer is over, with these last words; the connection is let go.
    fn end(&mut self, last: impl IntoIterator<Item = Told>) {
        self.ready.extend(last);
        self.inner = None;
    }

    /// Reads the frames that have come; the last one ends the answer whatever `genai` makes of it.
    fn read_frames(&mut self) {
        let Source::Frames(dialect, frames, answer) = &mut self.reading.source else { return };
        for frame in frames.take() {
            match answer.hear(&frame) {
                Ok(events) => self.ready.extend(events.into_iter().map(Ok)),
                Err(error) => return self.end([Err(error)]),
            }
        }
        if answer.is_whole() {
            let answer = std::mem::replace(answer, Answer::new(*dialect));
            let last = answer.finish(&self.reading.taken, self.reading.asked);
            self.end(last.into_iter().map(Ok));
        }
    }

    fn read(&mut self, item: Option<genai::Result<ChatStreamEvent>>) {
        let frames = matches!(self.reading.source, Source::Frames(..));
        match item {
            // Nothing but the last event makes an answer whole.
            None => self.end([Err(interrupted())]),
            Some(Err(error @ genai::Error::WebStream { .. })) => {
                self.end([Err(failure::of_genai(&error, now()))]);
            }
            // `genai` stumbled over a frame that we have read ourselves.
            Some(Err(_) | Ok(_)) if frames => {}
            Some(Err(error)) => self.end([Err(failure::of_genai(&error, now()))]),
            Some(Ok(event)) => self.read_event(event),
        }
    }

    fn read_event(&mut self, event: ChatStreamEvent) {
        match event {
            ChatStreamEvent::Chunk(chunk) => {
                self.reading.answered += chunk.content.len();
                self.ready.push_back(Ok(ProviderEvent::Text(chunk.content)));
            }
            ChatStreamEvent::ReasoningChunk(chunk) => self.ready.push_back(Ok(ProviderEvent::Thinking(chunk.content))),
            ChatStreamEvent::End(end) => {
                // An end that `genai` made up because the connection closed has no reason.
                let last = match &end.captured_stop_reason {
                    None => vec![Err(interrupted())],
                    Some(reason) => self.finish_events(stop_of(reason), &end).into_iter().map(Ok).collect(),
                };
                self.end(last);
            }
            ChatStreamEvent::Start
            | ChatStreamEvent::Heartbeat
            | ChatStreamEvent::ThoughtSignatureChunk(_)
            | ChatStreamEvent::ToolCallChunk(_) => {}
        }
    }

    fn finish_events(&self, stop: StopReason, end: &genai::chat::StreamEnd) -> Vec<ProviderEvent> {
        let mut calls = Calls::default();
        for (number, call) in end.captured_tool_calls().into_iter().flatten().enumerate() {
            calls.hear(Fragment {
                // Each came whole, so no two may be joined.
                index: Some(number as u64),
                id: &call.call_id,
                name: &call.fn_name,
                arguments: &call.fn_arguments.to_string(),
            });
        }
        let counted = end.captured_usage.as_ref();
        let details = counted.and_then(|usage| usage.prompt_tokens_details.as_ref());
        let tokens = |count: Option<i32>| count.and_then(|count| u64::try_from(count).ok());
        let usage = Usage {
            requests: 1,
            input_tokens: tokens(counted.and_then(|usage| usage.prompt_tokens))
                .unwrap_or(self.reading.asked.div_ceil(4) as u64),
            cached_tokens: tokens(details.and_then(|details| details.cached_tokens)).unwrap_or(0),
            output_tokens: tokens(counted.and_then(|usage| usage.completion_tokens))
                .unwrap_or((self.reading.answered + calls.bytes()).div_ceil(4) as u64),
            cost_usd: None,
        };
        ending(calls, stop, usage, &self.reading.taken)
    }
}

impl Stream for Events {
    type Item = Told;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Told>> {
        loop {
            if let Some(told) = self.ready.pop_front() {
                return Poll::Ready(Some(told));
            }
            let Some(inner) = &mut self.inner else { return Poll::Ready(None) };
            let polled = Pin::new(inner).poll_next(context);
            // First, because `genai` may have more to read, or may have failed on the frame just left for us.
            self.read_frames();
            if self.inner.is_none() {
                continue;
            }
            match polled {
                Poll::Ready(item) => self.read(item),
                Poll::Pending if self.ready.is_empty() => return Poll::Pending,
                Poll::Pending => {}
            }
        }
    }
}

fn interrupted() -> ProviderError {
    ProviderError::Interrupted { detail: "the stream ended before its last event".into() }
}

fn stop_of(reason: &genai::chat::StopReason) -> StopReason {
    match reason {
        genai::chat::StopReason::MaxTokens(_) => StopReason::Length,
        genai::chat::StopReason::ContentFilter(_) => StopReason::Refused,
        genai::chat::StopReason::ToolCall(_) => StopReason::ToolCalls,
        genai::chat::StopReason::Completed(_)
        | genai::chat::StopReason::StopSequence(_)
        | genai::chat::StopReason::Other(_) => StopReason::End,
    }
}

#[cfg(test)]
#[path = "../../tests/it/model_server.rs"]
mod model_server;

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use serde_json::{Value, json};

    use super::model_server::{Call, Ids, Indexes, ModelServer, Script, Step};
    use super::*;
    use crate::model::message::{AssistantMessage, Message, ToolCall, ToolInput, ToolResult, ToolSpec, UserMessage};

    const BOTH: [ProviderKind; 2] = [ProviderKind::Anthropic, ProviderKind::OpenAi];

    fn endpoint(kind: ProviderKind, base_url: String) -> Endpoint {
        Endpoint { base_url: Some(base_url), key: Some("secret\n".into()), ..Endpoint::new(kind) }
    }

    fn request(messages: Vec<Message>) -> Request {
        Request {
            model: "tiny".into(),
            system: "Be brief.".into(),
            messages,
            tools: vec![ToolSpec { name: "read", description: "reads".into(), input: json!({"type": "object"}) }],
            max_tokens: 77,
        }
    }

    fn user(text: &str) -> Message {
        Message::User(UserMessage { text: text.into(), by: "task".into() })
    }

    /// What came of one request: the answer, and the error it ended with.
    #[derive(Debug)]
    struct Got {
        text: String,
        calls: Vec<ToolCall>,
        end: Result<(Usage, StopReason), ProviderError>,
    }

    impl Got {
        fn inputs(&self) -> Vec<String> {
            self.calls.iter().map(|call| format!("{}{}", call.name, json!(call.input))).collect()
        }

        fn stop(&self) -> StopReason {
            self.end.as_ref().expect("the answer is whole").1
        }

        fn error(self) -> ProviderError {
            assert!(self.calls.is_empty(), "a failed answer tells no calls");
            self.end.expect_err("the answer is not whole")
        }
    }

    async fn ask(provider: &Http, request: Request) -> Got {
        let mut got = Got { text: String::new(), calls: Vec::new(), end: Err(interrupted()) };
        let mut events = provider.stream(request);
        let mut ends = 0;
        while let Some(event) = events.next().await {
            assert_eq!(ends, 0, "nothing comes after the end");
            match event {
                Ok(ProviderEvent::Text(text)) => got.text.push_str(&text),
                Ok(ProviderEvent::Thinking(_)) => {}
                Ok(ProviderEvent::Call(call)) => got.calls.push(call),
                Ok(ProviderEvent::Finished { usage, stop }) => {
                    (ends, got.end) = (1, Ok((usage, stop)));
                }
                Err(error) => (ends, got.end) = (1, Err(error)),
            }
        }
        assert_eq!(ends, 1, "every stream says how it ended");
        got
    }

    async fn answer(kind: ProviderKind, step: Step) -> Got {
        let server = ModelServer::start(Script::steps(vec![step]));
        ask(&Http::new(endpoint(kind, server.url())), request(vec![user("go")])).await
    }

    fn two_calls() -> Vec<Call> {
        vec![Call::new("a", "read", &json!({"path": "日本語🙂é"})), Call::new("b", "grep", &json!({"pattern": "x y"}))]
    }

    fn two_inputs() -> Vec<String> {
        vec![r#"read{"path":"日本語🙂é"}"#.into(), r#"grep{"pattern":"x y"}"#.into()]
    }

    #[tokio::test]
    async fn text_calls_and_usage_come_whole_in_both_dialects() {
        for kind in BOTH {
            let got = answer(kind, Step::calls(two_calls()).saying("I look.").fragments(4).tokens(125, 100, 9)).await;
            assert_eq!((got.text.as_str(), got.inputs()), ("I look.", two_inputs()), "{kind:?}");
            assert_eq!(got.calls.iter().map(|call| call.id.as_str()).collect::<Vec<_>>(), ["a", "b"]);
            assert_eq!(got.stop(), StopReason::ToolCalls);
            let usage = got.end.unwrap().0;
            let want = Usage { requests: 1, input_tokens: 125, cached_tokens: 100, output_tokens: 9, cost_usd: None };
            assert_eq!(usage, want, "{kind:?}");
        }
    }

    #[tokio::test]
    async fn a_request_names_its_model_key_limit_and_one_system_text() {
        for kind in BOTH {
            let server = ModelServer::start(Script::steps(vec![Step::text("ok")]));
            let provider = Http::new(endpoint(kind, server.url()));
            assert!(provider.client.get().is_none(), "nothing is built before the first request");
            // `-max` is a part of this name and no wish for effort.
            let named = Request { model: "gpt-codex-max".into(), ..request(vec![user("go")]) };
            let named = if kind == ProviderKind::OpenAi { named } else { request(vec![user("go")]) };
            let model = named.model.clone();
            ask(&provider, named).await.end.unwrap();
            let sent = server.requests().remove(0);
            assert_eq!(sent.body["model"], model);
            assert_eq!(sent.body["stream"], true);
            assert_eq!(sent.body["max_tokens"], 77);
            assert_eq!(sent.body.get("reasoning_effort"), None);
            let roles: Vec<&str> =
                sent.body["messages"].as_array().unwrap().iter().filter_map(|m| m["role"].as_str()).collect();
            if kind == ProviderKind::Anthropic {
                assert_eq!((sent.path.as_str(), sent.header("x-api-key")), ("/v1/messages", Some("secret")));
                assert_eq!((sent.body["system"].as_str(), roles), (Some("Be brief."), vec!["user"]));
            } else {
                assert_eq!(sent.path, "/v1/chat/completions");
                assert_eq!(sent.header("authorization"), Some("Bearer secret"));
                assert_eq!(roles, ["system", "user"]);
            }
        }
    }

    #[tokio::test]
    async fn parallel_calls_are_told_apart_whatever_index_a_server_sends() {
        let indexes = [Indexes::Right, Indexes::Missing, Indexes::AllZero, Indexes::Odd, Indexes::Bomb];
        for indexes in indexes {
            let step = Step::calls(two_calls()).fragments(3).indexes(indexes);
            assert_eq!(answer(ProviderKind::OpenAi, step.clone()).await.inputs(), two_inputs(), "{indexes:?}");
            let by_id = step.clone().ids(Ids::Every).interleaved();
            assert_eq!(answer(ProviderKind::OpenAi, by_id).await.inputs(), two_inputs(), "{indexes:?} by id");
            let got = answer(ProviderKind::OpenAi, step.ids(Ids::Never)).await;
            assert_eq!(got.inputs(), two_inputs(), "{indexes:?} without ids");
            assert!(!got.calls[0].id.is_empty() && got.calls[0].id != got.calls[1].id);
        }
    }

    /// Why `frames.rs` exists. When this fails, `genai` has been mended and the file may go.
    #[tokio::test]
    async fn genai_alone_loses_calls_and_events() {
        async fn inputs(kind: ProviderKind, step: Step) -> Option<Vec<Value>> {
            let server = ModelServer::start(Script::steps(vec![step]));
            let provider = Http::new(endpoint(kind, server.url()));
            let chat = genai::chat::ChatRequest::from_user("go");
            let options = ChatOptions::default().with_capture_tool_calls(true);
            let target = provider.target("tiny").unwrap();
            let sent = provider.client().unwrap().exec_chat_stream(target, chat, Some(&options)).await;
            let mut events = sent.unwrap().stream;
            while let Some(event) = events.next().await {
                if let Ok(ChatStreamEvent::End(end)) = event {
                    let calls = end.captured_into_tool_calls().unwrap_or_default();
                    return Some(calls.into_iter().map(|call| call.fn_arguments).collect());
                }
            }
            None
        }
        let calls = || Step::calls(two_calls());
        assert_eq!(inputs(ProviderKind::OpenAi, calls()).await.map(|calls| calls.len()), Some(2));
        assert_eq!(inputs(ProviderKind::OpenAi, calls().indexes(Indexes::Missing)).await, Some(vec![]));
        let joined = inputs(ProviderKind::OpenAi, calls().indexes(Indexes::AllZero)).await.unwrap();
        assert!(joined.len() == 1 && joined[0].is_string());
        assert_eq!(
            inputs(ProviderKind::OpenAi, calls().indexes(Indexes::Odd)).await.map(|calls| calls.len()),
            Some(10)
        );
        assert_eq!(inputs(ProviderKind::Anthropic, calls()).await.map(|calls| calls.len()), Some(2));
        assert_eq!(inputs(ProviderKind::Anthropic, calls().crlf().one_byte_chunks()).await, None);
    }

    #[tokio::test]
    async fn three_calls_one_after_another_keep_their_own_arguments() {
        let calls = |n: usize| Call::new(&format!("c{n}"), "read", &json!({"path": format!("f{n}")}));
        for kind in BOTH {
            let got = answer(kind, Step::calls((0..3).map(calls).collect()).fragments(1)).await;
            let want = [r#"read{"path":"f0"}"#, r#"read{"path":"f1"}"#, r#"read{"path":"f2"}"#];
            assert_eq!(got.inputs(), want, "{kind:?}");
        }
    }

    #[tokio::test]
    async fn an_id_that_is_missing_or_used_before_is_replaced() {
        for kind in BOTH {
            let server = ModelServer::start(Script::steps(vec![Step::calls(vec![
                Call::new("old", "read", &json!({})),
                Call::new("new", "read", &json!({"path": "b"})),
                Call::new("new", "grep", &json!({"path": "c"})),
            ])]));
            let before = ToolCall { id: "old".into(), name: "read".into(), input: ToolInput::from_value(Value::Null) };
            let before = AssistantMessage { calls: vec![before], ..AssistantMessage::default() };
            let messages = vec![user("go"), Message::Assistant(before)];
            let got = ask(&Http::new(endpoint(kind, server.url())), request(messages)).await;
            let ids: HashSet<&str> = got.calls.iter().map(|call| call.id.as_str()).collect();
            assert_eq!((ids.len(), ids.contains("old"), ids.contains("new")), (3, false, true), "{kind:?}");
        }
    }

    #[tokio::test]
    async fn bytes_cut_anywhere_arrive_as_they_were_sent() {
        for kind in BOTH {
            let step = Step::calls(two_calls()).saying("日本語🙂é\r\n").fragments(2).one_byte_chunks();
            for step in [step.clone(), step.crlf()] {
                let got = answer(kind, step).await;
                assert_eq!((got.text.as_str(), got.inputs()), ("日本語🙂é\r\n", two_inputs()), "{kind:?}");
            }
        }
    }

    #[tokio::test]
    async fn comments_and_unknown_events_are_skipped_and_a_torn_line_is_an_interruption() {
        let bytes = |text: &str| text.as_bytes().to_vec();
        let good = [
            bytes(": keep-alive\n\n"),
            bytes("event: later\ndata: {\"later\": true}\n\n"),
            bytes("data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}],\"error\":null}\n\n"),
            bytes("data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"),
            bytes("data: [DONE]\n\n"),
        ];
        let got = answer(ProviderKind::OpenAi, Step::raw(good.to_vec())).await;
        assert_eq!((got.text.as_str(), got.stop()), ("hi", StopReason::End));
        let usage = got.end.unwrap().0;
        assert!(usage.input_tokens > 0 && usage.output_tokens == 1, "estimated where the server counts nothing");

        let mut torn = good.to_vec();
        torn.insert(3, bytes("data: {\"choices\":[{\"del      \n\n"));
        let got = answer(ProviderKind::OpenAi, Step::raw(torn)).await;
        assert!(matches!(got.error(), ProviderError::Interrupted { .. }));
    }

    #[tokio::test]
    async fn text_is_told_while_the_rest_is_still_to_come() {
        for kind in BOTH {
            // Without its name, `genai` does not know the Anthropic event and has nothing to tell.
            let server = ModelServer::start(Script::function(move |_, _| {
                let delta = match kind {
                    ProviderKind::Anthropic => json!({"type": "content_block_delta", "delta": {"text": "early"}}),
                    _ => json!({"choices": [{"delta": {"content": "early"}}]}),
                };
                Step::raw(vec![format!("data: {delta}\n\n").into_bytes(), b"data: {}\n\n".to_vec()]).then_hang()
            }));
            let provider = Http::new(endpoint(kind, server.url()));
            let mut events = provider.stream(request(vec![user("go")]));
            let first = tokio::time::timeout(Duration::from_secs(20), events.next()).await;
            assert_eq!(first, Ok(Some(Ok(ProviderEvent::Text("early".into())))), "{kind:?}");
        }
    }

    #[tokio::test]
    async fn a_wait_asked_for_by_header_is_found_inside_the_error() {
        for kind in BOTH {
            let got =
                answer(kind, Step::status(429).header("Retry-After", "3").body(r#"{"error":{"message":"slow"}}"#));
            let want = ProviderError::RateLimited { retry_after_s: Some(3.0), detail: "slow (status 429)".into() };
            assert_eq!(got.await.error(), want);
            let got = answer(kind, Step::status(529)).await;
            assert!(matches!(got.error(), ProviderError::Server { retry_after_s: None, .. }));
        }
    }

    #[tokio::test]
    async fn a_refused_key_and_a_long_conversation_are_told_from_other_faults() {
        for kind in BOTH {
            assert!(matches!(answer(kind, Step::status(401)).await.error(), ProviderError::Refused { .. }));
            assert!(matches!(answer(kind, Step::status(400)).await.error(), ProviderError::Invalid { .. }));
            let long = Step::status(400).body(r#"{"error":{"message":"prompt is too long: 9 tokens > 8 maximum"}}"#);
            assert!(matches!(answer(kind, long).await.error(), ProviderError::TooLong { .. }));
            let moved = Step::status(307).header("location", "http://127.0.0.1:1/elsewhere");
            assert!(matches!(answer(kind, moved).await.error(), ProviderError::Invalid { .. }), "the key stays here");
        }
    }

    #[tokio::test]
    async fn an_error_event_is_an_error_and_never_text() {
        for kind in BOTH {
            let got = answer(kind, Step::text("half").then_error("overloaded_error", "busy")).await;
            assert!(!got.text.contains("busy"));
            assert_eq!(got.error(), ProviderError::Server { retry_after_s: None, detail: "busy".into() }, "{kind:?}");
            let got = answer(kind, Step::text("half").then_error("invalid_request_error", "bad tool")).await;
            assert_eq!(got.error(), ProviderError::Invalid { detail: "bad tool".into() }, "{kind:?}");
        }
    }

    #[tokio::test]
    async fn an_answer_without_its_last_event_is_an_interruption() {
        for kind in BOTH {
            for events in 0..7 {
                let got = answer(kind, Step::calls(two_calls()).saying("some text").cut_after(events)).await;
                assert!(matches!(got.error(), ProviderError::Interrupted { .. }), "{kind:?} after {events}");
            }
            let got = answer(kind, Step::calls(two_calls()).without_last_event()).await;
            assert!(matches!(got.error(), ProviderError::Interrupted { .. }), "{kind:?} ends cleanly");
        }
    }

    #[tokio::test]
    async fn an_answer_cut_by_its_length_says_so() {
        for kind in BOTH {
            assert_eq!(answer(kind, Step::text("half").stopped_by_length()).await.stop(), StopReason::Length);
        }
    }

    #[tokio::test]
    async fn an_empty_answer_is_finished_and_has_no_text() {
        for kind in BOTH {
            let got = answer(kind, Step::empty()).await;
            assert_eq!((got.text.as_str(), got.calls.len(), got.stop()), ("", 0, StopReason::End), "{kind:?}");
        }
    }

    #[tokio::test]
    async fn broken_arguments_are_kept_apart_and_never_sent_back() {
        for kind in BOTH {
            let broken = Step::calls(vec![
                Call::raw("a", "bash", r#"{"command": "ls"#),
                Call::raw("b", "todo_write", r#"{"todos": [],}"#),
            ]);
            let server = ModelServer::start(Script::steps(vec![broken, Step::text("mended")]).strict());
            let provider = Http::new(endpoint(kind, server.url()));
            let first = ask(&provider, request(vec![user("go")])).await;
            assert_eq!(first.stop(), StopReason::ToolCalls);
            assert!(first.calls.iter().all(|call| matches!(call.input, ToolInput::Broken { .. })), "{kind:?}");
            let result = |call: &ToolCall| {
                let output = "the arguments are not JSON".into();
                Message::Tool(ToolResult {
                    call: call.id.clone(),
                    name: call.name.clone(),
                    ok: false,
                    output,
                    images: Vec::new(),
                })
            };
            let mut messages = vec![user("go")];
            let results: Vec<Message> = first.calls.iter().map(result).collect();
            let text = first.text;
            messages.push(Message::Assistant(AssistantMessage { text, calls: first.calls, ..Default::default() }));
            messages.extend(results);
            let second = ask(&provider, request(messages)).await;
            assert_eq!(second.text, "mended", "{kind:?}: {:?}", second.end);
        }
    }

    #[tokio::test]
    async fn a_history_with_gaps_is_sent_as_a_strict_server_wants_it() {
        for kind in BOTH {
            let server = ModelServer::start(Script::steps(vec![Step::text("ok")]).strict());
            let call =
                |id: &str| ToolCall { id: id.into(), name: "read".into(), input: ToolInput::from_value(json!({})) };
            let calls = |ids: &[&str]| {
                let calls = ids.iter().map(|id| call(id)).collect();
                Message::Assistant(AssistantMessage { calls, ..AssistantMessage::default() })
            };
            let result = |id: &str| {
                Message::Tool(ToolResult {
                    call: id.into(),
                    name: "read".into(),
                    ok: true,
                    output: "x".into(),
                    images: Vec::new(),
                })
            };
            let messages = vec![
                user("go"),
                calls(&["1", "2"]),
                result("2"),
                user("hurry"),
                result("2"),
                Message::Assistant(AssistantMessage::default()),
                calls(&["1"]),
                result("1"),
                user("  "),
            ];
            let got = ask(&Http::new(endpoint(kind, server.url())), request(messages)).await;
            assert_eq!(got.text, "ok", "{kind:?}: {:?}", got.end);
        }
    }

    #[tokio::test]
    async fn a_server_that_is_not_there_is_unreachable() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        for kind in BOTH {
            let provider = Http::new(endpoint(kind, format!("http://{free}/v1")));
            let error = ask(&provider, request(vec![user("go")])).await.error();
            assert!(matches!(&error, ProviderError::Unreachable { detail } if detail.contains("refused")), "{error:?}");
        }
    }

    #[tokio::test]
    async fn a_silent_server_is_given_up_before_and_within_its_answer() {
        let short = Duration::from_millis(100);
        for kind in BOTH {
            let server = ModelServer::start(Script::steps(vec![Step::text("late").gated()]));
            let patience = Endpoint { header_timeout: short, ..endpoint(kind, server.url()) };
            let begun = Instant::now();
            let error = ask(&Http::new(patience), request(vec![user("go")])).await.error();
            assert!(matches!(error, ProviderError::Unreachable { .. }), "{error:?}");

            let server = ModelServer::start(Script::steps(vec![Step::text("slow").pause_ms(60_000)]));
            let patience = Endpoint { read_timeout: short, ..endpoint(kind, server.url()) };
            let error = ask(&Http::new(patience), request(vec![user("go")])).await.error();
            assert!(matches!(error, ProviderError::Interrupted { .. }), "{error:?}");
            drop(server);
            assert!(begun.elapsed() < Duration::from_secs(20), "neither client nor server waits for the pause");
        }
    }

    #[tokio::test]
    async fn a_provider_without_a_key_is_missing_and_a_server_of_ones_own_needs_none() {
        let error = ask(&Http::new(Endpoint::new(ProviderKind::Anthropic)), request(vec![user("go")])).await.error();
        assert_eq!(error, ProviderError::Missing { detail: "there is no key for anthropic".into() });
        let server = ModelServer::start(Script::steps(vec![Step::text("ok")]));
        let own = Endpoint { key: None, ..endpoint(ProviderKind::OpenAi, server.url()) };
        assert_eq!(ask(&Http::new(own), request(vec![user("go")])).await.text, "ok");
    }

    #[tokio::test]
    async fn geminis_end_needs_its_reason() {
        let part = |part: Value, reason: Value| {
            let candidate = json!({"content": {"parts": [part]}, "finishReason": reason});
            let usage = json!({"promptTokenCount": 12, "candidatesTokenCount": 3, "totalTokenCount": 15});
            format!("data: {}\n\n", json!({"candidates": [candidate], "usageMetadata": usage})).into_bytes()
        };
        let text = part(json!({"text": "hi"}), Value::Null);
        let call = json!({"functionCall": {"name": "read", "args": {"path": "a"}}});
        let got = answer(ProviderKind::Gemini, Step::raw(vec![text.clone(), part(call, json!("STOP"))])).await;
        assert_eq!((got.text.as_str(), got.inputs()), ("hi", vec![r#"read{"path":"a"}"#.to_owned()]));
        assert_eq!(got.stop(), StopReason::ToolCalls);
        let usage = got.end.unwrap().0;
        assert_eq!((usage.input_tokens, usage.output_tokens), (12, 3));
        let cut = answer(ProviderKind::Gemini, Step::raw(vec![text])).await;
        assert!(matches!(cut.error(), ProviderError::Interrupted { .. }));
    }

    #[test]
    fn a_base_url_ends_in_a_slash_and_a_version_where_its_tool_leaves_it_out() {
        let base = |kind, url: &str| endpoint(kind, url.into()).base();
        assert_eq!(base(ProviderKind::OpenAi, "http://localhost:1/v1"), "http://localhost:1/v1/");
        assert_eq!(base(ProviderKind::OpenAi, "http://localhost:1/api//"), "http://localhost:1/api/");
        assert_eq!(base(ProviderKind::Anthropic, "https://api.anthropic.com"), "https://api.anthropic.com/v1/");
        assert_eq!(base(ProviderKind::Anthropic, "https://api.anthropic.com/v1/"), "https://api.anthropic.com/v1/");
        assert_eq!(base(ProviderKind::Ollama, "http://host:11434"), "http://host:11434/v1/");
        for kind in [
            ProviderKind::Anthropic,
            ProviderKind::OpenAi,
            ProviderKind::Gemini,
            ProviderKind::Ollama,
            ProviderKind::OpenRouter,
        ] {
            assert_eq!(Endpoint::new(kind).base(), usual_url(kind));
        }
    }

    #[test]
    fn loopback_is_never_asked_through_a_proxy() {
        for base in ["http://localhost:1/v1/", "http://127.0.0.1:1/", "http://127.8.8.8/", "http://[::1]:1/v1/"] {
            assert!(is_loopback(base), "{base}");
        }
        for base in ["https://api.openai.com/v1/", "http://localhost.example/", "http://10.0.0.1/", "nonsense"] {
            assert!(!is_loopback(base), "{base}");
        }
    }
}
