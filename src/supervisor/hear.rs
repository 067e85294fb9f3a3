//! Files to events. Each file is read when it appeared and again at every re-scan; what was read already is skipped.
//!
//! Deliberately absent: belief in a file alone. Status and report need the attempt's nonce, a request its signature.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::machine::{By, ChildEvent, Event};
use crate::model::id::{ChildId, Target};
use crate::model::request::Asked;
use crate::store::key::Key;
use crate::store::observed::{self, Found};
use crate::store::{AttemptDir, RunDir, request};

/// What is known of the files of current attempts.
#[derive(Debug, Default)]
pub(super) struct Ears {
    nonces: HashMap<(ChildId, u32), String>,
    read: HashMap<PathBuf, SystemTime>,
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

/// Takes the requests that lie in the run's inbox, open or closed. Unsigned ones are put aside and told, never obeyed.
pub(super) fn requests(
    run: &RunDir,
    inbox: &Path,
    name: &str,
    children: &[ChildId],
    key: &Key,
) -> (Vec<Event>, Vec<String>) {
    let mut names: Vec<String> = vec![name.to_owned()];
    names.extend(children.iter().map(|child| format!("{name}/{}", child.number())));
    let (mut events, mut notes) = (Vec::new(), Vec::new());
    let Ok(entries) = std::fs::read_dir(inbox) else { return (events, notes) };
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    for path in paths {
        let file = path.file_name().unwrap_or_default().to_os_string();
        if file.to_string_lossy().starts_with('.') {
            continue;
        }
        let aside = match request::read(&path, &names, key) {
            Ok(request) => {
                events.extend(meaning(&request.to, request.ask, children));
                run.seen()
            }
            Err(refusal) => {
                notes.push(format!("inbox/{} is not obeyed: {refusal}", file.to_string_lossy()));
                run.seen().join("refused")
            }
        };
        // A file that cannot be moved would be obeyed again; it is removed instead.
        let moved = std::fs::create_dir_all(&aside).and_then(|()| std::fs::rename(&path, aside.join(&file)));
        if moved.is_err() {
            let _ = std::fs::remove_file(&path);
        }
    }
    (events, notes)
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
