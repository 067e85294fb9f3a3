//! Words: cut on a character, count what a terminal shows, take control characters out.

use unicode_width::UnicodeWidthChar;

/// The longest prefix of at most `bytes` bytes that ends on a character.
pub(crate) fn prefix(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

/// The longest suffix of at most `bytes` bytes that starts on a character.
pub(crate) fn suffix(text: &str, bytes: usize) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(bytes))..]
}

/// One line of at most `columns` terminal columns: white space folded, control characters out, an ellipsis where cut.
///
/// Characters without a width are bounded too, at four a column, so that a line has no more than `columns` times 16
/// bytes and three.
pub(crate) fn one_line(text: &str, columns: usize) -> String {
    let mut line = String::new();
    let mut width = 0;
    let mut space = false;
    let mut length = 0;
    for (at, c) in text.char_indices() {
        if c.is_whitespace() || c.is_control() {
            space = !line.is_empty();
            continue;
        }
        let needed = c.width().unwrap_or(0) + usize::from(space);
        if width + needed > columns.saturating_sub(1) {
            // One column is kept for the ellipsis unless nothing follows.
            let nothing_follows =
                || text[at + c.len_utf8()..].chars().all(|c| c.is_whitespace() || c.width().unwrap_or(0) == 0);
            if width + needed > columns || !nothing_follows() {
                line.push('…');
                return line;
            }
        }
        length += 1 + usize::from(space);
        if length > columns * 4 {
            line.push('…');
            return line;
        }
        if space {
            line.push(' ');
            space = false;
        }
        line.push(c);
        width += needed;
    }
    line
}

/// The text without terminal escapes and control characters; line feeds and tabs stay.
pub(crate) fn without_controls(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\n' | '\t' => plain.push(c),
            '\u{1b}' => skip_escape(&mut chars),
            '\r' if chars.peek() == Some(&'\n') => {}
            // A lone carriage return overwrites a line on a terminal; as data it separates two.
            '\r' => plain.push('\n'),
            // Bidirectional overrides reorder what a person reads.
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {}
            c if c.is_control() => {}
            c => plain.push(c),
        }
    }
    plain
}

/// Skips what follows an ESC: a CSI sequence, a string sequence up to its end, or one character.
fn skip_escape(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    match chars.next() {
        Some('[') => {
            for c in chars.by_ref() {
                if ('\u{40}'..='\u{7e}').contains(&c) {
                    break;
                }
            }
        }
        Some(']' | 'P' | '_' | '^' | 'X') => {
            while let Some(c) = chars.next() {
                match c {
                    '\u{7}' | '\u{9c}' => break,
                    '\u{1b}' if chars.peek() == Some(&'\\') => {
                        chars.next();
                        break;
                    }
                    // An unfinished string must not swallow all that follows.
                    '\n' => break,
                    _ => {}
                }
            }
        }
        _ => {}
    }
}

/// `1 child`, `3 children`.
pub(crate) fn count(number: usize, one: &str, many: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{number} {many}") }
}

/// Seconds as people read them: `8 s`, `2:05`, `1:02:03`.
pub(crate) fn elapsed(seconds: f64) -> String {
    let whole = seconds.max(0.0) as u64;
    match whole {
        0..60 => format!("{whole} s"),
        60..3600 => format!("{}:{:02}", whole / 60, whole % 60),
        _ => format!("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60),
    }
}

/// What caused an error, nearest first, without what was said already.
pub(crate) fn causes(error: &(dyn std::error::Error + 'static)) -> Vec<String> {
    let mut said = error.to_string();
    let mut causes = Vec::new();
    let mut next = error.source();
    while let Some(cause) = next {
        let text = cause.to_string();
        if !said.contains(&text) {
            said.push_str(&text);
            causes.push(text);
        }
        next = cause.source();
    }
    causes
}

/// An error with what caused it, in one line.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    for cause in causes(error) {
        text.push_str(": ");
        text.push_str(&cause);
    }
    text
}

/// The candidate closest to `word`, if any is close enough to have been meant.
pub(crate) fn closest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let allowed = (word.chars().count() / 3).clamp(1, 3);
    candidates
        .into_iter()
        .map(|candidate| (distance(word, candidate), candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Edits from one word to the other, a swap of neighbours counting as one.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let width = b.len() + 1;
    let mut table = vec![0; (a.len() + 1) * width];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            table[i * width + j] = if i == 0 || j == 0 {
                i + j
            } else {
                let substituted = table[(i - 1) * width + j - 1] + usize::from(a[i - 1] != b[j - 1]);
                let mut best = substituted.min(table[(i - 1) * width + j] + 1).min(table[i * width + j - 1] + 1);
                if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                    best = best.min(table[(i - 2) * width + j - 2] + 1);
                }
                best
            };
        }
    }
    table[a.len() * width + b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Layer(&'static str, #[source] Option<Box<Layer>>);

    #[test]
    fn an_error_says_each_of_its_causes_once() {
        let disk = Layer("disk full", None);
        let error = Layer("failed to write", Some(Box::new(Layer("disk full", Some(Box::new(disk))))));
        assert_eq!(causes(&error), ["disk full"]);
        assert_eq!(chain(&error), "failed to write: disk full");
        assert_eq!(chain(&Layer("alone", None)), "alone");
    }

    #[test]
    fn a_cut_falls_on_a_character_wherever_it_is_asked() {
        let text = "aé日🙂z";
        for bytes in 0..=text.len() + 2 {
            assert!(prefix(text, bytes).len() <= bytes);
            assert!(suffix(text, bytes).len() <= bytes);
            assert!(text.starts_with(prefix(text, bytes)) && text.ends_with(suffix(text, bytes)));
        }
    }

    #[test]
    fn a_line_fits_its_columns() {
        assert_eq!(one_line("  a\n\tb  ", 10), "a b");
        assert_eq!(one_line("abcdef", 6), "abcdef");
        assert_eq!(one_line("abcdefg", 6), "abcde…");
        assert_eq!(one_line("日本語日本語", 7), "日本語…");
        assert_eq!(one_line("a\u{1b}[31mb", 20), "a [31mb");
        assert_eq!(one_line("aaaaaaaaa", 6), "aaaaa…");
        assert_eq!(one_line("abcdef \n ", 6), "abcdef");
    }

    #[test]
    fn characters_without_a_width_do_not_make_a_line_endless() {
        let line = one_line(&format!("a{}", "\u{200b}\u{301}".repeat(10_000)), 80);
        assert!(line.len() <= 80 * 16 + 3, "{}", line.len());
        assert_eq!(one_line("e\u{301}te\u{301}", 3), "e\u{301}te\u{301}");
    }

    #[test]
    fn escapes_never_reach_a_reader() {
        assert_eq!(
            without_controls("a\u{1b}[31;1mb\u{1b}]0;title\u{7}c\u{1b}P1$r\u{1b}\\d\r\ne\rf\u{8}"),
            "abcd\ne\nf"
        );
        assert_eq!(without_controls("\u{1b}]52;c;unfinished\nkept"), "kept");
        assert_eq!(without_controls("x\u{202e}y"), "xy");
    }

    #[test]
    fn a_near_word_is_found_and_a_far_one_is_not() {
        assert_eq!(closest("stauts", ["status", "stop"]), Some("status"));
        assert_eq!(closest("fna", ["fan", "run"]), Some("fan"));
        assert_eq!(closest("refactor", ["report", "retry"]), None);
    }

    #[test]
    fn durations_read_as_people_say_them() {
        assert_eq!(
            (elapsed(8.9).as_str(), elapsed(125.0).as_str(), elapsed(3723.0).as_str()),
            ("8 s", "2:05", "1:02:03")
        );
    }
}
