//! Which timer is due when. Arming a timer again replaces it; nothing is ever cancelled twice.

use std::collections::BTreeMap;

use super::Timer;
use crate::model::id::ChildId;

/// What a timer belongs to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    Child(ChildId, Timer),
    /// A child's attempt has one wall.
    Wall(ChildId),
    Deadline,
}

/// When it is due, and the epoch or attempt that asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Due {
    at_ms: u64,
    asked_by: u64,
}

/// All armed timers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Timers {
    armed: BTreeMap<Key, Due>,
}

impl Timers {
    pub(crate) fn arm(&mut self, key: Key, at_ms: u64, asked_by: u64) {
        self.armed.insert(key, Due { at_ms, asked_by });
    }

    pub(crate) fn disarm(&mut self, key: &Key) {
        self.armed.remove(key);
    }

    /// Forgets all timers of a child.
    pub(crate) fn forget(&mut self, child: &ChildId) {
        self.armed.retain(|key, _| match key {
            Key::Child(id, _) | Key::Wall(id) => id != child,
            Key::Deadline => true,
        });
    }

    /// When the next is due.
    pub(crate) fn next_ms(&self) -> Option<u64> {
        self.armed.values().map(|due| due.at_ms).min()
    }

    /// Takes out what is due, earliest first, with the epoch or attempt that asked.
    pub(crate) fn take_due(&mut self, now_ms: u64) -> Vec<(Key, u64)> {
        let mut due: Vec<(u64, Key, u64)> = self
            .armed
            .iter()
            .filter(|(_, due)| due.at_ms <= now_ms)
            .map(|(key, due)| (due.at_ms, key.clone(), due.asked_by))
            .collect();
        due.sort();
        for (_, key, _) in &due {
            self.armed.remove(key);
        }
        due.into_iter().map(|(_, key, asked_by)| (key, asked_by)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_armed_again_fires_once_and_late() {
        let mut timers = Timers::default();
        let key = Key::Child(ChildId::new(1, "a"), Timer::Silence);
        timers.arm(key.clone(), 10, 1);
        timers.arm(key.clone(), 20, 1);
        timers.arm(Key::Deadline, 15, 0);
        assert_eq!(timers.next_ms(), Some(15));
        assert_eq!(timers.take_due(19), [(Key::Deadline, 0)]);
        assert_eq!(timers.take_due(20), [(key, 1)]);
        assert_eq!(timers.next_ms(), None);
    }
}
