//! What a server says is wrong with a file.
//!
//! Deliberately absent: where it comes from. Values in, values out.

use std::collections::BTreeMap;

use serde_json::Value;

use super::place::Position;
use crate::text;

/// Kept of one file; a server that says more says nothing new.
const KEPT: usize = 1_000;

/// Bytes of a message; some repeat a whole type.
const SHOWN: usize = 600;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Severity {
    Error,
    Warning,
    Note,
}

impl Severity {
    const fn word(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Note => "note",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) position: Position,
    pub(super) severity: Severity,
    pub(super) code: String,
    pub(super) message: String,
}

impl Problem {
    /// The problems in a list of the protocol, in the order of the file. What has no place or text is left out.
    pub(super) fn all(list: &Value) -> Vec<Self> {
        let items = list.as_array().map(Vec::as_slice).unwrap_or_default();
        let mut problems: Vec<Self> = items.iter().filter_map(Self::one).take(KEPT).collect();
        problems.sort_by_key(|problem| (problem.position, problem.severity));
        problems
    }

    fn one(value: &Value) -> Option<Self> {
        let message = text::one_line(&text::without_controls(value.get("message")?.as_str()?), SHOWN);
        let code = match value.get("code") {
            Some(Value::String(code)) => text::one_line(code, 40),
            Some(Value::Number(code)) => code.to_string(),
            Some(_) | None => String::new(),
        };
        let severity = match value.get("severity").and_then(Value::as_u64) {
            // Where a server leaves it open, the worst is meant.
            Some(1) | None => Severity::Error,
            Some(2) => Severity::Warning,
            Some(_) => Severity::Note,
        };
        Some(Self { position: Position::from_json(value.get("range")?.get("start")?)?, severity, code, message })
    }

    /// `src/a.rs:3:5: error[E0308]: expected …`.
    pub(super) fn line(&self, name: &str, line: Option<&str>) -> String {
        let spot = self.position.spot(line);
        let code = if self.code.is_empty() { String::new() } else { format!("[{}]", self.code) };
        format!("{name}:{}:{}: {}{code}: {}", spot.line, spot.column, self.severity.word(), self.message)
    }
}

/// The errors of `after` that `before` did not have. Lines move with an edit, so that only what is said is compared.
pub(super) fn new_errors(before: &[Problem], after: &[Problem]) -> Vec<Problem> {
    let mut known: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for problem in before.iter().filter(|problem| problem.severity == Severity::Error) {
        *known.entry((&problem.code, &problem.message)).or_default() += 1;
    }
    let mut new = Vec::new();
    for problem in after.iter().filter(|problem| problem.severity == Severity::Error) {
        match known.get_mut(&(problem.code.as_str(), problem.message.as_str())) {
            Some(left @ 1..) => *left -= 1,
            Some(0) | None => new.push(problem.clone()),
        }
    }
    new
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn error(line: usize, message: &str) -> Problem {
        let position = Position { line, character: 0 };
        Problem { position, severity: Severity::Error, code: "E1".to_owned(), message: message.to_owned() }
    }

    #[test]
    fn problems_are_read_and_written_as_a_compiler_does() {
        let at = |line: u64, character: u64| json!({"start": {"line": line, "character": character}});
        let problems = Problem::all(&json!([
            {"range": at(4, 3), "severity": 2, "message": "unused\nvariable", "code": 7},
            {"range": at(2, 3), "severity": 1, "message": "bad \u{1b}[31mtype", "code": "E0308"},
            {"range": at(1, 0), "severity": 4, "message": "hint"},
            {"range": at(0, 0), "message": "open"},
            {"message": "nowhere"}, {"range": at(0, 0)}, 3
        ]));
        let lines: Vec<String> = problems.iter().map(|problem| problem.line("a.rs", Some("é🙂x"))).collect();
        assert_eq!(lines[0], "a.rs:1:1: error: open");
        assert_eq!(lines[1], "a.rs:2:1: note: hint");
        assert!(lines[2].starts_with("a.rs:3:3: error[E0308]: bad") && !lines[2].contains('\u{1b}'), "{lines:?}");
        assert_eq!(lines[3], "a.rs:5:3: warning[7]: unused variable");
        assert_eq!(lines.len(), 4);
        assert_eq!(Problem::all(&Value::Null), []);
    }

    #[test]
    fn only_errors_that_were_not_there_are_new() {
        let warning = Problem { severity: Severity::Warning, ..error(3, "warn") };
        let before = [error(1, "old"), error(2, "twice")];
        let after = [error(5, "old"), error(6, "twice"), error(7, "twice"), error(8, "fresh"), warning];
        assert_eq!(new_errors(&before, &after), [error(7, "twice"), error(8, "fresh")]);
        assert_eq!(new_errors(&after, &before), []);
    }
}
