//! Replacing a piece of text: exactly if it is there, else with line ends, else with white space taken loosely.
//!
//! What is not replaced keeps every byte. Values in, values out; deliberately absent: files.

use std::ops::Range;

/// One replacement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Patch {
    pub(super) old: String,
    pub(super) new: String,
    pub(super) occurrences: Occurrences,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Occurrences {
    /// There must be one and no more.
    One,
    All,
}

/// Why a piece was not replaced.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Miss {
    #[error("old_string is empty; write the text to replace, or use the tool write for a whole file")]
    Empty,
    #[error("old_string and new_string are the same")]
    Same,
    #[error("old_string is not in the file; read it again and copy the text without line numbers")]
    NotFound,
    #[error("old_string is there {} times, at lines {}; add lines around it until it is unique, or set replace_all", lines.len(), listed(lines))]
    Ambiguous { lines: Vec<usize> },
}

/// What came of a replacement.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Patched {
    pub(super) text: String,
    /// First lines of what was replaced, in the text as it was.
    pub(super) lines: Vec<usize>,
    pub(super) fit: Fit,
}

/// How closely the old text fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fit {
    Exact,
    /// Other line ends.
    LineEnds,
    /// Other white space.
    WhiteSpace,
}

impl Patch {
    pub(super) fn apply(&self, text: &str) -> Result<Patched, Miss> {
        if self.old.is_empty() {
            return Err(Miss::Empty);
        }
        if self.old == self.new {
            return Err(Miss::Same);
        }
        for fit in [Fit::Exact, Fit::LineEnds, Fit::WhiteSpace] {
            let ranges = self.ranges(text, fit);
            if ranges.is_empty() {
                continue;
            }
            let lines = lines_of(text, &ranges);
            if self.occurrences == Occurrences::One && ranges.len() > 1 {
                return Err(Miss::Ambiguous { lines });
            }
            return Ok(Patched { text: self.replace(text, &ranges, fit), lines, fit });
        }
        Err(Miss::NotFound)
    }

    /// Where the old text is. Overlaps count when there must be only one: either could be meant.
    fn ranges(&self, text: &str, fit: Fit) -> Vec<Range<usize>> {
        let (view, old) = match fit {
            Fit::Exact => (None, self.old.clone()),
            Fit::LineEnds => (Some(View::of_lines(text)), View::of_lines(&self.old).text),
            Fit::WhiteSpace => (Some(View::of_words(text)), View::of_words(&self.old).text.trim().to_owned()),
        };
        if old.is_empty() {
            return Vec::new();
        }
        let searched = view.as_ref().map_or(text, |view| view.text.as_str());
        let mut ranges = Vec::new();
        let mut from = 0;
        while let Some(at) = searched[from..].find(&old).map(|at| at + from) {
            let range = at..at + old.len();
            let step = searched[at..].chars().next().map_or(1, char::len_utf8);
            let fits = fit != Fit::WhiteSpace || self.stands_apart(searched, &range);
            from = if self.occurrences == Occurrences::All && fits { range.end } else { at + step };
            if fits {
                ranges.push(view.as_ref().map_or(range.clone(), |view| view.original(&range)));
            }
        }
        ranges
    }

    /// White space around the old text must be there in some form: `  x = 1` is not in `max = 1`.
    fn stands_apart(&self, text: &str, range: &Range<usize>) -> bool {
        let before = text[..range.start].chars().next_back().is_none_or(char::is_whitespace);
        let after = text[range.end..].chars().next().is_none_or(char::is_whitespace);
        (before || !self.old.starts_with(char::is_whitespace)) && (after || !self.old.ends_with(char::is_whitespace))
    }

    fn replace(&self, text: &str, ranges: &[Range<usize>], fit: Fit) -> String {
        let mut new = self.new.as_str();
        if fit == Fit::WhiteSpace {
            // The file keeps its own white space where the old text's was not matched.
            if self.old.starts_with(char::is_whitespace) {
                new = new.trim_start();
            }
            if self.old.ends_with(char::is_whitespace) {
                new = new.trim_end();
            }
        }
        let mut result = String::with_capacity(text.len() + new.len());
        let mut done = 0;
        for range in ranges {
            // A line end is replaced whole.
            let splits = text[range.clone()].starts_with('\n') && text[..range.start].ends_with('\r');
            let range = range.start - usize::from(splits)..range.end;
            result.push_str(&text[done..range.start]);
            if self.old.contains('\r') && fit == Fit::Exact {
                result.push_str(new);
            } else {
                push_with_line_ends(&mut result, new, text, &range);
            }
            done = range.end;
        }
        result.push_str(&text[done..]);
        result
    }
}

/// Appends `new` with the line ends that the replaced lines had, or the line at the place has.
fn push_with_line_ends(result: &mut String, new: &str, text: &str, range: &Range<usize>) {
    let mut ends: Vec<&str> = line_ends(&text[range.clone()]).collect();
    if ends.is_empty() {
        ends.extend(line_ends(&text[range.end..]).next().or_else(|| line_ends(&text[..range.start]).last()));
    }
    let mut ends = ends.iter().copied();
    let mut end = "\n";
    for line in new.split_inclusive('\n') {
        let Some(line) = line.strip_suffix('\n') else {
            result.push_str(line);
            break;
        };
        end = ends.next().unwrap_or(end);
        result.push_str(line.strip_suffix('\r').unwrap_or(line));
        result.push_str(end);
    }
}

fn line_ends(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices('\n').map(|(at, end)| if text[..at].ends_with('\r') { "\r\n" } else { end })
}

/// The number of the line in which each range begins.
fn lines_of(text: &str, ranges: &[Range<usize>]) -> Vec<usize> {
    let (mut line, mut done) = (1, 0);
    let number = |range: &Range<usize>| {
        line += text[done..range.start].matches('\n').count();
        done = range.start;
        line
    };
    ranges.iter().map(number).collect()
}

fn listed(lines: &[usize]) -> String {
    let mut listed: Vec<String> = lines.iter().take(10).map(usize::to_string).collect();
    if lines.len() > 10 {
        listed.push("…".to_owned());
    }
    listed.join(", ")
}

/// A text with some differences taken out, and where each of its bytes comes from.
struct View {
    text: String,
    from: Vec<Range<usize>>,
}

impl View {
    /// Every line end is a line feed.
    fn of_lines(text: &str) -> Self {
        Self::new(text, |rest| rest.starts_with("\r\n").then_some((2, '\n')))
    }

    /// White space is one blank, or one line feed if it holds one.
    fn of_words(text: &str) -> Self {
        Self::new(text, |rest| {
            let run = &rest[..rest.len() - rest.trim_start().len()];
            (!run.is_empty()).then_some((run.len(), if run.contains('\n') { '\n' } else { ' ' }))
        })
    }

    /// `fold` says how many bytes at the start of what is left become which single byte.
    fn new(text: &str, fold: impl Fn(&str) -> Option<(usize, char)>) -> Self {
        let mut view = Self { text: String::with_capacity(text.len()), from: Vec::with_capacity(text.len()) };
        let mut at = 0;
        while let Some(c) = text[at..].chars().next() {
            let length = if let Some((length, folded)) = fold(&text[at..]) {
                view.text.push(folded);
                view.from.push(at..at + length);
                length
            } else {
                view.text.push(c);
                view.from.extend((at..at + c.len_utf8()).map(|at| at..at + 1));
                c.len_utf8()
            };
            at += length;
        }
        view
    }

    fn original(&self, range: &Range<usize>) -> Range<usize> {
        self.from[range.start].start..self.from[range.end - 1].end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(old: &str, new: &str) -> Patch {
        Patch { old: old.to_owned(), new: new.to_owned(), occurrences: Occurrences::One }
    }

    fn all(old: &str, new: &str) -> Patch {
        Patch { occurrences: Occurrences::All, ..one(old, new) }
    }

    #[test]
    fn only_what_is_replaced_changes() {
        for (text, old, new, want) in [
            // Mixed line ends: a region with line feeds, then the line that ends in CRLF.
            ("alpha\nbeta\r\ngamma\n", "alpha\nbeta", "ALPHA\nBETA", "ALPHA\nBETA\r\ngamma\n"),
            ("alpha\nbeta\r\ngamma\n", "beta\n", "BETA\n", "alpha\nBETA\r\ngamma\n"),
            ("alpha\nbeta\r\ngamma\n", "beta\ngamma", "b\ng", "alpha\nb\r\ng\n"),
            ("alpha\nbeta\r\ngamma\n", "alpha\nbeta\ngamma", "a\nb\ng", "a\nb\r\ng\n"),
            ("a\r\nb\nc", "c", "C", "a\r\nb\nC"),
            ("a\r\nb\r\n", "b", "b\nc", "a\r\nb\r\nc\r\n"),
            ("a\r\nb", "\nb", "\nc", "a\r\nc"),
            ("a\r\n", "a\r\n", "a\n", "a\n"),
            ("a\n", "a", "a\r\nb", "a\nb\n"),
            ("x", "x", "$& $1 ${name} $$ \\1 \\0", "$& $1 ${name} $$ \\1 \\0"),
            ("héllo 世界", "世", "🙂", "héllo 🙂界"),
            ("a\n\n\nb", "a\n\n\nb", "", ""),
        ] {
            assert_eq!(one(old, new).apply(text).unwrap().text, want, "{text:?} {old:?}");
        }
    }

    #[test]
    fn white_space_is_taken_loosely_when_nothing_fits_exactly() {
        for (text, old, new, want) in [
            ("fn f() {\n\tx  = 1;\n}\n", "    x = 1;\n", "    x = 2;\n", "fn f() {\n\tx = 2;\n}\n"),
            ("a (b,  c)\n", "a (b, c)", "d", "d\n"),
            ("if x:\r\n\ty\r\n\tz\r\n", "if x:\n    y\n", "if x:\n\tq\n", "if x:\r\n\tq\r\n\tz\r\n"),
        ] {
            let patched = one(old, new).apply(text).unwrap();
            assert_eq!((patched.text.as_str(), patched.fit), (want, Fit::WhiteSpace), "{text:?}");
        }
        assert_eq!(one("  x = 1", "y").apply("max = 1\n"), Err(Miss::NotFound));
        assert_eq!(one("a b", "y").apply("ab a\nb"), Err(Miss::NotFound), "a line end is no blank");
        assert_eq!(one(" \t", "y").apply("a b"), Err(Miss::NotFound));
    }

    #[test]
    fn what_is_not_clear_is_not_replaced() {
        assert_eq!(one("", "x").apply("abc"), Err(Miss::Empty));
        assert_eq!(all("", "x").apply("abc"), Err(Miss::Empty));
        assert_eq!(one("a", "a").apply("abc"), Err(Miss::Same));
        assert_eq!(one("x", "y").apply("abc"), Err(Miss::NotFound));
        assert_eq!(one("a", "b").apply("a\na\n"), Err(Miss::Ambiguous { lines: vec![1, 2] }));
        assert_eq!(one("aXa", "b").apply("aXaXa"), Err(Miss::Ambiguous { lines: vec![1, 1] }));
        assert_eq!(one("x  y", "b").apply("x y\nx\ty\n"), Err(Miss::Ambiguous { lines: vec![1, 2] }));
        let text = Miss::Ambiguous { lines: (1..=12).collect() }.to_string();
        assert!(text.contains("12 times") && text.contains("9, 10, …"), "{text}");
    }

    #[test]
    fn all_occurrences_are_replaced_when_asked() {
        assert_eq!(all("a", "$1").apply("a b a").unwrap().text, "$1 b $1");
        assert_eq!(all("aa", "b").apply("aaaa").unwrap().text, "bb");
        assert_eq!(all("a\nb", "c\nd").apply("a\r\nb\r\na\r\nb").unwrap().text, "c\r\nd\r\nc\r\nd");
    }
}
