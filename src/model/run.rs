//! `run.md`: a run's limits and state. The journal is the truth; this is for people, `ps` and viewers.

use serde::{Deserialize, Serialize};

use super::budget::Budget;
use super::id::RunId;
use super::time::Timestamp;
use super::usage::Usage;

/// What was asked of a run as a whole. Written once, before its supervisor starts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RunSpec {
    pub(crate) run: RunId,
    pub(crate) goal: String,
    /// The project's directory, absolute.
    pub(crate) project: String,
    pub(crate) created: Timestamp,
    pub(crate) place: Place,
    /// Children at once.
    pub(crate) width: u32,
    pub(crate) limits: Budget,
    #[serde(default)]
    pub(crate) on_exit: OnExit,
    /// Bytes of the fold.
    pub(crate) fold_bytes: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) parent: Option<String>,
    #[serde(default)]
    pub(crate) depth: u32,
}

impl RunSpec {
    pub(crate) const FOLD_BYTES: usize = 16_000;
    pub(crate) const WIDTH: u32 = 4;
}

/// The header of `run.md`; its body is a table of the children.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RunFile {
    pub(crate) v: u32,
    pub(crate) state: RunState,
    #[serde(flatten)]
    pub(crate) spec: RunSpec,
    #[serde(default)]
    pub(crate) spent: Usage,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ended: Option<Timestamp>,
    /// The exit code a viewer ends with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) exit: Option<u8>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) supervisor: Option<Supervisor>,
}

impl RunFile {
    pub(crate) const VERSION: u32 = 1;
}

/// Which process drives a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Supervisor {
    pub(crate) pid: i32,
    pub(crate) start_time: u64,
    pub(crate) boot_id: String,
    pub(crate) host: String,
    /// The tmux socket its windows are on, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) socket: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RunState {
    /// Written, not yet driven.
    Made,
    Running,
    /// Every child is final and the fold is written.
    Ended,
}

/// Where attempts run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Place {
    /// A tmux window each.
    Window,
    /// A detached process each.
    Bare,
    /// A task of this process.
    Here,
}

/// What becomes of a run when its caller ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OnExit {
    Stop,
    #[default]
    Detach,
}
