//! What Tab makes of the word before the cursor: a command, a persona, a path of the project.
//!
//! Deliberately absent: the files themselves; whoever opens the screen lists them.

use super::slash;

/// What can stand where the cursor is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Completion {
    /// Characters before the cursor that are replaced.
    pub(super) replaces: usize,
    pub(super) candidates: Vec<String>,
}

/// What there is to complete with.
pub(super) struct Known<'a> {
    pub(super) skills: &'a [(String, String)],
    pub(super) personas: &'a [String],
    /// Paths of the project that begin so; directories end in a slash.
    pub(super) paths: &'a dyn Fn(&str) -> Vec<String>,
}

/// Candidates for the text before the cursor, a line's start to the cursor. None is no completion.
pub(super) fn complete(before: &str, known: &Known<'_>) -> Option<Completion> {
    if let Some(start) = before.strip_prefix('/')
        && !start.contains([' ', '/'])
    {
        return some(start, slash::names(known.skills).map(str::to_owned));
    }
    if let Some(start) = before.strip_prefix("/agent ") {
        return some(start, known.personas.iter().cloned());
    }
    if let Some(start) = before.strip_prefix("/mode ") {
        return some(start, ["default", "edit", "plan", "bypass"].map(str::to_owned).into_iter());
    }
    let word = before.rsplit([' ', '\t']).next().unwrap_or(before);
    let path = word.strip_prefix('@').unwrap_or(word);
    let looks_like_one = word.starts_with('@') || path.contains('/') || path.contains('.');
    if !looks_like_one {
        return None;
    }
    some(path, (known.paths)(path).into_iter())
}

fn some(start: &str, all: impl Iterator<Item = String>) -> Option<Completion> {
    let candidates: Vec<String> = all.filter(|name| name.starts_with(start)).collect();
    (!candidates.is_empty()).then(|| Completion { replaces: start.chars().count(), candidates })
}

/// The longest start that all have in common.
pub(super) fn common(candidates: &[String]) -> &str {
    let Some((first, rest)) = candidates.split_first() else { return "" };
    let shared = |other: &String| {
        let pairs = first.char_indices().zip(other.chars());
        pairs.take_while(|((_, a), b)| a == b).map(|((at, c), _)| at + c.len_utf8()).last().unwrap_or(0)
    };
    &first[..rest.iter().map(shared).min().unwrap_or(first.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates(before: &str) -> Vec<String> {
        let paths = |start: &str| {
            let all = ["src/", "src/main.rs", "src/map.rs", "README.md"];
            all.iter().filter(|path| path.starts_with(start)).map(|path| (*path).to_owned()).collect()
        };
        let personas = ["build".to_owned(), "plan".to_owned()];
        complete(before, &Known { skills: &[("tidy".to_owned(), String::new())], personas: &personas, paths: &paths })
            .map(|completion| completion.candidates)
            .unwrap_or_default()
    }

    #[test]
    fn a_slash_at_the_start_is_a_command_and_takes_what_it_takes() {
        assert_eq!(candidates("/co"), ["compact", "cost"]);
        assert_eq!(candidates("/ti"), ["tidy"]);
        assert_eq!(candidates("/agent p"), ["plan"]);
        assert_eq!(candidates("/mode b"), ["bypass"]);
    }

    #[test]
    fn paths_are_completed_after_an_at_and_where_a_word_looks_like_one() {
        assert_eq!(candidates("look at @RE"), ["README.md"]);
        assert_eq!(candidates("look at src/ma"), ["src/main.rs", "src/map.rs"]);
        assert_eq!(candidates("look at sr"), Vec::<String>::new());
    }

    #[test]
    fn what_all_have_in_common_is_typed_at_once() {
        assert_eq!(common(&["src/main.rs".to_owned(), "src/map.rs".to_owned()]), "src/ma");
        assert_eq!(common(&["äb".to_owned(), "äc".to_owned()]), "ä");
        assert_eq!(common(&[]), "");
    }
}
