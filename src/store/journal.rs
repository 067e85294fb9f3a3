//! `events.jsonl`: the truth of a run. Append only, one record a transition, on the disk before anything it causes.
//!
//! Deliberately absent: replay. The last record of each child is the child; events are never run again.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::machine::Record;
use crate::machine::state::Memory;
use crate::model::id::ChildId;
use crate::model::time::Timestamp;

/// The version written; a higher one is refused.
const VERSION: u32 = 1;

#[derive(Debug, thiserror::Error)]
pub(crate) enum JournalError {
    #[error("failed to open journal `{path}`")]
    Open { path: PathBuf, source: std::io::Error },
    #[error("failed to append to journal `{path}`")]
    Append { path: PathBuf, source: std::io::Error },
    #[error("`{path}` line {line} was written by a newer decode (version {version}); this one reads version {VERSION}")]
    Newer { path: PathBuf, line: usize, version: u32 },
    #[error("`{path}` line {line} is damaged: {message}")]
    Damaged { path: PathBuf, line: usize, message: String },
}

/// One line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) v: u32,
    pub(crate) seq: u64,
    pub(crate) at: Timestamp,
    pub(crate) child: ChildId,
    pub(crate) attempt: u32,
    pub(crate) event: String,
    pub(crate) state: Memory,
}

/// The journal of a run, open for appending by its one supervisor.
#[derive(Debug)]
pub(crate) struct Journal {
    file: File,
    path: PathBuf,
    next: u64,
    /// Records were appended that a power cut may still take.
    unsynced: bool,
}

impl Journal {
    /// Opens or makes the journal. A torn last line is cut off, so that the next record starts on its own line.
    pub(crate) fn open(path: &Path) -> Result<(Self, Vec<Entry>), JournalError> {
        let wrong = |source| JournalError::Open { path: path.to_owned(), source };
        let mut file = File::options().read(true).append(true).create(true).open(path).map_err(wrong)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(wrong)?;
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        if whole < bytes.len() {
            file.set_len(whole as u64).map_err(wrong)?;
            file.seek(SeekFrom::End(0)).map_err(wrong)?;
        }
        let entries = parse(&bytes[..whole], path)?;
        let next = entries.last().map_or(1, |entry| entry.seq + 1);
        Ok((Self { file, path: path.to_owned(), next, unsynced: false }, entries))
    }

    /// Appends one loop turn's records with one write. They survive the end of this process; `sync` is for the rest.
    pub(crate) fn append(&mut self, records: Vec<Record>, at: Timestamp) -> Result<(), JournalError> {
        if records.is_empty() {
            return Ok(());
        }
        let mut lines = Vec::new();
        for Record { child, attempt, event, state } in records {
            let entry = Entry { v: VERSION, seq: self.next, at, child, attempt, event, state };
            self.next += 1;
            serde_json::to_writer(&mut lines, &entry).expect("records are plain data");
            lines.push(b'\n');
        }
        self.unsynced = true;
        self.file.write_all(&lines).map_err(|source| JournalError::Append { path: self.path.clone(), source })
    }

    /// The same without waiting for the disk.
    pub(crate) fn sync_soon(&mut self) {
        if self.unsynced
            && let Ok(file) = self.file.try_clone()
        {
            std::thread::spawn(move || file.sync_data());
        }
    }

    /// Makes all that was appended survive a power cut, with one fdatasync or none.
    pub(crate) fn sync(&mut self) -> Result<(), JournalError> {
        if self.unsynced {
            let wrong = |source| JournalError::Append { path: self.path.clone(), source };
            self.file.sync_data().map_err(wrong)?;
            self.unsynced = false;
        }
        Ok(())
    }
}

/// The journal as somebody follows it who does not write it.
#[derive(Debug)]
pub(crate) struct Tail {
    path: PathBuf,
    read: u64,
}

impl Tail {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, read: 0 }
    }

    /// The whole records that came since the last call. A torn last line is left for the next.
    pub(crate) fn more(&mut self) -> Result<Vec<Entry>, JournalError> {
        let wrong = |source| JournalError::Open { path: self.path.clone(), source };
        let mut file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => return Err(wrong(source)),
        };
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(self.read)).and_then(|_| file.read_to_end(&mut bytes)).map_err(wrong)?;
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let entries = parse(&bytes[..whole], &self.path)?;
        self.read += whole as u64;
        Ok(entries)
    }
}

/// The last record of each child.
pub(crate) fn last_of_each(entries: Vec<Entry>) -> std::collections::BTreeMap<ChildId, Memory> {
    entries.into_iter().map(|entry| (entry.child, entry.state)).collect()
}

fn parse(bytes: &[u8], path: &Path) -> Result<Vec<Entry>, JournalError> {
    #[derive(Deserialize)]
    struct Versioned {
        v: u32,
    }
    let mut entries = Vec::new();
    for (index, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        if line.is_empty() {
            continue;
        }
        let line_number = index + 1;
        if let Ok(Versioned { v }) = serde_json::from_slice(line)
            && v > VERSION
        {
            return Err(JournalError::Newer { path: path.to_owned(), line: line_number, version: v });
        }
        let entry = serde_json::from_slice(line).map_err(|error| JournalError::Damaged {
            path: path.to_owned(),
            line: line_number,
            message: error.to_string(),
        })?;
        entries.push(entry);
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::ChildEvent;
    use crate::machine::Effect;
    use crate::machine::child::Child;
    use crate::model::budget::Budget;
    use crate::model::time::Now;

    fn read(path: &Path) -> Result<Vec<Entry>, JournalError> {
        Tail::new(path.to_owned()).more()
    }

    fn record() -> Record {
        let mut child = Child::new(ChildId::new(1, "a"), crate::machine::child::tests::spec());
        let now = Now { mono_ms: 0, wall: Timestamp::from_millis(0) };
        match child.handle(ChildEvent::Admitted { grant: Budget::CHILD }, now).remove(0) {
            Effect::Journal(record) => *record,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn records_are_numbered_on_across_openings() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("events.jsonl");
        for turn in 1..=3_u64 {
            let (mut journal, entries) = Journal::open(&path).unwrap();
            assert_eq!(entries.len() as u64, turn - 1);
            journal.append(vec![record()], Timestamp::from_millis(1)).unwrap();
        }
        let seqs: Vec<u64> = read(&path).unwrap().iter().map(|entry| entry.seq).collect();
        assert_eq!(seqs, [1, 2, 3]);
    }

    #[test]
    fn a_journal_torn_at_any_byte_loses_only_its_last_record() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("events.jsonl");
        let (mut journal, _) = Journal::open(&path).unwrap();
        journal.append(vec![record()], Timestamp::from_millis(1)).unwrap();
        let one = std::fs::metadata(&path).unwrap().len();
        journal.append(vec![record()], Timestamp::from_millis(2)).unwrap();
        let whole = std::fs::read(&path).unwrap();
        for length in one..whole.len() as u64 {
            std::fs::write(&path, &whole[..length as usize]).unwrap();
            let (mut journal, entries) = Journal::open(&path).unwrap();
            assert_eq!(entries.len(), 1, "cut at {length}");
            journal.append(vec![record()], Timestamp::from_millis(3)).unwrap();
            assert_eq!(read(&path).unwrap().len(), 2, "cut at {length}");
        }
    }

    #[test]
    fn a_follower_gets_each_whole_record_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("events.jsonl");
        let mut tail = Tail::new(path.clone());
        assert!(tail.more().unwrap().is_empty(), "there is no journal yet");
        let (mut journal, _) = Journal::open(&path).unwrap();
        journal.append(vec![record()], Timestamp::from_millis(1)).unwrap();
        assert_eq!(tail.more().unwrap().len(), 1);
        journal.append(vec![record()], Timestamp::from_millis(2)).unwrap();
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, &whole[..whole.len() - 1]).unwrap();
        assert!(tail.more().unwrap().is_empty(), "the record is torn");
        std::fs::write(&path, &whole).unwrap();
        assert_eq!(tail.more().unwrap().iter().map(|entry| entry.seq).collect::<Vec<_>>(), [2]);
        assert!(tail.more().unwrap().is_empty());
    }

    #[test]
    fn a_newer_journal_is_refused_and_a_damaged_one_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("events.jsonl");
        std::fs::write(&path, "{\"v\":2,\"seq\":1}\n").unwrap();
        assert!(matches!(Journal::open(&path), Err(JournalError::Newer { line: 1, version: 2, .. })));
        std::fs::write(&path, "garbage\n").unwrap();
        assert!(matches!(Journal::open(&path), Err(JournalError::Damaged { line: 1, .. })));
    }
}
