//! What is wrong in a file that a person wrote: where, how bad, and what to write instead.
//!
//! Deliberately absent: printing, and the decision whether a warning stops anything.

use std::path::{Path, PathBuf};

/// One finding in one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Diagnostic {
    pub(crate) path: PathBuf,
    /// From 1, counted in the file.
    pub(crate) line: usize,
    pub(crate) severity: Severity,
    pub(crate) message: String,
    /// What to do about it, where that is known.
    pub(crate) fix: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Severity {
    /// Worth a line for who asks.
    Note,
    /// The file is used, but not all of it as written.
    Warning,
    /// The file is not used.
    Error,
}

impl Diagnostic {
    pub(crate) fn new(path: &Path, line: usize, severity: Severity, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, severity, message: message.into(), fix: None }
    }

    #[must_use]
    pub(crate) fn with_fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }
}

impl std::fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}: {}", self.path.display(), self.line, self.message)?;
        match &self.fix {
            Some(fix) => write!(f, "; {fix}"),
            None => Ok(()),
        }
    }
}
