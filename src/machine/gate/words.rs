//! What the characters of a word mean: quotes, backslashes, wildcards, the tilde.
//!
//! These functions see stretches without expansions; a `$` or a backtick that is left in one means that two readers of
//! the line do not agree, and then it is not understood. Deliberately absent: the expansions themselves (`reader`).

use super::syntax::{Piece, Word, Words};

/// Decodes an unquoted stretch and appends it.
pub(super) fn bare(text: &str, word: &mut Word) -> Result<(), &'static str> {
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(next) if next != '\n' => {
                    word.bare = false;
                    word.push(next.encode_utf8(&mut [0; 4]));
                }
                Some(_) | None => return Err("a word is broken over two lines"),
            },
            '*' => word.pieces.push(Piece::Star),
            '?' => word.pieces.push(Piece::One),
            '[' => bracket(&mut chars, word),
            '~' => tilde(chars.as_str(), word),
            '$' | '`' => return Err("something is expanded in a way that is not understood"),
            '\'' | '"' => return Err("a quote is not understood"),
            '<' | '>' | '|' | '&' | ';' | '(' | ')' => return Err("an operator is not understood"),
            c if c.is_whitespace() => return Err("a space is not understood"),
            c => word.push(c.encode_utf8(&mut [0; 4])),
        }
    }
    Ok(())
}

/// `[abc]` is one character of a file name; a lone bracket is itself.
fn bracket(chars: &mut std::str::Chars<'_>, word: &mut Word) {
    let rest = chars.as_str();
    // `[]a]` and `[!]a]`: a bracket that comes first does not close.
    let from = rest.find(|c| c != '!' && c != '^').unwrap_or(rest.len());
    match rest[from..].char_indices().skip(1).find(|(_, c)| *c == ']').map(|(at, _)| from + at) {
        Some(end) => {
            word.pieces.push(Piece::One);
            *chars = rest[end + 1..].chars();
        }
        None => word.push("["),
    }
}

/// `~/x` is below home, `~name` and `a=~` are what the shell makes of them, `HEAD~1` is a word.
fn tilde(rest: &str, word: &mut Word) {
    let before = word.pieces.last();
    match before {
        None if rest.is_empty() || rest.starts_with('/') => word.pieces.push(Piece::Home),
        None => word.pieces.push(Piece::Unknown(Words::One)),
        Some(Piece::Text(text)) if text.ends_with(['=', ':']) => word.pieces.push(Piece::Unknown(Words::One)),
        Some(_) => word.push("~"),
    }
}

/// Decodes a stretch between double quotes and appends it.
pub(super) fn double(text: &str, word: &mut Word) -> Result<(), &'static str> {
    let mut chars = text.chars().peekable();
    word.push("");
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some('\n') => {}
                Some(next @ ('$' | '`' | '"' | '\\')) => word.push(next.encode_utf8(&mut [0; 4])),
                Some(next) => {
                    word.push("\\");
                    word.push(next.encode_utf8(&mut [0; 4]));
                }
                None => return Err("a backslash is not understood"),
            },
            '$' if chars.peek().is_some_and(|next| next.is_alphanumeric() || "_({[@*#?!$-".contains(*next)) => {
                return Err("something is expanded in a way that is not understood");
            }
            '`' => return Err("something is expanded in a way that is not understood"),
            '"' => return Err("a quote is not understood"),
            c => word.push(c.encode_utf8(&mut [0; 4])),
        }
    }
    Ok(())
}

/// Whether the body of a here-document, outside of its expansions, is only text.
pub(super) fn is_plain_body(text: &str) -> bool {
    double(&text.replace('"', " ").replace("\\ ", "\\x"), &mut Word::default()).is_ok()
}

/// What stands between `$'` and `'`.
pub(super) fn ansi(text: &str, word: &mut Word) -> Result<(), &'static str> {
    let mut chars = text.chars();
    word.push("");
    while let Some(c) = chars.next() {
        let c = match c {
            '\'' => return Err("a quote is not understood"),
            '\\' => match chars.next() {
                Some('n') => '\n',
                Some('t') => '\t',
                Some('r') => '\r',
                Some('a') => '\u{7}',
                Some('e' | 'E') => '\u{1b}',
                Some(c @ ('\\' | '\'' | '"' | '?')) => c,
                Some(_) | None => return Err("a character is written as a number"),
            },
            c => c,
        };
        word.push(c.encode_utf8(&mut [0; 4]));
    }
    Ok(())
}

/// `{a,b}` and `{1..3}` become several words: what is certain of them is what stands before the brace.
pub(super) fn braces(word: &mut Word) {
    let Some(at) = word.pieces.iter().position(|piece| matches!(piece, Piece::Text(text) if text.contains('{'))) else {
        return;
    };
    let shown = word.shown();
    let brace = shown.find('{').unwrap_or_default();
    let Some(inside) = shown.rfind('}').filter(|end| *end > brace).map(|end| &shown[brace..end]) else { return };
    if !(inside.contains(',') || inside.contains("..")) {
        return;
    }
    word.pieces.truncate(at + 1);
    if let Some(Piece::Text(text)) = word.pieces.last_mut() {
        text.truncate(text.find('{').unwrap_or_default());
        if text.is_empty() {
            word.pieces.pop();
        }
    }
    word.pieces.push(Piece::Unknown(Words::Many));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_and_backslashes_are_taken_off_as_the_shell_does() {
        let read = |decode: fn(&str, &mut Word) -> Result<(), &'static str>, text: &str| {
            let mut word = Word::default();
            decode(text, &mut word).map(|()| word.shown())
        };
        assert_eq!(read(bare, "r\\m"), Ok("rm".to_owned()));
        assert_eq!(read(bare, "pass[w]d"), Ok("pass\u{fffc}d".to_owned()));
        assert_eq!(read(bare, "[]x]"), Ok("\u{fffc}".to_owned()));
        assert_eq!(read(bare, "a[b"), Ok("a[b".to_owned()));
        assert_eq!(read(bare, "~/x"), Ok("~/x".to_owned()));
        assert_eq!(read(bare, "HEAD~1"), Ok("HEAD~1".to_owned()));
        assert_eq!(read(double, "a\\\"b\\x 5$ c"), Ok("a\"b\\x 5$ c".to_owned()));
        assert_eq!(read(ansi, "a\\'b\\n"), Ok("a'b\n".to_owned()));
        for text in ["a$b", "a`b", "a'b", "a\u{a0}b"] {
            assert!(read(bare, text).is_err(), "{text}");
        }
        assert!(read(double, "$(x)").is_err() && read(ansi, "\\x41").is_err());
    }

    #[test]
    fn braces_are_several_words_only_with_a_comma_or_dots() {
        for (text, want) in [("a{b,c}", "a\u{fffc}"), ("{}", "{}"), ("HEAD@{1}", "HEAD@{1}"), ("{1..3}", "\u{fffc}")] {
            let mut word = Word::default();
            bare(text, &mut word).unwrap();
            braces(&mut word);
            assert_eq!(word.shown(), want);
        }
    }
}
