//! `decode stop`: ends a run or a child; what there is, is kept.

use super::error::CliError;
use super::{exit, output, send, wire};
use crate::machine::view::Part;
use crate::model::id::{RunId, Target};
use crate::model::request::Asked;
use crate::model::run::RunState;
use crate::store::key::Key;
use crate::store::{StateRoot, parts, run as runs};

/// Stop a run or a child: asked to report first, then ended
///
/// Example: decode stop last/2
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// RUN or RUN/2
    #[arg(value_name = "RUN[/CHILD]")]
    target: Target,
}

pub(super) fn run(args: &Args) -> Result<u8, CliError> {
    ask(&args.target, Asked::Stop)
}

/// Runs that agents of the target asked for have supervisors of their own, which are told too.
fn stop_agents_of(state: &StateRoot, run: &RunId, target: &Target, found: &[Part], key: &Key) -> Result<(), CliError> {
    let child = match &target.child {
        None => None,
        Some(_) => Some(send::only(target, found)?.id.number()),
    };
    for (number, file) in runs::of_agents(state, run) {
        let run = &file.spec.run;
        if file.state != RunState::Ended && child.is_none_or(|child| child == number) {
            // One that ends at this moment takes no more requests, and needs none.
            let _ = send::request(&state.run(run).inbox(), run.as_str(), Asked::Stop, "", key);
        }
    }
    Ok(())
}

/// Puts a signed request into the run's inbox, where its supervisor looks.
pub(super) fn ask(target: &Target, asked: Asked) -> Result<u8, CliError> {
    let (state, run, directory) = wire::find(target)?;
    let (file, found) = parts::read(&directory)?;
    let to = match &target.child {
        None => run.to_string(),
        Some(_) => format!("{run}/{}", send::only(target, &found)?.id.number()),
    };
    if file.state == RunState::Ended {
        return Err(CliError::new(exit::FAILED, format!("{run} is already over")).hint(format!("decode fold {run}")));
    }
    let key = wire::key(&state)?;
    send::request(&directory.inbox(), &to, asked, "", &key)?;
    if asked == Asked::Stop {
        stop_agents_of(&state, &run, target, &found, &key)?;
    }
    if !runs::is_driven(&directory) {
        output::talk(&format!("note: no supervisor drives {run}; it acts on this at `decode resume {run}`"));
    }
    Ok(exit::DONE)
}
