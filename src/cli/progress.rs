//! Live progress on stderr: one line a child. On a terminal it is redrawn in place; elsewhere each change is a line.

use std::collections::BTreeMap;

use super::flags::{ColorFlag, Following, Format};
use super::output;
use crate::machine::snapshot::{self, ChildSnapshot, Need, RunSnapshot, StateName};
use crate::model::id::ChildId;
use crate::model::time::Timestamp;

/// Lines drawn at most; a run of hundreds would scroll.
const LINES: usize = 24;

/// What is told while a run goes on: talk on stderr, and for a stream of JSON each change on stdout.
#[derive(Debug)]
pub(super) struct Progress {
    talk: Talk,
    paint: Paint,
    /// The last word of each child that stdout was told; `None` where stdout carries the result alone.
    stream: Option<Told>,
}

/// The last word told of each child.
type Told = BTreeMap<ChildId, String>;

/// Whether lines have colour. No line needs it to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Paint {
    Plain,
    Coloured,
}

impl Paint {
    /// A child's line: yellow asks for a person, red did not end well, green is done.
    fn line(self, child: &ChildSnapshot, columns: usize, now: Timestamp) -> String {
        let line = snapshot::line(child, columns, now);
        let colour = match (self, child.need(), child.state) {
            (Self::Coloured, Need::Answer, _) => 33,
            (Self::Coloured, _, StateName::Failed) => 31,
            (Self::Coloured, _, StateName::Done) => 32,
            _ => return line,
        };
        format!("\u{1b}[{colour}m{line}\u{1b}[0m")
    }
}

#[derive(Debug)]
enum Talk {
    Quiet,
    /// Redrawn; holds how many lines stand there.
    Drawn {
        lines: usize,
    },
    /// One line a change.
    Changes {
        told: Told,
    },
}

impl Progress {
    pub(super) fn new(how: Following) -> Self {
        let redraws = output::talks_to_terminal() && std::env::var("TERM").as_deref() != Ok("dumb");
        let talk = if how.quiet {
            Talk::Quiet
        } else if redraws {
            Talk::Drawn { lines: 0 }
        } else {
            Talk::Changes { told: Told::new() }
        };
        let paint = match how.color {
            ColorFlag::Always => Paint::Coloured,
            ColorFlag::Auto if redraws && std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty()) => {
                Paint::Coloured
            }
            ColorFlag::Auto | ColorFlag::Never => Paint::Plain,
        };
        Self { talk, paint, stream: (how.output_format == Format::StreamJson).then(Told::new) }
    }

    /// Whether elapsed times are on the screen and want a tick.
    pub(super) const fn ticks(&self) -> bool {
        matches!(self.talk, Talk::Drawn { .. })
    }

    pub(super) fn show(&mut self, run: &RunSnapshot, now: Timestamp) {
        match &mut self.talk {
            Talk::Quiet => {}
            Talk::Drawn { lines } => {
                let (text, drawn) = draw(run, *lines, self.paint, now);
                *lines = drawn;
                output::draw(&text);
            }
            Talk::Changes { told } => {
                for child in changed(run, told) {
                    output::talk(&self.paint.line(child, output::columns(), now));
                }
            }
        }
        if let Some(told) = &mut self.stream {
            if told.is_empty() {
                output::line(&snapshot::start_json(run));
                told.extend(run.children.iter().map(|child| (child.id.clone(), String::new())));
            }
            for child in changed(run, told) {
                output::line(&snapshot::change_json(child));
            }
        }
    }

    /// Leaves what was drawn and goes on below it.
    pub(super) fn leave(&mut self) {
        if let Talk::Drawn { lines } = &mut self.talk {
            *lines = 0;
        }
    }
}

fn draw(run: &RunSnapshot, before: usize, paint: Paint, now: Timestamp) -> (String, usize) {
    let columns = output::columns();
    let mut lines = vec![snapshot::heading(run, columns, now)];
    let children = snapshot::needs_you_first(&run.children);
    let shown: Vec<_> = if run.children.len() <= LINES { run.children.iter().collect() } else { children };
    lines.extend(shown.iter().take(LINES).map(|child| paint.line(child, columns, now)));
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

/// The children whose state or attempt is another than was told. Waiting for a slot is no news.
fn changed<'a>(run: &'a RunSnapshot, told: &mut Told) -> Vec<&'a ChildSnapshot> {
    let mut changed = Vec::new();
    for child in run.children.iter().filter(|child| child.attempts > 0 || child.state.is_final()) {
        let word = format!("{}{}", child.state.word(), child.attempts);
        if told.get(&child.id) != Some(&word) {
            told.insert(child.id.clone(), word);
            changed.push(child);
        }
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::snapshot::tests::child;

    #[test]
    fn colour_stands_around_a_line_that_says_all_without_it() {
        let now = Timestamp::from_millis(0);
        for (state, start) in
            [(StateName::Failed, "\u{1b}[31m"), (StateName::Done, "\u{1b}[32m"), (StateName::Running, "")]
        {
            let child = child(1, state);
            let plain = Paint::Plain.line(&child, 80, now);
            let painted = Paint::Coloured.line(&child, 80, now);
            assert!(!plain.contains('\u{1b}') && painted.starts_with(start), "{painted:?}");
            assert_eq!(crate::text::without_controls(&painted), plain);
        }
    }
}
