//! `decode retry`: one more attempt of a child, or of every child that did not end well.

use super::error::CliError;
use super::flags::Following;
use super::{asked, exit, fan, output, resume, send, stop, wire};
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
        return stop::ask(&args.target, Asked::Retry);
    }
    let to = match &args.target.child {
        None => run.to_string(),
        Some(_) => format!("{run}/{}", send::only(&args.target, &found)?.id.number()),
    };
    let ended_well = |part: &crate::machine::view::Part| {
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
    // The request lies there before its reader starts.
    send::request(&directory.inbox(), &to, Asked::Retry, "", &wire::key(&state)?)?;
    wire::runtime()?.block_on(async {
        resume::start_again(&directory, &file, &handover).await?;
        if args.detach {
            output::line(run.as_str());
            return Ok(exit::DONE);
        }
        fan::await_end(&directory, args.following.output_format, args.following.quiet).await
    })
}
