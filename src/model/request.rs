//! What people and other processes ask through files: to a run's supervisor, and to a running child.
//!
//! A file is not an authority: each is signed. The signature is the adapter's business; here is what is signed.

use serde::{Deserialize, Serialize};

use super::time::Timestamp;

/// The header of an inbox file; its body is the text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Request {
    pub(crate) v: u32,
    pub(crate) id: String,
    /// `RUN`, `RUN/3` or `RUN/3.2`: whom it is for, so that a file moved elsewhere is worth nothing.
    pub(crate) to: String,
    /// Who asks: `send pts/4`, `supervisor`, `person`.
    pub(crate) by: String,
    pub(crate) at: Timestamp,
    pub(crate) ask: Asked,
    #[serde(skip)]
    pub(crate) text: String,
}

impl Request {
    pub(crate) const VERSION: u32 = 1;
}

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Asked {
    /// To a child: text for the next turn boundary.
    Steer,
    /// To a child: text for when it would stop.
    FollowUp,
    /// To a child: the answer to the question that waits.
    Answer,
    /// To a child: report with what there is, now.
    WrapUp,
    /// To a supervisor: end this child, or the run.
    Stop,
    /// To a supervisor: one more attempt.
    Retry,
}
