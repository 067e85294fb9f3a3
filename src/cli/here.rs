//! An attempt as this process runs it: a window's process, or a task of `decode run`. One way to build its parts.

use std::path::Path;
use std::sync::{Arc, Mutex};

use tokio::sync::{mpsc, watch};

use super::error::CliError;
use super::wire;
use crate::agent::event::Sink;
use crate::agent::{self, Interrupt, Parts, Typed, Until};
use crate::machine::environment;
use crate::machine::gate::Confinement;
use crate::model::brief::Brief;
use crate::model::persona::Mode;
use crate::model::report::Report;
use crate::model::tool_name::ToolName;
use crate::sandbox::{self, Access, Network};
use crate::store::AttemptDir;
use crate::store::attempt::{self, Claiming};
use crate::store::context;
use crate::store::handover::Handover;
use crate::store::key::Key;
use crate::supervisor::{End, Here};
use crate::tool;
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
}

/// The parts of one attempt.
pub(super) async fn parts(dir: &AttemptDir, brief: &Brief, around: Surroundings) -> Result<Parts, CliError> {
    let provider = wire::provider(&brief.spec.model, &around.handover)?;
    let parent = format!("{}/{}", brief.run, brief.child.number());
    let environment = environment::for_tools(&around.handover.environment, brief.depth, &parent);
    let commands = brief.spec.persona.tools.contains(&ToolName::Bash);
    let held = wire::sandbox_holds(around.handover.sandbox);
    let sandbox = if commands && held {
        Some(sandbox(dir, brief, &around.handover.environment, &environment).await?)
    } else {
        None
    };
    // What the kernel keeps in a workspace of the child's own need not be asked about.
    let confinement = if !brief.lease.is_shared() && held { Confinement::InForce } else { Confinement::None };
    Ok(Parts {
        provider,
        tools: wire::tools(tool::Kit::default()),
        clock: wire::clock,
        key: around.key,
        allow: Vec::new(),
        deny: Vec::new(),
        confinement,
        sandbox,
        context: context::gather(Path::new(&brief.lease.path)).text,
        environment,
        price: None,
        max_tokens: MAX_TOKENS,
        window_tokens: WINDOW_TOKENS,
        until: Until::Report,
        switchboard: Arc::new(wire::Switches { project: (&brief.lease.project).into(), handover: around.handover }),
        typed: around.typed,
        interrupt: around.interrupt,
        attached: around.attached,
    })
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
}

impl Here for InProcess {
    fn run(
        &self,
        dir: AttemptDir,
        mut end: watch::Receiver<End>,
    ) -> std::pin::Pin<Box<dyn Future<Output = u8> + Send>> {
        let (handover, key, sink) = (self.handover.clone(), self.key.clone(), self.sink.clone());
        let (interrupt, last) = (self.interrupt.clone(), self.last.clone());
        Box::pin(async move {
            // The machine asks to end: the same as a signal.
            let teller = interrupt.clone();
            let ends = tokio::spawn(async move {
                if end.wait_for(|end| *end == End::Now).await.is_ok() {
                    super::attempt::first(&teller, Interrupt::Terminate);
                }
            });
            let around = Surroundings {
                handover,
                key,
                typed: None,
                interrupt: interrupt.subscribe(),
                attached: Arc::new(|| false),
            };
            let exit = one(dir, around, sink, &last).await;
            ends.abort();
            exit
        })
    }
}

/// Claims, runs and reports one attempt; what cannot even start says why in its exit status and on the sink.
async fn one(dir: AttemptDir, around: Surroundings, sink: Arc<dyn Sink>, last: &Mutex<Option<Report>>) -> u8 {
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
