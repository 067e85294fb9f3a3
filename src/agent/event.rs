//! What an attempt tells while it works: one enum, one sink, and the plain line of each event.
//!
//! Deliberately absent: colour, width and screens. A window may draw events as it likes; `line` is what a log holds.

use crate::model::persona::Mode;
use crate::model::report::Outcome;
use crate::model::time::Timestamp;
pub(crate) use crate::model::todo::{Todo, TodoState};
use crate::model::usage::Usage;
use crate::text;

/// Something happened.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum AgentEvent {
    Started {
        label: String,
        model: String,
        session: String,
    },
    /// A piece of an answer as it comes, control characters and all; `Said` follows with the whole.
    Text(String),
    Thinking(String),
    /// A whole answer.
    Said(String),
    ToolStarted {
        name: String,
        summary: String,
    },
    /// `line` is the first line of what came of it.
    ToolEnded {
        name: String,
        ok: bool,
        line: String,
    },
    /// What a call changed, as a unified diff.
    Changed {
        diff: String,
    },
    /// The model is given this with the next request.
    Steered {
        by: String,
        text: String,
    },
    /// Heard, and kept for the next boundary.
    Queued {
        by: String,
        text: String,
    },
    Question {
        text: String,
        kind: QuestionKind,
    },
    Answered {
        by: String,
        text: String,
    },
    /// Requests wait until then.
    Limited {
        until: Timestamp,
        detail: String,
    },
    /// A person holds it.
    Held,
    /// It has answered and waits for the person at the line.
    Idle,
    /// Who works now, after a person or the agent itself changed that.
    Now {
        agent: String,
        mode: Mode,
        model: String,
    },
    /// What it has used so far, and how full the model's window is (0 to 1).
    Used {
        usage: Usage,
        window: f64,
    },
    /// The list the agent keeps of its own work.
    Todo(Vec<Todo>),
    Note(String),
    /// An answer was cut: what was shown of it counts for nothing.
    Cut {
        why: String,
    },
    Ended {
        outcome: Outcome,
        detail: String,
        usage: Usage,
    },
}

/// What kind of answer a question wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum QuestionKind {
    /// `y` once, `a` always where `always` says what that would allow, `n` or any other text: no, and why.
    Permission { always: Option<String>, diff: Option<String> },
    /// `y` goes on with the plan; any other text says what to change.
    Plan,
    /// Any text.
    Free,
}

/// Where events go. Called from the loop: it must not block for long.
pub(crate) trait Sink: Send + Sync {
    fn emit(&self, event: &AgentEvent);
}

/// The longest line made of a foreign text.
const WIDTH: usize = 160;

/// The plain text of an event, without control characters; `None` for pieces that a later event repeats.
pub(crate) fn line(event: &AgentEvent) -> Option<String> {
    let short = |text: &str| text::one_line(&text::without_controls(text), WIDTH);
    Some(match event {
        AgentEvent::Text(_) | AgentEvent::Thinking(_) | AgentEvent::Used { .. } | AgentEvent::Idle => return None,
        AgentEvent::Changed { diff } => text::without_controls(diff).trim_end().to_owned(),
        AgentEvent::Now { agent, mode, model } => format!("-- {} · {mode} · {}", short(agent), short(model)),
        AgentEvent::Todo(todos) => {
            let lines = todos.iter().map(|todo| {
                let mark = match todo.state {
                    TodoState::Pending => ' ',
                    TodoState::InProgress => '>',
                    TodoState::Completed => 'x',
                };
                format!("  [{mark}] {}", short(&todo.text))
            });
            lines.collect::<Vec<_>>().join("\n")
        }
        AgentEvent::Started { label, model, session } => {
            format!("== {} · {} · session {}", short(label), short(model), short(session))
        }
        AgentEvent::Said(text) => text::without_controls(text).trim_end().to_owned(),
        AgentEvent::ToolStarted { name, summary } => format!("> {} {}", short(name), short(summary)),
        AgentEvent::ToolEnded { name, ok: true, line } => format!("  {}: {}", short(name), short(line)),
        AgentEvent::ToolEnded { name, ok: false, line } => format!("  {} failed: {}", short(name), short(line)),
        AgentEvent::Steered { by, text } => format!("[{}] {}", short(by), text::without_controls(text).trim_end()),
        AgentEvent::Queued { by, text } => format!("[{}, queued] {}", short(by), short(text)),
        AgentEvent::Question { text, kind: _ } => format!("? {}", text::without_controls(text).trim_end()),
        AgentEvent::Answered { by, text } => format!("[{}, answers] {}", short(by), short(text)),
        AgentEvent::Limited { until, detail } => format!("-- waits until {until}: {}", short(detail)),
        AgentEvent::Held => "-- held; type to go on".to_owned(),
        AgentEvent::Note(text) => format!("-- {}", short(text)),
        AgentEvent::Cut { why } => format!("-- cut: {}", short(why)),
        AgentEvent::Ended { outcome, detail, usage } if detail.is_empty() => {
            format!("== {outcome} · {} requests, {} tokens", usage.requests, usage.tokens())
        }
        AgentEvent::Ended { outcome, detail, usage } => {
            format!("== {outcome}: {} · {} requests, {} tokens", short(detail), usage.requests, usage.tokens())
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_event_brings_a_control_character_to_the_screen() {
        let evil = || "a\u{1b}[2Jb\u{1b}]0;title\u{7}c\rd\u{202e}".to_owned();
        let events = [
            AgentEvent::Started { label: evil(), model: evil(), session: evil() },
            AgentEvent::Said(evil()),
            AgentEvent::ToolStarted { name: evil(), summary: evil() },
            AgentEvent::ToolEnded { name: evil(), ok: false, line: evil() },
            AgentEvent::Steered { by: evil(), text: evil() },
            AgentEvent::Queued { by: evil(), text: evil() },
            AgentEvent::Question { text: evil(), kind: QuestionKind::Free },
            AgentEvent::Changed { diff: evil() },
            AgentEvent::Todo(vec![Todo { text: evil(), state: TodoState::Pending }]),
            AgentEvent::Answered { by: evil(), text: evil() },
            AgentEvent::Note(evil()),
            AgentEvent::Cut { why: evil() },
            AgentEvent::Ended { outcome: Outcome::Done, detail: evil(), usage: Usage::ZERO },
        ];
        for event in events {
            let line = line(&event).unwrap();
            assert!(!line.chars().any(|c| c.is_control() && c != '\n'), "{line:?}");
            assert!(!line.contains("title") && !line.contains('\u{202e}'), "{line:?}");
        }
    }
}
