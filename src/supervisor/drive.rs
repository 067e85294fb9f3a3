//! The one loop: sources are selected into messages, the machine decides, `perform` does.
//!
//! Deliberately absent: a second loop, and anything that waits inside of a turn; what takes time is a task whose result
//! comes back as a message.

use std::path::Path;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::hear::{self, Ears};
use super::live::{self, Live, Living, Process};
use super::perform::Tasks;
use super::{Call, Message, Places, Sender, SupervisorError, World, open, publish};
use crate::command::PidFd;
use crate::command::identity::{Identity, Liveness, liveness};
use crate::machine::child::Child;
use crate::machine::run::Machine;
use crate::machine::state::State;
use crate::machine::timers::{Key, Timers};
use crate::machine::{By, ChildEvent, Effect, Event, Exit, Timer, numbers};
use crate::model::id::ChildId;
use crate::model::run::Supervisor;
use crate::model::time::Now;
use crate::store::RunDir;
use crate::store::journal::{self, Journal};
use crate::store::observed;
use crate::store::{attempt, run};
use crate::terminal;
use crate::watch::{Heard, Watch};

/// `run.md` is written at most this often.
const PUBLISH_MS: u64 = 1_000;
/// Effects that clean up are waited for this long after the end.
const CLEAN_UP: Duration = Duration::from_secs(30);

/// A lock that is held for longer than this is held by another supervisor.
const LOCK_PATIENCE: Duration = Duration::from_millis(300);

/// How a run ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) exit: u8,
}

/// All that the loop holds.
pub(super) struct Loop {
    pub(super) world: World,
    pub(super) machine: Machine,
    pub(super) journal: Journal,
    pub(super) timers: Timers,
    pub(super) living: Living,
    pub(super) ears: Ears,
    pub(super) watch: Option<Watch>,
    pub(super) tasks: Tasks,
    pub(super) sender: Sender,
    /// Something that `run.md` shows has changed.
    pub(super) dirty: bool,
    me: Supervisor,
    published_ms: u64,
}

/// Drives a run to its end. Holds the run's lock, so that nobody else does.
pub(crate) async fn drive(world: World, mut calls: mpsc::UnboundedReceiver<Call>) -> Result<Ended, SupervisorError> {
    let _lock = hold(&world.run).await?;
    let (sender, mut messages) = mpsc::unbounded_channel();
    let (hears, mut heard) = mpsc::unbounded_channel();
    let mut state = Loop::new(world, sender, hears)?;
    state.open_inbox()?;
    let now = state.now();
    state.adopt();
    let effects = state.machine.start(now);
    state.perform(effects, now)?;
    state.take_requests(now)?;
    match state.world.places {
        // Whoever started it waits to read that it is driven.
        Places::Terminal(_) => state.publish(now),
        Places::Here(_) => state.published_ms = now.mono_ms,
    }
    let mut rescan = tokio::time::interval(Duration::from_millis(numbers::RESCAN));
    rescan.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        // Asked of the machine: a retry that lay in the inbox takes back what `start` said.
        while !state.machine.is_finished() {
            let due = state.next_due();
            tokio::select! {
                Some(message) = messages.recv() => state.take(message, &mut messages)?,
                Some(heard) = heard.recv() => state.hear(heard)?,
                Some(call) = calls.recv() => state.called(call)?,
                _ = rescan.tick() => state.rescan()?,
                () = tokio::time::sleep_until(due) => state.tick()?,
                Some(_) = state.tasks.join_next(), if !state.tasks.is_empty() => {}
            }
        }
        state.clean_up(&mut messages).await?;
        // What was asked until now is obeyed first; whoever comes later is told that it is over.
        if state.take_no_more()? {
            return state.end();
        }
    }
}

/// The run's lock. Viewers try it for an instant to see whether somebody drives, and must not keep a supervisor out.
async fn hold(directory: &RunDir) -> Result<crate::files::Locked, run::RunError> {
    let tried_by_viewers = async {
        loop {
            match run::lock(directory) {
                Err(run::RunError::Locked) => tokio::time::sleep(Duration::from_millis(10)).await,
                other => return other,
            }
        }
    };
    tokio::time::timeout(LOCK_PATIENCE, tried_by_viewers).await.unwrap_or(Err(run::RunError::Locked))
}

impl Loop {
    fn new(world: World, sender: Sender, hears: mpsc::UnboundedSender<Heard>) -> Result<Self, SupervisorError> {
        let file = run::read_run(&world.run)?;
        let specs = run::read_specs(&world.run)?;
        let (journal, entries) = Journal::open(&world.run.journal())?;
        let mut last = journal::last_of_each(entries);
        let children = specs
            .into_iter()
            .map(|(id, spec)| match last.remove(&id) {
                None => Child::new(id, spec),
                Some(memory) => {
                    let dir = world.run.child(&id).attempt(memory.attempt);
                    let report =
                        attempt::read_brief(&dir).ok().and_then(|brief| observed::report(&dir, &brief.nonce).it());
                    Child::restored(id, spec, memory, report)
                }
            })
            .collect();
        let now = (world.clock)();
        let machine = Machine::new(file.spec, children, now);
        // Without a watch everything is heard at the re-scan.
        let watch = Watch::start(hears).ok();
        let identity = Identity::of_self();
        let me = Supervisor {
            pid: identity.pid,
            start_time: identity.start_time,
            boot_id: identity.boot_id,
            host: identity.host,
            socket: world.socket.clone(),
        };
        if let Some(caller) = world.caller {
            watch_caller(caller, sender.clone());
        }
        Ok(Self {
            world,
            machine,
            journal,
            timers: Timers::default(),
            living: Living::default(),
            ears: Ears::default(),
            watch,
            tasks: Tasks::new(),
            sender,
            dirty: true,
            me,
            published_ms: 0,
        })
    }

    pub(super) fn now(&self) -> Now {
        (self.world.clock)()
    }

    /// After a restart: what lives is taken up again, what is gone is said to be.
    fn adopt(&mut self) {
        let found: Vec<(ChildId, u32)> = self
            .machine
            .children()
            .iter()
            .filter(|child| match child.state() {
                State::Opening | State::Running | State::Exiting | State::Stopping { .. } => true,
                State::Waiting
                | State::Preparing
                | State::Collecting { .. }
                | State::Cooling { .. }
                | State::Parked { .. }
                | State::Done { .. }
                | State::Failed { .. }
                | State::Cancelled { .. }
                | State::Skipped { .. } => false,
            })
            .map(|child| (child.id.clone(), child.memory().attempt))
            .collect();
        for (child, attempt) in found {
            self.adopt_one(child, attempt);
        }
    }

    fn adopt_one(&mut self, child: ChildId, number: u32) {
        let dir = self.world.run.child(&child).attempt(number);
        if let Ok(brief) = attempt::read_brief(&dir) {
            self.ears.learn(child.clone(), number, brief.nonce);
        }
        if let Some(watch) = &self.watch {
            let _ = watch.add(dir.path());
        }
        // Without a claim nobody started: the machine opens the same attempt again.
        let Some(claim) = observed::claim(&dir).it() else { return };
        let identity = Identity::from(&claim);
        match liveness(&identity) {
            Liveness::Alive if !claim.revoked => {
                self.track(child, number, identity, claim.pane.map(|pane| terminal::Handle::Window { pane }));
            }
            Liveness::Alive | Liveness::Gone => {
                let gone = Message::ProcessGone { child, attempt: number, exit: Some(Exit::Unknown) };
                let _ = self.sender.send(gone);
            }
            // Another host: its files and the timers decide.
            Liveness::Unknown => {}
        }
    }

    fn track(&mut self, child: ChildId, attempt: u32, identity: Identity, handle: Option<terminal::Handle>) {
        live::await_end(child.clone(), attempt, identity.clone(), self.sender.clone());
        self.living.insert(child, Live { attempt, process: Process::Other(identity), handle });
    }

    /// Takes a message and all that wait behind it, so that one turn has one fdatasync.
    fn take(&mut self, first: Message, messages: &mut mpsc::UnboundedReceiver<Message>) -> Result<(), SupervisorError> {
        let now = self.now();
        let mut effects = self.digest(first, now);
        while let Ok(message) = messages.try_recv() {
            effects.extend(self.digest(message, now));
        }
        self.perform(effects, now)
    }

    fn digest(&mut self, message: Message, now: Now) -> Vec<Effect> {
        match message {
            Message::Event(event) => self.machine.handle(event, now),
            Message::Nonce { child, attempt, nonce } => {
                self.ears.learn(child.clone(), attempt, nonce);
                if let Some(live) = open::start_here(&self.world, &child, attempt, &self.sender) {
                    self.living.insert(child, live);
                }
                vec![]
            }
            Message::Opened { child, attempt, opened } => {
                if let Some(identity) = Identity::of(opened.pid) {
                    self.track(child, attempt, identity, Some(opened.handle));
                } else {
                    // It ended before we looked; its window is still worth closing.
                    let identity = Identity { pid: opened.pid, ..Identity::of_self() };
                    let process = Process::Other(Identity { start_time: 0, ..identity });
                    self.living.insert(child.clone(), Live { attempt, process, handle: Some(opened.handle) });
                    let _ = self.sender.send(Message::ProcessGone { child, attempt, exit: None });
                }
                vec![]
            }
            Message::ProcessGone { child, attempt, exit } => self.process_gone(child, attempt, exit, now),
            Message::CallerGone => self.machine.handle(Event::StopAll { by: By::Caller }, now),
        }
    }

    /// A process ended: what it left is read first, so that a report never comes after its own end.
    fn process_gone(&mut self, child: ChildId, attempt: u32, exit: Option<Exit>, now: Now) -> Vec<Effect> {
        let dir = self.world.run.child(&child).attempt(attempt);
        let mut effects = Vec::new();
        for event in self.ears.listen(&child, attempt, &dir) {
            effects.extend(self.machine.handle(event, now));
        }
        let reported = self
            .machine
            .child(&child)
            .filter(|found| found.memory().attempt == attempt)
            .and_then(|found| found.report())
            .map(|report| Exit::Status(report.exit));
        match exit.or(reported) {
            Some(exit) => {
                let event = Event::Child { child, event: ChildEvent::Gone { attempt, exit } };
                effects.extend(self.machine.handle(event, now));
            }
            None => self.ask_how_it_ended(child, attempt),
        }
        effects
    }

    /// Only the place knows the exit status of what left no report, and tmux may take a moment.
    fn ask_how_it_ended(&mut self, child: ChildId, attempt: u32) {
        let handle = self.living.get(&child, attempt).and_then(|live| live.handle.clone());
        let sender = self.sender.clone();
        let places = self.world.places.clone();
        self.tasks.spawn(async move {
            let exit = match (places, handle) {
                (Places::Terminal(terminal), Some(handle)) => match terminal.exit(&handle).await {
                    Ok(terminal::Exit::Status(status)) => Exit::Status(status),
                    Ok(terminal::Exit::Signal(signal)) => Exit::Signal(signal),
                    Ok(terminal::Exit::Unknown) | Err(_) => Exit::Unknown,
                },
                _ => Exit::Unknown,
            };
            let _ = sender.send(Message::ProcessGone { child, attempt, exit: Some(exit) });
        });
    }

    fn hear(&mut self, heard: Heard) -> Result<(), SupervisorError> {
        match heard {
            Heard::Lost => self.rescan(),
            Heard::Appeared(path) => match hear::attempt_of(&self.world.run, &path) {
                Some((child, attempt)) => self.listen(&child, attempt),
                None if path.starts_with(self.world.run.inbox()) => {
                    let now = self.now();
                    self.take_requests(now)
                }
                None => Ok(()),
            },
        }
    }

    fn listen(&mut self, child: &ChildId, attempt: u32) -> Result<(), SupervisorError> {
        let dir = self.world.run.child(child).attempt(attempt);
        let now = self.now();
        let events = self.ears.listen(child, attempt, &dir);
        if events.is_empty() {
            return Ok(());
        }
        self.dirty |= events.iter().any(|event| self.is_news(event));
        let effects: Vec<Effect> = events.into_iter().flat_map(|event| self.machine.handle(event, now)).collect();
        self.perform(effects, now)
    }

    /// Whether people would see it. The heartbeats of a hundred children would have `run.md` written every second.
    fn is_news(&self, event: &Event) -> bool {
        let Event::Child { child, event: ChildEvent::Heard { status, .. } } = event else { return true };
        let before = self.machine.child(child).and_then(Child::status);
        before.is_none_or(|before| !status.only_beats_after(before))
    }

    /// Lists what events may have lost.
    fn rescan(&mut self) -> Result<(), SupervisorError> {
        let current: Vec<(ChildId, u32)> = self
            .machine
            .children()
            .iter()
            .filter(|child| child.state().holds_slot())
            .map(|child| (child.id.clone(), child.memory().attempt))
            .collect();
        for (child, attempt) in current {
            self.listen(&child, attempt)?;
        }
        let now = self.now();
        self.take_requests(now)
    }

    fn take_requests(&mut self, now: Now) -> Result<(), SupervisorError> {
        let inbox = self.world.run.inbox();
        self.take_requests_of(&inbox, now)
    }

    fn take_requests_of(&mut self, inbox: &Path, now: Now) -> Result<(), SupervisorError> {
        let children: Vec<ChildId> = self.machine.children().iter().map(|child| child.id.clone()).collect();
        let name = self.machine.spec.run.to_string();
        let notes = self.ears.notes();
        let post = hear::Post { run: &self.world.run, inbox, name: &name, children: &children, key: &self.world.key };
        let events = self.ears.requests(post);
        self.dirty |= self.ears.notes() != notes;
        let effects: Vec<Effect> = events.into_iter().flat_map(|event| self.machine.handle(event, now)).collect();
        self.perform(effects, now)
    }

    fn called(&mut self, call: Call) -> Result<(), SupervisorError> {
        let now = self.now();
        let stop = |by| Event::StopAll { by };
        let effects = match call {
            Call::Stop => self.machine.handle(stop(By::User), now),
            // Said twice at once: the first asks, the second ends whoever was asked.
            Call::Cut => [stop(By::Caller), stop(By::Caller)]
                .into_iter()
                .flat_map(|event| self.machine.handle(event, now))
                .collect(),
        };
        self.perform(effects, now)
    }

    fn next_due(&self) -> Instant {
        let now = self.now().mono_ms;
        let publish = self.dirty.then_some(self.published_ms + PUBLISH_MS);
        let due = [self.timers.next_ms(), publish].into_iter().flatten().min();
        // With nothing armed the re-scan wakes the loop.
        let after = due.map_or(numbers::RESCAN, |due| due.saturating_sub(now));
        Instant::now() + Duration::from_millis(after)
    }

    fn tick(&mut self) -> Result<(), SupervisorError> {
        let now = self.now();
        for (key, asked_by) in self.timers.take_due(now.mono_ms) {
            let event = match key {
                Key::Child(child, timer) => Event::Child { child, event: ChildEvent::Fired { epoch: asked_by, timer } },
                Key::Wall(child) => Event::Child { child, event: ChildEvent::Wall { attempt: asked_by as u32 } },
                Key::Deadline => Event::Deadline,
            };
            let effects = self.machine.handle(event, now);
            self.perform(effects, now)?;
        }
        if self.dirty && now.mono_ms >= self.published_ms + PUBLISH_MS {
            self.publish(now);
        }
        Ok(())
    }

    fn publish(&mut self, now: Now) {
        self.dirty = false;
        self.published_ms = now.mono_ms;
        // What people read may be old; the journal is the truth.
        let _ = publish::run_file(&self.world, &self.machine, &self.me, &self.ears.notes(), now);
    }

    /// Waits for the effects that are under way.
    async fn clean_up(&mut self, messages: &mut mpsc::UnboundedReceiver<Message>) -> Result<(), SupervisorError> {
        let clean_up = async { while self.tasks.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(CLEAN_UP, clean_up).await;
        while let Ok(message) = messages.try_recv() {
            let now = self.now();
            let effects = self.digest(message, now);
            self.perform(effects, now)?;
        }
        Ok(())
    }

    /// Takes no more requests, and says whether the run is over: a retry that had come by then opens it again.
    fn take_no_more(&mut self) -> Result<bool, SupervisorError> {
        let (inbox, closed) = (self.world.run.inbox(), self.world.run.closed());
        // An earlier end may have left it, empty.
        let _ = std::fs::remove_dir(&closed);
        let _ = std::fs::rename(&inbox, &closed);
        let now = self.now();
        self.take_requests_of(&closed, now)?;
        if self.machine.is_finished() {
            return Ok(true);
        }
        self.open_inbox()?;
        Ok(false)
    }

    /// Requests can come: from the start, and again when an end was taken back.
    fn open_inbox(&self) -> Result<(), run::RunError> {
        run::make_directory(&self.world.run.inbox())?;
        if let Some(watch) = &self.watch {
            // Not watched means heard at the next re-scan.
            let _ = watch.add(&self.world.run.inbox());
        }
        Ok(())
    }

    /// Writes the fold and says that the run is over; in this order, so that who reads the end finds all.
    fn end(mut self) -> Result<Ended, SupervisorError> {
        self.journal.sync()?;
        let now = self.now();
        publish::fold(&self.world, &self.machine, &self.ears.notes())?;
        publish::run_file(&self.world, &self.machine, &self.me, &self.ears.notes(), now)?;
        Ok(Ended { exit: self.machine.exit_code() })
    }
}

fn watch_caller(caller: i32, to: Sender) {
    tokio::spawn(async move {
        match PidFd::open(caller) {
            Ok(Some(descriptor)) => descriptor.gone().await,
            Ok(None) => {}
            // Not to know is not an end: the run's own limits still hold.
            Err(_) => return,
        }
        let _ = to.send(Message::CallerGone);
    });
}

/// A quarter of a cooling at most, so that children which failed together do not come back together.
pub(super) fn jitter(timer: Timer, after_ms: u64) -> u64 {
    match timer {
        Timer::Cool => u64::from(uuid::Uuid::new_v4().as_bytes()[0]) * after_ms / 1024,
        Timer::Prepare | Timer::Open | Timer::Silence | Timer::Stall | Timer::Grace | Timer::Linger | Timer::Park => 0,
    }
}
