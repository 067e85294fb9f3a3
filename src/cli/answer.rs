//! `decode answer`: the answer to a question that a child asks.

use super::error::CliError;
use super::{exit, send, wire};
use crate::model::id::Target;
use crate::model::request::Asked;
use crate::store::parts;

/// Answer the question that a child asks
///
/// Example: decode answer last/2 yes
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// RUN/2
    #[arg(value_name = "RUN/CHILD")]
    target: Target,

    /// The answer
    #[arg(value_name = "TEXT", required = true, allow_hyphen_values = true)]
    text: Vec<String>,
}

pub(super) fn run(args: &Args) -> Result<u8, CliError> {
    let (_, _, directory) = wire::find(&args.target)?;
    let (_, found) = parts::read(&directory)?;
    let part = send::only(&args.target, &found)?;
    if part.status.as_ref().is_none_or(|status| status.question.is_none()) {
        return Err(CliError::new(exit::FAILED, format!("{} asks nothing", part.id)).hint("decode ps"));
    }
    send::deliver(&args.target, Asked::Answer, &args.text.join(" "))?;
    Ok(exit::DONE)
}
