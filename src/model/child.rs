//! What is asked of a child, how it can fail, and what holds its work.

use serde::{Deserialize, Serialize};

use super::budget::Budget;
use super::persona::Persona;

/// What every door builds: `fan`, `run`, a plan step, `ctx.agent()`, the `agent` tool, MCP, an inbox file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ChildSpec {
    /// One line, for people.
    pub(crate) label: String,
    /// The task, byte for byte.
    #[serde(skip)]
    pub(crate) prompt: String,
    pub(crate) persona: Persona,
    /// The persona's system prompt.
    #[serde(skip)]
    pub(crate) system: String,
    /// `provider/name`.
    pub(crate) model: String,
    #[serde(default)]
    pub(crate) harness: Harness,
    /// A recipe by name, already chosen.
    pub(crate) workspace: String,
    /// The project's directory, absolute.
    pub(crate) cwd: String,
    #[serde(default)]
    pub(crate) budget: Budget,
    /// Attempts beyond the first.
    pub(crate) retries: u32,
    #[serde(default)]
    pub(crate) evidence: Evidence,
    /// Numbers of children that must be Done first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) needs: Vec<u32>,
    /// Whether questions may wait for a person.
    #[serde(default)]
    pub(crate) ask: Ask,
    /// The session to go on with, of an earlier run: the path of its `session.jsonl`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) resume: Option<String>,
    /// The session id asked for; a new one otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) session: Option<String>,
    /// A JSON Schema that the report must satisfy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) schema: Option<serde_json::Value>,
}

/// Who runs the loop inside the window.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Harness {
    #[default]
    Decode,
}

/// Whether a report must rest on at least one successful tool call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Evidence {
    Required,
    #[default]
    NotRequired,
}

/// Whether a question waits for a person even if nobody was seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ask {
    Always,
    #[default]
    IfSomebodyIsThere,
}

/// Why a child failed: a kind for the machine and a sentence for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Failure {
    pub(crate) kind: FailureKind,
    pub(crate) detail: String,
}

impl Failure {
    pub(crate) fn new(kind: FailureKind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into() }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.detail.is_empty() { write!(f, "{}", self.kind) } else { write!(f, "{}: {}", self.kind, self.detail) }
    }
}

/// The closed set of reasons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FailureKind {
    /// No place to work in, or the work could not be secured.
    Workspace,
    /// The process ended without a report.
    Crash,
    /// No heartbeat, or no progress.
    Silence,
    /// Its time was over.
    Wall,
    /// A limit on money, tokens or requests.
    Budget,
    /// It was asked wrongly: exit 2.
    Usage,
    /// The model cannot be reached or refused the key: exit 5.
    Provider,
    /// Something is missing or broken here: exit 6.
    Missing,
    /// A bug in decode: exit 70.
    Internal,
    /// A permission it could not do without.
    Permission,
    /// The report was empty.
    Empty,
    /// The report rested on no successful tool call.
    NoEvidence,
    /// The report is not the JSON that was asked for, however often it was sent back.
    Schema,
    /// It survived KILL.
    WontDie,
}

impl FailureKind {
    /// Whether another attempt may mend it.
    pub(crate) const fn is_retryable(self) -> bool {
        match self {
            Self::Workspace | Self::Crash | Self::Silence | Self::Internal | Self::Empty | Self::NoEvidence => true,
            Self::Wall
            | Self::Budget
            | Self::Usage
            | Self::Provider
            | Self::Missing
            | Self::Permission
            | Self::Schema
            | Self::WontDie => false,
        }
    }

    /// The exit code this reason gives a run in which every failure has it.
    pub(crate) const fn exit_code(self) -> u8 {
        match self {
            Self::Wall | Self::Budget => 4,
            Self::Usage => 2,
            Self::Provider => 5,
            Self::Missing | Self::Workspace => 6,
            Self::Internal => 70,
            Self::Crash
            | Self::Silence
            | Self::Permission
            | Self::Empty
            | Self::NoEvidence
            | Self::Schema
            | Self::WontDie => 1,
        }
    }
}

impl std::fmt::Display for FailureKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Workspace => "workspace",
            Self::Crash => "crash",
            Self::Silence => "silence",
            Self::Wall => "time is over",
            Self::Budget => "budget",
            Self::Usage => "asked wrongly",
            Self::Provider => "model",
            Self::Missing => "something is missing",
            Self::Internal => "a bug in decode",
            Self::Permission => "permission",
            Self::Empty => "empty report",
            Self::NoEvidence => "report without evidence",
            Self::Schema => "wrong report",
            Self::WontDie => "will not die",
        })
    }
}

/// A prepared workspace: made once per child, entered by each attempt, ended once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Lease {
    /// The recipe that made it.
    pub(crate) recipe: String,
    /// Where the child works, absolute.
    pub(crate) path: String,
    /// The project it was made from, absolute.
    pub(crate) project: String,
    /// The branch its work ends on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) branch: Option<String>,
    /// The commit it started from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) base: Option<String>,
}

impl Lease {
    /// The recipe that makes no copy.
    pub(crate) const SHARED: &'static str = "shared";

    /// The child works in the project itself and not in a copy of its own.
    pub(crate) fn is_shared(&self) -> bool {
        self.recipe == Self::SHARED
    }
}

/// What collecting found: the work is secured when this exists.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Collected {
    /// Paths the child changed, relative to the project.
    #[serde(default)]
    pub(crate) files_changed: Vec<String>,
    /// The branch that holds them, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) branch: Option<String>,
    /// Whether nothing would be lost by removing the workspace.
    #[serde(default)]
    pub(crate) clean: bool,
    /// Citations of the report that do not hold.
    #[serde(default)]
    pub(crate) unsound_citations: Vec<String>,
    /// What a person should know: the child was elsewhere, something is only in the workspace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) notes: Vec<String>,
}
