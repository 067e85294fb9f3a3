//! What a call changes in a file, as a unified diff for people.
//!
//! Values in, values out. Deliberately absent: what is done with it, and colours.

use std::fmt::Write as _;
use std::time::Duration;

use similar::TextDiff;

use crate::text;

/// Lines of a diff; who wants more looks at the file.
const LINES: usize = 400;

/// Bytes of a diff: a line can be as long as a file.
const BYTES: usize = 100_000;

/// Beyond this the diff is coarser, never wrong.
const PATIENCE: Duration = Duration::from_millis(300);

/// The file before a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Before {
    Absent,
    Text(String),
    /// No text, or more than is compared.
    Other {
        bytes: u64,
    },
}

/// The change of one file. `None` if there is none.
pub(super) fn unified(name: &str, before: &Before, after: &str) -> Option<String> {
    let (old, from) = match before {
        Before::Absent => ("", "/dev/null".to_owned()),
        Before::Text(text) => (text.as_str(), format!("a/{name}")),
        Before::Other { bytes } => {
            ("", format!("a/{name} (not shown: {})", text::count(*bytes as usize, "byte", "bytes")))
        }
    };
    let is_new = !matches!(before, Before::Text(_));
    if old == after && !is_new {
        return None;
    }
    let diff = TextDiff::configure().timeout(PATIENCE).diff_lines(old, after);
    let whole = diff.unified_diff().context_radius(3).header(&from, &format!("b/{name}")).to_string();
    let whole = if whole.is_empty() { format!("--- {from}\n+++ b/{name}\n") } else { whole };
    Some(bounded(&whole))
}

/// The first lines, with line ends that a terminal would swallow made visible.
fn bounded(diff: &str) -> String {
    let mut shown = String::new();
    for (at, line) in diff.split_inclusive('\n').enumerate() {
        if at == LINES || shown.len() + line.len() > BYTES {
            let missing = diff.split_inclusive('\n').count() - at;
            let _ = writeln!(shown, "[cut: {} of the diff more]", text::count(missing, "line", "lines"));
            break;
        }
        shown.push_str(line);
    }
    text::without_controls(&shown.replace('\r', "\u{240d}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_shown_with_what_is_around_it() {
        let before = Before::Text((1..=20).map(|n| format!("line {n}\n")).collect());
        let after: String =
            (1..=20).map(|n| if n == 10 { "new\n".to_owned() } else { format!("line {n}\n") }).collect();
        let diff = unified("src/a.rs", &before, &after).unwrap();
        assert!(diff.starts_with("--- a/src/a.rs\n+++ b/src/a.rs\n@@ -7,7 +7,7 @@\n line 7\n"), "{diff}");
        assert!(diff.contains("\n-line 10\n+new\n line 11\n"), "{diff}");
        assert_eq!(unified("a", &Before::Text("x".into()), "x"), None);
    }

    #[test]
    fn a_new_file_and_one_that_was_no_text_are_all_new() {
        assert_eq!(unified("a", &Before::Absent, "x\n").unwrap(), "--- /dev/null\n+++ b/a\n@@ -0,0 +1 @@\n+x\n");
        assert_eq!(unified("a", &Before::Absent, "").unwrap(), "--- /dev/null\n+++ b/a\n");
        let other = unified("a", &Before::Other { bytes: 7 }, "x\n").unwrap();
        assert!(other.starts_with("--- a/a (not shown: 7 bytes)\n+++ b/a\n"), "{other}");
    }

    #[test]
    fn a_long_change_is_cut_and_a_line_end_is_seen() {
        let long = unified("a", &Before::Absent, &"x\n".repeat(1_000)).unwrap();
        assert_eq!(long.lines().count(), LINES + 1);
        assert!(long.ends_with("[cut: 603 lines of the diff more]\n"), "{}", text::suffix(&long, 80));
        let wide = unified("a", &Before::Absent, &"x".repeat(1_000_000)).unwrap();
        assert!(wide.len() < BYTES + 100, "{}", wide.len());
        let ends = unified("a", &Before::Text("x\r\n".into()), "x\n").unwrap();
        assert!(ends.contains("-x\u{240d}\n+x\n"), "{ends}");
        let escape = unified("a", &Before::Absent, "\u{1b}[2Jx\n").unwrap();
        assert!(!escape.contains('\u{1b}'), "{escape}");
    }

    #[test]
    fn two_large_texts_without_anything_in_common_are_compared_in_time() {
        let text = |start: usize| (start..start + 20_000).map(|n| format!("{n}\n")).collect::<String>();
        let diff = unified("a", &Before::Text(text(0)), &text(1_000_000)).unwrap();
        assert!(diff.ends_with("of the diff more]\n"));
    }
}
