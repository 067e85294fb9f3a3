//! Live progress on stderr: one line a child. On a terminal it is redrawn in place; elsewhere each change is a line.

use std::collections::BTreeMap;

use super::output::{self, Said};
use crate::machine::snapshot::{self, RunSnapshot};
use crate::model::id::ChildId;
use crate::model::time::Timestamp;

/// Lines drawn at most; a run of hundreds would scroll.
const LINES: usize = 24;

/// What was shown last.
#[derive(Debug)]
pub(super) enum Progress {
    Quiet,
    /// Redrawn; holds how many lines stand there.
    Drawn {
        lines: usize,
    },
    /// One line a change; holds the last word of each child.
    Changes {
        last: BTreeMap<ChildId, String>,
    },
}

impl Progress {
    pub(super) fn new(quiet: bool) -> Self {
        if quiet {
            return Self::Quiet;
        }
        let dumb = std::env::var("TERM").is_ok_and(|term| term == "dumb");
        if output::talks_to_terminal() && !dumb {
            Self::Drawn { lines: 0 }
        } else {
            Self::Changes { last: BTreeMap::new() }
        }
    }

    /// Whether elapsed times are on the screen and want a tick.
    pub(super) const fn ticks(&self) -> bool {
        matches!(self, Self::Drawn { .. })
    }

    pub(super) fn show(&mut self, run: &RunSnapshot, now: Timestamp) -> Said {
        match self {
            Self::Quiet => Said::Yes,
            Self::Drawn { lines } => {
                let (text, drawn) = draw(run, *lines, now);
                *lines = drawn;
                output::draw(&text)
            }
            Self::Changes { last } => changes(run, last, now),
        }
    }

    /// Leaves what was drawn and goes on below it.
    pub(super) fn leave(&mut self) {
        if let Self::Drawn { lines } = self {
            *lines = 0;
        }
    }
}

fn draw(run: &RunSnapshot, before: usize, now: Timestamp) -> (String, usize) {
    let columns = output::columns();
    let mut lines = vec![snapshot::heading(run, columns, now)];
    let children = snapshot::needs_you_first(&run.children);
    let shown: Vec<_> = if run.children.len() <= LINES { run.children.iter().collect() } else { children };
    lines.extend(shown.iter().take(LINES).map(|child| snapshot::line(child, columns, now)));
    if shown.len() > LINES {
        lines.push(format!("… and {} more", shown.len() - LINES));
    }
    let mut text = String::new();
    if before > 0 {
        text.push_str(&format!("\u{1b}[{before}A"));
    }
    for line in &lines {
        text.push_str(line);
        text.push_str("\u{1b}[K\n");
    }
    (text, lines.len())
}

fn changes(run: &RunSnapshot, last: &mut BTreeMap<ChildId, String>, now: Timestamp) -> Said {
    let mut said = Said::Yes;
    for child in &run.children {
        let word = format!("{}{}", child.state.word(), child.attempts);
        if last.get(&child.id) != Some(&word) {
            last.insert(child.id.clone(), word);
            // Waiting for a slot is no news.
            if child.attempts > 0 {
                said = output::talk(&snapshot::line(child, output::columns(), now));
            }
        }
    }
    said
}
