//! The rows at the bottom of a terminal that are drawn anew, and the lines above them that are not.
//!
//! What is finished is written once and scrolls away like the output of any program, so that the terminal's own
//! scrollback and tmux's copy mode hold all of it. ratatui's inline viewport does the same, but has one height for its
//! life, and asks the terminal where the cursor is through the same input that keys come by, which takes two seconds to
//! fail when somebody types. Here nothing is asked: where the cursor is follows from what was written, also after a
//! terminal has broken longer rows anew because it became narrower.
//!
//! Deliberately absent: what the rows say, and the modes of the terminal.

use std::io::{self, Write};

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;

/// Whether colours are written. Bold, dim and the like are, in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Colours {
    On,
    Off,
}

/// Rows with the place of the cursor among them.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Picture {
    pub(super) rows: Vec<Line<'static>>,
    /// Row and column.
    pub(super) cursor: (usize, usize),
}

pub(super) struct Region<W> {
    out: W,
    colours: Colours,
    /// Columns that each shown row takes.
    shown: Vec<usize>,
    cursor: (usize, usize),
}

impl<W: Write> Region<W> {
    pub(super) const fn new(out: W, colours: Colours) -> Self {
        Self { out, colours, shown: Vec::new(), cursor: (0, 0) }
    }

    /// Writes what is finished above, and the picture below it.
    pub(super) fn draw(&mut self, finished: &[Line<'_>], picture: &Picture, columns: usize) -> io::Result<()> {
        // Terminals that know how show all of this at once.
        let mut text = String::from("\u{1b}[?2026h\u{1b}[?25l");
        text.push_str(&self.to_the_top(columns));
        for line in finished {
            // Erased before it is written: a row as wide as the terminal leaves the cursor on its last character.
            text.push_str("\u{1b}[K");
            push_line(&mut text, line, self.colours);
            text.push_str("\r\n");
        }
        for (index, row) in picture.rows.iter().enumerate() {
            let is_last = index + 1 == picture.rows.len();
            // Everything below goes with the last row. Not earlier: tmux takes the erasing of a whole screen for a
            // screen to keep in its history.
            text.push_str(if is_last { "\u{1b}[J" } else { "\u{1b}[K" });
            push_line(&mut text, row, self.colours);
            if !is_last {
                text.push_str("\r\n");
            }
        }
        let up = picture.rows.len().saturating_sub(1).saturating_sub(picture.cursor.0);
        push_up(&mut text, up);
        text.push('\r');
        if picture.cursor.1 > 0 {
            text.push_str(&format!("\u{1b}[{}C", picture.cursor.1));
        }
        text.push_str("\u{1b}[?25h\u{1b}[?2026l");
        self.shown = picture.rows.iter().map(Line::width).collect();
        self.cursor = picture.cursor;
        self.out.write_all(text.as_bytes())?;
        self.out.flush()
    }

    /// Writes what is finished and takes the picture away; the cursor is below it all.
    pub(super) fn leave(&mut self, finished: &[Line<'_>], columns: usize) -> io::Result<()> {
        self.draw(finished, &Picture { rows: vec![Line::default(), Line::default()], cursor: (0, 0) }, columns)?;
        self.shown = Vec::new();
        self.cursor = (0, 0);
        Ok(())
    }

    /// Sounds the bell, which tmux marks the window with.
    pub(super) fn ring(&mut self) -> io::Result<()> {
        self.out.write_all(b"\x07")?;
        self.out.flush()
    }

    /// Back to the first row that is shown, with what a narrower terminal made of it.
    fn to_the_top(&self, columns: usize) -> String {
        let columns = columns.max(1);
        let above: usize = self.shown.iter().take(self.cursor.0).map(|width| width.div_ceil(columns).max(1)).sum();
        let mut text = String::from("\r");
        push_up(&mut text, above + self.cursor.1 / columns);
        text
    }
}

fn push_up(text: &mut String, rows: usize) {
    if rows > 0 {
        text.push_str(&format!("\u{1b}[{rows}A"));
    }
}

fn push_line(text: &mut String, line: &Line<'_>, colours: Colours) {
    for span in &line.spans {
        let style = line.style.patch(span.style);
        let codes = codes(style, colours);
        // The last guard: nothing but what is written here moves the cursor.
        let plain = span.content.chars().filter(|c| !c.is_control());
        if codes.is_empty() {
            text.extend(plain);
        } else {
            text.push_str(&format!("\u{1b}[{}m", codes.join(";")));
            text.extend(plain);
            text.push_str("\u{1b}[0m");
        }
    }
}

/// What a style is on a terminal.
fn codes(style: Style, colours: Colours) -> Vec<String> {
    const MODIFIERS: [(Modifier, u8); 6] = [
        (Modifier::BOLD, 1),
        (Modifier::DIM, 2),
        (Modifier::ITALIC, 3),
        (Modifier::UNDERLINED, 4),
        (Modifier::REVERSED, 7),
        (Modifier::CROSSED_OUT, 9),
    ];
    let set = style.add_modifier;
    let mut codes: Vec<String> =
        MODIFIERS.iter().filter(|(modifier, _)| set.contains(*modifier)).map(|(_, code)| code.to_string()).collect();
    if colours == Colours::On {
        codes.extend(style.fg.and_then(|colour| colour_code(colour, 30)));
        codes.extend(style.bg.and_then(|colour| colour_code(colour, 40)));
    }
    codes
}

/// The code of a colour; `base` is 30 for the text and 40 for what is behind it.
fn colour_code(colour: Color, base: u8) -> Option<String> {
    let bright = base + 60;
    let code = match colour {
        Color::Reset => return None,
        Color::Black => base,
        Color::Red => base + 1,
        Color::Green => base + 2,
        Color::Yellow => base + 3,
        Color::Blue => base + 4,
        Color::Magenta => base + 5,
        Color::Cyan => base + 6,
        Color::Gray => base + 7,
        Color::DarkGray => bright,
        Color::LightRed => bright + 1,
        Color::LightGreen => bright + 2,
        Color::LightYellow => bright + 3,
        Color::LightBlue => bright + 4,
        Color::LightMagenta => bright + 5,
        Color::LightCyan => bright + 6,
        Color::White => bright + 7,
        Color::Rgb(red, green, blue) => return Some(format!("{};2;{red};{green};{blue}", base + 8)),
        Color::Indexed(index) => return Some(format!("{};5;{index}", base + 8)),
    };
    Some(code.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::style::Stylize;

    fn drawn(region: &mut Region<Vec<u8>>, finished: &[Line<'_>], rows: &[&'static str], columns: usize) -> String {
        region.out.clear();
        let cursor = (rows.len() - 1, rows.last().map_or(0, |row| row.len()));
        let picture = Picture { rows: rows.iter().map(|row| Line::from(*row)).collect(), cursor };
        region.draw(finished, &picture, columns).unwrap();
        String::from_utf8(region.out.clone()).unwrap()
    }

    #[test]
    fn the_next_picture_begins_where_the_last_one_did() {
        let mut region = Region::new(Vec::new(), Colours::Off);
        let first = drawn(&mut region, &[], &["one", "two", "> "], 20);
        assert!(!first.contains('A'), "{first:?}");
        let second = drawn(&mut region, &["said".into()], &["one", "> "], 20);
        assert!(second.contains("\r\u{1b}[2A\u{1b}[Ksaid\r\n\u{1b}[Kone\r\n\u{1b}[J> "), "{second:?}");
    }

    #[test]
    fn rows_that_a_narrower_terminal_broke_are_counted_as_it_broke_them() {
        let mut region = Region::new(Vec::new(), Colours::Off);
        drawn(&mut region, &[], &["0123456789", "", "abcdefgh"], 20);
        // Three rows for the first, one for the empty, and the cursor two below its row's start.
        let second = drawn(&mut region, &[], &["> "], 4);
        assert!(second.contains("\r\u{1b}[6A"), "{second:?}");
    }

    #[test]
    fn nothing_foreign_moves_the_cursor_and_colour_can_be_off() {
        let mut region = Region::new(Vec::new(), Colours::Off);
        let line = Line::from(vec!["a\u{1b}[2Jb\r".to_owned().red().bold()]);
        let text = drawn(&mut region, &[line], &["> "], 20);
        assert!(text.contains("\u{1b}[1ma[2Jb\u{1b}[0m"), "{text:?}");
        region.colours = Colours::On;
        let text = drawn(&mut region, &["x".red().into()], &["> "], 20);
        assert!(text.contains("\u{1b}[31mx\u{1b}[0m"), "{text:?}");
    }
}
