//! `decode run`: one agent, headless. stdout carries its report and nothing else.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{mpsc, watch};

use super::asked::{self, Asked, Door};
use super::error::CliError;
use super::flags::{Common, Format};
use super::here::{InProcess, Person};
use super::sessions::{self, Found};
use super::signals::{self, Said};
use super::{attempt, exit, output, prompts, start, wire};
use crate::agent::Interrupt;
use crate::agent::event::{AgentEvent, Sink, line};
use crate::command::adopt_orphans;
use crate::files;
use crate::machine::schema;
use crate::machine::snapshot;
use crate::machine::view;
use crate::model::report::Report;
use crate::model::run::{Place, RunSpec};
use crate::store::{RunDir, StateRoot, parts, run as runs};
use crate::supervisor::{self, Call};

/// Run one agent and print its report
///
/// stdout carries the report and nothing else. The run is kept on disk: `decode ps`, `decode show last`.
/// An agent that edits works in a git worktree; its branch is named at the end.
///
/// Example: decode run --agent explore "Where is the config file read? Report path:line."
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The task; `-` reads it from stdin
    #[arg(value_name = "TASK")]
    pub(super) task: Vec<String>,

    /// Go on with the last session of this project
    #[arg(short = 'c', long = "continue")]
    go_on: bool,

    /// Go on with a session by its id or the start of it, or with a run's
    #[arg(short, long, value_name = "ID", conflicts_with = "go_on")]
    resume: Option<String>,

    /// Go on with a copy, under a new id; the session itself stays as it is
    #[arg(long)]
    fork: bool,

    /// The id of the session, a UUID
    #[arg(long, value_name = "UUID")]
    session_id: Option<uuid::Uuid>,

    /// Text after the persona's own prompt
    #[arg(long, value_name = "TEXT")]
    pub(super) append_system_prompt: Option<String>,

    /// The report is JSON that satisfies the schema in this file (32 KiB at most)
    #[arg(long, value_name = "FILE")]
    pub(super) json_schema: Option<PathBuf>,

    /// Requests to the model at most
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) max_turns: Option<u64>,

    /// The other end: run the attempt whose brief lies there
    #[arg(long, value_name = "DIR", hide = true)]
    pub(super) attempt: Option<PathBuf>,

    #[command(flatten)]
    pub(super) common: Common,
}

pub(super) fn run(args: Args) -> Result<u8, CliError> {
    if let Some(directory) = &args.attempt {
        return attempt::run(directory);
    }
    asked::depth()?;
    let prompt = prompts::one(&args.task)?;
    let state = wire::state_root()?;
    let schema = args.json_schema.as_deref().map(read_schema).transpose()?;
    let resume = resumed(&args, &state)?;
    let session = session_id(&args, resume.as_ref());
    let resume = resume.map(|found| found.path);
    let mut common = args.common;
    if let Some(turns) = args.max_turns {
        common.child_budget = Some(with_turns(common.child_budget, turns));
    }
    let door = Door {
        default_agent: "build",
        place: if common.detach { asked::place(&common) } else { Place::Here },
        session: session.as_deref(),
        resume: resume.as_deref(),
        append_system_prompt: args.append_system_prompt.as_deref(),
        schema: schema.as_ref(),
    };
    wire::runtime()?.block_on(async {
        let asked = asked::build(vec![prompt], &common, door).await?;
        let spec = runs::create(&state, asked.new.clone(), asked::random)?;
        let directory = state.run(&spec.run);
        if !common.quiet {
            for note in &asked.notes {
                output::talk(&format!("note: {note}"));
            }
            output::talk(&asked.start_line);
        }
        if common.detach {
            start::supervisor(&directory, &spec, &asked.handover).await?;
            output::line(spec.run.as_str());
            return Ok(exit::DONE);
        }
        here(&directory, &spec, asked, &common).await
    })
}

pub(super) fn with_turns(limits: Option<super::flags::Limits>, turns: u64) -> super::flags::Limits {
    use super::flags::Limits;
    use crate::model::budget::Budget;
    let base = match limits {
        Some(Limits::Some(budget)) => budget,
        Some(Limits::None) | None => Budget::NONE,
    };
    Limits::Some(Budget { requests: Some(turns), ..base })
}

fn read_schema(path: &Path) -> Result<serde_json::Value, CliError> {
    let wrong = |why: String| CliError::usage(format!("`{}` is no schema to hold a report to: {why}", path.display()));
    let text = files::read(path, schema::LIMIT).map_err(|error| wrong(crate::text::chain(&error)))?;
    let value = serde_json::from_str(&text).map_err(|error| wrong(format!("it is not JSON: {error}")))?;
    schema::check(&value).map_err(wrong)?;
    Ok(value)
}

/// The id of the session to come, where it is not a new one.
pub(super) fn session_id(args: &Args, resume: Option<&Found>) -> Option<String> {
    match (args.session_id, resume) {
        (Some(id), _) => Some(id.to_string()),
        // Under its own id the session goes on; a copy gets a new one.
        (None, Some(found)) if !args.fork => found.id.clone(),
        (None, Some(_) | None) => None,
    }
}

/// The session to go on with.
pub(super) fn resumed(args: &Args, state: &StateRoot) -> Result<Option<Found>, CliError> {
    let here = || wire::project(args.common.cwd.as_deref());
    if args.go_on {
        let newest = sessions::of_project(state, &here()?).into_iter().next();
        return newest.map(Some).ok_or_else(|| CliError::usage("this project has no session to go on with"));
    }
    let Some(id) = &args.resume else {
        if args.fork {
            return Err(CliError::usage("--fork needs the session to copy").hint("add --continue, or --resume ID"));
        }
        return Ok(None);
    };
    if let Ok(target) = id.parse::<crate::model::id::Target>()
        && let Ok(run) = runs::resolve(state, &target.run, &here()?)
    {
        return Ok(Some(sessions::of_run(&state.run(&run))?));
    }
    sessions::by_id(state, id, &here()?).map(Some)
}

/// Drives the run in this process and prints its report.
async fn here(directory: &RunDir, spec: &RunSpec, asked: Asked, common: &Common) -> Result<u8, CliError> {
    // What a command forks away from itself stays below this process, where it is known whose it is.
    let _ = adopt_orphans();
    let interrupt = Arc::new(watch::channel(Interrupt::None).0);
    let last = Arc::new(Mutex::new(None));
    let state = directory.state().ok_or_else(|| CliError::missing("the state directory is gone"))?;
    let sink = Arc::new(Headless {
        format: common.output_format,
        talks: !common.quiet && output::talks_to_terminal(),
        run: spec.run.to_string(),
    });
    let in_process = InProcess {
        handover: asked.handover.clone(),
        key: wire::key(&state)?,
        sink,
        interrupt: interrupt.clone(),
        last: last.clone(),
        person: Person::Nobody,
    };
    let world = wire::world_here(directory.clone(), asked.handover, Arc::new(in_process))?;
    let (to, calls) = mpsc::unbounded_channel();
    listen(to, interrupt.clone())?;
    let ended = supervisor::drive(world, calls).await?;
    let report = last.lock().unwrap_or_else(PoisonError::into_inner).take();
    print(directory, report.as_ref(), common.output_format, !common.quiet)?;
    Ok(match *interrupt.borrow() {
        Interrupt::CtrlC => 130,
        Interrupt::Terminate if ended.exit != exit::DONE => 143,
        Interrupt::Terminate | Interrupt::None => ended.exit,
    })
}

/// INT and TERM end the run within a second, with a report of what there is.
fn listen(to: mpsc::UnboundedSender<Call>, interrupt: Arc<watch::Sender<Interrupt>>) -> Result<(), CliError> {
    signals::on_each(move |said| {
        interrupt.send_replace(match said {
            Said::Int => Interrupt::CtrlC,
            Said::Term | Said::Hup => Interrupt::Terminate,
        });
        // A loop that has ended has nothing left to stop.
        let _ = to.send(Call::Stop);
    })
}

fn print(directory: &RunDir, report: Option<&Report>, format: Format, talks: bool) -> Result<(), CliError> {
    let (file, found) = parts::read(directory)?;
    let run = view::run(&file, &found);
    let child = run.children.first().ok_or_else(|| CliError::missing("the run has no child"))?;
    let body = report.map(|report| report.body.as_str()).unwrap_or_default();
    match format {
        Format::Text => {
            if !body.trim().is_empty() {
                output::deliver(body)?;
            }
            if let Some(branch) = child.branch.as_ref().filter(|_| talks) {
                let files = crate::text::count(child.files_changed.len(), "file", "files");
                output::talk(&format!("its work is on a branch ({files}): git merge {branch}"));
            }
            if let Some(error) = &child.error {
                let mut said = CliError::new(exit::FAILED, error.clone());
                said.hint = Some(format!("decode show {}", run.run));
                output::talk(&said.render());
            }
        }
        Format::Json | Format::StreamJson => {
            output::deliver(&snapshot::run_json(&run, child, body, wire::clock().wall))?;
        }
    }
    Ok(())
}

/// What a headless run tells while it works.
struct Headless {
    format: Format,
    talks: bool,
    run: String,
}

impl Sink for Headless {
    fn emit(&self, event: &AgentEvent) {
        match self.format {
            Format::StreamJson => {
                if let Some(json) = self.json(event) {
                    output::line(&json.to_string());
                }
            }
            Format::Text | Format::Json => {
                // The report itself is data; it comes on stdout.
                if self.talks
                    && !matches!(event, AgentEvent::Said(_) | AgentEvent::Started { .. } | AgentEvent::Ended { .. })
                    && let Some(line) = line(event)
                {
                    output::talk(&line);
                }
            }
        }
    }
}

impl Headless {
    /// The event as an object; `None` for pieces that a later one repeats, and for the end, which is the result.
    fn json(&self, event: &AgentEvent) -> Option<serde_json::Value> {
        use serde_json::json;
        Some(match event {
            AgentEvent::Started { model, session, .. } => {
                json!({"v": 1, "type": "start", "run": self.run, "session": session, "model": model})
            }
            AgentEvent::Said(text) => json!({"v": 1, "type": "text", "text": text}),
            AgentEvent::ToolStarted { name, summary } => {
                json!({"v": 1, "type": "tool", "name": name, "summary": summary})
            }
            AgentEvent::ToolEnded { name, ok, line } => {
                json!({"v": 1, "type": "tool_result", "name": name, "ok": ok, "line": line})
            }
            AgentEvent::Steered { by, text } => json!({"v": 1, "type": "message", "by": by, "text": text}),
            AgentEvent::Question { text, kind: _ } => json!({"v": 1, "type": "question", "text": text}),
            AgentEvent::Limited { until, detail } => {
                json!({"v": 1, "type": "limited", "until": until.to_string(), "detail": detail})
            }
            AgentEvent::Note(text) => json!({"v": 1, "type": "note", "text": text}),
            AgentEvent::Cut { why } => json!({"v": 1, "type": "cut", "why": why}),
            AgentEvent::Changed { diff } => json!({"v": 1, "type": "diff", "diff": diff}),
            AgentEvent::Text(_)
            | AgentEvent::Thinking(_)
            | AgentEvent::Idle
            | AgentEvent::Now { .. }
            | AgentEvent::Used { .. }
            | AgentEvent::Todo(_)
            | AgentEvent::Queued { .. }
            | AgentEvent::Answered { .. }
            | AgentEvent::Held
            | AgentEvent::Ended { .. } => return None,
        })
    }
}
