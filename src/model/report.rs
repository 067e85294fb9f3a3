//! `report.md`: the only thing that crosses back from a child.

use serde::{Deserialize, Serialize};

use super::child::{Failure, FailureKind};
use super::time::Timestamp;
use super::usage::Usage;

/// The header of a report; its body is the text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) v: u32,
    pub(crate) outcome: Outcome,
    /// The exit status that follows.
    pub(crate) exit: u8,
    /// Proves that the attempt itself wrote this.
    pub(crate) nonce: String,
    pub(crate) session: String,
    pub(crate) usage: Usage,
    /// All tool calls, and those that succeeded.
    pub(crate) tool_calls: u64,
    pub(crate) evidence: u64,
    pub(crate) duration_s: f64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) files_changed: Vec<String>,
    /// Files that were changed and are not named above, because the header has a bound.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) files_left_out: u64,
    /// `path:line` places named in the body.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) citations: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<Failure>,
    /// With exit 75: when the provider takes requests again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) limited_until: Option<Timestamp>,
    /// Turns that a person took part in.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) co_driven: u64,
    #[serde(skip)]
    pub(crate) body: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Report {
    pub(crate) const VERSION: u32 = 1;

    /// Whether the fold can use it: not empty, and resting on something where that is asked.
    pub(crate) fn unusable(&self, evidence: super::child::Evidence) -> Option<FailureKind> {
        if self.body.trim().is_empty() {
            return Some(FailureKind::Empty);
        }
        match evidence {
            super::child::Evidence::Required if self.evidence == 0 => Some(FailureKind::NoEvidence),
            super::child::Evidence::Required | super::child::Evidence::NotRequired => None,
        }
    }
}

/// How a child's work ended, in its own words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    Done,
    /// A limit was reached; what there is, is reported.
    Limit,
    Failed,
    Cancelled,
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Done => "done",
            Self::Limit => "limit",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        })
    }
}
