//! Deny rules against a line: found in any command, however it is wrapped; in doubt the call is asked, in every mode.
//!
//! Also rules about files, since a command that names a denied file reaches it as well as a tool does. A line that is not
//! understood is asked, in bypass mode too, if a denied program could be hidden in it: to deny it would forbid every
//! loop with a counter to whoever denies `rm`, to let it pass would make the rule a matter of spelling.

use super::flow::Step;
use super::git;
use super::line::Everything;
use super::paths::{Named, Naming};
use super::pattern::{self, Part, fits, forms, overlap};
use super::programs::{self, base_name};
use super::syntax::{Access, Simple, Word};
use crate::model::rule::Rule;
use crate::model::tool_name::ToolName;

/// What deny rules say of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Denial {
    No,
    /// Something in the line may be what the rule denies.
    Maybe(Rule),
    Yes(Rule),
}

/// Holds all deny rules against the line.
pub(super) fn denial(rules: &[Rule], line: &str, all: &Everything) -> Denial {
    let mut maybe = None;
    for rule in rules {
        let found = match (&rule.pattern, rule.tool) {
            (None, ToolName::Bash) => Naming::Yes,
            (Some(pattern), ToolName::Bash) => command(pattern, line, all),
            (Some(pattern), ToolName::Read | ToolName::Write | ToolName::Edit) => file(rule.tool, pattern, all),
            (None | Some(_), _) => Naming::No,
        };
        match found {
            Naming::Yes => return Denial::Yes(rule.clone()),
            Naming::Maybe if maybe.is_none() => maybe = Some(rule.clone()),
            Naming::Maybe | Naming::No => {}
        }
    }
    maybe.map_or(Denial::No, Denial::Maybe)
}

/// A `bash` rule.
fn command(pattern: &str, line: &str, all: &Everything) -> Naming {
    let forms = forms(pattern);
    let mut found = Naming::No;
    for form in &forms {
        let Some(Part::Word(program)) = form.first() else {
            return Naming::Yes;
        };
        let hidden = all.hides || all.unread.iter().any(|text| could_hide(program, text));
        found = found.max(if hidden { Naming::Maybe } else { Naming::No });
        for step in &all.steps {
            found = found.max(simple(form, program, line, &step.simple));
        }
    }
    found
}

fn simple(form: &[Part], program: &str, line: &str, simple: &Simple) -> Naming {
    let Some(first) = simple.words.first() else { return Naming::No };
    if first.known().is_none() {
        // A glob that could be the program, or anything at all.
        return if overlap(&first.glob(), &pattern::pieces(program)) { Naming::Maybe } else { Naming::No };
    }
    let words = plain(&simple.words);
    if fits_all(form, &words, Doubt::Excluded) || fits_loosely(form, &words) {
        return Naming::Yes;
    }
    if fits_all(form, &words, Doubt::Included) {
        return Naming::Maybe;
    }
    let name = first.known().map(base_name).unwrap_or_default();
    let texts = || simple.words.iter().skip(1).map(Word::shown);
    let told = if programs::is_language(name) {
        (simple.fed && mentions(line, program)) || texts().any(|text| mentions(&text, program))
    } else {
        // `git -c alias.x='!rm y' x`
        name == "git" && texts().any(|text| text.contains('!') && mentions(&text, program))
    };
    if told { Naming::Maybe } else { Naming::No }
}

/// The command without its path, and git without its own options.
fn plain(words: &[Word]) -> Vec<Word> {
    let mut plain = words.to_vec();
    let Some(name) = words.first().and_then(Word::known).map(base_name) else { return plain };
    plain[0] = Word::literal(name);
    if name == "git" {
        let shown: Vec<String> = words[1..].iter().map(Word::shown).collect();
        let shown: Vec<&str> = shown.iter().map(String::as_str).collect();
        plain.drain(1..=git::git_options(&shown));
    }
    plain
}

/// Whether words that are not known may count as what the pattern wants.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Doubt {
    Included,
    Excluded,
}

/// Whether the command is, or may be, what the pattern says.
fn fits_all(form: &[Part], words: &[Word], doubt: Doubt) -> bool {
    let mut reachable = vec![false; words.len() + 1];
    reachable[0] = true;
    // An expansion may come to nothing.
    let vanish = |reachable: &mut Vec<bool>| {
        for at in 0..words.len() {
            if doubt == Doubt::Included && reachable[at] && words[at].expands() {
                reachable[at + 1] = true;
            }
        }
    };
    vanish(&mut reachable);
    for part in form {
        let mut next = vec![false; words.len() + 1];
        for at in (0..=words.len()).filter(|at| reachable[*at]) {
            match part {
                Part::Words => next[at..].fill(true),
                Part::Word(part) => {
                    let Some(word) = words.get(at) else { continue };
                    let open = word.is_open() && doubt == Doubt::Excluded;
                    let fit = match word.known() {
                        Some(known) => fits(part, known),
                        None => !open && overlap(&word.glob(), &pattern::pieces(part)),
                    };
                    if fit {
                        next[at + 1] = true;
                        next[at] |= word.expands() && doubt == Doubt::Included;
                    }
                }
            }
        }
        vanish(&mut next);
        reachable = next;
    }
    reachable[words.len()]
}

/// The same with options in any order and company: `rm -rf` is also `rm -f -r` and `rm -vfr`.
fn fits_loosely(form: &[Part], words: &[Word]) -> bool {
    let exact: Option<Vec<&str>> = form
        .iter()
        .filter_map(|part| match part {
            Part::Word(word) if word.contains('*') => Some(None),
            Part::Word(word) => Some(Some(word.as_str())),
            Part::Words => None,
        })
        .collect();
    let Some(exact) = exact.filter(|exact| exact.iter().any(|word| word.starts_with('-'))) else { return false };
    if form.last() != Some(&Part::Words) {
        return false;
    }
    let known: Vec<&str> = words.iter().filter_map(Word::known).collect();
    let is_option = |word: &&str| word.starts_with('-') && word.len() > 1;
    let letters = |words: &[&str]| -> String {
        words
            .iter()
            .filter(|word| is_option(word) && !word.starts_with("--"))
            .flat_map(|word| word[1..].chars())
            .collect()
    };
    let long = |wanted: &str| {
        known.iter().any(|word| {
            let name = word.split('=').next().unwrap_or(word);
            name == wanted || (name.len() > 3 && name.starts_with("--") && wanted.starts_with(name))
        })
    };
    let has = |letter: char| {
        let given = letters(&known);
        // What rm calls these at length.
        let length = match letter {
            'r' | 'R' => "--recursive",
            'f' => "--force",
            _ => "--",
        };
        given.contains(letter)
            || (letter == 'r' && given.contains('R'))
            || (exact.first() == Some(&"rm") && length != "--" && long(length))
    };
    let mut rest = known.iter().filter(|word| !is_option(word));
    exact.iter().all(|wanted| match wanted.strip_prefix("--") {
        Some(_) => long(wanted),
        None if is_option(wanted) => wanted[1..].chars().all(has),
        None => rest.next() == Some(wanted),
    })
}

/// Whether the word stands in the text by itself.
fn mentions(text: &str, program: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    let program = program.trim_matches('*');
    !program.is_empty()
        && text
            .match_indices(program)
            .any(|(at, _)| !text[..at].ends_with(part) && !text[at + program.len()..].starts_with(part))
}

/// Whether a text that was not understood could run the program: it is in it under some quotes, or could be put together.
fn could_hide(program: &str, text: &str) -> bool {
    let bare: String = text.chars().filter(|c| !matches!(c, '\'' | '"' | '\\' | '\n')).collect();
    let bare = bare.to_lowercase();
    let words = program.split('*').all(|piece| bare.contains(&piece.to_lowercase()));
    words
        || text.contains(['$', '`', '*', '?', '[', '{'])
        || ["eval", "source", "sh", ". "].iter().any(|word| text.contains(word))
}

/// A rule about files.
fn file(tool: ToolName, pattern: &str, all: &Everything) -> Naming {
    let named = Named::new(pattern);
    let mut found = Naming::No;
    for Step { simple, places, .. } in &all.steps {
        for redirect in &simple.redirects {
            let concerned = match redirect.access {
                Access::Read => tool == ToolName::Read,
                Access::Write => tool != ToolName::Read,
            };
            if concerned {
                found = found.max(named.names(&redirect.target, places));
            }
        }
        let program = simple.words.first().and_then(Word::known).map(base_name).unwrap_or_default();
        if matches!(program, "echo" | "printf" | "true" | "false" | "cd" | ":" | "[" | "[[" | "test") {
            continue;
        }
        if tool != ToolName::Read && programs::only_reads(simple) {
            continue;
        }
        let operands = programs::operands(program, &simple.words);
        for word in &operands {
            found = found.max(named.names(word, places));
        }
        if tool == ToolName::Read && looks_below(program, simple) {
            let here = [Word::literal(".")];
            let places_named: Vec<&Word> =
                operands.iter().copied().filter(|word| !word.beginning().starts_with('-')).collect();
            let places_named = if places_named.is_empty() { here.iter().collect() } else { places_named };
            if places_named.iter().any(|word| named.is_below(word, places)) {
                found = found.max(Naming::Maybe);
            }
        }
    }
    // What was not understood may name anything that it mentions.
    let key = pattern.split(['/', '*']).filter(|part| !part.is_empty()).max_by_key(|part| part.len());
    if key.is_none_or(|key| all.unread.iter().any(|text| text.contains(key))) && !all.unread.is_empty() {
        found = found.max(Naming::Maybe);
    }
    found
}

/// Whether the command reads all files below a directory.
fn looks_below(program: &str, simple: &Simple) -> bool {
    let short = |letters: &str| simple.words.iter().any(|word| programs::has_short(&word.shown(), letters));
    let long = |name: &str| simple.words.iter().any(|word| word.known() == Some(name));
    match program {
        "rg" | "ag" | "ack" => true,
        "grep" | "egrep" | "fgrep" => short("rR") || long("--recursive"),
        "cp" => short("rRa") || long("--recursive") || long("--archive"),
        "tar" | "zip" | "rsync" | "scp" => true,
        "diff" => short("r"),
        "git" => simple.words.get(1).and_then(Word::known) == Some("grep"),
        _ => false,
    }
}
