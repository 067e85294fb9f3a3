//! The loop itself: from a claimed attempt and its brief to the report on the disk.
//!
//! Deliberately absent: how a turn is asked (`turn.rs`), how calls run (`call.rs`), where texts come from (`wheel.rs`).

use std::collections::HashSet;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
use tokio::sync::watch;

use super::call::is_evidence;
use super::conversation::Conversation;
use super::event::{self, AgentEvent, Sink};
use super::person::{self, Listeners};
use super::report::{self, End, Tally};
use super::turn::Turn;
use super::wheel::{Cut, Origin, Sources, Wheel};
use super::{Ended, Parts, Switchboard, Until, prompt};
use crate::machine::gate::Policy;
use crate::machine::schema;
use crate::machine::spend::Price;
use crate::model::brief::{Brief, Start};
use crate::model::child::{Failure, FailureKind};
use crate::model::message::{AssistantMessage, Message, StopReason};
use crate::model::persona::Mode;
use crate::model::rule::Rule;
use crate::model::status::Phase;
use crate::model::time::Now;
use crate::model::tool_name::ToolName;
use crate::provider::Provider;
use crate::store::attempt::{Claimed, Log};
use crate::store::context::Beneath;
use crate::store::inbox::{Inbox, names_of};
use crate::store::session::{self, Session, SessionError};
use crate::store::status::StatusWriter;
use crate::store::{self, AttemptDir};
use crate::text;
use crate::tool::{Scope, Tool};

/// How often a child that is done goes on for a text that came at the last moment.
const EXTENSIONS: u32 = 3;
/// How often a report that is not the JSON asked for is sent back to be mended.
const MENDS: u32 = 3;

/// Something the loop says to a model at most once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Nudge {
    Tight,
    Last,
    Empty,
    Longer,
    /// The report is not the JSON asked for; the number is how often that was said before.
    Mend(u32),
}

/// An attempt at work.
pub(super) struct Attempt {
    pub(super) brief: Brief,
    pub(super) provider: Arc<dyn Provider>,
    /// The model's name without its provider.
    pub(super) model: String,
    /// Everything there is.
    pub(super) known: Vec<Arc<dyn Tool>>,
    /// What is offered, in the persona's order.
    pub(super) tools: Vec<Arc<dyn Tool>>,
    /// What their descriptions take of each request.
    pub(super) tools_bytes: usize,
    pub(super) policy: Policy,
    pub(super) price: Option<Price>,
    pub(super) max_tokens: u32,
    pub(super) window_tokens: u64,
    /// What every agent here is told, behind its own prompt.
    pub(super) context: String,
    pub(super) system: String,
    pub(super) conversation: Conversation,
    /// Instructions of directories that are told when work first reaches them.
    pub(super) instructions: Beneath,
    pub(super) until: Until,
    pub(super) switchboard: Arc<dyn Switchboard>,
    pub(super) remember: Arc<dyn Fn(&[Rule]) + Send + Sync>,
    /// The user's own rules, whoever works.
    pub(super) users: UserRules,
    /// What an approved plan is carried out in: the mode that was left for it.
    pub(super) before_plan: Mode,
    pub(super) wheel: Wheel,
    pub(super) status: StatusWriter,
    pub(super) sink: Arc<dyn Sink>,
    pub(super) clock: fn() -> Now,
    pub(super) tally: Tally,
    /// Where tools act; each call gets its own way to be cut.
    pub(super) place: Scope,
    pub(super) questions: u32,
    /// Input tokens of the last request beyond what was counted before it was sent.
    pub(super) uncounted: u64,
    /// Turns in which no summary is tried, because the last one failed.
    pub(super) no_summary: u32,
    nudged: HashSet<Nudge>,
    /// What the report would say now.
    said: String,
    extensions: u32,
    started: Now,
    still_ms: u64,
}

/// Rules that hold beside those of a persona.
#[derive(Clone)]
pub(super) struct UserRules {
    pub(super) allow: Vec<Rule>,
    /// All that was denied at the start stays so.
    pub(super) deny: Vec<Rule>,
    /// What bypasses everything was asked for at the start, or is not had from a persona.
    pub(super) started_in: Mode,
}

/// Runs one attempt to its end. The caller has entered the lease.
pub(crate) async fn run(claimed: Claimed, brief: Brief, parts: Parts, sink: Arc<dyn Sink>) -> Ended {
    let started = (parts.clock)();
    let clock = parts.clock;
    let sink: Arc<dyn Sink> = Arc::new(Logged { inner: sink, log: claimed.log().ok() });
    let status = StatusWriter::start(claimed.dir().status(), brief.nonce.clone(), clock);
    let heartbeat = Heartbeat(tokio::spawn(status.clone().keep()));
    sink.emit(&AgentEvent::Started {
        label: brief.spec.label.clone(),
        model: brief.spec.model.clone(),
        session: brief.session.clone(),
    });
    let (end, tally, body) = match Attempt::begin(claimed.dir(), &brief, parts, status.clone(), sink.clone()) {
        Ok(attempt) => attempt.work().await,
        Err(failure) => (End::Failed(failure), Tally::default(), String::new()),
    };
    // Here for the attempt that never got as far as its wheel: senders must be refused from now on.
    store::inbox::close(claimed.dir());
    let duration_s = (clock().mono_ms.saturating_sub(started.mono_ms)) as f64 / 1000.0;
    let report = report::report(end, &brief, &tally, &body, duration_s);
    let written = claimed.report(&report);
    drop(heartbeat);
    sink.emit(&AgentEvent::Ended {
        outcome: report.outcome,
        detail: report.error.as_ref().map(ToString::to_string).unwrap_or_default(),
        usage: report.usage,
    });
    // After the last line: who follows the log stops at this phase.
    status.phase(Phase::Ended, report.outcome.to_string());
    Ended { exit: report.exit, report, written }
}

impl Attempt {
    fn begin(
        dir: &AttemptDir,
        brief: &Brief,
        parts: Parts,
        status: StatusWriter,
        sink: Arc<dyn Sink>,
    ) -> Result<Self, Failure> {
        let clock = parts.clock;
        let now = clock();
        let missing = |error: SessionError| Failure::new(FailureKind::Missing, text::chain(&error));
        let conversation = conversation(dir, brief, sink.as_ref(), clock).map_err(missing)?;
        let persona = &brief.spec.persona;
        let wheel = Wheel::new(Sources {
            inbox: Inbox::new(dir.clone(), parts.key, names_of(brief)),
            typed: parts.typed,
            interrupt: parts.interrupt,
            attached: parts.attached,
            ask: brief.spec.ask,
            until: parts.until,
            clock,
            sink: Arc::clone(&sink),
            status: status.clone(),
        });
        let listeners = Listeners { could_come: wheel.could_be_answered(), are_there: &|| wheel.somebody_is_there() };
        let tools = person::offered(&parts.tools, &persona.tools, &listeners);
        let users = UserRules { allow: parts.allow, deny: parts.deny, started_in: persona.mode };
        let lease = Path::new(&brief.lease.path);
        let policy = person::policy(persona, &users, parts.confinement, lease, &parts.environment);
        let mut instructions = Beneath::new(lease);
        instructions.given_in(conversation.results().map(|result| result.output.as_str()));
        let mut attempt = Self {
            model: person::name_of(&brief.spec.model),
            tools_bytes: person::bytes_of(&tools),
            known: parts.tools,
            tools,
            price: parts.price,
            max_tokens: parts.max_tokens,
            window_tokens: parts.window_tokens,
            system: prompt::system(brief, &parts.context, now.wall),
            context: parts.context,
            tally: inherited(&conversation),
            said: conversation.last_text().to_owned(),
            conversation,
            instructions,
            until: parts.until,
            switchboard: parts.switchboard,
            remember: parts.remember,
            before_plan: match persona.mode {
                // Who starts in plan mode and approves the plan wants it carried out.
                Mode::Plan => Mode::Edit,
                mode @ (Mode::Default | Mode::Edit | Mode::Bypass) => mode,
            },
            users: UserRules { deny: policy.deny.clone(), ..users },
            provider: parts.provider,
            wheel,
            status,
            sink,
            clock,
            place: Scope {
                root: PathBuf::from(&brief.lease.path),
                spill: dir.spill(),
                environment: parts.environment,
                cut: watch::channel(false).1,
                seen: Arc::new(Mutex::default()),
                deny: policy.deny.clone(),
                sandbox: parts.sandbox,
            },
            policy,
            questions: 0,
            uncounted: 0,
            no_summary: 0,
            nudged: HashSet::new(),
            extensions: 0,
            started: now,
            still_ms: 0,
            brief: brief.clone(),
        };
        attempt.open().map_err(missing)?;
        Ok(attempt)
    }

    /// What the conversation starts or goes on with.
    fn open(&mut self) -> Result<(), SessionError> {
        let task = self.brief.spec.prompt.clone();
        let resumed = !self.conversation.messages().is_empty();
        match self.brief.start.clone() {
            // A session that a person opened without a task: they are waited for.
            Start::Fresh if task.trim().is_empty() && self.until == Until::Quit => {}
            Start::Nudged(why) => {
                self.conversation.user("task", &task)?;
                self.conversation.user("decode", &prompt::nudged(&why))?;
            }
            Start::Resumed(_) if resumed => self.conversation.user("decode", prompt::RESUMED)?,
            // An attempt that died before it had written anything is no different from none.
            Start::Fresh | Start::Resumed(_) => self.conversation.user("task", &task)?,
            Start::Continued(_, text) => self.conversation.user("person", &text)?,
        }
        for text in std::mem::take(&mut self.brief.undelivered) {
            self.conversation.user("undelivered message", &text)?;
        }
        Ok(())
    }

    /// Drives the loop and closes the door behind it. The end, what was counted, and the text of the report.
    async fn work(mut self) -> (End, Tally, String) {
        let driven = AssertUnwindSafe(self.drive()).catch_unwind().await;
        let end = match driven {
            Ok(Ok(end)) => end,
            Ok(Err(error)) => End::Failed(Failure::new(FailureKind::Missing, text::chain(&error))),
            Err(panic) => End::Failed(Failure::new(FailureKind::Internal, panic_text(&*panic))),
        };
        self.wheel.close();
        for late in self.wheel.take_late() {
            let what = format!("a message of {} came too late and was not taken: {}", late.by, late.text);
            self.conversation.note(&what);
            self.tell(&what);
        }
        let body = match &end {
            End::Failed(failure) if matches!(failure.kind, FailureKind::Empty | FailureKind::Schema) => String::new(),
            End::Done | End::Limit { .. } | End::Failed(_) | End::Cancelled(_) | End::Parked { .. } => self.said,
        };
        (end, self.tally, body)
    }

    async fn drive(&mut self) -> Result<End, SessionError> {
        if self.until == Until::Quit {
            self.tell_now();
        }
        let asked = matches!(self.conversation.messages().last(), Some(Message::User(_)));
        let mut next = (self.until == Until::Quit && !asked).then_some(End::Done);
        loop {
            if let Some(end) = next.take() {
                match self.after(end).await? {
                    Some(end) => return Ok(end),
                    None => continue,
                }
            }
            self.wheel.look();
            if let Some(interrupt) = self.wheel.signal() {
                return Ok(End::Cancelled(interrupt));
            }
            if self.wheel.quits() {
                return Ok(self.quit());
            }
            self.obey().await?;
            self.deliver()?;
            next = self.step().await?;
        }
    }

    /// One turn and the calls it made. How the attempt ends, unless there is more to do.
    async fn step(&mut self) -> Result<Option<End>, SessionError> {
        let (answer, last) = match self.turn().await? {
            Turn::Answer { answer, last } => (answer, last),
            Turn::End(end) => return Ok(Some(end)),
            Turn::Cut(cut) => return Ok(self.after_cut(cut).await),
        };
        self.keep_text(&answer);
        if let Some(why) = last {
            return Ok(Some(End::Limit { why }));
        }
        if answer.calls.is_empty() {
            return self.would_stop(&answer);
        }
        match self.calls(answer.calls).await? {
            Some(cut) => Ok(self.after_cut(cut).await),
            None => Ok(None),
        }
    }

    /// What follows when something that ran was cut.
    async fn after_cut(&mut self, cut: Cut) -> Option<End> {
        match cut {
            Cut::Signal(interrupt) => Some(End::Cancelled(interrupt)),
            Cut::Quit => Some(self.quit()),
            Cut::Escape => {
                self.hold().await;
                None
            }
            // The next turn is the report.
            Cut::WrapUp => None,
        }
    }

    /// Gives the model what was heard since the last boundary.
    fn deliver(&mut self) -> Result<(), SessionError> {
        let heard = self.wheel.take_steers();
        if heard.iter().any(|heard| heard.from == Origin::Window) {
            self.tally.co_driven += 1;
        }
        for heard in heard {
            self.conversation.user(&heard.by, &heard.text)?;
            self.wheel.delivered(&heard);
            self.sink.emit(&AgentEvent::Steered { by: heard.by, text: heard.text });
        }
        Ok(())
    }

    /// The last text is the report; the second half of an answer that was too long goes behind the first.
    fn keep_text(&mut self, answer: &AssistantMessage) {
        if answer.text.trim().is_empty() {
            return;
        }
        if self.goes_on() {
            self.said.push_str(&answer.text);
        } else {
            self.said.clone_from(&answer.text);
        }
    }

    /// Whether the newest answer was asked for as the rest of the one before.
    fn goes_on(&self) -> bool {
        let before = self.conversation.messages().iter().rev().skip(1);
        before
            .map_while(|message| match message {
                Message::User(user) => Some(user),
                Message::Assistant(_) | Message::Tool(_) => None,
            })
            .any(|user| user.text == prompt::LONGER)
    }

    /// The model called nothing. How the attempt ends, unless there is more to do.
    fn would_stop(&mut self, answer: &AssistantMessage) -> Result<Option<End>, SessionError> {
        if answer.stop == StopReason::Refused {
            let failure = Failure::new(FailureKind::Provider, "the model declined to answer");
            return Ok(Some(End::Failed(failure)));
        }
        if answer.text.trim().is_empty() {
            let failure = Failure::new(FailureKind::Empty, "the model gave an empty answer twice");
            return self.nudge(Nudge::Empty, prompt::EMPTY, End::Failed(failure));
        }
        if answer.stop == StopReason::Length {
            if self.once(Nudge::Longer) {
                self.conversation.user("decode", prompt::LONGER)?;
                return Ok(None);
            }
            self.said.push_str(prompt::CUT_MARK);
        }
        if let Some(schema) = &self.brief.spec.schema {
            match schema::breach(&self.said, schema) {
                Some(why) => return self.mend(&why),
                None => self.said = schema::unfenced(&self.said).to_owned(),
            }
        }
        if self.has_more() { Ok(None) } else { Ok(Some(End::Done)) }
    }

    /// Whether somebody said something that the child must still hear. After this, if not, nobody can.
    fn has_more(&mut self) -> bool {
        if self.wheel.wrap_up().is_some() {
            return false;
        }
        if self.wheel.has_more() {
            return true;
        }
        if self.until == Until::Quit {
            return false;
        }
        self.wheel.close();
        self.extensions += 1;
        self.extensions <= EXTENSIONS && self.wheel.has_more()
    }

    /// Sends a report back that is not the JSON asked for.
    fn mend(&mut self, why: &str) -> Result<Option<End>, SessionError> {
        let failure = Failure::new(FailureKind::Schema, format!("it is not the JSON that was asked for: {why}"));
        for time in 0..MENDS {
            if self.once(Nudge::Mend(time)) {
                self.tell(&format!("the report is not the JSON that was asked for: {why}"));
                self.conversation.user("decode", &prompt::mend(why))?;
                return Ok(None);
            }
        }
        Ok(Some(End::Failed(failure)))
    }

    /// What a person says after an answer is a new piece of work: what was said once may be said again.
    pub(super) fn begin_anew(&mut self) {
        self.nudged.retain(|nudge| matches!(nudge, Nudge::Tight | Nudge::Last));
    }

    fn nudge(&mut self, nudge: Nudge, text: &str, otherwise: End) -> Result<Option<End>, SessionError> {
        if !self.once(nudge) {
            return Ok(Some(otherwise));
        }
        self.conversation.user("decode", text)?;
        Ok(None)
    }

    /// True the first time.
    pub(super) fn once(&mut self, nudge: Nudge) -> bool {
        self.nudged.insert(nudge)
    }

    /// Seconds of the child's own time: not those in which it waited for a person.
    pub(super) fn elapsed_s(&self) -> f64 {
        let gone = (self.clock)().mono_ms.saturating_sub(self.started.mono_ms);
        gone.saturating_sub(self.still_ms) as f64 / 1000.0
    }

    pub(super) fn left_s(&self) -> Option<f64> {
        self.brief.grant.time_s.map(|limit| (limit as f64 - self.elapsed_s()).max(0.0))
    }

    /// The clocks stood still since then.
    pub(super) fn stand_still_since(&mut self, then: Now) {
        self.still_ms += (self.clock)().mono_ms.saturating_sub(then.mono_ms);
    }

    pub(super) fn tell(&self, text: &str) {
        self.sink.emit(&AgentEvent::Note(text.to_owned()));
    }
}

/// The session of the attempt with all it goes on from; what of that is damaged is told.
fn conversation(
    dir: &AttemptDir,
    brief: &Brief,
    sink: &dyn Sink,
    clock: fn() -> Now,
) -> Result<Conversation, SessionError> {
    let earlier = earlier(dir, brief);
    let (session, history) = Session::begin(&dir.session(), &brief.session, earlier.as_deref(), clock().wall)?;
    for damage in &history.damage {
        let note = format!("line {} of the session is lost: {}", damage.line, damage.what);
        sink.emit(&AgentEvent::Note(note));
    }
    Conversation::new(session, &history.messages, clock)
}

/// The session file that this attempt goes on from.
fn earlier(dir: &AttemptDir, brief: &Brief) -> Option<PathBuf> {
    let newest = match &brief.start {
        Start::Fresh | Start::Nudged(_) => return brief.spec.resume.as_ref().map(PathBuf::from),
        Start::Resumed(attempt) | Start::Continued(attempt, _) => *attempt,
    };
    // An attempt that died before it had copied its session left none; the one before it holds the same.
    let of_this_session = |path: &Path| session::id_of(path).is_ok_and(|id| id.as_ref() == Some(&brief.session));
    let own = (1..=newest).rev().map(|attempt| dir.sibling(attempt).session()).find(|path| of_this_session(path));
    own.or_else(|| brief.spec.resume.as_ref().map(PathBuf::from))
}

/// What a resumed session already did counts as work of its report.
fn inherited(conversation: &Conversation) -> Tally {
    let mut tally = Tally::default();
    for result in conversation.results() {
        tally.tool_calls += 1;
        if result.ok && result.name.parse::<ToolName>().is_ok_and(is_evidence) {
            tally.evidence += 1;
        }
    }
    tally
}

/// What a panic said.
pub(super) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic without a message".to_owned())
}

/// Writes down what the window shows.
struct Logged {
    inner: Arc<dyn Sink>,
    log: Option<Log>,
}

impl Sink for Logged {
    fn emit(&self, event: &AgentEvent) {
        self.inner.emit(event);
        if let (Some(log), Some(line)) = (&self.log, event::line(event)) {
            log.line(&line);
        }
    }
}

/// The heartbeat ends with the attempt, however that ends.
struct Heartbeat(tokio::task::JoinHandle<()>);

impl Drop for Heartbeat {
    fn drop(&mut self) {
        self.0.abort();
    }
}
