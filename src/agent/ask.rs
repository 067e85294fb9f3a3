//! Questions to a person: permission, `ask_user`, leaving plan mode; and being held.
//!
//! Clocks stand still while a person is waited for. Deliberately absent: how an answer is typed or carried.

use std::time::Duration;

use super::attempt::Attempt;
use super::event::{AgentEvent, QuestionKind};
use super::wheel::{Origin, Reply};
use crate::model::rule::Rule;
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

/// A call that needs a person's word.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) what: String,
    pub(super) reason: String,
    /// What it would change.
    pub(super) diff: Option<String>,
    /// What a person would allow with "always", where that can be said.
    pub(super) always: Option<Vec<Rule>>,
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
    pub(super) async fn permission(&mut self, call: &Wanted) -> Permission {
        let Wanted { what, reason, diff, always } = call;
        let always = always.as_deref().filter(|rules| !rules.is_empty());
        let names = always.map(|rules| rules.iter().map(Rule::to_string).collect::<Vec<_>>().join(", "));
        let why = if reason.is_empty() { String::new() } else { format!("\n{reason}") };
        let choice = names.as_ref().map(|names| format!("  [a] always {names}")).unwrap_or_default();
        let text = format!("May it run {what}?{why}\n[y] yes{choice}  [n] no, or say why not");
        let denied = |why: String| Permission::Denied(why);
        let kind = QuestionKind::Permission { always: names, diff: diff.clone() };
        match self.ask(&text, kind).await {
            Reply::Text { text, .. } if is_yes(&text) => Permission::Given,
            Reply::Text { by, text, .. } if is_always(&text) => match always {
                Some(rules) => {
                    self.allow_always(rules, &by);
                    Permission::Given
                }
                // It was not offered; what was meant is a yes to this call.
                None => Permission::Given,
            },
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

    /// The rules hold for this attempt from now on, whoever works, and are remembered for the project.
    fn allow_always(&mut self, rules: &[Rule], by: &str) {
        self.policy.allow.extend_from_slice(rules);
        self.users.allow.extend_from_slice(rules);
        self.place.allow.extend_from_slice(rules);
        if let Err(why) = (self.remember)(rules) {
            self.tell(&format!("it holds for this session only, because it could not be remembered: {why}"));
        }
        for rule in rules {
            self.conversation.note(&format!("{by} always allows {rule}"));
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

fn is_always(text: &str) -> bool {
    matches!(text.trim().to_ascii_lowercase().as_str(), "a" | "always")
}

fn is_no(text: &str) -> bool {
    matches!(text.trim().to_ascii_lowercase().as_str(), "" | "n" | "no")
}
