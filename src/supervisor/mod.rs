//! Many children: the one event loop of a run, and the places its attempts run in.
//!
//! `drive` is the loop, `perform` does what the machine says, `live` knows the processes, `hear` turns files into
//! events, `publish` writes what people read. Deliberately absent: any decision about a child.

mod drive;
mod hear;
mod live;
mod open;
mod perform;
mod publish;
mod workplace;

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::{mpsc, watch};

pub(crate) use drive::drive;

use crate::machine::Event;
use crate::model::id::ChildId;
use crate::model::time::Now;
use crate::store::handover::Handover;
use crate::store::journal::JournalError;
use crate::store::key::Key;
use crate::store::run::RunError;
use crate::store::{AttemptDir, RunDir, StateRoot};
use crate::terminal::{Opened, Terminal};

/// What a supervisor is given; `cli/wire.rs` makes it.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) state: StateRoot,
    pub(crate) run: RunDir,
    /// The binary that every attempt runs, fixed at start.
    pub(crate) executable: PathBuf,
    pub(crate) key: Key,
    pub(crate) handover: Handover,
    /// Where handovers to children lie: `$XDG_RUNTIME_DIR`, if there is one.
    pub(crate) private: Option<PathBuf>,
    pub(crate) clock: fn() -> Now,
    pub(crate) places: Places,
    /// The tmux socket, for `ps` and `attach`.
    pub(crate) socket: Option<String>,
    /// The process whose end stops the run.
    pub(crate) caller: Option<i32>,
}

/// Where attempts run.
#[derive(Clone)]
pub(crate) enum Places {
    /// Windows, or detached processes.
    Terminal(Arc<dyn Terminal>),
    /// Tasks of this process.
    Here(Arc<dyn Here>),
}

/// Runs an attempt as a task of this process.
pub(crate) trait Here: Send + Sync {
    /// Runs it to its end and returns the exit status it would have had.
    fn run(&self, attempt: AttemptDir, end: watch::Receiver<End>) -> Pin<Box<dyn Future<Output = u8> + Send>>;
}

/// What a task that runs an attempt is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    NotYet,
    /// Report what there is and end within a second.
    Now,
}

/// What reaches a supervisor from its terminal and the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    /// Stop the run; said twice, kill.
    Stop,
    /// Whoever waits for the run is cut: no time to ask first, all report what they have and end.
    Cut,
}

/// What tasks tell the loop.
#[derive(Debug)]
enum Message {
    Event(Event),
    Opened {
        child: ChildId,
        attempt: u32,
        opened: Opened,
    },
    Nonce {
        child: ChildId,
        attempt: u32,
        nonce: String,
    },
    /// The process of an attempt has ended.
    ProcessGone {
        child: ChildId,
        attempt: u32,
        exit: Option<crate::machine::Exit>,
    },
    CallerGone,
}

type Sender = mpsc::UnboundedSender<Message>;

#[derive(Debug, thiserror::Error)]
pub(crate) enum SupervisorError {
    #[error(transparent)]
    Run(#[from] RunError),
    #[error(transparent)]
    Journal(#[from] JournalError),
}
