//! decode runs many coding agents as real processes that a person can watch, steer and trust.
//!
//! The crate is built in floors; a file imports only floors below its own, and its own module.
//! `tests/architecture.rs` proves it.
//!
//! ```text
//! 7   cli/          parses, wires, prints; the only caller of floor 6
//! 6   tui/          faces: what a person sees of one agent, and types
//! 5   supervisor/   many children: the one event loop, the places
//! 4   agent/        one attempt: our own loop
//! 3   store/ watch.rs terminal/ workspace/ provider/ tool/       adapters that touch the world
//! 3a  command.rs files.rs sandbox/       processes, atomic files, confinement; floor 3 may import these
//! 2   machine/      pure decisions: no IO, no async, no clock, no randomness
//! 1   model/        nouns: data and invariants
//! 0   text.rs front_matter.rs            words and headers; know nothing of decode
//! ```
//!
//! Deliberately absent: any global state, and any way to make a child but a `ChildSpec` given to the machine.

mod agent;
mod cli;
mod command;
mod files;
mod front_matter;
#[cfg(fuzzing)]
pub mod fuzzing;
mod machine;
mod model;
mod provider;
mod sandbox;
mod store;
mod supervisor;
mod terminal;
mod text;
mod tool;
mod tui;
mod watch;
mod workspace;

/// Runs the command line and returns the exit code.
pub fn run() -> u8 {
    cli::main()
}
