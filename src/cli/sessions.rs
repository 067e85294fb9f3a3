//! Sessions of earlier runs, for `--continue` and `--resume`.
//!
//! Deliberately absent: what a session holds (`store/session.rs`), and a verb of its own: an id that is not known lists
//! those that are.

use std::path::{Path, PathBuf};

use super::error::CliError;
use crate::machine::view::Part;
use crate::model::run::RunFile;
use crate::store::{RunDir, StateRoot, parts, run as runs, session};
use crate::text;

/// Sessions that an error names.
const LISTED: usize = 5;

/// A session that can go on.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) id: Option<String>,
    pub(super) path: PathBuf,
    /// What it was about, in one line.
    goal: String,
}

/// The sessions of one project that a person began there, newest first: children of other runs are not theirs.
pub(super) fn of_project(state: &StateRoot, project: &Path) -> Vec<Found> {
    let here = |file: &RunFile| file.spec.parent.is_none() && Path::new(&file.spec.project) == project;
    let mut found = Vec::new();
    for (run, _) in runs::list(state).into_iter().rev() {
        if let Ok((file, parts)) = parts::read(&state.run(&run))
            && let [only] = parts.as_slice()
            && here(&file)
        {
            found.extend(of_part(&state.run(&run), &file, only));
        }
    }
    found.retain(distinct());
    found
}

/// A session that went on in a later run is listed once, as it is now.
fn distinct() -> impl FnMut(&Found) -> bool {
    let mut known = std::collections::BTreeSet::new();
    move |found| known.insert(found.id.clone().unwrap_or_else(|| found.path.to_string_lossy().into_owned()))
}

/// The session of a run's first child.
pub(super) fn of_run(directory: &RunDir) -> Result<Found, CliError> {
    let (file, found) = parts::read(directory)?;
    let first = found.first().ok_or_else(|| CliError::usage("this run has no children"))?;
    of_part(directory, &file, first).ok_or_else(|| CliError::usage("this run has no session yet"))
}

/// The newest session whose id is this or begins so, of whatever project.
pub(super) fn by_id(state: &StateRoot, id: &str, project: &Path) -> Result<Found, CliError> {
    let mut all: Vec<Found> = Vec::new();
    for (run, _) in runs::list(state).into_iter().rev() {
        let directory = state.run(&run);
        if let Ok((file, parts)) = parts::read(&directory) {
            let fits = |part: &&Part| part.session.as_ref().is_some_and(|session| session.starts_with(id));
            all.extend(parts.iter().filter(fits).filter_map(|part| of_part(&directory, &file, part)));
        }
    }
    all.retain(distinct());
    if let Some(exact) = all.iter().position(|found| found.id.as_deref() == Some(id)) {
        return Ok(all.swap_remove(exact));
    }
    match all.len() {
        1 => Ok(all.remove(0)),
        0 => Err(CliError::usage(format!("no session has the id `{id}`")).hint(listed(&of_project(state, project)))),
        _ => Err(CliError::usage(format!("`{id}` may be any of {} sessions", all.len())).hint(listed(&all))),
    }
}

fn listed(sessions: &[Found]) -> String {
    if sessions.is_empty() {
        return "this project has no sessions; `decode ps --all` lists the runs of all".to_owned();
    }
    let line = |found: &Found| format!("{}  {}", found.id.as_deref().unwrap_or("?"), text::one_line(&found.goal, 60));
    let lines: Vec<String> = sessions.iter().take(LISTED).map(line).collect();
    format!("the last ones are\n{}", lines.join("\n"))
}

/// The session of a child's newest attempt that has one.
fn of_part(directory: &RunDir, file: &RunFile, part: &Part) -> Option<Found> {
    let newest = part.memory.as_ref().map_or(1, |memory| memory.attempt.max(1));
    let child = directory.child(&part.id);
    let path = (1..=newest).rev().map(|attempt| child.attempt(attempt).session()).find(|path| path.is_file())?;
    // What cannot be read is said when it is gone on with.
    let id = session::id_of(&path).ok().flatten().or_else(|| part.session.clone());
    Some(Found { id, path, goal: file.spec.goal.clone() })
}
