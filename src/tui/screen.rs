//! The one loop between an agent, a view and a terminal: events and keys come in, rows and what was typed go out.
//!
//! It draws only when something changed, and a stream of many small pieces a few dozen times a second; idle it costs
//! nothing. The terminal is given back on every way out. Deliberately absent: what there is to see (`view.rs`).

use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::Duration;

use crossterm::event::{Event, EventStream};
use futures_util::StreamExt;
use nix::fcntl::OFlag;
use ratatui::text::Line;
use tokio::sync::mpsc::{self, error::TrySendError};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::history::History;
use super::region::{Colours, Region};
use super::view::{Action, Attention, Known, Opens, Phase, View};
use crate::agent::Typed;
use crate::agent::event::{AgentEvent, Sink};

/// The least time between two pictures.
const FRAME: Duration = Duration::from_millis(25);
/// The least time between two keys that are told.
const TOUCH: Duration = Duration::from_secs(1);

/// Gives the terminal to write to, as often as it is asked for.
pub(crate) type Out = fn() -> Box<dyn Write + Send>;
/// Makes a text for the model of a skill's name and what it is given, or says why not.
pub(crate) type Invoke = Arc<dyn Fn(&str, &str) -> Result<String, String> + Send + Sync>;

/// All that a screen is opened with.
pub(crate) struct Setup {
    pub(crate) known: Known,
    pub(crate) history: History,
    pub(crate) colours: Colours,
    pub(crate) opens: Opens,
    /// The person's terminal, as in `pts/3`.
    pub(crate) terminal: String,
    pub(crate) out: Out,
    pub(crate) types: mpsc::Sender<Typed>,
    pub(crate) invoke: Invoke,
    /// Ctrl-D on an empty line.
    pub(crate) leave: Box<dyn Fn() + Send + Sync>,
}

/// What a screen is told.
enum Told {
    Event(AgentEvent),
    /// Lines of the command line's own.
    Lines(Vec<Line<'static>>),
    OfPerson(String),
    /// The terminal is there no more.
    Gone,
    Close,
}

/// An open screen. Events are shown in the order they come.
pub(crate) struct Screen {
    to: mpsc::UnboundedSender<Told>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Screen {
    /// Takes the terminal.
    pub(crate) fn open(setup: Setup) -> io::Result<Arc<Self>> {
        let held = Held::take(setup.out)?;
        let (to, told) = mpsc::unbounded_channel();
        let task = tokio::spawn(Loop::new(setup, held).run(told));
        Ok(Arc::new(Self { to, task: Mutex::new(Some(task)) }))
    }

    pub(crate) fn lines(&self, lines: Vec<Line<'static>>) {
        self.tell(Told::Lines(lines));
    }

    /// Shows what a person said that no event will tell.
    pub(crate) fn of_person(&self, text: &str) {
        self.tell(Told::OfPerson(text.to_owned()));
    }

    /// The terminal is gone: nothing is written or read any more.
    pub(crate) fn gone(&self) {
        self.tell(Told::Gone);
    }

    /// Shows what is left and gives the terminal back.
    pub(crate) async fn close(&self) {
        self.tell(Told::Close);
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(task) = task {
            // A screen that failed has given the terminal back as well.
            let _ = task.await;
        }
    }

    fn tell(&self, told: Told) {
        // A screen that is closed shows nothing.
        let _ = self.to.send(told);
    }
}

impl Sink for Screen {
    fn emit(&self, event: &AgentEvent) {
        self.tell(Told::Event(event.clone()));
    }
}

/// What comes after something was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    GoOn,
    Close,
}

/// Whether the picture is what there is to see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shown {
    Yes,
    Stale,
}

struct Loop {
    setup: Setup,
    view: View,
    region: Region<Box<dyn Write + Send>>,
    /// `None` once the terminal is gone.
    keys: Option<EventStream>,
    silence: Option<OwnedFd>,
    shown: Shown,
    drawn: Instant,
    touched: Option<Instant>,
    _held: Held,
}

impl Loop {
    fn new(setup: Setup, held: Held) -> Self {
        let view = View::new(setup.known.clone(), setup.history.lines(), setup.opens);
        let region = Region::new((setup.out)(), setup.colours);
        let drawn = Instant::now();
        let keys = Some(EventStream::new());
        Self { setup, view, region, keys, silence: None, shown: Shown::Stale, drawn, touched: None, _held: held }
    }

    async fn run(mut self, mut told: mpsc::UnboundedReceiver<Told>) {
        self.draw();
        loop {
            let frame = self.drawn + FRAME;
            let key = async {
                match self.keys.as_mut() {
                    Some(keys) => keys.next().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                first = told.recv() => {
                    let mut next = first.map_or(Next::Close, |told| self.take(told));
                    while let (Next::GoOn, Ok(more)) = (next, told.try_recv()) {
                        next = self.take(more);
                    }
                    if next == Next::Close {
                        self.leave();
                        return;
                    }
                    self.shown = Shown::Stale;
                }
                event = key => match event {
                    Some(Ok(event)) => {
                        self.happened(&event);
                        self.shown = Shown::Stale;
                    }
                    // A terminal that cannot be read is gone. To ask it again would be to ask for ever.
                    Some(Err(_)) | None => self.hang_up(),
                },
                () = tokio::time::sleep_until(frame), if self.shown == Shown::Stale => self.draw(),
            }
        }
    }

    fn take(&mut self, told: Told) -> Next {
        match told {
            Told::Event(event) => self.view.apply(&event),
            Told::Lines(lines) => self.view.say(lines),
            Told::OfPerson(text) => self.view.say_of_person(&text),
            Told::Gone => self.hang_up(),
            Told::Close => return Next::Close,
        }
        Next::GoOn
    }

    /// Reads no more. crossterm's reader asks a terminal that is gone again and again, without a pause, and hears nobody
    /// meanwhile; given a pipe that stays silent it comes to rest and is heard.
    fn hang_up(&mut self) {
        if let Ok((silent, open)) = nix::unistd::pipe2(OFlag::O_NONBLOCK | OFlag::O_CLOEXEC)
            && nix::unistd::dup2_stdin(silent).is_ok()
        {
            self.silence = Some(open);
        }
        self.keys = None;
    }

    fn happened(&mut self, event: &Event) {
        let actions = match event {
            Event::Key(key) => self.view.key(*key),
            Event::Paste(text) => self.view.paste(text),
            Event::FocusGained | Event::FocusLost | Event::Mouse(_) | Event::Resize(..) => Vec::new(),
        };
        for action in actions {
            self.act(action);
        }
    }

    fn act(&mut self, action: Action) {
        let terminal = self.setup.terminal.clone();
        let typed = match action {
            Action::Line(text) => Typed::Line { terminal, text },
            Action::FollowUp(text) => Typed::FollowUp { terminal, text },
            Action::Escape => Typed::Escape,
            Action::Command(command) => Typed::Command(command),
            Action::Skill { name, arguments } => match (self.setup.invoke)(&name, &arguments) {
                Ok(text) => Typed::Line { terminal, text },
                Err(why) => return self.view.note(&format!("-- {why}")),
            },
            Action::Leave => return (self.setup.leave)(),
            Action::Remember(line) => return self.setup.history.keep(&line),
            Action::Touched => {
                if self.touched.is_some_and(|at| at.elapsed() < TOUCH) {
                    return;
                }
                self.touched = Some(Instant::now());
                Typed::Key
            }
        };
        match self.setup.types.try_send(typed) {
            Ok(()) | Err(TrySendError::Full(Typed::Key) | TrySendError::Closed(Typed::Key)) => {}
            Err(TrySendError::Full(_)) => self.view.note("-- not taken: too much waits already"),
            Err(TrySendError::Closed(_)) => self.view.note("-- not taken: it has ended"),
        }
    }

    fn draw(&mut self) {
        self.shown = Shown::Yes;
        self.drawn = Instant::now();
        if self.keys.is_none() {
            // Nobody is there to see it; what is finished is in the log.
            self.view.take_finished();
            return;
        }
        let (columns, rows) = size();
        self.view.columns = columns;
        let finished = self.view.take_rows(columns);
        let picture = self.view.picture(columns, rows);
        // A terminal that takes nothing is soon found gone.
        let _ = self.region.draw(&finished, &picture, usize::from(columns));
        if std::mem::replace(&mut self.view.attention, Attention::None) == Attention::Wanted
            && matches!(self.view.phase, Phase::Asking(_))
        {
            let _ = self.region.ring();
        }
    }

    fn leave(&mut self) {
        let (columns, _) = size();
        let finished = self.view.take_rows(columns);
        let _ = self.region.leave(&finished, usize::from(columns));
    }
}

/// Columns and rows of the terminal, now.
fn size() -> (u16, u16) {
    crossterm::terminal::size().ok().filter(|(columns, rows)| *columns > 0 && *rows > 0).unwrap_or((80, 24))
}

/// Whether the terminal is ours: for the hook that runs when something panics.
static HELD: AtomicBool = AtomicBool::new(false);

/// The terminal in the modes we need, until dropped.
struct Held {
    out: Out,
}

impl Held {
    fn take(out: Out) -> io::Result<Self> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                // First the terminal, so that what is said of the panic can be read.
                give_back(out);
                before(panic);
            }));
        });
        crossterm::terminal::enable_raw_mode()?;
        HELD.store(true, Ordering::SeqCst);
        // Pastes come marked, and keys that terminals confuse come apart, where the terminal knows how.
        let mut terminal = out();
        terminal.write_all(b"\x1b[?2004h\x1b[>1u")?;
        terminal.flush()?;
        Ok(Self { out })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        give_back(self.out);
    }
}

fn give_back(out: Out) {
    if !HELD.swap(false, Ordering::SeqCst) {
        return;
    }
    let mut terminal = out();
    let _ = terminal.write_all(b"\x1b[<u\x1b[?2004l\x1b[?25h\x1b[?2026l");
    let _ = terminal.flush();
    let _ = crossterm::terminal::disable_raw_mode();
}
