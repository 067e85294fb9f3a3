//! The processes of current attempts: who they are, how their end is heard, how they are signalled.
//!
//! Deliberately absent: when one is signalled (the machine's timers), and how it ended (`drive` asks its place).

use std::collections::HashMap;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::{End, Message, Sender};
use crate::command::PidFd;
use crate::command::identity::{Identity, Liveness, liveness};
use crate::command::tree::kill_tree;
use crate::machine::{Exit, Signal};
use crate::model::id::ChildId;
use crate::terminal::Handle;

/// How often a process is looked at that the kernel cannot tell us about.
const LOOK: Duration = Duration::from_secs(1);

/// One attempt's process.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) attempt: u32,
    pub(super) process: Process,
    pub(super) handle: Option<Handle>,
}

#[derive(Debug)]
pub(super) enum Process {
    /// Another process.
    Other(Identity),
    /// A task of ours.
    Task { end: watch::Sender<End>, abort: AbortHandle },
}

/// All that live, and those that are over but whose windows are there still.
#[derive(Debug, Default)]
pub(super) struct Living(HashMap<(ChildId, u32), Live>);

impl Living {
    pub(super) fn insert(&mut self, child: ChildId, live: Live) {
        self.0.insert((child, live.attempt), live);
    }

    pub(super) fn get(&self, child: &ChildId, attempt: u32) -> Option<&Live> {
        self.0.get(&(child.clone(), attempt))
    }

    pub(super) fn remove(&mut self, child: &ChildId, attempt: u32) {
        self.0.remove(&(child.clone(), attempt));
    }

    /// Signals the tree of an attempt; if nothing of it lives, its end is told at once.
    pub(super) fn signal(&self, child: &ChildId, attempt: u32, signal: Signal, to: &Sender) {
        match self.get(child, attempt).map(|live| &live.process) {
            None => {
                let _ = to.send(Message::ProcessGone { child: child.clone(), attempt, exit: Some(Exit::Unknown) });
            }
            Some(Process::Task { end, abort }) => match signal {
                Signal::Term => {
                    end.send_replace(End::Now);
                }
                Signal::Kill => abort.abort(),
            },
            Some(Process::Other(identity)) => {
                let signal = match signal {
                    Signal::Term => nix::sys::signal::Signal::SIGTERM,
                    Signal::Kill => nix::sys::signal::Signal::SIGKILL,
                };
                kill_tree(identity, signal);
            }
        }
    }
}

/// Tells the loop when a process ends. The pidfd is opened before the identity is compared, so that it is the one.
pub(super) fn await_end(child: ChildId, attempt: u32, identity: Identity, to: Sender) {
    tokio::spawn(async move {
        match PidFd::open(identity.pid) {
            Ok(Some(descriptor)) if liveness(&identity) != Liveness::Gone => descriptor.gone().await,
            Ok(_) => {}
            // Out of descriptors, or /proc is hidden: not to know is not an end, and a second attempt beside a living
            // one would write into the same workspace.
            Err(_) => {
                while liveness(&identity) != Liveness::Gone {
                    tokio::time::sleep(LOOK).await;
                }
            }
        }
        let _ = to.send(Message::ProcessGone { child, attempt, exit: None });
    });
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_process_of_which_nothing_can_be_told_is_not_said_to_be_gone() {
        let (to, mut told) = mpsc::unbounded_channel();
        let unknown = Identity { host: "elsewhere.example".to_owned(), ..Identity::of_self() };
        await_end(ChildId::new(1, "auth"), 1, unknown, to.clone());
        assert!(tokio::time::timeout(LOOK * 10, told.recv()).await.is_err(), "it may well be alive");
        let reused = Identity { start_time: 1, ..Identity::of_self() };
        await_end(ChildId::new(2, "auth"), 1, reused, to);
        let Some(Message::ProcessGone { child, .. }) = told.recv().await else { panic!("its end is told") };
        assert_eq!(child.number(), 2);
    }
}
