//! A child that lives on without its window: its log, with the same line to type on. What is typed goes as signed letters.
//!
//! Deliberately absent: Esc. There is no letter that cuts what runs; that takes the window.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ratatui::style::Stylize;
use ratatui::text::Line;

use super::error::CliError;
use super::flags::ColorFlag;
use super::window::{self, Face, Form, Leave, Opening};
use super::{exit, logs, send, wire};
use crate::agent::{Command, Typed};
use crate::model::id::Target;
use crate::model::request::Asked;
use crate::store::{AttemptDir, attempt, observed};
use crate::tui::Opens;

/// Appending to a log raises no event that we listen to.
const LOOK: Duration = Duration::from_millis(250);
/// Bytes that are shown of what is in the log already, and at each look.
const CHUNK: u64 = 256 * 1024;

pub(super) fn run(dir: &AttemptDir, target: &Target) -> Result<u8, CliError> {
    wire::runtime()?.block_on(view(dir, target))
}

async fn view(dir: &AttemptDir, target: &Target) -> Result<u8, CliError> {
    let environment = wire::environment();
    let brief = attempt::read_brief(dir)?;
    let opening = Opening {
        form: match window::form(&environment) {
            Form::Screen => Form::Screen,
            Form::Plain | Form::Nothing => Form::Plain,
        },
        colours: window::colours(&environment, ColorFlag::Auto),
        opens: Opens::AtWork,
        state: &wire::state_root()?,
        project: Path::new(&brief.lease.project),
        files: Path::new(&brief.lease.path),
        leave: Leave::Quit,
    };
    let (face, _types, mut typed) = Face::open(opening)?;
    face.now(&brief.spec.persona.name, brief.spec.persona.mode, &brief.spec.model);
    face.line(Line::from("its window is closed; this is its log. A line steers it · Ctrl-D leaves").dim());
    let mut log = Log::from_the_end(dir);
    loop {
        // Asked before the log is read, so that the last lines of a child that ends now are still shown.
        let over = logs::is_over(dir);
        face.text(&log.more());
        if over {
            break;
        }
        // Out of time is the next look.
        if let Ok(next) = tokio::time::timeout(LOOK, typed.recv()).await {
            match next {
                None | Some(Typed::Command(Command::Quit)) => break,
                Some(typed) => pass_on(&face, dir, &brief.nonce, target, typed),
            }
        }
    }
    face.close().await;
    Ok(exit::DONE)
}

fn pass_on(face: &Face, dir: &AttemptDir, nonce: &str, target: &Target, typed: Typed) {
    let asks = || observed::status(dir, nonce).it().is_some_and(|status| status.question.is_some());
    let (ask, text) = match typed {
        Typed::Line { text, .. } if asks() => (Asked::Answer, text),
        Typed::Line { text, .. } => (Asked::Steer, text),
        Typed::FollowUp { text, .. } => (Asked::FollowUp, text),
        Typed::Escape => {
            return face.line(Line::from("-- only its window could stop what runs; a line steers it").dim());
        }
        Typed::Command(_) => return face.line(Line::from("-- only its window takes commands").dim()),
        Typed::Key | Typed::WindowGone => return,
    };
    if let Err(error) = send::deliver(target, ask, &text) {
        face.line(Line::from(format!("-- not sent: {}", error.message)).red());
    }
}

/// A log that is read as it grows, whole lines at a time.
struct Log {
    path: PathBuf,
    at: u64,
}

impl Log {
    fn from_the_end(dir: &AttemptDir) -> Self {
        let path = dir.log();
        let length = std::fs::metadata(&path).map_or(0, |metadata| metadata.len());
        Self { path, at: length.saturating_sub(CHUNK) }
    }

    /// The lines since the last time.
    fn more(&mut self) -> String {
        let mut bytes = Vec::new();
        let read = File::open(&self.path)
            .and_then(|mut file| file.seek(SeekFrom::Start(self.at)).map(|_| file))
            .and_then(|file| file.take(CHUNK).read_to_end(&mut bytes));
        if read.is_err() {
            return String::new();
        }
        // A line that is not at its end is read again, unless it fills all that is read at once.
        let end = match bytes.iter().rposition(|byte| *byte == b'\n') {
            Some(last) => last + 1,
            None if bytes.len() as u64 == CHUNK => bytes.len(),
            None => 0,
        };
        self.at += end as u64;
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_log_is_read_by_whole_lines_each_once() {
        let directory = tempfile::tempdir().unwrap();
        let dir = AttemptDir::at(directory.path());
        let mut log = Log::from_the_end(&dir);
        assert_eq!(log.more(), "");
        let mut file = File::create(dir.log()).unwrap();
        file.write_all("one\ntw".as_bytes()).unwrap();
        assert_eq!((log.more().as_str(), log.more().as_str()), ("one\n", ""));
        file.write_all("ö\n".as_bytes()).unwrap();
        assert_eq!(log.more(), "twö\n");
    }
}
