//! Citations: the `path:line` places that a report rests on, found in its text.
//!
//! Deliberately absent: whether a place exists. That needs the workspace and is asked in `workspace/citation.rs`.

use std::collections::HashSet;
use std::sync::LazyLock;

use regex::Regex;

/// A report longer than this is read up to here; nobody checks more by hand either.
const TEXT_LIMIT: usize = 1024 * 1024;
/// More places than this are not evidence but a listing.
const LIMIT: usize = 500;
/// Longer than any path worth writing down.
const PATH_LIMIT: usize = 512;

/// A place in a file, as it was written: `src/a.rs:10`, `src/a.rs:10-20`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Citation {
    pub(crate) path: String,
    pub(crate) line: u32,
    /// The end of a range; the line itself otherwise.
    pub(crate) last: u32,
}

impl std::fmt::Display for Citation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.path, self.line)?;
        if self.last == self.line { Ok(()) } else { write!(f, "-{}", self.last) }
    }
}

/// A run of path characters, then `:12`, `:12:5`, `:12-20` or `#L12-L20`.
static PLACE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r#"([^\s`'"()\[\]{}<>|,;:*?#=]+)(?::L?|#L)([0-9]{1,9})(?:[-–]L?([0-9]{1,9})|:[0-9]{1,9})?"#)
        .expect("a constant pattern that the tests compile")
});

/// File names that stand without an extension and without a folder.
const BARE_NAMES: &[&str] = &[
    "Makefile",
    "GNUmakefile",
    "Dockerfile",
    "Containerfile",
    "Jenkinsfile",
    "Justfile",
    "justfile",
    "Rakefile",
    "Gemfile",
    "Procfile",
    "Vagrantfile",
    "Brewfile",
    "Kconfig",
    "BUILD",
    "WORKSPACE",
    "README",
    "LICENSE",
    "CHANGELOG",
];

/// Ends of names that are hosts far more often than files.
const HOST_ENDS: &[&str] =
    &["com", "org", "net", "io", "dev", "local", "localhost", "internal", "lan", "example", "invalid"];

/// The places a text names, in the order written, each once.
pub(crate) fn extract(text: &str) -> Vec<Citation> {
    let text = crate::text::prefix(text, TEXT_LIMIT);
    let mut seen = HashSet::new();
    PLACE
        .captures_iter(text)
        .filter_map(|found| {
            let whole = found.get(0)?;
            let before = text[..whole.start()].chars().next_back();
            let after = text[whole.end()..].chars().next();
            if !stands_alone(before, after) {
                return None;
            }
            let path = found.get(1)?.as_str();
            let path = path.strip_prefix("./").unwrap_or(path);
            let line = found.get(2)?.as_str().parse().ok()?;
            let last: Option<u32> = found.get(3).and_then(|last| last.as_str().parse().ok());
            let last = last.unwrap_or(line).max(line);
            is_path(path).then(|| Citation { path: path.to_owned(), line, last })
        })
        .filter(|citation| seen.insert(citation.clone()))
        .take(LIMIT)
        .collect()
}

/// Whether a match is a word of its own. After a colon it is the rest of a URL, a drive or a Rust path.
fn stands_alone(before: Option<char>, after: Option<char>) -> bool {
    let starts = !matches!(before, Some(':' | '#' | '='));
    let ends = !after.is_some_and(|c| c.is_alphanumeric() || c == '_');
    starts && ends
}

/// Whether a word can name a file: not a time, a host with a port, a version or an image tag.
fn is_path(word: &str) -> bool {
    let plain = word.len() <= PATH_LIMIT && !word.starts_with("//") && !word.contains(['\\', '@']);
    if !plain || !word.contains(char::is_alphabetic) {
        return false;
    }
    let (first, name) = (word.split('/').next().unwrap_or(word), word.rsplit('/').next().unwrap_or(word));
    if name.is_empty() || is_host(first) {
        return false;
    }
    word.contains('/')
        || BARE_NAMES.contains(&name)
        || name.rsplit_once('.').is_some_and(|(_, end)| end.starts_with(char::is_alphabetic))
}

fn is_host(word: &str) -> bool {
    word.rsplit_once('.').is_some_and(|(name, end)| !name.is_empty() && HOST_ENDS.contains(&end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        extract(text).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn places_are_found_however_people_write_them() {
        let cases = [
            ("see src/a.rs:10 there", "src/a.rs:10"),
            ("`src/a.rs:10`", "src/a.rs:10"),
            ("(src/a.rs:10:5)", "src/a.rs:10"),
            ("[text](src/a.rs:10)", "src/a.rs:10"),
            ("[here](src/a.rs#L7)", "src/a.rs:7"),
            ("src/a.rs:10-20,", "src/a.rs:10-20"),
            ("./src/a.rs:3.", "src/a.rs:3"),
            ("**main.py:1**", "main.py:1"),
            ("Makefile:4", "Makefile:4"),
            (".ci/run:2", ".ci/run:2"),
            (".gitignore:2", ".gitignore:2"),
            ("日本/été.rs:9", "日本/été.rs:9"),
            ("/abs/path/x.go:12", "/abs/path/x.go:12"),
            ("| src/t.rs:8 | text |", "src/t.rs:8"),
        ];
        for (text, want) in cases {
            assert_eq!(found(text), [want], "{text}");
        }
    }

    #[test]
    fn times_hosts_urls_and_drives_are_no_places() {
        for text in [
            "at 12:30",
            "12:30:45",
            "localhost:8080",
            "127.0.0.1:80",
            "example.com:443",
            "http://host:8080/x",
            "https://example.com/a.rs:10",
            "C:\\x\\a.rs:10",
            "C:10",
            "C:/src/a.rs:10",
            "std::fs:10",
            "nginx:1",
            "ghcr.io/a/b:12",
            "v1.2:3",
            "error:12",
            "a.rs:10px",
            "a.rs:1234567890123",
            "me@host.rs:22",
            "ratio 3:4",
            "src/:3",
        ] {
            assert!(found(text).is_empty(), "{text}: {:?}", found(text));
        }
    }

    #[test]
    fn a_place_named_twice_is_one_and_the_number_is_bounded() {
        assert_eq!(found("a.rs:1 a.rs:1 a.rs:2").len(), 2);
        let many: Vec<String> = (1..2_000).map(|line| format!("a.rs:{line}")).collect();
        assert_eq!(extract(&many.join(" ")).len(), LIMIT);
    }

    #[test]
    fn a_huge_text_is_read_up_to_its_bound() {
        let text = format!("{} late.rs:1", "é ".repeat(TEXT_LIMIT));
        assert!(extract(&text).is_empty());
    }
}
