//! `decode retry`: one more attempt of a child, or of every child that did not end well.

use super::error::CliError;
use super::flags::Following;
use super::{asked, exit, fan, output, resume, send, stop, wire};
use crate::machine::view::Part;
use crate::model::id::Target;
use crate::model::request::Asked;
use crate::model::run::RunState;
use crate::store::parts;

/// Give a child one more attempt; without a child, all that did not end well
///
/// Example: decode retry last/2
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// RUN or RUN/2
    #[arg(value_name = "RUN[/CHILD]")]
    target: Target,

    /// Start and return
    #[arg(short, long)]
    detach: bool,

    #[command(flatten)]
    following: Following,
}

pub(super) fn run(args: &Args) -> Result<u8, CliError> {
    let (state, run, directory) = wire::find(&args.target)?;
    let (file, found) = parts::read(&directory)?;
    if file.state != RunState::Ended {
        refuse_what_still_works(&args.target, &found)?;
        return stop::ask(&args.target, Asked::Retry);
    }
    let to = match &args.target.child {
        None => run.to_string(),
        Some(_) => format!("{run}/{}", send::only(&args.target, &found)?.id.number()),
    };
    let ended_well = |part: &Part| {
        matches!(part.memory.as_ref().map(|memory| &memory.state), Some(crate::machine::state::State::Done { .. }))
    };
    let meant: Vec<_> = match &args.target.child {
        None => found.iter().collect(),
        Some(name) => found.iter().filter(|part| name.matches(&part.id)).collect(),
    };
    if meant.iter().all(|part| ended_well(part)) {
        return Err(
            CliError::new(exit::FAILED, "nothing to retry: all of it ended well").hint(format!("decode fold {run}"))
        );
    }
    let specs: Vec<_> = found.iter().map(|part| part.spec.clone()).collect();
    let handover = asked::handover(&specs)?;
    // The request lies there before its reader starts; the end closed the inbox.
    crate::store::run::make_directory(&directory.inbox())?;
    send::request(&directory.inbox(), &to, Asked::Retry, "", &wire::key(&state)?)?;
    wire::runtime()?.block_on(async {
        resume::start_again(&directory, &file, &handover).await?;
        if args.detach {
            output::line(run.as_str());
            return Ok(exit::DONE);
        }
        fan::await_end(&directory, args.following).await
    })
}

/// An attempt that is under way is not begun anew; saying nothing would look as if it were.
fn refuse_what_still_works(target: &Target, found: &[Part]) -> Result<(), CliError> {
    let is_over = |part: &Part| part.memory.as_ref().is_some_and(|memory| memory.state.is_final());
    match &target.child {
        Some(_) => {
            let part = send::only(target, found)?;
            if is_over(part) {
                return Ok(());
            }
            Err(CliError::new(exit::FAILED, format!("{} is still at work; there is nothing to retry yet", part.id))
                .hint("decode send tells it something; decode stop ends it"))
        }
        None if found.iter().any(is_over) => Ok(()),
        None => {
            Err(CliError::new(exit::FAILED, "all of it is still at work; there is nothing to retry yet")
                .hint("decode ps"))
        }
    }
}
