//! Patterns: `*` in words, the words of a `bash` rule, and whether two patterns could mean the same text.
//!
//! Deliberately absent: what a pattern is held against (`commands`, `paths`, `web`).

/// Stands in a shown word for whatever the shell puts there.
pub(super) const ANY: char = '\u{fffc}';

/// Whether `text` is what the pattern says; `*` stands for any characters.
pub(super) fn fits(pattern: &str, text: &str) -> bool {
    let mut pieces = pattern.split('*');
    let first = pieces.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let Some(last) = pieces.next_back() else { return rest.is_empty() };
    for piece in pieces {
        match rest.find(piece) {
            Some(at) => rest = &rest[at + piece.len()..],
            None => return false,
        }
    }
    rest.len() >= last.len() && rest.ends_with(last)
}

/// A pattern as a list, to be held against another pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Piece {
    Char(char),
    One,
    Any,
}

/// `*`, `?` and `[…]` as pieces.
pub(super) fn pieces(pattern: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        match c {
            '*' => pieces.push(Piece::Any),
            '?' => pieces.push(Piece::One),
            '[' if chars.as_str().contains(']') => {
                pieces.push(Piece::One);
                chars.by_ref().find(|c| *c == ']');
            }
            // Alternatives: read broadly, this is for deny rules.
            '{' if chars.as_str().contains('}') => {
                pieces.push(Piece::Any);
                chars.by_ref().find(|c| *c == '}');
            }
            '\\' => pieces.extend(chars.next().map(Piece::Char)),
            c => pieces.push(Piece::Char(c)),
        }
    }
    pieces
}

/// Whether some text fits both.
pub(super) fn overlap(left: &[Piece], right: &[Piece]) -> bool {
    // reachable[j]: the first i pieces of the left can mean the same text as the first j of the right.
    let mut reachable = vec![false; right.len() + 1];
    reachable[0] = true;
    close(&mut reachable, right);
    for piece in left {
        let before = reachable.clone();
        let mut next = vec![false; right.len() + 1];
        for (at, _) in before.iter().enumerate().filter(|(_, here)| **here) {
            match piece {
                Piece::Any => (at..=right.len()).for_each(|to| next[to] = true),
                Piece::One | Piece::Char(_) => match right.get(at) {
                    Some(Piece::Any) => next[at] = true,
                    Some(other) if same(*piece, *other) => next[at + 1] = true,
                    Some(_) | None => {}
                },
            }
        }
        close(&mut next, right);
        reachable = next;
    }
    reachable[right.len()]
}

/// A star may also stand for nothing.
fn close(reachable: &mut [bool], right: &[Piece]) {
    for at in 0..right.len() {
        if reachable[at] && right[at] == Piece::Any {
            reachable[at + 1] = true;
        }
    }
}

fn same(left: Piece, right: Piece) -> bool {
    match (left, right) {
        (Piece::Char(left), Piece::Char(right)) => left == right,
        (Piece::One | Piece::Any, _) | (_, Piece::One | Piece::Any) => true,
    }
}

/// A word of a `bash` pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Part {
    /// One word; `*` in it stands for any characters.
    Word(String),
    /// `*` alone: any number of words.
    Words,
}

impl Part {
    /// Whether the person wrote the word out.
    pub(super) fn is_exact(&self) -> bool {
        matches!(self, Self::Word(word) if !word.contains('*'))
    }
}

/// The ways to read a pattern: `npm run test:*` is a word that starts so, or, as Claude Code has it, more words.
pub(super) fn forms(pattern: &str) -> Vec<Vec<Part>> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_patterns_overlap_if_one_text_fits_both() {
        for (left, right, want) in [
            ("/etc/pass[w]d", "/etc/passwd", true),
            ("a*", "*b", true),
            ("a?", "ab", true),
            ("a?", "abc", false),
            ("*", "", true),
            ("*.rs", "*.lock", false),
            ("x*y", "xy", true),
            ("", "", true),
            ("s*/a", "secret/*", true),
            ("{a,b}c", "ac", true),
        ] {
            assert_eq!(overlap(&pieces(left), &pieces(right)), want, "{left} {right}");
            assert_eq!(overlap(&pieces(right), &pieces(left)), want, "{right} {left}");
        }
    }

    #[test]
    fn a_star_in_a_word_stands_for_any_characters() {
        for (pattern, text, want) in
            [("a*c", "abc", true), ("a*c", "ab", false), ("*", "", true), ("ab", "ab", true), ("a*b*c", "aXbYc", true)]
        {
            assert_eq!(fits(pattern, text), want, "{pattern} {text}");
        }
    }
}
