//! A run read from its files, for everybody who is not its supervisor: `ps`, `show`, viewers.
//!
//! A viewer looks each second for an hour, so what cannot change any more is not read twice: specs, briefs, children
//! that have ended, and the journal as far as it was read.

use std::collections::BTreeMap;

use super::journal::{self, Tail};
use super::observed;
use super::run::{self, Damaged, RunError};
use super::{AttemptDir, RunDir, attempt};
use crate::machine::state::Memory;
use crate::machine::view::Part;
use crate::model::child::ChildSpec;
use crate::model::id::ChildId;
use crate::model::run::RunFile;

/// Bytes of a log that may stand in the fold for a report.
const LOG_TAIL: u64 = 2_000;

/// The run's file and all that is known of its children.
pub(crate) fn read(directory: &RunDir) -> Result<(RunFile, Vec<Part>), RunError> {
    let mut reader = Reader::new(directory);
    let file = reader.look()?;
    Ok((file, reader.parts))
}

/// Looks at one run again and again.
#[derive(Debug)]
pub(crate) struct Reader {
    directory: RunDir,
    journal: Tail,
    memories: BTreeMap<ChildId, Memory>,
    parts: Vec<Part>,
    /// Nonce and session in the brief of each child's current attempt.
    briefs: BTreeMap<(ChildId, u32), (String, String)>,
}

impl Reader {
    pub(crate) fn new(directory: &RunDir) -> Self {
        Self {
            directory: directory.clone(),
            journal: Tail::new(directory.journal()),
            memories: BTreeMap::new(),
            parts: Vec::new(),
            briefs: BTreeMap::new(),
        }
    }

    /// What the last look found.
    pub(crate) fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Reads what may have changed.
    pub(crate) fn look(&mut self) -> Result<RunFile, RunError> {
        let file = run::read_run(&self.directory)?;
        // A journal that cannot be read hides states, not the run: what else is there is shown.
        let entries = self.journal.more().unwrap_or_default();
        self.memories.extend(journal::last_of_each(entries));
        let known = |id: &ChildId| self.parts.iter().any(|part| part.id == *id);
        for (id, spec) in run::read_specs_but(&self.directory, known, Damaged::PassedOver)? {
            self.parts.push(unread(id, spec));
        }
        self.parts.sort_by(|a, b| a.id.cmp(&b.id));
        let (directory, memories, briefs) = (&self.directory, &self.memories, &mut self.briefs);
        for part in &mut self.parts {
            let memory = memories.get(&part.id);
            let has_ended = memory.is_some_and(|memory| memory.state.is_final());
            if !has_ended || part.memory.as_ref() != memory {
                read_part(part, memory, directory, briefs);
            }
        }
        Ok(file)
    }
}

fn unread(id: ChildId, spec: ChildSpec) -> Part {
    Part {
        id,
        spec,
        memory: None,
        status: None,
        report: None,
        report_path: String::new(),
        session: None,
        log_tail: None,
    }
}

fn read_part(
    part: &mut Part,
    memory: Option<&Memory>,
    directory: &RunDir,
    briefs: &mut BTreeMap<(ChildId, u32), (String, String)>,
) {
    let number = memory.map_or(1, |memory| memory.attempt.max(1));
    let dir = directory.child(&part.id).attempt(number);
    let key = (part.id.clone(), number);
    if !briefs.contains_key(&key)
        && let Ok(brief) = attempt::read_brief(&dir)
    {
        briefs.insert(key.clone(), (brief.nonce, brief.session));
    }
    let brief = briefs.get(&key);
    let nonce = brief.map(|(nonce, _)| nonce.as_str());
    part.memory = memory.cloned();
    part.status = nonce.and_then(|nonce| observed::status(&dir, nonce).it());
    part.report = nonce.and_then(|nonce| observed::report(&dir, nonce).it());
    part.report_path = dir.report().to_string_lossy().into_owned();
    part.session = brief.map(|(_, session)| session.clone());
    part.log_tail = log_tail(part, &dir);
}

/// The end of the log, for a child whose report says nothing.
fn log_tail(part: &Part, dir: &AttemptDir) -> Option<String> {
    match &part.report {
        Some(report) if !report.body.trim().is_empty() => None,
        Some(_) | None => observed::log_tail(dir, LOG_TAIL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{ChildEvent, Effect, Record, child::Child};
    use crate::model::budget::Budget;
    use crate::model::time::{Now, Timestamp};
    use crate::store::journal::Journal;
    use crate::store::run::tests::new_run;

    #[test]
    fn each_look_shows_what_came_since_the_last() {
        let directory = tempfile::tempdir().unwrap();
        let root = run::open_root(directory.path()).unwrap();
        let spec = run::create(&root, new_run(&["one", "two"]), || [3; 6]).unwrap();
        let run = root.run(&spec.run);
        let mut reader = Reader::new(&run);
        reader.look().unwrap();
        assert!(reader.parts().iter().all(|part| part.memory.is_none()));
        let (first, second) = (reader.parts()[0].clone(), reader.parts()[1].clone());
        let (mut journal, _) = Journal::open(&run.journal()).unwrap();
        for part in [first, second] {
            let mut child = Child::new(part.id.clone(), part.spec.clone());
            let effects = child.handle(
                ChildEvent::Admitted { grant: Budget::CHILD },
                Now { mono_ms: 0, wall: Timestamp::from_millis(0) },
            );
            let records: Vec<Record> = effects.into_iter().filter_map(record).collect();
            journal.append(records, Timestamp::from_millis(1)).unwrap();
            reader.look().unwrap();
            let seen = reader.parts().iter().find(|seen| seen.id == part.id).unwrap();
            assert_eq!(seen.memory.as_ref().map(|memory| memory.attempt), Some(1));
        }
        assert_eq!(reader.parts(), read(&run).unwrap().1, "many looks see what one does");
    }

    fn record(effect: Effect) -> Option<Record> {
        if let Effect::Journal(record) = effect { Some(*record) } else { None }
    }
}
