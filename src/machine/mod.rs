//! Decisions: events in, effects out. No IO, no async, no clock, no randomness; `now` is an argument.

pub(crate) mod citation;
pub(crate) mod gate;
