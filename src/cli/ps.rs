//! `decode ps`: runs and children, those that need you first.

use super::error::CliError;
use super::{exit, output, wire};
use crate::machine::snapshot::{self, RunSnapshot};
use crate::machine::view;
use crate::model::id::RunId;
use crate::model::run::{Place, RunFile, RunState};
use crate::store::{StateRoot, parts, run as runs};

/// Runs shown without `--all`, besides those that go on.
const RECENT: usize = 3;

/// Show runs and children: who needs you, what each is doing, what it has cost
///
/// Shown are the runs that go on, in any project, and the last three of this one. --all shows all.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Every run of every project, ended ones too
    #[arg(short, long)]
    all: bool,

    /// One JSON object
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<u8, CliError> {
    let state = wire::state_root()?;
    let project = wire::project(None)?;
    let mut listed = runs::list(&state);
    if !args.all {
        // What goes on anywhere, and the last of this project.
        let here: Vec<_> = listed
            .iter()
            .rev()
            .filter(|(_, file)| std::path::Path::new(&file.spec.project) == project && file.spec.parent.is_none())
            .take(RECENT)
            .map(|(run, _)| run.clone())
            .collect();
        listed.retain(|(run, file)| here.contains(run) || goes_on(&state, run, file));
    }
    let snapshots: Vec<RunSnapshot> = listed
        .iter()
        .rev()
        .filter_map(|(run, _)| {
            let (file, found) = parts::read(&state.run(run)).ok()?;
            Some(view::run(&file, &found))
        })
        .collect();
    let damaged = runs::damaged(&state);
    let path = |run: &RunId| state.run(run).children().to_string_lossy().into_owned();
    let now = wire::clock().wall;
    if args.json {
        let runs: Vec<serde_json::Value> =
            snapshots.iter().filter_map(|run| serde_json::from_str(&snapshot::snapshot_json(run, now)).ok()).collect();
        let damaged: Vec<serde_json::Value> = damaged
            .iter()
            .map(|(run, error)| serde_json::json!({"run": run, "error": crate::text::chain(error), "path": path(run)}))
            .collect();
        output::line(&serde_json::json!({"v": 1, "runs": runs, "damaged": damaged}).to_string());
        return Ok(exit::DONE);
    }
    for (run, error) in &damaged {
        let why = crate::text::one_line(&crate::text::without_controls(&crate::text::chain(error)), 200);
        output::line(&format!("{run} damaged · {why}\n    what its children found is below {}", path(run)));
    }
    if snapshots.is_empty() && damaged.is_empty() {
        output::talk("no runs; start one with `decode fan \"…\" \"…\"`");
        return Ok(exit::DONE);
    }
    let columns = output::columns();
    for (index, run) in snapshot::runs_needing_you_first(&snapshots).into_iter().enumerate() {
        if index > 0 {
            output::line("\n");
        }
        let driven = run.state == RunState::Ended || runs::is_driven(&state.run(&run.run));
        let mut heading = snapshot::heading(run, columns, now);
        if !driven {
            heading.push_str(&format!("  no supervisor: decode resume {}", run.run));
        }
        output::line(&heading);
        for child in snapshot::needs_you_first(&run.children) {
            output::line(&snapshot::line(child, columns, now));
        }
    }
    Ok(exit::DONE)
}

/// Whether a run is under way, or can be taken up again. The children of an agent that was killed went with it.
fn goes_on(state: &StateRoot, run: &RunId, file: &RunFile) -> bool {
    let of_an_agent = file.spec.parent.is_some() && file.spec.place == Place::Here;
    match file.state {
        RunState::Ended => false,
        RunState::Made | RunState::Running => !of_an_agent || runs::is_driven(&state.run(run)),
    }
}
