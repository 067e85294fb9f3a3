//! Styled lines broken at words to the columns of a terminal.
//!
//! Deliberately absent: what a line says.

use ratatui::style::Style;
use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthChar;

/// Columns between two tab stops.
const TAB: usize = 4;

/// One line as rows of at most `columns` columns, broken after a space where there is one. Rows after the first begin
/// with as many spaces as `indent` says.
pub(super) fn wrap(line: &Line<'_>, columns: usize, indent: usize) -> Vec<Line<'static>> {
    let columns = columns.max(2);
    let indent = if indent * 2 < columns { indent } else { 0 };
    let mut cells: Vec<(char, Style)> = Vec::new();
    for span in &line.spans {
        for c in span.content.chars() {
            match c {
                '\t' => {
                    let upto = TAB - cells.iter().map(|(c, _)| width(*c)).sum::<usize>() % TAB;
                    cells.extend(std::iter::repeat_n((' ', span.style), upto));
                }
                c => cells.push((c, span.style)),
            }
        }
    }
    let mut rows = Vec::new();
    let mut rest = cells.as_slice();
    let mut room = columns;
    loop {
        let end = fitting(rest, room);
        let mut row = if room == columns { Vec::new() } else { vec![Span::raw(" ".repeat(columns - room))] };
        row.extend(spans(&rest[..end]));
        rows.push(Line::from(row).style(line.style));
        rest = &rest[end..];
        if rest.is_empty() {
            return rows;
        }
        room = columns - indent;
    }
}

/// Many lines, each with rows after the first that begin below its text.
pub(super) fn wrap_all(lines: &[Line<'_>], columns: usize) -> Vec<Line<'static>> {
    lines.iter().flat_map(|line| wrap(line, columns, indentation(line))).collect()
}

/// The columns before the text of a line: spaces, and the mark of a list.
fn indentation(line: &Line<'_>) -> usize {
    let text = line.to_string();
    let rest = text.trim_start_matches(' ');
    let mark = ["• ", "- ", "* ", "> ", "? "].iter().any(|mark| rest.starts_with(mark));
    text.len() - rest.len() + if mark { 2 } else { 0 }
}

/// How many cells go into `columns`: up to the last space that fits, else as many as fit.
fn fitting(cells: &[(char, Style)], columns: usize) -> usize {
    let mut used = 0;
    let mut after_space = None;
    for (index, (c, _)) in cells.iter().enumerate() {
        used += width(*c);
        if used > columns {
            // A space that does not fit any more ends the row unseen.
            if *c == ' ' {
                return index + 1;
            }
            return after_space.unwrap_or(index).max(1);
        }
        if *c == ' ' && cells[..index].iter().any(|(c, _)| *c != ' ') {
            after_space = Some(index + 1);
        }
    }
    cells.len()
}

fn width(c: char) -> usize {
    c.width().unwrap_or(0)
}

/// Neighbours of one style as one span.
fn spans(cells: &[(char, Style)]) -> Vec<Span<'static>> {
    cells
        .chunk_by(|(_, one), (_, other)| one == other)
        .map(|run| Span::styled(run.iter().map(|(c, _)| *c).collect::<String>(), run[0].1))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::style::Stylize;

    fn rows(text: &str, columns: usize, indent: usize) -> Vec<String> {
        wrap(&Line::from(text.to_owned()), columns, indent).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_line_breaks_after_a_space_and_a_long_word_where_it_must() {
        assert_eq!(rows("one two three", 8, 0), ["one two ", "three"]);
        assert_eq!(rows("one two", 7, 0), ["one two"]);
        assert_eq!(rows("abcdefghij", 4, 0), ["abcd", "efgh", "ij"]);
        assert_eq!(rows("  abcdefgh", 6, 0), ["  abcd", "efgh"]);
        assert_eq!(rows("abcd efgh", 4, 0), ["abcd ", "efgh"]);
        assert_eq!(rows("", 4, 0), [""]);
    }

    #[test]
    fn wide_characters_and_tabs_take_their_columns() {
        assert_eq!(rows("日本語", 4, 0), ["日本", "語"]);
        assert_eq!(rows("a\tb", 10, 0), ["a   b"]);
    }

    #[test]
    fn rows_after_the_first_are_indented_where_there_is_room() {
        assert_eq!(rows("- one two three", 10, 2), ["- one two ", "  three"]);
        assert_eq!(rows("abcdef", 3, 2), ["abc", "def"]);
    }

    #[test]
    fn the_style_of_a_word_goes_with_it() {
        let line = Line::from(vec!["one ".into(), "two".bold()]);
        let rows = wrap(&line, 4, 0);
        assert_eq!(rows[1].spans, vec!["two".bold()]);
    }
}
