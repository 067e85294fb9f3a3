//! `decode send`: a message to a running child, read or refused, never lost.

use std::path::Path;

use super::error::CliError;
use super::show::no_child;
use super::{exit, output, wire};
use crate::machine::state::State;
use crate::machine::view::Part;
use crate::model::id::Target;
use crate::model::request::{Asked, Request};
use crate::store::key::Key;
use crate::store::{AttemptDir, RunDir, parts, request};

/// Send a message to a running child
///
/// It is given to the model at the next turn boundary, or with --follow-up when the child would stop. After the
/// report it is refused: already finished.
///
/// Example: decode send last/3 "Look at src/auth.rs too"
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// RUN/3
    #[arg(value_name = "RUN/CHILD")]
    target: Target,

    /// The message
    #[arg(value_name = "TEXT", required = true, allow_hyphen_values = true)]
    text: Vec<String>,

    /// Deliver it when the child would stop
    #[arg(long)]
    follow_up: bool,
}

pub(super) fn run(args: &Args) -> Result<u8, CliError> {
    let ask = if args.follow_up { Asked::FollowUp } else { Asked::Steer };
    deliver(&args.target, ask, &args.text.join(" "))?;
    Ok(exit::DONE)
}

/// Puts a signed message into the inbox of a child's current attempt.
pub(super) fn deliver(target: &Target, ask: Asked, text: &str) -> Result<(), CliError> {
    if text.trim().is_empty() {
        return Err(CliError::usage("the message is empty"));
    }
    let (state, run, directory) = wire::find(target)?;
    let (_, found) = parts::read(&directory)?;
    let part = only(target, &found)?;
    let (dir, attempt) = current(&directory, part)?;
    let to = format!("{run}/{}.{attempt}", part.id.number());
    request(&dir.inbox(), &to, ask, text, &wire::key(&state)?)
}

/// The child that is meant; a run of one needs no number.
pub(super) fn only<'a>(target: &Target, found: &'a [Part]) -> Result<&'a Part, CliError> {
    let part = match &target.child {
        Some(name) => found.iter().find(|part| name.matches(&part.id)),
        None if found.len() == 1 => found.first(),
        None => return Err(CliError::usage(format!("this run has {} children; name one, as in RUN/1", found.len()))),
    };
    part.ok_or_else(|| no_child(target, found.len()))
}

/// The attempt that runs now.
fn current(directory: &RunDir, part: &Part) -> Result<(AttemptDir, u32), CliError> {
    let Some(memory) = &part.memory else {
        return Err(CliError::new(exit::FAILED, format!("{} has not started yet", part.id)).hint("decode ps"));
    };
    match &memory.state {
        State::Waiting | State::Preparing | State::Cooling { .. } | State::Parked { .. } if memory.attempt == 0 => {
            Err(CliError::new(exit::FAILED, format!("{} has not started yet", part.id)).hint("decode ps"))
        }
        state if state.is_final() => {
            Err(CliError::new(exit::FAILED, format!("{} is already finished: it takes no more messages", part.id))
                .hint("decode retry starts another attempt"))
        }
        _ => Ok((directory.child(&part.id).attempt(memory.attempt), memory.attempt)),
    }
}

/// Signs and sends.
pub(super) fn request(inbox: &Path, to: &str, ask: Asked, text: &str, key: &Key) -> Result<(), CliError> {
    let request = Request {
        v: Request::VERSION,
        id: uuid::Uuid::new_v4().simple().to_string(),
        to: to.to_owned(),
        by: who(),
        at: wire::clock().wall,
        ask,
        text: text.to_owned(),
    };
    request::send(inbox, &request, key)?;
    Ok(())
}

/// Who sends: the terminal, where there is one.
fn who() -> String {
    if output::input_is_terminal()
        && let Ok(path) = nix::unistd::ttyname(std::io::stdin())
    {
        return format!("send {}", path.to_string_lossy().trim_start_matches("/dev/"));
    }
    "send".to_owned()
}
