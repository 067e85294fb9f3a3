//! Workspaces: where a child's files are. Prepared once, entered by each attempt, collected, disposed.
//!
//! Names come from run and child, so that preparing and collecting twice does the same as once. Deliberately absent:
//! when any of it happens.

use std::path::PathBuf;

use crate::model::id::{ChildId, RunId};

/// What a workspace is made for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) run: RunId,
    pub(crate) child: ChildId,
    /// A recipe that exists.
    pub(crate) recipe: String,
    /// The project's directory, absolute.
    pub(crate) project: PathBuf,
    /// `<state>/workspaces/<run>/<child>`.
    pub(crate) directory: PathBuf,
}
