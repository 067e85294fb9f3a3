//! `bash` rules against the commands of a line.
//!
//! An allow rule must cover each simple command on its own. A deny rule needs only one, and is looked for in every
//! place where a command could hide.

use super::line::{self, ANYTHING, Command, Quotes, Word};
use super::programs::{self, fits};

/// Whether every command of the line is covered by one of the patterns; if not, why.
pub(super) fn allows(patterns: &[&str], line: &str) -> Result<(), String> {
    let commands = line::parse(line).map_err(|why| format!("the command is not fully understood: {why}"))?;
    if commands.is_empty() {
        return Err("there is no command".to_owned());
    }
    let patterns: Vec<Vec<Part>> = patterns.iter().flat_map(|pattern| forms(pattern)).collect();
    for (at, command) in commands.iter().enumerate() {
        let covered = patterns.iter().any(|pattern| covers(pattern, command));
        if !covered {
            return Err(format!("no rule allows `{}`", shown(command)));
        }
        // A repository that is entered brings its own configuration, and git runs what stands there.
        let moved = commands[..at].iter().any(|command| matches!(command[0].text.as_str(), "cd" | "pushd" | "popd"));
        if moved && command[0].text == "git" {
            return Err("git runs in another directory".to_owned());
        }
    }
    Ok(())
}

/// Whether a deny pattern fits something in the line. In doubt it does.
pub(super) fn denies(pattern: &str, line: &str) -> bool {
    let patterns = forms(pattern);
    let patterns = || patterns.iter().map(Vec::as_slice);
    match line::parse(line) {
        Err(_) => hides(patterns, line),
        Ok(commands) => commands.iter().any(|command| {
            let words: Vec<&str> = command.iter().map(|word| word.text.as_str()).collect();
            let unclear = command.iter().any(|word| word.globs) || programs::runs_words(words[0]);
            patterns().any(|pattern| fits_command(pattern, &words)) || (unclear && hides(patterns, line))
        }),
    }
}

/// Looks for the pattern from every word of the line on.
fn hides<'a, I: Iterator<Item = &'a [Part]>>(patterns: impl Fn() -> I, line: &str) -> bool {
    let opened = line::rough(line, Quotes::Open);
    let carries = line.contains(['`', '$']) && line.contains(['`', '(']);
    let carries = carries || opened.iter().any(|word| programs::runs_words(word));
    let found = |words: &[String]| {
        let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
        if carries {
            // `xargs` and its like add words that are not in the line.
            words.push(UNKNOWN);
        }
        (0..words.len()).any(|from| {
            let (rest, short) = (&words[from..], without_git_options(&words[from..]));
            patterns().any(|pattern| begins(pattern, rest, Known::Nothing) || begins(pattern, &short, Known::Nothing))
        })
    };
    found(&line::rough(line, Quotes::Keep)) || (carries && found(&opened))
}

const UNKNOWN: &str = "\u{fffc}";

/// A word of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    /// One word; `*` in it stands for any characters.
    Word(String),
    /// `*` alone: any number of words.
    Words,
}

/// The ways to read a pattern: `npm run test:*` is a word that starts so, or, as Claude Code has it, more words.
fn forms(pattern: &str) -> Vec<Vec<Part>> {
    let parts = parts(pattern);
    let mut forms = vec![parts.clone()];
    if let Some(Part::Word(last)) = parts.last()
        && let Some(word) = last.strip_suffix(":*").filter(|word| !word.is_empty())
    {
        let mut other = parts[..parts.len() - 1].to_vec();
        other.extend([Part::Word(word.to_owned()), Part::Words]);
        forms.push(other);
    }
    forms
}

fn parts(pattern: &str) -> Vec<Part> {
    let (mut parts, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in pattern.chars() {
        match quote {
            Some(open) if c == open => quote = None,
            None if c == '\'' || c == '"' => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            None if c.is_whitespace() => parts.extend(word.take()),
            Some(_) | None => word.get_or_insert_default().push(c),
        }
    }
    parts.extend(word);
    parts.into_iter().map(|word| if word == "*" { Part::Words } else { Part::Word(word) }).collect()
}

/// Whether an allow pattern covers the command, its free arguments included.
fn covers(pattern: &[Part], command: &Command) -> bool {
    let words: Vec<&str> = command.iter().map(|word| word.text.as_str()).collect();
    // Words that the person wrote out; the rest came through a `*` and must be harmless.
    let named = pattern.iter().take_while(|part| matches!(part, Part::Word(word) if !word.contains('*'))).count();
    named > 0 && matches(pattern, &words) && (named >= words.len() || programs::hazard(&words, named).is_none())
}

/// Whether the whole command fits.
fn matches(pattern: &[Part], words: &[&str]) -> bool {
    match (pattern.split_first(), words.split_first()) {
        (None, None) => true,
        (Some((Part::Words, rest)), _) => (0..=words.len()).any(|taken| matches(rest, &words[taken..])),
        (Some((Part::Word(part), pattern)), Some((word, words))) => fits(part, word) && matches(pattern, words),
        (None, Some(_)) | (Some((Part::Word(_), _)), None) => false,
    }
}

/// A deny pattern against a command that is understood: also under the program's full path, or behind git's options.
fn fits_command(pattern: &[Part], words: &[&str]) -> bool {
    let mut short = without_git_options(words);
    if matches(pattern, words) || matches(pattern, &short) {
        return true;
    }
    short[0] = programs::base_name(short[0]);
    matches(pattern, &short)
}

/// Whether a literal word of the pattern has been seen: without one, an unknown word would be every command.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Known {
    Nothing,
    Something,
}

/// Whether words that may hold unknown parts could begin with the pattern.
fn begins(pattern: &[Part], words: &[&str], known: Known) -> bool {
    match (pattern.split_first(), words.split_first()) {
        (None, _) => known == Known::Something,
        (Some((Part::Words, rest)), _) => (0..=words.len()).any(|taken| begins(rest, &words[taken..], known)),
        (Some((Part::Word(part), pattern)), Some((word, words))) => {
            let unknown = word.contains(ANYTHING);
            let fit =
                if unknown { could_be(word, part) } else { fits(part, word) || fits(part, programs::base_name(word)) };
            let told = !unknown || word.chars().any(|c| c != ANYTHING);
            fit && begins(pattern, words, if told { Known::Something } else { known })
        }
        (Some((Part::Word(_), _)), None) => false,
    }
}

/// Whether a word with unknown parts could be what the pattern's word says.
fn could_be(word: &str, part: &str) -> bool {
    part.contains('*') || fits(&word.replace(ANYTHING, "*"), part)
}

/// `git -C dir push` as `git push`; other commands as they are.
fn without_git_options<'a>(words: &[&'a str]) -> Vec<&'a str> {
    if words.first().is_none_or(|word| programs::base_name(word) != "git") {
        return words.to_vec();
    }
    let skipped = programs::git_options(&words[1..]);
    let mut short = vec!["git"];
    short.extend(&words[1 + skipped..]);
    short
}

fn shown(command: &[Word]) -> String {
    let words: Vec<&str> = command.iter().map(|word| word.text.as_str()).collect();
    crate::text::one_line(&words.join(" "), 80)
}
