//! The line a person writes: its text, what was pasted into it, and the lines before it.
//!
//! Editing itself is ratatui-textarea's. Deliberately absent: what becomes of a line, and keeping lines on the disk.

use crossterm::event::KeyEvent;
use ratatui::text::Line;
use ratatui_textarea::{CursorMove, DataCursor, TextArea};
use unicode_width::UnicodeWidthStr;

use super::wrap::wrap;
use crate::text;

/// A paste of more lines than this is shown as one mark.
const PASTE_LINES: usize = 10;
/// Rows of the line that are shown at once.
const ROWS: usize = 8;
/// Columns of what stands before the text.
const PROMPT: usize = 2;

/// The line being written.
pub(super) struct Input {
    area: TextArea<'static>,
    /// Marks in the text, with what they stand for.
    pastes: Vec<(String, String)>,
    /// Lines written before, the newest last.
    history: Vec<String>,
    /// Which of them is shown, and the line that was being written when they were asked for.
    recalled: Option<(usize, String)>,
}

/// A text that is sent.
pub(super) struct Taken {
    pub(super) text: String,
    /// What of it later sessions may be shown again.
    pub(super) keep: Option<String>,
}

/// Rows of the line, and where the cursor is among them.
pub(super) struct Rows {
    pub(super) rows: Vec<Line<'static>>,
    pub(super) cursor: (usize, usize),
}

impl Input {
    pub(super) fn new(history: Vec<String>) -> Self {
        Self { area: TextArea::default(), pastes: Vec::new(), history, recalled: None }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.area.is_empty()
    }

    /// The text as it is shown.
    fn shown(&self) -> String {
        self.area.lines().join("\n")
    }

    /// Takes the whole text, with pastes in full, and begins anew. `None` if there is none.
    pub(super) fn take(&mut self) -> Option<Taken> {
        let shown = self.shown();
        let mut text = shown.clone();
        for (mark, pasted) in &self.pastes {
            text = text.replacen(mark.as_str(), pasted, 1);
        }
        // What a mark stood for is gone by the time the line is asked for again.
        let has_marks = !self.pastes.is_empty();
        self.clear();
        let text = text.trim_end().to_owned();
        if text.trim().is_empty() {
            return None;
        }
        if has_marks {
            return Some(Taken { text, keep: None });
        }
        if self.history.last() != Some(&shown) {
            self.history.push(shown.clone());
        }
        Some(Taken { text, keep: Some(shown) })
    }

    pub(super) fn clear(&mut self) {
        self.area = TextArea::default();
        self.pastes.clear();
        self.recalled = None;
    }

    pub(super) fn newline(&mut self) {
        self.area.insert_newline();
    }

    pub(super) fn delete_next(&mut self) {
        self.area.delete_next_char();
    }

    pub(super) fn delete_to_head(&mut self) {
        self.area.delete_line_by_head();
    }

    /// Any key that edits or moves.
    pub(super) fn edit(&mut self, key: KeyEvent) {
        self.area.input(key);
    }

    /// Text from the clipboard: what has many lines is one mark until it is sent.
    pub(super) fn paste(&mut self, pasted: &str) {
        let clean = text::without_controls(&pasted.replace("\r\n", "\n"));
        let lines = clean.trim_end().lines().count();
        if lines <= PASTE_LINES {
            self.area.insert_str(clean);
            return;
        }
        let mark = match self.pastes.len() {
            0 => format!("[pasted {lines} lines]"),
            before => format!("[pasted {lines} lines, {}]", before + 1),
        };
        self.area.insert_str(&mark);
        self.pastes.push((mark, clean.trim_end().to_owned()));
    }

    /// The text of the cursor's line up to the cursor.
    pub(super) fn before_cursor(&self) -> String {
        let DataCursor(row, column) = self.area.cursor();
        self.area.lines().get(row).map(|line| line.chars().take(column).collect()).unwrap_or_default()
    }

    pub(super) fn is_first_line(&self) -> bool {
        self.area.cursor().0 == 0
    }

    /// Replaces so many characters before the cursor.
    pub(super) fn replace_before(&mut self, characters: usize, with: &str) {
        for _ in 0..characters {
            self.area.delete_char();
        }
        self.area.insert_str(with);
    }

    /// Up: a line higher, or the line written before.
    pub(super) fn up(&mut self) {
        if self.area.cursor().0 > 0 {
            self.area.move_cursor(CursorMove::Up);
            return;
        }
        let (at, draft) = self.recalled.take().unwrap_or_else(|| (self.history.len(), self.shown()));
        let at = at.saturating_sub(1);
        if let Some(line) = self.history.get(at) {
            self.area = at_the_end(line);
        }
        self.recalled = Some((at, draft));
    }

    /// Down: a line lower, or the line written after.
    pub(super) fn down(&mut self) {
        if self.area.cursor().0 + 1 < self.area.lines().len() {
            self.area.move_cursor(CursorMove::Down);
            return;
        }
        let Some((at, draft)) = self.recalled.take() else { return };
        match self.history.get(at + 1) {
            Some(line) => {
                self.area = at_the_end(line);
                self.recalled = Some((at + 1, draft));
            }
            None => self.area = at_the_end(&draft),
        }
    }

    /// The line as rows, those around the cursor if they are too many.
    pub(super) fn rows(&self, columns: usize, placeholder: &str) -> Rows {
        let room = columns.saturating_sub(PROMPT + 1).max(2);
        if self.is_empty() {
            let hint = text::one_line(placeholder, room);
            let row = Line::from(vec!["> ".into(), ratatui::text::Span::styled(hint, super::paint::DIM)]);
            return Rows { rows: vec![row], cursor: (0, PROMPT) };
        }
        let DataCursor(cursor_row, cursor_column) = self.area.cursor();
        let mut rows: Vec<String> = Vec::new();
        let mut cursor = (0, 0);
        for (number, line) in self.area.lines().iter().enumerate() {
            let first = rows.len();
            rows.extend(wrap(&Line::from(line.as_str()), room, 0).iter().map(ToString::to_string));
            if number == cursor_row {
                let before: String = line.chars().take(cursor_column).collect();
                cursor = place(&rows[first..], UnicodeWidthStr::width(before.replace('\t', "    ").as_str()));
                cursor.0 += first;
            }
        }
        let from = (cursor.0 + 1).saturating_sub(ROWS);
        let shown = rows.iter().enumerate().skip(from).take(ROWS);
        let rows = shown.map(|(number, row)| Line::from(format!("{}{row}", if number == 0 { "> " } else { "  " })));
        Rows { rows: rows.collect(), cursor: (cursor.0 - from, cursor.1 + PROMPT) }
    }
}

/// Row and column of a place so many columns into a line that was broken into these rows.
fn place(rows: &[String], mut column: usize) -> (usize, usize) {
    for (number, row) in rows.iter().enumerate() {
        let width = UnicodeWidthStr::width(row.as_str());
        if column < width || number + 1 == rows.len() {
            return (number, column);
        }
        column -= width;
    }
    (0, 0)
}

/// A text with the cursor behind it.
fn at_the_end(text: &str) -> TextArea<'static> {
    let mut area = TextArea::new(text.split('\n').map(str::to_owned).collect());
    area.move_cursor(CursorMove::Bottom);
    area.move_cursor(CursorMove::End);
    area
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input() -> Input {
        Input::new(vec!["first".to_owned(), "second".to_owned()])
    }

    fn shown(input: &Input, columns: usize) -> (Vec<String>, (usize, usize)) {
        let Rows { rows, cursor } = input.rows(columns, "hint");
        (rows.iter().map(ToString::to_string).collect(), cursor)
    }

    #[test]
    fn a_long_paste_is_one_mark_until_it_is_sent_whole() {
        let mut input = input();
        let long = (1..=12).map(|number| format!("line {number}\r\n")).collect::<String>();
        input.area.insert_str("see ");
        input.paste(&long);
        input.paste(&long);
        assert_eq!(input.shown(), "see [pasted 12 lines][pasted 12 lines, 2]");
        let whole = input.take().unwrap().text;
        assert_eq!(whole.matches("line 12").count(), 2);
        assert!(whole.starts_with("see line 1\nline 2\n"), "{whole}");
    }

    #[test]
    fn a_short_paste_is_text_and_its_last_newline_sends_nothing() {
        let mut input = input();
        input.paste("one\rtwo\u{1b}[2J\r");
        assert_eq!(input.take().map(|taken| taken.text).as_deref(), Some("one\ntwo"));
        assert!(input.take().is_none());
    }

    #[test]
    fn lines_written_before_come_back_and_the_unsent_one_is_not_lost() {
        let mut input = input();
        input.area.insert_str("draft");
        for expected in ["second", "first", "first"] {
            input.up();
            assert_eq!(input.shown(), expected);
        }
        input.down();
        assert_eq!(input.shown(), "second");
        input.down();
        assert_eq!(input.shown(), "draft");
        input.down();
        assert_eq!(input.shown(), "draft");
    }

    #[test]
    fn up_moves_within_a_text_before_it_leaves_it() {
        let mut input = input();
        input.paste("one\ntwo");
        input.up();
        assert_eq!(input.shown(), "one\ntwo");
        input.up();
        assert_eq!(input.shown(), "second");
    }

    #[test]
    fn the_cursor_is_where_the_text_was_broken() {
        let mut input = input();
        assert_eq!(shown(&input, 12), (vec!["> hint".to_owned()], (0, 2)));
        input.area.insert_str("one two three");
        assert_eq!(shown(&input, 12), (vec!["> one two ".to_owned(), "  three".to_owned()], (1, 7)));
        input.area.move_cursor(CursorMove::Head);
        assert_eq!(shown(&input, 12).1, (0, 2));
    }

    #[test]
    fn a_text_of_many_lines_shows_those_around_the_cursor() {
        let mut input = input();
        input.paste("1\n2\n3\n4\n5\n6\n7\n8\n9\n10");
        let (rows, cursor) = shown(&input, 20);
        assert_eq!((rows.len(), rows[7].as_str(), cursor), (8, "  10", (7, 4)));
    }
}
