//! The one rule for output: 2,000 lines or 50,000 bytes, whichever comes first, and where the rest is.
//!
//! Holds no more than that in memory. What is cut away goes to a file as it comes. Deliberately absent: any choice of
//! what matters in it; the beginning is kept.

use std::io::Write;
use std::path::{Path, PathBuf};

use crate::text;

pub(crate) const LINES: usize = 2_000;
pub(crate) const BYTES: usize = 50_000;

/// No command may fill the disk through its output.
const SPILLED: u64 = 50 * 1024 * 1024;

/// Output as it comes.
#[derive(Debug)]
pub(crate) struct Output {
    directory: PathBuf,
    head: Vec<u8>,
    bytes: u64,
    lines: u64,
    spill: Spill,
}

#[derive(Debug)]
enum Spill {
    /// All of it still fits.
    Unneeded,
    To {
        file: std::fs::File,
        path: PathBuf,
    },
    Failed(std::io::Error),
}

impl Output {
    /// Output that spills into `directory`, which is made when it is needed.
    pub(crate) fn new(directory: &Path) -> Self {
        Self { directory: directory.to_owned(), head: Vec::new(), bytes: 0, lines: 0, spill: Spill::Unneeded }
    }

    pub(crate) fn push(&mut self, more: &[u8]) {
        self.lines += line_feeds(more);
        let room = BYTES.saturating_sub(self.head.len()).min(more.len());
        let too_long = room < more.len() || self.lines > LINES as u64;
        if too_long && matches!(self.spill, Spill::Unneeded) {
            self.spill = open(&self.directory).map_or_else(Spill::Failed, |(file, path)| Spill::To { file, path });
            let head = std::mem::take(&mut self.head);
            self.spill(&head, 0);
            self.head = head;
        }
        self.spill(more, self.bytes);
        self.head.extend_from_slice(&more[..room]);
        self.bytes += more.len() as u64;
    }

    fn spill(&mut self, more: &[u8], before: u64) {
        if let Spill::To { file, .. } = &mut self.spill {
            let room = SPILLED.saturating_sub(before).min(more.len() as u64) as usize;
            if let Err(error) = file.write_all(&more[..room]) {
                self.spill = Spill::Failed(error);
            }
        }
    }

    /// What the model gets, with a note where something is missing.
    pub(crate) fn finish(self) -> String {
        let (shown, note) = self.finish_apart();
        match note {
            Some(note) => format!("{shown}\n{note}"),
            None => shown,
        }
    }

    /// The same, with the note for itself.
    pub(crate) fn finish_apart(self) -> (String, Option<String>) {
        let whole = self.bytes as usize <= self.head.len();
        let end = if whole { self.head.len() } else { end_of_text(&self.head) };
        let shown = first_lines(&self.head[..end]);
        let text = String::from_utf8_lossy(shown).into_owned();
        let missing = self.bytes - shown.len() as u64;
        if missing == 0 {
            return (text, None);
        }
        let lines = (self.lines - line_feeds(shown)) as usize;
        let note = format!(
            "[cut: {} and {} more are missing here; {}]",
            text::count(missing as usize, "byte", "bytes"),
            text::count(lines, "line", "lines"),
            self.where_the_rest_is()
        );
        (text, Some(note))
    }

    fn where_the_rest_is(&self) -> String {
        match &self.spill {
            Spill::To { path, .. } if self.bytes > SPILLED => format!("the first 50 MB are in {}", path.display()),
            Spill::To { path, .. } => format!("the whole is in {}", path.display()),
            Spill::Failed(error) => format!("the rest could not be kept: {error}"),
            Spill::Unneeded => "the rest was not kept".to_owned(),
        }
    }
}

#[expect(clippy::naive_bytecount, reason = "the pipe is slower than this")]
fn line_feeds(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|byte| **byte == b'\n').count() as u64
}

/// The part of the bytes before a character that is cut in two.
fn end_of_text(bytes: &[u8]) -> usize {
    let tail = bytes.len().saturating_sub(3);
    (tail..bytes.len())
        .find(|at| matches!(std::str::from_utf8(&bytes[*at..]), Err(error) if error.valid_up_to() == 0 && error.error_len().is_none()))
        .unwrap_or(bytes.len())
}

fn first_lines(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n').nth(LINES - 1).map(|(at, _)| at + 1);
    &bytes[..end.unwrap_or(bytes.len())]
}

/// A file that only the user reads; the name is free.
fn open(directory: &Path) -> std::io::Result<(std::fs::File, PathBuf)> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let file = tempfile::Builder::new().prefix("output-").suffix(".txt").tempfile_in(directory)?;
    file.keep().map_err(|error| error.error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spilled(directory: &Path) -> Vec<PathBuf> {
        std::fs::read_dir(directory)
            .map_or_else(|_| Vec::new(), |entries| entries.map(|entry| entry.unwrap().path()).collect())
    }

    #[test]
    fn short_output_is_whole_and_makes_no_file() {
        let directory = tempfile::tempdir().unwrap();
        let mut output = Output::new(&directory.path().join("spill"));
        output.push("a\nb".as_bytes());
        assert_eq!(output.finish(), "a\nb");
        assert!(spilled(&directory.path().join("spill")).is_empty());
    }

    #[test]
    fn a_single_long_line_is_cut_on_a_character() {
        for before in BYTES - 4..=BYTES {
            let directory = tempfile::tempdir().unwrap();
            let mut output = Output::new(directory.path());
            let line = format!("{}🙂🙂", "x".repeat(before));
            for piece in line.as_bytes().chunks(777) {
                output.push(piece);
            }
            let text = output.finish();
            let shown = text.split("\n[cut").next().unwrap();
            assert!(shown.len() <= BYTES && line.starts_with(shown), "{before}");
            assert!(text.contains(&format!("{} bytes", line.len() - shown.len())), "{before}: {text:.0}");
            let files = spilled(directory.path());
            assert_eq!(std::fs::read_to_string(&files[0]).unwrap(), line);
            assert!(text.contains(files[0].to_str().unwrap()));
        }
    }

    #[test]
    fn many_lines_are_cut_and_counted_and_the_whole_is_kept_for_the_user_only() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let mut output = Output::new(directory.path());
        let all = (1..=2_500).map(|n| n.to_string()).collect::<Vec<_>>().join("\n") + "\n";
        all.split_inclusive('\n').for_each(|line| output.push(line.as_bytes()));
        let text = output.finish();
        assert!(
            text.contains("\n2000\n\n[cut: ") && text.contains("500 lines more are missing"),
            "{}",
            text::suffix(&text, 200)
        );
        let files = spilled(directory.path());
        assert_eq!(std::fs::read_to_string(&files[0]).unwrap(), all);
        assert_eq!(std::fs::metadata(&files[0]).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn output_that_is_no_text_is_shown_as_far_as_it_goes() {
        let mut output = Output::new(Path::new("/nonexistent"));
        output.push(b"a\xff\xfeb\xe2\x82");
        assert_eq!(output.finish(), "a\u{fffd}\u{fffd}b\u{fffd}");
    }
}
