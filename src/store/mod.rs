//! Files are the protocol: where each lies, who writes it.
//!
//! This file holds the names of everything under the state root and nothing else; no other place builds such a path.

pub(crate) mod attempt;
pub(crate) mod catalog;
pub(crate) mod context;
pub(crate) mod diagnostic;
pub(crate) mod digests;
pub(crate) mod handover;
pub(crate) mod inbox;
pub(crate) mod installed;
pub(crate) mod journal;
pub(crate) mod key;
pub(crate) mod observed;
pub(crate) mod parts;
mod persona_file;
pub(crate) mod places;
pub(crate) mod project;
pub(crate) mod request;
pub(crate) mod run;
pub(crate) mod session;
pub(crate) mod settings;
mod skill_file;
pub(crate) mod skills;
pub(crate) mod status;

use std::path::{Path, PathBuf};

use crate::model::id::{ChildId, RunId};

/// `$DECODE_STATE`, else `$XDG_STATE_HOME/decode`, else `~/.local/state/decode`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StateRoot(PathBuf);

impl StateRoot {
    /// A root whose soundness was checked by the caller.
    pub(crate) fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn runs(&self) -> PathBuf {
        self.0.join("runs")
    }

    pub(crate) fn run(&self, run: &RunId) -> RunDir {
        RunDir(self.runs().join(run.as_str()))
    }

    /// The workspace of a child.
    pub(crate) fn workspace(&self, run: &RunId, child: &ChildId) -> PathBuf {
        self.0.join("workspaces").join(run.as_str()).join(child.to_string())
    }

    pub(crate) fn key(&self) -> PathBuf {
        self.0.join("key")
    }

    /// What the user decided about projects: a file each.
    pub(crate) fn projects(&self) -> PathBuf {
        self.0.join("projects")
    }

    /// The skills that were copied to where other agents look.
    pub(crate) fn installed(&self) -> PathBuf {
        self.0.join("installed.md")
    }

    /// The lines that a person wrote in sessions of a project.
    pub(crate) fn history(&self, project: &Path) -> PathBuf {
        use sha2::Digest;
        let digest = sha2::Sha256::digest(project.as_os_str().as_encoded_bytes());
        let name: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        self.0.join("history").join(format!("{name}.jsonl"))
    }
}

/// `<state>/runs/<run>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RunDir(PathBuf);

impl RunDir {
    pub(crate) fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// The state root two levels up; `None` for a path that is not a run's.
    pub(crate) fn state(&self) -> Option<StateRoot> {
        Some(StateRoot(self.0.parent()?.parent()?.to_owned()))
    }

    pub(crate) fn run_file(&self) -> PathBuf {
        self.0.join("run.md")
    }

    pub(crate) fn journal(&self) -> PathBuf {
        self.0.join("events.jsonl")
    }

    pub(crate) fn fold(&self) -> PathBuf {
        self.0.join("fold.md")
    }

    pub(crate) fn inbox(&self) -> PathBuf {
        self.0.join("inbox")
    }

    /// Requests the supervisor has taken.
    pub(crate) fn seen(&self) -> PathBuf {
        self.0.join("seen")
    }

    /// Where the inbox itself goes when the run is over.
    pub(crate) fn closed(&self) -> PathBuf {
        self.0.join("seen").join("closed")
    }

    /// Held by the one supervisor that drives the run.
    pub(crate) fn lock(&self) -> PathBuf {
        self.0.join("lock")
    }

    /// What a supervisor without a terminal prints.
    pub(crate) fn supervisor_log(&self) -> PathBuf {
        self.0.join("supervisor.log")
    }

    pub(crate) fn children(&self) -> PathBuf {
        self.0.join("children")
    }

    pub(crate) fn child(&self, child: &ChildId) -> ChildDir {
        ChildDir(self.children().join(child.to_string()))
    }
}

/// `<run>/children/<nn>-<slug>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChildDir(PathBuf);

impl ChildDir {
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn spec(&self) -> PathBuf {
        self.0.join("spec.md")
    }

    pub(crate) fn attempt(&self, attempt: u32) -> AttemptDir {
        AttemptDir(self.0.join(attempt.to_string()))
    }
}

/// `<child>/<attempt>`: one flat directory, made and watched before the window opens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AttemptDir(PathBuf);

impl AttemptDir {
    pub(crate) fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// The directory of another attempt of the same child.
    pub(crate) fn sibling(&self, attempt: u32) -> Self {
        Self(self.0.with_file_name(attempt.to_string()))
    }

    /// The run's directory, three levels up.
    pub(crate) fn run(&self) -> Option<RunDir> {
        Some(RunDir(self.0.parent()?.parent()?.parent()?.to_owned()))
    }

    pub(crate) fn brief(&self) -> PathBuf {
        self.0.join("brief.md")
    }

    pub(crate) fn claim(&self) -> PathBuf {
        self.0.join("claim.md")
    }

    pub(crate) fn status(&self) -> PathBuf {
        self.0.join("status.md")
    }

    pub(crate) fn inbox(&self) -> PathBuf {
        self.0.join("inbox")
    }

    pub(crate) fn seen(&self) -> PathBuf {
        self.0.join("seen")
    }

    /// Where the inbox itself goes when the child takes no more.
    pub(crate) fn closed(&self) -> PathBuf {
        self.0.join("seen").join("closed")
    }

    pub(crate) fn report(&self) -> PathBuf {
        self.0.join("report.md")
    }

    pub(crate) fn session(&self) -> PathBuf {
        self.0.join("session.jsonl")
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.0.join("log.txt")
    }

    /// The one-time file with environment and key, where there is no `$XDG_RUNTIME_DIR`.
    pub(crate) fn environment(&self) -> PathBuf {
        self.0.join("environment")
    }

    /// Where long tool output is spilled to.
    pub(crate) fn spill(&self) -> PathBuf {
        self.0.join("output")
    }
}
