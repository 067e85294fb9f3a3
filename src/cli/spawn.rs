//! Children of an agent: what its `agent` tool asks for becomes a run of its own, with the agent as its parent.
//!
//! `here` they are tasks of this process and end with the call; in windows they have a supervisor and outlive it. Either
//! way they are specs given to the same machine. Deliberately absent: what may be asked (`tool/agent.rs`), how much the
//! parent gives (`machine/admission.rs`), and children of children: whoever is one already has no spawner.

use std::collections::BTreeMap;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use super::board::{self, Board};
use super::error::CliError;
use super::here::{self, Surroundings};
use super::{asked, fold, start, wire};
use crate::agent::Interrupt;
use crate::agent::event::{AgentEvent, Sink};
use crate::files::{self, Durability};
use crate::machine::prompts::Prompt;
use crate::machine::snapshot::{RunSnapshot, StateName};
use crate::machine::view::Part;
use crate::machine::{admission, view};
use crate::model::brief::Brief;
use crate::model::budget::Budget;
use crate::model::child::{Ask, ChildSpec, Evidence, Harness, Lease};
use crate::model::id::{ChildId, RUN_LENGTH, RunId};
use crate::model::provider::provider_of;
use crate::model::run::{OnExit, Place, RunFile, RunSpec, RunState};
use crate::model::usage::Usage;
use crate::store::handover::Handover;
use crate::store::key::Key;
use crate::store::run::{self as runs, NewRun};
use crate::store::settings::Settings;
use crate::store::{AttemptDir, StateRoot, parts};
use crate::supervisor::{self, Call, End, Here};
use crate::tool::{Folded, Order, SpawnError, Spawner, Teller};
use crate::watch::Watch;

/// Requests of one child, over all its attempts.
const REQUESTS: u64 = 25;
/// Runs deeper than this have no children of their own.
const DEEPEST: u32 = 0;
/// A run in windows is looked at this often, besides when it is heard.
const LOOK: Duration = Duration::from_secs(1);

/// Makes the children of one attempt.
pub(super) struct Children {
    state: StateRoot,
    /// `RUN/NUMBER` of the attempt's child.
    parent: String,
    brief: Brief,
    handover: Handover,
    key: Key,
    /// Runs in windows that were begun here, with what of their spending was told; `None` once they were folded.
    begun: Mutex<BTreeMap<RunId, Option<Usage>>>,
}

impl std::fmt::Debug for Children {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Children").field("parent", &self.parent).finish_non_exhaustive()
    }
}

impl Children {
    /// The spawner of an attempt; none for one that is a child of an agent itself.
    pub(super) fn of(dir: &AttemptDir, brief: &Brief, handover: &Handover, key: &Key) -> Option<Arc<dyn Spawner>> {
        if brief.depth > DEEPEST {
            return None;
        }
        Some(Arc::new(Self {
            state: dir.run()?.state()?,
            parent: format!("{}/{}", brief.run, brief.child.number()),
            brief: brief.clone(),
            handover: handover.clone(),
            key: key.clone(),
            begun: Mutex::default(),
        }))
    }
}

impl Spawner for Children {
    fn spawn(&self, order: Order) -> Pin<Box<dyn Future<Output = Result<Folded, SpawnError>> + Send + '_>> {
        Box::pin(async move {
            let limits = admission::for_children(&order.left).map_err(|why| {
                SpawnError(format!("No agent was started: {why}. Look yourself, or report what you have."))
            })?;
            let folded = match order.place {
                Place::Here => self.here(&order, limits).await,
                Place::Window | Place::Bare => self.apart(&order, limits).await,
            };
            folded.map_err(|error| SpawnError(format!("No agent could be started. {}", error.render())))
        })
    }
}

impl Children {
    /// What the machine is given.
    fn asked_for(&self, order: &Order, limits: Budget) -> Result<NewRun, CliError> {
        let project = Path::new(&self.brief.lease.project);
        let catalog = wire::catalog(project);
        let entry = catalog.get("explore")?;
        let mut persona = entry.persona.clone();
        // What the parent must not look at, its children must not either.
        persona.deny.extend(self.brief.spec.persona.deny.iter().cloned());
        let model = self.model(&wire::settings(project)?);
        let prompts: Vec<Prompt> = order.prompts.iter().map(Prompt::new).collect();
        let child = |prompt: &Prompt| ChildSpec {
            label: prompt.label(),
            prompt: prompt.prompt.clone(),
            persona: persona.clone(),
            system: entry.prompt.clone(),
            model: model.clone(),
            harness: Harness::Decode,
            workspace: Lease::SHARED.to_owned(),
            // They see what the parent did so far.
            cwd: self.brief.lease.path.clone(),
            budget: Budget { requests: Some(REQUESTS), ..Budget::NONE }.or(Budget::CHILD),
            retries: 1,
            evidence: Evidence::Required,
            needs: Vec::new(),
            ask: Ask::IfSomebodyIsThere,
            resume: None,
            session: None,
            schema: None,
        };
        let spec = RunSpec {
            run: RunId::from_random([0; RUN_LENGTH]),
            goal: asked::goal(&prompts),
            project: self.brief.lease.project.clone(),
            created: wire::clock().wall,
            place: order.place,
            width: RunSpec::WIDTH,
            limits,
            on_exit: self.on_exit(),
            fold_bytes: RunSpec::FOLD_BYTES,
            parent: Some(self.parent.clone()),
            depth: self.brief.depth + 1,
        };
        Ok(NewRun { spec, children: prompts.iter().map(child).collect() })
    }

    /// The cheap model of the settings, if this process can reach it; else the parent's.
    fn model(&self, settings: &Settings) -> String {
        let own = &self.brief.spec.model;
        let reached = |model: &&String| {
            let provider = provider_of(model);
            provider == provider_of(own) || self.handover.access.iter().any(|access| access.provider == provider)
        };
        settings.models.cheap.as_ref().filter(reached).unwrap_or(own).clone()
    }

    /// A run that is bound to its caller binds the runs of its children.
    fn on_exit(&self) -> OnExit {
        runs::read_run(&self.state.run(&self.brief.run)).map_or(OnExit::Detach, |file| file.spec.on_exit)
    }

    /// Drives the children in this process, until they are through or the call is cut.
    async fn here(&self, order: &Order, limits: Budget) -> Result<Folded, CliError> {
        let spec = runs::create(&self.state, self.asked_for(order, limits)?, asked::random)?;
        let directory = self.state.run(&spec.run);
        let nested = Nested {
            handover: self.handover.clone(),
            key: self.key.clone(),
            teller: order.teller.clone(),
            board: Arc::default(),
        };
        let world = wire::world_here(directory.clone(), self.handover.clone(), Arc::new(nested))?;
        let (to, calls) = mpsc::unbounded_channel();
        let mut notes = Vec::new();
        {
            let mut driven = std::pin::pin!(supervisor::drive(world, calls));
            let ended = tokio::select! {
                ended = &mut driven => ended,
                () = is_cut(order.cut.clone()) => {
                    notes.push("the call was cut: what stands here is what they had by then".to_owned());
                    // It ends with its children, whose reports are read below.
                    let _ = to.send(Call::Cut);
                    driven.await
                }
            };
            ended?;
        }
        let (file, found) = parts::read(&directory)?;
        Ok(folded(&file, found, order, &notes))
    }

    /// Gives the children a supervisor and windows, and waits for what they come to.
    async fn apart(&self, order: &Order, limits: Budget) -> Result<Folded, CliError> {
        let run = match self.begun_before(order) {
            Some(run) => run,
            None => self.begin(order, limits).await?,
        };
        let directory = self.state.run(&run);
        let (hears, mut heard) = mpsc::unbounded_channel();
        let watch = Watch::start(hears).ok();
        if let Some(watch) = &watch {
            let _ = watch.add(directory.path());
        }
        let mut reader = parts::Reader::new(&directory);
        let mut board = Board::default();
        loop {
            let file = reader.look()?;
            let shown = view::run(&file, reader.parts());
            for telling in board.look(&shown) {
                order.teller.tell(telling);
            }
            if file.state == RunState::Ended {
                let usage = self.settle(&run, shown.spent, None);
                return Ok(Folded { usage, ..folded(&file, reader.parts().to_vec(), order, &[]) });
            }
            let text = tokio::select! {
                () = is_cut(order.cut.clone()) => format!(
                    "The call was cut; the agents go on in run {run}. To wait for what they find, call agent again with \
                     the same prompts and place; a person can `decode wait {run}`."
                ),
                Some(_) = heard.recv() => continue,
                () = tokio::time::sleep(LOOK) => {
                    if runs::is_driven(&directory) || runs::read_run(&directory)?.state == RunState::Ended {
                        continue;
                    }
                    format!(
                        "The supervisor of run {run} is gone and its agents go on by themselves; a person can take it up \
                         with `decode resume {run}`. What there is so far:\n\n{}",
                        fold::made(&file, reader.parts(), &[])
                    )
                }
            };
            let usage = self.settle(&run, shown.spent, Some(shown.spent));
            return Ok(Folded { text, usage, done: 0 });
        }
    }

    async fn begin(&self, order: &Order, limits: Budget) -> Result<RunId, CliError> {
        if order.place == Place::Window {
            wire::tmux_server_for(&self.handover.environment)?.alive().await?;
        }
        let spec = runs::create(&self.state, self.asked_for(order, limits)?, asked::random)?;
        let directory = self.state.run(&spec.run);
        if let Err(error) = start::supervisor(&directory, &spec, &self.handover).await {
            // Nothing was spent; a run that never began is no run.
            if !runs::is_driven(&directory) {
                let _ = std::fs::remove_dir_all(directory.path());
            }
            return Err(error);
        }
        self.begun().insert(spec.run.clone(), Some(Usage::ZERO));
        Ok(spec.run)
    }

    /// The run of the same prompts that an earlier call began, or an earlier attempt, and whose fold nobody has had.
    fn begun_before(&self, order: &Order) -> Option<RunId> {
        let had = |run: &RunId| matches!(self.begun().get(run), Some(None));
        let ours = runs::list(&self.state).into_iter().rev().filter(|(run, file)| {
            file.spec.parent.as_ref() == Some(&self.parent) && file.spec.place == order.place && !had(run)
        });
        let asks_the_same = |run: &RunId| {
            runs::read_specs(&self.state.run(run))
                .is_ok_and(|specs| specs.iter().map(|(_, spec)| &spec.prompt).eq(&order.prompts))
        };
        ours.map(|(run, _)| run).find(asks_the_same)
    }

    /// What of a run's spending was not told before; from now on `told` was, or its fold was had.
    fn settle(&self, run: &RunId, spent: Usage, told: Option<Usage>) -> Usage {
        let before = self.begun().insert(run.clone(), told).flatten().unwrap_or_default();
        board::since(spent, before)
    }

    fn begun(&self) -> MutexGuard<'_, BTreeMap<RunId, Option<Usage>>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Comes back when the call is cut; never, if nobody can cut it any more.
async fn is_cut(mut cut: watch::Receiver<bool>) {
    if cut.wait_for(|cut| *cut).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// The fold of a run that is over, for its parent.
fn folded(file: &RunFile, mut found: Vec<Part>, order: &Order, notes: &[String]) -> Folded {
    let run: RunSnapshot = view::run(file, &found);
    let done = run.children.iter().filter(|child| child.state == StateName::Done).count();
    for part in &mut found {
        spill(part, order, &run.run);
    }
    Folded { text: fold::made(file, &found, notes), usage: run.spent, done }
}

/// Puts a copy of a report where the parent can read it, and has the fold name that: the state directory is closed to
/// agents.
fn spill(part: &mut Part, order: &Order, run: &RunId) {
    let Some(report) = &part.report else { return };
    let path = order.spill.join(format!("{run}-{}.md", part.id));
    let put = runs::make_directory(&order.spill).is_ok()
        && files::write(&path, report.body.as_bytes(), Durability::Renamed).is_ok();
    // Without a copy the fold names the original, for people.
    if put {
        part.report_path = path.to_string_lossy().into_owned();
    }
}

/// Runs the attempts of children as tasks of their parent's process.
struct Nested {
    handover: Handover,
    key: Key,
    teller: Teller,
    board: Arc<Mutex<Board>>,
}

impl Here for Nested {
    fn run(&self, dir: AttemptDir, mut end: watch::Receiver<End>) -> Pin<Box<dyn Future<Output = u8> + Send>> {
        let sink = Arc::new(Told { number: number_of(&dir), board: self.board.clone(), teller: self.teller.clone() });
        let (interrupt, interrupted) = watch::channel(Interrupt::None);
        let around = Surroundings {
            until: crate::agent::Until::Report,
            handover: self.handover.clone(),
            key: self.key.clone(),
            typed: None,
            interrupt: interrupted,
            attached: Arc::new(|| false),
        };
        Box::pin(async move {
            let ended = async {
                // Nobody drives it any more: the same as to be told.
                let _ = end.wait_for(|end| *end == End::Now).await;
                interrupt.send_replace(Interrupt::Terminate);
                std::future::pending().await
            };
            let report = Mutex::default();
            tokio::select! {
                exit = here::one(dir, around, sink, &report) => exit,
                exit = ended => exit,
            }
        })
    }
}

/// `children/<nn>-<slug>/<attempt>`: the number.
fn number_of(dir: &AttemptDir) -> u32 {
    let child = dir.path().parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy().into_owned();
    ChildId::try_from(child).map_or(0, |child| child.number())
}

/// Passes on to the parent what a child is at.
struct Told {
    number: u32,
    board: Arc<Mutex<Board>>,
    teller: Teller,
}

impl Sink for Told {
    fn emit(&self, event: &AgentEvent) {
        let tellings = self.board.lock().unwrap_or_else(PoisonError::into_inner).hear(self.number, event);
        for telling in tellings {
            self.teller.tell(telling);
        }
    }
}
