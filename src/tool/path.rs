//! Where a path that a model wrote leads: beneath the workspace, or to a correction.
//!
//! What a rule was held against is resolved here, and resolved again when the call runs, because a link may have been
//! swapped in between. Deliberately absent: what is done with the file.

use std::fs::Metadata;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use super::{Answer, Scope};
use crate::files::{FileError, Root};
use crate::machine::gate;
use crate::model::rule::Subject;
use crate::model::tool_name::ToolName;
use crate::text;

/// A place beneath the workspace.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) root: Root,
    /// Links resolved; empty for the workspace itself.
    pub(super) relative: PathBuf,
}

impl Place {
    /// The key under which the model's last look at the file is remembered.
    pub(super) fn absolute(&self) -> PathBuf {
        self.root.path().join(&self.relative)
    }

    pub(super) fn shown(&self) -> String {
        shown(&self.relative)
    }

    pub(super) fn metadata(&self) -> std::io::Result<Metadata> {
        std::fs::symlink_metadata(self.absolute())
    }

    /// Opens a regular file; anything else is refused without waiting for it.
    pub(super) fn open(&self) -> Result<std::fs::File, Answer> {
        let name = self.shown();
        // Looked at before it is opened, because opening a device can already do something.
        let metadata = self.metadata().map_err(|error| self.failed(&error))?;
        refuse_special(&name, &metadata)?;
        let file = self.root.read(&self.relative).map_err(|error| match error {
            FileError::Read { source, .. } | FileError::Write { source, .. } => self.failed(&source),
            FileError::TooLarge { .. } | FileError::NotText { .. } | FileError::Outside { .. } => {
                Answer::correction(error.to_string())
            }
        })?;
        refuse_special(&name, &file.metadata().map_err(|error| self.failed(&error))?)?;
        Ok(file)
    }

    fn failed(&self, error: &std::io::Error) -> Answer {
        if error.kind() == std::io::ErrorKind::NotFound {
            return self.missing();
        }
        Answer::correction(format!("`{}` cannot be opened: {error}", self.shown()))
    }

    /// A correction for a path that is not there, with a name that is.
    pub(super) fn missing(&self) -> Answer {
        let name = self.relative.file_name().unwrap_or_default().to_string_lossy();
        let directory = self.relative.parent().unwrap_or(Path::new(""));
        let entries = std::fs::read_dir(self.root.path().join(directory)).map(|entries| {
            let names = entries.flatten().take(2_000).map(|entry| entry.file_name().to_string_lossy().into_owned());
            names.collect::<Vec<_>>()
        });
        let Ok(mut entries) = entries else {
            return Answer::correction(format!("`{}` does not exist, nor its directory", self.shown()));
        };
        entries.sort();
        let near = text::closest(&name, entries.iter().map(String::as_str));
        let near = near.map(|near| format!("; did you mean `{}`?", shown(&directory.join(near)))).unwrap_or_default();
        Answer::correction(format!("`{}` does not exist{near}", self.shown()))
    }
}

/// What the gate's rules are held against.
pub(super) fn subject(scope: &Scope, path: &str) -> Subject {
    let named = Path::new(path);
    if granted(scope, path).is_some() {
        return Subject::None;
    }
    let outside = |path: &Path| Subject::Path(path.to_string_lossy().into_owned());
    match Root::open(&scope.root).and_then(|root| find(&root, path)) {
        Ok(relative) => Subject::Path(shown(&relative)),
        Err(FileError::Outside { path, .. }) => outside(&path),
        // What cannot be resolved is never taken to be inside.
        Err(_) => outside(&scope.root.join(named)),
    }
}

/// A place outside the workspace that may be read: our own spilled output, which was the answer to a call that was
/// allowed, and the folders of skills, unless a rule denies them.
pub(super) fn granted(scope: &Scope, path: &str) -> Option<Place> {
    let named = Path::new(path);
    let within = |directory: &PathBuf| {
        let root = Root::open(directory).ok()?;
        let relative = named.is_absolute().then(|| root.resolve(named).ok())??;
        Some(Place { root, relative })
    };
    let denied = |place: &Place| gate::denies_path(ToolName::Read, &place.absolute().to_string_lossy(), &scope.deny);
    within(&scope.spill).or_else(|| scope.readable.iter().find_map(within).filter(|place| !denied(place)))
}

/// Resolves a path for a call that is allowed.
pub(super) fn locate(scope: &Scope, tool: ToolName, path: &str) -> Result<Place, Answer> {
    if path.is_empty() {
        return Err(Answer::correction("the path is empty"));
    }
    let root =
        Root::open(&scope.root).map_err(|error| Answer::correction(format!("the workspace is gone: {error}")))?;
    let relative = find(&root, path).map_err(|error| match error {
        FileError::Outside { .. } => Answer::correction(format!(
            "`{path}` leads outside the workspace `{}`; use a path inside it",
            root.path().display()
        )),
        FileError::Read { source, .. } => Answer::correction(format!("`{path}` leads nowhere: {source}")),
        FileError::Write { .. } | FileError::TooLarge { .. } | FileError::NotText { .. } => {
            Answer::correction(error.to_string())
        }
    })?;
    let place = Place { root, relative };
    if gate::denies_path(tool, &place.shown(), &scope.deny) {
        return Err(Answer::correction(format!("a rule denies `{}` to {tool}", place.shown())));
    }
    Ok(place)
}

fn find(root: &Root, path: &str) -> Result<PathBuf, FileError> {
    let relative = root.resolve(Path::new(path))?;
    let is_missing = || std::fs::symlink_metadata(root.path().join(&relative)).is_err();
    if path.contains('\u{fffd}')
        && is_missing()
        && let Some(name) = same_when_shown(root, &relative)
    {
        return root.resolve(&relative.with_file_name(name));
    }
    Ok(relative)
}

/// The entry that a listing shows by this name although its bytes are no text.
fn same_when_shown(root: &Root, relative: &Path) -> Option<std::ffi::OsString> {
    let shown = relative.file_name()?.to_str()?;
    let directory = root.path().join(relative.parent()?);
    std::fs::read_dir(directory)
        .ok()?
        .flatten()
        .map(|entry| entry.file_name())
        .find(|name| name.to_string_lossy() == shown)
}

/// A relative path as the model sees it.
pub(super) fn shown(relative: &Path) -> String {
    if relative.as_os_str().is_empty() { ".".to_owned() } else { relative.to_string_lossy().into_owned() }
}

fn refuse_special(name: &str, metadata: &Metadata) -> Result<(), Answer> {
    let kind = metadata.file_type();
    let what = match () {
        () if kind.is_file() => return Ok(()),
        () if kind.is_dir() => {
            return Err(Answer::correction(format!("`{name}` is a directory; use glob to see what is in it")));
        }
        () if kind.is_fifo() => "a pipe",
        () if kind.is_socket() => "a socket",
        () if kind.is_symlink() => "a link that has just changed",
        () => "a device",
    };
    Err(Answer::correction(format!("`{name}` is {what}, not a file")))
}

/// Whether a file holds secrets for commands, which neither read nor grep shows.
pub(super) fn is_env_file(relative: &Path) -> bool {
    let name = relative.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    name == ".env" || name.strip_prefix(".env.").is_some_and(|kind| !matches!(kind, "example" | "sample" | "template"))
}

/// Remembers how the model has last seen a file.
pub(super) fn remember(scope: &Scope, place: &Place, metadata: &Metadata) {
    if let Ok(modified) = metadata.modified() {
        scope.seen().insert(place.absolute(), modified);
    }
}
