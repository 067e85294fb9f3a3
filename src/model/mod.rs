//! Nouns: the data of decode and what must hold of it.
//!
//! Each file holds one noun with its reading and writing. Deliberately absent: any file, clock, process or decision.

pub(crate) mod brief;
pub(crate) mod budget;
pub(crate) mod child;
pub(crate) mod id;
pub(crate) mod language_server;
pub(crate) mod message;
pub(crate) mod persona;
pub(crate) mod provider;
pub(crate) mod report;
pub(crate) mod request;
pub(crate) mod rule;
pub(crate) mod run;
pub(crate) mod skill;
pub(crate) mod status;
pub(crate) mod time;
pub(crate) mod todo;
pub(crate) mod tool_name;
pub(crate) mod usage;
