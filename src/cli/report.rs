//! `decode report`: one child's report, whole.

use super::error::CliError;
use super::show::no_child;
use super::{exit, output, wire};
use crate::machine::view::Part;
use crate::model::id::Target;
use crate::model::report::Report;
use crate::store::{RunDir, attempt, observed, parts};

/// Print one child's report, whole
///
/// Example: decode report last/3
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// RUN/3, or RUN/3.1 for an earlier attempt; a run of one child needs no number
    #[arg(value_name = "RUN/CHILD")]
    target: Target,
}

pub(super) fn run(args: &Args) -> Result<u8, CliError> {
    let (_, run, directory) = wire::find(&args.target)?;
    let (_, found) = parts::read(&directory)?;
    let part = match &args.target.child {
        Some(name) => found.iter().find(|part| name.matches(&part.id)),
        None if found.len() == 1 => found.first(),
        None => {
            return Err(CliError::usage(format!("{run} has {} children; name one", found.len()))
                .hint(format!("decode report {run}/1")));
        }
    };
    let part = part.ok_or_else(|| no_child(&args.target, found.len()))?;
    let report = match args.target.attempt {
        Some(number) => earlier(&directory, part, number),
        None => part.report.clone(),
    };
    match &report {
        Some(report) if !report.body.trim().is_empty() => {
            output::deliver(&report.body)?;
            Ok(exit::DONE)
        }
        Some(_) | None => Err(CliError::new(exit::FAILED, format!("{} has no {}", part.id, what(args.target.attempt)))
            .hint(format!("decode show {run}/{}", part.id.number()))),
    }
}

/// What a numbered attempt left, if there was such an attempt and it left something.
fn earlier(directory: &RunDir, part: &Part, number: u32) -> Option<Report> {
    let dir = directory.child(&part.id).attempt(number);
    let brief = attempt::read_brief(&dir).ok()?;
    observed::report(&dir, &brief.nonce).it()
}

fn what(attempt: Option<u32>) -> String {
    attempt.map_or_else(|| "report".to_owned(), |number| format!("report of attempt {number}"))
}
