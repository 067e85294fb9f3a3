//! A shell line as the rules see it: every command in it, those that others run included.
//!
//! Lines within a line (`bash -c '…'`, `eval '…'`) are read by the same reader, to any depth up to a bound.
//! Deliberately absent: rules.

use super::flow::{self, Places, Step};
use super::reader;
use super::syntax::{Simple, Unclear, Word};
use super::unwrap::{Inner, Shell, Wrapped, unwrap};

/// Wrappers within wrappers, and commands in all, that are followed.
const DEEPEST: usize = 8;
const MOST: usize = 2_000;

/// The steps of a line as it is written.
pub(super) fn steps(line: &str) -> Result<Vec<Step>, Unclear> {
    reader::read(line).map(|node| flow::steps(&node))
}

/// The steps of a line that another command reads.
pub(super) fn inner_steps(text: &str, shell: Shell, places: &Places) -> Result<Vec<Step>, Unclear> {
    /// What a plain shell takes for something else than bash does.
    const OTHERWISE: &[&str] =
        &["$'", "$\"", "((", "[[", "<<<", "&>", "|&", "<(", ">(", ">&", "function", "coproc", "select"];
    let plain = text.replace("2>&1", "").replace("1>&2", "").replace(">&2", "");
    if shell == Shell::Plain && OTHERWISE.iter().any(|form| plain.contains(form)) {
        return Err(Unclear::Form { what: "another shell reads it", near: crate::text::one_line(text, 40) });
    }
    let mut steps = steps(text)?;
    if !places.is_start() {
        for step in &mut steps {
            step.places = if step.places.is_start() { places.clone() } else { Places::anywhere() };
        }
    }
    Ok(steps)
}

/// The command that a wrapper runs, its variables told from its words.
pub(super) fn inner_simple(words: &[Word], fed: bool) -> Simple {
    let mut simple = Simple { fed, ..Simple::default() };
    let mut words = words.iter().skip_while(|word| {
        let Some((name, _)) = word.beginning().split_once('=').filter(|(name, _)| !name.is_empty()) else {
            return false;
        };
        simple.assignments.push(super::syntax::Assignment { name: name.to_owned(), value: (*word).clone() });
        true
    });
    let rest: Vec<Word> = words.by_ref().cloned().collect();
    simple.text = rest.iter().map(Word::shown).collect::<Vec<_>>().join(" ");
    simple.words = rest;
    simple
}

/// All that a line may run, for deny rules.
#[derive(Debug, Default)]
pub(super) struct Everything {
    pub(super) steps: Vec<Step>,
    /// Texts that are run and were not understood.
    pub(super) unread: Vec<String>,
    /// Something is run that the line does not show.
    pub(super) hides: bool,
}

/// Follows every wrapper.
pub(super) fn everything(line: &str) -> Everything {
    let mut all = Everything::default();
    match steps(line) {
        Ok(steps) => all.follow(steps, 0),
        Err(_) => all.unread.push(line.to_owned()),
    }
    all
}

impl Everything {
    fn follow(&mut self, steps: Vec<Step>, depth: usize) {
        for step in steps {
            if depth > DEEPEST || self.steps.len() > MOST {
                self.hides = true;
                return;
            }
            if let Some(Wrapped { inner, .. }) = unwrap(&step.simple) {
                for inner in inner {
                    self.inner(inner, &step, depth);
                }
            }
            self.steps.push(step);
        }
    }

    fn inner(&mut self, inner: Inner, step: &Step, depth: usize) {
        match inner {
            Inner::Command(words) => {
                let simple = inner_simple(&words, step.simple.fed);
                self.follow(vec![Step { simple, places: step.places.clone(), is_function: false }], depth + 1);
            }
            // One of these tails is a command. They are not followed further: that would never end.
            Inner::Tails(words) => {
                let tails = (0..words.len()).map(|at| Step {
                    simple: inner_simple(&words[at..], step.simple.fed),
                    places: step.places.clone(),
                    is_function: false,
                });
                self.steps.extend(tails.take(MOST));
            }
            Inner::Script { text, shell } => match inner_steps(&text, shell, &step.places) {
                Ok(steps) => self.follow(steps, depth + 1),
                Err(_) => self.unread.push(text),
            },
            Inner::Unknown => self.hides = true,
        }
    }
}
