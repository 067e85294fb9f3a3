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
use crate::model::time::Timestamp;
use crate::model::usage::Usage;

/// Sent where a server of the user's own needs no key, because the dialects have no way to send none.
const NO_KEY: &str = "none";

/// Whose API it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Anthropic,
    OpenAi,
    Gemini,
    Ollama,
    OpenRouter,
}

impl Kind {
    /// The name before the slash in `provider/model`.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::OpenAi => "openai",
            Self::Gemini => "gemini",
            Self::Ollama => "ollama",
            Self::OpenRouter => "openrouter",
        }
    }

    const fn base_url(self) -> &'static str {
        match self {
            Self::Anthropic => "https://api.anthropic.com/v1/",
            Self::OpenAi => "https://api.openai.com/v1/",
            Self::Gemini => "https://generativelanguage.googleapis.com/v1beta/",
            Self::Ollama => "http://localhost:11434/v1/",
            Self::OpenRouter => "https://openrouter.ai/api/v1/",
        }
    }

    /// Named always: `genai` would guess by the model's name, and guess Ollama for one it does not know.
    const fn adapter(self) -> AdapterKind {
        match self {
            Self::Anthropic => AdapterKind::Anthropic,
            Self::Gemini => AdapterKind::Gemini,
            // Ollama's own API has no more than the compatible one that we know the faults of.
            Self::OpenAi | Self::Ollama | Self::OpenRouter => AdapterKind::OpenAI,
        }
    }

    const fn dialect(self) -> Option<Dialect> {
        match self {
            Self::Anthropic => Some(Dialect::Anthropic),
            Self::OpenAi | Self::Ollama | Self::OpenRouter => Some(Dialect::OpenAi),
            Self::Gemini => None,
        }
    }
}

/// Where a model is reached. Not `Debug`: it holds the key.
#[derive(Clone)]
pub(crate) struct Endpoint {
    pub(crate) kind: Kind,
    pub(crate) base_url: Option<String>,
    pub(crate) key: Option<String>,
    pub(crate) connect_timeout: Duration,
    /// Until the head of the response.
    pub(crate) header_timeout: Duration,
    /// Between two reads of its body.
    pub(crate) read_timeout: Duration,
}

impl Endpoint {
    pub(crate) const fn new(kind: Kind) -> Self {
        Self {
            kind,
            base_url: None,
            key: None,
            connect_timeout: Duration::from_secs(20),
            header_timeout: Duration::from_secs(60),
            read_timeout: Duration::from_secs(120),
        }
    }

    /// The base URL with a slash at its end: without one, joining drops the last part of the path.
    fn base(&self) -> String {
        let mut base = self.base_url.as_deref().unwrap_or(self.kind.base_url()).trim().trim_end_matches('/').to_owned();
        // These two are named without the version by their own tools.
        let versionless = matches!(self.kind, Kind::Anthropic | Kind::Ollama);
        if versionless && !base.ends_with("/v1") {
            base.push_str("/v1");
        }
        base.push('/');
        base
    }

    fn key(&self) -> Option<&str> {
        let key = self.key.as_deref().map(str::trim).filter(|key| !key.is_empty());
        let keyless = self.base_url.is_some() || self.kind == Kind::Ollama;
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
            model: ModelIden::new(kind.adapter(), model),
        })
    }

    fn options(&self, request: &Request, frames: &Arc<Frames>) -> ChatOptions {
        let mut options = ChatOptions::default()
            .with_max_tokens(request.max_tokens)
            .with_capture_usage(true)
            .with_stream_header_timeout(self.endpoint.header_timeout)
            .with_stream_read_timeout(self.endpoint.read_timeout);
        match self.endpoint.kind.dialect() {
            // Calls are not captured: `genai` would make an array as long as the index a server names.
            Some(_) => options = options.with_raw_frame_sink_arc(Arc::clone(frames) as Arc<dyn ChatFrameSink>),
            None => options = options.with_capture_tool_calls(true),
        }
        if self.endpoint.kind.adapter() == AdapterKind::OpenAI {
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
        let source = match self.endpoint.kind.dialect() {
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
