//! Tools: what a model may ask for. Each is a file of its own and one line in `all`.
//!
//! A tool is handed the place it may act in and answers with text for the model. Deliberately absent: whether a call
//! is allowed (`machine/gate.rs`) and who is asked.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use serde_json::{Map, Value};

use crate::model::budget::Budget;
use crate::model::language_server::LanguageServer;
use crate::model::message::{Image, ToolSpec};
use crate::model::rule::{Rule, Subject};
use crate::model::run::Place;
use crate::model::skill::Skill;
use crate::model::todo::Todo;
use crate::model::tool_name::ToolName;
use crate::model::usage::Usage;

mod agent;
mod ask_user;
mod bash;
mod diff;
mod edit;
#[cfg(test)]
mod fixture;
mod glob;
mod grep;
mod image;
mod input;
mod lsp;
mod output;
mod patch;
mod path;
mod plan_mode;
mod read;
mod skill;
mod sleep;
mod todo_write;
mod walk;
mod web;
mod web_fetch;
mod web_search;
mod write;

/// What some tools need besides the workspace; a tool whose part is missing is absent.
#[derive(Debug, Default)]
pub(crate) struct Kit {
    /// What the model may load.
    pub(crate) skills: Vec<Skill>,
    /// Where `web_search` asks.
    pub(crate) search: Option<String>,
    /// Language servers that the user named, beside those that are known.
    pub(crate) servers: Vec<LanguageServer>,
    pub(crate) unconfined: Unconfined,
    /// Starts children; missing where an attempt is a child of an agent itself.
    pub(crate) spawner: Option<Arc<dyn Spawner>>,
}

/// Whether a language server may run where no sandbox holds it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Unconfined {
    /// The mode lets the agent do as much by itself.
    Allowed,
    #[default]
    Refused,
}

/// Every tool that this attempt can have, one line each.
pub(crate) fn all(kit: Kit) -> Vec<Arc<dyn Tool>> {
    let servers = Arc::new(lsp::Servers::new(kit.servers, kit.unconfined));
    let mut tools: Vec<Arc<dyn Tool>> = vec![
        Arc::new(read::Read),
        Arc::new(glob::Glob),
        Arc::new(grep::Grep),
        Arc::new(write::Write { servers: Arc::clone(&servers) }),
        Arc::new(edit::Edit { servers: Arc::clone(&servers) }),
        Arc::new(todo_write::TodoWrite),
        Arc::new(ask_user::AskUser),
        Arc::new(plan_mode::Enter),
        Arc::new(plan_mode::Exit),
        Arc::new(sleep::Sleep),
        Arc::new(bash::Bash::default()), // Each has a line of its own, so that a new one touches no other.
        Arc::new(web_fetch::WebFetch),
        Arc::new(lsp::Lsp { servers }),
    ];
    tools.extend(kit.spawner.map(|spawner| Arc::new(agent::Agent::new(spawner)) as Arc<dyn Tool>));
    tools.extend(skill::LoadSkill::of(kit.skills).map(|tool| Arc::new(tool) as Arc<dyn Tool>));
    if let Some(search) = kit.search.as_deref().and_then(web_search::WebSearch::new) {
        tools.push(Arc::new(search));
    }
    tools
}

/// Arguments of a call: always a JSON object here.
pub(crate) type Input = Map<String, Value>;

/// A future that a tool returns.
pub(crate) type Running<'a> = Pin<Box<dyn Future<Output = Answer> + Send + 'a>>;

/// What a model may ask for.
pub(crate) trait Tool: Send + Sync {
    fn name(&self) -> ToolName;

    /// Name, description and arguments as the model is told.
    fn spec(&self) -> ToolSpec;

    /// What the gate's rules are matched against.
    fn subject(&self, input: &Input, scope: &Scope) -> Subject;

    /// What else the call touches, as the hosts a command names. The strictest decision holds.
    fn further(&self, _input: &Input, _scope: &Scope) -> Vec<Subject> {
        Vec::new()
    }

    /// What the call would change, as a unified diff, for whoever is asked to allow it.
    fn preview(&self, _input: &Input, _scope: &Scope) -> Option<String> {
        None
    }

    /// Runs the call. Never panics on any input; what is wrong comes back as a correction.
    fn run<'a>(&'a self, input: Input, scope: &'a Scope) -> Running<'a>;
}

/// Where the tools of one attempt act.
#[derive(Debug, Clone)]
pub(crate) struct Scope {
    /// The workspace; nothing outside is opened.
    pub(crate) root: PathBuf,
    /// Where long output is spilled to, outside the workspace.
    pub(crate) spill: PathBuf,
    /// What else may be read outside the workspace: the folders of skills.
    pub(crate) readable: Vec<PathBuf>,
    /// The environment of commands, already without secrets.
    pub(crate) environment: Vec<(String, String)>,
    /// Becomes true when the call must end now, keeping what it has.
    pub(crate) cut: tokio::sync::watch::Receiver<bool>,
    /// Files as the model last saw them, so that a stale edit is noticed.
    pub(crate) seen: Arc<Mutex<HashMap<PathBuf, SystemTime>>>,
    /// Rules that deny, for tools that come upon paths the gate was not asked about.
    pub(crate) deny: Vec<Rule>,
    /// Rules that allow, for tools that are led on to places the gate was not asked about.
    pub(crate) allow: Vec<Rule>,
    /// What the kernel holds commands to; `None` where it cannot.
    pub(crate) sandbox: Option<crate::sandbox::Confinement>,
    /// What the attempt may still spend.
    pub(crate) left: Budget,
    /// Hears what a long call is at.
    pub(crate) teller: Teller,
}

impl Scope {
    /// The files as last seen. Held while a file is changed, so that two edits of one turn follow each other.
    fn seen(&self) -> MutexGuard<'_, HashMap<PathBuf, SystemTime>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends when the call must end.
    async fn is_cut(&self) {
        let mut cut = self.cut.clone();
        if cut.wait_for(|cut| *cut).await.is_err() {
            // Nobody is left who could cut.
            std::future::pending::<()>().await;
        }
    }
}

/// Makes children of an attempt, the one arrow up: the tool asks, and the machine of a run of their own decides.
pub(crate) trait Spawner: Send + Sync + std::fmt::Debug {
    /// Runs the children to their end and folds what they report.
    fn spawn(&self, order: Order) -> Pin<Box<dyn Future<Output = Result<Folded, SpawnError>> + Send + '_>>;
}

/// What is asked of a spawner.
#[derive(Debug, Clone)]
pub(crate) struct Order {
    /// One a child, in the order in which they are folded.
    pub(crate) prompts: Vec<String>,
    pub(crate) place: Place,
    /// Where whole reports may be put that the fold has no room for, so that `read` finds them.
    pub(crate) spill: PathBuf,
    /// What the parent may still spend; the children get a part of it.
    pub(crate) left: Budget,
    /// Becomes true when the call must end now.
    pub(crate) cut: tokio::sync::watch::Receiver<bool>,
    pub(crate) teller: Teller,
}

/// What children came to.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Folded {
    pub(crate) text: String,
    /// What they spent, all together.
    pub(crate) usage: Usage,
    /// How many of them are done.
    pub(crate) done: usize,
}

/// Why no child was started; what is to be done about it stands in the text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct SpawnError(pub(crate) String);

/// Something a call tells while it runs.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Telling {
    /// What it is at now, in one line.
    Doing(String),
    /// For the log, once.
    Note(String),
    /// Spent since the last telling; the answer's own usage is the whole.
    Spent(Usage),
}

/// Where a call tells what it is at.
#[derive(Clone)]
pub(crate) struct Teller(Arc<dyn Fn(Telling) + Send + Sync>);

impl Teller {
    pub(crate) fn new(hear: impl Fn(Telling) + Send + Sync + 'static) -> Self {
        Self(Arc::new(hear))
    }

    pub(crate) fn tell(&self, telling: Telling) {
        (self.0)(telling);
    }
}

impl std::fmt::Debug for Teller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Teller")
    }
}

/// A tool's answer to the model.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Answer {
    /// False for a correction or a failure; evidence counts only true.
    pub(crate) ok: bool,
    pub(crate) text: String,
    /// Paths changed, relative to the workspace.
    pub(crate) changed: Vec<String>,
    /// What changed, as a unified diff, for people.
    pub(crate) diff: Option<String>,
    pub(crate) images: Vec<Image>,
    /// What others spent for it, which counts as the caller's own. Boxed, because answers are errors too.
    pub(crate) usage: Option<Box<Usage>>,
    /// What only the loop itself can do; its own answer takes the place of this one.
    pub(crate) wish: Option<Box<Wish>>,
}

/// What a tool asks of the loop: control tools check their arguments and leave the rest to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wish {
    Todo(Vec<Todo>),
    Ask { question: String },
    EnterPlanMode,
    ExitPlanMode { plan: String },
}

impl Answer {
    pub(crate) fn done(text: impl Into<String>) -> Self {
        Self { ok: true, text: text.into(), ..Self::default() }
    }

    /// The arguments are sound; the loop does the rest.
    pub(crate) fn wishing(wish: Wish) -> Self {
        Self { ok: true, wish: Some(Box::new(wish)), ..Self::default() }
    }

    /// Input the model must mend; says how.
    pub(crate) fn correction(text: impl Into<String>) -> Self {
        Self { ok: false, text: text.into(), ..Self::default() }
    }

    #[must_use]
    pub(crate) fn changing(mut self, path: &Path) -> Self {
        self.changed.push(path.to_string_lossy().into_owned());
        self
    }
}
