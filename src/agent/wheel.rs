//! Everything that comes to a running attempt from outside: letters, what a person types, signals.
//!
//! It is listened to while something else goes on, sorted into queues, and taken out at boundaries. Deliberately
//! absent: what the loop does with it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use super::event::{AgentEvent, Sink};
use super::{Command, Interrupt, Typed, Until};
use crate::model::child::Ask;
use crate::model::request::Asked;
use crate::model::status::WindowState;
use crate::model::time::Now;
use crate::store::inbox::{Found, Inbox, Letter};
use crate::store::status::StatusWriter;

/// How often the inbox is listed while something is waited for.
const LISTEN: Duration = Duration::from_secs(1);
/// A person who typed this recently is still there.
const RECENT_MS: u64 = 10 * 60 * 1000;
/// A held child goes on after this long without a key.
const QUIET_MS: u64 = 2 * 60 * 1000;
/// Somebody wants the report: what stands still for so long is cut, and whatever still runs after so long. Those who
/// ask wait ten seconds, a person three, and the report must be written in them.
const STILL_MS: u64 = 500;
const MOST_MS: u64 = 1_000;

/// A text for the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Heard {
    pub(super) by: String,
    pub(super) text: String,
    pub(super) from: Origin,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Origin {
    Letter { file: String, id: String },
    Window,
}

/// Why what runs now must end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    Signal(Interrupt),
    /// A person wants to say something first.
    Escape,
    /// A person ends the session.
    Quit,
    /// Somebody wants the report now, and what runs does not come to its end.
    WrapUp,
}

/// What runs while the wheel listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    /// It last gave a sign at this time (monotonic). Makes way for the report when one is wanted.
    Stirred(u64),
    /// The report itself: only a signal or a person cuts it.
    Report,
}

/// What became of a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reply {
    Text {
        by: String,
        text: String,
        from: Origin,
    },
    Nobody,
    TimedOut,
    Refused,
    /// The attempt ends; there is no time for answers.
    Over,
}

/// Whether a question waits: lines are answers then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lines {
    Steer,
    Answer,
}

/// Where to listen.
pub(super) struct Sources {
    pub(super) inbox: Inbox,
    pub(super) typed: Option<mpsc::Receiver<Typed>>,
    pub(super) interrupt: watch::Receiver<Interrupt>,
    pub(super) attached: Arc<dyn Fn() -> bool + Send + Sync>,
    pub(super) ask: Ask,
    pub(super) until: Until,
    pub(super) clock: fn() -> Now,
    pub(super) sink: Arc<dyn Sink>,
    pub(super) status: StatusWriter,
}

/// Who wants the report, since when.
struct WrapUp {
    by: String,
    at_ms: u64,
}

pub(super) struct Wheel {
    from: Sources,
    lines: Lines,
    steers: VecDeque<Heard>,
    follow_ups: VecDeque<Heard>,
    answers: VecDeque<Heard>,
    wrap_up: Option<WrapUp>,
    escape: bool,
    quit: bool,
    came_with_a_person: bool,
    commands: VecDeque<Command>,
    /// Letters given to the conversation but not yet to a model.
    pending: Vec<String>,
    /// When a person last wrote or answered, and last touched a key.
    person_ms: Option<u64>,
    key_ms: u64,
}

impl Wheel {
    pub(super) fn new(from: Sources) -> Self {
        let key_ms = (from.clock)().mono_ms;
        Self {
            came_with_a_person: from.typed.is_some(),
            from,
            lines: Lines::Steer,
            steers: VecDeque::new(),
            follow_ups: VecDeque::new(),
            answers: VecDeque::new(),
            wrap_up: None,
            escape: false,
            quit: false,
            commands: VecDeque::new(),
            pending: Vec::new(),
            person_ms: None,
            key_ms,
        }
    }

    /// Takes in what is there, without waiting.
    pub(super) fn look(&mut self) {
        while let Some(typed) = self.from.typed.as_mut().and_then(|typed| typed.try_recv().ok()) {
            self.take_typed(typed);
        }
        self.take_letters();
    }

    /// The signal that came, if any.
    pub(super) fn signal(&self) -> Option<Interrupt> {
        let interrupt = *self.from.interrupt.borrow();
        match interrupt {
            Interrupt::None => None,
            Interrupt::Terminate | Interrupt::CtrlC => Some(interrupt),
        }
    }

    /// Who wants a report now, if somebody does.
    pub(super) fn wrap_up(&self) -> Option<&str> {
        self.wrap_up.as_ref().map(|wrap_up| wrap_up.by.as_str())
    }

    /// Whether a person ends the session.
    pub(super) fn quits(&self) -> bool {
        self.quit
    }

    /// What a person told the loop itself, in the order it came.
    pub(super) fn take_command(&mut self) -> Option<Command> {
        self.commands.pop_front()
    }

    /// Listens until what runs must be cut. Safe to drop at any time.
    pub(super) async fn cut(&mut self, work: Work) -> Cut {
        loop {
            if let Some(interrupt) = self.signal() {
                return Cut::Signal(interrupt);
            }
            if self.quit {
                return Cut::Quit;
            }
            if std::mem::take(&mut self.escape) {
                return Cut::Escape;
            }
            match self.way_to_go(work) {
                Some(0) => return Cut::WrapUp,
                Some(left_ms) => {
                    // Out of time and nothing heard are the same here: the next round tells.
                    let _ = tokio::time::timeout(Duration::from_millis(left_ms), self.listen()).await;
                }
                None => self.listen().await,
            }
        }
    }

    /// How long what runs may still run, where somebody wants the report.
    fn way_to_go(&self, work: Work) -> Option<u64> {
        let (Some(WrapUp { at_ms, .. }), Work::Stirred(stirred_ms)) = (&self.wrap_up, work) else { return None };
        let end = (stirred_ms.max(*at_ms) + STILL_MS).min(at_ms + MOST_MS);
        Some(end.saturating_sub(self.now_ms()))
    }

    /// Waits, without limit, for the next thing a person says, orders or ends.
    pub(super) async fn next_line(&mut self) {
        loop {
            self.steers.append(&mut self.follow_ups);
            let over = self.signal().is_some() || self.wrap_up.is_some() || self.quit;
            if over || !self.steers.is_empty() || !self.commands.is_empty() {
                return;
            }
            if self.came_with_a_person && self.from.typed.is_none() {
                // Whoever drew the window is gone and nobody can say anything any more.
                self.quit = true;
                return;
            }
            self.escape = false;
            self.listen().await;
        }
    }

    /// Texts for the next request, in the order they came.
    pub(super) fn take_steers(&mut self) -> Vec<Heard> {
        self.steers.drain(..).collect()
    }

    /// The child would stop: what waited for that is due. Whether anything is.
    pub(super) fn has_more(&mut self) -> bool {
        self.look();
        self.steers.append(&mut self.follow_ups);
        !self.steers.is_empty()
    }

    /// Takes no more letters; those that came before are taken in.
    pub(super) fn close(&mut self) {
        self.from.inbox.close();
        self.look();
    }

    /// What nobody will hear any more. Letters among it stay where the supervisor finds them.
    pub(super) fn take_late(&mut self) -> Vec<Heard> {
        self.steers.drain(..).chain(self.follow_ups.drain(..)).collect()
    }

    /// The text stands in the session.
    pub(super) fn delivered(&mut self, heard: &Heard) {
        if let Origin::Letter { file, id } = &heard.from {
            self.from.inbox.settle(file);
            self.pending.push(id.clone());
        }
    }

    /// All that was delivered is on its way to a model.
    pub(super) fn acted_on(&mut self) {
        let ids = std::mem::take(&mut self.pending);
        if !ids.is_empty() {
            self.from.status.soon(|status| status.acted_on.extend(ids));
        }
    }

    /// Whether a question has somebody to answer it.
    pub(super) fn somebody_is_there(&self) -> bool {
        let recent = self.person_ms.is_some_and(|at| self.now_ms().saturating_sub(at) < RECENT_MS);
        // Whoever ends the session sits at its line.
        let at_the_line = self.from.until == Until::Quit && self.from.typed.is_some();
        self.from.ask == Ask::Always || at_the_line || recent || (self.from.attached)()
    }

    /// Whether a question could ever have somebody to answer it: tools that ask are offered then.
    pub(super) fn could_be_answered(&self) -> bool {
        self.from.typed.is_some() || self.somebody_is_there()
    }

    /// Waits for the answer to a question that stands in the window and in `status.md`.
    pub(super) async fn reply(&mut self, within: Duration) -> Reply {
        self.lines = Lines::Answer;
        let reply = tokio::time::timeout(within, self.next_reply()).await.unwrap_or(Reply::TimedOut);
        self.lines = Lines::Steer;
        for late in std::mem::take(&mut self.answers) {
            self.turn_down(&late, "the question is answered already");
        }
        if let Reply::Text { from: Origin::Letter { file, id }, .. } = &reply {
            self.from.inbox.settle(file);
            self.pending.push(id.clone());
        }
        reply
    }

    async fn next_reply(&mut self) -> Reply {
        loop {
            if self.signal().is_some() || self.wrap_up.is_some() || self.quit {
                return Reply::Over;
            }
            if std::mem::take(&mut self.escape) {
                return Reply::Refused;
            }
            if let Some(Heard { by, text, from }) = self.answers.pop_front() {
                return Reply::Text { by, text, from };
            }
            self.listen().await;
        }
    }

    /// Waits while a person holds the child: until they say something or have been quiet for two minutes.
    pub(super) async fn held(&mut self) {
        loop {
            let quiet = self.now_ms().saturating_sub(self.key_ms);
            let over = self.signal().is_some() || self.wrap_up.is_some() || self.quit;
            if over || !self.steers.is_empty() || !self.commands.is_empty() || quiet >= QUIET_MS {
                return;
            }
            // A second Esc while it is held already changes nothing.
            self.escape = false;
            self.listen().await;
        }
    }

    /// Waits for the next thing from outside, a second at most.
    async fn listen(&mut self) {
        let typed = async {
            match self.from.typed.as_mut() {
                Some(typed) => typed.recv().await,
                None => std::future::pending().await,
            }
        };
        let interrupt = &mut self.from.interrupt;
        let signal = async {
            if interrupt.changed().await.is_err() {
                // Nobody is left who could send one.
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            typed = typed => match typed {
                Some(typed) => self.take_typed(typed),
                None => self.from.typed = None,
            },
            () = signal => {}
            () = tokio::time::sleep(LISTEN) => self.take_letters(),
        }
    }

    fn take_typed(&mut self, typed: Typed) {
        self.key_ms = self.now_ms();
        match typed {
            Typed::Key => {}
            Typed::Command(Command::Quit) => self.quit = true,
            Typed::Command(command @ (Command::Agent(_) | Command::Mode(_) | Command::Model(_) | Command::Compact)) => {
                self.person_ms = Some(self.key_ms);
                self.commands.push_back(command);
            }
            Typed::WindowGone => self.from.status.now(|status| status.window = WindowState::Gone),
            Typed::Escape => self.escape = true,
            Typed::Line { terminal, text } => {
                self.person_ms = Some(self.key_ms);
                let heard = Heard { by: format!("person {terminal}"), text, from: Origin::Window };
                match self.lines {
                    Lines::Answer => self.answers.push_back(heard),
                    Lines::Steer => self.queue_steer(heard),
                }
            }
            Typed::FollowUp { terminal, text } => {
                self.person_ms = Some(self.key_ms);
                self.queue_follow_up(Heard { by: format!("person {terminal}"), text, from: Origin::Window });
            }
        }
    }

    fn take_letters(&mut self) {
        for found in self.from.inbox.look() {
            match found {
                Found::Letter(letter) => self.take_letter(letter),
                Found::Refused { file, why } => {
                    self.note(format!("`{file}` in the inbox is not obeyed: {why}"));
                }
            }
        }
    }

    fn take_letter(&mut self, letter: Letter) {
        let Letter { file, request } = letter;
        let id = request.id.clone();
        self.from.status.soon(|status| status.seen.push(id));
        let heard = Heard { by: request.by, text: request.text, from: Origin::Letter { file, id: request.id } };
        match request.ask {
            Asked::Steer => self.queue_steer(heard),
            Asked::FollowUp => self.queue_follow_up(heard),
            Asked::WrapUp => {
                if let Origin::Letter { file, id } = heard.from {
                    self.from.inbox.settle(&file);
                    self.pending.push(id);
                }
                self.note(format!("{} asks for the report now", heard.by));
                let at_ms = self.now_ms();
                self.wrap_up.get_or_insert(WrapUp { by: heard.by, at_ms });
            }
            Asked::Answer => {
                self.person_ms = Some(self.now_ms());
                match self.lines {
                    Lines::Answer => self.answers.push_back(heard),
                    Lines::Steer => self.turn_down(&heard, "no question waits"),
                }
            }
            Asked::Stop | Asked::Retry => self.turn_down(&heard, "only its supervisor does that"),
        }
    }

    fn queue_steer(&mut self, heard: Heard) {
        self.queued(&heard);
        self.steers.push_back(heard);
    }

    fn queue_follow_up(&mut self, heard: Heard) {
        self.queued(&heard);
        self.follow_ups.push_back(heard);
    }

    fn queued(&self, heard: &Heard) {
        self.from.sink.emit(&AgentEvent::Queued { by: heard.by.clone(), text: heard.text.clone() });
    }

    /// Not obeyed, and said so.
    fn turn_down(&mut self, heard: &Heard, why: &str) {
        if let Origin::Letter { file, .. } = &heard.from {
            self.from.inbox.refuse(file);
        }
        self.note(format!("a message of {} is not taken: {why}", heard.by));
    }

    fn note(&self, text: String) {
        self.from.sink.emit(&AgentEvent::Note(text));
    }

    fn now_ms(&self) -> u64 {
        (self.from.clock)().mono_ms
    }
}
