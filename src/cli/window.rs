//! How one agent is shown to a person, and what they type: on a screen, as plain lines, or not at all.

use std::io::BufRead;
use std::path::Path;
use std::sync::Arc;

use ratatui::text::Line;
use tokio::sync::mpsc;

use super::error::CliError;
use super::flags::ColorFlag;
use super::{output, paths, wire};
use crate::agent::event::{AgentEvent, Sink};
use crate::agent::{Command, Typed};
use crate::model::persona::Mode;
use crate::store::StateRoot;
use crate::tui::{Colours, History, Invoke, Known, Opens, Plain, Screen, Setup};

/// What may wait for the loop; a person types slower.
const WAITING: usize = 64;

/// How an agent is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Screen,
    /// Lines that are only ever appended.
    Plain,
    /// There is no terminal; the log has everything.
    Nothing,
}

/// The form for this process. `environment` is the person's, which in a window is not ours.
pub(super) fn form(environment: &[(String, String)]) -> Form {
    if !output::data_goes_to_terminal() {
        return Form::Nothing;
    }
    let dumb = wire::variable("TERM").is_none_or(|term| term == "dumb");
    let plain = value(environment, "DECODE_PLAIN").is_some_and(|value| value != "0");
    if dumb || plain || !output::input_is_terminal() { Form::Plain } else { Form::Screen }
}

pub(super) fn colours(environment: &[(String, String)], flag: ColorFlag) -> Colours {
    match flag {
        ColorFlag::Always => Colours::On,
        ColorFlag::Never => Colours::Off,
        ColorFlag::Auto if value(environment, "NO_COLOR").is_some() => Colours::Off,
        ColorFlag::Auto => Colours::On,
    }
}

/// A variable that says something.
fn value<'a>(environment: &'a [(String, String)], name: &str) -> Option<&'a str> {
    let found = environment.iter().find(|(known, _)| known == name)?;
    Some(found.1.as_str()).filter(|value| !value.is_empty())
}

/// What becomes of the work when the person leaves: at the end of plain input, or by Ctrl-D on an empty line.
pub(super) enum Leave {
    /// It ends.
    Quit,
    /// The terminal goes to another window; the work goes on.
    Detach(Box<dyn Fn() + Send + Sync>),
}

/// What a face is opened with.
pub(super) struct Opening<'a> {
    pub(super) form: Form,
    pub(super) colours: Colours,
    pub(super) opens: Opens,
    pub(super) state: &'a StateRoot,
    /// Whose personas and lines of earlier sessions these are.
    pub(super) project: &'a Path,
    /// Where paths are completed: the workspace, where it is not the project itself.
    pub(super) files: &'a Path,
    pub(super) leave: Leave,
}

/// One agent as a person sees it.
#[derive(Clone)]
pub(super) enum Face {
    Screen(Arc<Screen>),
    Plain(Arc<Plain>),
    Nothing,
}

impl Face {
    /// Opens it, with what a person types on it, and the way to say more there. Needs the runtime.
    pub(super) fn open(opening: Opening<'_>) -> Result<(Self, mpsc::Sender<Typed>, mpsc::Receiver<Typed>), CliError> {
        let (types, typed) = mpsc::channel(WAITING);
        let says = types.clone();
        let face = match opening.form {
            Form::Screen => {
                let setup = Setup {
                    known: known(opening.project, opening.files),
                    history: History::at(opening.state.history(opening.project)),
                    colours: opening.colours,
                    opens: opening.opens,
                    terminal: terminal_name(),
                    out: output::terminal,
                    invoke: invoke(opening.project),
                    leave: leave(opening.leave, types.clone()),
                    types,
                };
                let screen = Screen::open(setup)
                    .map_err(|error| CliError::missing(format!("the terminal cannot be used: {error}")))?;
                Self::Screen(screen)
            }
            Form::Plain => {
                let print = |text: &str| {
                    // A terminal that is gone is no reason to stop.
                    output::line(text);
                };
                let plain = Arc::new(Plain::new(known(opening.project, opening.files), invoke(opening.project), print));
                if output::input_is_terminal() {
                    read_lines(plain.clone(), types, opening.leave);
                }
                Self::Plain(plain)
            }
            Form::Nothing => Self::Nothing,
        };
        Ok((face, says, typed))
    }

    /// Lines that are text already, foreign as they may be.
    pub(super) fn text(&self, text: &str) {
        for line in crate::text::without_controls(text).lines() {
            self.line(Line::from(line.to_owned()));
        }
    }

    /// A line of our own.
    pub(super) fn line(&self, line: Line<'static>) {
        match self {
            Self::Screen(screen) => screen.lines(vec![line]),
            Self::Plain(_) => {
                output::line(&line.to_string());
            }
            Self::Nothing => {}
        }
    }

    /// What the person said that no event will tell. On plain lines it stands there already.
    pub(super) fn of_person(&self, text: &str) {
        match self {
            Self::Screen(screen) => screen.of_person(text),
            Self::Plain(_) | Self::Nothing => {}
        }
    }

    /// Who works.
    pub(super) fn now(&self, agent: &str, mode: Mode, model: &str) {
        if let Self::Screen(screen) = self {
            screen.emit(&AgentEvent::Now { agent: agent.to_owned(), mode, model: model.to_owned() });
        }
    }

    /// The terminal is gone.
    pub(super) fn gone(&self) {
        if let Self::Screen(screen) = self {
            screen.gone();
        }
    }

    /// Shows what is left, and gives the terminal back.
    pub(super) async fn close(&self) {
        if let Self::Screen(screen) = self {
            screen.close().await;
        }
    }
}

impl Sink for Face {
    fn emit(&self, event: &AgentEvent) {
        match self {
            Self::Screen(screen) => screen.emit(event),
            Self::Plain(plain) => plain.emit(event),
            Self::Nothing => {}
        }
    }
}

fn known(project: &Path, files: &Path) -> Known {
    let personas = wire::catalog(project).entries;
    let personas = personas.iter().filter(|entry| !entry.persona.subagent).map(|entry| entry.persona.name.clone());
    let skills = wire::skills(project).for_models().into_iter().map(|skill| (skill.name, skill.description));
    Known { personas: personas.collect(), skills: skills.collect(), paths: paths::beneath(files.to_owned()) }
}

/// Makes a skill's text, as it is on the disk when a person asks for it.
fn invoke(project: &Path) -> Invoke {
    let project = project.to_owned();
    Arc::new(move |name, arguments| {
        wire::skills(&project).invocation(name, arguments).map_err(|error| error.to_string())
    })
}

fn leave(leave: Leave, types: mpsc::Sender<Typed>) -> Box<dyn Fn() + Send + Sync> {
    match leave {
        Leave::Quit => Box::new(move || {
            // A loop that is gone has nothing left to end.
            let _ = types.try_send(Typed::Command(Command::Quit));
        }),
        Leave::Detach(detach) => detach,
    }
}

/// The name of the terminal, as in `pts/3`.
fn terminal_name() -> String {
    nix::unistd::ttyname(std::io::stdin())
        .map(|path| path.to_string_lossy().trim_start_matches("/dev/").to_owned())
        .unwrap_or_default()
}

/// Passes on the lines that a person types. The thread ends with the process: plain lines cannot be read otherwise.
fn read_lines(plain: Arc<Plain>, to: mpsc::Sender<Typed>, leave: Leave) {
    let terminal = terminal_name();
    std::thread::spawn(move || {
        for text in std::io::stdin().lock().lines() {
            let Ok(text) = text else { break };
            if let Some(typed) = plain.typed(&terminal, text)
                && to.blocking_send(typed).is_err()
            {
                return;
            }
        }
        match leave {
            Leave::Quit => {
                let _ = to.blocking_send(Typed::Command(Command::Quit));
            }
            Leave::Detach(detach) => detach(),
        }
    });
}

/// Whether somebody looks at the run now. Asked only when there is a question.
pub(super) fn attached(run: &str) -> Arc<dyn Fn() -> bool + Send + Sync> {
    let run = run.to_owned();
    if std::env::var_os("TMUX_PANE").is_none() {
        return Arc::new(|| false);
    }
    Arc::new(move || {
        let run = run.clone();
        // The loop has one thread and a runtime already; asking takes a thread of its own for some milliseconds.
        let asks = std::thread::spawn(move || {
            let (Ok(server), Ok(runtime)) = (wire::tmux_server_of_window(), wire::runtime()) else { return false };
            runtime.block_on(server.attached_clients(&run)).is_ok_and(|clients| clients > 0)
        });
        asks.join().unwrap_or(false)
    })
}

/// Sends the viewer away who pressed the key. It takes a moment; nobody waits for it.
pub(super) fn detach(run: &str) -> Leave {
    let run = run.to_owned();
    Leave::Detach(Box::new(move || {
        let run = run.clone();
        std::thread::spawn(move || {
            let (Ok(server), Ok(runtime)) = (wire::tmux_server_of_window(), wire::runtime()) else { return };
            // A viewer who cannot be sent away is still there and can press the key again.
            let _ = runtime.block_on(server.detach_latest(&run));
        });
    }))
}
