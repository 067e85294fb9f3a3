//! `decode fold`: the fold of a run, at its end or as it stands.

use super::error::CliError;
use super::{exit, output, wire};
use crate::files;
use crate::machine::view::Part;
use crate::machine::{fold, view};
use crate::model::id::Target;
use crate::model::run::{RunFile, RunState};
use crate::store::{RunDir, parts};

/// Print the fold of a run; while it goes on, what there is so far
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// RUN or last
    #[arg(value_name = "RUN")]
    target: Target,

    /// Cut to this many bytes
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1_000..))]
    bytes: Option<u32>,
}

pub(super) fn run(args: &Args) -> Result<u8, CliError> {
    let (_, _, directory) = wire::find(&args.target)?;
    let (file, found) = parts::read(&directory)?;
    if file.state == RunState::Ended && args.bytes.is_none() {
        output::deliver(&text(&directory, &file, &found))?;
        return Ok(exit::DONE);
    }
    let mut notes = Vec::new();
    if file.state != RunState::Ended {
        notes.push("the run goes on; this is what there is so far".to_owned());
    }
    let bytes = args.bytes.map_or(file.spec.fold_bytes, |bytes| bytes as usize);
    output::deliver(&fold::fold(&file.spec.goal, &view::sections(&found), bytes, &notes))?;
    Ok(exit::DONE)
}

/// The fold of a run that is over: the one that its supervisor wrote, or, where that is gone or garbage, one made of
/// the reports, which are the truth.
pub(super) fn text(directory: &RunDir, file: &RunFile, found: &[Part]) -> String {
    match files::read(&directory.fold(), file.spec.fold_bytes as u64) {
        Ok(text) if fold::is_whole(&text) => text,
        Ok(_) | Err(_) => made(file, found, &["the fold was made again from the reports".to_owned()]),
    }
}

/// A fold of what is known of the children now.
pub(super) fn made(file: &RunFile, found: &[Part], notes: &[String]) -> String {
    fold::fold(&file.spec.goal, &view::sections(found), file.spec.fold_bytes, notes)
}
