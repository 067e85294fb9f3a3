//! A persona: who a child is, what it may use, how freely.

use serde::{Deserialize, Serialize};

use super::rule::Rule;
use super::tool_name::ToolName;

/// How freely tools run that no rule decides.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Mode {
    /// Reading is free; edits and commands are asked.
    #[default]
    Default,
    /// Edits are free too; commands are asked.
    Edit,
    /// Read only: edits and commands are denied.
    Plan,
    /// All is free but what a rule denies.
    Bypass,
}

impl std::str::FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "default" => Ok(Self::Default),
            "edit" | "acceptEdits" => Ok(Self::Edit),
            "plan" => Ok(Self::Plan),
            "bypass" | "bypassPermissions" => Ok(Self::Bypass),
            other => Err(format!("`{other}` is not a permission mode; write default, edit, plan or bypass")),
        }
    }
}

impl std::fmt::Display for Mode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Default => "default",
            Self::Edit => "edit",
            Self::Plan => "plan",
            Self::Bypass => "bypass",
        })
    }
}

/// What a child takes along of its persona; its prompt travels beside it, in the body of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Persona {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) description: String,
    pub(crate) tools: Vec<ToolName>,
    #[serde(default)]
    pub(crate) mode: Mode,
    #[serde(default)]
    pub(crate) allow: Vec<Rule>,
    #[serde(default)]
    pub(crate) deny: Vec<Rule>,
    /// A tier or a model; honoured unless a flag says otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) model: Option<String>,
    /// Only ever a child, never the face of a session.
    #[serde(default)]
    pub(crate) subagent: bool,
}

impl Persona {
    /// Whether no tool of it can change anything: it works in the project itself.
    pub(crate) fn only_reads(&self) -> bool {
        self.tools.iter().all(|tool| tool.only_reads())
    }
}
