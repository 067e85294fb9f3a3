//! The only place that prints. stdout is data, stderr is talk.
//!
//! A reader that went away is no error of ours: what cannot be written is dropped, and `said` tells.

use std::io::{IsTerminal, Write};

use super::error::CliError;

/// Whether words got through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Said {
    Yes,
    /// The other end is closed.
    NobodyListens,
}

/// Writes data to stdout, exactly.
pub(super) fn data(text: &str) -> Said {
    let mut out = std::io::stdout().lock();
    heard(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

/// Writes data to stdout and ends the line.
pub(super) fn line(text: &str) -> Said {
    let mut out = std::io::stdout().lock();
    let newline: &[u8] = if text.ends_with('\n') { b"" } else { b"\n" };
    heard(out.write_all(text.as_bytes()).and_then(|()| out.write_all(newline)).and_then(|()| out.flush()))
}

/// Writes what was asked for to stdout. A reader that went away wanted no more; a disk that is full lost it.
pub(super) fn deliver(text: &str) -> Result<(), CliError> {
    let mut out = std::io::stdout().lock();
    let newline: &[u8] = if text.ends_with('\n') { b"" } else { b"\n" };
    match out.write_all(text.as_bytes()).and_then(|()| out.write_all(newline)).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            let mut lost = CliError::missing("stdout takes nothing");
            lost.causes.push(error.to_string());
            Err(lost)
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// The terminal as a screen writes to it.
pub(super) fn terminal() -> Box<dyn Write + Send> {
    Box::new(std::io::stdout())
}

/// Talks on stderr, a line.
pub(super) fn talk(text: &str) -> Said {
    let mut err = std::io::stderr().lock();
    heard(err.write_all(text.as_bytes()).and_then(|()| err.write_all(b"\n")))
}

/// Talks on stderr without ending the line; for what is redrawn.
pub(super) fn draw(text: &str) -> Said {
    let mut err = std::io::stderr().lock();
    heard(err.write_all(text.as_bytes()).and_then(|()| err.flush()))
}

fn heard(result: std::io::Result<()>) -> Said {
    result.map_or(Said::NobodyListens, |()| Said::Yes)
}

/// Whether a person may be watching the talk.
pub(super) fn talks_to_terminal() -> bool {
    std::io::stderr().is_terminal()
}

/// Words that a person must not miss, for the talk: red where that is shown and wanted.
pub(super) fn alarming(words: &str) -> String {
    if talks_to_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) {
        format!("\x1b[31m{words}\x1b[0m")
    } else {
        words.to_owned()
    }
}

/// Whether the data goes to a person's terminal.
pub(super) fn data_goes_to_terminal() -> bool {
    std::io::stdout().is_terminal()
}

/// Whether a person can type.
pub(super) fn input_is_terminal() -> bool {
    std::io::stdin().is_terminal()
}

/// Columns of the terminal the talk goes to; 100 where there is none.
pub(super) fn columns() -> usize {
    clap_columns().unwrap_or(100).clamp(40, 400)
}

fn clap_columns() -> Option<usize> {
    if let Some(columns) = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok()) {
        return Some(columns);
    }
    terminal_size::terminal_size_of(std::io::stderr()).map(|(terminal_size::Width(width), _)| usize::from(width))
}
