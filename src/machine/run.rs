//! A run: its children, who of them may start, and when it is over.

use super::admission::{self, Granted, Purse};
use super::child::Child;
use super::state::State;
use super::{By, ChildEvent, Effect, Event, Skip};
use crate::model::child::FailureKind;
use crate::model::id::ChildId;
use crate::model::report::Outcome;
use crate::model::run::RunSpec;
use crate::model::time::{Now, Timestamp};
use crate::model::usage::Usage;

/// The one machine: every door ends here, and every effect comes from here.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Machine {
    pub(crate) spec: RunSpec,
    children: Vec<Child>,
    /// When this supervisor's run of the clock began, for the time limit.
    began: Timestamp,
    stopping: Option<By>,
    finished: bool,
}

impl Machine {
    /// A run with its children in the order asked.
    pub(crate) fn new(spec: RunSpec, children: Vec<Child>, now: Now) -> Self {
        Self { spec, children, began: now.wall, stopping: None, finished: false }
    }

    pub(crate) fn children(&self) -> &[Child] {
        &self.children
    }

    pub(crate) fn child(&self, id: &ChildId) -> Option<&Child> {
        self.children.iter().find(|child| child.id == *id)
    }

    pub(crate) const fn is_finished(&self) -> bool {
        self.finished
    }

    /// The first effects: carries on what was found, then admits.
    pub(crate) fn start(&mut self, now: Now) -> Vec<Effect> {
        let mut effects: Vec<Effect> = Vec::new();
        if let Some(limit) = self.spec.limits.time_s {
            effects.push(Effect::ArmDeadline { after_ms: limit.saturating_mul(1000) });
        }
        effects.extend(self.children.iter().flat_map(|child| child.resumed_effects(now)));
        effects.extend(self.advance(now));
        effects
    }

    /// Takes one event and says what is to be done.
    pub(crate) fn handle(&mut self, event: Event, now: Now) -> Vec<Effect> {
        let mut effects = match event {
            Event::Child { child, event } => self.tell(&child, event, now),
            Event::Deadline => self.stop_all(By::Deadline, now),
            Event::StopAll { by } => self.stop_all(by, now),
        };
        effects.extend(self.advance(now));
        effects
    }

    fn tell(&mut self, id: &ChildId, event: ChildEvent, now: Now) -> Vec<Effect> {
        if matches!(event, ChildEvent::Retry) {
            self.stopping = None;
            self.finished = false;
        }
        match self.children.iter_mut().find(|child| child.id == *id) {
            Some(child) => child.handle(event, now),
            None => vec![],
        }
    }

    fn stop_all(&mut self, by: By, now: Now) -> Vec<Effect> {
        self.stopping = Some(by);
        self.children.iter_mut().flat_map(|child| child.handle(ChildEvent::Stop { by }, now)).collect()
    }

    /// Settles needs, admits who may start, and ends the run when all are final.
    fn advance(&mut self, now: Now) -> Vec<Effect> {
        let mut effects = self.settle(now);
        effects.extend(self.admit(now));
        // A child skipped for want of money can settle what others need.
        effects.extend(self.settle(now));
        if !self.finished && self.children.iter().all(|child| child.state().is_final()) {
            self.finished = true;
            effects.push(Effect::Finish);
        }
        effects
    }

    /// Children whose needs ended otherwise than Done are skipped, and so are those that need them.
    fn settle(&mut self, now: Now) -> Vec<Effect> {
        let mut effects = Vec::new();
        loop {
            let blocked = self.children.iter().position(|child| {
                matches!(child.state(), State::Waiting) && child.spec.needs.iter().any(|need| self.ended_badly(*need))
            });
            let Some(index) = blocked else { return effects };
            effects.extend(self.children[index].handle(ChildEvent::NeedsSettled { skip: Skip::Upstream }, now));
        }
    }

    fn ended_badly(&self, number: u32) -> bool {
        match self.children.iter().find(|child| child.id.number() == number).map(Child::state) {
            Some(State::Failed { .. } | State::Cancelled { .. } | State::Skipped { .. }) | None => true,
            Some(_) => false,
        }
    }

    fn admit(&mut self, now: Now) -> Vec<Effect> {
        let mut effects = Vec::new();
        if self.stopping.is_some() {
            return effects;
        }
        while self.slots_in_use() < self.spec.width as usize {
            let Some(index) = self.children.iter().position(|child| self.is_ready(child)) else { break };
            let child = &self.children[index];
            let spent = child.memory().spent.total();
            let purse = self.purse(now);
            let grant = |purse| admission::grant(purse, &child.spec, &spent);
            let event = match grant(&purse) {
                Ok(grant) => ChildEvent::Admitted { grant },
                // What is set aside for others may come back.
                Err(_) if self.slots_in_use() > 0 => break,
                // A share of little is nothing; the first who waits takes the rest rather than the last.
                Err(_) => match grant(&Purse { sharers: 1, ..purse }) {
                    Ok(grant) => ChildEvent::Admitted { grant },
                    Err(_) => ChildEvent::NeedsSettled { skip: Skip::Budget },
                },
            };
            effects.extend(self.children[index].handle(event, now));
        }
        effects
    }

    fn is_ready(&self, child: &Child) -> bool {
        let done = |number: &u32| {
            self.children
                .iter()
                .any(|other| other.id.number() == *number && matches!(other.state(), State::Done { .. }))
        };
        matches!(child.state(), State::Waiting) && child.spec.needs.iter().all(done)
    }

    fn slots_in_use(&self) -> usize {
        self.children.iter().filter(|child| child.state().holds_slot()).count()
    }

    fn purse(&self, now: Now) -> Purse {
        let mut granted = Granted::default();
        let mut spent = Usage::ZERO;
        for child in &self.children {
            let memory = child.memory();
            spent = spent.plus(memory.spent.before);
            if child.state().holds_slot() || matches!(child.state(), State::Parked { .. }) {
                granted = granted.plus(&memory.grant, &memory.spent.now);
            } else {
                spent = spent.plus(memory.spent.now);
            }
        }
        let open = self.children.iter().filter(|child| !child.state().is_final()).count();
        Purse {
            limits: self.spec.limits,
            spent,
            granted,
            elapsed_s: now.wall.since_s(self.began).max(0.0) as u64,
            sharers: (open as u64).min(u64::from(self.spec.width)).max(1),
        }
    }

    /// All that the run has spent.
    pub(crate) fn spent(&self) -> Usage {
        self.children.iter().map(|child| child.memory().spent.total()).sum()
    }

    /// The exit code of a viewer: 0 if every child is Done with outcome done; the one cause all others share; else 1.
    pub(crate) fn exit_code(&self) -> u8 {
        let mut codes = self.children.iter().filter_map(|child| match child.state() {
            State::Done { outcome: Outcome::Done } => None,
            State::Done { outcome: Outcome::Limit } | State::Skipped { reason: Skip::Budget } => Some(4),
            State::Cancelled { by: By::Deadline } => Some(4),
            State::Failed { failure } => Some(match failure.kind {
                FailureKind::Usage => 1,
                kind => kind.exit_code(),
            }),
            _ => Some(1),
        });
        let Some(first) = codes.next() else { return 0 };
        if codes.all(|code| code == first) { first } else { 1 }
    }
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
