//! The real program, driven as a person, a shell and another agent drive it. One file a theme, one fixture.
//!
//! Each test has its own home, state directory, repository and tmux server, and ends what it started. Models are a
//! scripted HTTP server on loopback. Deliberately absent: anything that can be proved without a second process.

mod environment;
mod model_server;

mod agent_tool;
mod bad_input;
mod context;
mod fan;
mod hazards;
mod headless;
mod limits;
mod lsp;
mod models;
mod outliving;
mod permission;
mod personas;
mod sandbox;
mod search;
mod session;
mod sessions;
mod skills;
mod steering;
mod tasks;
mod verbs;
mod web;
mod windows;
