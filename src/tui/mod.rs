//! The interactive view of one agent: in a session at a terminal, and in every child's window.
//!
//! `view` is what there is to see and what keys mean, a value without a clock or a terminal; `region` writes it; `screen`
//! is the one loop that feeds the view with events and keys. A view reads events and sends what a person typed; it
//! decides nothing about the work. `plain` is the same for whoever cannot look at a screen. Deliberately absent: any screen
//! that takes the scrollback away.

mod complete;
mod help;
mod history;
mod input;
mod keys;
mod paint;
mod picture;
mod plain;
mod region;
mod screen;
mod slash;
#[cfg(test)]
mod tests;
mod view;
mod wrap;

pub(crate) use history::History;
pub(crate) use plain::Plain;
pub(crate) use region::Colours;
pub(crate) use screen::{Invoke, Screen, Setup};
pub(crate) use view::{Known, Opens, Paths};
