//! An attempt as this process runs it: a window's process, or a task of `decode run`. One way to build its parts.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use tokio::sync::{mpsc, watch};

use super::error::CliError;
use super::spawn::Children;
use super::wire;
use crate::agent::event::Sink;
use crate::agent::{self, Interrupt, Parts, Remember, Typed, Until};
use crate::machine::environment;
use crate::machine::gate::Confinement;
use crate::model::brief::Brief;
use crate::model::persona::Mode;
use crate::model::report::Report;
use crate::model::skill::{self, Skill};
use crate::model::tool_name::ToolName;
use crate::sandbox::{self, Access, Network};
use crate::store::attempt::{self, Claiming};
use crate::store::context;
use crate::store::handover::Handover;
use crate::store::key::Key;
use crate::store::places::Places;
use crate::store::project;
use crate::store::skills::Skills;
use crate::store::{AttemptDir, StateRoot};
use crate::supervisor::{End, Here};
use crate::tool::{self, Unconfined};
use crate::workspace;

/// The longest answer asked of a model.
const MAX_TOKENS: u32 = 16_000;
/// Tokens a model takes in, where nothing else is known.
pub(super) const WINDOW_TOKENS: u64 = 200_000;

/// What a process brings to an attempt besides its files.
pub(super) struct Surroundings {
    pub(super) handover: Handover,
    pub(super) key: Key,
    pub(super) typed: Option<mpsc::Receiver<Typed>>,
    pub(super) interrupt: watch::Receiver<Interrupt>,
    pub(super) attached: Arc<dyn Fn() -> bool + Send + Sync>,
    pub(super) until: Until,
}

/// The parts of one attempt.
pub(super) async fn parts(dir: &AttemptDir, brief: &Brief, around: Surroundings) -> Result<Parts, CliError> {
    let provider = wire::provider(&brief.spec.model, &around.handover)?;
    let state =
        dir.run().and_then(|run| run.state()).ok_or_else(|| CliError::usage("this is not an attempt's directory"))?;
    let project = Path::new(&brief.lease.project);
    // The trust that counts is that of the project the run was asked for, not of the copy the child works in.
    let places = wire::places_of_caller(project, &state, &around.handover.environment);
    let decided = project::load(&state, project)?;
    let skills = skills(brief, &places);
    let readable = folders(&skills);
    let parent = format!("{}/{}", brief.run, brief.child.number());
    let environment = environment::for_tools(&around.handover.environment, brief.depth, &parent);
    // A language server runs what the project says, as a command does.
    let commands = brief.spec.persona.tools.iter().any(|tool| matches!(tool, ToolName::Bash | ToolName::Lsp));
    let held = wire::sandbox_holds(around.handover.sandbox);
    let mut sandbox = if commands && held {
        Some(sandbox(dir, brief, &around.handover.environment, &environment).await?)
    } else {
        None
    };
    if let Some(sandbox) = &mut sandbox {
        sandbox.readable.extend(readable.iter().cloned());
    }
    // What the kernel keeps in a workspace of the child's own need not be asked about.
    let confinement = if !brief.lease.is_shared() && held { Confinement::InForce } else { Confinement::None };
    let spawner = Children::of(dir, brief, &around.handover, &around.key);
    Ok(Parts {
        provider,
        context: context(brief, &skills, &places),
        tools: wire::tools(tool::Kit { spawner, ..kit(brief, &around.handover, skills) }),
        clock: wire::clock,
        key: around.key,
        allow: decided.allow,
        deny: decided.deny,
        remember: remember(&state, project),
        confinement,
        readable,
        sandbox,
        environment,
        price: None,
        max_tokens: MAX_TOKENS,
        window_tokens: WINDOW_TOKENS,
        until: around.until,
        switchboard: Arc::new(wire::Switches { places, handover: around.handover }),
        typed: around.typed,
        interrupt: around.interrupt,
        attached: around.attached,
    })
}

/// The skills that the persona may load; none without the tool for it.
fn skills(brief: &Brief, places: &Places) -> Vec<Skill> {
    if brief.spec.persona.tools.contains(&ToolName::Skill) { Skills::load(places).for_models() } else { Vec::new() }
}

/// Keeps what a person answered with "always" for the project the run was asked for.
fn remember(state: &StateRoot, project: &Path) -> Remember {
    let (state, project) = (state.clone(), project.to_owned());
    Arc::new(move |rules| {
        let at = wire::clock().wall;
        rules
            .iter()
            .try_for_each(|rule| project::remember_rule(&state, &project, rule, project::Effect::Allow, at))
            .map_err(|error| crate::text::chain(&error))
    })
}

/// The folders of skills that have more than their instructions.
fn folders(skills: &[Skill]) -> Vec<PathBuf> {
    skills.iter().filter(|skill| !skill.siblings.is_empty()).filter_map(|skill| skill.directory.clone()).collect()
}

/// What every agent here should know: the instructions of the repository, the notes of earlier sessions, the index of
/// skills.
fn context(brief: &Brief, skills: &[Skill], places: &Places) -> String {
    let instructions = context::gather(Path::new(&brief.lease.path)).text;
    let memory = context::memory(places.user.as_deref(), Path::new(&brief.lease.project));
    let index = skill::index(skills);
    let parts = [instructions.trim(), memory.trim(), index.trim()];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n\n")
}

/// What some tools need besides the workspace.
fn kit(brief: &Brief, handover: &Handover, skills: Vec<Skill>) -> tool::Kit {
    let unconfined = match brief.spec.persona.mode {
        Mode::Edit | Mode::Bypass => Unconfined::Allowed,
        Mode::Default | Mode::Plan => Unconfined::Refused,
    };
    tool::Kit { spawner: None, skills, search: handover.web_search.clone(), servers: handover.lsp.clone(), unconfined }
}

/// What the kernel holds this attempt's commands to.
async fn sandbox(
    dir: &AttemptDir,
    brief: &Brief,
    caller: &[(String, String)],
    environment: &[(String, String)],
) -> Result<sandbox::Confinement, CliError> {
    let state =
        dir.run().and_then(|run| run.state()).ok_or_else(|| CliError::usage("this is not an attempt's directory"))?;
    let access = if brief.lease.is_shared() { Access::Read } else { Access::Write };
    let workspace = Path::new(&brief.lease.path);
    let home = wire::home().unwrap_or_else(|| Path::new("/nonexistent").to_owned());
    let named = environment.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let mut confinement = sandbox::Confinement::new(workspace, access, &dir.path().join("tmp"), state.path(), &home)
        .with_toolchains(named)
        .with_sockets(caller.iter().map(|(name, value)| (name.as_str(), value.as_str())))
        .with_sockets(wire::tmux_of_window().as_deref().map(|value| ("TMUX", value)));
    let request = workspace::Request {
        run: brief.run.clone(),
        child: brief.child.clone(),
        recipe: brief.lease.recipe.clone(),
        project: (&brief.lease.project).into(),
        directory: state.workspace(&brief.run, &brief.child),
    };
    let reach = workspace::reach(&request, &brief.lease).await?;
    confinement.writable.extend(reach.writable);
    confinement.readable.extend(reach.readable);
    // What leaves the workspace is not free; only a person who lifted every bound lifted this one.
    confinement.network = match brief.spec.persona.mode {
        Mode::Bypass => Network::Open,
        Mode::Default | Mode::Edit | Mode::Plan => Network::Closed,
    };
    Ok(confinement)
}

/// Runs attempts as tasks of this process.
pub(super) struct InProcess {
    pub(super) handover: Handover,
    pub(super) key: Key,
    pub(super) sink: Arc<dyn Sink>,
    /// INT or TERM: which of them decides the exit status.
    pub(super) interrupt: Arc<watch::Sender<Interrupt>>,
    /// The last report, for whoever prints it.
    pub(super) last: Arc<Mutex<Option<Report>>>,
    pub(super) person: Person,
}

/// Who is at the line.
#[derive(Clone)]
pub(super) enum Person {
    /// Nobody: the run ends with its report.
    Nobody,
    /// What they type goes to the attempt that runs; the session ends when they say so.
    There(Arc<tokio::sync::Mutex<mpsc::Receiver<Typed>>>),
}

impl Person {
    /// What comes to one attempt, and the task that passes it on.
    fn typed(&self) -> (Option<mpsc::Receiver<Typed>>, Option<tokio::task::JoinHandle<()>>) {
        let Self::There(typed) = self else { return (None, None) };
        let (to, received) = mpsc::channel(1);
        let typed = typed.clone();
        let passes = tokio::spawn(async move {
            let mut typed = typed.lock_owned().await;
            while let Ok(room) = to.reserve().await {
                // Room first: what is taken out is delivered, also when this attempt ends at this moment.
                let Some(next) = typed.recv().await else { return };
                room.send(next);
            }
        });
        (Some(received), Some(passes))
    }

    const fn until(&self) -> Until {
        match self {
            Self::Nobody => Until::Report,
            Self::There(_) => Until::Quit,
        }
    }
}

impl Here for InProcess {
    fn run(
        &self,
        dir: AttemptDir,
        mut end: watch::Receiver<End>,
    ) -> std::pin::Pin<Box<dyn Future<Output = u8> + Send>> {
        let (handover, key, sink) = (self.handover.clone(), self.key.clone(), self.sink.clone());
        let (interrupt, last) = (self.interrupt.clone(), self.last.clone());
        let person = self.person.clone();
        Box::pin(async move {
            // The machine asks to end: the same as a signal.
            let teller = interrupt.clone();
            let ends = tokio::spawn(async move {
                if end.wait_for(|end| *end == End::Now).await.is_ok() {
                    super::attempt::first(&teller, Interrupt::Terminate);
                }
            });
            let (typed, passes) = person.typed();
            let is_there = typed.is_some();
            let around = Surroundings {
                handover,
                key,
                typed,
                interrupt: interrupt.subscribe(),
                attached: Arc::new(move || is_there),
                until: person.until(),
            };
            let exit = one(dir, around, sink, &last).await;
            ends.abort();
            if let Some(passes) = passes {
                passes.abort();
            }
            exit
        })
    }
}

/// Claims, runs and reports one attempt; what cannot even start says why in its exit status and on the sink.
pub(super) async fn one(
    dir: AttemptDir,
    around: Surroundings,
    sink: Arc<dyn Sink>,
    last: &Mutex<Option<Report>>,
) -> u8 {
    let claimed = match attempt::claim(dir, &wire::claim()) {
        Ok(Claiming::Claimed(claimed)) => claimed,
        Ok(Claiming::AlreadyTaken) => return super::exit::DONE,
        Err(error) => return told(&sink, &CliError::from(error)),
    };
    let brief = match claimed.brief() {
        Ok(brief) => brief,
        Err(error) => return told(&sink, &CliError::from(error)),
    };
    match parts(claimed.dir(), &brief, around).await {
        Ok(parts) => {
            let ended = agent::attempt::run(claimed, brief, parts, sink).await;
            *last.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(ended.report);
            ended.exit
        }
        Err(error) => told(&sink, &error),
    }
}

fn told(sink: &Arc<dyn Sink>, error: &CliError) -> u8 {
    sink.emit(&agent::event::AgentEvent::Note(error.render()));
    error.code
}
