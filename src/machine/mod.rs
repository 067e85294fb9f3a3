//! Decisions: events in, effects out. No IO, no async, no clock, no randomness; `now` is an argument.

pub(crate) mod fold;
pub(crate) mod gate;
pub(crate) mod prompts;
pub(crate) mod snapshot;
