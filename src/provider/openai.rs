//! OpenAI Chat Completions, and the many servers that speak it: a request as JSON, and the events of its answer.
//!
//! Servers differ most here, so what goes out is the least that all take: one system text, first; no field but the
//! common ones; and what a server does not take after all is learned (`lesson.rs`). Deliberately absent: bytes, the
//! address and the key (`dialect.rs`).

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::answer::{Answer, Counted};
use super::calls::Fragment;
use super::history::{self, Call, Pictures, ResultOf, Turn};
use super::lesson::Lesson;
use super::{ProviderError, ProviderEvent, Request};
use crate::model::message::{StopReason, Thinking};

/// What goes out.
pub(super) fn body(request: &Request, pictures: Pictures, lessons: &BTreeSet<Lesson>) -> Value {
    let mut messages = Vec::new();
    if !request.system.trim().is_empty() {
        messages.push(json!({"role": "system", "content": request.system}));
    }
    let think = lessons.contains(&Lesson::ThinkingBack);
    for turn in history::turns(request) {
        match turn {
            Turn::User(text) => messages.push(json!({"role": "user", "content": text})),
            Turn::Answer { thinking, text, calls } => {
                let own = thinking.iter().filter(|thought| thought.model == request.model);
                let details = own.filter_map(|thought| thought.redacted.as_deref()).next_back();
                let thinking = if think { thinking } else { Vec::new() };
                let mut message = answer_message(&thinking, text, &calls);
                if let Some(details) = details.and_then(|details| serde_json::from_str::<Value>(details).ok()) {
                    message["reasoning_details"] = details;
                }
                messages.push(message);
            }
            Turn::Results { results, said } => {
                messages.extend(results.iter().map(|result| result_message(result, pictures)));
                messages.extend(user_message(&results, &said, pictures));
            }
        }
    }
    let mut body = json!({"model": request.model, "messages": messages});
    if !request.tools.is_empty() {
        let tools = request.tools.iter().map(|tool| {
            let function = json!({"name": tool.name, "description": tool.description, "parameters": tool.input});
            json!({"type": "function", "function": function})
        });
        body["tools"] = tools.collect();
    }
    let newer = wants_completion_tokens(&request.model) || lessons.contains(&Lesson::CompletionTokens);
    let limit = if newer { "max_completion_tokens" } else { "max_tokens" };
    body[limit] = json!(request.max_tokens);
    body["stream"] = json!(true);
    if !lessons.contains(&Lesson::NoStreamOptions) {
        body["stream_options"] = json!({"include_usage": true});
    }
    body
}

/// Marks the system text and the last two turns of the user, as OpenRouter wants it for models that cache by marks.
pub(super) fn mark(body: &mut Value) {
    const MARKED_TURNS: usize = 2;
    let Some(messages) = body["messages"].as_array_mut() else { return };
    let system = messages.iter().position(|message| message["role"] == "system");
    let users = (0..messages.len()).rev().filter(|at| messages[*at]["role"] == "user").take(MARKED_TURNS);
    let places: Vec<usize> = system.into_iter().chain(users).collect();
    for at in places {
        let content = &mut messages[at]["content"];
        if let Some(text) = content.as_str() {
            *content = json!([{"type": "text", "text": text}]);
        }
        if let Some(last) = content.as_array_mut().and_then(|parts| parts.last_mut()) {
            last["cache_control"] = json!({"type": "ephemeral"});
        }
    }
}

/// Models that refuse `max_tokens`: those that think, from `o1` and `gpt-5` on.
fn wants_completion_tokens(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or(model);
    let number_after = |start: &str| {
        let rest = name.strip_prefix(start)?;
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        rest[..end].parse::<u32>().ok()
    };
    number_after("gpt-").is_some_and(|version| version >= 5) || number_after("o").is_some()
}

fn answer_message(thinking: &[&Thinking], text: &str, calls: &[Call]) -> Value {
    let mut message = json!({"role": "assistant", "content": if text.is_empty() { Value::Null } else { json!(text) }});
    if !calls.is_empty() {
        let calls = calls.iter().map(|call| {
            let arguments = Value::Object(call.input.clone()).to_string();
            let function = json!({"name": call.name, "arguments": arguments});
            json!({"id": call.id, "type": "function", "function": function})
        });
        message["tool_calls"] = calls.collect();
    }
    let thinking: String = thinking.iter().map(|thought| thought.text.as_str()).collect();
    if !thinking.is_empty() {
        message["reasoning_content"] = json!(thinking);
    }
    message
}

fn result_message(result: &ResultOf<'_>, pictures: Pictures) -> Value {
    let more = match pictures {
        Pictures::Told => history::told_of(result.images),
        Pictures::Shown => String::new(),
    };
    json!({"role": "tool", "tool_call_id": result.id, "content": format!("{}{more}", result.output)})
}

/// What follows the results of tools: their pictures, which a result may not hold here, and what the user said.
fn user_message(results: &[ResultOf<'_>], said: &str, pictures: Pictures) -> Option<Value> {
    let mut parts = Vec::new();
    let pictured = results.iter().filter(|result| pictures == Pictures::Shown && !result.images.is_empty());
    for result in pictured {
        parts.push(json!({"type": "text", "text": format!("The result of {} ({}) shows:", result.name, result.id)}));
        parts.extend(result.images.iter().map(|image| {
            let url = format!("data:{};base64,{}", image.media_type, image.data);
            json!({"type": "image_url", "image_url": {"url": url}})
        }));
    }
    if parts.is_empty() {
        return (!said.is_empty()).then(|| json!({"role": "user", "content": said}));
    }
    if !said.is_empty() {
        parts.push(json!({"type": "text", "text": said}));
    }
    Some(json!({"role": "user", "content": parts}))
}

/// What an event tells at once.
pub(super) fn hear(answer: &mut Answer, frame: &Value) -> Result<Vec<ProviderEvent>, ProviderError> {
    count(&mut answer.counted, &frame["usage"]);
    let choice = &frame["choices"][0];
    if let Some(reason) = choice["finish_reason"].as_str() {
        answer.stop = Some(stop_of(reason)?);
    }
    // A server that knows no streams sends a whole message.
    let delta = choice.get("delta").or(choice.get("message")).unwrap_or(&Value::Null);
    let mut events = Vec::new();
    for key in ["reasoning_content", "reasoning"] {
        if let Some(text) = delta[key].as_str().filter(|text| !text.is_empty()) {
            answer.thought(None).text.push_str(text);
            events.push(ProviderEvent::Thinking(text.to_owned()));
            break;
        }
    }
    for detail in delta["reasoning_details"].as_array().into_iter().flatten() {
        answer.hear_detail(detail);
    }
    let text = text_of(&delta["content"]) + delta["refusal"].as_str().unwrap_or_default();
    if !text.is_empty() {
        events.push(ProviderEvent::Text(text));
    }
    for call in delta["tool_calls"].as_array().into_iter().flatten() {
        let function = &call["function"];
        // Some servers send an object where the dialect has its text.
        let object = function["arguments"].as_object().map(|_| function["arguments"].to_string());
        answer.calls.hear(Fragment {
            index: call["index"].as_u64(),
            id: call["id"].as_str().unwrap_or_default(),
            name: function["name"].as_str().unwrap_or_default(),
            arguments: object.as_deref().or(function["arguments"].as_str()).unwrap_or_default(),
        });
    }
    Ok(events)
}

/// A string, or an array of parts with text.
fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        _ => String::new(),
    }
}

/// Reasons that name a failure of the server end no answer.
fn stop_of(reason: &str) -> Result<StopReason, ProviderError> {
    Ok(match reason {
        "length" | "max_tokens" => StopReason::Length,
        "content_filter" | "refusal" => StopReason::Refused,
        "tool_calls" | "tool_use" | "function_call" => StopReason::ToolCalls,
        "error" | "network_error" | "insufficient_system_resource" => {
            let detail = format!("the server ended the answer with `{reason}`");
            return Err(ProviderError::Server { retry_after_s: None, detail });
        }
        _ => StopReason::End,
    })
}

fn count(counted: &mut Counted, usage: &Value) {
    let Some(input) = usage["prompt_tokens"].as_u64() else { return };
    counted.heard = true;
    counted.input = input;
    // DeepSeek has a name of its own for what was read from the cache.
    let read = usage["prompt_tokens_details"]["cached_tokens"].as_u64();
    counted.cache_read = read.or(usage["prompt_cache_hit_tokens"].as_u64()).unwrap_or(0);
    counted.output = usage["completion_tokens"].as_u64().unwrap_or(0);
    // OpenRouter says what it charged.
    counted.cost_usd = usage["cost"].as_f64().filter(|cost| cost.is_finite() && *cost >= 0.0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_that_think_are_given_their_limit_by_its_newer_name() {
        for newer in ["gpt-5", "gpt-5-mini", "gpt-5.2-codex", "gpt-12", "o1", "o3-mini", "openai/o4-mini"] {
            assert!(wants_completion_tokens(newer), "{newer}");
        }
        for older in ["gpt-4o", "gpt-4.1", "gpt-oss-120b", "olmo-2", "qwen3", "omni", "gpt-", ""] {
            assert!(!wants_completion_tokens(older), "{older}");
        }
    }

    #[test]
    fn marks_are_put_on_the_system_text_and_the_last_two_turns_of_the_user() {
        let user = |text: &str| json!({"role": "user", "content": text});
        let mut body = json!({"messages": [{"role": "system", "content": "s"}, user("a"), user("b"), user("c")]});
        mark(&mut body);
        let marked: Vec<bool> = body["messages"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|message| message["content"][0]["cache_control"] == json!({"type": "ephemeral"}))
            .collect();
        assert_eq!(marked, [true, false, true, true]);
        assert_eq!(body["messages"][3]["content"][0]["text"], "c");
    }

    #[test]
    fn a_reason_that_names_a_failure_is_no_end() {
        assert_eq!(stop_of("stop"), Ok(StopReason::End));
        assert_eq!(stop_of("eos_token"), Ok(StopReason::End));
        assert!(matches!(stop_of("network_error"), Err(ProviderError::Server { .. })));
    }
}
