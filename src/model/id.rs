//! Names of runs, children and attempts, and how people write them: `RUN`, `RUN/3`, `RUN/3.2`, `RUN/03-auth`.

use serde::{Deserialize, Serialize};

/// The letters of a run id: no l and no o, which people misread.
pub(crate) const RUN_LETTERS: &[u8] = b"abcdefghijkmnpqrstuvwxyz";
/// What follows the first letter.
pub(crate) const RUN_ALPHABET: &[u8] = b"abcdefghijkmnpqrstuvwxyz0123456789";
/// The length of a run id.
pub(crate) const RUN_LENGTH: usize = 6;
/// The longest slug of a child.
const SLUG_LENGTH: usize = 24;

/// Six characters, a letter first. Safe as a file, branch and tmux session name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct RunId(String);

impl RunId {
    /// A run id from random bytes; the caller brings the randomness.
    pub(crate) fn from_random(bytes: [u8; RUN_LENGTH]) -> Self {
        let pick = |alphabet: &[u8], byte: u8| alphabet[usize::from(byte) % alphabet.len()] as char;
        let mut id = String::with_capacity(RUN_LENGTH);
        id.push(pick(RUN_LETTERS, bytes[0]));
        id.extend(bytes[1..].iter().map(|byte| pick(RUN_ALPHABET, *byte)));
        Self(id)
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for RunId {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let bytes = text.as_bytes();
        let sound = bytes.len() == RUN_LENGTH
            && RUN_LETTERS.contains(&bytes[0])
            && bytes[1..].iter().all(|byte| RUN_ALPHABET.contains(byte));
        if sound { Ok(Self(text)) } else { Err(format!("`{text}` is not a run id such as k3x9ab")) }
    }
}

impl From<RunId> for String {
    fn from(id: RunId) -> Self {
        id.0
    }
}

impl std::fmt::Display for RunId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// A child of a run: its place in the order asked, from 1, and a word to know it by.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct ChildId {
    number: u32,
    slug: String,
}

impl ChildId {
    /// Names the child `number` after its label: `[a-z0-9-]`, at most 24 characters, never empty.
    pub(crate) fn new(number: u32, label: &str) -> Self {
        let mut slug = String::new();
        for c in label.chars().flat_map(char::to_lowercase) {
            if c.is_ascii_lowercase() || c.is_ascii_digit() {
                slug.push(c);
            } else if !slug.ends_with('-') && !slug.is_empty() {
                slug.push('-');
            }
            if slug.len() >= SLUG_LENGTH {
                break;
            }
        }
        let slug = slug.trim_matches('-');
        let slug = if slug.is_empty() { "child" } else { slug };
        Self { number, slug: slug.to_owned() }
    }

    pub(crate) const fn number(&self) -> u32 {
        self.number
    }
}

impl std::fmt::Display for ChildId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:02}-{}", self.number, self.slug)
    }
}

impl From<ChildId> for String {
    fn from(id: ChildId) -> Self {
        id.to_string()
    }
}

impl TryFrom<String> for ChildId {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not a child id such as 03-auth");
        let (number, slug) = text.split_once('-').ok_or_else(wrong)?;
        let number: u32 = number.parse().map_err(|_| wrong())?;
        let plain = slug.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        if number == 0 || slug.is_empty() || slug.len() > SLUG_LENGTH || !plain {
            return Err(wrong());
        }
        Ok(Self { number, slug: slug.to_owned() })
    }
}

/// What a person names on the command line. The run is a prefix, or `last`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) run: RunName,
    pub(crate) child: Option<ChildName>,
    pub(crate) attempt: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RunName {
    /// The newest run of this project.
    Last,
    /// Any unambiguous prefix of an id.
    Prefix(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ChildName {
    Number(u32),
    Full(ChildId),
}

impl std::fmt::Display for ChildName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Full(id) => id.fmt(f),
        }
    }
}

impl ChildName {
    pub(crate) fn matches(&self, id: &ChildId) -> bool {
        match self {
            Self::Number(number) => *number == id.number,
            Self::Full(full) => full == id,
        }
    }
}

impl std::str::FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (run, rest) = match text.split_once('/') {
            Some((run, rest)) => (run, Some(rest)),
            None => (text, None),
        };
        let plain = run.bytes().all(|byte| RUN_ALPHABET.contains(&byte));
        let run = match run {
            "last" => RunName::Last,
            _ if plain && !run.is_empty() && run.len() <= RUN_LENGTH => RunName::Prefix(run.to_owned()),
            _ => return Err(format!("`{text}` does not name a run; write RUN, RUN/3, RUN/3.2 or last")),
        };
        let Some(rest) = rest else { return Ok(Self { run, child: None, attempt: None }) };
        let wrong = || format!("`{text}` does not name a child; write RUN/3, RUN/3.2 or RUN/03-auth");
        let (child, attempt) = match rest.split_once('.') {
            Some((child, attempt)) => (child, Some(attempt.parse().map_err(|_| wrong())?)),
            None => (rest, None),
        };
        let child = match child.parse::<u32>() {
            Ok(0) => return Err(wrong()),
            Ok(number) => ChildName::Number(number),
            Err(_) => ChildName::Full(ChildId::try_from(child.to_owned()).map_err(|_| wrong())?),
        };
        Ok(Self { run, child: Some(child), attempt })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_id_from_any_bytes_is_sound() {
        for byte in 0..=255 {
            let id = RunId::from_random([byte; RUN_LENGTH]);
            assert_eq!(RunId::try_from(id.as_str().to_owned()), Ok(id));
        }
        for text in ["", "abc", "1bcdef", "abcdel", "abcdeo", "ABCDEF", "../../"] {
            assert!(RunId::try_from(text.to_owned()).is_err(), "{text}");
        }
    }

    #[test]
    fn any_label_gives_a_plain_slug() {
        let cases = [
            ("Where is the agent tool function? Report", "01-where-is-the-agent-tool"),
            ("#(touch x); `id` $HOME", "01-touch-x-id-home"),
            ("日本語 🙂", "01-child"),
            ("rel-3.1.9", "01-rel-3-1-9"),
            ("", "01-child"),
        ];
        for (label, want) in cases {
            let id = ChildId::new(1, label);
            assert_eq!(id.to_string(), want);
            assert_eq!(ChildId::try_from(want.to_owned()), Ok(id));
        }
        assert_eq!(ChildId::new(196, "x").to_string(), "196-x");
    }

    #[test]
    fn children_sort_by_number() {
        assert!(ChildId::new(9, "z") < ChildId::new(10, "a"));
        assert!(ChildId::new(99, "z") < ChildId::new(100, "a"));
    }

    #[test]
    fn targets_are_parsed_and_anything_else_refused() {
        let target: Target = "k3x/3.2".parse().unwrap();
        assert_eq!(target.child, Some(ChildName::Number(3)));
        assert_eq!(target.attempt, Some(2));
        let target: Target = "last/03-auth".parse().unwrap();
        assert_eq!((target.run, target.attempt), (RunName::Last, None));
        for text in ["", "/", "k3x9abc", "a/", "a/0", "a/x'; touch pwn; '", "a/3.", "../x", "A"] {
            assert!(text.parse::<Target>().is_err(), "{text}");
        }
    }
}
