//! `brief.md` and `claim.md`: all a child needs to start, and the proof that it did.

use serde::{Deserialize, Serialize};

use super::budget::Budget;
use super::child::{ChildSpec, Lease};
use super::id::{ChildId, RunId};
use super::time::Timestamp;
use super::usage::Usage;

/// The header of a brief. The body holds the prompt, the system prompt and the undelivered messages, each as
/// long as the header says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Brief {
    pub(crate) v: u32,
    pub(crate) run: RunId,
    pub(crate) child: ChildId,
    pub(crate) attempt: u32,
    pub(crate) nonce: String,
    pub(crate) session: String,
    pub(crate) start: Start,
    pub(crate) grant: Budget,
    /// What earlier attempts of this child spent, so that totals are whole.
    #[serde(default)]
    pub(crate) spent: Usage,
    pub(crate) lease: Lease,
    pub(crate) depth: u32,
    /// Where the one-time file with environment and key lies; read and unlinked first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) environment: Option<String>,
    /// Messages that an earlier attempt did not read.
    #[serde(skip)]
    pub(crate) undelivered: Vec<String>,
    pub(crate) spec: ChildSpec,
    #[serde(default)]
    pub(crate) prompt_bytes: usize,
    #[serde(default)]
    pub(crate) system_bytes: usize,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) undelivered_bytes: Vec<usize>,
}

impl Brief {
    pub(crate) const VERSION: u32 = 1;
}

/// How an attempt begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Start {
    /// A new session with the task.
    Fresh,
    /// A new session with the task and why the last report could not be used.
    Nudged(String),
    /// The session of that attempt goes on; its directory is beside this one.
    Resumed(u32),
    /// A person asked for more after the end: the session goes on with this text.
    Continued(u32, String),
}

/// Created with O_EXCL by the child, or by a supervisor that gives the attempt up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Claim {
    pub(crate) v: u32,
    #[serde(default)]
    pub(crate) revoked: bool,
    pub(crate) at: Timestamp,
    #[serde(default)]
    pub(crate) pid: i32,
    /// Start time of the process in clock ticks after boot: a pid alone may be somebody else's.
    #[serde(default)]
    pub(crate) start_time: u64,
    #[serde(default)]
    pub(crate) boot_id: String,
    #[serde(default)]
    pub(crate) host: String,
    #[serde(default)]
    pub(crate) process_group: i32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pane: Option<String>,
}

impl Claim {
    pub(crate) const VERSION: u32 = 1;
}
