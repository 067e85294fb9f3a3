//! Opens an attempt: its directory first, then the watch on it, then its window.
//!
//! Opening twice is harmless: the brief is kept if it is there, and the child's claim lets one process through.

use std::ffi::OsString;
use std::path::PathBuf;

use tokio::sync::watch;

use super::live::{Live, Process};
use super::{End, Message, Places, Sender, World};
use crate::files::FileError;
use crate::machine::{ChildEvent, Event, Exit, Session};
use crate::model::brief::{Brief, Start};
use crate::model::budget::Budget;
use crate::model::child::{ChildSpec, Lease};
use crate::model::id::{ChildId, RunId};
use crate::model::provider::provider_of;
use crate::model::usage::Usage;
use crate::store::attempt::{self, AttemptError};
use crate::store::handover::HandoverError;
use crate::store::run::{RunError, make_directory};
use crate::store::{AttemptDir, inbox};
use crate::terminal::{NewWindow, TerminalError};
use crate::text;
use crate::watch::Watch;

/// All that an attempt starts from.
#[derive(Debug, Clone)]
pub(super) struct Opening {
    pub(super) run: RunId,
    pub(super) depth: u32,
    pub(super) child: ChildId,
    pub(super) epoch: u64,
    pub(super) attempt: u32,
    pub(super) start: Start,
    pub(super) session: Session,
    pub(super) grant: Budget,
    pub(super) lease: Lease,
    pub(super) spec: ChildSpec,
    pub(super) spent: Usage,
}

#[derive(Debug, thiserror::Error)]
enum OpenError {
    #[error(transparent)]
    Attempt(#[from] AttemptError),
    #[error(transparent)]
    Run(#[from] RunError),
    #[error(transparent)]
    Handover(#[from] HandoverError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Terminal(#[from] TerminalError),
}

/// Writes, watches, opens. What went wrong comes back as an event.
pub(super) async fn open(world: World, opening: Opening, watch: Option<Watch>, to: Sender) {
    let (child, epoch, number) = (opening.child.clone(), opening.epoch, opening.attempt);
    let event = match try_open(&world, opening, watch, &to).await {
        Ok(()) => ChildEvent::Opened { epoch },
        Err(error) => ChildEvent::OpenFailed { epoch, detail: text::chain(&error) },
    };
    if matches!(event, ChildEvent::OpenFailed { .. }) {
        take_back(&world, &child, number);
    }
    let _ = to.send(Message::Event(Event::Child { child, event }));
}

async fn try_open(world: &World, opening: Opening, watch: Option<Watch>, to: &Sender) -> Result<(), OpenError> {
    let dir = world.run.child(&opening.child).attempt(opening.attempt);
    for path in [dir.path().to_owned(), dir.inbox(), dir.seen()] {
        make_directory(&path)?;
    }
    let handover = match &world.places {
        Places::Terminal(_) => Some(hand_over(world, &opening)?),
        Places::Here(_) => None,
    };
    let brief = match attempt::read_brief(&dir) {
        Ok(brief) => brief,
        Err(_) => write_brief(world, &opening, &dir, handover)?,
    };
    let (child, attempt) = (opening.child.clone(), opening.attempt);
    let _ = to.send(Message::Nonce { child: child.clone(), attempt, nonce: brief.nonce });
    if let Some(watch) = watch {
        // Not watched means heard at the next re-scan.
        let _ = watch.add(dir.path());
    }
    if let Places::Terminal(terminal) = &world.places {
        let window =
            NewWindow { name: child.to_string(), argv: argv(world, &dir), output: dir.path().join("printed.txt") };
        let opened = terminal.open(window).await?;
        let _ = to.send(Message::Opened { child, attempt, opened });
    }
    Ok(())
}

/// Starts an attempt as a task of this process.
pub(super) fn start_here(world: &World, child: &ChildId, attempt: u32, to: &Sender) -> Option<Live> {
    let Places::Here(here) = &world.places else { return None };
    let (end, ending) = watch::channel(End::NotYet);
    let work = here.run(world.run.child(child).attempt(attempt), ending);
    let task = tokio::spawn(work);
    let abort = task.abort_handle();
    let (child, to) = (child.clone(), to.clone());
    tokio::spawn(async move {
        let exit = match task.await {
            Ok(status) => Exit::Status(status),
            // Aborted by KILL, or a bug of ours.
            Err(error) if error.is_panic() => Exit::Status(70),
            Err(_) => Exit::Signal(9),
        };
        let _ = to.send(Message::ProcessGone { child, attempt, exit: Some(exit) });
    });
    Some(Live { attempt, process: Process::Task { end, abort }, handle: None })
}

fn argv(world: &World, dir: &AttemptDir) -> Vec<OsString> {
    let words: [OsString; 4] =
        [world.executable.clone().into(), "run".into(), "--attempt".into(), dir.path().as_os_str().to_owned()];
    words.into()
}

/// Where the one-time file of an attempt lies.
fn handover_path(world: &World, child: &ChildId, attempt: u32) -> PathBuf {
    let run = world.run.path().file_name().unwrap_or_default().to_string_lossy();
    match &world.private {
        Some(private) => private.join(format!("decode-{run}-{child}-{attempt}")),
        None => world.run.child(child).attempt(attempt).environment(),
    }
}

/// Removes what a child did not take: one that died first, or was never started, must not leave a key behind.
pub(super) fn take_back(world: &World, child: &ChildId, attempt: u32) {
    let _ = std::fs::remove_file(handover_path(world, child, attempt));
}

/// The one-time file with the environment and the one key the child needs.
fn hand_over(world: &World, opening: &Opening) -> Result<PathBuf, OpenError> {
    let path = handover_path(world, &opening.child, opening.attempt);
    world.handover.only(provider_of(&opening.spec.model)).write(&path)?;
    Ok(path)
}

fn write_brief(
    world: &World,
    opening: &Opening,
    dir: &AttemptDir,
    handover: Option<PathBuf>,
) -> Result<Brief, OpenError> {
    let previous = (opening.attempt > 1).then(|| dir.sibling(opening.attempt - 1));
    let before = previous.as_ref().and_then(|dir| Some((dir, attempt::read_brief(dir).ok()?)));
    let known = before.as_ref().map(|(_, brief)| brief.session.clone()).or_else(|| opening.spec.session.clone());
    let session = match opening.session {
        Session::Same => known.unwrap_or_else(new_id),
        Session::New => new_id(),
    };
    let undelivered = match &before {
        Some((dir, brief)) => inbox::undelivered(dir, &inbox::names_of(brief), &world.key)
            .into_iter()
            .map(|request| request.text)
            .collect(),
        None => Vec::new(),
    };
    let brief = Brief {
        v: Brief::VERSION,
        run: opening.run.clone(),
        child: opening.child.clone(),
        attempt: opening.attempt,
        nonce: new_id(),
        session,
        start: opening.start.clone(),
        grant: opening.grant,
        spent: opening.spent,
        lease: opening.lease.clone(),
        depth: opening.depth,
        environment: handover.map(|path| path.to_string_lossy().into_owned()),
        undelivered,
        spec: opening.spec.clone(),
        prompt_bytes: 0,
        system_bytes: 0,
        undelivered_bytes: Vec::new(),
    };
    attempt::write_brief(dir, &brief)?;
    Ok(brief)
}

fn new_id() -> String {
    uuid::Uuid::new_v4().to_string()
}
