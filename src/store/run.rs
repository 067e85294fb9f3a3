//! The run's own files: made by whoever asks, then written by its one supervisor.
//!
//! Deliberately absent: the journal (`journal.rs`), which is the truth, and the files of attempts.

use std::fs::{DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{RunDir, StateRoot};
use crate::files::{self, Durability, FileError, Locked};
use crate::front_matter::{self, FrontMatterError};
use crate::model::child::ChildSpec;
use crate::model::id::{ChildId, RUN_LENGTH, RunId, RunName};
use crate::model::run::{Place, RunFile, RunSpec, RunState};
use crate::model::time::Timestamp;
use crate::model::usage::Usage;

/// A prompt may have 10 MB; a spec holds it and a system prompt.
const SPEC_LIMIT: u64 = 24 * 1024 * 1024;

#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("`{path}`: {source}")]
    Header { path: PathBuf, source: FrontMatterError },
    #[error("`{path}` was written by a newer decode (version {version})")]
    Newer { path: PathBuf, version: u32 },
    #[error("failed to make `{path}`")]
    Make { path: PathBuf, source: std::io::Error },
    #[error("failed to read `{path}`")]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("the state directory `{path}` belongs to another user")]
    Foreign { path: PathBuf },
    #[error("the state directory `{path}` is not a directory")]
    NotADirectory { path: PathBuf },
    #[error("no run is named `{name}`")]
    Unknown { name: String },
    #[error("`{name}` may be any of {}", candidates.join(", "))]
    Ambiguous { name: String, candidates: Vec<String> },
    #[error("no run of this project yet")]
    NoneYet,
    #[error("another supervisor drives this run")]
    Locked,
}

/// Makes the state directory if it is not there (0700) and refuses one that is not ours.
pub(crate) fn open_root(path: &Path) -> Result<StateRoot, RunError> {
    let make = |source| RunError::Make { path: path.to_owned(), source };
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|source| match source.kind() {
        std::io::ErrorKind::AlreadyExists => RunError::NotADirectory { path: path.to_owned() },
        _ => make(source),
    })?;
    let metadata = std::fs::metadata(path).map_err(make)?;
    if metadata.uid() != nix::unistd::geteuid().as_raw() {
        return Err(RunError::Foreign { path: path.to_owned() });
    }
    if metadata.mode() & 0o077 != 0 {
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o700)).map_err(make)?;
    }
    let root = StateRoot::at(path);
    make_directory(&root.runs())?;
    // Looked at now: to whoever may not list it, it would seem to hold no run.
    std::fs::read_dir(root.runs()).map_err(|source| RunError::Unreadable { path: root.runs(), source })?;
    Ok(root)
}

/// What is asked of a new run, all but its name.
#[derive(Debug, Clone)]
pub(crate) struct NewRun {
    /// Its `run` is replaced by the name that was free.
    pub(crate) spec: RunSpec,
    pub(crate) children: Vec<ChildSpec>,
}

/// Makes a run's directory with the specs of its children. The name is claimed by `mkdir`.
pub(crate) fn create(
    root: &StateRoot,
    new: NewRun,
    mut random: impl FnMut() -> [u8; RUN_LENGTH],
) -> Result<RunSpec, RunError> {
    let (run, directory) = loop {
        let run = RunId::from_random(random());
        let directory = root.run(&run);
        match DirBuilder::new().mode(0o700).create(directory.path()) {
            Ok(()) => break (run, directory),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(source) => return Err(RunError::Make { path: directory.path().to_owned(), source }),
        }
    };
    let spec = RunSpec { run, ..new.spec };
    match fill(&directory, &spec, &new.children) {
        Ok(()) => Ok(spec),
        Err(error) => {
            // Nothing half made stays behind; the first error is the one worth telling.
            let _ = std::fs::remove_dir_all(directory.path());
            Err(error)
        }
    }
}

fn fill(directory: &RunDir, spec: &RunSpec, children: &[ChildSpec]) -> Result<(), RunError> {
    for path in [directory.inbox(), directory.children()] {
        make_directory(&path)?;
    }
    let mut specs = Vec::new();
    for (index, child) in children.iter().enumerate() {
        let id = ChildId::new(index as u32 + 1, &child.label);
        let place = directory.child(&id);
        make_directory(place.path())?;
        write_spec(&place.spec(), child)?;
        specs.push(place.spec());
    }
    match spec.place {
        // Before there is a run to drive.
        Place::Window | Place::Bare => files::sync_all(&specs)?,
        // Nothing of such a run outlives a power cut; its first request need not wait for the disk.
        Place::Here => drop(std::thread::spawn(move || files::sync_all(&specs))),
    }
    let file = RunFile {
        v: RunFile::VERSION,
        state: RunState::Made,
        spec: spec.clone(),
        spent: Usage::ZERO,
        ended: None,
        exit: None,
        supervisor: None,
    };
    write_run(directory, &file, "")
}

pub(crate) fn make_directory(path: &Path) -> Result<(), RunError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(|source| RunError::Make { path: path.to_owned(), source })
}

/// The header of `spec.md`; the body holds the prompt, then the system prompt.
#[derive(Serialize, Deserialize)]
struct SpecFile {
    v: u32,
    #[serde(flatten)]
    spec: ChildSpec,
    prompt_bytes: usize,
    system_bytes: usize,
}

fn write_spec(path: &Path, spec: &ChildSpec) -> Result<(), RunError> {
    let header =
        SpecFile { v: 1, spec: spec.clone(), prompt_bytes: spec.prompt.len(), system_bytes: spec.system.len() };
    let body = format!("{}\n\n{}", spec.prompt, spec.system);
    let text = front_matter::write(&header, &body);
    // A header that its reader would refuse is refused before anything is started.
    front_matter::split(&text).map_err(|source| RunError::Header { path: path.to_owned(), source })?;
    Ok(files::write(path, text.as_bytes(), Durability::Renamed)?)
}

fn read_spec(path: &Path) -> Result<ChildSpec, RunError> {
    let text = files::read(path, SPEC_LIMIT)?;
    let damaged = |message: &str| RunError::Header {
        path: path.to_owned(),
        source: FrontMatterError::Yaml { line: 1, message: message.to_owned() },
    };
    let (file, body) =
        front_matter::read::<SpecFile>(&text).map_err(|source| RunError::Header { path: path.to_owned(), source })?;
    if file.v > 1 {
        return Err(RunError::Newer { path: path.to_owned(), version: file.v });
    }
    let mut spec = file.spec;
    let prompt = body.get(..file.prompt_bytes).ok_or_else(|| damaged("`prompt_bytes` does not fit the body"))?;
    let start = file.prompt_bytes + 2;
    let system = body
        .get(start..start.saturating_add(file.system_bytes))
        .ok_or_else(|| damaged("`system_bytes` does not fit the body"))?;
    prompt.clone_into(&mut spec.prompt);
    system.clone_into(&mut spec.system);
    Ok(spec)
}

/// All children of a run, in the order asked.
pub(crate) fn read_specs(directory: &RunDir) -> Result<Vec<(ChildId, ChildSpec)>, RunError> {
    read_specs_but(directory, |_| false, Damaged::Refused)
}

/// What becomes of a child whose spec cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Damaged {
    /// A supervisor must not drive half a run.
    Refused,
    /// A viewer shows the others.
    PassedOver,
}

/// The children that are not known yet, in the order asked.
pub(crate) fn read_specs_but(
    directory: &RunDir,
    is_known: impl Fn(&ChildId) -> bool,
    damaged: Damaged,
) -> Result<Vec<(ChildId, ChildSpec)>, RunError> {
    let path = directory.children();
    let wrong = |source| FileError::Read { path: path.clone(), source };
    let mut children = Vec::new();
    for entry in std::fs::read_dir(&path).map_err(wrong)? {
        let name = entry.map_err(wrong)?.file_name().to_string_lossy().into_owned();
        if let Ok(id) = ChildId::try_from(name)
            && !is_known(&id)
        {
            match (read_spec(&directory.child(&id).spec()), damaged) {
                (Ok(spec), _) => children.push((id, spec)),
                (Err(error), Damaged::Refused) => return Err(error),
                (Err(_), Damaged::PassedOver) => {}
            }
        }
    }
    children.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(children)
}

pub(crate) fn write_run(directory: &RunDir, file: &RunFile, table: &str) -> Result<(), RunError> {
    let text = front_matter::write(file, table);
    Ok(files::write(&directory.run_file(), text.as_bytes(), Durability::Renamed)?)
}

pub(crate) fn read_run(directory: &RunDir) -> Result<RunFile, RunError> {
    let path = directory.run_file();
    let text = files::read(&path, 4 * 1024 * 1024)?;
    let (file, _) =
        front_matter::read::<RunFile>(&text).map_err(|source| RunError::Header { path: path.clone(), source })?;
    if file.v > RunFile::VERSION {
        return Err(RunError::Newer { path, version: file.v });
    }
    Ok(file)
}

/// Becomes the one supervisor of a run for as long as the file is held. The kernel frees it when the holder dies.
pub(crate) fn lock(directory: &RunDir) -> Result<Locked, RunError> {
    let path = directory.lock();
    let wrong = |source| RunError::Make { path: path.clone(), source };
    let file = File::options().create(true).truncate(false).write(true).open(&path).map_err(wrong)?;
    Locked::at_once(file).map_err(wrong)?.ok_or(RunError::Locked)
}

/// Whether a supervisor holds the run now.
pub(crate) fn is_driven(directory: &RunDir) -> bool {
    matches!(lock(directory), Err(RunError::Locked))
}

/// The directories that bear a run's name, in no order.
fn names(root: &StateRoot) -> impl Iterator<Item = RunId> {
    let entries = std::fs::read_dir(root.runs()).into_iter().flatten();
    entries.filter_map(|entry| RunId::try_from(entry.ok()?.file_name().to_string_lossy().into_owned()).ok())
}

/// Every run there is, newest last. Those whose file does not parse are in [`damaged`].
pub(crate) fn list(root: &StateRoot) -> Vec<(RunId, RunFile)> {
    let mut runs: Vec<(Timestamp, RunId, RunFile)> = names(root)
        .filter_map(|run| {
            let file = read_run(&root.run(&run)).ok()?;
            Some((file.spec.created, run, file))
        })
        .collect();
    runs.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
    runs.into_iter().map(|(_, run, file)| (run, file)).collect()
}

/// Runs whose file cannot be read, with the reason. Their reports are there all the same.
pub(crate) fn damaged(root: &StateRoot) -> Vec<(RunId, RunError)> {
    let mut damaged: Vec<(RunId, RunError)> = names(root)
        .filter_map(|run| match read_run(&root.run(&run)) {
            // One that is being made, or was never begun, has no file yet.
            Err(RunError::File(error)) if error.is_missing() => None,
            Err(error) => Some((run, error)),
            Ok(_) => None,
        })
        .collect();
    damaged.sort_by(|a, b| a.0.cmp(&b.0));
    damaged
}

/// The runs that agents of `run` asked for, newest last, each behind the number of the child whose agent it was.
pub(crate) fn of_agents(root: &StateRoot, run: &RunId) -> Vec<(u32, RunFile)> {
    let number = |file: &RunFile| {
        let (of, number) = file.spec.parent.as_deref()?.split_once('/')?;
        if of == run.as_str() { number.parse().ok() } else { None }
    };
    list(root).into_iter().filter_map(|(_, file)| Some((number(&file)?, file))).collect()
}

/// The run a person named.
pub(crate) fn resolve(root: &StateRoot, name: &RunName, project: &Path) -> Result<RunId, RunError> {
    match name {
        RunName::Last => list(root)
            .into_iter()
            .rev()
            .find(|(_, file)| Path::new(&file.spec.project) == project && file.spec.parent.is_none())
            .map(|(run, _)| run)
            .ok_or(RunError::NoneYet),
        RunName::Prefix(prefix) => {
            let mut found: Vec<RunId> = names(root).filter(|run| run.as_str().starts_with(prefix.as_str())).collect();
            found.sort();
            match found.len() {
                0 => Err(RunError::Unknown { name: prefix.clone() }),
                1 => Ok(found.remove(0)),
                _ => Err(RunError::Ambiguous {
                    name: prefix.clone(),
                    candidates: found.iter().map(ToString::to_string).collect(),
                }),
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::model::budget::Budget;
    use crate::model::run::OnExit;

    pub(crate) fn new_run(prompts: &[&str]) -> NewRun {
        let spec = RunSpec {
            run: RunId::from_random([0; RUN_LENGTH]),
            goal: "g: #x".into(),
            project: "/p".into(),
            created: Timestamp::from_millis(1_796_074_899_007),
            place: Place::Bare,
            width: 4,
            limits: Budget::RUN,
            on_exit: OnExit::Detach,
            fold_bytes: 16_000,
            parent: None,
            depth: 0,
        };
        let child = |prompt: &&str| ChildSpec {
            prompt: (*prompt).to_owned(),
            system: "be brief\n---\n".into(),
            label: crate::text::one_line(prompt, 80),
            ..crate::machine::child::tests::spec()
        };
        NewRun { spec, children: prompts.iter().map(child).collect() }
    }

    #[test]
    fn what_was_asked_is_read_back_byte_for_byte() {
        let directory = tempfile::tempdir().unwrap();
        let root = open_root(&directory.path().join("state")).unwrap();
        let prompts = ["a\r\nb; `id` $HOME \"'\\", "---\nx: y\n---\n#(touch x) 🙂", "\u{1b}[31m\u{0}"];
        let new = new_run(&prompts);
        let spec = create(&root, new.clone(), || [7; RUN_LENGTH]).unwrap();
        let specs = read_specs(&root.run(&spec.run)).unwrap();
        assert_eq!(specs.iter().map(|(_, spec)| spec.clone()).collect::<Vec<_>>(), new.children);
        assert_eq!(read_run(&root.run(&spec.run)).unwrap().spec, spec);
    }

    #[test]
    fn a_taken_name_is_never_used_again() {
        let directory = tempfile::tempdir().unwrap();
        let root = open_root(directory.path()).unwrap();
        let mut byte = 0;
        let mut random = || {
            byte += 1;
            [byte / 2; RUN_LENGTH]
        };
        let runs: Vec<RunId> = (0..3).map(|_| create(&root, new_run(&["x"]), &mut random).unwrap().run).collect();
        assert_eq!(runs.iter().collect::<std::collections::BTreeSet<_>>().len(), 3);
    }

    #[test]
    fn a_run_is_found_by_a_prefix_that_only_it_has() {
        let directory = tempfile::tempdir().unwrap();
        let root = open_root(directory.path()).unwrap();
        let one = create(&root, new_run(&["x"]), || [0; RUN_LENGTH]).unwrap().run;
        let two = create(&root, new_run(&["x"]), || [0, 0, 0, 0, 0, 1]).unwrap().run;
        let named = |text: &str| resolve(&root, &RunName::Prefix(text.to_owned()), Path::new("/p"));
        assert_eq!(named(one.as_str()).unwrap(), one);
        assert!(matches!(named("aa"), Err(RunError::Ambiguous { candidates, .. }) if candidates.len() == 2));
        assert!(matches!(named("zz"), Err(RunError::Unknown { .. })));
        assert_eq!(resolve(&root, &RunName::Last, Path::new("/p")).unwrap(), two);
        assert!(matches!(resolve(&root, &RunName::Last, Path::new("/q")), Err(RunError::NoneYet)));
    }

    #[test]
    fn one_supervisor_holds_a_run() {
        let directory = tempfile::tempdir().unwrap();
        let root = open_root(directory.path()).unwrap();
        let run = root.run(&create(&root, new_run(&["x"]), || [1; RUN_LENGTH]).unwrap().run);
        let held = lock(&run).unwrap();
        assert!(is_driven(&run));
        assert!(matches!(lock(&run), Err(RunError::Locked)));
        drop(held);
        assert!(!is_driven(&run));
    }
}
