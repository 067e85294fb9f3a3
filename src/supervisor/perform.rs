//! Does what the machine says: the journal first, then each effect, the slow ones on tasks.
//!
//! Deliberately absent: a choice. An effect that cannot be done comes back as an event, and the machine decides again.

use tokio::task::JoinSet;

use super::drive::{Loop, jitter};
use super::open::{self, Opening};
use super::{Places, SupervisorError, workplace};
use crate::files;
use crate::front_matter;
use crate::machine::environment;
use crate::machine::timers::Key;
use crate::machine::{Effect, Record, Why};
use crate::model::brief::Claim;
use crate::model::id::ChildId;
use crate::model::request::{Asked, Request};
use crate::model::time::Now;
use crate::model::tool_name::ToolName;
use crate::store::request;

/// Tasks of effects that must end before the supervisor does.
pub(super) type Tasks = JoinSet<()>;

impl Loop {
    /// Performs one loop turn's effects. Their records are on the disk before any effect on the world starts; those of
    /// a turn that only sets timers may wait for the next, which saves a third of the syncs of a short child.
    pub(super) fn perform(&mut self, effects: Vec<Effect>, now: Now) -> Result<(), SupervisorError> {
        let mut records: Vec<Record> = Vec::new();
        let mut rest = Vec::new();
        for effect in effects {
            match effect {
                Effect::Journal(record) => records.push(*record),
                other => rest.push(other),
            }
        }
        if !records.is_empty() {
            self.dirty = true;
        }
        self.journal.append(records, now.wall)?;
        if rest.iter().any(Effect::reaches_out) {
            match self.world.places {
                Places::Terminal(_) => self.journal.sync()?,
                // A power cut takes the children too: nothing is left that could contradict a record that is missing.
                Places::Here(_) => self.journal.sync_soon(),
            }
        }
        for effect in rest {
            self.perform_one(effect, now);
        }
        Ok(())
    }

    fn perform_one(&mut self, effect: Effect, now: Now) {
        match effect {
            // Taken out above.
            Effect::Journal(_) => {}
            Effect::Prepare { child, epoch, reuse } => {
                if let Some(request) = self.workplace(&child) {
                    self.tasks.spawn(workplace::prepare(request, epoch, reuse, self.sender.clone()));
                }
            }
            effect @ Effect::Open { .. } => self.open(effect),
            Effect::Arm { child, epoch, timer, after_ms } => {
                let after_ms = after_ms + jitter(timer, after_ms);
                self.timers.arm(Key::Child(child, timer), now.mono_ms + after_ms, epoch);
            }
            Effect::ArmWall { child, attempt, after_ms } => {
                self.timers.arm(Key::Wall(child), now.mono_ms + after_ms, u64::from(attempt));
            }
            Effect::Disarm { child, timer } => self.timers.disarm(&Key::Child(child, timer)),
            Effect::ArmDeadline { after_ms } => self.timers.arm(Key::Deadline, now.mono_ms + after_ms, 0),
            Effect::RevokeClaim { child, attempt } => self.revoke(&child, attempt, now),
            Effect::AskToWrapUp { child, attempt, why } => self.ask_to_wrap_up(&child, attempt, why, now),
            Effect::Signal { child, attempt, signal } => self.living.signal(&child, attempt, signal, &self.sender),
            Effect::CloseInbox { child, attempt } => self.close_inbox(&child, attempt),
            Effect::Collect { child, epoch, attempt, lease } => {
                let report = self.machine.child(&child).and_then(|child| child.report()).map(|r| r.body.clone());
                self.retire(&child, attempt);
                if let Some(request) = self.workplace(&child) {
                    let leftovers = self.mark_of_commands(&child);
                    self.tasks.spawn(workplace::collect(request, epoch, lease, report, leftovers, self.sender.clone()));
                }
            }
            Effect::Dispose { child, lease } => {
                if let Some(request) = self.workplace(&child) {
                    self.tasks.spawn(workplace::dispose(request, lease));
                }
            }
            Effect::CloseWindow { child, attempt } => self.close_window(&child, attempt),
            // The loop looks whether the machine is finished; a request may have come since.
            Effect::Finish => {}
        }
    }

    fn workplace(&self, child: &ChildId) -> Option<crate::workspace::Request> {
        let found = self.machine.child(child)?;
        let run = &self.machine.spec.run;
        Some(workplace::request(&self.world, run, child, &found.spec.workspace, &found.spec.cwd))
    }

    /// What the environment of all that the child's commands started holds; `None` if it has no commands.
    fn mark_of_commands(&self, child: &ChildId) -> Option<String> {
        let found = self.machine.child(child)?;
        let runs = found.spec.persona.tools.contains(&ToolName::Bash);
        runs.then(|| format!("{}={}/{}", environment::PARENT, self.machine.spec.run, child.number()))
    }

    fn open(&mut self, effect: Effect) {
        let Effect::Open { child, epoch, attempt, start, session, grant, lease } = effect else { return };
        let Some(found) = self.machine.child(&child) else { return };
        let opening = Opening {
            run: self.machine.spec.run.clone(),
            depth: self.machine.spec.depth,
            child: child.clone(),
            epoch,
            attempt,
            start,
            session,
            grant,
            lease,
            spec: found.spec.clone(),
            spent: found.memory().spent.before,
        };
        self.tasks.spawn(open::open(self.world.clone(), opening, self.watch.clone(), self.sender.clone()));
    }

    /// Makes sure that an attempt can no longer start: its claim is taken, by us.
    fn revoke(&self, child: &ChildId, attempt: u32, now: Now) {
        let dir = self.world.run.child(child).attempt(attempt);
        let claim = Claim {
            v: Claim::VERSION,
            revoked: true,
            at: now.wall,
            pid: 0,
            start_time: 0,
            boot_id: String::new(),
            host: String::new(),
            process_group: 0,
            pane: None,
        };
        // A claim that is there is the child's; a directory that is not there has nobody to start.
        let _ = files::create(&dir.claim(), front_matter::write(&claim, "").as_bytes());
    }

    fn ask_to_wrap_up(&self, child: &ChildId, attempt: u32, why: Why, now: Now) {
        let dir = self.world.run.child(child).attempt(attempt);
        let request = Request {
            v: Request::VERSION,
            id: uuid::Uuid::new_v4().simple().to_string(),
            to: format!("{}/{}.{attempt}", self.machine.spec.run, child.number()),
            by: "supervisor".to_owned(),
            at: now.wall,
            ask: Asked::WrapUp,
            text: why.to_string(),
        };
        // A child whose inbox is closed is already reporting.
        let _ = request::send(&dir.inbox(), &request, &self.world.key);
    }

    /// Late senders are told that it is over.
    fn close_inbox(&self, child: &ChildId, attempt: u32) {
        let dir = self.world.run.child(child).attempt(attempt);
        let _ = std::fs::create_dir_all(dir.seen());
        // The child closes it itself before it reports; then there is nothing to rename.
        let _ = std::fs::rename(dir.inbox(), dir.closed());
    }

    /// The attempt is over: nothing of it is listened to any more.
    fn retire(&mut self, child: &ChildId, attempt: u32) {
        self.timers.forget(child);
        open::take_back(&self.world, child, attempt);
        let dir = self.world.run.child(child).attempt(attempt);
        if let Some(watch) = &self.watch {
            watch.remove(dir.path());
        }
        self.ears.forget(child, attempt, &dir);
    }

    fn close_window(&mut self, child: &ChildId, attempt: u32) {
        let handle = self.living.get(child, attempt).and_then(|live| live.handle.clone());
        self.living.remove(child, attempt);
        if let (Some(handle), Places::Terminal(terminal)) = (handle, &self.world.places) {
            let terminal = terminal.clone();
            self.tasks.spawn(async move {
                // A window that cannot be closed is gone, or its server is.
                let _ = terminal.close(&handle).await;
            });
        }
    }
}
