//! Makes room in a conversation before a request: leaves old results out, then has the rest summed up.
//!
//! A summary that fails breaks nothing: the conversation stays as it was, and is tried again some turns later. Each is a
//! request like any other, within the grant and counted. Deliberately absent: how much is too much (`context.rs`).

use std::fmt::Write as _;

use futures_util::StreamExt;

use super::attempt::Attempt;
use super::context::{self, Parts, Pressure};
use super::event::AgentEvent;
use super::prompt;
use super::wheel::{Cut, Work};
use crate::machine::spend::{self, Leave, Need};
use crate::model::message::{Message, StopReason, ToolInput, UserMessage};
use crate::model::status::Phase;
use crate::model::usage::Usage;
use crate::provider::{ProviderError, ProviderEvent, Request};
use crate::store::session::SessionError;
use crate::text;

/// Who says a summary, in the session.
pub(super) const BY: &str = "summary";
/// The longest summary.
const MAX_TOKENS: u32 = 4_000;
/// Turns before a summary that failed is tried again.
const REST: u32 = 5;
/// What the one who sums up is shown of each message, in bytes.
const SHOWN: usize = 6_000;
const SHOWN_OF_RESULT: usize = 2_000;
const SHOWN_OF_CALL: usize = 500;
/// The share of the window that it is shown in all.
const SHOWN_OF_WINDOW: f64 = 0.4;

/// What came of a request for a summary.
enum Summed {
    Up(String),
    Cut(Cut),
    Failed(String),
}

impl Attempt {
    /// Makes room for the next request, if that is needed. What cut it, if something did.
    pub(super) async fn make_room(&mut self) -> Result<Option<Cut>, SessionError> {
        let input = self.input_tokens();
        match context::pressure(input, self.window_tokens) {
            Pressure::None => Ok(None),
            Pressure::Elide { bytes } => {
                self.elide(bytes);
                Ok(None)
            }
            Pressure::Summarise => {
                self.elide(context::bytes_over(input, self.window_tokens));
                match context::pressure(self.input_tokens(), self.window_tokens) {
                    Pressure::None => Ok(None),
                    Pressure::Elide { .. } | Pressure::Summarise => self.sum_up().await,
                }
            }
        }
    }

    /// The provider found the conversation too long: whatever was known of its window, it is smaller.
    pub(super) async fn shorten(&mut self) -> Result<Option<Cut>, SessionError> {
        self.window_tokens = self.window_tokens.min(self.input_tokens().max(1));
        self.no_summary = 0;
        self.tell("the conversation is too long for the model; older parts are left out");
        self.make_room().await
    }

    /// A person wants it shorter, however long it is.
    pub(super) async fn compact(&mut self) -> Result<Option<Cut>, SessionError> {
        self.no_summary = 0;
        if context::parts(self.conversation.messages(), self.window_tokens).is_none() {
            self.tell("there is nothing to sum up yet");
        }
        self.sum_up().await
    }

    fn elide(&mut self, bytes: usize) {
        let before = self.conversation.bytes_in_view();
        self.conversation.elide(bytes);
        self.shrunk_from(before);
    }

    /// What the provider counts beyond us shrinks with the conversation, until it tells anew.
    fn shrunk_from(&mut self, before: usize) {
        let share = self.conversation.bytes_in_view() as f64 / before.max(1) as f64;
        self.uncounted = (self.uncounted as f64 * share) as u64;
    }

    /// Replaces all but task and tail by a summary.
    async fn sum_up(&mut self) -> Result<Option<Cut>, SessionError> {
        if self.no_summary > 0 {
            return Ok(None);
        }
        let messages = self.conversation.messages();
        let Some(Parts { task, middle, tail }) = context::parts(messages, self.window_tokens) else {
            return Ok(None);
        };
        let room = (self.window_tokens as f64 * SHOWN_OF_WINDOW * 4.0) as usize;
        let shown = transcript(task.into_iter().chain(middle), room);
        let (number, task, tail) = (middle.len(), task.cloned(), tail.to_vec());
        let text = match self.summary(shown).await {
            Summed::Up(text) => text,
            Summed::Cut(cut) => return Ok(Some(cut)),
            Summed::Failed(why) => {
                self.no_summary = REST;
                self.tell(&format!("the conversation could not be summed up: {why}"));
                return Ok(None);
            }
        };
        let summary = Message::User(UserMessage { text: prompt::summed_up(&text), by: BY.to_owned() });
        let before = self.conversation.bytes_in_view();
        self.conversation.compact(task.into_iter().chain([summary]).chain(tail).collect())?;
        self.shrunk_from(before);
        self.instructions.forget();
        self.instructions.given_in(self.conversation.results().map(|result| result.output.as_str()));
        self.tell(&format!(
            "{} summed up: about {} instead of {} tokens",
            text::count(number, "message", "messages"),
            context::tokens(self.conversation.bytes_in_view()),
            context::tokens(before)
        ));
        Ok(None)
    }

    /// Asks the same model for a summary, without tools.
    async fn summary(&mut self, shown: String) -> Summed {
        let input_tokens = context::tokens(prompt::SUMMARISER.len() + shown.len());
        let need = Need { input_tokens, max_tokens: MAX_TOKENS };
        let max_tokens = match spend::ahead(&self.brief.grant, &self.tally.usage, self.elapsed_s(), self.price, need) {
            Leave::Free { max_tokens } | Leave::Tight { max_tokens } => max_tokens,
            Leave::Last { why, .. } | Leave::Nothing { why } => return Summed::Failed(why),
        };
        let request = Request {
            model: self.model.clone(),
            system: prompt::SUMMARISER.to_owned(),
            messages: vec![Message::User(UserMessage { text: shown, by: "decode".to_owned() })],
            tools: Vec::new(),
            max_tokens,
        };
        self.status.phase(Phase::Thinking, "sums the conversation up");
        let mut stream = self.provider.stream(request);
        let mut text = String::new();
        let mut work = Work::Stirred((self.clock)().mono_ms);
        loop {
            let event = tokio::select! {
                biased;
                cut = self.wheel.cut(work) => {
                    self.pay(input_tokens, &text);
                    return Summed::Cut(cut);
                }
                event = stream.next() => event,
            };
            work = Work::Stirred((self.clock)().mono_ms);
            self.status.progressed();
            match event {
                Some(Ok(ProviderEvent::Text(piece))) => text.push_str(&piece),
                Some(Ok(ProviderEvent::Thinking(_) | ProviderEvent::Call(_))) => {}
                Some(Ok(ProviderEvent::Finished { usage, stop })) => {
                    self.spend(usage);
                    self.sink.emit(&AgentEvent::Note(format!("a summary took {} tokens", usage.tokens())));
                    return judged(text, stop);
                }
                Some(Err(error)) => {
                    if matches!(error, ProviderError::Interrupted { .. }) {
                        self.pay(input_tokens, &text);
                    }
                    return Summed::Failed(error.to_string());
                }
                None => {
                    self.pay(input_tokens, &text);
                    return Summed::Failed("the stream ended before its end".to_owned());
                }
            }
        }
    }

    /// Counts a summary that never ended, as far as we can.
    fn pay(&mut self, input_tokens: u64, text: &str) {
        let output_tokens = context::tokens(text.len());
        self.spend(Usage { requests: 1, input_tokens, cached_tokens: 0, output_tokens, cost_usd: None });
    }
}

/// Half a summary is worse than none: what stands at its end is what comes next.
fn judged(text: String, stop: StopReason) -> Summed {
    match stop {
        StopReason::Length => Summed::Failed("it was longer than it may be".to_owned()),
        StopReason::Refused => Summed::Failed("the model declined".to_owned()),
        StopReason::End | StopReason::ToolCalls if text.trim().is_empty() => Summed::Failed("it was empty".to_owned()),
        StopReason::End | StopReason::ToolCalls => Summed::Up(text.trim().to_owned()),
    }
}

/// The conversation as one text, because servers refuse calls of tools that a request does not offer.
///
/// Where it is too long, the middle is missing: the beginning holds the task and the summary before this one, the end
/// what is being done.
fn transcript<'a>(messages: impl Iterator<Item = &'a Message>, room: usize) -> String {
    let mut text = String::new();
    for message in messages {
        match message {
            Message::User(user) => {
                // The summary before this one is all that is left of what it stands for.
                let shown = if user.by == BY { user.text.as_str() } else { text::prefix(&user.text, SHOWN) };
                let _ = writeln!(text, "[{}]\n{shown}\n", user.by);
            }
            Message::Assistant(answer) => {
                if !answer.text.trim().is_empty() {
                    let _ = writeln!(text, "[answer]\n{}\n", text::prefix(&answer.text, SHOWN));
                }
                for call in &answer.calls {
                    let input = match &call.input {
                        ToolInput::Sound(input) => serde_json::Value::Object(input.clone()).to_string(),
                        ToolInput::Broken { broken } => broken.clone(),
                    };
                    let _ = writeln!(text, "[call {}] {}\n", call.name, text::prefix(&input, SHOWN_OF_CALL));
                }
            }
            Message::Tool(result) => {
                let came = if result.ok { "result" } else { "failed" };
                let shown = text::prefix(&result.output, SHOWN_OF_RESULT);
                let _ = writeln!(text, "[{came} of {}]\n{shown}\n", result.name);
            }
        }
    }
    if text.len() > room {
        let (head, tail) = (text::prefix(&text, room / 3), text::suffix(&text, room - room / 3));
        text = format!("{head}\n\n[… what was said in between is missing here …]\n\n{tail}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::message::{AssistantMessage, ToolCall, ToolResult};

    #[test]
    fn the_one_who_sums_up_sees_who_said_what_and_no_result_at_full_length() {
        let user = |by: &str, text: &str| Message::User(UserMessage { text: text.into(), by: by.into() });
        let call = ToolCall {
            id: "1".into(),
            name: "read".into(),
            input: ToolInput::from_value(serde_json::json!({"path": "a.rs"})),
        };
        let output = "x".repeat(50_000);
        let result = ToolResult { call: "1".into(), name: "read".into(), ok: false, output, images: Vec::new() };
        let messages = [
            user("task", "mend it"),
            user(BY, &"before ".repeat(2_000)),
            Message::Assistant(AssistantMessage { text: "I look".into(), calls: vec![call], ..Default::default() }),
            Message::Tool(result),
        ];
        let text = transcript(messages.iter(), 100_000);
        assert!(text.starts_with("[task]\nmend it\n\n[summary]\nbefore before "));
        assert!(text.contains("[answer]\nI look\n\n[call read] {\"path\":\"a.rs\"}\n\n[failed of read]\nxxx"));
        assert_eq!(text.matches("before ").count(), 2_000, "the summary before is whole");
        assert!(text.len() < 14_000 + SHOWN_OF_RESULT + 200, "{}", text.len());
        let short = transcript(messages.iter(), 900);
        assert!(short.len() < 1_000 && short.starts_with("[task]\nmend it") && short.contains("missing here"));
    }

    #[test]
    fn half_a_summary_is_none() {
        let up = |text: &str, stop| matches!(judged(text.into(), stop), Summed::Up(_));
        assert!(up("## Goal", StopReason::End));
        assert!(!up("## Go", StopReason::Length) && !up("", StopReason::End) && !up("no", StopReason::Refused));
    }
}
