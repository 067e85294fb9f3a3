//! Each fault of a server on the wire, told by a real one on loopback, and what a request says.

use serde_json::{Value, json};

use super::model_server::{Call, Ids, Indexes, ModelServer, Script, Step};
use super::*;
use crate::model::message::{
    AssistantMessage, Image, Message, StopReason, Thinking, ToolCall, ToolInput, ToolResult, ToolSpec, UserMessage,
};
use crate::model::usage::Usage;

const ALL: [ProviderKind; 3] = [ProviderKind::Anthropic, ProviderKind::OpenAi, ProviderKind::Gemini];

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
    thoughts: Vec<Thinking>,
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
    let mut got =
        Got { text: String::new(), thoughts: Vec::new(), calls: Vec::new(), end: Err(interrupted(String::new())) };
    let mut events = provider.stream(request);
    let mut ends = 0;
    while let Some(event) = events.next().await {
        assert_eq!(ends, 0, "nothing comes after the end");
        match event {
            Ok(ProviderEvent::Text(text)) => got.text.push_str(&text),
            Ok(ProviderEvent::Thinking(_)) => {}
            Ok(ProviderEvent::Thought(thought)) => got.thoughts.push(thought),
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
async fn text_calls_and_usage_come_whole_in_every_dialect() {
    for kind in ALL {
        let got = answer(kind, Step::calls(two_calls()).saying("I look.").fragments(4).tokens(125, 100, 9)).await;
        assert_eq!((got.text.as_str(), got.inputs()), ("I look.", two_inputs()), "{kind:?}");
        let ids = got.calls.iter().map(|call| call.id.as_str()).collect::<Vec<_>>();
        assert!(ids == ["a", "b"] || kind == ProviderKind::Gemini, "{ids:?}");
        assert_eq!(got.stop(), StopReason::ToolCalls);
        let usage = got.end.unwrap().0;
        let want = Usage { requests: 1, input_tokens: 125, cached_tokens: 100, output_tokens: 9, cost_usd: None };
        assert_eq!(usage, want, "{kind:?}");
    }
}

#[tokio::test]
async fn a_request_names_its_model_key_limit_and_one_system_text() {
    for kind in ALL {
        let server = ModelServer::start(Script::steps(vec![Step::text("ok")]).strict());
        let provider = Http::new(endpoint(kind, server.url()));
        assert!(provider.0.client.get().is_none(), "nothing is built before the first request");
        // `-max` is a part of this name and no wish for effort.
        let named = Request { model: "codex-max".into(), ..request(vec![user("go")]) };
        ask(&provider, named).await.end.unwrap();
        let sent = server.requests().remove(0);
        let key = |name: &str| sent.header(name).unwrap_or_default().to_owned();
        match kind {
            ProviderKind::Anthropic => {
                assert_eq!((sent.path.as_str(), key("x-api-key")), ("/v1/messages", "secret".into()));
                assert_eq!(key("anthropic-version"), "2023-06-01");
                assert_eq!(sent.body["system"][0]["text"], "Be brief.");
                assert_eq!((&sent.body["max_tokens"], &sent.body["model"]), (&json!(77), &json!("codex-max")));
            }
            ProviderKind::Gemini => {
                assert_eq!(sent.path, "/v1/models/codex-max:streamGenerateContent?alt=sse");
                assert_eq!(key("x-goog-api-key"), "secret");
                assert_eq!(sent.body["systemInstruction"]["parts"][0]["text"], "Be brief.");
                assert_eq!(sent.body["generationConfig"]["maxOutputTokens"], 77);
            }
            ProviderKind::OpenAi | ProviderKind::Ollama | ProviderKind::OpenRouter => {
                assert_eq!(
                    (sent.path.as_str(), key("authorization")),
                    ("/v1/chat/completions", "Bearer secret".into())
                );
                assert_eq!((&sent.body["max_tokens"], &sent.body["model"]), (&json!(77), &json!("codex-max")));
                assert_eq!(sent.body["stream_options"], json!({"include_usage": true}));
                let messages = json!([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "go"}]);
                assert_eq!(sent.body["messages"], messages);
            }
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

#[tokio::test]
async fn three_calls_one_after_another_keep_their_own_arguments() {
    let calls = |n: usize| Call::new(&format!("c{n}"), "read", &json!({"path": format!("f{n}")}));
    for kind in ALL {
        let got = answer(kind, Step::calls((0..3).map(calls).collect()).fragments(1)).await;
        let want = [r#"read{"path":"f0"}"#, r#"read{"path":"f1"}"#, r#"read{"path":"f2"}"#];
        assert_eq!(got.inputs(), want, "{kind:?}");
    }
}

#[tokio::test]
async fn an_id_that_is_missing_or_used_before_is_replaced() {
    for kind in ALL {
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
        // Gemini gives its calls no ids.
        let kept = kind != ProviderKind::Gemini;
        assert_eq!((ids.len(), ids.contains("old"), ids.contains("new")), (3, false, kept), "{kind:?}");
    }
}

#[tokio::test]
async fn bytes_cut_anywhere_arrive_as_they_were_sent() {
    for kind in ALL {
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
    for kind in ALL {
        let event = match kind {
            ProviderKind::Anthropic => json!({"type": "content_block_delta", "delta": {"text": "early"}}),
            ProviderKind::Gemini => json!({"candidates": [{"content": {"parts": [{"text": "early"}]}}]}),
            _ => json!({"choices": [{"delta": {"content": "early"}}]}),
        };
        let step = Step::raw(vec![format!("data: {event}\n\n").into_bytes()]).then_hang();
        let server = ModelServer::start(Script::steps(vec![step]));
        let provider = Http::new(endpoint(kind, server.url()));
        let mut events = provider.stream(request(vec![user("go")]));
        let first = tokio::time::timeout(Duration::from_secs(20), events.next()).await;
        assert_eq!(first, Ok(Some(Ok(ProviderEvent::Text("early".into())))), "{kind:?}");
    }
}

#[tokio::test]
async fn a_wait_asked_for_by_header_is_found_inside_the_error() {
    for kind in ALL {
        let got = answer(kind, Step::status(429).header("Retry-After", "3").body(r#"{"error":{"message":"slow"}}"#));
        let want = ProviderError::RateLimited { retry_after_s: Some(3.0), detail: "slow (status 429)".into() };
        assert_eq!(got.await.error(), want);
        let got = answer(kind, Step::status(529)).await;
        assert!(matches!(got.error(), ProviderError::Server { retry_after_s: None, .. }));
    }
}

#[tokio::test]
async fn a_refused_key_and_a_long_conversation_are_told_from_other_faults() {
    for kind in ALL {
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
    for kind in ALL {
        let got = answer(kind, Step::text("half").then_error("overloaded_error", "busy")).await;
        assert!(!got.text.contains("busy"));
        assert_eq!(got.error(), ProviderError::Server { retry_after_s: None, detail: "busy".into() }, "{kind:?}");
        let got = answer(kind, Step::text("half").then_error("invalid_request_error", "bad tool")).await;
        assert_eq!(got.error(), ProviderError::Invalid { detail: "bad tool".into() }, "{kind:?}");
    }
}

#[tokio::test]
async fn an_answer_without_its_last_event_is_an_interruption() {
    for kind in ALL {
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
    for kind in ALL {
        assert_eq!(answer(kind, Step::text("half").stopped_by_length()).await.stop(), StopReason::Length);
    }
}

#[tokio::test]
async fn an_empty_answer_is_finished_and_has_no_text() {
    for kind in ALL {
        let got = answer(kind, Step::empty()).await;
        assert_eq!((got.text.as_str(), got.calls.len(), got.stop()), ("", 0, StopReason::End), "{kind:?}");
    }
}

#[tokio::test]
async fn broken_arguments_are_kept_apart_and_never_sent_back() {
    for kind in ALL {
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
    for kind in ALL {
        let server = ModelServer::start(Script::steps(vec![Step::text("ok")]).strict());
        let call = |id: &str| ToolCall { id: id.into(), name: "read".into(), input: ToolInput::from_value(json!({})) };
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
    for kind in ALL {
        let provider = Http::new(endpoint(kind, format!("http://{free}/v1")));
        let error = ask(&provider, request(vec![user("go")])).await.error();
        assert!(matches!(&error, ProviderError::Unreachable { detail } if detail.contains("refused")), "{error:?}");
    }
}

#[tokio::test]
async fn a_silent_server_is_given_up_before_and_within_its_answer() {
    let short = Duration::from_millis(100);
    for kind in ALL {
        let server = ModelServer::start(Script::steps(vec![Step::text("late").gated()]));
        let patience = Endpoint { header_timeout: short, ..endpoint(kind, server.url()) };
        let begun = std::time::Instant::now();
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

/// What the second request of a conversation holds, after an answer with a call and its result.
async fn second_request(kind: ProviderKind, model: &str, answer: AssistantMessage, images: Vec<Image>) -> Value {
    let server = ModelServer::start(Script::steps(vec![Step::text("ok")]).strict());
    let call = answer.calls[0].clone();
    let result = ToolResult { call: call.id, name: call.name, ok: true, output: "seen".into(), images };
    let messages = vec![user("go"), Message::Assistant(answer), Message::Tool(result)];
    let named = Request { model: model.into(), ..request(messages) };
    let got = ask(&Http::new(endpoint(kind, server.url())), named).await;
    assert_eq!(got.text, "ok", "{kind:?}: {:?}", got.end);
    server.requests().remove(0).body
}

fn calling(id: &str) -> AssistantMessage {
    let input = ToolInput::from_value(json!({"path": "a"}));
    let call = ToolCall { id: id.into(), name: "read".into(), input };
    AssistantMessage { calls: vec![call], ..AssistantMessage::default() }
}

#[tokio::test]
async fn thinking_goes_back_with_its_calls_to_the_model_that_thought_it_and_to_no_other() {
    let thought = |text: &str, signature: Option<&str>| Thinking {
        text: text.into(),
        signature: signature.map(str::to_owned),
        redacted: None,
        model: "tiny".into(),
    };
    for kind in ALL {
        let calls = vec![Call::new("a", "read", &json!({"path": "a"})), Call::new("b", "read", &json!({"path": "b"}))];
        let got = answer(kind, Step::calls(calls).thinking("hm, so", "proof-1")).await;
        let hidden = Thinking { redacted: Some("hidden hm, so".into()), ..thought("", None) };
        let want = match kind {
            ProviderKind::Anthropic => vec![thought("hm, so", Some("proof-1")), hidden],
            ProviderKind::Gemini => vec![thought("hm, so", Some("proof-1"))],
            ProviderKind::OpenAi | ProviderKind::Ollama | ProviderKind::OpenRouter => vec![thought("hm, so", None)],
        };
        assert_eq!(got.thoughts, want, "{kind:?}");
        let said = AssistantMessage { thinking: got.thoughts, calls: got.calls[..1].to_vec(), ..Default::default() };
        let own = second_request(kind, "tiny", said.clone(), Vec::new()).await;
        let other = second_request(kind, "huge", said, Vec::new()).await.to_string();
        assert!(!other.contains("proof-1") && !other.contains("hidden") && !other.contains("hm, so"), "{other}");
        match kind {
            ProviderKind::Anthropic => {
                let parts = &own["messages"][1]["content"];
                let want = json!({"type": "thinking", "thinking": "hm, so", "signature": "proof-1"});
                assert_eq!(parts[0], want);
                assert_eq!(parts[1], json!({"type": "redacted_thinking", "data": "hidden hm, so"}));
                assert_eq!(parts[2]["type"], "tool_use");
            }
            ProviderKind::Gemini => {
                let part = &own["contents"][1]["parts"][0];
                assert_eq!(
                    (&part["thoughtSignature"], &part["functionCall"]["name"]),
                    (&json!("proof-1"), &json!("read"))
                );
            }
            ProviderKind::OpenAi | ProviderKind::Ollama | ProviderKind::OpenRouter => {
                assert!(!own.to_string().contains("hm, so"), "shown, not sent");
            }
        }
    }
}

#[tokio::test]
async fn an_answer_with_nothing_but_thinking_is_empty() {
    for kind in ALL {
        let got = answer(kind, Step::empty().thinking("hm", "proof")).await;
        assert_eq!((got.text.as_str(), got.calls.len(), got.stop()), ("", 0, StopReason::End), "{kind:?}");
    }
}

fn picture() -> Image {
    Image { media_type: "image/png".into(), data: "iVBORw0KGgo=".into() }
}

#[tokio::test]
async fn pictures_go_where_each_dialect_takes_them_and_a_blind_model_is_told_of_them() {
    let data = picture().data;
    let body = second_request(ProviderKind::Anthropic, "tiny", calling("a"), vec![picture()]).await;
    let result = &body["messages"][2]["content"][0];
    assert_eq!((&result["type"], &result["content"][0]["text"]), (&json!("tool_result"), &json!("seen")));
    assert_eq!(result["content"][1]["source"], json!({"type": "base64", "media_type": "image/png", "data": data}));

    let body = second_request(ProviderKind::OpenAi, "tiny", calling("a"), vec![picture()]).await;
    assert_eq!(body["messages"][3], json!({"role": "tool", "tool_call_id": "a", "content": "seen"}));
    let url = format!("data:image/png;base64,{data}");
    assert_eq!(body["messages"][4]["content"][1], json!({"type": "image_url", "image_url": {"url": url}}));

    let body = second_request(ProviderKind::Gemini, "tiny", calling("a"), vec![picture()]).await;
    let part = &body["contents"][2]["parts"][1];
    assert_eq!(*part, json!({"inlineData": {"mimeType": "image/png", "data": data}}));

    let body = second_request(ProviderKind::OpenAi, "gpt-oss-20b", calling("a"), vec![picture()]).await.to_string();
    assert!(!body.contains(&data) && body.contains("an image (image/png, 9 bytes) is left out"), "{body}");
}

#[tokio::test]
async fn a_server_that_takes_no_pictures_is_asked_again_without_and_never_with_them_again() {
    for kind in ALL {
        let data = picture().data;
        let server = ModelServer::start(Script::function(move |request, _| {
            let shown = request.body.to_string().contains(&data);
            let refusal = r#"{"error":{"message":"this model does not support image input"}}"#;
            if shown { Step::status(400).body(refusal) } else { Step::text("ok") }
        }));
        let provider = Http::new(endpoint(kind, server.url()));
        let call = calling("a");
        let result = ToolResult {
            call: "a".into(),
            name: "read".into(),
            ok: true,
            output: "seen".into(),
            images: vec![picture()],
        };
        let messages = vec![user("go"), Message::Assistant(call), Message::Tool(result)];
        for requests in [2, 3] {
            let got = ask(&provider, request(messages.clone())).await;
            assert_eq!(got.text, "ok", "{kind:?}: {:?}", got.end);
            assert_eq!(server.requests().len(), requests);
        }
    }
}

#[tokio::test]
async fn a_refused_field_is_left_out_and_thinking_is_sent_where_it_is_asked_for() {
    let thought = Thinking { text: "hm, so".into(), model: "tiny".into(), ..Thinking::default() };
    let server = ModelServer::start(Script::function(|request, _| {
        let error = |message: &str| Step::status(400).body(&json!({"error": {"message": message}}).to_string());
        if request.body.get("max_tokens").is_some() {
            error("Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.")
        } else if request.body.get("stream_options").is_some() {
            error("Unrecognized request argument supplied: stream_options")
        } else if request.body["messages"][2]["reasoning_content"] != "hm, so" {
            error("Missing `reasoning_content` field in the assistant message at message index 2")
        } else {
            Step::text("ok")
        }
    }));
    let said = AssistantMessage { thinking: vec![thought], ..calling("a") };
    let provider = Http::new(endpoint(ProviderKind::OpenAi, server.url()));
    let got = ask(&provider, request(vec![user("go"), Message::Assistant(said)])).await;
    assert_eq!((got.text.as_str(), server.requests().len()), ("ok", 4), "{:?}", got.end);
    let sent = server.requests().pop().unwrap().body;
    assert_eq!(sent["max_completion_tokens"], 77);
}

#[tokio::test]
async fn a_refusal_that_teaches_nothing_new_ends() {
    let refusal = r#"{"error":{"message":"use max_completion_tokens, not max_tokens; stream_options too"}}"#;
    let server = ModelServer::start(Script::steps(vec![Step::status(400).body(refusal)]));
    let error = ask(&Http::new(endpoint(ProviderKind::OpenAi, server.url())), request(vec![user("go")])).await.error();
    assert!(matches!(error, ProviderError::Invalid { .. }), "{error:?}");
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test]
async fn what_a_request_shares_with_the_one_before_is_marked_for_anthropics_cache() {
    let body = second_request(ProviderKind::Anthropic, "tiny", calling("a"), Vec::new()).await;
    let mark = json!({"type": "ephemeral"});
    let marked =
        [&body["system"][0], &body["tools"][0], &body["messages"][0]["content"][0], &body["messages"][2]["content"][0]];
    assert!(marked.iter().all(|part| part["cache_control"] == mark), "{body}");
    assert_eq!(body.to_string().matches("cache_control").count(), 4, "the dialect takes no more");
}

#[tokio::test]
async fn signs_of_life_that_say_nothing_are_given_up() {
    for kind in ALL {
        let server = ModelServer::start(Script::steps(vec![Step::text("so").then_ping()]));
        let patience = Endpoint { meaning_timeout: Duration::from_millis(300), ..endpoint(kind, server.url()) };
        let error = ask(&Http::new(patience), request(vec![user("go")])).await.error();
        assert!(
            matches!(&error, ProviderError::Interrupted { detail } if detail.contains("says anything")),
            "{error:?}"
        );
    }
}

#[tokio::test]
async fn an_event_without_end_is_given_up_before_it_fills_the_memory() {
    let mut chunks = vec![b"data: ".to_vec()];
    chunks.extend(std::iter::repeat_n(vec![b'x'; 1024 * 1024], 40));
    let got = answer(ProviderKind::OpenAi, Step::raw(chunks)).await;
    assert_eq!(got.error(), interrupted("an event is larger than 16 MB".to_owned()));
}

#[tokio::test]
async fn an_error_with_status_200_and_no_stream_is_sorted_like_any_other() {
    for kind in ALL {
        let step = |kind: &str| {
            let body = json!({"type": "error", "error": {"type": kind, "message": "why"}}).to_string();
            Step::status(200).header("content-type", "application/json").body(&body)
        };
        let error = answer(kind, step("overloaded_error")).await.error();
        assert_eq!(error, ProviderError::Server { retry_after_s: None, detail: "why".into() });
        let error = answer(kind, step("invalid_request_error")).await.error();
        assert_eq!(error, ProviderError::Invalid { detail: "why".into() });
        let torn = answer(kind, Step::status(200).body("{\"choices\": [")).await;
        assert!(matches!(torn.error(), ProviderError::Interrupted { .. }));
        assert!(matches!(answer(kind, Step::status(200)).await.error(), ProviderError::Interrupted { .. }));
    }
}

#[tokio::test]
async fn a_whole_answer_of_a_server_that_knows_no_streams_is_taken() {
    let function = json!({"name": "read", "arguments": "{\"path\":\"a\"}"});
    let message = json!({"role": "assistant", "content": "I look.", "tool_calls": [{"id": "c", "function": function}]});
    let openai = json!({
        "choices": [{"message": message, "finish_reason": "tool_calls"}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3},
    });
    let block = json!({"type": "tool_use", "id": "c", "name": "read", "input": {"path": "a"}});
    let anthropic = json!({
        "type": "message",
        "content": [{"type": "text", "text": "I look."}, block],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 7, "output_tokens": 3},
    });
    let parts = json!([{"text": "I look."}, {"functionCall": {"name": "read", "args": {"path": "a"}}}]);
    let gemini = json!([{
        "candidates": [{"content": {"parts": parts}, "finishReason": "STOP"}],
        "usageMetadata": {"promptTokenCount": 7, "candidatesTokenCount": 3},
    }]);
    for (kind, body) in
        [(ProviderKind::OpenAi, openai), (ProviderKind::Anthropic, anthropic), (ProviderKind::Gemini, gemini)]
    {
        let got = answer(kind, Step::status(200).body(&body.to_string())).await;
        assert_eq!((got.text.as_str(), got.inputs()), ("I look.", vec![r#"read{"path":"a"}"#.to_owned()]), "{kind:?}");
        let (usage, stop) = got.end.unwrap();
        assert_eq!((usage.input_tokens, usage.output_tokens, stop), (7, 3, StopReason::ToolCalls));
    }
}

#[tokio::test]
async fn a_page_of_a_proxy_is_no_answer_and_its_title_is_told() {
    let page = "<!DOCTYPE html>\n<html><head><title>Please log in</title></head><body>x</body></html>";
    for kind in ALL {
        let error = answer(kind, Step::status(200).header("content-type", "text/html").body(page)).await.error();
        assert!(
            matches!(&error, ProviderError::Unreachable { detail } if detail.ends_with("Please log in")),
            "{error:?}"
        );
        let error = answer(kind, Step::status(502).body(page)).await.error();
        let want = ProviderError::Server { retry_after_s: None, detail: "status 502 Please log in".into() };
        assert_eq!(error, want);
    }
}

#[tokio::test]
async fn a_redirect_is_named_and_not_followed() {
    let moved = Step::status(308).header("location", "http://127.0.0.1:1/elsewhere");
    let error = answer(ProviderKind::OpenAi, moved).await.error();
    assert!(matches!(&error, ProviderError::Invalid { detail } if detail.contains("http://127.0.0.1:1/elsewhere")));
}

#[tokio::test]
async fn an_odd_reason_ends_an_answer_and_a_refusal_runs_no_calls() {
    for kind in ALL {
        let odd = answer(kind, Step::text("done").reason("because")).await;
        assert_eq!((odd.text.as_str(), odd.stop()), ("done", StopReason::End), "{kind:?}");
        let reason = match kind {
            ProviderKind::Anthropic => "refusal",
            ProviderKind::Gemini => "SAFETY",
            ProviderKind::OpenAi | ProviderKind::Ollama | ProviderKind::OpenRouter => "content_filter",
        };
        let refused = answer(kind, Step::calls(two_calls()).reason(reason)).await;
        assert_eq!((refused.calls.len(), refused.stop()), (0, StopReason::Refused), "{kind:?}");
    }
}

#[tokio::test]
async fn an_openai_server_without_its_end_mark_has_ended_once_it_says_why() {
    let chunk = |choice: Value| format!("data: {}\n\n", json!({"choices": [choice]})).into_bytes();
    let text = chunk(json!({"delta": {"content": "hi"}}));
    let why = chunk(json!({"delta": {}, "finish_reason": "stop"}));
    let got = answer(ProviderKind::OpenAi, Step::raw(vec![text.clone(), why])).await;
    assert_eq!((got.text.as_str(), got.stop()), ("hi", StopReason::End));
    let cut = answer(ProviderKind::OpenAi, Step::raw(vec![text])).await;
    assert!(matches!(cut.error(), ProviderError::Interrupted { .. }));
}

#[tokio::test]
async fn gemini_says_how_long_to_wait_and_what_it_blocks() {
    let details = json!([{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.5s"}]);
    let body =
        json!([{"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "quota", "details": details}}]);
    let error = answer(ProviderKind::Gemini, Step::status(429).body(&body.to_string())).await.error();
    let want = ProviderError::RateLimited { retry_after_s: Some(34.5), detail: "quota (status 429)".into() };
    assert_eq!(error, want);
    let blocked = format!("data: {}\n\n", json!({"promptFeedback": {"blockReason": "SAFETY"}}));
    let got = answer(ProviderKind::Gemini, Step::raw(vec![blocked.into_bytes()])).await;
    assert_eq!(got.stop(), StopReason::Refused);
}

#[tokio::test]
async fn a_refusal_whose_body_never_ends_is_told_by_its_status() {
    let server = ModelServer::start(Script::steps(vec![Step::status(503).then_hang()]));
    let patience =
        Endpoint { header_timeout: Duration::from_millis(300), ..endpoint(ProviderKind::OpenAi, server.url()) };
    let error = ask(&Http::new(patience), request(vec![user("go")])).await.error();
    assert!(matches!(error, ProviderError::Server { .. }), "{error:?}");
}

#[tokio::test]
async fn ollama_needs_no_key_and_openrouter_says_what_it_charged() {
    let server = ModelServer::start(Script::steps(vec![Step::text("ok")]));
    let host = server.url().trim_end_matches("/v1").to_owned();
    let own = Endpoint { key: None, ..endpoint(ProviderKind::Ollama, host) };
    assert_eq!(ask(&Http::new(own), request(vec![user("go")])).await.text, "ok");
    let sent = server.requests().remove(0);
    assert_eq!((sent.path.as_str(), sent.header("authorization")), ("/v1/chat/completions", None));

    let usage = json!({"prompt_tokens": 9, "completion_tokens": 2, "cost": 0.0125});
    let last = format!("data: {}\n\ndata: [DONE]\n\n", json!({"choices": [], "usage": usage}));
    let server = ModelServer::start(Script::steps(vec![Step::raw(vec![last.into_bytes()])]));
    let got = ask(&Http::new(endpoint(ProviderKind::OpenRouter, server.url())), request(vec![user("go")])).await;
    assert_eq!(got.end.unwrap().0.cost_usd, Some(0.0125));
    assert_eq!(server.requests()[0].body["usage"], json!({"include": true}));
}

#[tokio::test]
async fn details_of_thinking_go_back_through_openrouter_to_the_model_that_gave_them() {
    let details = json!([{"type": "reasoning.encrypted", "data": "sealed"}]);
    let thinking = vec![Thinking { redacted: Some(details.to_string()), model: "tiny".into(), ..Thinking::default() }];
    let said = AssistantMessage { thinking, ..calling("a") };
    let own = second_request(ProviderKind::OpenRouter, "tiny", said.clone(), Vec::new()).await;
    assert_eq!(own["messages"][2]["reasoning_details"], details);
    let other = second_request(ProviderKind::OpenRouter, "huge", said, Vec::new()).await;
    assert!(!other.to_string().contains("sealed"));
}

#[tokio::test]
async fn a_model_is_asked_through_the_proxy_of_the_callers_environment() {
    let proxy = ModelServer::start(Script::steps(vec![Step::text("ok")]));
    let url = proxy.url().trim_end_matches("/v1").to_owned();
    let environment = [("http_proxy".to_owned(), url), ("no_proxy".to_owned(), "direct.invalid".to_owned())];
    let behind =
        |base: &str| Endpoint { proxies: Proxies::of(&environment), ..endpoint(ProviderKind::OpenAi, base.to_owned()) };
    let got = ask(&Http::new(behind("http://model.invalid/v1")), request(vec![user("go")])).await;
    assert_eq!(got.text, "ok", "{:?}", got.end);
    assert_eq!(proxy.requests()[0].path, "http://model.invalid/v1/chat/completions");
    let error = ask(&Http::new(behind("http://direct.invalid/v1")), request(vec![user("go")])).await.error();
    assert!(matches!(error, ProviderError::Unreachable { .. }), "{error:?}");
    assert_eq!(proxy.requests().len(), 1);
}
