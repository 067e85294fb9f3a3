//! `decode resume`: drives a run on whose supervisor is gone.

use std::time::Duration;

use super::error::CliError;
use super::flags::Following;
use super::{asked, exit, fan, output, start, wire};
use crate::model::id::Target;
use crate::model::run::{Place, RunFile, RunSpec, RunState};
use crate::store::handover::Handover;
use crate::store::{RunDir, parts, run as runs};

/// Drive a run on whose supervisor is gone: what lives is taken up, what finished is kept
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// RUN or last
    #[arg(value_name = "RUN")]
    target: Target,

    /// Start and return
    #[arg(short, long)]
    detach: bool,

    #[command(flatten)]
    following: Following,
}

pub(super) fn run(args: &Args) -> Result<u8, CliError> {
    let (_, run, directory) = wire::find(&args.target)?;
    let (file, found) = parts::read(&directory)?;
    if file.state == RunState::Ended {
        return Err(CliError::new(exit::FAILED, format!("{run} is over")).hint(format!("decode fold {run}")));
    }
    if stays_driven(&directory) {
        return Err(CliError::new(exit::FAILED, format!("{run} is being driven")).hint(format!("decode wait {run}")));
    }
    let specs: Vec<_> = found.iter().map(|part| part.spec.clone()).collect();
    let handover = asked::handover(&specs)?;
    wire::runtime()?.block_on(async {
        start_again(&directory, &file, &handover).await?;
        if args.detach {
            output::line(run.as_str());
            return Ok(exit::DONE);
        }
        fan::await_end(&directory, args.following).await
    })
}

/// Whether somebody holds the run, and goes on to. The kernel frees the lock of a killed supervisor some milliseconds
/// after all else of it is gone, and a viewer's look takes it for an instant.
fn stays_driven(directory: &RunDir) -> bool {
    (0..20).all(|look| {
        if look > 0 {
            std::thread::sleep(Duration::from_millis(25));
        }
        runs::is_driven(directory)
    })
}

/// Starts a supervisor for a run that had one. A run of the place `here` goes on as a detached process.
pub(super) async fn start_again(directory: &RunDir, file: &RunFile, handover: &Handover) -> Result<(), CliError> {
    let place = match file.spec.place {
        Place::Here => Place::Bare,
        place @ (Place::Window | Place::Bare) => place,
    };
    let spec = RunSpec { place, ..file.spec.clone() };
    let made = RunFile { state: RunState::Made, spec: spec.clone(), ended: None, exit: None, ..file.clone() };
    runs::write_run(directory, &made, "")?;
    start::supervisor(directory, &spec, handover).await
}
