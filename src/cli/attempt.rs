//! `decode run --attempt DIR`: the loop of one attempt, in a window or as a detached process.
//!
//! It knows DIR and nothing else. Its first act is the claim; then it takes its one-time environment and key, enters
//! the workspace, and works. HUP does not end it: somebody closed the window, or the server is gone.

use std::path::Path;
use std::sync::Arc;

use tokio::sync::{mpsc, watch};

use ratatui::style::Stylize;

use super::error::CliError;
use super::flags::ColorFlag;
use super::here::{self, Surroundings};
use super::signals::{self, Said};
use super::window::{self, Face, Opening};
use super::{exit, wire};
use crate::agent::{self, Interrupt, Typed, Until};
use crate::command::{adopt_orphans, make_undumpable};
use crate::model::brief::Brief;
use crate::model::child::{Failure, FailureKind};
use crate::model::report::{Outcome, Report};
use crate::model::usage::Usage;
use crate::store::attempt::{self, Claimed, Claiming};
use crate::store::handover::Handover;
use crate::store::key::Key;
use crate::store::{AttemptDir, StateRoot};
use crate::tui::Opens;

/// What a person who comes to look can do.
const KEYS: &str = "type to steer · Esc holds · Ctrl-D leaves · /help · Alt-n Alt-p other windows · Alt-w list";

pub(super) fn run(directory: &Path) -> Result<u8, CliError> {
    let dir = AttemptDir::at(std::path::absolute(directory)?);
    let claimed = match attempt::claim(dir, &wire::claim())? {
        Claiming::Claimed(claimed) => claimed,
        Claiming::AlreadyTaken => return Ok(exit::DONE),
    };
    // A process that holds a key must not be read by the commands it starts.
    let _ = make_undumpable();
    // What a command forks away from itself stays in this process's tree, to be ended with it.
    let _ = adopt_orphans();
    let brief = claimed.brief()?;
    match prepare(&claimed, &brief) {
        Ok((handover, key)) => wire::runtime()?.block_on(work(claimed, brief, handover, key)),
        Err(error) => {
            report_failure(&claimed, &brief, &error)?;
            Err(error)
        }
    }
}

/// Takes the handover and enters the workspace.
fn prepare(claimed: &Claimed, brief: &Brief) -> Result<(Handover, Key), CliError> {
    let handover = match &brief.environment {
        Some(path) => Handover::take(Path::new(path))?,
        None => Handover::default(),
    };
    let key = wire::key(&state_of(claimed)?)?;
    std::env::set_current_dir(&brief.lease.path).map_err(|error| {
        CliError::missing(format!("the workspace `{}` cannot be entered: {error}", brief.lease.path))
    })?;
    Ok((handover, key))
}

async fn work(claimed: Claimed, brief: Brief, handover: Handover, key: Key) -> Result<u8, CliError> {
    let (interrupt, interrupted) = watch::channel(Interrupt::None);
    let opening = Opening {
        form: window::form(&handover.environment),
        colours: window::colours(&handover.environment, ColorFlag::Auto),
        opens: Opens::AtWork,
        state: &state_of(&claimed)?,
        project: Path::new(&brief.lease.project),
        files: Path::new(&brief.lease.path),
        leave: window::detach(brief.run.as_str()),
    };
    let (face, types, typed) = Face::open(opening)?;
    listen_to_signals(interrupt, types, face.clone())?;
    face.now(&brief.spec.persona.name, brief.spec.persona.mode, &brief.spec.model);
    face.line(ratatui::text::Line::from(KEYS).dim());
    let attached = window::attached(brief.run.as_str());
    let around =
        Surroundings { handover, key, typed: Some(typed), interrupt: interrupted, attached, until: Until::Report };
    let result = match here::parts(claimed.dir(), &brief, around).await {
        Ok(parts) => {
            let ended = agent::attempt::run(claimed, brief, parts, Arc::new(face.clone())).await;
            ended.written.map(|()| ended.exit).map_err(CliError::from)
        }
        Err(error) => report_failure(&claimed, &brief, &error).and(Err(error)),
    };
    face.close().await;
    result
}

fn state_of(claimed: &Claimed) -> Result<StateRoot, CliError> {
    let state = claimed.dir().run().and_then(|run| run.state());
    state.ok_or_else(|| CliError::usage("this is not an attempt's directory"))
}

/// TERM and INT end the attempt with a report; HUP and failed writes to a lost terminal are nothing.
fn listen_to_signals(
    interrupt: watch::Sender<Interrupt>,
    types: mpsc::Sender<Typed>,
    face: Face,
) -> Result<(), CliError> {
    signals::on_each(move |said| {
        let meant = match said {
            Said::Term => Interrupt::Terminate,
            Said::Int => Interrupt::CtrlC,
            // Somebody closed the window, or the server is gone: the work goes on.
            Said::Hup => {
                face.gone();
                let _ = types.try_send(Typed::WindowGone);
                return;
            }
        };
        first(&interrupt, meant);
    })
}

/// The first signal decides the exit status.
pub(super) fn first(interrupt: &watch::Sender<Interrupt>, meant: Interrupt) {
    interrupt.send_if_modified(|now| {
        let first = *now == Interrupt::None;
        if first {
            *now = meant;
        }
        first
    });
}

/// An attempt that cannot start says why where the supervisor looks.
fn report_failure(claimed: &Claimed, brief: &Brief, error: &CliError) -> Result<(), CliError> {
    let kind = match error.code {
        exit::USAGE => FailureKind::Usage,
        5 => FailureKind::Provider,
        _ => FailureKind::Missing,
    };
    let mut detail = error.message.clone();
    for cause in &error.causes {
        detail.push_str(": ");
        detail.push_str(cause);
    }
    let report = Report {
        v: Report::VERSION,
        outcome: Outcome::Failed,
        exit: error.code,
        nonce: brief.nonce.clone(),
        session: brief.session.clone(),
        usage: Usage::ZERO,
        tool_calls: 0,
        evidence: 0,
        duration_s: 0.0,
        files_changed: Vec::new(),
        files_left_out: 0,
        citations: Vec::new(),
        error: Some(Failure::new(kind, detail)),
        limited_until: None,
        co_driven: 0,
        body: String::new(),
    };
    claimed.report(&report)?;
    Ok(())
}
