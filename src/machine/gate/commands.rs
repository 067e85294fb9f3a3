//! `bash` allow rules against the commands of a line: each must be covered on its own.
//!
//! Deliberately absent: deny rules, which are read the other way round (`denial`).

use super::flow::{Places, Step};
use super::line;
use super::pattern::{Part, fits, forms};
use super::programs::{self, base_name};
use super::reader::is_assignment;
use super::syntax::{Access, Redirect, Simple, Word};
use super::unwrap::{Inner, Manner, unwrap};

/// Wrappers within wrappers that are followed.
const DEEPEST: usize = 8;

/// How a command of a line is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cover {
    /// By a rule.
    Rule,
    /// It needs none beside a command that has one.
    Free,
}

/// Whether a path may be written by a redirection; if not, why.
pub(super) type MayWrite<'a> = &'a dyn Fn(&str) -> Result<(), String>;

/// The allow rules of a policy, ready.
pub(super) struct Allowing<'a> {
    patterns: Vec<Vec<Part>>,
    texts: Vec<&'a str>,
    may_write: MayWrite<'a>,
}

impl<'a> Allowing<'a> {
    pub(super) fn new(patterns: &[&'a str], may_write: MayWrite<'a>) -> Self {
        Self {
            patterns: patterns.iter().flat_map(|pattern| forms(pattern)).collect(),
            texts: patterns.to_vec(),
            may_write,
        }
    }

    /// Whether every command of the line is covered; if not, why.
    pub(super) fn allows(&self, line: &str) -> Result<(), String> {
        // Who writes a whole line into a rule means that line.
        if self.texts.iter().any(|text| !text.contains('*') && *text == line.trim()) {
            return Ok(());
        }
        let steps = line::steps(line).map_err(|why| format!("the command is not fully understood: {why}"))?;
        match self.steps(&steps, 0)? {
            Cover::Rule => Ok(()),
            Cover::Free => match steps.iter().find(|step| !step.simple.words.is_empty()) {
                Some(step) => Err(format!("no rule allows `{}`", shown(&step.simple))),
                None => Err("there is no command".to_owned()),
            },
        }
    }

    fn steps(&self, steps: &[Step], depth: usize) -> Result<Cover, String> {
        let mut cover = Cover::Free;
        for step in steps {
            if !step.simple.words.is_empty() {
                let by = if step.is_function && step.simple.assignments.is_empty() {
                    Cover::Free
                } else {
                    self.simple(&step.simple, &step.places, depth)?
                };
                cover = if by == Cover::Rule { Cover::Rule } else { cover };
            } else if let Some(set) = step.simple.assignments.iter().find(|set| !programs::is_free_name(&set.name)) {
                return Err(format!("it sets `{}`", set.name));
            }
            for redirect in &step.simple.redirects {
                self.redirect(redirect, &step.places)?;
            }
        }
        Ok(cover)
    }

    fn redirect(&self, redirect: &Redirect, places: &Places) -> Result<(), String> {
        if redirect.is_void() {
            return Ok(());
        }
        let verb = match redirect.access {
            Access::Read => "reads",
            Access::Write => "writes",
        };
        let Some(path) = redirect.target.known().filter(|path| !path.is_empty() && !places.is_anywhere()) else {
            return Err(format!("it {verb} a file whose name is not certain"));
        };
        for path in places.resolve(path) {
            match redirect.access {
                Access::Write => (self.may_write)(&path)?,
                Access::Read if super::paths::is_outside(&path) => {
                    return Err(format!("it reads `{path}`, outside the workspace"));
                }
                Access::Read => {}
            }
        }
        Ok(())
    }

    fn simple(&self, simple: &Simple, places: &Places, depth: usize) -> Result<Cover, String> {
        let because = |why: &str| Err(format!("{why}: `{}`", shown(simple)));
        if depth > DEEPEST {
            return because("commands within commands are too many");
        }
        if simple.words.first().and_then(Word::known).is_none_or(str::is_empty) {
            return because("the program is not certain");
        }
        let mut tried = None;
        for pattern in &self.patterns {
            match covers(pattern, simple, places) {
                Covers::Yes => return Ok(Cover::Rule),
                Covers::But(why) => tried = Some(why),
                Covers::No => {}
            }
        }
        let reads = simple.words.first().and_then(Word::known) == Some("read");
        let own = |name: &str| programs::is_free_name(name) || (reads && name == "IFS");
        if let Some(set) = simple.assignments.iter().find(|set| !own(&set.name)) {
            return Err(format!("it sets `{}`", set.name));
        }
        if programs::is_free(simple, places) {
            return Ok(Cover::Free);
        }
        let Some(wrapped) = unwrap(simple) else {
            return match tried {
                Some(why) => because(why),
                None => Err(format!("no rule allows `{}`", shown(simple))),
            };
        };
        match &wrapped.manner {
            Manner::Foreign => return because("it runs another command"),
            Manner::Clear => {}
            Manner::Beside { own } => {
                let own = Simple { words: own.clone(), ..simple.clone() };
                if !self.patterns.iter().any(|pattern| matches!(covers(pattern, &own, places), Covers::Yes)) {
                    return because("it runs another command");
                }
            }
        }
        if wrapped.inner.is_empty() {
            return Err(format!("no rule allows `{}`", shown(simple)));
        }
        let mut cover = Cover::Free;
        for inner in &wrapped.inner {
            let by = match inner {
                Inner::Command(words) => self.simple(&line::inner_simple(words, simple.fed), places, depth + 1)?,
                Inner::Script { text, shell } => match line::inner_steps(text, *shell, places) {
                    Ok(steps) => self.steps(&steps, depth + 1)?,
                    Err(why) => return Err(format!("the command is not fully understood: {why}")),
                },
                Inner::Tails(_) | Inner::Unknown => return because("what it runs is not certain"),
            };
            cover = if by == Cover::Rule { Cover::Rule } else { cover };
        }
        Ok(cover)
    }
}

enum Covers {
    Yes,
    /// The words fit, and what they do is more than the rule says.
    But(&'static str),
    No,
}

/// Whether an allow pattern covers the command, its free arguments included.
fn covers(pattern: &[Part], simple: &Simple, places: &Places) -> Covers {
    let named = |part: &&Part| matches!(part, Part::Word(word) if is_assignment(word));
    let sets = pattern.iter().take_while(named).count();
    let (sets, pattern) = pattern.split_at(sets);
    let set = simple.assignments.iter().zip(sets).all(|(assignment, part)| {
        let text = assignment.value.shown();
        let text = if text.contains('=') && text.starts_with(&assignment.name) {
            text
        } else {
            format!("{}={text}", assignment.name)
        };
        matches!(part, Part::Word(part) if fits(part, &text))
    });
    let free = simple.assignments.iter().skip(sets.len()).all(|set| programs::is_free_name(&set.name));
    if !set || !free || sets.len() > simple.assignments.len() {
        return Covers::No;
    }
    // Words that the person wrote out; the rest came through a `*` and must be harmless.
    let named = pattern.iter().take_while(|part| part.is_exact()).count();
    if named == 0 || !matches(pattern, &simple.words) {
        return Covers::No;
    }
    // Without a `*` all of it was written out.
    let named = if named == pattern.len() { usize::MAX } else { named };
    more_than_named(simple, named, places).map_or(Covers::Yes, Covers::But)
}

/// What the command does beyond the words that were named.
fn more_than_named(simple: &Simple, named: usize, places: &Places) -> Option<&'static str> {
    let program = simple.words.first().and_then(Word::known).map(base_name);
    // A repository that is entered brings its own configuration, and git runs what stands there.
    if program == Some("git") && !places.is_start() {
        return Some("git runs in another directory");
    }
    if named == usize::MAX {
        return None;
    }
    let named = named.min(simple.words.len());
    if let Some(wrapped) = unwrap(simple) {
        let Some(rest) = simple.words.get(wrapped.at..).filter(|rest| !rest.is_empty() && named > wrapped.at) else {
            return Some("it runs another command");
        };
        if wrapped.inner.iter().any(|inner| !matches!(inner, Inner::Command(_))) || wrapped.inner.len() != 1 {
            return Some("it runs another command");
        }
        let inner = line::inner_simple(rest, simple.fed);
        if !inner.assignments.is_empty() {
            return Some("it sets a variable");
        }
        return more_than_named(&inner, named - wrapped.at, places);
    }
    programs::hazard(simple, named, places)
}

/// Whether the whole command fits. What is not known fits only a `*`, and what may be several words only a lone one.
fn matches(pattern: &[Part], words: &[Word]) -> bool {
    let mut reachable = vec![false; words.len() + 1];
    reachable[0] = true;
    for part in pattern {
        let mut next = vec![false; words.len() + 1];
        for at in (0..=words.len()).filter(|at| reachable[*at]) {
            match part {
                Part::Words => next[at..].fill(true),
                Part::Word(part) => {
                    if let Some(word) = words.get(at)
                        && word.known().map_or(!word.expands() && fits(part, &word.shown()), |word| fits(part, word))
                    {
                        next[at + 1] = true;
                    }
                }
            }
        }
        reachable = next;
    }
    reachable[words.len()]
}

pub(super) fn shown(simple: &Simple) -> String {
    let text = if simple.text.is_empty() {
        simple.words.iter().map(Word::shown).collect::<Vec<_>>().join(" ")
    } else {
        simple.text.clone()
    };
    crate::text::one_line(&text.replace(super::pattern::ANY, "…"), 80)
}
