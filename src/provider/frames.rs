//! The events of one streamed answer, read from its raw frames in the dialects of OpenAI and Anthropic.
//!
//! `genai` sends the request and hands us each frame. It also reads them, but drops tool calls without an index, merges
//! calls that share one, makes an array as long as the largest index, and loses the name of an event whose CR LF falls
//! between two chunks (a test in `http.rs` shows it). So the meaning is read here, and where an event's name is
//! needed it is taken from the data. Deliberately absent: transport, and errors of it.

use std::collections::HashSet;

use serde_json::Value;

use super::calls::{Calls, Fragment};
use super::{ProviderError, ProviderEvent, failure};
use crate::model::message::StopReason;
use crate::model::usage::Usage;

/// How a server speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    OpenAi,
    Anthropic,
}

/// What has been heard of one answer.
#[derive(Debug)]
pub(super) struct Answer {
    dialect: Dialect,
    calls: Calls,
    counted: Counted,
    stop: Option<StopReason>,
    text_bytes: usize,
    whole: bool,
}

impl Answer {
    pub(super) fn new(dialect: Dialect) -> Self {
        Self { dialect, calls: Calls::default(), counted: Counted::default(), stop: None, text_bytes: 0, whole: false }
    }

    /// Whether the last event has come.
    pub(super) fn is_whole(&self) -> bool {
        self.whole
    }

    /// Takes one frame in and returns what can be told at once. Calls are told at the end, when they are whole.
    pub(super) fn hear(&mut self, data: &str) -> Result<Vec<ProviderEvent>, ProviderError> {
        if data.is_empty() || self.whole {
            return Ok(Vec::new());
        }
        if data == "[DONE]" {
            self.whole = true;
            return Ok(Vec::new());
        }
        let frame: Value = serde_json::from_str(data)
            .map_err(|error| ProviderError::Interrupted { detail: format!("an event is not JSON: {error}") })?;
        if frame["type"] == "error" || frame.get("error").is_some_and(|error| !error.is_null()) {
            return Err(failure::of_event(&frame));
        }
        let events = match self.dialect {
            Dialect::OpenAi => self.hear_openai(&frame),
            Dialect::Anthropic => self.hear_anthropic(&frame),
        };
        self.text_bytes += events.iter().map(bytes_of).sum::<usize>();
        Ok(events)
    }

    fn hear_openai(&mut self, frame: &Value) -> Vec<ProviderEvent> {
        self.counted.hear_openai(&frame["usage"]);
        let choice = &frame["choices"][0];
        if let Some(reason) = choice["finish_reason"].as_str() {
            self.stop = Some(stop_of(reason));
        }
        let delta = &choice["delta"];
        let mut events = Vec::new();
        for key in ["reasoning_content", "reasoning"] {
            if let Some(text) = delta[key].as_str().filter(|text| !text.is_empty()) {
                events.push(ProviderEvent::Thinking(text.to_owned()));
                break;
            }
        }
        let text = text_of(&delta["content"]) + delta["refusal"].as_str().unwrap_or_default();
        if !text.is_empty() {
            events.push(ProviderEvent::Text(text));
        }
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            let function = &call["function"];
            // Some servers send an object where the dialect has its text.
            let object = function["arguments"].as_object().map(|_| function["arguments"].to_string());
            self.calls.hear(Fragment {
                index: call["index"].as_u64(),
                id: call["id"].as_str().unwrap_or_default(),
                name: function["name"].as_str().unwrap_or_default(),
                arguments: object.as_deref().or(function["arguments"].as_str()).unwrap_or_default(),
            });
        }
        events
    }

    fn hear_anthropic(&mut self, frame: &Value) -> Vec<ProviderEvent> {
        match frame["type"].as_str().unwrap_or_default() {
            "message_start" => self.counted.hear_anthropic(&frame["message"]["usage"]),
            "message_delta" => {
                self.counted.hear_anthropic(&frame["usage"]);
                if let Some(reason) = frame["delta"]["stop_reason"].as_str() {
                    self.stop = Some(stop_of(reason));
                }
            }
            "message_stop" => self.whole = true,
            "content_block_start" => return self.hear_block(&frame["index"], &frame["content_block"]),
            "content_block_delta" => return self.hear_delta(&frame["index"], &frame["delta"]),
            // `ping`, `content_block_stop`, and what comes to the dialect later.
            _ => {}
        }
        Vec::new()
    }

    fn hear_block(&mut self, index: &Value, block: &Value) -> Vec<ProviderEvent> {
        if block["type"] == "tool_use" {
            // The input is empty here and comes in deltas; some gateways send it whole instead.
            let input = block["input"].as_object().filter(|input| !input.is_empty());
            self.calls.hear(Fragment {
                index: index.as_u64(),
                id: block["id"].as_str().unwrap_or_default(),
                name: block["name"].as_str().unwrap_or_default(),
                arguments: &input.map(|_| block["input"].to_string()).unwrap_or_default(),
            });
        }
        spoken(block)
    }

    fn hear_delta(&mut self, index: &Value, delta: &Value) -> Vec<ProviderEvent> {
        if let Some(arguments) = delta["partial_json"].as_str() {
            self.calls.hear(Fragment { index: index.as_u64(), arguments, ..Fragment::default() });
        }
        spoken(delta)
    }

    /// The last events of a whole answer. `taken` are call ids of the conversation, `asked` the bytes of the request.
    pub(super) fn finish(self, taken: &HashSet<String>, asked: usize) -> Vec<ProviderEvent> {
        let stop = self.stop.unwrap_or_default();
        let usage = self.counted.usage(asked, self.text_bytes + self.calls.bytes());
        ending(self.calls, stop, usage, taken)
    }
}

/// The calls, then `Finished`. Whether there are calls decides, not what the server says of them.
pub(super) fn ending(calls: Calls, stop: StopReason, usage: Usage, taken: &HashSet<String>) -> Vec<ProviderEvent> {
    let calls = if stop == StopReason::Refused { Vec::new() } else { calls.finish(stop, taken) };
    let stop = match stop {
        StopReason::Refused => StopReason::Refused,
        StopReason::End | StopReason::ToolCalls | StopReason::Length if !calls.is_empty() => StopReason::ToolCalls,
        StopReason::Length => StopReason::Length,
        StopReason::End | StopReason::ToolCalls => StopReason::End,
    };
    let calls = calls.into_iter().map(ProviderEvent::Call);
    calls.chain([ProviderEvent::Finished { usage, stop }]).collect()
}

fn bytes_of(event: &ProviderEvent) -> usize {
    match event {
        ProviderEvent::Text(text) | ProviderEvent::Thinking(text) => text.len(),
        ProviderEvent::Call(_) | ProviderEvent::Finished { .. } => 0,
    }
}

/// Text and thinking of an Anthropic block or delta.
fn spoken(part: &Value) -> Vec<ProviderEvent> {
    let text = |key: &str| part[key].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let thinking = text("thinking").map(ProviderEvent::Thinking);
    thinking.into_iter().chain(text("text").map(ProviderEvent::Text)).collect()
}

/// A string, or an array of parts with text.
fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        _ => String::new(),
    }
}

fn stop_of(reason: &str) -> StopReason {
    match reason {
        "length" | "max_tokens" | "model_context_window_exceeded" => StopReason::Length,
        "content_filter" | "refusal" => StopReason::Refused,
        "tool_calls" | "tool_use" | "function_call" => StopReason::ToolCalls,
        _ => StopReason::End,
    }
}

/// Tokens as servers count them. Each report is a snapshot of the whole answer: a later one replaces, nothing is added.
#[derive(Debug, Default)]
struct Counted {
    heard: bool,
    input: u64,
    cache_read: u64,
    cache_written: u64,
    output: u64,
    cost_usd: Option<f64>,
}

impl Counted {
    fn hear_openai(&mut self, usage: &Value) {
        let Some(input) = usage["prompt_tokens"].as_u64() else { return };
        self.heard = true;
        self.input = input;
        self.cache_read = usage["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap_or(0);
        self.output = usage["completion_tokens"].as_u64().unwrap_or(0);
        // OpenRouter says what it charged.
        self.cost_usd = usage["cost"].as_f64().filter(|cost| cost.is_finite() && *cost >= 0.0);
    }

    /// Anthropic counts cached input beside `input_tokens`. Counters of the cache that come without it are parts of an
    /// input already told.
    fn hear_anthropic(&mut self, usage: &Value) {
        let count = |key: &str| usage[key].as_u64();
        self.cache_read = count("cache_read_input_tokens").unwrap_or(self.cache_read);
        self.cache_written = count("cache_creation_input_tokens").unwrap_or(self.cache_written);
        self.output = count("output_tokens").unwrap_or(self.output);
        if let Some(fresh) = count("input_tokens") {
            self.heard = true;
            self.input = fresh.saturating_add(self.cache_read).saturating_add(self.cache_written);
        }
    }

    /// The usage, estimated at four bytes a token where the server told none: a budget must not see it as free.
    fn usage(&self, asked: usize, answered: usize) -> Usage {
        if self.heard {
            let cached_tokens = self.cache_read.min(self.input);
            let (input_tokens, output_tokens) = (self.input, self.output);
            return Usage { requests: 1, input_tokens, cached_tokens, output_tokens, cost_usd: self.cost_usd };
        }
        Usage {
            requests: 1,
            input_tokens: asked.div_ceil(4) as u64,
            cached_tokens: 0,
            output_tokens: answered.div_ceil(4) as u64,
            cost_usd: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn usage_of(dialect: Dialect, frames: &[Value]) -> (u64, u64, u64) {
        let mut answer = Answer::new(dialect);
        for frame in frames {
            answer.hear(&frame.to_string()).unwrap();
        }
        match answer.finish(&HashSet::new(), 400).pop() {
            Some(ProviderEvent::Finished { usage, .. }) => {
                (usage.input_tokens, usage.cached_tokens, usage.output_tokens)
            }
            other => panic!("{other:?}"),
        }
    }

    fn anthropic_usage(start: &Value, delta: &Value) -> (u64, u64, u64) {
        let frames = [
            json!({"type": "message_start", "message": {"usage": start}}),
            json!({"type": "message_delta", "delta": {}, "usage": delta}),
        ];
        usage_of(Dialect::Anthropic, &frames)
    }

    #[test]
    fn usage_told_twice_is_counted_once() {
        let start = json!({"input_tokens": 27, "output_tokens": 1});
        assert_eq!(anthropic_usage(&start, &json!({"input_tokens": 27, "output_tokens": 47})), (27, 0, 47));
        assert_eq!(anthropic_usage(&start, &json!({"output_tokens": 47})), (27, 0, 47));
    }

    #[test]
    fn cached_input_is_a_part_of_the_input() {
        let all = json!({"input_tokens": 20, "cache_creation_input_tokens": 5, "cache_read_input_tokens": 100});
        assert_eq!(anthropic_usage(&all, &json!({"output_tokens": 9})), (125, 100, 9));
        assert_eq!(anthropic_usage(&all, &json!({"input_tokens": 20, "output_tokens": 9})), (125, 100, 9));
    }

    #[test]
    fn a_prompt_told_whole_first_and_by_parts_later_is_not_doubled() {
        let whole = json!({"input_tokens": 1000});
        let parts = json!({"input_tokens": 100, "cache_read_input_tokens": 900, "output_tokens": 3});
        assert_eq!(anthropic_usage(&whole, &parts), (1000, 900, 3));
        assert_eq!(
            anthropic_usage(&whole, &json!({"cache_read_input_tokens": 900, "output_tokens": 3})),
            (1000, 900, 3)
        );
    }

    #[test]
    fn openai_usage_of_the_last_chunk_stands() {
        let usage = |input: u64| json!({"prompt_tokens": input, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}});
        let frames = [json!({"choices": [], "usage": usage(7)}), json!({"choices": [], "usage": usage(10)})];
        assert_eq!(usage_of(Dialect::OpenAi, &frames), (10, 4, 2));
        let nulls = [json!({"choices": [], "usage": null, "error": null})];
        assert_eq!(usage_of(Dialect::OpenAi, &nulls), (100, 0, 0), "estimated, never free");
    }

    #[test]
    fn unknown_events_are_skipped() {
        let mut answer = Answer::new(Dialect::Anthropic);
        for frame in [
            json!({"type": "later_invention", "x": 1}),
            json!({"type": "content_block_delta", "index": 4, "delta": {"type": "citations_delta", "citation": {}}}),
            json!({"type": "content_block_delta", "index": 4, "delta": {"type": "input_json_delta", "partial_json": "{"}}),
        ] {
            assert_eq!(answer.hear(&frame.to_string()), Ok(Vec::new()));
        }
        assert_eq!(answer.finish(&HashSet::new(), 0).len(), 1);
    }

    #[test]
    fn arguments_sent_as_an_object_are_kept() {
        let mut answer = Answer::new(Dialect::OpenAi);
        let call = json!({"index": 0, "id": "x", "function": {"name": "read", "arguments": {"path": "a"}}});
        answer.hear(&json!({"choices": [{"delta": {"tool_calls": [call]}}]}).to_string()).unwrap();
        let events = answer.finish(&HashSet::new(), 0);
        assert!(matches!(&events[0], ProviderEvent::Call(call) if json!(call.input) == json!({"path": "a"})));
    }

    #[test]
    fn calls_of_a_refused_answer_are_not_run() {
        let mut answer = Answer::new(Dialect::OpenAi);
        let call = json!({"index": 0, "id": "x", "function": {"name": "bash", "arguments": "{}"}});
        let choice = json!({"delta": {"tool_calls": [call]}, "finish_reason": "content_filter"});
        answer.hear(&json!({"choices": [choice]}).to_string()).unwrap();
        let events = answer.finish(&HashSet::new(), 0);
        assert!(matches!(events[..], [ProviderEvent::Finished { stop: StopReason::Refused, .. }]));
    }
}
