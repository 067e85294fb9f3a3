//! Decisions: events in, effects out. No IO, no async, no clock, no randomness; `now` is an argument.
//!
//! `child.rs` holds the one state machine of a child, `run.rs` the run that admits them. Deliberately absent: whoever
//! performs the effects, and files.

pub(crate) mod admission;
pub(crate) mod backoff;
pub(crate) mod child;
pub(crate) mod citation;
pub(crate) mod environment;
pub(crate) mod fold;
pub(crate) mod gate;
pub(crate) mod hosts;
pub(crate) mod model_choice;
pub(crate) mod prompts;
pub(crate) mod run;
pub(crate) mod schema;
pub(crate) mod snapshot;
pub(crate) mod spend;
pub(crate) mod state;
pub(crate) mod timers;
pub(crate) mod verdict;
pub(crate) mod view;

use serde::{Deserialize, Serialize};

use crate::model::brief::Start;
use crate::model::budget::Budget;
use crate::model::child::{Collected, Failure, Lease};
use crate::model::id::ChildId;
use crate::model::report::Report;
use crate::model::status::Status;
use crate::model::usage::Usage;

/// All that can happen to a run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Event {
    Child {
        child: ChildId,
        event: ChildEvent,
    },
    /// The run's time is over.
    Deadline,
    /// A person, or the caller's end, stops the run.
    StopAll {
        by: By,
    },
}

/// All that can happen to a child. Facts of the world carry the attempt, results and timers the epoch that asked.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ChildEvent {
    // The machine's own.
    Admitted { grant: Budget },
    NeedsSettled { skip: Skip },
    // Doors.
    Stop { by: By },
    Retry,
    // Results of effects.
    Prepared { epoch: u64, lease: Lease },
    PrepareFailed { epoch: u64, failure: Failure },
    Opened { epoch: u64 },
    OpenFailed { epoch: u64, detail: String },
    Collected { epoch: u64, collected: Collected },
    CollectFailed { epoch: u64, detail: String },
    // Facts.
    Started { attempt: u32 },
    Heard { attempt: u32, status: Box<Status> },
    Reported { attempt: u32, report: Box<Report> },
    Gone { attempt: u32, exit: Exit },
    // Timers.
    Fired { epoch: u64, timer: Timer },
    Wall { attempt: u32 },
}

impl ChildEvent {
    /// The word the journal has for it.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Admitted { .. } => "admitted",
            Self::NeedsSettled { .. } => "needs_settled",
            Self::Stop { .. } => "stop",
            Self::Retry => "retry",
            Self::Prepared { .. } => "prepared",
            Self::PrepareFailed { .. } => "prepare_failed",
            Self::Opened { .. } => "opened",
            Self::OpenFailed { .. } => "open_failed",
            Self::Collected { .. } => "collected",
            Self::CollectFailed { .. } => "collect_failed",
            Self::Started { .. } => "started",
            Self::Heard { .. } => "heard",
            Self::Reported { .. } => "reported",
            Self::Gone { .. } => "gone",
            Self::Fired { timer, .. } => timer.name(),
            Self::Wall { .. } => "wall",
        }
    }
}

/// What is to be done, in this order.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Effect {
    /// One record a transition. Always before what the transition causes.
    Journal(Box<Record>),
    /// Make the workspace, or take the one there is.
    Prepare {
        child: ChildId,
        epoch: u64,
        reuse: Option<Lease>,
    },
    /// Write the attempt's directory, watch it, open its window.
    Open {
        child: ChildId,
        epoch: u64,
        attempt: u32,
        start: Start,
        session: Session,
        grant: Budget,
        lease: Lease,
    },
    Arm {
        child: ChildId,
        epoch: u64,
        timer: Timer,
        after_ms: u64,
    },
    /// The wall belongs to the attempt and outlives its transitions.
    ArmWall {
        child: ChildId,
        attempt: u32,
        after_ms: u64,
    },
    Disarm {
        child: ChildId,
        timer: Timer,
    },
    /// Make sure that the attempt can no longer start.
    RevokeClaim {
        child: ChildId,
        attempt: u32,
    },
    /// A signed message: report with what there is.
    AskToWrapUp {
        child: ChildId,
        attempt: u32,
        why: Why,
    },
    Signal {
        child: ChildId,
        attempt: u32,
        signal: Signal,
    },
    CloseInbox {
        child: ChildId,
        attempt: u32,
    },
    /// Secure the work and check the report's citations.
    Collect {
        child: ChildId,
        epoch: u64,
        attempt: u32,
        lease: Option<Lease>,
    },
    /// Remove a workspace, if nothing in it would be lost.
    Dispose {
        child: ChildId,
        lease: Lease,
    },
    CloseWindow {
        child: ChildId,
        attempt: u32,
    },
    /// The run's time limit.
    ArmDeadline {
        after_ms: u64,
    },
    /// Every child is final: write the fold and end.
    Finish,
}

impl Effect {
    /// Whether anybody but this process can see that it was done.
    pub(crate) const fn reaches_out(&self) -> bool {
        match self {
            Self::Journal(_)
            | Self::Arm { .. }
            | Self::ArmWall { .. }
            | Self::Disarm { .. }
            | Self::ArmDeadline { .. } => false,
            Self::Prepare { .. }
            | Self::Open { .. }
            | Self::RevokeClaim { .. }
            | Self::AskToWrapUp { .. }
            | Self::Signal { .. }
            | Self::CloseInbox { .. }
            | Self::Collect { .. }
            | Self::Dispose { .. }
            | Self::CloseWindow { .. }
            | Self::Finish => true,
        }
    }
}

/// Which session an attempt speaks in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Session {
    /// One a child; kept over resumed attempts.
    Same,
    /// A nudged attempt gets a new one.
    New,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    Term,
    Kill,
}

/// What a child waits for, with its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Timer {
    Prepare,
    Open,
    /// No heartbeat.
    Silence,
    /// Heartbeats, but nothing comes of the work.
    Stall,
    Grace,
    Linger,
    Cool,
    Park,
}

impl Timer {
    #[cfg(test)]
    pub(crate) const ALL: &'static [Self] =
        &[Self::Prepare, Self::Open, Self::Silence, Self::Stall, Self::Grace, Self::Linger, Self::Cool, Self::Park];

    const fn name(self) -> &'static str {
        match self {
            Self::Prepare => "prepare_timed_out",
            Self::Open => "open_timed_out",
            Self::Silence => "silent",
            Self::Stall => "stalled",
            Self::Grace => "grace_over",
            Self::Linger => "lingers",
            Self::Cool => "cooled",
            Self::Park => "park_over",
        }
    }
}

/// Milliseconds of each timer (DESIGN section 3, "Numbers").
pub(crate) mod numbers {
    pub(crate) const PREPARE: u64 = 120_000;
    pub(crate) const OPEN: u64 = 10_000;
    pub(crate) const SILENCE: u64 = 120_000;
    pub(crate) const STALL: u64 = 15 * 60_000;
    pub(crate) const GRACE_ASKED: u64 = 10_000;
    pub(crate) const GRACE_ASKED_BY_PERSON: u64 = 3_000;
    pub(crate) const GRACE_TERM: u64 = 3_000;
    pub(crate) const GRACE_KILL: u64 = 3_000;
    pub(crate) const LINGER: u64 = 5_000;
    /// The first, second and every later cooling; jitter is added where it is armed.
    pub(crate) const COOL: [u64; 3] = [1_000, 4_000, 15_000];
    /// Files are listed this often, whatever events came.
    pub(crate) const RESCAN: u64 = 5_000;
}

/// Who stopped it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum By {
    User,
    Sibling,
    Deadline,
    /// The process that asked for the run ended.
    Caller,
    /// A signal that did not come from us.
    Signal,
}

impl std::fmt::Display for By {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::User => "a person",
            Self::Sibling => "a sibling",
            Self::Deadline => "the run's time limit",
            Self::Caller => "the end of its caller",
            Self::Signal => "a signal",
        })
    }
}

/// Why an attempt is being stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "why", content = "by")]
pub(crate) enum Why {
    Asked(By),
    Silence,
    Stall,
    Wall,
    OverGrant,
    NeverStarted,
    /// It reported and did not end.
    Lingered,
}

impl std::fmt::Display for Why {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Asked(by) => write!(f, "stopped by {by}"),
            Self::Silence => f.write_str("no heartbeat for 120 s"),
            Self::Stall => f.write_str("no progress for 15 min"),
            Self::Wall => f.write_str("its time is over"),
            Self::OverGrant => f.write_str("it spent more than its grant"),
            Self::NeverStarted => f.write_str("it did not start within 10 s"),
            Self::Lingered => f.write_str("it did not end after its report"),
        }
    }
}

/// Why a child never ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Skip {
    /// What it needs did not end well.
    Upstream,
    /// Its `when` cannot hold.
    Condition,
    /// The run's limit left nothing for it.
    Budget,
}

impl std::fmt::Display for Skip {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Upstream => "what it needs did not end well",
            Self::Condition => "its condition does not hold",
            Self::Budget => "the run's limit left nothing for it",
        })
    }
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Exit {
    Status(u8),
    Signal(i32),
    Unknown,
}

impl std::fmt::Display for Exit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Status(status) => write!(f, "exit {status}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
            Self::Unknown => f.write_str("it is gone"),
        }
    }
}

/// One line of the journal without its number: the child's whole memory after a transition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) child: ChildId,
    pub(crate) attempt: u32,
    pub(crate) event: String,
    pub(crate) state: state::Memory,
}

/// What a child spent: attempts that are over, and the one that runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Spent {
    pub(crate) before: Usage,
    pub(crate) now: Usage,
}

impl Spent {
    pub(crate) fn total(&self) -> Usage {
        self.before.plus(self.now)
    }
}
