//! The same session as plain lines: for pipes, screen readers and terminals that cannot move their cursor.
//!
//! Lines are only ever appended, without an escape. Deliberately absent: reading the lines; whoever has the input does.

use std::sync::{Mutex, PoisonError};

use ratatui::text::Line;

use super::screen::Invoke;
use super::slash::{self, Slash};
use super::view::Known;
use super::{help, paint};
use crate::agent::Typed;
use crate::agent::event::{AgentEvent, Sink, line};
use crate::model::usage::Usage;

pub(crate) struct Plain {
    known: Known,
    invoke: Invoke,
    print: fn(&str),
    used: Mutex<Usage>,
}

impl Plain {
    pub(crate) fn new(known: Known, invoke: Invoke, print: fn(&str)) -> Self {
        Self { known, invoke, print, used: Mutex::new(Usage::ZERO) }
    }

    /// What a line means that a person wrote; what it only asks of us is answered at once.
    pub(crate) fn typed(&self, terminal: &str, text: String) -> Option<Typed> {
        let line = |text| Some(Typed::Line { terminal: terminal.to_owned(), text });
        match slash::read(&text, &self.known.skills, &self.known.personas) {
            // An empty line is nothing to say, and no answer either.
            None if text.trim().is_empty() => Some(Typed::Key),
            None => line(text),
            Some(Slash::Command(command)) => Some(Typed::Command(command)),
            Some(Slash::Skill { name, arguments }) => match (self.invoke)(&name, &arguments) {
                Ok(text) => line(text),
                Err(why) => self.answer(&format!("-- {}", paint::short(&why))),
            },
            Some(Slash::Help) => self.lines(&help::commands()),
            Some(Slash::Skills) => self.lines(&help::skills(&self.known.skills)),
            Some(Slash::Cost) => {
                let used = *self.used.lock().unwrap_or_else(PoisonError::into_inner);
                self.lines(&[help::cost(&used)])
            }
            Some(Slash::Wrong(why)) => self.answer(&format!("-- {why}")),
        }
    }

    fn lines(&self, lines: &[Line<'_>]) -> Option<Typed> {
        self.answer(&lines.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
    }

    fn answer(&self, text: &str) -> Option<Typed> {
        (self.print)(text);
        None
    }
}

impl Sink for Plain {
    fn emit(&self, event: &AgentEvent) {
        if let AgentEvent::Used { usage, .. } = event {
            *self.used.lock().unwrap_or_else(PoisonError::into_inner) = *usage;
        }
        if let Some(line) = line(event) {
            (self.print)(&line);
        }
    }
}
