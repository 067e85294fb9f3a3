//! Places where a process is opened: a tmux window, or a detached process.
//!
//! The trait opens, closes and tells how it ended. Deliberately absent: what runs inside, and the screen, which is
//! never read to learn a state.

pub(crate) mod bare;
mod control;
pub(crate) mod server;
pub(crate) mod tmux;

use std::ffi::OsString;
use std::path::PathBuf;
use std::pin::Pin;

/// What to open. The name is ours (`03-auth`), never task text; the argv has two words or more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NewWindow {
    pub(crate) name: String,
    pub(crate) argv: Vec<OsString>,
    /// Where a process without a terminal writes what it prints.
    pub(crate) output: PathBuf,
}

/// What was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Opened {
    pub(crate) handle: Handle,
    pub(crate) pid: i32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Handle {
    /// The id of its pane, `%7`: tmux finds the window by it too, and the child's claim has it.
    Window {
        pane: String,
    },
    Process {
        pid: i32,
    },
}

/// How a process ended, as far as the place knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Status(u8),
    Signal(i32),
    Unknown,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum TerminalError {
    #[error("tmux is not installed or not in PATH")]
    NoTmux,
    #[error("tmux refused: {message}")]
    Refused { message: String },
    #[error("the tmux server is gone")]
    ServerGone,
    #[error("failed to start `{program}`")]
    Start { program: String, source: std::io::Error },
    #[error("no room for another window: {detail}")]
    Full { detail: String },
}

pub(crate) type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T, TerminalError>> + Send + 'a>>;

/// A place that opens processes.
pub(crate) trait Terminal: Send + Sync {
    fn open(&self, window: NewWindow) -> Pending<'_, Opened>;

    /// Removes the window; the process in it is the caller's to end first. Closing what is gone is no error.
    fn close<'a>(&'a self, handle: &'a Handle) -> Pending<'a, ()>;

    /// How the process ended; asked only after it is known to be gone.
    fn exit<'a>(&'a self, handle: &'a Handle) -> Pending<'a, Exit>;
}
