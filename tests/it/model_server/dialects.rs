//! What the scripted model says, as events of either dialect, and what a strict provider would refuse to read.
//!
//! Deliberately absent: sockets and time.

use serde_json::{Value, json};

use super::{Call, Content, Ending, Ids, Indexes, Recorded, Step};

/// How a client was addressed, and so is answered.
#[derive(Clone, Copy)]
pub(super) enum Dialect {
    OpenAi,
    Anthropic,
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
    };
    let Some((kind, message)) = &step.error else {
        if step.ending == Ending::WithoutLastEvent {
            events.pop();
        }
        return events;
    };
    // What ends an answer: `[DONE]`, usage and stop reason; `message_stop` and `message_delta`.
    let ends = match dialect {
        Dialect::OpenAi => 2 + usize::from(step.tokens.is_some()),
        Dialect::Anthropic => 2,
    };
    events.truncate(events.len() - ends);
    let error = json!({"type": kind, "message": message});
    events.push(match dialect {
        Dialect::OpenAi => ("", json!({"error": error}).to_string()),
        Dialect::Anthropic => ("error", json!({"type": "error", "error": error}).to_string()),
    });
    events
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
    let finish = match (step.length, calls.is_empty()) {
        (true, _) => "length",
        (false, true) => "stop",
        (false, false) => "tool_calls",
    };
    events.push(chunk(json!({}), json!(finish)));
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
    let reason = match (step.length, calls.is_empty()) {
        (true, _) => "max_tokens",
        (false, true) => "end_turn",
        (false, false) => "tool_use",
    };
    let mut delta = json!({"type": "message_delta", "delta": {"stop_reason": reason}});
    if let Some(usage) = usage(tokens.map_or(0, |tokens| tokens.output)) {
        delta["usage"] = usage;
    }
    events.push(("message_delta", delta.to_string()));
    events.push(("message_stop", json!({"type": "message_stop"}).to_string()));
    events
}

/// What a strict provider would refuse in this history.
pub(super) fn fault_of(request: &Recorded) -> Option<String> {
    let messages = request.body["messages"].as_array().cloned().unwrap_or_default();
    if request.path.ends_with("/messages") { anthropic_fault(&messages) } else { openai_fault(&messages) }
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
}
