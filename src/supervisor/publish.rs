//! What people read of a run: `run.md` while it goes on, `fold.md` at its end.
//!
//! Deliberately absent: the truth. What a child is stands in the journal; a page that cannot be written costs nothing
//! else.

use super::{SupervisorError, World};
use crate::files::{self, Durability};
use crate::machine::child::Child;
use crate::machine::run::Machine;
use crate::machine::view::{self, Part};
use crate::machine::{fold, snapshot};
use crate::model::run::{RunFile, RunState, Supervisor};
use crate::model::time::Now;
use crate::sandbox;
use crate::store::observed;
use crate::store::run;

/// Bytes of a log that may stand in the fold for a report.
const LOG_TAIL: u64 = 2_000;

/// Rewrites `run.md`.
pub(super) fn run_file(
    world: &World,
    machine: &Machine,
    me: &Supervisor,
    notes: &[String],
    now: Now,
) -> Result<(), SupervisorError> {
    let ended = machine.is_finished();
    let file = RunFile {
        v: RunFile::VERSION,
        state: if ended { RunState::Ended } else { RunState::Running },
        spec: machine.spec.clone(),
        spent: machine.spent(),
        ended: ended.then_some(now.wall),
        exit: ended.then(|| machine.exit_code()),
        supervisor: (!ended).then(|| me.clone()),
    };
    let parts: Vec<Part> = machine.children().iter().map(|child| part(world, child, Tail::Without)).collect();
    let mut table = snapshot::table(&view::run(&file, &parts), now.wall);
    for note in notes {
        table.push_str("\nnote: ");
        table.push_str(note);
        table.push('\n');
    }
    Ok(run::write_run(&world.run, &file, &table)?)
}

/// Writes `fold.md`: the one answer to whoever asked.
pub(super) fn fold(world: &World, machine: &Machine, notes: &[String]) -> Result<(), SupervisorError> {
    let parts: Vec<Part> = machine.children().iter().map(|child| part(world, child, Tail::With)).collect();
    let mut notes = notes.to_vec();
    notes.extend(unconfined(machine));
    let text = fold::fold(&machine.spec.goal, &view::sections(&parts), machine.spec.fold_bytes, &notes);
    files::write(&world.run.fold(), text.as_bytes(), Durability::Renamed).map_err(run::RunError::from)?;
    Ok(())
}

/// Where the kernel held nothing, what children wrote and ran is to be read with that in mind.
fn unconfined(machine: &Machine) -> Option<String> {
    let writes = machine.children().iter().any(|child| !child.spec.persona.only_reads());
    (writes && !sandbox::support().is_there())
        .then(|| "the sandbox was not in force: files of the run could be written by a child's commands".to_owned())
}

#[derive(Clone, Copy)]
enum Tail {
    With,
    Without,
}

fn part(world: &World, child: &Child, tail: Tail) -> Part {
    let memory = child.memory();
    let dir = world.run.child(&child.id).attempt(memory.attempt);
    let log_tail = match tail {
        Tail::With if child.report().is_none_or(|report| report.body.trim().is_empty()) => {
            observed::log_tail(&dir, LOG_TAIL)
        }
        Tail::With | Tail::Without => None,
    };
    Part {
        id: child.id.clone(),
        spec: child.spec.clone(),
        memory: Some(memory.clone()),
        status: child.status().cloned(),
        report: child.report().cloned(),
        report_path: dir.report().to_string_lossy().into_owned(),
        session: child.report().map(|report| report.session.clone()),
        log_tail,
    }
}
