//! A child's inbox: listed, never watched; read once; closed before the report.
//!
//! A letter stays in `inbox/` until it stands in the session and moves to `seen/` then, so that a crash in between
//! loses nothing: what is still there is unread. Deliberately absent: what a letter does to the loop.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::AttemptDir;
use super::key::Key;
use super::request;
use crate::model::brief::Brief;
use crate::model::request::{Asked, Request};

/// A signed request that was found.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Letter {
    /// Its file name; `settle` wants it back.
    pub(crate) file: String,
    pub(crate) request: Request,
}

/// What a look into the inbox brought.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Found {
    Letter(Letter),
    /// Shown to the person, never obeyed; already out of the way.
    Refused {
        file: String,
        why: String,
    },
}

/// Whether senders can still reach it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Door {
    Open,
    Closed,
}

/// The reading end of an inbox.
#[derive(Debug)]
pub(crate) struct Inbox {
    dir: AttemptDir,
    key: Key,
    names: Vec<String>,
    door: Door,
    /// Files already read but not yet settled.
    known: HashSet<String>,
    /// When the directory had last changed at the last look, if that was long enough before it.
    still: Option<SystemTime>,
}

/// Two changes of a directory closer together than the clock of its file system ticks look like one.
const SETTLED: Duration = Duration::from_secs(2);

/// What an attempt is called in the `to` of a request.
pub(crate) fn names_of(brief: &Brief) -> Vec<String> {
    let child = format!("{}/{}", brief.run.as_str(), brief.child.number());
    vec![format!("{child}.{}", brief.attempt), child]
}

impl Inbox {
    pub(crate) fn new(dir: AttemptDir, key: Key, names: Vec<String>) -> Self {
        Self { dir, key, names, door: Door::Open, known: HashSet::new(), still: None }
    }

    /// What came since the last look, in the order it was sent.
    pub(crate) fn look(&mut self) -> Vec<Found> {
        let place = self.place();
        // Asked first, because to list a directory wakes the supervisor that watches the one above: with a hundred
        // children that look each second, most of what it does.
        let changed = std::fs::metadata(&place).and_then(|metadata| metadata.modified()).ok();
        if changed.is_some() && changed == self.still {
            return Vec::new();
        }
        self.still = changed.filter(|at| at.elapsed().is_ok_and(|age| age > SETTLED));
        let mut found = Vec::new();
        for file in files_in(&place) {
            if self.known.contains(&file) {
                continue;
            }
            match request::read(&place.join(&file), &self.names, &self.key) {
                Ok(request) => {
                    self.known.insert(file.clone());
                    found.push(Found::Letter(Letter { file, request }));
                }
                Err(refusal) => {
                    self.refuse(&file);
                    found.push(Found::Refused { file, why: refusal.to_string() });
                }
            }
        }
        found
    }

    /// The letter has done what it was for.
    pub(crate) fn settle(&mut self, file: &str) {
        self.put_away(file, &self.dir.seen());
    }

    /// The letter is not obeyed.
    pub(crate) fn refuse(&mut self, file: &str) {
        self.put_away(file, &self.dir.seen().join("refused"));
    }

    /// Takes no more; what had come by then is found by the next look. Closing twice does the same as once.
    pub(crate) fn close(&mut self) {
        self.door = Door::Closed;
        self.still = None;
        close(&self.dir);
    }

    fn place(&self) -> PathBuf {
        match self.door {
            Door::Open => self.dir.inbox(),
            Door::Closed => self.dir.closed(),
        }
    }

    fn put_away(&mut self, file: &str, to: &Path) {
        self.known.remove(file);
        let moved = std::fs::create_dir_all(to).and_then(|()| std::fs::rename(self.place().join(file), to.join(file)));
        if moved.is_err() {
            // It stays where it is and must not be read again.
            self.known.insert(file.to_owned());
        }
    }
}

/// Closes the inbox of an attempt, whoever reads it. Without an inbox there is nothing to close: senders are refused.
pub(crate) fn close(dir: &AttemptDir) {
    let _ = std::fs::create_dir_all(dir.seen());
    let _ = std::fs::rename(dir.inbox(), dir.closed());
}

/// Messages that an attempt was sent and did not take in: they go into the next brief, or are told.
pub(crate) fn undelivered(dir: &AttemptDir, names: &[String], key: &Key) -> Vec<Request> {
    [dir.closed(), dir.inbox()]
        .iter()
        .flat_map(|place| files_in(place).into_iter().map(|file| place.join(file)))
        .filter_map(|path| request::read(&path, names, key).ok())
        .filter(|request| match request.ask {
            Asked::Steer | Asked::FollowUp => true,
            Asked::Answer | Asked::WrapUp | Asked::Stop | Asked::Retry => false,
        })
        .collect()
}

/// Names in a directory, sorted; hidden ones are half-written files of somebody.
fn files_in(place: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(place) else { return Vec::new() };
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| !name.starts_with('.'))
        .collect();
    names.sort_unstable();
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::time::Timestamp;
    use crate::store::request::{SendError, send};

    fn letter(id: i64, ask: Asked) -> Request {
        Request {
            v: 1,
            id: id.to_string(),
            to: "kabcde/3".into(),
            by: "person".into(),
            at: Timestamp::from_millis(1_000_000_000_000 + id),
            ask,
            text: format!("text {id}"),
        }
    }

    fn open() -> (tempfile::TempDir, Inbox, Key) {
        let directory = tempfile::tempdir().unwrap();
        let dir = AttemptDir::at(directory.path());
        std::fs::create_dir(dir.inbox()).unwrap();
        let key = Key::from_bytes([3; 32]);
        (directory, Inbox::new(dir, key.clone(), vec!["kabcde/3".into()]), key)
    }

    fn ids(found: &[Found]) -> Vec<String> {
        found
            .iter()
            .map(|found| match found {
                Found::Letter(letter) => letter.request.id.clone(),
                Found::Refused { .. } => "refused".into(),
            })
            .collect()
    }

    #[test]
    fn letters_are_read_once_in_the_order_sent_and_kept_until_settled() {
        let (_directory, mut inbox, key) = open();
        for id in [30, 4, 200] {
            send(&inbox.dir.inbox(), &letter(id, Asked::Steer), &key).unwrap();
        }
        let found = inbox.look();
        assert_eq!(ids(&found), ["4", "30", "200"]);
        assert!(inbox.look().is_empty());
        let Found::Letter(first) = &found[0] else { panic!("{found:?}") };
        inbox.settle(&first.file);
        assert!(inbox.dir.seen().join(&first.file).exists());
        let unread = undelivered(&inbox.dir, &inbox.names, &key);
        assert_eq!(unread.iter().map(|request| request.id.as_str()).collect::<Vec<_>>(), ["30", "200"]);
    }

    #[test]
    fn a_letter_is_found_in_an_inbox_that_was_still_for_long() {
        let (_directory, mut inbox, key) = open();
        let long_ago = SystemTime::now() - Duration::from_mins(1);
        std::fs::File::open(inbox.dir.inbox()).unwrap().set_modified(long_ago).unwrap();
        assert!(inbox.look().is_empty());
        assert_eq!(inbox.still, Some(long_ago), "it is not listed again before it changes");
        send(&inbox.dir.inbox(), &letter(7, Asked::Steer), &key).unwrap();
        assert_eq!(ids(&inbox.look()), ["7"]);
        assert_eq!(inbox.still, None, "a change this fresh may hide another");
    }

    #[test]
    fn an_unsigned_file_is_told_and_put_away() {
        let (_directory, mut inbox, _) = open();
        std::fs::write(inbox.dir.inbox().join("1.md"), "---\nv: 1\n---\nrm -rf").unwrap();
        assert_eq!(ids(&inbox.look()), ["refused"]);
        assert!(inbox.dir.seen().join("refused/1.md").exists());
        assert!(inbox.look().is_empty());
    }

    #[test]
    fn what_came_before_the_inbox_closed_is_delivered_and_what_comes_after_is_refused() {
        let (_directory, mut inbox, key) = open();
        send(&inbox.dir.inbox(), &letter(1, Asked::FollowUp), &key).unwrap();
        let place = inbox.dir.inbox();
        inbox.close();
        inbox.close();
        assert!(matches!(send(&place, &letter(2, Asked::Steer), &key), Err(SendError::Closed)));
        assert_eq!(undelivered(&inbox.dir, &inbox.names, &key).len(), 1);
        let found = inbox.look();
        assert_eq!(ids(&found), ["1"]);
        let Found::Letter(first) = &found[0] else { panic!("{found:?}") };
        inbox.settle(&first.file);
        assert!(undelivered(&inbox.dir, &inbox.names, &key).is_empty());
    }
}
