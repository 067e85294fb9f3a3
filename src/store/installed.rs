//! Copies of bundled skills where other agents look for theirs: made, renewed and removed.
//!
//! What was copied is kept with its hash, so that a copy of an older decode is renewed without a word, and one that
//! somebody changed is never overwritten or removed. Deliberately absent: which agents there are.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::StateRoot;
use super::digests::{self, Digests};
use crate::files::{self, Durability, FileError, Locked};
use crate::front_matter;

const RECORD_LIMIT: u64 = 1024 * 1024;
const FILE_LIMIT: u64 = 1024 * 1024;
const FILE: &str = "SKILL.md";
const VERSION: u32 = 1;

#[derive(Debug, thiserror::Error)]
pub(crate) enum InstallError {
    #[error("failed to copy a skill")]
    File(#[from] FileError),
    #[error("failed to make or remove `{path}`")]
    Directory { path: PathBuf, source: std::io::Error },
    #[error("failed to lock `{path}`")]
    Lock { path: PathBuf, source: std::io::Error },
}

#[derive(Debug, Serialize, Deserialize)]
struct Header {
    v: u32,
}

/// Whether a file that somebody changed is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Overwrite {
    Nothing,
    Changed,
}

/// What became of one copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Installed,
    /// An older copy of ours was replaced.
    Renewed,
    /// It was there, word for word.
    UpToDate,
    /// Somebody changed it, so it stays.
    KeptChanged,
    Removed,
    NotThere,
}

/// Copies a skill into a directory of skills.
pub(crate) fn install(
    state: &StateRoot,
    skills: &Path,
    name: &str,
    text: &str,
    overwrite: Overwrite,
) -> Result<Outcome, InstallError> {
    let _lock = lock(state)?;
    let mut known = load(state);
    let path = skills.join(name).join(FILE);
    let outcome = match found(&known, &path, text)? {
        Found::Nothing => Outcome::Installed,
        Found::Same => Outcome::UpToDate,
        Found::Ours => Outcome::Renewed,
        Found::Changed => match overwrite {
            Overwrite::Nothing => return Ok(Outcome::KeptChanged),
            Overwrite::Changed => Outcome::Renewed,
        },
    };
    if outcome != Outcome::UpToDate {
        let folder = skills.join(name);
        std::fs::create_dir_all(&folder).map_err(|source| InstallError::Directory { path: folder.clone(), source })?;
        files::write(&path, text.as_bytes(), Durability::Renamed)?;
    }
    known.insert(&path.to_string_lossy(), digests::of(text.as_bytes()));
    save(state, &known)?;
    Ok(outcome)
}

/// Removes a copy that is as we made it, and its folder if nothing else is in it.
pub(crate) fn uninstall(state: &StateRoot, skills: &Path, name: &str, text: &str) -> Result<Outcome, InstallError> {
    let _lock = lock(state)?;
    let mut known = load(state);
    let folder = skills.join(name);
    let path = folder.join(FILE);
    match found(&known, &path, text)? {
        Found::Nothing => return Ok(Outcome::NotThere),
        Found::Changed => return Ok(Outcome::KeptChanged),
        Found::Same | Found::Ours => {}
    }
    std::fs::remove_file(&path).map_err(|source| InstallError::Directory { path: path.clone(), source })?;
    // A folder with more in it is somebody's.
    let _ = std::fs::remove_dir(&folder);
    known.remove(&path.to_string_lossy());
    save(state, &known)?;
    Ok(Outcome::Removed)
}

enum Found {
    Nothing,
    /// What would be written.
    Same,
    /// What an earlier decode wrote.
    Ours,
    Changed,
}

fn found(known: &Digests, path: &Path, text: &str) -> Result<Found, InstallError> {
    let there = match files::read_bytes(path, FILE_LIMIT) {
        Ok(there) => there,
        Err(error) if error.is_missing() => return Ok(Found::Nothing),
        Err(FileError::TooLarge { .. }) => return Ok(Found::Changed),
        Err(error) => return Err(error.into()),
    };
    Ok(if there == text.as_bytes() {
        Found::Same
    } else if known.holds(&path.to_string_lossy(), &there) {
        Found::Ours
    } else {
        Found::Changed
    })
}

/// What was copied. A record that cannot be read knows nothing: then every file that differs counts as changed.
fn load(state: &StateRoot) -> Digests {
    let text = files::read(&state.installed(), RECORD_LIMIT).unwrap_or_default();
    let read = front_matter::read::<Header>(&text).ok().filter(|(header, _)| header.v <= VERSION);
    read.and_then(|(_, body)| Digests::parse(body)).unwrap_or_default()
}

fn save(state: &StateRoot, known: &Digests) -> Result<(), InstallError> {
    let text = front_matter::write(&Header { v: VERSION }, &known.to_string());
    Ok(files::write(&state.installed(), text.as_bytes(), Durability::Synced)?)
}

/// One writer of the record at a time.
fn lock(state: &StateRoot) -> Result<Locked, InstallError> {
    let path = state.installed().with_extension("lock");
    let file = std::fs::File::options().create(true).truncate(false).write(true).open(&path);
    file.and_then(Locked::when_free).map_err(|source| InstallError::Lock { path, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixture {
        root: tempfile::TempDir,
        state: StateRoot,
    }

    impl Fixture {
        fn new() -> Self {
            let root = tempfile::tempdir().unwrap();
            let state = StateRoot::at(root.path().join("state"));
            std::fs::create_dir(state.path()).unwrap();
            Self { root, state }
        }

        fn skills(&self) -> PathBuf {
            self.root.path().join("home/.claude/skills")
        }

        fn file(&self) -> PathBuf {
            self.skills().join("a/SKILL.md")
        }

        fn install(&self, text: &str, overwrite: Overwrite) -> Outcome {
            install(&self.state, &self.skills(), "a", text, overwrite).unwrap()
        }

        fn uninstall(&self, text: &str) -> Outcome {
            uninstall(&self.state, &self.skills(), "a", text).unwrap()
        }
    }

    #[test]
    fn a_copy_is_made_and_renewed_and_removed_without_a_trace() {
        let fixture = Fixture::new();
        assert_eq!(fixture.uninstall("one"), Outcome::NotThere);
        assert_eq!(fixture.install("one", Overwrite::Nothing), Outcome::Installed);
        assert_eq!(fixture.install("one", Overwrite::Nothing), Outcome::UpToDate);
        assert_eq!(fixture.install("two", Overwrite::Nothing), Outcome::Renewed, "the older copy was ours");
        assert_eq!(std::fs::read_to_string(fixture.file()).unwrap(), "two");
        assert_eq!(fixture.uninstall("three"), Outcome::Removed, "also by a later decode");
        assert!(!fixture.skills().join("a").exists() && fixture.skills().exists());
    }

    #[test]
    fn what_somebody_changed_is_neither_overwritten_nor_removed_unasked() {
        let fixture = Fixture::new();
        fixture.install("one", Overwrite::Nothing);
        std::fs::write(fixture.file(), "mine").unwrap();
        assert_eq!(fixture.install("one", Overwrite::Nothing), Outcome::KeptChanged);
        assert_eq!(fixture.uninstall("one"), Outcome::KeptChanged);
        assert_eq!(std::fs::read_to_string(fixture.file()).unwrap(), "mine");
        assert_eq!(fixture.install("one", Overwrite::Changed), Outcome::Renewed);
        std::fs::write(fixture.skills().join("a/notes.md"), "mine").unwrap();
        assert_eq!(fixture.uninstall("one"), Outcome::Removed);
        assert!(fixture.skills().join("a/notes.md").exists());
    }

    #[test]
    fn without_a_record_a_copy_is_known_by_its_words() {
        let fixture = Fixture::new();
        fixture.install("one", Overwrite::Nothing);
        std::fs::write(fixture.state.installed(), "garbage").unwrap();
        assert_eq!(fixture.install("two", Overwrite::Nothing), Outcome::KeptChanged);
        assert_eq!(fixture.install("one", Overwrite::Nothing), Outcome::UpToDate);
        assert_eq!(fixture.install("two", Overwrite::Nothing), Outcome::Renewed, "it is known again");
    }
}
