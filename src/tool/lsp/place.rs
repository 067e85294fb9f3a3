//! Places in files: lines and columns as people count them, and as the protocol does.
//!
//! People count from 1 and in characters, the protocol from 0 and in units of UTF-16. Values in, values out.

use std::path::{Path, PathBuf};

use reqwest::Url;
use serde_json::{Value, json};

/// A place as people count: from 1, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Spot {
    pub(super) line: usize,
    pub(super) column: usize,
}

/// A place of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position {
    pub(super) line: usize,
    pub(super) character: usize,
}

impl Position {
    /// Where a spot is in a text; past the end of its line it is the end. `None` if there is no such line.
    pub(super) fn of(spot: Spot, text: &str) -> Option<Self> {
        let line = text.split('\n').nth(spot.line.checked_sub(1)?)?.trim_end_matches('\r');
        let character = line.chars().take(spot.column.saturating_sub(1)).map(char::len_utf16).sum();
        Some(Self { line: spot.line - 1, character })
    }

    /// The spot of a position in its line. Where the line is not known, units are taken for characters.
    pub(super) fn spot(self, line: Option<&str>) -> Spot {
        let Some(text) = line else { return Spot { line: self.line + 1, column: self.character + 1 } };
        let mut units = 0;
        let before = text.chars().take_while(|c| {
            units += c.len_utf16();
            units <= self.character
        });
        Spot { line: self.line + 1, column: before.count() + 1 }
    }

    pub(super) fn from_json(value: &Value) -> Option<Self> {
        let number = |key: &str| value.get(key)?.as_u64().and_then(|number| usize::try_from(number).ok());
        // What a server says is not to be added to without a look.
        let bounded = |number: usize| (number < u32::MAX as usize).then_some(number);
        Some(Self { line: bounded(number("line")?)?, character: bounded(number("character")?)? })
    }

    pub(super) fn to_json(self) -> Value {
        json!({"line": self.line, "character": self.character})
    }
}

/// A place in some file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Location {
    pub(super) path: PathBuf,
    pub(super) position: Position,
}

impl Location {
    /// The places of an answer: one, a list, or links. What is no file is left out.
    pub(super) fn all(answer: &Value) -> Vec<Self> {
        let one = |value: &Value| {
            let uri = value.get("uri").or_else(|| value.get("targetUri"))?.as_str()?;
            let range = value.get("targetSelectionRange").or_else(|| value.get("range"))?;
            Some(Self { path: path_of(uri)?, position: Position::from_json(range.get("start")?)? })
        };
        let mut all: Vec<Self> = match answer {
            Value::Array(list) => list.iter().filter_map(one).collect(),
            single => one(single).into_iter().collect(),
        };
        all.sort();
        all.dedup();
        all
    }
}

pub(super) fn uri_of(path: &Path) -> Option<String> {
    Url::from_file_path(path).ok().map(String::from)
}

/// Servers write the same file in several ways, so that paths are compared, not addresses.
pub(super) fn path_of(uri: &str) -> Option<PathBuf> {
    Url::parse(uri).ok().filter(|url| url.scheme() == "file")?.to_file_path().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_characters_here_and_units_there() {
        let text = "a🙂é世x\r\nlast";
        for (column, character) in [(1, 0), (2, 1), (3, 3), (4, 4), (5, 5), (6, 6), (7, 6), (99, 6)] {
            let position = Position::of(Spot { line: 1, column }, text).unwrap();
            assert_eq!(position, Position { line: 0, character }, "{column}");
        }
        for (character, column) in [(0, 1), (1, 2), (2, 2), (3, 3), (4, 4), (5, 5), (6, 6), (99, 6)] {
            let spot = Position { line: 0, character }.spot(text.lines().next());
            assert_eq!(spot, Spot { line: 1, column }, "{character}");
        }
        assert_eq!(Position { line: 3, character: 4 }.spot(None), Spot { line: 4, column: 5 });
        assert_eq!(Position::of(Spot { line: 2, column: 1 }, text), Some(Position { line: 1, character: 0 }));
        assert_eq!(Position::of(Spot { line: 3, column: 1 }, text), None);
        assert_eq!(Position::of(Spot { line: 0, column: 1 }, text), None);
    }

    #[test]
    fn places_are_read_in_every_form_and_strange_ones_left_out() {
        let range = |line: u64| json!({"start": {"line": line, "character": 2}, "end": {"line": line, "character": 3}});
        let answer = json!([
            {"uri": "file:///w/b%20c.rs", "range": range(4)},
            {"targetUri": "file:///w/a.rs", "targetRange": range(0), "targetSelectionRange": range(1)},
            {"uri": "file:///w/a.rs", "range": range(1)},
            {"uri": "https://evil.example/", "range": range(1)},
            {"uri": "file:///w/a.rs", "range": {"start": {"line": -1, "character": 0}}},
            {"uri": "file:///w/a.rs", "range": {"start": {"line": u64::MAX, "character": 0}}},
            7, null
        ]);
        let found = Location::all(&answer);
        let at = |path: &str, line| Location { path: path.into(), position: Position { line, character: 2 } };
        assert_eq!(found, [at("/w/a.rs", 1), at("/w/b c.rs", 4)]);
        assert_eq!(Location::all(&answer[0]), [at("/w/b c.rs", 4)]);
        assert_eq!(Location::all(&Value::Null), []);
        assert_eq!(uri_of(Path::new("/w/b c.rs")).unwrap(), "file:///w/b%20c.rs");
    }
}
