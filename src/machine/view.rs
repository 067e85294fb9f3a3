//! A run as it is shown: from what is remembered of each child and what it last said, to snapshots and the fold.
//!
//! The supervisor has the parts in memory, a viewer reads them from files; both show the same.

use super::fold::{Section, SectionState};
use super::snapshot::{ChildSnapshot, RunSnapshot, StateName};
use super::state::{Memory, Stage, State};
use crate::model::child::ChildSpec;
use crate::model::id::ChildId;
use crate::model::report::{Outcome, Report};
use crate::model::run::{RunFile, RunState};
use crate::model::status::{Status, WindowState};
use crate::model::time::Timestamp;
use crate::model::usage::Usage;

/// All that is known of one child.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Part {
    pub(crate) id: ChildId,
    pub(crate) spec: ChildSpec,
    /// `None` before its first transition.
    pub(crate) memory: Option<Memory>,
    pub(crate) status: Option<Status>,
    pub(crate) report: Option<Report>,
    /// Where the report of its current attempt is, or will be.
    pub(crate) report_path: String,
    pub(crate) session: Option<String>,
    /// The end of its log, for those without a report.
    pub(crate) log_tail: Option<String>,
}

/// The run as `ps`, the viewer and JSON show it.
pub(crate) fn run(file: &RunFile, parts: &[Part]) -> RunSnapshot {
    let spec = &file.spec;
    let running = match file.state {
        RunState::Made | RunState::Running => Some(spec.created),
        RunState::Ended => None,
    };
    let elapsed_s = match (running, file.ended) {
        (None, Some(ended)) => ended.since_s(spec.created),
        (Some(_), _) | (None, None) => 0.0,
    };
    RunSnapshot {
        run: spec.run.clone(),
        goal: spec.goal.clone(),
        state: file.state,
        parent: spec.parent.clone(),
        project: spec.project.clone(),
        created: spec.created,
        elapsed_s,
        running_since: running,
        limits: spec.limits,
        spent: parts.iter().map(usage).sum(),
        width: spec.width,
        children: parts.iter().map(child).collect(),
    }
}

fn usage(part: &Part) -> Usage {
    let Some(memory) = &part.memory else { return Usage::ZERO };
    // A status or report that came after the last record is newer than it.
    let now = match (&part.report, &part.status) {
        (Some(report), _) => report.usage,
        (None, Some(status)) => status.usage,
        (None, None) => memory.spent.now,
    };
    memory.spent.before.plus(now)
}

fn child(part: &Part) -> ChildSnapshot {
    let memory = part.memory.as_ref();
    let state = memory.map_or(&State::Waiting, |memory| &memory.state);
    let started = memory.and_then(|memory| memory.started);
    let ended = memory.and_then(|memory| memory.ended);
    let elapsed_s = match (started, ended) {
        (Some(started), Some(ended)) => ended.since_s(started),
        _ => 0.0,
    };
    let usage = usage(part);
    let lease = memory.and_then(|memory| memory.lease.as_ref());
    let live = matches!(state, State::Running | State::Exiting | State::Stopping { .. });
    ChildSnapshot {
        id: part.id.clone(),
        label: part.spec.label.clone(),
        state: name(state),
        attempts: memory.map_or(0, tried),
        doing: doing(part, state),
        requests: usage.requests,
        elapsed_s,
        running_since: started.filter(|_| ended.is_none()),
        usage,
        tool_calls: part
            .report
            .as_ref()
            .map(|report| report.tool_calls)
            .or_else(|| part.status.as_ref().map(|status| status.tool_calls))
            .unwrap_or_default(),
        files_changed: memory.map(|memory| memory.collected.files_changed.clone()).unwrap_or_default(),
        outcome: part.report.as_ref().map(|report| report.outcome),
        error: error(state).or_else(|| limit(part)),
        report_path: part.report.as_ref().map(|_| part.report_path.clone()),
        workspace: lease.map_or_else(|| part.spec.workspace.clone(), |lease| lease.path.clone()),
        branch: memory.and_then(|memory| memory.collected.branch.clone()).or_else(|| lease?.branch.clone()),
        question: part.status.as_ref().filter(|_| live).and_then(|status| status.question.clone()),
        session: part.session.clone(),
    }
}

/// Attempts that count: one that a provider's limit ended was no try of the child's.
fn tried(memory: &Memory) -> u32 {
    if memory.attempt == 0 { 0 } else { memory.used.max(1) }
}

/// The word for a state; the machine has no other use for it.
pub(crate) const fn name(state: &State) -> StateName {
    match state {
        State::Waiting => StateName::Waiting,
        State::Preparing => StateName::Preparing,
        State::Opening => StateName::Opening,
        State::Running => StateName::Running,
        State::Exiting => StateName::Exiting,
        State::Stopping { .. } => StateName::Stopping,
        State::Collecting { .. } => StateName::Collecting,
        State::Cooling { .. } => StateName::Cooling,
        State::Parked { .. } => StateName::Parked,
        State::Done { .. } => StateName::Done,
        State::Failed { .. } => StateName::Failed,
        State::Cancelled { .. } => StateName::Cancelled,
        State::Skipped { .. } => StateName::Skipped,
    }
}

fn doing(part: &Part, state: &State) -> String {
    match state {
        State::Waiting if part.spec.needs.is_empty() => "waits for a slot".to_owned(),
        State::Waiting => {
            let needs: Vec<String> = part.spec.needs.iter().map(ToString::to_string).collect();
            format!("waits for {}", needs.join(", "))
        }
        State::Preparing => format!("prepares its workspace ({})", part.spec.workspace),
        State::Opening => "opens its window".to_owned(),
        State::Running => match &part.status {
            Some(status) if status.question.is_some() => "asks you".to_owned(),
            Some(status) => {
                let phase = status.phase.to_string();
                let doing = if status.doing.is_empty() { &phase } else { &status.doing };
                let lost = if status.window == WindowState::Gone { " · no window" } else { "" };
                format!("{doing}{lost}")
            }
            None => "starts".to_owned(),
        },
        State::Exiting => "has reported".to_owned(),
        State::Stopping { stage: Stage::Asked, why } => format!("asked to wrap up: {why}"),
        State::Stopping { stage: Stage::Term, why } => format!("is being ended: {why}"),
        State::Stopping { stage: Stage::Kill, why } => format!("is being killed: {why}"),
        State::Collecting { .. } => "secures its work".to_owned(),
        State::Cooling { until, after } => format!("tries again at {}: {after}", clock(*until)),
        State::Parked { until } => format!("waits for the provider's limit until {until}"),
        State::Done { .. } | State::Failed { .. } | State::Cancelled { .. } | State::Skipped { .. } => {
            error(state).unwrap_or_default()
        }
    }
}

/// Hours, minutes and seconds of a time, UTC.
fn clock(at: Timestamp) -> String {
    let text = at.to_string();
    text.get(11..19).map_or(text.clone(), |time| format!("{time}Z"))
}

fn error(state: &State) -> Option<String> {
    match state {
        State::Failed { failure } => Some(failure.to_string()),
        State::Cancelled { by } => Some(format!("stopped by {by}")),
        State::Skipped { reason } => Some(reason.to_string()),
        State::Waiting
        | State::Preparing
        | State::Opening
        | State::Running
        | State::Exiting
        | State::Stopping { .. }
        | State::Collecting { .. }
        | State::Cooling { .. }
        | State::Parked { .. }
        | State::Done { .. } => None,
    }
}

/// Which limit ended a child that is done all the same.
fn limit(part: &Part) -> Option<String> {
    let state = part.memory.as_ref().map(|memory| &memory.state)?;
    let State::Done { outcome: Outcome::Limit } = state else { return None };
    Some(part.report.as_ref()?.error.as_ref()?.to_string())
}

/// What each child brings to the fold.
pub(crate) fn sections(parts: &[Part]) -> Vec<Section> {
    parts.iter().map(section).collect()
}

fn section(part: &Part) -> Section {
    let state = part.memory.as_ref().map_or(&State::Waiting, |memory| &memory.state);
    let shown = match state {
        State::Done { outcome } => SectionState::Done { outcome: *outcome },
        State::Failed { failure } => SectionState::Failed { reason: failure.to_string() },
        State::Cancelled { by } => SectionState::Cancelled { by: by.to_string() },
        State::Skipped { reason } => SectionState::Skipped { reason: reason.to_string() },
        State::Waiting
        | State::Preparing
        | State::Opening
        | State::Running
        | State::Exiting
        | State::Stopping { .. }
        | State::Collecting { .. }
        | State::Cooling { .. }
        | State::Parked { .. } => SectionState::Unfinished { doing: doing(part, state) },
    };
    let collected = part.memory.as_ref().map(|memory| &memory.collected);
    let mut notes: Vec<String> = limit(part).into_iter().map(|why| format!("its limit: {why}")).collect();
    if let Some(branch) = collected.and_then(|collected| collected.branch.as_ref()) {
        let files = collected.map_or(0, |collected| collected.files_changed.len());
        notes.push(format!("its work is on branch {branch} ({})", crate::text::count(files, "file", "files")));
    }
    notes.extend(collected.into_iter().flat_map(|collected| collected.notes.iter().cloned()));
    if let Some(tries) = part.memory.as_ref().map(tried).filter(|tries| *tries > 1) {
        notes.push(format!("{tries} attempts"));
    }
    Section {
        id: part.id.clone(),
        label: part.spec.label.clone(),
        state: shown,
        report: part.report.as_ref().map(|report| report.body.clone()),
        report_path: part.report_path.clone(),
        unsound_citations: collected.map(|collected| collected.unsound_citations.clone()).unwrap_or_default(),
        log_tail: part.log_tail.clone(),
        co_driven: part.report.as_ref().map_or(0, |report| report.co_driven),
        notes,
    }
}
