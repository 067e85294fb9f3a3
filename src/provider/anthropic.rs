//! Anthropic Messages: a request as JSON, and the events of its answer.
//!
//! Deliberately absent: bytes, the address and the key (`dialect.rs`).

use serde_json::{Map, Value, json};

use super::answer::{Answer, Counted};
use super::calls::Fragment;
use super::history::{self, Pictures, ResultOf, Turn};
use super::{ProviderEvent, Request};
use crate::model::message::{StopReason, Thinking};

/// How many turns of the user are marked, beside the system text and the tools: the dialect takes four marks. The last
/// one writes, the one before finds what the request before this one wrote.
const MARKED_TURNS: usize = 2;

/// What goes out.
pub(super) fn body(request: &Request, pictures: Pictures) -> Value {
    let mut messages: Vec<Value> =
        history::turns(request)
            .into_iter()
            .map(|turn| match turn {
                Turn::User(text) => json!({"role": "user", "content": [text_part(&text)]}),
                Turn::Answer { thinking, text, calls } => {
                    let own = thinking.into_iter().filter(|thought| thought.model == request.model);
                    let mut parts: Vec<Value> = own.filter_map(thinking_part).collect();
                    if !text.is_empty() {
                        parts.push(text_part(text));
                    }
                    parts.extend(calls.into_iter().map(
                        |call| json!({"type": "tool_use", "id": call.id, "name": call.name, "input": call.input}),
                    ));
                    json!({"role": "assistant", "content": parts})
                }
                Turn::Results { results, said } => {
                    let mut parts: Vec<Value> = results.iter().map(|result| result_part(result, pictures)).collect();
                    if !said.is_empty() {
                        parts.push(text_part(&said));
                    }
                    json!({"role": "user", "content": parts})
                }
            })
            .collect();
    let users = messages.iter_mut().rev().filter(|message| message["role"] == "user");
    for message in users.take(MARKED_TURNS) {
        mark(message["content"].as_array_mut().and_then(|parts| parts.last_mut()));
    }
    let mut body = json!({
        "model": request.model,
        "max_tokens": request.max_tokens,
        "stream": true,
    });
    if !request.system.trim().is_empty() {
        let mut system = text_part(&request.system);
        mark(Some(&mut system));
        body["system"] = json!([system]);
    }
    if !request.tools.is_empty() {
        let tools = request.tools.iter();
        let tools =
            tools.map(|tool| json!({"name": tool.name, "description": tool.description, "input_schema": tool.input}));
        let mut tools: Vec<Value> = tools.collect();
        mark(tools.last_mut());
        body["tools"] = Value::Array(tools);
    }
    body["messages"] = Value::Array(messages);
    body
}

/// What stands before a mark is found in the cache by the next request.
fn mark(part: Option<&mut Value>) {
    if let Some(part) = part {
        part["cache_control"] = json!({"type": "ephemeral"});
    }
}

fn text_part(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

/// Thinking without a proof is refused, so it is not sent.
fn thinking_part(thought: &Thinking) -> Option<Value> {
    match (&thought.redacted, &thought.signature) {
        (Some(data), _) => Some(json!({"type": "redacted_thinking", "data": data})),
        (None, Some(signature)) => Some(json!({"type": "thinking", "thinking": thought.text, "signature": signature})),
        (None, None) => None,
    }
}

fn result_part(result: &ResultOf<'_>, pictures: Pictures) -> Value {
    let mut part = json!({"type": "tool_result", "tool_use_id": result.id});
    match pictures {
        _ if result.images.is_empty() => part["content"] = json!(result.output),
        Pictures::Told => part["content"] = json!(format!("{}{}", result.output, history::told_of(result.images))),
        Pictures::Shown => {
            let images = result.images.iter().map(|image| {
                let source = json!({"type": "base64", "media_type": image.media_type, "data": image.data});
                json!({"type": "image", "source": source})
            });
            part["content"] = [text_part(result.output)].into_iter().chain(images).collect();
        }
    }
    if !result.ok && part["content"].is_string() {
        part["is_error"] = json!(true);
    }
    part
}

/// What an event tells at once.
pub(super) fn hear(answer: &mut Answer, frame: &Value) -> Vec<ProviderEvent> {
    match frame["type"].as_str().unwrap_or_default() {
        "message_start" => count(&mut answer.counted, &frame["message"]["usage"]),
        "message_delta" => {
            count(&mut answer.counted, &frame["usage"]);
            hear_stop(answer, &frame["delta"]["stop_reason"]);
        }
        "message_stop" => answer.whole = true,
        "content_block_start" => return hear_block(answer, frame["index"].as_u64(), &frame["content_block"]),
        "content_block_delta" => return hear_delta(answer, frame["index"].as_u64(), &frame["delta"]),
        // The whole answer at once, from a server that knows no streams.
        "message" => {
            count(&mut answer.counted, &frame["usage"]);
            hear_stop(answer, &frame["stop_reason"]);
            let blocks = frame["content"].as_array().into_iter().flatten().zip(0..);
            return blocks.flat_map(|(block, index)| hear_block(answer, Some(index), block)).collect();
        }
        // `ping`, `content_block_stop`, and what comes to the dialect later.
        _ => {}
    }
    Vec::new()
}

fn hear_stop(answer: &mut Answer, reason: &Value) {
    if let Some(reason) = reason.as_str() {
        answer.stop = Some(match reason {
            "max_tokens" | "model_context_window_exceeded" => StopReason::Length,
            "refusal" => StopReason::Refused,
            "tool_use" => StopReason::ToolCalls,
            _ => StopReason::End,
        });
    }
}

fn hear_block(answer: &mut Answer, index: Option<u64>, block: &Value) -> Vec<ProviderEvent> {
    match block["type"].as_str().unwrap_or_default() {
        "tool_use" => {
            // The input is empty here and comes in deltas; some gateways send it whole instead.
            let input = block["input"].as_object().filter(|input: &&Map<String, Value>| !input.is_empty());
            answer.calls.hear(Fragment {
                index,
                id: block["id"].as_str().unwrap_or_default(),
                name: block["name"].as_str().unwrap_or_default(),
                arguments: &input.map(|_| block["input"].to_string()).unwrap_or_default(),
            });
        }
        "redacted_thinking" => answer.thought(index).redacted = block["data"].as_str().map(str::to_owned),
        _ => {}
    }
    hear_spoken(answer, index, block)
}

fn hear_delta(answer: &mut Answer, index: Option<u64>, delta: &Value) -> Vec<ProviderEvent> {
    if let Some(arguments) = delta["partial_json"].as_str() {
        answer.calls.hear(Fragment { index, arguments, ..Fragment::default() });
    }
    hear_spoken(answer, index, delta)
}

/// Text and thinking of a block or a delta.
fn hear_spoken(answer: &mut Answer, index: Option<u64>, part: &Value) -> Vec<ProviderEvent> {
    let text = |key: &str| part[key].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    if let Some(signature) = text("signature") {
        answer.thought(index).signature.get_or_insert_default().push_str(&signature);
    }
    let thinking = text("thinking").map(|thinking| {
        answer.thought(index).text.push_str(&thinking);
        ProviderEvent::Thinking(thinking)
    });
    thinking.into_iter().chain(text("text").map(ProviderEvent::Text)).collect()
}

/// Cached input is counted beside `input_tokens`. Counters of the cache that come without it are parts of an input
/// already told.
fn count(counted: &mut Counted, usage: &Value) {
    let told = |key: &str| usage[key].as_u64();
    counted.cache_read = told("cache_read_input_tokens").unwrap_or(counted.cache_read);
    counted.cache_written = told("cache_creation_input_tokens").unwrap_or(counted.cache_written);
    counted.output = told("output_tokens").unwrap_or(counted.output);
    if let Some(fresh) = told("input_tokens") {
        counted.heard = true;
        counted.input = fresh.saturating_add(counted.cache_read).saturating_add(counted.cache_written);
    }
}
