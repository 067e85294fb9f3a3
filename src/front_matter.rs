//! Markdown with a YAML header: split it, read it, write it.
//!
//! Every file that passes between agents has this shape. The header is at most 64 KiB and is measured before it is
//! parsed, because YAML parsers take seconds over hostile input. Deliberately absent: what the keys mean.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// A header larger than this is refused unread.
pub(crate) const LIMIT: usize = 64 * 1024;

/// The largest bracket depth of a header. Nothing we write nests past four; parsers slow down on thousands.
const DEPTH: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FrontMatterError {
    #[error("line 1: no front matter; the file must start with a line `---`")]
    Missing,
    #[error("line 1: the front matter is never closed; end it with a line `---`")]
    Unclosed,
    #[error("the front matter has {bytes} bytes; at most {LIMIT} are allowed")]
    TooLarge { bytes: usize },
    #[error("line {line}: {message}")]
    Yaml { line: usize, message: String },
}

/// A file cut in two, nothing parsed yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Document<'a> {
    /// The YAML between the two `---` lines.
    pub(crate) front: &'a str,
    /// All after the second `---` line, byte for byte.
    pub(crate) body: &'a str,
}

/// Cuts a file at its `---` lines. A byte order mark and CRLF line ends are accepted.
pub(crate) fn split(text: &str) -> Result<Document<'_>, FrontMatterError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let after = text
        .strip_prefix("---")
        .and_then(|rest| rest.strip_prefix("\r\n").or_else(|| rest.strip_prefix('\n')))
        .ok_or(FrontMatterError::Missing)?;
    let mut at = 0;
    for line in after.split_inclusive('\n') {
        if line.trim_end() == "---" && !line.starts_with(' ') {
            if at > LIMIT {
                return Err(FrontMatterError::TooLarge { bytes: at });
            }
            return Ok(Document { front: &after[..at], body: &after[at + line.len()..] });
        }
        at += line.len();
    }
    if at > LIMIT {
        return Err(FrontMatterError::TooLarge { bytes: at });
    }
    Err(FrontMatterError::Unclosed)
}

/// Reads a file that a machine wrote: strict YAML, unknown keys as `T` has it.
pub(crate) fn read<T: DeserializeOwned>(text: &str) -> Result<(T, &str), FrontMatterError> {
    let document = split(text)?;
    Ok((parse(document.front)?, document.body))
}

/// Reads a file that a person wrote: a header that does not parse is tried once more with its plain values quoted,
/// because `description: Use when: asked` is what people write. Says whether that was needed.
pub(crate) fn read_leniently<T: DeserializeOwned>(text: &str) -> Result<(T, &str, Reading), FrontMatterError> {
    let document = split(text)?;
    let first = match parse(document.front) {
        Ok(front) => return Ok((front, document.body, Reading::AsWritten)),
        Err(error) => error,
    };
    match parse(&quote_plain_values(document.front)) {
        Ok(front) => {
            let FrontMatterError::Yaml { line, .. } = first else { return Err(first) };
            Ok((front, document.body, Reading::Quoted { line }))
        }
        Err(_) => Err(first),
    }
}

/// How a header was understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    AsWritten,
    /// Values had to be quoted first; `line` is where YAML stopped.
    Quoted {
        line: usize,
    },
}

/// Writes a header and a body; `read` gives both back byte for byte.
pub(crate) fn write<T: Serialize>(front: &T, body: &str) -> String {
    let yaml = serde_yaml::to_string(front).expect("our own headers are maps of plain values");
    format!("---\n{yaml}---\n{body}")
}

/// The line of a top-level key in a header, counted in the file (the first `---` is line 1).
pub(crate) fn line_of(front: &str, key: &str) -> Option<usize> {
    front
        .lines()
        .position(|line| line.strip_prefix(key).is_some_and(|rest| rest.trim_start().starts_with(':')))
        .map(|index| index + 2)
}

/// The top-level keys of a header with their lines in the file, in order.
pub(crate) fn keys(front: &str) -> Vec<(&str, usize)> {
    front
        .lines()
        .enumerate()
        .filter(|(_, line)| line.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_'))
        .filter_map(|(index, line)| line.split_once(':').map(|(key, _)| (key.trim_end(), index + 2)))
        .collect()
}

fn parse<T: DeserializeOwned>(front: &str) -> Result<T, FrontMatterError> {
    let mut depth = 0_usize;
    for (index, line) in front.lines().enumerate() {
        for byte in line.bytes() {
            match byte {
                b'[' | b'{' => depth += 1,
                b']' | b'}' => depth = depth.saturating_sub(1),
                _ => {}
            }
        }
        if depth > DEPTH {
            return Err(FrontMatterError::Yaml { line: index + 2, message: "brackets nest too deeply".to_owned() });
        }
    }
    let front = if front.trim().is_empty() { "{}" } else { front };
    serde_yaml::from_str(front).map_err(|error| FrontMatterError::Yaml {
        line: error.location().map_or(1, |location| location.line() + 1),
        message: plain(&error.to_string()),
    })
}

/// The parser's message without its own position, which counts from the header and not from the file.
fn plain(message: &str) -> String {
    message.split(" at line ").next().unwrap_or(message).trim().to_owned()
}

/// Quotes every value that YAML refuses on its own, as in `description: Use when: asked`. What parses stays as it is, so
/// that `subagent: true` keeps its type and `tools: Read # no Write` its comment.
fn quote_plain_values(front: &str) -> String {
    let mut quoted = String::with_capacity(front.len() + 16);
    for line in front.lines() {
        match line.split_once(": ") {
            Some((key, value))
                if !key.starts_with([' ', '-', '#'])
                    && !value.trim().is_empty()
                    && !value.trim_start().starts_with(['"', '\'', '[', '{', '|', '>', '#'])
                    && parse::<serde_yaml::Value>(line).is_err() =>
            {
                quoted.push_str(key);
                quoted.push_str(": '");
                quoted.push_str(&value.trim().replace('\'', "''"));
                quoted.push('\'');
            }
            _ => quoted.push_str(line),
        }
        quoted.push('\n');
    }
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Header {
        name: String,
        #[serde(default)]
        description: String,
    }

    #[test]
    fn what_was_written_is_read_back_byte_for_byte() {
        for body in ["", "\n", "text", "\n\n---\nmore\r\n", "é\u{0}\u{1b}[31m"] {
            let header = Header { name: "no".into(), description: "a: b #c\n---\nd".into() };
            let text = write(&header, body);
            assert_eq!(read::<Header>(&text), Ok((header, body)));
        }
    }

    #[test]
    fn a_byte_order_mark_and_crlf_are_accepted() {
        let (header, body) = read::<Header>("\u{feff}---\r\nname: x\r\n---\r\nbody\r\n").unwrap();
        assert_eq!((header.name.as_str(), body), ("x", "body\r\n"));
    }

    #[test]
    fn a_colon_in_a_description_is_read_and_told() {
        let text = "---\nname: a\ndescription: Use when: asked\n---\nbody";
        let (header, _, reading) = read_leniently::<Header>(text).unwrap();
        assert_eq!(header.description, "Use when: asked");
        assert_eq!(reading, Reading::Quoted { line: 3 });
        assert!(matches!(read::<Header>(text), Err(FrontMatterError::Yaml { line: 3, .. })));
    }

    #[test]
    fn a_lenient_reading_leaves_sound_lines_alone() {
        #[derive(Debug, Deserialize)]
        struct Typed {
            flag: bool,
            words: String,
        }
        let text = "---\ndescription: Use when: asked\nflag: true\nwords: a, b # not c\n---\n";
        let (typed, _, _) = read_leniently::<Typed>(text).unwrap();
        assert!(typed.flag);
        assert_eq!(typed.words, "a, b");
    }

    #[test]
    fn a_header_without_an_end_or_a_start_is_an_error() {
        assert_eq!(split("# Heading\n"), Err(FrontMatterError::Missing));
        assert_eq!(split("---\nname: a\n"), Err(FrontMatterError::Unclosed));
    }

    #[test]
    fn a_huge_header_is_refused_unread() {
        let text = format!("---\nname: {}\n---\n", "x".repeat(LIMIT + 1));
        assert!(matches!(split(&text), Err(FrontMatterError::TooLarge { .. })));
    }

    #[test]
    fn deep_brackets_are_refused_without_parsing() {
        let text = format!("---\nname: {}\n---\n", "[".repeat(20_000));
        assert!(matches!(read::<Header>(&text), Err(FrontMatterError::Yaml { line: 2, .. })));
    }
}
