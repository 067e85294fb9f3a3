//! Gemini's `streamGenerateContent`: a request as JSON, and the events of its answer.
//!
//! Deliberately absent: bytes, the address and the key (`dialect.rs`).

use serde_json::{Map, Value, json};

use super::answer::{Answer, Counted};
use super::calls::Fragment;
use super::history::{self, Pictures, ResultOf, Turn};
use super::{ProviderError, ProviderEvent, Request};
use crate::model::message::{StopReason, Thinking};

/// Accepted in place of a proof for a call that another model made.
const NO_PROOF: &str = "skip_thought_signature_validator";

/// What goes out.
pub(super) fn body(request: &Request, pictures: Pictures) -> Value {
    let mut contents = Vec::new();
    for turn in history::turns(request) {
        contents.push(match turn {
            Turn::User(text) => json!({"role": "user", "parts": [{"text": text}]}),
            Turn::Answer { thinking, text, calls } => {
                let own = thinking.into_iter().find(|thought| thought.model == request.model);
                let mut parts: Vec<Value> = Vec::new();
                if !text.is_empty() {
                    parts.push(json!({"text": text}));
                }
                let first_call = parts.len();
                parts.extend(
                    calls.into_iter().map(|call| json!({"functionCall": {"name": call.name, "args": call.input}})),
                );
                // The proof belongs to the first of parallel calls, and to the text where there are none.
                let at = if parts.len() > first_call { first_call } else { 0 };
                if let Some(proof) = proof(own, &request.model, parts.len() > first_call) {
                    parts[at]["thoughtSignature"] = json!(proof);
                }
                json!({"role": "model", "parts": parts})
            }
            Turn::Results { results, said } => {
                let mut parts: Vec<Value> = results.iter().map(|result| result_part(result, pictures)).collect();
                let images = results.iter().flat_map(|result| result.images).filter(|_| pictures == Pictures::Shown);
                parts.extend(
                    images.map(|image| json!({"inlineData": {"mimeType": image.media_type, "data": image.data}})),
                );
                if !said.is_empty() {
                    parts.push(json!({"text": said}));
                }
                json!({"role": "user", "parts": parts})
            }
        });
    }
    let mut body = json!({});
    if !request.system.trim().is_empty() {
        body["systemInstruction"] = json!({"parts": [{"text": request.system}]});
    }
    if !request.tools.is_empty() {
        let tools = request.tools.iter().map(|tool| {
            let mut declared = json!({"name": tool.name, "description": tool.description});
            let parameters = schema(&tool.input);
            // An object without properties is refused; no parameters at all are not.
            if parameters.get("properties").is_some() {
                declared["parameters"] = parameters;
            }
            declared
        });
        body["tools"] = json!([{"functionDeclarations": tools.collect::<Vec<_>>()}]);
    }
    body["generationConfig"] = json!({"maxOutputTokens": request.max_tokens});
    body["contents"] = Value::Array(contents);
    body
}

/// The proof that goes back with an answer. Newer models refuse a call without any.
fn proof<'a>(thought: Option<&'a Thinking>, model: &str, calls: bool) -> Option<&'a str> {
    let own = thought.and_then(|thought| thought.signature.as_deref());
    own.or_else(|| (calls && version(model) >= 3).then_some(NO_PROOF))
}

/// 3 of `gemini-3-pro`, 0 of what has another name.
fn version(model: &str) -> u32 {
    let rest = model.rsplit('/').next().and_then(|name| name.strip_prefix("gemini-")).unwrap_or_default();
    rest.split(|c: char| !c.is_ascii_digit()).next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

fn result_part(result: &ResultOf<'_>, pictures: Pictures) -> Value {
    let told = match pictures {
        Pictures::Told => history::told_of(result.images),
        Pictures::Shown => String::new(),
    };
    let key = if result.ok { "output" } else { "error" };
    json!({"functionResponse": {"name": result.name, "response": {key: format!("{}{told}", result.output)}}})
}

/// A JSON Schema as far as the dialect knows it; it refuses the rest.
fn schema(full: &Value) -> Value {
    let Some(full) = full.as_object() else { return json!({}) };
    let mut kept = Map::new();
    for (key, value) in full {
        match key.as_str() {
            "type" => hear_type(value, &mut kept),
            "properties" => {
                let properties = value.as_object().into_iter().flatten();
                let properties: Map<String, Value> =
                    properties.map(|(name, value)| (name.clone(), schema(value))).collect();
                if !properties.is_empty() {
                    kept.insert(key.clone(), Value::Object(properties));
                }
            }
            "items" => {
                kept.insert(key.clone(), schema(value));
            }
            "anyOf" | "oneOf" => {
                let all = value.as_array().into_iter().flatten().map(schema).collect();
                kept.insert("anyOf".to_owned(), all);
            }
            "const" if value.is_string() => {
                kept.insert("enum".to_owned(), json!([value]));
            }
            "enum" if value.as_array().is_some_and(|values| values.iter().all(Value::is_string)) => {
                kept.insert(key.clone(), value.clone());
            }
            "description" | "required" | "nullable" | "minItems" | "maxItems" | "minimum" | "maximum" => {
                kept.insert(key.clone(), value.clone());
            }
            _ => {}
        }
    }
    // Only what is a property may be required.
    let known: Vec<String> =
        kept.get("properties").and_then(Value::as_object).into_iter().flat_map(Map::keys).cloned().collect();
    if let Some(required) = kept.get_mut("required").and_then(Value::as_array_mut) {
        required.retain(|name| name.as_str().is_some_and(|name| known.iter().any(|known| known == name)));
        if required.is_empty() {
            kept.remove("required");
        }
    }
    Value::Object(kept)
}

/// One type; `null` beside it is a mark of its own here.
fn hear_type(value: &Value, kept: &mut Map<String, Value>) {
    let types = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
    if types.iter().any(|one| one == "null") {
        kept.insert("nullable".to_owned(), json!(true));
    }
    if let Some(first) = types.iter().find(|one| *one != "null") {
        kept.insert("type".to_owned(), first.clone());
    }
}

/// What an event tells at once.
pub(super) fn hear(answer: &mut Answer, frame: &Value) -> Result<Vec<ProviderEvent>, ProviderError> {
    count(&mut answer.counted, &frame["usageMetadata"]);
    if frame["promptFeedback"]["blockReason"].is_string() {
        answer.stop = Some(StopReason::Refused);
    }
    let candidate = &frame["candidates"][0];
    let mut events = Vec::new();
    for part in candidate["content"]["parts"].as_array().into_iter().flatten() {
        if let Some(signature) = part["thoughtSignature"].as_str().or(part["thought_signature"].as_str()) {
            // The first proof is the one that newer models ask for.
            answer.thought(None).signature.get_or_insert_with(|| signature.to_owned());
        }
        if let Some(call) = part["functionCall"].as_object() {
            answer.calls.hear_whole(Fragment {
                index: None,
                id: call.get("id").and_then(Value::as_str).unwrap_or_default(),
                name: call.get("name").and_then(Value::as_str).unwrap_or_default(),
                arguments: &call.get("args").filter(|args| !args.is_null()).map(Value::to_string).unwrap_or_default(),
            });
        }
        let Some(text) = part["text"].as_str().filter(|text| !text.is_empty()) else { continue };
        if part["thought"] == true {
            answer.thought(None).text.push_str(text);
            events.push(ProviderEvent::Thinking(text.to_owned()));
        } else {
            events.push(ProviderEvent::Text(text.to_owned()));
        }
    }
    if let Some(reason) = candidate["finishReason"].as_str() {
        answer.stop = Some(stop_of(reason, candidate["finishMessage"].as_str())?);
    }
    Ok(events)
}

fn stop_of(reason: &str, message: Option<&str>) -> Result<StopReason, ProviderError> {
    Ok(match reason {
        "MAX_TOKENS" => StopReason::Length,
        "SAFETY" | "RECITATION" | "BLOCKLIST" | "PROHIBITED_CONTENT" | "SPII" | "IMAGE_SAFETY" => StopReason::Refused,
        // The model's call could not be read, so there is none to correct: asked again, it mostly can.
        "MALFORMED_FUNCTION_CALL" | "UNEXPECTED_TOOL_CALL" | "TOO_MANY_TOOL_CALLS" => {
            let detail = format!("the answer ended with {reason}: {}", message.unwrap_or("no more is said"));
            return Err(ProviderError::Interrupted { detail });
        }
        _ => StopReason::End,
    })
}

/// Each chunk tells the whole so far; the last stands.
fn count(counted: &mut Counted, usage: &Value) {
    let told = |key: &str| usage[key].as_u64();
    let Some(input) = told("promptTokenCount") else { return };
    counted.heard = true;
    counted.input = input.saturating_add(told("toolUsePromptTokenCount").unwrap_or(0));
    counted.cache_read = told("cachedContentTokenCount").unwrap_or(0);
    counted.output = told("candidatesTokenCount").unwrap_or(0).saturating_add(told("thoughtsTokenCount").unwrap_or(0));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_keeps_what_the_dialect_knows_and_nothing_else() {
        let full = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "additionalProperties": false,
            "required": ["path", "gone"],
            "properties": {
                "path": {"type": ["string", "null"], "description": "d", "default": "x", "minLength": 1},
                "mode": {"const": "fast"},
                "level": {"type": "integer", "enum": [1, 2], "exclusiveMinimum": 0, "minimum": 1},
                "edits": {"type": "array", "items": {"type": "object", "additionalProperties": false, "properties": {}}},
            },
        });
        let want = json!({
            "type": "object",
            "required": ["path"],
            "properties": {
                "path": {"nullable": true, "type": "string", "description": "d"},
                "mode": {"enum": ["fast"]},
                "level": {"type": "integer", "minimum": 1},
                "edits": {"type": "array", "items": {"type": "object"}},
            },
        });
        assert_eq!(schema(&full), want);
    }

    #[test]
    fn a_call_of_another_model_goes_to_a_newer_one_with_the_mark_that_it_has_no_proof() {
        let thought = Thinking { signature: Some("s".into()), ..Thinking::default() };
        assert_eq!(proof(Some(&thought), "gemini-3-pro", true), Some("s"));
        assert_eq!(proof(None, "gemini-3.1-flash", true), Some(NO_PROOF));
        assert_eq!(proof(None, "gemini-3-pro", false), None);
        assert_eq!(proof(None, "gemini-2.5-pro", true), None);
    }

    #[test]
    fn a_call_that_could_not_be_read_is_asked_for_again_and_a_blocked_answer_is_not() {
        let malformed = stop_of("MALFORMED_FUNCTION_CALL", Some("call:read{"));
        assert!(matches!(malformed, Err(ProviderError::Interrupted { detail }) if detail.contains("call:read{")));
        assert_eq!(stop_of("SAFETY", None), Ok(StopReason::Refused));
        assert_eq!(stop_of("LATER_INVENTION", None), Ok(StopReason::End));
    }
}
