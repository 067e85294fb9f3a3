//! The files of a workspace, in order: what glob and grep both go through.
//!
//! Hidden files are part of it, `.git` is not, and what git ignores is left out unless asked for. Links are not
//! followed. Deliberately absent: patterns.

use std::path::{Path, PathBuf};

use ignore::{Walk, WalkBuilder};

use super::{Answer, Running, Scope};

/// Whether files that git ignores are part of the walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ignored {
    LeftOut,
    Included,
}

/// All that is below `start`, sorted. Only files of the repository decide, so that it is the same on every machine.
pub(super) fn walk(start: &Path, ignored: Ignored) -> Walk {
    let obeyed = ignored == Ignored::LeftOut;
    WalkBuilder::new(start)
        .hidden(false)
        .ignore(obeyed)
        .git_ignore(obeyed)
        .git_exclude(obeyed)
        .parents(obeyed)
        .git_global(false)
        // The tree may be a copy without a repository.
        .require_git(false)
        .sort_by_file_path(Path::cmp)
        .filter_entry(|entry| entry.depth() == 0 || entry.file_name() != ".git")
        .build()
}

/// Whether the call is to end now.
pub(super) fn is_cut(scope: &Scope) -> bool {
    *scope.cut.borrow()
}

/// Runs a search on a thread of its own: it waits for the disk all the time.
pub(super) fn search<'a>(scope: &Scope, search: impl FnOnce(Scope) -> Answer + Send + 'static) -> Running<'a> {
    let scope = scope.clone();
    Box::pin(async move {
        match tokio::task::spawn_blocking(move || search(scope)).await {
            Ok(answer) => answer,
            Err(error) => Answer::correction(format!("the search failed: {error}")),
        }
    })
}

/// The path below the root, if it is.
pub(super) fn below(root: &Path, path: &Path) -> Option<PathBuf> {
    path.strip_prefix(root).ok().map(Path::to_owned)
}
