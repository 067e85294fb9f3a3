//! Files to events. Each file is read when it appeared and again at every re-scan; what was read already is skipped.
//!
//! Deliberately absent: belief in a file alone. Status and report need the attempt's nonce, a request its signature.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::machine::{By, ChildEvent, Event};
use crate::model::id::{ChildId, Target};
use crate::model::request::Asked;
use crate::store::key::Key;
use crate::store::observed::{self, Found};
use crate::store::{AttemptDir, RunDir, request};
use crate::text;

/// Columns of a note.
const NOTE: usize = 200;
/// Files that are not obeyed and told one by one; of more than that the number is told.
const REFUSALS_TOLD: usize = 8;

/// What is known of the files of current attempts, and of the run's inbox.
#[derive(Debug, Default)]
pub(super) struct Ears {
    nonces: HashMap<(ChildId, u32), String>,
    read: HashMap<PathBuf, SystemTime>,
    /// Requests that were taken and could not be moved away.
    stuck: HashSet<PathBuf>,
    refused: usize,
    notes: Vec<String>,
}

impl Ears {
    pub(super) fn learn(&mut self, child: ChildId, attempt: u32, nonce: String) {
        self.nonces.insert((child, attempt), nonce);
    }

    /// Looks at one attempt: claim, status, report, in this order, which is the order they are written in.
    pub(super) fn listen(&mut self, child: &ChildId, attempt: u32, dir: &AttemptDir) -> Vec<Event> {
        let mut events = Vec::new();
        if self.is_new(&dir.claim())
            && let Found::It(claim) = observed::claim(dir)
            && !claim.revoked
        {
            events.push(ChildEvent::Started { attempt });
        }
        if let Some(nonce) = self.nonces.get(&(child.clone(), attempt)).cloned() {
            if self.is_new(&dir.status())
                && let Found::It(status) = observed::status(dir, &nonce)
            {
                events.push(ChildEvent::Heard { attempt, status: Box::new(status) });
            }
            if self.is_new(&dir.report())
                && let Found::It(report) = observed::report(dir, &nonce)
            {
                events.push(ChildEvent::Reported { attempt, report: Box::new(report) });
            }
        }
        events.into_iter().map(|event| Event::Child { child: child.clone(), event }).collect()
    }

    fn is_new(&mut self, path: &Path) -> bool {
        let Ok(modified) = std::fs::metadata(path).and_then(|metadata| metadata.modified()) else { return false };
        self.read.insert(path.to_owned(), modified) != Some(modified)
    }

    /// Forgets an attempt that is over.
    pub(super) fn forget(&mut self, child: &ChildId, attempt: u32, dir: &AttemptDir) {
        self.nonces.remove(&(child.clone(), attempt));
        self.read.retain(|path, _| !path.starts_with(dir.path()));
    }
}

/// The attempt a path lies in: `children/<child>/<attempt>/file`.
pub(super) fn attempt_of(run: &RunDir, path: &Path) -> Option<(ChildId, u32)> {
    let mut parts = path.strip_prefix(run.children()).ok()?.components();
    let mut next = || Some(parts.next()?.as_os_str().to_str()?.to_owned());
    let child = ChildId::try_from(next()?).ok()?;
    let attempt = next()?.parse().ok()?;
    Some((child, attempt))
}

/// A run's inbox, and whom its requests may be for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Post<'a> {
    pub(super) run: &'a RunDir,
    /// Open or closed.
    pub(super) inbox: &'a Path,
    pub(super) name: &'a str,
    pub(super) children: &'a [ChildId],
    pub(super) key: &'a Key,
}

impl Ears {
    /// Takes the requests that lie in the run's inbox. Unsigned ones are put aside and told, never obeyed.
    pub(super) fn requests(&mut self, post: Post<'_>) -> Vec<Event> {
        let name = post.name;
        let mut names: Vec<String> = vec![name.to_owned()];
        names.extend(post.children.iter().map(|child| format!("{name}/{}", child.number())));
        let mut events = Vec::new();
        let Ok(entries) = std::fs::read_dir(post.inbox) else { return events };
        let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        paths.sort();
        for path in paths {
            let file = path.file_name().unwrap_or_default().to_os_string();
            if file.to_string_lossy().starts_with('.') || self.stuck.contains(&path) {
                continue;
            }
            let aside = match request::read(&path, &names, post.key) {
                Ok(request) => {
                    events.extend(meaning(&request.to, request.ask, post.children));
                    post.run.seen()
                }
                Err(refusal) => {
                    self.refuse(&file.to_string_lossy(), &refusal.to_string());
                    post.run.seen().join("refused")
                }
            };
            let moved = std::fs::create_dir_all(&aside).and_then(|()| std::fs::rename(&path, aside.join(&file)));
            // What can neither be moved nor removed stays, and must not be obeyed at every look.
            if moved.is_err()
                && let Err(error) = std::fs::remove_file(&path)
            {
                let said = format!("inbox/{} was taken and cannot be moved away: {error}", file.to_string_lossy());
                self.notes.push(text::one_line(&said, NOTE));
                self.stuck.insert(path);
            }
        }
        events
    }

    /// What people should know of the inbox. However many stray files come, this stays short.
    pub(super) fn notes(&self) -> Vec<String> {
        let more = self.refused.saturating_sub(REFUSALS_TOLD);
        let more =
            (more > 0).then(|| format!("{} in the inbox: not obeyed", text::count(more, "more file", "more files")));
        self.notes.iter().cloned().chain(more).collect()
    }

    fn refuse(&mut self, file: &str, why: &str) {
        self.refused += 1;
        if self.refused <= REFUSALS_TOLD {
            self.notes.push(text::one_line(&format!("inbox/{file} is not obeyed: {why}"), NOTE));
        }
    }
}

fn meaning(to: &str, ask: Asked, children: &[ChildId]) -> Vec<Event> {
    let child = to
        .parse::<Target>()
        .ok()
        .and_then(|target| target.child)
        .and_then(|name| children.iter().find(|child| name.matches(child)));
    match (ask, child) {
        (Asked::Stop, None) => vec![Event::StopAll { by: By::User }],
        (Asked::Stop, Some(child)) => {
            vec![Event::Child { child: child.clone(), event: ChildEvent::Stop { by: By::User } }]
        }
        (Asked::Retry, Some(child)) => vec![Event::Child { child: child.clone(), event: ChildEvent::Retry }],
        // Without a child: every one that did not end well.
        (Asked::Retry, None) => {
            children.iter().map(|child| Event::Child { child: child.clone(), event: ChildEvent::Retry }).collect()
        }
        (Asked::Steer | Asked::FollowUp | Asked::Answer | Asked::WrapUp, _) => vec![],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::request::Request;
    use crate::model::time::Timestamp;

    struct Fixture {
        _directory: tempfile::TempDir,
        run: RunDir,
        key: Key,
        children: Vec<ChildId>,
    }

    impl Fixture {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let run = RunDir::at(directory.path());
            std::fs::create_dir(run.inbox()).unwrap();
            let children = vec![ChildId::new(1, "a"), ChildId::new(2, "b")];
            Self { _directory: directory, run, key: Key::from_bytes([3; 32]), children }
        }

        fn take(&self, ears: &mut Ears) -> Vec<Event> {
            let inbox = self.run.inbox();
            let (run, children, key) = (&self.run, self.children.as_slice(), &self.key);
            ears.requests(Post { run, inbox: &inbox, name: "kabcde", children, key })
        }

        fn send(&self, id: &str, to: &str) {
            let request = Request {
                v: Request::VERSION,
                id: id.into(),
                to: to.into(),
                by: "person".into(),
                at: Timestamp::from_millis(1_000_000_000_000),
                ask: Asked::Stop,
                text: String::new(),
            };
            request::send(&self.run.inbox(), &request, &self.key).unwrap();
        }
    }

    #[test]
    fn a_request_is_obeyed_once_and_kept() {
        let fixture = Fixture::new();
        let mut ears = Ears::default();
        fixture.send("1", "kabcde/2");
        let want = Event::Child { child: ChildId::new(2, "b"), event: ChildEvent::Stop { by: By::User } };
        assert_eq!(fixture.take(&mut ears), [want]);
        assert_eq!(fixture.take(&mut ears), []);
        assert_eq!(std::fs::read_dir(fixture.run.seen()).unwrap().count(), 1);
        assert!(ears.notes().is_empty());
    }

    #[test]
    fn a_request_that_cannot_be_moved_away_is_told_and_not_obeyed_again() {
        let fixture = Fixture::new();
        let mut ears = Ears::default();
        // Neither a rename onto a directory that is not there nor the removal of a directory can succeed.
        std::fs::write(fixture.run.seen(), "in the way").unwrap();
        std::fs::create_dir(fixture.run.inbox().join("1.md")).unwrap();
        fixture.take(&mut ears);
        let notes = ears.notes();
        assert!(notes.iter().any(|note| note.contains("inbox/1.md was taken and cannot be moved away")), "{notes:?}");
        fixture.take(&mut ears);
        assert_eq!(ears.notes(), notes, "it is told once");
    }

    #[test]
    fn thousands_of_stray_files_make_a_few_notes() {
        let fixture = Fixture::new();
        let mut ears = Ears::default();
        for number in 0..500 {
            std::fs::write(fixture.run.inbox().join(format!("{number:04}-{}.md", "x".repeat(200))), "stop!").unwrap();
        }
        assert!(fixture.take(&mut ears).is_empty());
        let notes = ears.notes();
        assert_eq!(notes.len(), REFUSALS_TOLD + 1);
        assert_eq!(notes.last().map(String::as_str), Some("492 more files in the inbox: not obeyed"));
        assert!(notes.iter().all(|note| note.chars().count() <= NOTE), "{notes:?}");
    }
}
