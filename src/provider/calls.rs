//! Tool calls put together from the fragments of a stream.
//!
//! Servers differ in how they say which call a fragment belongs to: by a proper index, by no index, by index 0 for all,
//! by indexes with gaps, by an id on each fragment or on the first only. An index is compared, never used as a length.
//! Deliberately absent: the wire formats (the dialects').

use std::collections::HashSet;

use serde_json::Value;

use crate::model::message::{StopReason, ToolCall, ToolInput};

/// The name given to a call that came without one: no tool has it, so nothing runs.
const UNNAMED: &str = "unnamed";

/// A piece of a call, as a server sends it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Fragment<'a> {
    pub(super) index: Option<u64>,
    pub(super) id: &'a str,
    pub(super) name: &'a str,
    pub(super) arguments: &'a str,
}

#[derive(Debug, Default)]
struct Partial {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
}

impl Partial {
    fn is_whole(&self) -> bool {
        serde_json::from_str::<serde_json::Map<String, Value>>(&self.arguments).is_ok()
    }

    /// Whether the fragment cannot belong to this call, although its index says so or says nothing.
    fn ends_before(&self, fragment: &Fragment<'_>) -> bool {
        let other_id = !fragment.id.is_empty() && !self.id.is_empty() && fragment.id != self.id;
        let other_name = !fragment.name.is_empty() && !self.name.is_empty() && fragment.name != self.name;
        // A server without ids repeats the name for a second call of the same tool.
        let again = !fragment.name.is_empty() && !fragment.arguments.is_empty() && self.is_whole();
        other_id || other_name || again
    }
}

/// The calls of one answer, in the order they began.
#[derive(Debug, Default)]
pub(super) struct Calls(Vec<Partial>);

impl Calls {
    pub(super) fn hear(&mut self, fragment: Fragment<'_>) {
        let at = self.position(&fragment).filter(|at| !self.0[*at].ends_before(&fragment));
        let Some(at) = at else {
            // A piece that names nothing and continues nothing is part of a block that is not a call.
            if !fragment.id.is_empty() || !fragment.name.is_empty() {
                self.hear_whole(fragment);
            }
            return;
        };
        let call = &mut self.0[at];
        for (part, known) in [(fragment.id, &mut call.id), (fragment.name, &mut call.name)] {
            if known.is_empty() {
                part.clone_into(known);
            }
        }
        call.arguments.push_str(fragment.arguments);
    }

    /// A call that comes in one piece, and so continues none.
    pub(super) fn hear_whole(&mut self, call: Fragment<'_>) {
        self.0.push(Partial {
            index: call.index,
            id: call.id.to_owned(),
            name: call.name.to_owned(),
            arguments: call.arguments.to_owned(),
        });
    }

    /// The call a fragment continues if it continues any: of those with its index, the one with its id, else the last.
    fn position(&self, fragment: &Fragment<'_>) -> Option<usize> {
        let fits = |call: &Partial| fragment.index.is_none() || call.index == fragment.index;
        let same_id = |call: &Partial| !fragment.id.is_empty() && call.id == fragment.id;
        self.0.iter().rposition(|call| fits(call) && same_id(call)).or_else(|| self.0.iter().rposition(fits))
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Bytes heard, to estimate tokens where a server counts none.
    pub(super) fn bytes(&self) -> usize {
        self.0.iter().map(|call| call.name.len() + call.arguments.len()).sum()
    }

    /// The whole calls; `taken` are ids of the conversation so far.
    pub(super) fn finish(self, stop: StopReason, taken: &HashSet<String>) -> Vec<ToolCall> {
        let last = self.0.len().saturating_sub(1);
        let mut taken = taken.clone();
        let calls = self.0.into_iter().enumerate().map(|(number, call)| {
            // An answer cut by its length may have been cut before the first byte of the arguments.
            let unheard = stop == StopReason::Length && number == last && call.arguments.trim().is_empty();
            let named = !call.name.is_empty();
            let input =
                if unheard || !named { ToolInput::Broken { broken: call.arguments } } else { input_of(call.arguments) };
            let name = if named { call.name } else { UNNAMED.to_owned() };
            ToolCall { id: unique_id(call.id, &mut taken), name, input }
        });
        calls.collect()
    }
}

/// No arguments at all are an empty object; anything else must be JSON.
fn input_of(arguments: String) -> ToolInput {
    if arguments.trim().is_empty() {
        return ToolInput::Sound(serde_json::Map::new());
    }
    match serde_json::from_str(&arguments) {
        Ok(value) => ToolInput::from_value(value),
        Err(_) => ToolInput::Broken { broken: arguments },
    }
}

/// The id itself, or a new one if it is empty or used already.
pub(super) fn unique_id(id: String, taken: &mut HashSet<String>) -> String {
    let id = if id.is_empty() || taken.contains(&id) { format!("call_{}", uuid::Uuid::new_v4().simple()) } else { id };
    taken.insert(id.clone());
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(fragments: &[(Option<u64>, &str, &str, &str)]) -> Vec<(String, String)> {
        let mut calls = Calls::default();
        for &(index, id, name, arguments) in fragments {
            calls.hear(Fragment { index, id, name, arguments });
        }
        let calls = calls.finish(StopReason::ToolCalls, &HashSet::new());
        let ids: HashSet<&str> = calls.iter().map(|call| call.id.as_str()).collect();
        assert_eq!(ids.len(), calls.len(), "ids are unique");
        calls.iter().map(|call| (call.name.clone(), serde_json::to_string(&call.input).unwrap())).collect()
    }

    fn two() -> Vec<(String, String)> {
        vec![("read".into(), r#"{"path":"a"}"#.into()), ("grep".into(), r#"{"path":"b"}"#.into())]
    }

    #[test]
    fn calls_are_told_apart_however_a_server_numbers_them() {
        let (a, b) = ([r#"{"pa"#, r#"th":"#, r#""a"}"#], [r#"{"pa"#, r#"th":"#, r#""b"}"#]);
        for indexes in [[Some(0), Some(1)], [None, None], [Some(0), Some(0)], [Some(5), Some(9)], [Some(9), Some(5)]] {
            let [i, j] = indexes;
            let one_after_the_other = [
                (i, "x", "read", a[0]),
                (i, "", "", a[1]),
                (i, "", "", a[2]),
                (j, "y", "grep", b[0]),
                (j, "", "", b[1]),
                (j, "", "", b[2]),
            ];
            assert_eq!(heard(&one_after_the_other), two(), "{indexes:?}");
            let by_id = [
                (i, "x", "read", a[0]),
                (j, "y", "grep", b[0]),
                (i, "x", "", a[1]),
                (j, "y", "", b[1]),
                (i, "x", "", a[2]),
                (j, "y", "", b[2]),
            ];
            assert_eq!(heard(&by_id), two(), "{indexes:?} by id");
        }
    }

    #[test]
    fn calls_without_index_and_id_are_told_apart_by_their_names() {
        let twice = [(None, "", "read", r#"{"path":"a"}"#), (None, "", "read", r#"{"path":"b"}"#)];
        assert_eq!(heard(&twice).len(), 2);
        assert_eq!(heard(&[(None, "", "read", r#"{"path":"a"}"#), (None, "", "grep", r#"{"path":"b"}"#)]), two());
    }

    #[test]
    fn a_name_repeated_on_each_fragment_is_one_call() {
        let fragments =
            [(Some(0), "x", "read", r#"{"path""#), (Some(0), "x", "read", r#":"a"}"#), (Some(0), "x", "read", "")];
        assert_eq!(heard(&fragments), two()[..1]);
    }

    #[test]
    fn two_calls_with_one_id_become_two_ids() {
        let fragments = [(Some(0), "x", "read", r#"{"path":"a"}"#), (Some(1), "x", "grep", r#"{"path":"b"}"#)];
        assert_eq!(heard(&fragments), two());
        let mut taken = HashSet::from(["x".to_owned()]);
        assert_ne!(unique_id("x".into(), &mut taken), "x");
    }

    #[test]
    fn a_fragment_of_no_call_is_dropped() {
        assert_eq!(heard(&[(Some(3), "", "", "{}")]), []);
    }

    #[test]
    fn arguments_that_were_cut_are_broken_even_when_nothing_came() {
        let finish = |arguments, stop| {
            let mut calls = Calls::default();
            calls.hear(Fragment { index: None, id: "x", name: "bash", arguments });
            calls.finish(stop, &HashSet::new()).remove(0).input
        };
        assert!(matches!(finish("", StopReason::Length), ToolInput::Broken { .. }));
        assert!(matches!(finish("", StopReason::ToolCalls), ToolInput::Sound(map) if map.is_empty()));
        for text in [r#"{"command": "ls"#, r#"{"todos": [],}"#, "[1]", "7"] {
            assert!(matches!(finish(text, StopReason::ToolCalls), ToolInput::Broken { .. }), "{text}");
        }
        let twice = serde_json::to_string(r#"{"a":1}"#).unwrap();
        assert!(matches!(finish(&twice, StopReason::ToolCalls), ToolInput::Sound(map) if map["a"] == 1));
    }

    #[test]
    fn a_call_without_a_name_never_runs() {
        let mut calls = Calls::default();
        calls.hear(Fragment { id: "x", arguments: "{}", ..Fragment::default() });
        let call = calls.finish(StopReason::ToolCalls, &HashSet::new()).remove(0);
        assert!(matches!(call.input, ToolInput::Broken { .. }) && call.name == "unnamed");
    }
}
