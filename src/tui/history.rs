//! The lines a person wrote, kept for later sessions of the same project.
//!
//! One JSON string a line in a file of mode 0600. What looks like a key or a password is never kept. Deliberately
//! absent: which file it is.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use regex::Regex;

use crate::files::{self, Durability};

/// Lines kept.
const LINES: usize = 500;
/// Bytes of one line.
const LINE_BYTES: usize = 4_000;
/// Bytes of the file that are read.
const LIMIT: u64 = 4 * 1024 * 1024;

/// What a line is never kept for: names that hold secrets, the shapes of well-known keys, and long words in which letters
/// and digits are mixed as nobody writes them.
static SECRET: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(concat!(
        r"(?i)(password|passwd|secret|token|api[_-]?key|credential)\w*\s*(:|=|\bis\b)\s*\S+|(?i)\bbearer\s+\S+",
        r"|\b(sk|pk|rk)[-_][A-Za-z0-9_-]{8,}|\b(ghp|gho|ghs|ghu|glpat|xox[abp])[-_][A-Za-z0-9_-]{8,}",
        r"|\bgithub_pat_\w+|\bAKIA[0-9A-Z]{12,}|\bAIza[\w-]{20,}|\beyJ[\w-]{10,}\.|-----BEGIN ",
    ))
    .expect("the pattern is a literal and a test compiles it")
});
const LONG_WORD: usize = 32;

/// A project's lines.
#[derive(Debug, Clone)]
pub(crate) struct History {
    path: PathBuf,
}

impl History {
    pub(crate) const fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// The lines, the newest last. A file that cannot be read holds none.
    pub(super) fn lines(&self) -> Vec<String> {
        let text = files::read(&self.path, LIMIT).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Keeps a line. That it could not be kept is no reason to disturb anybody.
    pub(super) fn keep(&self, line: &str) {
        if line.len() > LINE_BYTES || is_secret(line) {
            return;
        }
        // Another session of the project may have written since: its lines stay.
        let mut lines = self.lines();
        lines.retain(|kept| kept != line);
        lines.push(line.to_owned());
        let from = lines.len().saturating_sub(LINES);
        let text: String =
            lines[from..].iter().map(|line| format!("{}\n", serde_json::Value::from(line.as_str()))).collect();
        if let Some(directory) = self.path.parent() {
            let _ = make_private(directory);
        }
        let _ = files::write(&self.path, text.as_bytes(), Durability::Renamed);
    }
}

fn make_private(directory: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

fn is_secret(line: &str) -> bool {
    let mixed = |word: &str| {
        word.len() >= LONG_WORD
            && !word.contains('/')
            && word.chars().any(|c| c.is_ascii_digit())
            && word.chars().any(|c| c.is_ascii_alphabetic())
    };
    SECRET.is_match(line) || line.split(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '=')).any(mixed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn history() -> (tempfile::TempDir, History) {
        let directory = tempfile::tempdir().unwrap();
        let history = History::at(directory.path().join("history/project"));
        (directory, history)
    }

    #[test]
    fn lines_come_back_in_order_and_each_once() {
        let (_directory, history) = history();
        for line in ["one", "two\nlines", "one"] {
            history.keep(line);
        }
        assert_eq!(history.lines(), ["two\nlines", "one"]);
    }

    #[test]
    fn the_file_is_private_and_bounded() {
        let (_directory, history) = history();
        for number in 0..LINES + 20 {
            history.keep(&format!("line {number}"));
        }
        assert_eq!(history.lines().len(), LINES);
        assert_eq!(history.lines()[0], "line 20");
        let mode = std::fs::metadata(&history.path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        history.keep(&"x".repeat(LINE_BYTES + 1));
        assert_eq!(history.lines().last().map(String::as_str), Some("line 519"));
    }

    #[test]
    fn nothing_that_looks_like_a_key_is_kept() {
        let secrets = [
            "use sk-abcdefgh12345678",
            "export API_KEY=abc",
            "the password is: hunter2",
            "ghp_abcdefghijkl",
            "AKIAABCDEFGHIJKLMNOP",
            "curl -H 'Authorization: Bearer abc.def'",
            "it is 0123456789abcdef0123456789abcdef",
        ];
        for line in secrets {
            assert!(is_secret(line), "{line}");
        }
        for line in [
            "fix the tokenizer now",
            "count tokens once",
            "look at src/a/very/long/path/to/some/file_number_1.rs",
            "task-5 please",
        ] {
            assert!(!is_secret(line), "{line}");
        }
    }
}
