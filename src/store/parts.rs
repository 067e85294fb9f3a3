//! A run read from its files, for everybody who is not its supervisor: `ps`, `show`, viewers.

use super::observed;
use super::run::{self, RunError};
use super::{RunDir, attempt, journal};
use crate::machine::view::Part;
use crate::model::run::RunFile;

/// Bytes of a log that may stand in the fold for a report.
const LOG_TAIL: u64 = 2_000;

/// The run's file and all that is known of its children.
pub(crate) fn read(directory: &RunDir) -> Result<(RunFile, Vec<Part>), RunError> {
    let file = run::read_run(directory)?;
    // A journal that cannot be read hides states, not the run: what else is there is shown.
    let mut memories = journal::read(&directory.journal()).map(journal::last_of_each).unwrap_or_default();
    let parts = run::read_specs(directory)?
        .into_iter()
        .map(|(id, spec)| {
            let memory = memories.remove(&id);
            let number = memory.as_ref().map_or(1, |memory| memory.attempt.max(1));
            let dir = directory.child(&id).attempt(number);
            let brief = attempt::read_brief(&dir).ok();
            let nonce = brief.as_ref().map(|brief| brief.nonce.as_str());
            let report = nonce.and_then(|nonce| observed::report(&dir, nonce).it());
            let log_tail = match &report {
                Some(report) if !report.body.trim().is_empty() => None,
                Some(_) | None => observed::log_tail(&dir, LOG_TAIL),
            };
            Part {
                status: nonce.and_then(|nonce| observed::status(&dir, nonce).it()),
                report_path: dir.report().to_string_lossy().into_owned(),
                session: brief.map(|brief| brief.session),
                id,
                spec,
                memory,
                report,
                log_tail,
            }
        })
        .collect();
    Ok((file, parts))
}
