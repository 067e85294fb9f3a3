//! Whether a tool call may run: deny rules, then allow rules, then the mode, then ask.

use crate::model::persona::Mode;
use crate::model::rule::{Rule, Subject};
use crate::model::tool_name::ToolName;

/// What a call is judged by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Policy {
    pub(crate) mode: Mode,
    pub(crate) allow: Vec<Rule>,
    pub(crate) deny: Vec<Rule>,
    /// Whether edits and commands are held inside a workspace of the child's own by the kernel.
    pub(crate) confinement: Confinement,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Confinement {
    /// The sandbox is in force and the workspace is the child's own: what stays inside is free.
    InForce,
    None,
}

/// What becomes of a call. The reason is for the model and the person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Decision {
    Allow,
    Ask { reason: String },
    Deny { reason: String },
}

/// Judges one call.
pub(crate) fn judge(_tool: ToolName, _subject: &Subject, _policy: &Policy) -> Decision {
    Decision::Ask { reason: String::new() }
}
