//! One attempt: the loop of one agent, from its brief to its report.
//!
//! The loop asks a model, runs the tools it calls, and listens: to its inbox, to the person at its window, to signals.
//! Deliberately absent: retries of attempts, other children and the verdict (the machine's), entering a workspace and
//! signals themselves (the caller's), and every concrete provider and tool.

mod ask;
pub(crate) mod attempt;
mod call;
mod compact;
mod context;
mod conversation;
pub(crate) mod event;
mod person;
mod prompt;
mod report;
#[cfg(test)]
mod tests;
mod turn;
mod wheel;

use std::sync::Arc;

use tokio::sync::{mpsc, watch};

use crate::machine::gate::Confinement;
use crate::machine::spend::Price;
use crate::model::persona::{Mode, Persona};
use crate::model::report::Report;
use crate::model::rule::Rule;
use crate::model::time::Now;
use crate::provider::Provider;
use crate::store::key::Key;
use crate::tool::Tool;

/// All an attempt is handed beside its brief.
pub(crate) struct Parts {
    pub(crate) provider: Arc<dyn Provider>,
    /// Everything there is; the persona decides what is offered.
    pub(crate) tools: Vec<Arc<dyn Tool>>,
    pub(crate) clock: fn() -> Now,
    /// Verifies what comes into the inbox.
    pub(crate) key: Key,
    /// Rules of the user, on top of the persona's.
    pub(crate) allow: Vec<Rule>,
    pub(crate) deny: Vec<Rule>,
    pub(crate) confinement: Confinement,
    /// What the tools may read outside the workspace: the folders of skills.
    pub(crate) readable: Vec<std::path::PathBuf>,
    /// Keeps rules for the project that a person answered with "always".
    pub(crate) remember: Remember,
    /// What the kernel holds commands to, where it can.
    pub(crate) sandbox: Option<crate::sandbox::Confinement>,
    /// What the project and the user want every agent to know: AGENTS.md, memory, the skills index.
    pub(crate) context: String,
    /// The environment of commands, already without secrets.
    pub(crate) environment: Vec<(String, String)>,
    /// What the model costs, where it is known.
    pub(crate) price: Option<Price>,
    /// The longest answer of the model.
    pub(crate) max_tokens: u32,
    /// How many tokens the model takes in.
    pub(crate) window_tokens: u64,
    /// How long the loop goes on.
    pub(crate) until: Until,
    /// Finds personas and models that a person names on the way.
    pub(crate) switchboard: Arc<dyn Switchboard>,
    /// What a person does in the window, if there is one.
    pub(crate) typed: Option<mpsc::Receiver<Typed>>,
    pub(crate) interrupt: watch::Receiver<Interrupt>,
    /// Whether somebody looks at the window now.
    pub(crate) attached: Arc<dyn Fn() -> bool + Send + Sync>,
}

/// Takes rules that are to hold in later sessions too.
pub(crate) type Remember = Arc<dyn Fn(&[Rule]) -> Result<(), String> + Send + Sync>;

/// When the loop ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    /// With the report.
    Report,
    /// With the person's `/quit`: after each answer it waits for their next line.
    Quit,
}

/// Finds what a person names in the middle of a session.
pub(crate) trait Switchboard: Send + Sync {
    /// A persona and its prompt.
    fn persona(&self, name: &str) -> Result<(Persona, String), String>;

    /// A model as `provider/name`, with what it takes in and costs.
    fn model(&self, name: &str) -> Result<Model, String>;
}

/// A model that answers, and what is known of it.
#[derive(Clone)]
pub(crate) struct Model {
    /// `provider/name`.
    pub(crate) name: String,
    pub(crate) provider: Arc<dyn Provider>,
    pub(crate) price: Option<Price>,
    pub(crate) window_tokens: u64,
}

/// What a person tells the loop itself, not the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Command {
    Agent(String),
    Mode(Mode),
    Model(String),
    Compact,
    /// Ends the session with what there is.
    Quit,
}

/// What a person does in a window. `terminal` is the name of theirs, as in `pts/3`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Typed {
    /// Enter: for the next boundary, or the answer to what is asked.
    Line { terminal: String, text: String },
    /// Alt+Enter: for when it would stop.
    FollowUp { terminal: String, text: String },
    /// Esc: cut what runs and hold; refuses a question.
    Escape,
    /// A slash command of the loop's own.
    Command(Command),
    /// Any other key: the person is still there.
    Key,
    /// The window was closed; the work goes on without it.
    WindowGone,
}

/// A signal that ends the attempt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Interrupt {
    #[default]
    None,
    /// TERM.
    Terminate,
    /// INT to a headless run.
    CtrlC,
}

impl Interrupt {
    /// The exit status that follows.
    const fn exit(self) -> u8 {
        match self {
            Self::CtrlC => 130,
            Self::None | Self::Terminate => 143,
        }
    }
}

/// How an attempt ended. The report is on the disk unless `written` says why not.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) exit: u8,
    pub(crate) report: Report,
    pub(crate) written: Result<(), crate::store::attempt::AttemptError>,
}
