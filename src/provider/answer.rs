//! What has been heard of one streamed answer.
//!
//! Text and thinking are told as they come, calls only when the answer is whole. Deliberately absent: how each dialect
//! says it (its own file), bytes, and errors of the connection.

use std::collections::HashSet;

use serde_json::Value;

use super::calls::Calls;
use super::dialect::Dialect;
use super::{ProviderError, ProviderEvent, failure};
use crate::model::message::{StopReason, Thinking};
use crate::model::usage::Usage;

/// More calls than a model makes in one answer: the server is at fault, and finding each one's place takes time.
const MOST_CALLS: usize = 500;

#[derive(Debug)]
pub(super) struct Answer {
    dialect: Dialect,
    model: String,
    pub(super) calls: Calls,
    pub(super) counted: Counted,
    pub(super) stop: Option<StopReason>,
    thoughts: Vec<(Option<u64>, Thinking)>,
    /// Thinking in a form of the server's own, to be sent back as it came.
    details: Vec<Value>,
    text_bytes: usize,
    /// The last event has come.
    pub(super) whole: bool,
}

impl Answer {
    /// `model` is its provider's name for it.
    pub(super) fn new(dialect: Dialect, model: &str) -> Self {
        Self {
            dialect,
            model: model.to_owned(),
            calls: Calls::default(),
            counted: Counted::default(),
            stop: None,
            thoughts: Vec::new(),
            details: Vec::new(),
            text_bytes: 0,
            whole: false,
        }
    }

    /// Takes the data of one event in and returns what can be told at once.
    pub(super) fn hear(&mut self, data: &str) -> Result<Vec<ProviderEvent>, ProviderError> {
        if data == "[DONE]" {
            self.whole = true;
        }
        if self.whole {
            return Ok(Vec::new());
        }
        let frame: Value = serde_json::from_str(data)
            .map_err(|error| ProviderError::Interrupted { detail: format!("an event is not JSON: {error}") })?;
        self.hear_frame(&frame)
    }

    pub(super) fn hear_frame(&mut self, frame: &Value) -> Result<Vec<ProviderEvent>, ProviderError> {
        if frame["type"] == "error" || frame.get("error").is_some_and(|error| !error.is_null()) {
            return Err(failure::of_event(frame));
        }
        let events = self.dialect.hear(self, frame)?;
        self.text_bytes += events.iter().map(bytes_of).sum::<usize>();
        if self.calls.len() > MOST_CALLS {
            return Err(ProviderError::Server {
                retry_after_s: None,
                detail: format!("the answer holds more than {MOST_CALLS} calls"),
            });
        }
        Ok(events)
    }

    /// Takes a body in that is one JSON object, as servers send that know no streams.
    pub(super) fn hear_body(&mut self, body: &Value) -> Result<Vec<ProviderEvent>, ProviderError> {
        let frames = body.as_array().map_or(std::slice::from_ref(body), Vec::as_slice);
        let mut events = Vec::new();
        for frame in frames {
            events.extend(self.hear_frame(frame)?);
        }
        self.whole |= self.stop.is_some();
        Ok(events)
    }

    /// The body has ended as it should. Anthropic always says when an answer does; of the others not all servers do
    /// once the reason is told, and without the reason the answer was cut.
    pub(super) fn hear_end(&mut self) {
        self.whole |= self.dialect.may_end_with_its_reason() && self.stop.is_some();
    }

    /// How much has been heard: what does not add to it, such as a ping, means nothing.
    pub(super) fn weight(&self) -> usize {
        let thoughts = self.thoughts.iter().map(|(_, thought)| bytes_of_thought(thought));
        let told = usize::from(self.stop.is_some()) + usize::from(self.counted.heard) + usize::from(self.whole);
        self.text_bytes + self.calls.bytes() + thoughts.sum::<usize>() + told
    }

    /// The thinking of a block, which begins with its first piece.
    pub(super) fn thought(&mut self, block: Option<u64>) -> &mut Thinking {
        let found = self.thoughts.iter().rposition(|(index, _)| *index == block);
        let at = found.unwrap_or_else(|| {
            self.thoughts.push((block, Thinking { model: self.model.clone(), ..Thinking::default() }));
            self.thoughts.len() - 1
        });
        &mut self.thoughts[at].1
    }

    /// A piece of a detail: it goes on with the last one where both say that they are the same.
    pub(super) fn hear_detail(&mut self, piece: &Value) {
        let (Some(last), Some(more)) = (self.details.last_mut(), piece.as_object()) else {
            return self.details.push(piece.clone());
        };
        if last["type"] != more["type"] || last.get("index") != more.get("index") {
            return self.details.push(piece.clone());
        }
        for (key, value) in more {
            match (&last[key], value) {
                (Value::String(known), Value::String(text)) if matches!(key.as_str(), "text" | "summary" | "data") => {
                    last[key] = Value::String(format!("{known}{text}"));
                }
                (_, Value::Null) => {}
                _ => last[key] = value.clone(),
            }
        }
    }

    /// The last events of a whole answer. `taken` are call ids of the conversation, `asked` the bytes of the request.
    pub(super) fn finish(mut self, taken: &HashSet<String>, asked: usize) -> Vec<ProviderEvent> {
        if !self.details.is_empty() {
            self.thought(None).redacted = Some(Value::Array(std::mem::take(&mut self.details)).to_string());
        }
        let usage = self.counted.usage(asked, self.text_bytes + self.calls.bytes());
        let stop = self.stop.unwrap_or_default();
        let calls = if stop == StopReason::Refused { Vec::new() } else { self.calls.finish(stop, taken) };
        // Whether there are calls decides, not what the server says of them.
        let stop = match stop {
            StopReason::Refused => StopReason::Refused,
            StopReason::End | StopReason::ToolCalls | StopReason::Length if !calls.is_empty() => StopReason::ToolCalls,
            StopReason::Length => StopReason::Length,
            StopReason::End | StopReason::ToolCalls => StopReason::End,
        };
        let thoughts = self.thoughts.into_iter().map(|(_, thought)| thought);
        let thoughts = thoughts.filter(|thought| bytes_of_thought(thought) > 0).map(ProviderEvent::Thought);
        let calls = calls.into_iter().map(ProviderEvent::Call);
        thoughts.chain(calls).chain([ProviderEvent::Finished { usage, stop }]).collect()
    }
}

fn bytes_of(event: &ProviderEvent) -> usize {
    match event {
        ProviderEvent::Text(text) | ProviderEvent::Thinking(text) => text.len(),
        ProviderEvent::Thought(_) | ProviderEvent::Call(_) | ProviderEvent::Finished { .. } => 0,
    }
}

fn bytes_of_thought(thought: &Thinking) -> usize {
    let proof = [&thought.signature, &thought.redacted].into_iter().flatten().map(String::len);
    thought.text.len() + proof.sum::<usize>()
}

/// Tokens as servers count them. Each report is a snapshot of the whole answer: a later one replaces, nothing is added.
#[derive(Debug, Default)]
pub(super) struct Counted {
    pub(super) heard: bool,
    /// All input, what was read from the cache and what was written to it included.
    pub(super) input: u64,
    pub(super) cache_read: u64,
    pub(super) cache_written: u64,
    pub(super) output: u64,
    pub(super) cost_usd: Option<f64>,
}

impl Counted {
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
        let mut answer = Answer::new(dialect, "m");
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
    fn details_of_thinking_are_put_together_as_they_came() {
        let mut answer = Answer::new(Dialect::OpenAi, "m");
        for detail in [
            json!({"type": "reasoning.text", "index": 0, "text": "hm, "}),
            json!({"type": "reasoning.text", "index": 0, "text": "so", "signature": null}),
            json!({"type": "reasoning.text", "index": 0, "signature": "proof"}),
            json!({"type": "reasoning.encrypted", "index": 1, "data": "x"}),
        ] {
            let frame = json!({"choices": [{"delta": {"reasoning_details": [detail]}}]});
            answer.hear(&frame.to_string()).unwrap();
        }
        let want = json!([
            {"type": "reasoning.text", "index": 0, "text": "hm, so", "signature": "proof"},
            {"type": "reasoning.encrypted", "index": 1, "data": "x"},
        ]);
        let events = answer.finish(&HashSet::new(), 0);
        let ProviderEvent::Thought(thought) = &events[0] else { panic!("{events:?}") };
        assert_eq!((thought.redacted.as_deref(), thought.model.as_str()), (Some(want.to_string().as_str()), "m"));
    }

    #[test]
    fn unknown_events_are_skipped() {
        let mut answer = Answer::new(Dialect::Anthropic, "m");
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
        let mut answer = Answer::new(Dialect::OpenAi, "m");
        let call = json!({"index": 0, "id": "x", "function": {"name": "read", "arguments": {"path": "a"}}});
        answer.hear(&json!({"choices": [{"delta": {"tool_calls": [call]}}]}).to_string()).unwrap();
        let events = answer.finish(&HashSet::new(), 0);
        assert!(matches!(&events[0], ProviderEvent::Call(call) if json!(call.input) == json!({"path": "a"})));
    }

    #[test]
    fn calls_of_a_refused_answer_are_not_run() {
        let mut answer = Answer::new(Dialect::OpenAi, "m");
        let call = json!({"index": 0, "id": "x", "function": {"name": "bash", "arguments": "{}"}});
        let choice = json!({"delta": {"tool_calls": [call]}, "finish_reason": "content_filter"});
        answer.hear(&json!({"choices": [choice]}).to_string()).unwrap();
        let events = answer.finish(&HashSet::new(), 0);
        assert!(matches!(events[..], [ProviderEvent::Finished { stop: StopReason::Refused, .. }]));
    }
}
