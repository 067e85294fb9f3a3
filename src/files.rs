//! Files: written whole or not at all, read with a bound, created once, opened beneath a root.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub(crate) enum FileError {
    #[error("failed to write `{path}`")]
    Write { path: PathBuf, source: std::io::Error },
    #[error("failed to read `{path}`")]
    Read { path: PathBuf, source: std::io::Error },
    #[error("`{path}` has more than {limit} bytes")]
    TooLarge { path: PathBuf, limit: u64 },
    #[error("`{path}` is not UTF-8 text")]
    NotText { path: PathBuf },
}

impl FileError {
    /// The cause, where the world gave one.
    pub(crate) fn kind(&self) -> Option<std::io::ErrorKind> {
        match self {
            Self::Write { source, .. } | Self::Read { source, .. } => Some(source.kind()),
            Self::TooLarge { .. } | Self::NotText { .. } => None,
        }
    }

    pub(crate) fn is_missing(&self) -> bool {
        self.kind() == Some(std::io::ErrorKind::NotFound)
    }
}

/// Whether a file must survive a power cut before the next step is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    /// Renamed into place; a reader sees it whole or not at all.
    Renamed,
    /// Also on the disk when the call returns.
    Synced,
}

/// Writes a file beside its name and renames it into place. Mode 0600; the temporary name starts with a dot.
pub(crate) fn write(path: &Path, content: &[u8], durability: Durability) -> Result<(), FileError> {
    let wrong = |source| FileError::Write { path: path.to_owned(), source };
    let directory = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new().prefix(".new-").tempfile_in(directory).map_err(wrong)?;
    file.write_all(content).map_err(wrong)?;
    if durability == Durability::Synced {
        file.as_file().sync_data().map_err(wrong)?;
    }
    file.persist(path).map_err(|error| wrong(error.error))?;
    if durability == Durability::Synced {
        sync_directory(directory).map_err(wrong)?;
    }
    Ok(())
}

/// Creates a file that must not exist yet, whole from the start. `Ok(false)` if it was there.
///
/// A hard link of a finished file is the one call that both fails when the name is taken and never shows half a file.
pub(crate) fn create(path: &Path, content: &[u8]) -> Result<bool, FileError> {
    let wrong = |source| FileError::Write { path: path.to_owned(), source };
    let directory = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new().prefix(".new-").tempfile_in(directory).map_err(wrong)?;
    file.write_all(content).map_err(wrong)?;
    match file.persist_noclobber(path) {
        Ok(_) => Ok(true),
        Err(error) if error.error.kind() == std::io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(wrong(error.error)),
    }
}

/// Reads a text file of at most `limit` bytes.
pub(crate) fn read(path: &Path, limit: u64) -> Result<String, FileError> {
    let wrong = |source| FileError::Read { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    std::fs::File::open(path).map_err(wrong)?.take(limit + 1).read_to_end(&mut bytes).map_err(wrong)?;
    if bytes.len() as u64 > limit {
        return Err(FileError::TooLarge { path: path.to_owned(), limit });
    }
    String::from_utf8(bytes).map_err(|_| FileError::NotText { path: path.to_owned() })
}

/// Makes a rename or a new name in `directory` survive a power cut.
pub(crate) fn sync_directory(directory: &Path) -> std::io::Result<()> {
    std::fs::File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_created_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("claim.md");
        assert!(create(&path, b"first").unwrap());
        assert!(!create(&path, b"second").unwrap());
        assert_eq!(read(&path, 100).unwrap(), "first");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "no temporary file stays");
    }

    #[test]
    fn a_large_file_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        write(&path, &[b'x'; 11], Durability::Synced).unwrap();
        assert!(matches!(read(&path, 10), Err(FileError::TooLarge { .. })));
        assert!(read(&path, 11).is_ok());
    }
}
