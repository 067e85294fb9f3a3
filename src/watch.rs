//! Hears that files appeared: notify, told one flat directory at a time.
//!
//! Our own reads raise events too, so only names that were created or renamed into place are passed on. An event that
//! is lost costs time and nothing else: whoever listens also lists, every few seconds and when told to.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use notify::event::{EventKind, ModifyKind, RenameMode};
use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::mpsc::UnboundedSender;

#[derive(Debug, thiserror::Error)]
pub(crate) enum WatchError {
    #[error("failed to watch files; listing them every 5 s instead")]
    Start { source: notify::Error },
    #[error("failed to watch `{path}`; it is listed every 5 s instead")]
    Add { path: PathBuf, source: notify::Error },
}

/// What was heard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Heard {
    /// A file is there, whole: it was renamed into place.
    Appeared(PathBuf),
    /// Events were lost: list everything.
    Lost,
}

/// A watcher that can be told more directories from any task.
#[derive(Clone)]
pub(crate) struct Watch {
    watcher: Arc<Mutex<RecommendedWatcher>>,
}

impl Watch {
    /// Starts to watch nothing yet; what is heard goes to `to`.
    pub(crate) fn start(to: UnboundedSender<Heard>) -> Result<Self, WatchError> {
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            for heard in sort(event) {
                // The listener is gone only when the process ends.
                let _ = to.send(heard);
            }
        })
        .map_err(|source| WatchError::Start { source })?;
        Ok(Self { watcher: Arc::new(Mutex::new(watcher)) })
    }

    /// Watches the names in one directory, not those below.
    pub(crate) fn add(&self, directory: &Path) -> Result<(), WatchError> {
        self.locked()
            .watch(directory, RecursiveMode::NonRecursive)
            .map_err(|source| WatchError::Add { path: directory.to_owned(), source })
    }

    /// Stops watching; a directory that is not watched is no error.
    pub(crate) fn remove(&self, directory: &Path) {
        let _ = self.locked().unwatch(directory);
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, RecommendedWatcher> {
        self.watcher.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

fn sort(event: notify::Result<notify::Event>) -> Vec<Heard> {
    let Ok(event) = event else { return vec![Heard::Lost] };
    if event.need_rescan() {
        return vec![Heard::Lost];
    }
    let at = match event.kind {
        EventKind::Modify(ModifyKind::Name(RenameMode::To | RenameMode::Any)) => 0,
        EventKind::Modify(ModifyKind::Name(RenameMode::Both)) => return Vec::new(),
        EventKind::Create(_) => 0,
        _ => return Vec::new(),
    };
    event
        .paths
        .into_iter()
        .skip(at)
        .filter(|path| path.file_name().is_some_and(|name| !name.to_string_lossy().starts_with('.')))
        .map(Heard::Appeared)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::{self, Durability};

    #[tokio::test]
    async fn a_file_renamed_into_place_is_heard_each_time_and_reading_it_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let (to, mut from) = tokio::sync::mpsc::unbounded_channel();
        let watch = Watch::start(to).unwrap();
        watch.add(directory.path()).unwrap();
        let path = directory.path().join("status.md");
        for round in 0..3 {
            files::write(&path, b"x", Durability::Renamed).unwrap();
            let heard = tokio::time::timeout(std::time::Duration::from_secs(5), from.recv()).await;
            assert_eq!(heard.unwrap(), Some(Heard::Appeared(path.clone())), "round {round}");
            files::read(&path, 10).unwrap();
        }
        files::write(&directory.path().join("last"), b"", Durability::Renamed).unwrap();
        let last = from.recv().await;
        assert_eq!(last, Some(Heard::Appeared(directory.path().join("last"))), "reads raised nothing in between");
    }
}
