//! `decode wait`: waits for a run and prints what `fan` would have printed, any number of times.

use super::error::CliError;
use super::flags::Following;
use super::{fan, wire};
use crate::model::id::Target;

/// Wait for a run to end and print its fold
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// RUN or last
    #[arg(value_name = "RUN", default_value = "last")]
    target: Target,

    #[command(flatten)]
    following: Following,
}

pub(super) fn run(args: &Args) -> Result<u8, CliError> {
    let (_, _, directory) = wire::find(&args.target)?;
    wire::runtime()?.block_on(fan::await_end(&directory, args.following))
}
