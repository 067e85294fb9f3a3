//! What becomes of an attempt whose work is collected: the first rule that fits.

use super::{By, Exit, Why};
use crate::model::child::{Evidence, Failure, FailureKind};
use crate::model::report::{Outcome, Report};
use crate::model::time::Timestamp;

/// All a verdict rests on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case<'a> {
    pub(crate) why: Option<Why>,
    pub(crate) report: Option<&'a Report>,
    pub(crate) exit: Exit,
    pub(crate) evidence: Evidence,
    /// Whether an attempt of this child was nudged before.
    pub(crate) nudges: u32,
    pub(crate) attempts_left: u32,
    /// What went wrong outside the child.
    pub(crate) trouble: Option<&'a str>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Verdict {
    Done(Outcome),
    Cancelled(By),
    Parked(Timestamp),
    Failed(Failure),
    /// A new session, told why its report could not be used.
    Nudge(FailureKind),
    /// The same session goes on.
    Resume(Failure),
}

/// Decides. The order is the design's.
pub(crate) fn judge(case: &Case<'_>) -> Verdict {
    let unusable = case.report.and_then(|report| report.unusable(case.evidence));
    if let Some(report) = case.report
        && unusable.is_none()
        && matches!(report.outcome, Outcome::Done | Outcome::Limit)
    {
        return Verdict::Done(report.outcome);
    }
    if let Some(Why::Asked(by)) = case.why {
        return Verdict::Cancelled(by);
    }
    if let Some(report) = case.report {
        if report.exit == 75
            && let Some(until) = report.limited_until
        {
            return Verdict::Parked(until);
        }
        if report.outcome == Outcome::Cancelled && case.why.is_none() {
            return Verdict::Cancelled(By::Signal);
        }
    }
    let failure = reason(case, unusable);
    if !failure.kind.is_retryable() || case.attempts_left == 0 {
        return Verdict::Failed(failure);
    }
    match failure.kind {
        FailureKind::Empty | FailureKind::NoEvidence if case.nudges > 0 => Verdict::Failed(failure),
        FailureKind::Empty | FailureKind::NoEvidence => Verdict::Nudge(failure.kind),
        _ => Verdict::Resume(failure),
    }
}

/// Why the attempt is no success, in the order of the design: limits, its own error, its exit, its report.
fn reason(case: &Case<'_>, unusable: Option<FailureKind>) -> Failure {
    match case.why {
        Some(Why::Wall) => return Failure::new(FailureKind::Wall, "it did not report within its time"),
        Some(Why::OverGrant) => return Failure::new(FailureKind::Budget, "it spent more than its grant"),
        Some(why @ (Why::Silence | Why::Stall)) => return Failure::new(FailureKind::Silence, why.to_string()),
        Some(why @ Why::NeverStarted) => return Failure::new(FailureKind::Crash, why.to_string()),
        Some(Why::Lingered | Why::Asked(_)) | None => {}
    }
    if let Some(error) = case.report.and_then(|report| report.error.clone()) {
        return error;
    }
    // An outcome of `done` or `limit` that cannot be used is judged by what is wrong with it, not by its exit.
    if let (Some(kind), Some(report)) = (unusable, case.report)
        && matches!(report.outcome, Outcome::Done | Outcome::Limit)
    {
        let detail = match report.outcome {
            Outcome::Limit => "a limit was reached before it had anything to report",
            Outcome::Done | Outcome::Failed | Outcome::Cancelled => "",
        };
        let kind = if report.outcome == Outcome::Limit { FailureKind::Budget } else { kind };
        return Failure::new(kind, detail);
    }
    let status = case.report.map_or(case.exit, |report| Exit::Status(report.exit));
    match status {
        Exit::Status(2) => Failure::new(FailureKind::Usage, "exit 2"),
        Exit::Status(4) => Failure::new(FailureKind::Budget, "exit 4"),
        Exit::Status(5) => Failure::new(FailureKind::Provider, "exit 5"),
        Exit::Status(6) => Failure::new(FailureKind::Missing, "exit 6"),
        Exit::Status(70) => Failure::new(FailureKind::Internal, "exit 70"),
        exit @ (Exit::Status(_) | Exit::Signal(_) | Exit::Unknown) => {
            let detail = case.trouble.map_or_else(|| format!("{exit}, without a report"), str::to_owned);
            Failure::new(FailureKind::Crash, detail)
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::model::usage::Usage;

    /// A report of two requests that rests on one tool call.
    pub(crate) fn report(outcome: Outcome, body: &str) -> Report {
        Report {
            v: 1,
            outcome,
            exit: 0,
            nonce: "n".into(),
            session: "s".into(),
            usage: Usage { requests: 2, ..Usage::ZERO },
            tool_calls: 1,
            evidence: 1,
            duration_s: 1.0,
            files_changed: vec![],
            files_left_out: 0,
            citations: vec![],
            error: None,
            limited_until: None,
            co_driven: 0,
            body: body.into(),
        }
    }

    fn case(report: Option<&Report>) -> Case<'_> {
        Case {
            why: None,
            report,
            exit: Exit::Status(0),
            evidence: Evidence::Required,
            nudges: 0,
            attempts_left: 1,
            trouble: None,
        }
    }

    #[test]
    fn a_usable_report_counts_whatever_the_exit_and_whoever_stopped_it() {
        let done = report(Outcome::Done, "found");
        for exit in [Exit::Status(0), Exit::Status(1), Exit::Signal(9), Exit::Unknown] {
            for why in [None, Some(Why::Wall), Some(Why::Asked(By::User)), Some(Why::Lingered)] {
                assert_eq!(judge(&Case { why, exit, ..case(Some(&done)) }), Verdict::Done(Outcome::Done));
            }
        }
    }

    #[test]
    fn a_stop_by_a_person_cancels_and_is_not_retried() {
        let partial = report(Outcome::Cancelled, "half");
        let why = Some(Why::Asked(By::User));
        assert_eq!(judge(&Case { why, ..case(Some(&partial)) }), Verdict::Cancelled(By::User));
        assert_eq!(judge(&Case { why, ..case(None) }), Verdict::Cancelled(By::User));
    }

    #[test]
    fn an_empty_or_baseless_report_is_nudged_once() {
        let empty = report(Outcome::Done, " \n");
        assert_eq!(judge(&case(Some(&empty))), Verdict::Nudge(FailureKind::Empty));
        let baseless = Report { evidence: 0, ..report(Outcome::Done, "from memory") };
        assert_eq!(judge(&case(Some(&baseless))), Verdict::Nudge(FailureKind::NoEvidence));
        let again = Case { nudges: 1, ..case(Some(&baseless)) };
        assert!(matches!(judge(&again), Verdict::Failed(Failure { kind: FailureKind::NoEvidence, .. })));
        let unasked = Case { evidence: Evidence::NotRequired, ..case(Some(&baseless)) };
        assert_eq!(judge(&unasked), Verdict::Done(Outcome::Done));
    }

    #[test]
    fn a_crash_resumes_while_attempts_are_left() {
        for exit in [Exit::Signal(9), Exit::Status(101), Exit::Status(70), Exit::Unknown] {
            assert!(matches!(judge(&Case { exit, ..case(None) }), Verdict::Resume(_)), "{exit}");
            assert!(matches!(judge(&Case { exit, attempts_left: 0, ..case(None) }), Verdict::Failed(_)), "{exit}");
        }
        let silent = Case { why: Some(Why::Silence), ..case(None) };
        assert!(matches!(judge(&silent), Verdict::Resume(Failure { kind: FailureKind::Silence, .. })));
    }

    #[test]
    fn what_another_attempt_cannot_mend_fails_at_once() {
        for (status, kind) in
            [(2, FailureKind::Usage), (4, FailureKind::Budget), (5, FailureKind::Provider), (6, FailureKind::Missing)]
        {
            let verdict = judge(&Case { exit: Exit::Status(status), ..case(None) });
            assert!(matches!(verdict, Verdict::Failed(failure) if failure.kind == kind));
        }
        for (why, kind) in [(Why::Wall, FailureKind::Wall), (Why::OverGrant, FailureKind::Budget)] {
            let verdict = judge(&Case { why: Some(why), ..case(None) });
            assert!(matches!(verdict, Verdict::Failed(failure) if failure.kind == kind));
        }
    }

    #[test]
    fn a_usage_limit_parks_until_its_time() {
        let until = Timestamp::from_millis(5);
        let limited = Report { exit: 75, limited_until: Some(until), evidence: 0, ..report(Outcome::Failed, "") };
        assert_eq!(judge(&Case { attempts_left: 0, ..case(Some(&limited)) }), Verdict::Parked(until));
    }
}
