//! What the scripted model says, as events of each dialect, and what a strict provider would refuse to read.
//!
//! Deliberately absent: sockets and time.

use serde_json::{Value, json};

use super::{Call, Content, Ending, Ids, Indexes, Recorded, Step};

/// How a client was addressed, and so is answered.
#[derive(Clone, Copy)]
pub(super) enum Dialect {
    OpenAi,
    Anthropic,
    Gemini,
}

impl Dialect {
    pub(super) fn of(path: &str) -> Self {
        if path.ends_with("/messages") {
            Self::Anthropic
        } else if path.contains(":streamGenerateContent") {
            Self::Gemini
        } else {
            Self::OpenAi
        }
    }
}

/// An event: its name, empty if it has none, and its data.
pub(super) type Event = (&'static str, String);

pub(super) fn event_bytes((name, data): &Event, crlf: bool) -> Vec<u8> {
    let end = if crlf { "\r\n" } else { "\n" };
    let name = if name.is_empty() { String::new() } else { format!("event: {name}{end}") };
    format!("{name}data: {data}{end}{end}").into_bytes()
}

pub(super) fn events_of(step: &Step, dialect: Dialect) -> Vec<Event> {
    let Content::Answer { text, calls } = &step.content else { return Vec::new() };
    let mut events = match dialect {
        Dialect::OpenAi => openai_events(step, text, calls),
        Dialect::Anthropic => anthropic_events(step, text, calls),
        Dialect::Gemini => gemini_events(step, text, calls),
    };
    let Some((kind, message)) = &step.error else {
        if matches!(step.ending, Ending::WithoutLastEvent | Ending::Ping) {
            events.truncate(events.len() - ends(step, dialect));
        }
        return events;
    };
    events.truncate(events.len() - ends(step, dialect));
    let error = json!({"type": kind, "message": message});
    events.push(match dialect {
        Dialect::OpenAi => ("", json!({"error": error}).to_string()),
        Dialect::Anthropic => ("error", json!({"type": "error", "error": error}).to_string()),
        Dialect::Gemini => ("", json!({"error": {"status": kind.to_uppercase(), "message": message}}).to_string()),
    });
    events
}

/// How many events end an answer: `[DONE]`, usage and stop reason; `message_stop` and `message_delta`; the last chunk.
fn ends(step: &Step, dialect: Dialect) -> usize {
    match dialect {
        Dialect::OpenAi => 2 + usize::from(step.tokens.is_some()),
        Dialect::Anthropic => 2,
        Dialect::Gemini => 1,
    }
}

/// Why the answer ends, by the name a dialect has for it.
fn reason<'a>(step: &'a Step, calls: &[Call], names: [&'a str; 3]) -> &'a str {
    match (&step.reason, step.length, calls.is_empty()) {
        (Some(reason), _, _) => reason,
        (None, true, _) => names[0],
        (None, false, true) => names[1],
        (None, false, false) => names[2],
    }
}

/// Text in at most `number` pieces, cut between characters.
fn pieces(text: &str, number: usize) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let size = chars.len().div_ceil(number).max(1);
    let pieces: Vec<String> = chars.chunks(size).map(|piece| piece.iter().collect()).collect();
    if pieces.is_empty() { vec![String::new()] } else { pieces }
}

fn openai_events(step: &Step, text: &str, calls: &[Call]) -> Vec<Event> {
    let chunk = |delta: Value, finish: Value| {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
        ("", json!({"id": "chat", "object": "chat.completion.chunk", "choices": [choice]}).to_string())
    };
    let mut events = vec![chunk(json!({"role": "assistant", "content": ""}), Value::Null)];
    if let Some((thinking, _)) = &step.thinking {
        let thinking = pieces(thinking, 2).into_iter();
        events.extend(thinking.map(|piece| chunk(json!({"reasoning_content": piece}), Value::Null)));
    }
    if !text.is_empty() {
        events.extend(pieces(text, 3).into_iter().map(|piece| chunk(json!({"content": piece}), Value::Null)));
    }
    let fragments = calls.iter().enumerate().map(|(number, call)| openai_fragments(step, number, call));
    let mut fragments: Vec<Vec<Value>> = fragments.collect();
    if step.interleaved {
        let longest = fragments.iter().map(Vec::len).max().unwrap_or(0);
        let turns = (0..longest).map(|turn| fragments.iter().filter_map(|of| of.get(turn).cloned()).collect());
        fragments = turns.collect();
    }
    for fragment in fragments.into_iter().flatten() {
        events.push(chunk(json!({"tool_calls": [fragment]}), Value::Null));
    }
    events.push(chunk(json!({}), json!(reason(step, calls, ["length", "stop", "tool_calls"]))));
    if let Some(tokens) = step.tokens {
        let usage = json!({
            "prompt_tokens": tokens.input,
            "completion_tokens": tokens.output,
            "total_tokens": tokens.input + tokens.output,
            "prompt_tokens_details": {"cached_tokens": tokens.cached},
        });
        events.push(("", json!({"id": "chat", "choices": [], "usage": usage}).to_string()));
    }
    events.push(("", "[DONE]".into()));
    events
}

fn openai_fragments(step: &Step, number: usize, call: &Call) -> Vec<Value> {
    let parts = pieces(&call.arguments, step.fragments).into_iter().enumerate();
    let fragments = parts.map(|(part, arguments)| {
        let mut fragment = json!({"type": "function", "function": {"arguments": arguments}});
        if part == 0 {
            fragment["function"]["name"] = json!(call.name);
        }
        if step.ids == Ids::Every || (step.ids == Ids::First && part == 0) {
            fragment["id"] = json!(call.id);
        }
        match step.indexes {
            Indexes::Right => fragment["index"] = json!(number),
            Indexes::Missing => {}
            Indexes::AllZero => fragment["index"] = json!(0),
            Indexes::Odd => fragment["index"] = json!(5 + 4 * number),
            Indexes::Bomb => fragment["index"] = json!(u32::MAX as usize - number),
        }
        fragment
    });
    fragments.collect()
}

fn anthropic_events(step: &Step, text: &str, calls: &[Call]) -> Vec<Event> {
    let tokens = step.tokens;
    let usage = |output: u64| {
        tokens.map(|tokens| {
            json!({
                "input_tokens": tokens.input - tokens.cached,
                "cache_read_input_tokens": tokens.cached,
                "cache_creation_input_tokens": 0,
                "output_tokens": output,
            })
        })
    };
    let mut start = json!({"type": "message_start", "message": {"id": "msg", "role": "assistant", "content": []}});
    if let Some(usage) = usage(1) {
        start["message"]["usage"] = usage;
    }
    let mut events = vec![("message_start", start.to_string()), ("ping", json!({"type": "ping"}).to_string())];
    let mut index = 0;
    let mut block = |start: Value, deltas: Vec<Value>| {
        let begin = json!({"type": "content_block_start", "index": index, "content_block": start});
        events.push(("content_block_start", begin.to_string()));
        for delta in deltas {
            let delta = json!({"type": "content_block_delta", "index": index, "delta": delta});
            events.push(("content_block_delta", delta.to_string()));
        }
        let end = json!({"type": "content_block_stop", "index": index});
        events.push(("content_block_stop", end.to_string()));
        index += 1;
    };
    if let Some((thinking, signature)) = &step.thinking {
        let deltas = pieces(thinking, 2).into_iter().map(|piece| json!({"type": "thinking_delta", "thinking": piece}));
        let signature = pieces(signature, 2).into_iter();
        let signature = signature.map(|piece| json!({"type": "signature_delta", "signature": piece}));
        block(json!({"type": "thinking", "thinking": ""}), deltas.chain(signature).collect());
        block(json!({"type": "redacted_thinking", "data": format!("hidden {thinking}")}), Vec::new());
    }
    if !text.is_empty() {
        let deltas = pieces(text, 3).into_iter().map(|piece| json!({"type": "text_delta", "text": piece}));
        block(json!({"type": "text", "text": ""}), deltas.collect());
    }
    for call in calls {
        let id = if step.ids == Ids::Never { "" } else { &call.id };
        let parts = pieces(&call.arguments, step.fragments).into_iter();
        let deltas = parts.map(|piece| json!({"type": "input_json_delta", "partial_json": piece}));
        block(json!({"type": "tool_use", "id": id, "name": call.name, "input": {}}), deltas.collect());
    }
    let reason = reason(step, calls, ["max_tokens", "end_turn", "tool_use"]);
    let mut delta = json!({"type": "message_delta", "delta": {"stop_reason": reason}});
    if let Some(usage) = usage(tokens.map_or(0, |tokens| tokens.output)) {
        delta["usage"] = usage;
    }
    events.push(("message_delta", delta.to_string()));
    events.push(("message_stop", json!({"type": "message_stop"}).to_string()));
    events
}

/// Parts of one candidate, a few in each chunk; the last chunk has the reason and the usage.
fn gemini_events(step: &Step, text: &str, calls: &[Call]) -> Vec<Event> {
    let chunk = |parts: Vec<Value>| json!({"candidates": [{"index": 0, "content": {"role": "model", "parts": parts}}]});
    let mut chunks = Vec::new();
    if let Some((thinking, _)) = &step.thinking {
        let thinking = pieces(thinking, 2).into_iter();
        chunks.extend(thinking.map(|piece| chunk(vec![json!({"text": piece, "thought": true})])));
    }
    if !text.is_empty() {
        chunks.extend(pieces(text, 3).into_iter().map(|piece| chunk(vec![json!({"text": piece})])));
    }
    for (number, call) in calls.iter().enumerate() {
        // The arguments are JSON in this dialect and cannot be broken; as text they stand for what a proxy made of them.
        let args = serde_json::from_str(&call.arguments).unwrap_or_else(|_| json!(call.arguments));
        let mut part = json!({"functionCall": {"name": call.name, "args": args}});
        if let Some((_, signature)) = step.thinking.as_ref().filter(|_| number == 0) {
            part["thoughtSignature"] = json!(signature);
        }
        chunks.push(chunk(vec![part]));
    }
    let mut last = chunk(vec![json!({"text": ""})]);
    last["candidates"][0]["finishReason"] = json!(reason(step, calls, ["MAX_TOKENS", "STOP", "STOP"]));
    if let Some(tokens) = step.tokens {
        last["usageMetadata"] = json!({
            "promptTokenCount": tokens.input,
            "cachedContentTokenCount": tokens.cached,
            "candidatesTokenCount": tokens.output,
            "totalTokenCount": tokens.input + tokens.output,
        });
    }
    chunks.push(last);
    chunks.into_iter().map(|chunk| ("", chunk.to_string())).collect()
}

/// What a strict provider would refuse in this request.
pub(super) fn fault_of(request: &Recorded) -> Option<String> {
    let list = |key: &str| request.body[key].as_array().cloned().unwrap_or_default();
    match Dialect::of(&request.path) {
        Dialect::Anthropic => anthropic_fault(&list("messages")),
        Dialect::OpenAi => openai_fault(&list("messages")),
        Dialect::Gemini => gemini_fault(&list("contents")).or_else(|| gemini_schema_fault(&request.body["tools"])),
    }
}

fn gemini_fault(contents: &[Value]) -> Option<String> {
    let mut open = 0;
    let mut before = "model".to_owned();
    for (at, content) in contents.iter().enumerate() {
        let role = content["role"].as_str().unwrap_or_default();
        if role == before || !matches!(role, "user" | "model") {
            return Some(format!("contents[{at}]: the role `{role}` comes after `{before}`"));
        }
        role.clone_into(&mut before);
        let parts = content["parts"].as_array().cloned().unwrap_or_default();
        let count = |key: &str| parts.iter().filter(|part| part.get(key).is_some()).count();
        if parts.is_empty() || parts.iter().any(|part| part["text"] == "") {
            return Some(format!("contents[{at}]: a part is empty"));
        }
        if count("functionResponse") != open {
            return Some(format!("contents[{at}]: {open} function responses are needed"));
        }
        if parts.iter().any(|part| part["functionCall"].get("args").is_some_and(|args| !args.is_object())) {
            return Some(format!("contents[{at}]: args are no struct"));
        }
        open = count("functionCall");
    }
    (open > 0).then(|| format!("{open} calls have no response"))
}

/// The first keyword that the dialect's own schema does not have.
fn gemini_schema_fault(value: &Value) -> Option<String> {
    const UNKNOWN: [&str; 5] = ["additionalProperties", "$schema", "default", "const", "oneOf"];
    match value {
        Value::Object(map) => map.iter().find_map(|(key, value)| {
            let unknown = UNKNOWN.contains(&key.as_str()).then(|| format!("unknown name `{key}`"));
            unknown.or_else(|| gemini_schema_fault(value))
        }),
        Value::Array(values) => values.iter().find_map(gemini_schema_fault),
        _ => None,
    }
}

fn openai_fault(messages: &[Value]) -> Option<String> {
    let mut open: Vec<String> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        let role = message["role"].as_str().unwrap_or_default();
        if role == "tool" {
            let id = message["tool_call_id"].as_str().unwrap_or_default();
            let Some(found) = open.iter().position(|waiting| waiting == id) else {
                return Some(format!("messages.{at}: no call `{id}` waits for a result"));
            };
            open.remove(found);
            continue;
        }
        if let Some(id) = open.first() {
            return Some(format!("messages.{at}: the call `{id}` has no result"));
        }
        if role == "system" && at > 0 {
            return Some(format!("messages.{at}: a second system message"));
        }
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            let arguments = call["function"]["arguments"].as_str().unwrap_or_default();
            if !serde_json::from_str::<Value>(arguments).is_ok_and(|value| value.is_object()) {
                return Some(format!("messages.{at}: arguments `{arguments}` are not a JSON object"));
            }
            let id = call["id"].as_str().unwrap_or_default().to_owned();
            if id.is_empty() || open.contains(&id) {
                return Some(format!("messages.{at}: the id `{id}` is empty or used twice"));
            }
            open.push(id);
        }
    }
    open.first().map(|id| format!("the call `{id}` has no result"))
}

fn anthropic_fault(messages: &[Value]) -> Option<String> {
    let mut open: Vec<String> = Vec::new();
    let mut seen: Vec<String> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        let parts = match &message["content"] {
            Value::String(text) => vec![json!({"type": "text", "text": text})],
            Value::Array(parts) => parts.clone(),
            _ => Vec::new(),
        };
        if parts.is_empty() || !matches!(message["role"].as_str(), Some("user" | "assistant")) {
            return Some(format!("messages.{at}: no content, or a role that is not user or assistant"));
        }
        if message["role"] == "assistant"
            && let Some(id) = open.first()
        {
            return Some(format!("messages.{at}: the call `{id}` has no result"));
        }
        for part in &parts {
            let id = part["id"].as_str().or(part["tool_use_id"].as_str()).unwrap_or_default().to_owned();
            match part["type"].as_str() {
                Some("tool_use") if !part["input"].is_object() || seen.contains(&id) || id.is_empty() => {
                    return Some(format!("messages.{at}: the call `{id}` is not unique or its input is no object"));
                }
                Some("tool_use") => {
                    seen.push(id.clone());
                    open.push(id);
                }
                Some("tool_result") => {
                    let Some(found) = open.iter().position(|waiting| *waiting == id) else {
                        return Some(format!("messages.{at}: no call `{id}` waits for a result"));
                    };
                    open.remove(found);
                }
                Some("text") if part["text"].as_str().is_none_or(|text| text.trim().is_empty()) => {
                    return Some(format!("messages.{at}: text must not be empty"));
                }
                _ => {}
            }
        }
        // All results stand in the one message after the calls.
        if message["role"] == "user"
            && let Some(id) = open.first()
        {
            return Some(format!("messages.{at}: the call `{id}` has no result"));
        }
    }
    open.first().map(|id| format!("the call `{id}` has no result"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(path: &str, messages: &Value) -> Option<String> {
        let body = json!({"messages": messages});
        fault_of(&Recorded { path: path.into(), headers: Vec::new(), body, at: std::time::Instant::now() })
    }

    #[test]
    fn a_strict_openai_server_refuses_what_the_real_one_does() {
        let call = |id: &str, arguments: &str| json!({"role": "assistant", "tool_calls": [{"id": id, "function": {"name": "f", "arguments": arguments}}]});
        let result = |id: &str| json!({"role": "tool", "tool_call_id": id, "content": "x"});
        let user = json!({"role": "user", "content": "go"});
        let fault = |messages: Value| fault("/v1/chat/completions", &messages);
        assert_eq!(fault(json!([user, call("a", "{}"), result("a"), user])), None);
        for wrong in [
            json!([user, call("a", "{\"x"), result("a")]),
            json!([user, call("a", "{}"), user]),
            json!([user, call("a", "{}")]),
            json!([user, call("a", "{}"), result("a"), result("a")]),
            json!([user, result("b")]),
            json!([user, {"role": "system", "content": "two"}]),
        ] {
            assert!(fault(wrong.clone()).is_some(), "{wrong}");
        }
    }

    #[test]
    fn a_strict_anthropic_server_refuses_what_the_real_one_does() {
        let call = |id: &str, input: Value| json!({"role": "assistant", "content": [{"type": "tool_use", "id": id, "name": "f", "input": input}]});
        let result = |id: &str| json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": id}]});
        let user = json!({"role": "user", "content": "go"});
        let fault = |messages: Value| fault("/v1/messages", &messages);
        assert_eq!(fault(json!([user, call("a", json!({})), result("a"), user])), None);
        for wrong in [
            json!([user, call("a", json!("{")), result("a")]),
            json!([user, call("a", json!({})), user]),
            json!([user, call("a", json!({})), call("b", json!({}))]),
            json!([user, call("a", json!({})), result("a"), call("a", json!({})), result("a")]),
            json!([user, call("a", json!({}))]),
            json!([user, result("b")]),
            json!([user, {"role": "assistant", "content": []}]),
            json!([user, {"role": "system", "content": "two"}]),
        ] {
            assert!(fault(wrong.clone()).is_some(), "{wrong}");
        }
    }

    #[test]
    fn a_strict_gemini_server_refuses_what_the_real_one_does() {
        let call = |args: Value| json!({"role": "model", "parts": [{"functionCall": {"name": "f", "args": args}}]});
        let result = json!({"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {}}}]});
        let user = json!({"role": "user", "parts": [{"text": "go"}]});
        assert_eq!(gemini_fault(&[user.clone(), call(json!({})), result.clone()]), None);
        for wrong in [
            vec![user.clone(), call(json!("{")), result.clone()],
            vec![user.clone(), call(json!({})), user.clone()],
            vec![user.clone(), call(json!({}))],
            vec![user.clone(), user.clone()],
            vec![call(json!({})), result.clone()],
            vec![user, json!({"role": "model", "parts": []})],
        ] {
            assert!(gemini_fault(&wrong).is_some(), "{wrong:?}");
        }
        let tools = json!([{"functionDeclarations": [{"parameters": {"additionalProperties": false}}]}]);
        assert!(gemini_schema_fault(&tools).is_some());
    }
}
