//! The state machine of one child. Only this file changes a child's state.
//!
//! Every transition bumps the epoch and leaves a journal record as its first effect. Facts of the world are dropped
//! unless their attempt is current; results and timers are dropped unless their epoch is. A test walks every state and
//! event against this table (`Stopping` stands for its three stages where it is not qualified; what is not listed
//! leaves the state unchanged):
//!
//! | from | event | to |
//! |---|---|---|
//! | Waiting | Admitted | Preparing |
//! | Waiting | NeedsSettled | Skipped |
//! | Waiting | Stop | Cancelled |
//! | Cooling | Stop | Cancelled |
//! | Parked | Stop | Cancelled |
//! | Waiting+lease | Stop | Collecting |
//! | Cooling+lease | Stop | Collecting |
//! | Parked+lease | Stop | Collecting |
//! | Preparing | Prepared | Opening |
//! | Preparing | PrepareFailed | Cooling |
//! | Preparing | Fired Prepare | Cooling |
//! | Preparing | Stop | Cancelled |
//! | Opening | Started | Running |
//! | Opening | Reported | Exiting |
//! | Opening | OpenFailed | Collecting |
//! | Opening | Gone | Collecting |
//! | Opening | Fired Open | Stopping(kill) |
//! | Opening | Stop | Stopping(kill) |
//! | Running | Reported | Exiting |
//! | Running | Fired Silence | Stopping(asked) |
//! | Running | Fired Stall | Stopping(asked) |
//! | Running | Wall | Stopping(asked) |
//! | Running | Heard over grant | Stopping(asked) |
//! | Running | Stop | Stopping(asked) |
//! | Running | Gone | Collecting |
//! | Exiting | Fired Linger | Stopping(term) |
//! | Exiting | Stop | Stopping(term) |
//! | Exiting | Gone | Collecting |
//! | Stopping(asked) | Fired Grace | Stopping(term) |
//! | Stopping(asked) | Stop | Stopping(term) |
//! | Stopping(term) | Fired Grace | Stopping(kill) |
//! | Stopping(kill) | Fired Grace | Failed |
//! | Stopping | Gone | Collecting |
//! | Collecting | Collected | by verdict |
//! | Collecting | CollectFailed | Failed |
//! | Cooling | Fired Cool | Waiting |
//! | Cooling | Retry | Waiting |
//! | Parked | Fired Park | Waiting |
//! | Parked | Retry | Waiting |
//! | Failed | Retry | Waiting |
//! | Cancelled | Retry | Waiting |
//! | Skipped | Retry | Waiting |
//!
//! Deliberately absent: which child may start (`admission.rs`) and what a report is worth (`verdict.rs`).

use super::admission;
use super::state::{Memory, Stage, State};
use super::verdict::{self, Case, Verdict};
use super::{By, ChildEvent, Effect, Exit, Record, Session, Signal, Spent, Timer, Why, numbers};
use crate::model::brief::Start;
use crate::model::budget::Budget;
use crate::model::child::{ChildSpec, Collected, Failure, FailureKind, Lease};
use crate::model::id::ChildId;
use crate::model::report::Report;
use crate::model::status::Status;
use crate::model::time::{Now, Timestamp};

/// One child: what was asked of it, what is remembered, and what it last said.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Child {
    pub(crate) id: ChildId,
    pub(crate) spec: ChildSpec,
    memory: Memory,
    /// The current attempt's report; on disk, so not in the journal.
    report: Option<Report>,
    status: Option<Status>,
}

impl Child {
    pub(crate) fn new(id: ChildId, spec: ChildSpec) -> Self {
        let allowed = 1 + spec.retries;
        let memory = Memory {
            state: State::Waiting,
            epoch: 0,
            attempt: 0,
            used: 0,
            allowed,
            nudges: 0,
            next: Start::Fresh,
            lease: None,
            grant: Budget::NONE,
            spent: Spent::default(),
            exit: None,
            trouble: None,
            collected: Collected::default(),
            started: None,
            ended: None,
        };
        Self { id, spec, memory, report: None, status: None }
    }

    /// The child as its last record has it.
    pub(crate) fn restored(id: ChildId, spec: ChildSpec, memory: Memory, report: Option<Report>) -> Self {
        Self { id, spec, memory, report, status: None }
    }

    pub(crate) const fn state(&self) -> &State {
        &self.memory.state
    }

    pub(crate) const fn memory(&self) -> &Memory {
        &self.memory
    }

    pub(crate) const fn report(&self) -> Option<&Report> {
        self.report.as_ref()
    }

    pub(crate) const fn status(&self) -> Option<&Status> {
        self.status.as_ref()
    }

    /// Takes one event; the first effect of a transition is its journal record.
    pub(crate) fn handle(&mut self, event: ChildEvent, now: Now) -> Vec<Effect> {
        if self.is_stale(&event) {
            return self.late(event);
        }
        let name = event.name();
        let before = self.memory.epoch;
        let mut effects = self.step(event, now);
        if self.memory.epoch != before {
            effects.insert(0, self.record(name));
        }
        effects
    }

    /// The effects that carry on a child found in this state after a restart, with nothing else known.
    pub(crate) fn resumed_effects(&self, now: Now) -> Vec<Effect> {
        let memory = &self.memory;
        match &memory.state {
            State::Preparing => vec![self.prepare(), self.arm(Timer::Prepare, numbers::PREPARE)],
            State::Opening => vec![self.open(), self.arm(Timer::Open, numbers::OPEN)],
            State::Running => {
                vec![
                    self.arm(Timer::Silence, numbers::SILENCE),
                    self.arm(Timer::Stall, numbers::STALL),
                    self.arm_wall(),
                ]
            }
            State::Exiting => vec![self.arm(Timer::Linger, numbers::LINGER)],
            State::Stopping { stage, why } => vec![self.arm(Timer::Grace, grace(*stage, *why))],
            State::Collecting { .. } => vec![self.collect()],
            State::Cooling { until, .. } => vec![self.arm(Timer::Cool, until_ms(*until, now))],
            State::Parked { until } => vec![self.arm(Timer::Park, until_ms(*until, now))],
            State::Waiting
            | State::Done { .. }
            | State::Failed { .. }
            | State::Cancelled { .. }
            | State::Skipped { .. } => vec![],
        }
    }

    fn is_stale(&self, event: &ChildEvent) -> bool {
        match event {
            ChildEvent::Prepared { epoch, .. }
            | ChildEvent::PrepareFailed { epoch, .. }
            | ChildEvent::Opened { epoch }
            | ChildEvent::OpenFailed { epoch, .. }
            | ChildEvent::Collected { epoch, .. }
            | ChildEvent::CollectFailed { epoch, .. }
            | ChildEvent::Fired { epoch, .. } => *epoch != self.memory.epoch,
            ChildEvent::Started { attempt }
            | ChildEvent::Heard { attempt, .. }
            | ChildEvent::Reported { attempt, .. }
            | ChildEvent::Gone { attempt, .. }
            | ChildEvent::Wall { attempt } => *attempt != self.memory.attempt,
            ChildEvent::Admitted { .. }
            | ChildEvent::NeedsSettled { .. }
            | ChildEvent::Stop { .. }
            | ChildEvent::Retry => false,
        }
    }

    /// A late lease or window is disposed once nobody is going to use it; all else that is late is dropped.
    fn late(&self, event: ChildEvent) -> Vec<Effect> {
        let child = self.id.clone();
        match event {
            ChildEvent::Prepared { lease, .. } if self.memory.lease.is_none() && !self.state().holds_slot() => {
                vec![Effect::Dispose { child, lease }]
            }
            ChildEvent::Opened { .. } if self.state().is_final() => {
                vec![Effect::CloseWindow { child, attempt: self.memory.attempt }]
            }
            _ => vec![],
        }
    }

    fn step(&mut self, event: ChildEvent, now: Now) -> Vec<Effect> {
        match event {
            ChildEvent::Admitted { grant } => self.admitted(grant, now),
            ChildEvent::NeedsSettled { skip } => match self.memory.state {
                State::Waiting => self.finish(State::Skipped { reason: skip }, now),
                _ => vec![],
            },
            ChildEvent::Stop { by } => self.stop(by, now),
            ChildEvent::Retry => self.retry(),
            ChildEvent::Prepared { lease, .. } => self.prepared(lease),
            ChildEvent::PrepareFailed { failure, .. } => self.prepare_failed(failure, now),
            ChildEvent::Opened { .. } => vec![],
            ChildEvent::OpenFailed { detail, .. } => self.open_failed(&detail),
            ChildEvent::Started { .. } => self.has_started(),
            ChildEvent::Heard { status, .. } => self.heard(*status),
            ChildEvent::Reported { report, .. } => self.reported(*report),
            ChildEvent::Gone { exit, .. } => self.gone(exit),
            ChildEvent::Fired { timer, .. } => self.fired(timer, now),
            ChildEvent::Wall { .. } => match self.memory.state {
                State::Running => self.ask(Why::Wall),
                _ => vec![],
            },
            ChildEvent::Collected { collected, .. } => self.collected(collected, now),
            ChildEvent::CollectFailed { detail, .. } => match self.memory.state {
                State::Collecting { .. } => {
                    self.finish(State::Failed { failure: Failure::new(FailureKind::Workspace, detail) }, now)
                }
                _ => vec![],
            },
        }
    }

    fn admitted(&mut self, grant: Budget, now: Now) -> Vec<Effect> {
        let State::Waiting = self.memory.state else { return vec![] };
        let memory = &mut self.memory;
        memory.attempt += 1;
        memory.used += 1;
        memory.grant = grant;
        memory.spent = Spent { before: memory.spent.total(), ..Spent::default() };
        memory.exit = None;
        memory.trouble = None;
        memory.started = memory.started.or(Some(now.wall));
        self.report = None;
        self.status = None;
        self.enter(State::Preparing);
        vec![self.prepare(), self.arm(Timer::Prepare, numbers::PREPARE)]
    }

    fn prepared(&mut self, lease: Lease) -> Vec<Effect> {
        let State::Preparing = self.memory.state else { return vec![] };
        self.memory.lease = Some(lease);
        self.enter(State::Opening);
        vec![self.open(), self.arm(Timer::Open, numbers::OPEN)]
    }

    fn prepare_failed(&mut self, failure: Failure, now: Now) -> Vec<Effect> {
        let State::Preparing = self.memory.state else { return vec![] };
        if failure.kind.is_retryable() && self.attempts_left() > 0 {
            return self.cool(failure, now);
        }
        self.finish(State::Failed { failure }, now)
    }

    fn open_failed(&mut self, detail: &str) -> Vec<Effect> {
        let State::Opening = self.memory.state else { return vec![] };
        self.memory.exit = Some(Exit::Unknown);
        self.memory.collected = Collected::default();
        self.memory.trouble = Some(format!("its window could not be opened: {detail}"));
        let revoke = self.revoke();
        self.enter(State::Collecting { why: None });
        vec![revoke, self.collect()]
    }

    fn has_started(&mut self) -> Vec<Effect> {
        let State::Opening = self.memory.state else { return vec![] };
        self.enter(State::Running);
        vec![self.arm(Timer::Silence, numbers::SILENCE), self.arm(Timer::Stall, numbers::STALL), self.arm_wall()]
    }

    /// No transition: no epoch, no journal. Re-arms what waits for a sign of life, unless the child itself waits.
    fn heard(&mut self, status: Status) -> Vec<Effect> {
        if self.report.is_none() {
            self.memory.spent.now = status.usage;
        }
        let progressed = self.status.as_ref().is_none_or(|last| last.progress != status.progress);
        let waits = status.phase.waits();
        let over = self.memory.grant.passed_by(&status.usage).is_some();
        self.status = Some(status);
        let State::Running = self.memory.state else { return vec![] };
        if over {
            return self.ask(Why::OverGrant);
        }
        if waits {
            let child = &self.id;
            return vec![
                Effect::Disarm { child: child.clone(), timer: Timer::Silence },
                Effect::Disarm { child: child.clone(), timer: Timer::Stall },
            ];
        }
        let mut effects = vec![self.arm(Timer::Silence, numbers::SILENCE)];
        if progressed {
            effects.push(self.arm(Timer::Stall, numbers::STALL));
        }
        effects
    }

    fn reported(&mut self, report: Report) -> Vec<Effect> {
        self.memory.spent.now = report.usage;
        self.report = Some(report);
        match self.memory.state {
            State::Opening | State::Running => {
                self.enter(State::Exiting);
                vec![self.arm(Timer::Linger, numbers::LINGER)]
            }
            _ => vec![],
        }
    }

    fn gone(&mut self, exit: Exit) -> Vec<Effect> {
        let why = match self.memory.state {
            State::Opening | State::Running | State::Exiting => None,
            State::Stopping { why, .. } => Some(why),
            _ => return vec![],
        };
        let never_started = matches!(self.memory.state, State::Opening);
        self.memory.exit = Some(exit);
        let close = Effect::CloseInbox { child: self.id.clone(), attempt: self.memory.attempt };
        let revoke = self.revoke();
        self.enter(State::Collecting { why });
        if never_started { vec![revoke, self.collect()] } else { vec![close, self.collect()] }
    }

    fn stop(&mut self, by: By, now: Now) -> Vec<Effect> {
        match self.memory.state {
            State::Waiting | State::Cooling { .. } | State::Parked { .. } if self.memory.lease.is_some() => {
                self.enter(State::Collecting { why: Some(Why::Asked(by)) });
                vec![self.collect()]
            }
            State::Waiting | State::Cooling { .. } | State::Parked { .. } | State::Preparing => {
                self.finish(State::Cancelled { by }, now)
            }
            State::Opening => self.kill_unstarted(Why::Asked(by)),
            State::Running => self.ask(Why::Asked(by)),
            State::Exiting | State::Stopping { stage: Stage::Asked, .. } => self.signal(Stage::Term, Why::Asked(by)),
            // Collecting is never cut short; that a stop was asked is remembered and decides what comes after.
            State::Collecting { .. } => {
                self.amend(State::Collecting { why: Some(Why::Asked(by)) });
                vec![self.record("stop")]
            }
            State::Stopping { stage: Stage::Term | Stage::Kill, .. }
            | State::Done { .. }
            | State::Failed { .. }
            | State::Cancelled { .. }
            | State::Skipped { .. } => vec![],
        }
    }

    fn retry(&mut self) -> Vec<Effect> {
        match &self.memory.state {
            State::Cooling { .. } | State::Parked { .. } => {}
            State::Failed { failure } => {
                self.memory.next = match failure.kind {
                    FailureKind::Empty | FailureKind::NoEvidence => Start::Nudged(failure.kind.to_string()),
                    _ => self.resume_or_fresh(),
                };
                self.memory.allowed = self.memory.used + 1;
            }
            State::Cancelled { .. } | State::Skipped { .. } => {
                self.memory.next = self.resume_or_fresh();
                self.memory.allowed = self.memory.used + 1;
            }
            State::Waiting
            | State::Preparing
            | State::Opening
            | State::Running
            | State::Exiting
            | State::Stopping { .. }
            | State::Collecting { .. }
            | State::Done { .. } => return vec![],
        }
        self.memory.ended = None;
        self.enter(State::Waiting);
        vec![]
    }

    fn fired(&mut self, timer: Timer, now: Now) -> Vec<Effect> {
        match (&self.memory.state, timer) {
            (State::Preparing, Timer::Prepare) => {
                self.prepare_failed(Failure::new(FailureKind::Workspace, "it took longer than 120 s to prepare"), now)
            }
            (State::Opening, Timer::Open) => self.kill_unstarted(Why::NeverStarted),
            (State::Running, Timer::Silence) => self.ask(Why::Silence),
            (State::Running, Timer::Stall) => self.ask(Why::Stall),
            (State::Exiting, Timer::Linger) => self.signal(Stage::Term, Why::Lingered),
            (State::Stopping { stage: Stage::Asked, why }, Timer::Grace) => self.signal(Stage::Term, *why),
            (State::Stopping { stage: Stage::Term, why }, Timer::Grace) => self.signal(Stage::Kill, *why),
            (State::Stopping { stage: Stage::Kill, .. }, Timer::Grace) => {
                let failure =
                    Failure::new(FailureKind::WontDie, "it survived KILL; its workspace and windows are kept");
                self.finish(State::Failed { failure }, now)
            }
            (State::Cooling { .. }, Timer::Cool) | (State::Parked { .. }, Timer::Park) => {
                self.enter(State::Waiting);
                vec![]
            }
            _ => vec![],
        }
    }

    fn collected(&mut self, collected: Collected, now: Now) -> Vec<Effect> {
        let State::Collecting { why } = self.memory.state else { return vec![] };
        self.memory.collected = collected;
        let case = Case {
            why,
            report: self.report.as_ref(),
            exit: self.memory.exit.unwrap_or(Exit::Unknown),
            evidence: self.spec.evidence,
            nudges: self.memory.nudges,
            attempts_left: self.attempts_left(),
            trouble: self.memory.trouble.as_deref(),
        };
        match verdict::judge(&case) {
            Verdict::Done(outcome) => self.finish(State::Done { outcome }, now),
            Verdict::Cancelled(by) => self.finish(State::Cancelled { by }, now),
            Verdict::Failed(failure) => self.finish(State::Failed { failure }, now),
            Verdict::Parked(until) => {
                self.memory.used = self.memory.used.saturating_sub(1);
                self.memory.next = Start::Resumed(self.memory.attempt);
                self.enter(State::Parked { until });
                vec![self.arm(Timer::Park, until_ms(until, now))]
            }
            Verdict::Nudge(kind) => {
                self.memory.nudges += 1;
                self.memory.next = Start::Nudged(kind.to_string());
                self.cool(Failure::new(kind, ""), now)
            }
            Verdict::Resume(failure) => {
                self.memory.next = self.resume_or_fresh();
                self.cool(failure, now)
            }
        }
    }

    /// Attempts left, none if the child's own budget is used up.
    fn attempts_left(&self) -> u32 {
        let spent = self.memory.spent.total();
        let least = admission::least_requests(&self.spec);
        let used_up = self.spec.budget.requests.is_some_and(|limit| spent.requests + least > limit)
            || self.spec.budget.tokens.is_some_and(|limit| spent.tokens() >= limit);
        if used_up { 0 } else { self.memory.allowed.saturating_sub(self.memory.used) }
    }

    fn resume_or_fresh(&self) -> Start {
        match self.memory.attempt {
            0 => Start::Fresh,
            attempt => Start::Resumed(attempt),
        }
    }

    fn cool(&mut self, failure: Failure, now: Now) -> Vec<Effect> {
        let nth = self.memory.used.saturating_sub(1) as usize;
        let after_ms = numbers::COOL[nth.min(numbers::COOL.len() - 1)];
        let until = now.wall.plus_s(after_ms as f64 / 1000.0);
        self.enter(State::Cooling { until, after: failure });
        vec![self.arm(Timer::Cool, after_ms)]
    }

    fn ask(&mut self, why: Why) -> Vec<Effect> {
        self.enter(State::Stopping { stage: Stage::Asked, why });
        let (child, attempt) = (self.id.clone(), self.memory.attempt);
        vec![Effect::AskToWrapUp { child, attempt, why }, self.arm(Timer::Grace, grace(Stage::Asked, why))]
    }

    fn signal(&mut self, stage: Stage, why: Why) -> Vec<Effect> {
        self.enter(State::Stopping { stage, why });
        let signal = match stage {
            Stage::Asked | Stage::Term => Signal::Term,
            Stage::Kill => Signal::Kill,
        };
        let (child, attempt) = (self.id.clone(), self.memory.attempt);
        vec![Effect::Signal { child, attempt, signal }, self.arm(Timer::Grace, grace(stage, why))]
    }

    fn kill_unstarted(&mut self, why: Why) -> Vec<Effect> {
        let revoke = self.revoke();
        let mut effects = self.signal(Stage::Kill, why);
        effects.insert(0, revoke);
        effects
    }

    fn finish(&mut self, state: State, now: Now) -> Vec<Effect> {
        let keeps = matches!(&state, State::Failed { failure } if failure.kind == FailureKind::WontDie);
        let shows = matches!(state, State::Failed { .. });
        self.memory.ended = Some(now.wall);
        self.enter(state);
        let (child, attempt) = (self.id.clone(), self.memory.attempt);
        let mut effects = Vec::new();
        // Windows of failed children stay, so that a person can read them; of all others also those of earlier attempts go.
        if !shows {
            effects.extend((1..=attempt).map(|attempt| Effect::CloseWindow { child: child.clone(), attempt }));
        }
        if !keeps
            && self.memory.collected.clean
            && let Some(lease) = self.memory.lease.take()
        {
            effects.push(Effect::Dispose { child, lease });
        }
        effects
    }

    /// The one setter.
    fn enter(&mut self, state: State) {
        self.amend(state);
        self.memory.epoch += 1;
    }

    /// Changes what the present state carries. No transition, so the epoch stays, and what was asked under it still
    /// counts when it comes.
    fn amend(&mut self, state: State) {
        self.memory.state = state;
    }

    fn record(&self, event: &str) -> Effect {
        Effect::Journal(Box::new(Record {
            child: self.id.clone(),
            attempt: self.memory.attempt,
            event: event.to_owned(),
            state: self.memory.clone(),
        }))
    }

    fn prepare(&self) -> Effect {
        Effect::Prepare { child: self.id.clone(), epoch: self.memory.epoch, reuse: self.memory.lease.clone() }
    }

    fn open(&self) -> Effect {
        Effect::Open {
            child: self.id.clone(),
            epoch: self.memory.epoch,
            attempt: self.memory.attempt,
            session: match self.memory.next {
                Start::Nudged(_) => Session::New,
                Start::Fresh | Start::Resumed(_) | Start::Continued(..) => Session::Same,
            },
            start: self.memory.next.clone(),
            grant: self.memory.grant,
            lease: self.memory.lease.clone().expect("a child opens only with a lease"),
        }
    }

    fn collect(&self) -> Effect {
        Effect::Collect {
            child: self.id.clone(),
            epoch: self.memory.epoch,
            attempt: self.memory.attempt,
            lease: self.memory.lease.clone(),
        }
    }

    fn revoke(&self) -> Effect {
        Effect::RevokeClaim { child: self.id.clone(), attempt: self.memory.attempt }
    }

    fn arm(&self, timer: Timer, after_ms: u64) -> Effect {
        Effect::Arm { child: self.id.clone(), epoch: self.memory.epoch, timer, after_ms }
    }

    fn arm_wall(&self) -> Effect {
        let after_ms = self.memory.grant.time_s.unwrap_or(u64::from(u32::MAX)).saturating_mul(1000);
        Effect::ArmWall { child: self.id.clone(), attempt: self.memory.attempt, after_ms }
    }
}

fn grace(stage: Stage, why: Why) -> u64 {
    match (stage, why) {
        (Stage::Asked, Why::Asked(_)) => numbers::GRACE_ASKED_BY_PERSON,
        (Stage::Asked, _) => numbers::GRACE_ASKED,
        (Stage::Term, _) => numbers::GRACE_TERM,
        (Stage::Kill, _) => numbers::GRACE_KILL,
    }
}

fn until_ms(until: Timestamp, now: Now) -> u64 {
    (until.since_s(now.wall).max(0.0) * 1000.0) as u64
}

#[cfg(test)]
#[path = "child_tests.rs"]
pub(crate) mod tests;
