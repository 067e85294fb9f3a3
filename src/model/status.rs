//! `status.md`: what a running child says of itself. Only shown and timed, never trusted with more.

use serde::{Deserialize, Serialize};

use super::time::Timestamp;
use super::usage::Usage;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Status {
    pub(crate) v: u32,
    pub(crate) nonce: String,
    pub(crate) phase: Phase,
    pub(crate) heartbeat: Timestamp,
    /// When something last came of the work: an answer, a tool result.
    pub(crate) progress: Timestamp,
    pub(crate) usage: Usage,
    #[serde(default)]
    pub(crate) tool_calls: u64,
    /// What it does now, in one line.
    #[serde(default)]
    pub(crate) doing: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) question: Option<Question>,
    /// Ids of messages it has read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) seen: Vec<String>,
    /// Ids of messages the model has been given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) acted_on: Vec<String>,
    /// Kept when the window is gone.
    #[serde(default)]
    pub(crate) window: WindowState,
}

impl Status {
    pub(crate) const VERSION: u32 = 1;

    /// Whether nothing is told but that the child still lives.
    pub(crate) fn only_beats_after(&self, before: &Self) -> bool {
        let before = Self { heartbeat: self.heartbeat, progress: self.progress, ..before.clone() };
        *self == before
    }
}

/// What a child is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Phase {
    Starting,
    Thinking,
    Tool,
    /// It waits for a person.
    Asking,
    /// It waits for a provider's limit.
    Limited,
    /// A person holds it.
    Held,
    WrappingUp,
    Ended,
}

impl Phase {
    /// Whether silence is no sign of trouble.
    pub(crate) const fn waits(self) -> bool {
        match self {
            Self::Asking | Self::Limited | Self::Held => true,
            Self::Starting | Self::Thinking | Self::Tool | Self::WrappingUp | Self::Ended => false,
        }
    }
}

impl std::fmt::Display for Phase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Starting => "starting",
            Self::Thinking => "thinking",
            Self::Tool => "tool",
            Self::Asking => "asks",
            Self::Limited => "limited",
            Self::Held => "held",
            Self::WrappingUp => "wrapping up",
            Self::Ended => "ended",
        })
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WindowState {
    #[default]
    Open,
    Gone,
}

/// Something a child asks a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Question {
    pub(crate) id: String,
    pub(crate) text: String,
    pub(crate) asked: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heartbeat_alone_is_no_news_and_all_else_is() {
        let before = Status {
            v: Status::VERSION,
            nonce: "n".into(),
            phase: Phase::Thinking,
            heartbeat: Timestamp::from_millis(1),
            progress: Timestamp::from_millis(1),
            usage: Usage::ZERO,
            tool_calls: 0,
            doing: "waits".into(),
            question: None,
            seen: Vec::new(),
            acted_on: Vec::new(),
            window: WindowState::Open,
        };
        let later = Status { heartbeat: Timestamp::from_millis(2), ..before.clone() };
        assert!(later.only_beats_after(&before));
        assert!(!Status { tool_calls: 1, ..later.clone() }.only_beats_after(&before));
        assert!(!Status { phase: Phase::Tool, ..later }.only_beats_after(&before));
    }
}
