//! Foreign text as styled lines: Markdown, diffs, lists, the small marks of the transcript.
//!
//! Everything passes `text::without_controls` here. A state is told by a word or a mark, never by a colour alone.
//! Deliberately absent: widths and wrapping.

use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

use crate::agent::event::{Todo, TodoState};
use crate::text;

/// Lines of a diff that are shown; the rest is counted.
const DIFF_LINES: usize = 200;
/// Columns of one line made of a foreign text.
const COLUMNS: usize = 200;

pub(super) const DIM: Style = Style::new().add_modifier(Modifier::DIM);

/// Foreign text as one line.
pub(super) fn short(foreign: &str) -> String {
    text::one_line(&text::without_controls(foreign), COLUMNS)
}

/// Foreign text as it is, line by line.
pub(super) fn plain(foreign: &str, style: Style) -> Vec<Line<'static>> {
    text::without_controls(foreign).trim_end().lines().map(|line| Line::styled(line.to_owned(), style)).collect()
}

/// An answer of a model.
pub(super) fn markdown(foreign: &str, columns: u16) -> Vec<Line<'static>> {
    let clean = text::without_controls(foreign);
    let options = tui_markdown::Options::new(Sheet).table_width(columns);
    let rendered = tui_markdown::from_str_with_options(clean.trim_end(), &options);
    rendered.lines.into_iter().map(owned).collect()
}

/// How Markdown looks: sixteen colours, nothing behind the text, so that it is legible on any background.
#[derive(Debug, Clone)]
struct Sheet;

impl tui_markdown::StyleSheet for Sheet {
    fn heading(&self, _level: u8) -> Style {
        Style::new().bold()
    }

    fn code(&self) -> Style {
        Style::new().cyan()
    }

    fn link(&self) -> Style {
        Style::new().underlined()
    }

    fn blockquote(&self) -> Style {
        DIM
    }
}

fn owned(line: Line<'_>) -> Line<'static> {
    let spans = line.spans.into_iter().map(|span| Span::styled(span.content.into_owned(), span.style));
    Line::from(spans.collect::<Vec<_>>()).style(line.style)
}

/// A unified diff: what goes is red with a minus, what comes is green with a plus.
pub(super) fn diff(foreign: &str) -> Vec<Line<'static>> {
    let clean = text::without_controls(foreign);
    let all: Vec<&str> = clean.trim_end().lines().collect();
    let mut lines: Vec<Line<'static>> = all.iter().take(DIFF_LINES).map(|line| diff_line(line)).collect();
    if all.len() > DIFF_LINES {
        let more = text::count(all.len() - DIFF_LINES, "more line", "more lines");
        lines.push(Line::styled(format!("  … {more}"), DIM));
    }
    lines
}

fn diff_line(line: &str) -> Line<'static> {
    let style = match line.as_bytes() {
        [b'-', b'-', b'-', ..] | [b'+', b'+', b'+', ..] => Style::new().bold(),
        [b'-', ..] => Style::new().red(),
        [b'+', ..] => Style::new().green(),
        [b'@', b'@', ..] => Style::new().cyan(),
        _ => Style::new(),
    };
    Line::styled(format!("  {line}"), style)
}

/// The agent's own list.
pub(super) fn todos(list: &[Todo]) -> Vec<Line<'static>> {
    let line = |todo: &Todo| {
        let (mark, style) = match todo.state {
            TodoState::Pending => (' ', Style::new()),
            TodoState::InProgress => ('>', Style::new().bold()),
            TodoState::Completed => ('x', DIM),
        };
        Line::styled(format!("  [{mark}] {}", short(&todo.text)), style)
    };
    list.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(lines: &[Line<'_>]) -> Vec<String> {
        lines.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn markdown_keeps_every_word_and_no_escape() {
        let shown = texts(&markdown("# Title\n\nSome `code` and **bold**\u{1b}[2J.\n\n- one\n- two\n", 80));
        assert_eq!(shown, ["# Title", "", "Some code and bold.", "", "- one", "- two"]);
    }

    #[test]
    fn code_keeps_its_lines_and_indentation() {
        let shown = texts(&markdown("```rust\nfn a() {\n    b();\n}\n```", 80));
        assert_eq!(shown, ["```rust", "fn a() {", "    b();", "}", "```"]);
    }

    #[test]
    fn a_diff_tells_its_sides_by_mark_and_colour() {
        let lines = diff("--- a/x\n+++ b/x\n@@ -1 +1 @@\n-old\n+new\n same");
        assert_eq!(texts(&lines)[3..], ["  -old", "  +new", "   same"]);
        assert_eq!(lines[3].style, Style::new().red());
        assert_eq!(lines[4].style, Style::new().green());
    }

    #[test]
    fn a_long_diff_says_how_much_is_not_shown() {
        let lines = diff(&"+x\n".repeat(250));
        assert_eq!((lines.len(), lines[200].to_string().as_str()), (201, "  … 50 more lines"));
    }
}
