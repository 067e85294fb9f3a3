//! What an attempt leaves: the end of the loop turned into `report.md` and an exit status.
//!
//! Deliberately absent: whether the report can be used, and its citations, which the supervisor checks.

use std::collections::BTreeSet;

use super::Interrupt;
use crate::model::brief::Brief;
use crate::model::child::{Failure, FailureKind};
use crate::model::report::{Outcome, Report};
use crate::model::time::Timestamp;
use crate::model::usage::Usage;

/// How the loop came to its end.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum End {
    Done,
    /// A limit, or the wish of who started it.
    Limit {
        why: String,
    },
    Failed(Failure),
    Cancelled(Interrupt),
    /// The provider takes nothing before then.
    Parked {
        until: Timestamp,
        detail: String,
    },
}

/// What was counted on the way.
#[derive(Debug, Clone, Default)]
pub(super) struct Tally {
    pub(super) usage: Usage,
    pub(super) tool_calls: u64,
    /// Calls that succeeded.
    pub(super) evidence: u64,
    pub(super) changed: BTreeSet<String>,
    /// Turns that a person took part in.
    pub(super) co_driven: u64,
}

/// The report of an attempt that ended so.
pub(super) fn report(end: End, brief: &Brief, tally: &Tally, body: &str, duration_s: f64) -> Report {
    let mut error = None;
    let mut limited_until = None;
    let (outcome, exit) = match end {
        End::Done => (Outcome::Done, 0),
        End::Limit { why } => {
            error = Some(Failure::new(FailureKind::Budget, why));
            (Outcome::Limit, FailureKind::Budget.exit_code())
        }
        End::Failed(failure) => {
            let exit = failure.kind.exit_code();
            error = Some(failure);
            (Outcome::Failed, exit)
        }
        End::Cancelled(interrupt) => (Outcome::Cancelled, interrupt.exit()),
        End::Parked { until, detail } => {
            error = Some(Failure::new(FailureKind::Provider, detail));
            limited_until = Some(until);
            (Outcome::Failed, 75)
        }
    };
    Report {
        v: Report::VERSION,
        outcome,
        exit,
        nonce: brief.nonce.clone(),
        session: brief.session.clone(),
        usage: tally.usage,
        tool_calls: tally.tool_calls,
        evidence: tally.evidence,
        duration_s,
        files_changed: tally.changed.iter().cloned().collect(),
        files_left_out: 0,
        citations: Vec::new(),
        error,
        limited_until,
        co_driven: tally.co_driven,
        body: body.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::attempt::tests::a_brief;

    #[test]
    fn each_end_has_its_exit_status() {
        let until = Timestamp::from_millis(5);
        let failed = |kind| End::Failed(Failure::new(kind, "x"));
        let cases = [
            (End::Done, Outcome::Done, 0),
            (End::Limit { why: "x".into() }, Outcome::Limit, 4),
            (failed(FailureKind::Provider), Outcome::Failed, 5),
            (failed(FailureKind::Missing), Outcome::Failed, 6),
            (failed(FailureKind::Internal), Outcome::Failed, 70),
            (failed(FailureKind::Empty), Outcome::Failed, 1),
            (End::Cancelled(Interrupt::Terminate), Outcome::Cancelled, 143),
            (End::Cancelled(Interrupt::CtrlC), Outcome::Cancelled, 130),
            (End::Parked { until, detail: "x".into() }, Outcome::Failed, 75),
        ];
        for (end, outcome, exit) in cases {
            let report = report(end.clone(), &a_brief("/w"), &Tally::default(), "text", 1.0);
            assert_eq!((report.outcome, report.exit), (outcome, exit), "{end:?}");
        }
    }
}
