//! `decode` without a verb at a terminal: one agent with a person at the line.
//!
//! The run is made with the first line, so that a session opened by mistake leaves nothing behind. Deliberately absent:
//! anything a run of one child would do otherwise (`run.rs`).

use std::sync::Arc;

use ratatui::style::Stylize;
use ratatui::text::Line;
use tokio::sync::{mpsc, watch};

use super::asked::{self, Asked, Door};
use super::error::CliError;
use super::flags::{Common, Format, Limits};
use super::here::{InProcess, Person};
use super::run::{self, Args};
use super::signals::{self, Said};
use super::window::{self, Face, Form, Leave, Opening};
use super::{exit, output, prompts, wire};
use crate::agent::{Command, Interrupt, Typed};
use crate::machine::prompts::Prompt;
use crate::machine::view;
use crate::model::child::Evidence;
use crate::model::run::Place;
use crate::store::{RunDir, StateRoot, parts, run as runs};
use crate::supervisor::{self, Call};
use crate::tui::Opens;

/// Whether what was asked for is a session: flags that want the answer of a run elsewhere say that it is none.
pub(super) fn fits(args: &Args) -> bool {
    args.attempt.is_none()
        && !args.common.detach
        && args.json_schema.is_none()
        && args.common.output_format == Format::Text
        && args.task != ["-"]
}

pub(super) fn run(args: Args) -> Result<u8, CliError> {
    asked::depth()?;
    let state = wire::state_root()?;
    let resume = run::resumed(&args, &state)?;
    let task = if args.task.is_empty() { None } else { Some(prompts::one(&args.task)?) };
    let session = run::session_id(&args, resume.as_ref());
    let resume = resume.map(|found| found.path);
    let mut common = args.common;
    // Somebody is there: questions wait for them.
    common.ask = true;
    if let Some(turns) = args.max_turns {
        common.child_budget = Some(run::with_turns(common.child_budget, turns));
    }
    let door = Door {
        default_agent: "build",
        place: Place::Here,
        session: session.as_deref(),
        resume: resume.as_deref(),
        append_system_prompt: args.append_system_prompt.as_deref(),
        schema: None,
    };
    wire::runtime()?.block_on(Session { state, common, door }.run(task))
}

struct Session<'a> {
    state: StateRoot,
    common: Common,
    door: Door<'a>,
}

/// What the person wants first.
enum First {
    Task(Box<Prompt>),
    Leave(u8),
}

impl Session<'_> {
    async fn run(mut self, task: Option<Prompt>) -> Result<u8, CliError> {
        // All that can be wrong with flags and settings is said before the screen is taken.
        let asked = self.build(Prompt::new("a session")).await?;
        let environment = wire::environment();
        let project = wire::project(self.common.cwd.as_deref())?;
        let opening = Opening {
            form: match window::form(&environment) {
                Form::Screen => Form::Screen,
                Form::Plain | Form::Nothing => Form::Plain,
            },
            colours: window::colours(&environment, self.common.color),
            opens: Opens::ForATask,
            state: &self.state,
            project: &project,
            files: &project,
            leave: Leave::Quit,
        };
        let (face, _types, typed) = Face::open(opening)?;
        let interrupt = Arc::new(watch::channel(Interrupt::None).0);
        let (stops, calls) = mpsc::unbounded_channel();
        listen(stops, interrupt.clone(), face.clone())?;
        self.greet(&face, &asked);
        let result = self.work(&face, task, typed, calls, interrupt).await;
        face.close().await;
        let (directory, code) = match result {
            Ok((Some(directory), code)) => (directory, code),
            Ok((None, code)) => return Ok(code),
            Err(error) => return Err(error),
        };
        farewell(&directory)?;
        Ok(code)
    }

    /// From the first line to the last.
    async fn work(
        &mut self,
        face: &Face,
        task: Option<Prompt>,
        mut typed: mpsc::Receiver<Typed>,
        calls: mpsc::UnboundedReceiver<Call>,
        interrupt: Arc<watch::Sender<Interrupt>>,
    ) -> Result<(Option<RunDir>, u8), CliError> {
        let task = match task {
            Some(task) => task,
            None => match self.first(face, &mut typed, interrupt.subscribe()).await {
                First::Task(task) => *task,
                First::Leave(code) => return Ok((None, code)),
            },
        };
        face.of_person(&task.prompt);
        let asked = self.build(task).await?;
        let spec = runs::create(&self.state, asked.new.clone(), asked::random)?;
        let directory = self.state.run(&spec.run);
        let code = self.drive(face, &directory, asked, typed, calls, &interrupt).await?;
        Ok((Some(directory), code))
    }

    /// What a run of these flags is, with the bounds that a person at the line replaces taken off.
    async fn build(&self, prompt: Prompt) -> Result<Asked, CliError> {
        let mut asked = asked::build(vec![prompt], &self.common, self.door).await?;
        let named = |flag: Option<Limits>| match flag {
            Some(Limits::Some(budget)) => budget,
            Some(Limits::None) | None => crate::model::budget::Budget::NONE,
        };
        // Nobody thinks against a clock; what is spent stays bounded.
        asked.new.spec.limits.time_s = named(self.common.budget).time_s;
        for child in &mut asked.new.children {
            let flag = named(self.common.child_budget);
            child.budget.time_s = flag.time_s;
            child.budget.requests = flag.requests;
            child.evidence = Evidence::NotRequired;
            // A session that ended without a word was left, and is not to be opened once more.
            child.retries = 0;
        }
        asked.start_line = asked::start_line(&asked.new.children, &asked.handover, asked.new.spec.limits);
        Ok(asked)
    }

    fn greet(&self, face: &Face, asked: &Asked) {
        let line = asked.start_line.trim_start_matches("1 child · ");
        face.line(Line::from(vec![format!("decode {} · ", env!("CARGO_PKG_VERSION")).bold(), line.to_owned().into()]));
        if !wire::sandbox_holds(asked.handover.sandbox) {
            face.line(Line::from("sandbox: off; commands can reach all that you can").red());
        }
        for note in &asked.notes {
            face.line(Line::from(format!("note: {}", crate::text::without_controls(note))).dim());
        }
        if self.door.resume.is_some() {
            face.line(Line::from("goes on with an earlier session").dim());
        }
        announce(face, asked);
    }

    /// Waits for the task. Until then nothing runs: commands change what will.
    async fn first(
        &mut self,
        face: &Face,
        typed: &mut mpsc::Receiver<Typed>,
        mut interrupt: watch::Receiver<Interrupt>,
    ) -> First {
        loop {
            let next = tokio::select! {
                next = typed.recv() => next,
                _ = interrupt.changed() => {
                    let code = match *interrupt.borrow() {
                        Interrupt::CtrlC => 130,
                        Interrupt::Terminate | Interrupt::None => 143,
                    };
                    return First::Leave(code);
                }
            };
            match next {
                None | Some(Typed::Command(Command::Quit)) => return First::Leave(exit::DONE),
                Some(Typed::Line { text, .. } | Typed::FollowUp { text, .. }) => {
                    return First::Task(Box::new(Prompt::new(text)));
                }
                Some(Typed::Command(Command::Compact)) => face.line(Line::from("-- nothing was said yet").dim()),
                Some(Typed::Command(command @ (Command::Agent(_) | Command::Mode(_) | Command::Model(_)))) => {
                    self.change(face, command).await;
                }
                Some(Typed::Escape | Typed::Key | Typed::WindowGone) => {}
            }
        }
    }

    /// Another persona, mode or model for the run to come, if there is such a run.
    async fn change(&mut self, face: &Face, command: Command) {
        let before = self.common.clone();
        match command {
            Command::Agent(name) => self.common.agent = Some(name),
            Command::Mode(mode) => self.common.permission_mode = Some(mode),
            Command::Model(model) => self.common.model = Some(model),
            Command::Compact | Command::Quit => {}
        }
        match self.build(Prompt::new("a session")).await {
            Ok(asked) => announce(face, &asked),
            Err(error) => {
                self.common = before;
                face.line(Line::from(format!("-- {}", error.message)).dim());
            }
        }
    }

    /// Drives the run in this process until the person ends it.
    async fn drive(
        &self,
        face: &Face,
        directory: &RunDir,
        asked: Asked,
        typed: mpsc::Receiver<Typed>,
        calls: mpsc::UnboundedReceiver<Call>,
        interrupt: &Arc<watch::Sender<Interrupt>>,
    ) -> Result<u8, CliError> {
        let in_process = InProcess {
            handover: asked.handover.clone(),
            key: wire::key(&self.state)?,
            sink: Arc::new(face.clone()),
            interrupt: interrupt.clone(),
            last: Arc::default(),
            person: Person::There(Arc::new(tokio::sync::Mutex::new(typed))),
        };
        let world = wire::world_here(directory.clone(), asked.handover, Arc::new(in_process))?;
        let ended = supervisor::drive(world, calls).await?;
        Ok(match *interrupt.borrow() {
            Interrupt::CtrlC => 130,
            Interrupt::Terminate if ended.exit != exit::DONE => 143,
            Interrupt::Terminate | Interrupt::None => ended.exit,
        })
    }
}

/// Who will work, on the line of state.
fn announce(face: &Face, asked: &Asked) {
    if let Some(child) = asked.new.children.first() {
        face.now(&child.persona.name, child.persona.mode, &child.model);
    }
}

/// INT, TERM and a closed terminal end the session within a second, with what there is.
fn listen(
    to: mpsc::UnboundedSender<Call>,
    interrupt: Arc<watch::Sender<Interrupt>>,
    face: Face,
) -> Result<(), CliError> {
    signals::on_each(move |said| {
        if said == Said::Hup {
            face.gone();
        }
        interrupt.send_replace(match said {
            Said::Int => Interrupt::CtrlC,
            Said::Term | Said::Hup => Interrupt::Terminate,
        });
        // A loop that has ended has nothing left to stop.
        let _ = to.send(Call::Stop);
    })
}

/// What is left of the session, and how to go on with it.
fn farewell(directory: &RunDir) -> Result<(), CliError> {
    let (file, found) = parts::read(directory)?;
    let run = view::run(&file, &found);
    let Some(child) = run.children.first() else { return Ok(()) };
    if let Some(branch) = &child.branch {
        let files = crate::text::count(child.files_changed.len(), "file", "files");
        output::talk(&format!("its work is on a branch ({files}): git merge {branch}"));
    }
    if let Some(error) = &child.error {
        let mut said = CliError::new(exit::FAILED, error.clone());
        said.hint = Some(format!("decode show {}", run.run));
        output::talk(&said.render());
    }
    if let Some(session) = found.first().and_then(|part| part.session.as_deref()) {
        output::talk(&format!("session {session}: decode -r {} goes on with it", run.run));
    }
    Ok(())
}
