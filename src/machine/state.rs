//! Where a child is and what is remembered of it. Data only: `child.rs` alone changes it.

use serde::{Deserialize, Serialize};

use super::{By, Exit, Skip, Spent, Why};
use crate::model::brief::Start;
use crate::model::budget::Budget;
use crate::model::child::{Collected, Failure, Lease};
use crate::model::report::Outcome;
use crate::model::time::Timestamp;

/// Where a child is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub(crate) enum State {
    Waiting,
    Preparing,
    Opening,
    Running,
    Exiting,
    Stopping {
        stage: Stage,
        #[serde(flatten)]
        why: Why,
    },
    Collecting {
        why: Option<Why>,
    },
    Cooling {
        until: Timestamp,
        after: Failure,
    },
    Parked {
        until: Timestamp,
    },
    Done {
        outcome: Outcome,
    },
    Failed {
        failure: Failure,
    },
    Cancelled {
        by: By,
    },
    Skipped {
        reason: Skip,
    },
}

/// How hard an attempt is being stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Stage {
    Asked,
    Term,
    Kill,
}

impl State {
    pub(crate) const fn is_final(&self) -> bool {
        match self {
            Self::Done { .. } | Self::Failed { .. } | Self::Cancelled { .. } | Self::Skipped { .. } => true,
            Self::Waiting
            | Self::Preparing
            | Self::Opening
            | Self::Running
            | Self::Exiting
            | Self::Stopping { .. }
            | Self::Collecting { .. }
            | Self::Cooling { .. }
            | Self::Parked { .. } => false,
        }
    }

    /// Slots are held from Preparing to Collecting.
    pub(crate) const fn holds_slot(&self) -> bool {
        match self {
            Self::Preparing
            | Self::Opening
            | Self::Running
            | Self::Exiting
            | Self::Stopping { .. }
            | Self::Collecting { .. } => true,
            Self::Waiting
            | Self::Cooling { .. }
            | Self::Parked { .. }
            | Self::Done { .. }
            | Self::Failed { .. }
            | Self::Cancelled { .. }
            | Self::Skipped { .. } => false,
        }
    }
}

/// All that is remembered of a child; what the journal holds after each transition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Memory {
    pub(crate) state: State,
    /// Bumped by every transition.
    pub(crate) epoch: u64,
    /// The attempt that runs or ran last; 0 before the first.
    pub(crate) attempt: u32,
    /// Attempts that count against `allowed`; a parked one does not.
    pub(crate) used: u32,
    /// One and the retries, and one more each time a person asks.
    pub(crate) allowed: u32,
    pub(crate) nudges: u32,
    /// How the next attempt begins.
    pub(crate) next: Start,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) lease: Option<Lease>,
    pub(crate) grant: Budget,
    pub(crate) spent: Spent,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) exit: Option<Exit>,
    /// What went wrong outside the child, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) trouble: Option<String>,
    #[serde(default)]
    pub(crate) collected: Collected,
    /// When the child first left Waiting, and when it became final.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) started: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ended: Option<Timestamp>,
}
