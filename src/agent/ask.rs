//! Questions to a person: permission, `ask_user`, leaving plan mode; and being held.
//!
//! Clocks stand still while a person is waited for. Deliberately absent: how an answer is typed or carried.

use std::time::Duration;

use super::attempt::Attempt;
use super::event::{AgentEvent, QuestionKind};
use super::wheel::{Origin, Reply};
use crate::model::status::{Phase, Question};

/// How long a question waits.
const PATIENCE: Duration = Duration::from_mins(5);

/// What a person allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Permission {
    Given,
    /// The reason is for the model.
    Denied(String),
}

impl Attempt {
    /// Asks, if somebody is there, and waits.
    pub(super) async fn ask(&mut self, text: &str, kind: QuestionKind) -> Reply {
        if !self.wheel.somebody_is_there() {
            return Reply::Nobody;
        }
        self.questions += 1;
        let now = (self.clock)();
        let question = Question { id: format!("q{}", self.questions), text: text.to_owned(), asked: now.wall };
        self.status.now(|status| {
            status.phase = Phase::Asking;
            status.doing = crate::text::one_line(text, 100);
            status.question = Some(question);
        });
        self.sink.emit(&AgentEvent::Question { text: text.to_owned(), kind });
        let reply = self.wheel.reply(PATIENCE).await;
        self.stand_still_since(now);
        self.status.now(|status| {
            status.phase = Phase::Tool;
            status.question = None;
        });
        match &reply {
            Reply::Text { by, text, from } => {
                if *from == Origin::Window {
                    self.tally.co_driven += 1;
                }
                self.sink.emit(&AgentEvent::Answered { by: by.clone(), text: text.clone() });
            }
            Reply::TimedOut => self.tell("nobody answered in time"),
            Reply::Nobody | Reply::Refused | Reply::Over => {}
        }
        reply
    }

    /// Asks whether a call may run.
    pub(super) async fn permission(&mut self, what: &str, reason: &str) -> Permission {
        let why = if reason.is_empty() { String::new() } else { format!("\n{reason}") };
        let denied = |why: String| Permission::Denied(why);
        let kind = QuestionKind::Permission { always: None, diff: None };
        match self.ask(&format!("May it run {what}?{why}\n[y] yes  [n] no, or say why not"), kind).await {
            Reply::Text { text, .. } if is_yes(&text) => Permission::Given,
            Reply::Text { by, text, .. } if is_no(&text) => denied(format!("{by} said no")),
            Reply::Text { by, text, .. } => denied(format!("{by} said: {text}")),
            Reply::Refused => denied("the person at the window said no".to_owned()),
            Reply::TimedOut => denied("permission was asked for and nobody answered".to_owned()),
            Reply::Over => denied("there is no time left to ask".to_owned()),
            Reply::Nobody => {
                let because = if reason.is_empty() { "it needs permission" } else { reason };
                denied(format!(
                    "{because}, and nobody is there to give it. Do it another way, or name in your report what you \
                     could not do"
                ))
            }
        }
    }

    /// Waits for the person who pressed Esc.
    pub(super) async fn hold(&mut self) {
        let now = (self.clock)();
        self.status.phase(Phase::Held, "held by a person");
        self.sink.emit(&AgentEvent::Held);
        self.wheel.held().await;
        self.stand_still_since(now);
    }
}

pub(super) fn is_yes(text: &str) -> bool {
    matches!(text.trim().to_ascii_lowercase().as_str(), "y" | "yes" | "ok")
}

fn is_no(text: &str) -> bool {
    matches!(text.trim().to_ascii_lowercase().as_str(), "" | "n" | "no")
}
