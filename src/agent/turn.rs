//! One turn: a request that fits the grant, its answer as it streams, and the waiting when it fails.
//!
//! A partial answer is shown and noted, never recorded as an answer, never executed. Deliberately absent: what an
//! answer means for the loop.

use std::time::Duration;

use futures_util::StreamExt;

use super::attempt::{Attempt, Nudge};
use super::context;
use super::event::AgentEvent;
use super::prompt;
use super::report::End;
use super::wheel::{Cut, Work};
use crate::machine::backoff::{self, Next, Reason, Trouble};
use crate::machine::spend::{self, Leave, Need, Price};
use crate::model::child::{Failure, FailureKind};
use crate::model::message::{AssistantMessage, Message};
use crate::model::status::Phase;
use crate::model::usage::Usage;
use crate::provider::{ProviderError, ProviderEvent, Request};
use crate::store::session::SessionError;

/// A wait longer than this is not begun when somebody wants the report: they would not wait for its end.
const LAST_WAIT_S: f64 = 5.0;

/// What a turn brought.
pub(super) enum Turn {
    /// A whole answer, already in the session. `last` says why there will be no other.
    Answer {
        answer: AssistantMessage,
        last: Option<String>,
    },
    Cut(Cut),
    End(End),
}

/// A request with what it may take.
struct Priced {
    request: Request,
    /// What it is expected to take in.
    input_tokens: u64,
    /// The part of that which is our own rough count.
    counted: u64,
    last: Option<String>,
}

/// How a stream ended.
enum Streamed {
    Whole(AssistantMessage),
    Cut(Cut),
    Failed(ProviderError),
}

impl Attempt {
    /// Asks the model once, as often as it takes.
    pub(super) async fn turn(&mut self) -> Result<Turn, SessionError> {
        let mut tries = 0;
        let mut shortened = false;
        if let Some(cut) = self.make_room().await? {
            return Ok(Turn::Cut(cut));
        }
        loop {
            let priced = match self.price_next()? {
                Ok(priced) => priced,
                Err(end) => return Ok(Turn::End(end)),
            };
            let phase = if priced.last.is_some() { Phase::WrappingUp } else { Phase::Thinking };
            self.status.phase(phase, priced.request.model.clone());
            self.wheel.acted_on();
            tries += 1;
            match self.stream(&priced).await {
                Streamed::Whole(answer) => return self.answered(answer, priced),
                // The request that follows is the one for the report.
                Streamed::Cut(Cut::WrapUp) => {}
                Streamed::Cut(cut) => return Ok(Turn::Cut(cut)),
                Streamed::Failed(ProviderError::TooLong { .. }) if !shortened => {
                    shortened = true;
                    if let Some(cut) = self.shorten().await? {
                        return Ok(Turn::Cut(cut));
                    }
                }
                Streamed::Failed(error) => {
                    if let Some(turn) = self.after_failure(error, tries).await {
                        return Ok(turn);
                    }
                }
            }
        }
    }

    /// The next request, if the grant has room for it.
    fn price_next(&mut self) -> Result<Result<Priced, End>, SessionError> {
        if let Some(by) = self.wheel.wrap_up() {
            let why = format!("{by} asked for the report");
            if self.once(Nudge::Last) {
                self.conversation.user("decode", prompt::LAST)?;
            }
            return Ok(self.leave(Some(why)));
        }
        let priced = self.leave(None);
        if let Ok(Priced { last: Some(_), .. }) = priced
            && self.once(Nudge::Last)
        {
            self.conversation.user("decode", prompt::LAST)?;
            return Ok(self.leave(None));
        }
        if matches!(self.ahead(), Leave::Tight { .. }) && self.once(Nudge::Tight) {
            self.conversation.user("decode", prompt::TIGHT)?;
            return Ok(self.leave(None));
        }
        Ok(priced)
    }

    fn ahead(&self) -> Leave {
        let need = Need { input_tokens: self.input_tokens(), max_tokens: self.max_tokens };
        spend::ahead(&self.brief.grant, &self.tally.usage, self.elapsed_s(), self.price, need)
    }

    fn leave(&self, wish: Option<String>) -> Result<Priced, End> {
        let (max_tokens, last) = match self.ahead() {
            Leave::Free { max_tokens } | Leave::Tight { max_tokens } => (max_tokens, wish),
            Leave::Last { max_tokens, why } => (max_tokens, wish.or(Some(why))),
            Leave::Nothing { why } => return Err(End::Limit { why }),
        };
        let offered = if last.is_some() { &[] } else { self.tools.as_slice() };
        let request = Request {
            model: self.model.clone(),
            system: self.system.clone(),
            messages: self.conversation.view(),
            tools: offered.iter().map(|tool| tool.spec()).collect(),
            max_tokens,
        };
        Ok(Priced { request, input_tokens: self.input_tokens(), counted: self.counted_tokens(), last })
    }

    /// What the next request sends: a rough count, and what the provider last found beyond it.
    pub(super) fn input_tokens(&self) -> u64 {
        self.counted_tokens().saturating_add(self.uncounted)
    }

    fn counted_tokens(&self) -> u64 {
        context::tokens(self.system.len() + self.tools_bytes + self.conversation.bytes_in_view())
    }

    /// Streams one answer.
    async fn stream(&mut self, priced: &Priced) -> Streamed {
        let mut stream = self.provider.stream(priced.request.clone());
        let mut answer = AssistantMessage::default();
        let cut_off = || ProviderError::Interrupted { detail: "the stream ended before its end".to_owned() };
        let mut work = self.stirred(priced);
        let ended = loop {
            let event = tokio::select! {
                // A signal first: a stream that always has more to say must not keep it waiting.
                biased;
                cut = self.wheel.cut(work) => break Streamed::Cut(cut),
                event = stream.next() => event.unwrap_or_else(|| Err(cut_off())),
            };
            match event {
                Ok(ProviderEvent::Text(text)) => {
                    answer.text.push_str(&text);
                    self.sink.emit(&AgentEvent::Text(text));
                }
                Ok(ProviderEvent::Thinking(text)) => self.sink.emit(&AgentEvent::Thinking(text)),
                Ok(ProviderEvent::Thought(thought)) => answer.thinking.push(thought),
                Ok(ProviderEvent::Call(call)) => answer.calls.push(call),
                Ok(ProviderEvent::Finished { usage, stop }) => {
                    answer.usage = self.priced(usage);
                    answer.stop = stop;
                    return Streamed::Whole(answer);
                }
                Err(error) => break Streamed::Failed(error),
            }
            work = self.stirred(priced);
            self.status.progressed();
        };
        self.cut_short(&answer, &ended, priced.input_tokens);
        ended
    }

    /// What a request is that gave a sign now.
    fn stirred(&self, priced: &Priced) -> Work {
        if priced.last.is_some() { Work::Report } else { Work::Stirred((self.clock)().mono_ms) }
    }

    /// What was sent and came of an answer that never ended is paid for, shown as cut, and kept out of the conversation.
    fn cut_short(&mut self, partial: &AssistantMessage, ended: &Streamed, input_tokens: u64) {
        let (why, was_answered) = match ended {
            Streamed::Cut(Cut::Escape) => ("by a person".to_owned(), true),
            Streamed::Cut(Cut::Quit) => ("by a person who ends the session".to_owned(), true),
            Streamed::Cut(Cut::Signal(_)) => ("by a signal".to_owned(), true),
            Streamed::Cut(Cut::WrapUp) => ("the report is wanted now".to_owned(), true),
            Streamed::Failed(error) => (error.to_string(), matches!(error, ProviderError::Interrupted { .. })),
            Streamed::Whole(_) => return,
        };
        let began = !partial.text.is_empty() || !partial.calls.is_empty();
        if began || was_answered {
            let output_tokens = context::tokens(context::bytes_of(&Message::Assistant(partial.clone())));
            let usage = Usage { requests: 1, input_tokens, cached_tokens: 0, output_tokens, cost_usd: None };
            // An estimate by what the others cost is better than a bound in USD that holds no more.
            let price = self.price.or_else(|| Price::seen(&self.tally.usage));
            self.spend(Usage { cost_usd: price.map(|price| price.of(&usage)), ..usage });
        }
        if began {
            self.conversation.note(&format!("an answer was cut ({why}) after: {}", partial.text));
            self.sink.emit(&AgentEvent::Cut { why });
        }
    }

    fn answered(&mut self, mut answer: AssistantMessage, priced: Priced) -> Result<Turn, SessionError> {
        let last = priced.last;
        self.spend(answer.usage);
        // What the provider counts beyond our rough count it will count again: its own framing, its own tokens.
        self.uncounted = answer.usage.input_tokens.saturating_sub(priced.counted);
        self.no_summary = self.no_summary.saturating_sub(1);
        self.sink.emit(&AgentEvent::Used {
            usage: self.tally.usage,
            window: context::share(answer.usage.input_tokens.max(priced.counted), self.window_tokens),
        });
        if last.is_some() && !answer.calls.is_empty() {
            self.conversation.note("calls of the last answer were not run: no tool was offered");
            answer.calls.clear();
        }
        if !answer.text.trim().is_empty() {
            self.sink.emit(&AgentEvent::Said(answer.text.clone()));
        }
        self.conversation.push(Message::Assistant(answer.clone()))?;
        Ok(Turn::Answer { answer, last })
    }

    /// Waits after a failure. What ends the turn, if it is not tried again.
    async fn after_failure(&mut self, error: ProviderError, tries: u32) -> Option<Turn> {
        let fail = |kind, detail: String| Some(Turn::End(End::Failed(Failure::new(kind, detail))));
        let trouble = match &error {
            ProviderError::UsageLimit { until, detail } => {
                self.sink.emit(&AgentEvent::Limited { until: *until, detail: detail.clone() });
                return Some(Turn::End(End::Parked { until: *until, detail: error.to_string() }));
            }
            ProviderError::Missing { .. } => return fail(FailureKind::Missing, error.to_string()),
            ProviderError::RateLimited { retry_after_s, .. } | ProviderError::Server { retry_after_s, .. } => {
                Trouble::Passing { retry_after_s: *retry_after_s }
            }
            ProviderError::Unreachable { .. } | ProviderError::Interrupted { .. } => {
                Trouble::Passing { retry_after_s: None }
            }
            ProviderError::Refused { .. } | ProviderError::Invalid { .. } | ProviderError::TooLong { .. } => {
                Trouble::Lasting
            }
        };
        let why = match backoff::next(trouble, tries, self.left_s(), jitter()) {
            Next::Wait { seconds } => match self.wheel.wrap_up() {
                Some(by) if seconds > LAST_WAIT_S => {
                    let why = format!("{by} asked for the report, and the model does not answer now: {error}");
                    return Some(Turn::End(End::Limit { why }));
                }
                Some(_) | None => return self.wait(seconds, &error).await,
            },
            Next::GiveUp(Reason::Lasting) => error.to_string(),
            Next::GiveUp(Reason::Tries) => format!("{error}; given up after {tries} tries"),
            Next::GiveUp(Reason::Time { asked_s }) => {
                format!("{error}; it would have to wait {asked_s:.0} s, longer than its time")
            }
        };
        fail(FailureKind::Provider, why)
    }

    async fn wait(&mut self, seconds: f64, error: &ProviderError) -> Option<Turn> {
        let until = (self.clock)().wall.plus_s(seconds);
        self.status.phase(Phase::Limited, format!("waits until {until}"));
        self.sink.emit(&AgentEvent::Limited { until, detail: error.to_string() });
        // A report that waits is waited for; anything else makes way for it.
        let work = match self.wheel.wrap_up() {
            Some(_) => Work::Report,
            None => Work::Stirred((self.clock)().mono_ms),
        };
        tokio::select! {
            () = tokio::time::sleep(Duration::from_secs_f64(seconds)) => None,
            cut = self.wheel.cut(work) => match cut {
                // It is asked for at once; what it waits for may be over.
                Cut::WrapUp => None,
                cut @ (Cut::Escape | Cut::Quit | Cut::Signal(_)) => Some(Turn::Cut(cut)),
            },
        }
    }

    /// One answer's usage with its cost, where the provider told none and a price is known.
    pub(super) fn priced(&self, usage: Usage) -> Usage {
        let cost_usd = usage.cost_usd.or_else(|| self.price.map(|price| price.of(&usage)));
        Usage { requests: usage.requests.max(1), cost_usd, ..usage }
    }

    pub(super) fn spend(&mut self, usage: Usage) {
        self.spend_as_told(self.priced(usage));
    }

    /// What is spent already has its price.
    pub(super) fn spend_as_told(&mut self, usage: Usage) {
        self.tally.usage = self.tally.usage.plus(usage);
        let usage = self.tally.usage;
        self.status.soon(|status| status.usage = usage);
    }
}

/// A number in 0..1, so that children that failed together do not come back together.
fn jitter() -> f64 {
    f64::from(uuid::Uuid::new_v4().as_fields().0) / (f64::from(u32::MAX) + 1.0)
}
