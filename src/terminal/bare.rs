//! Places without a terminal: each child is a detached process that writes to a file.
//!
//! Deliberately absent: ending a process (`command::tree`), which is the caller's, as with windows.

use std::collections::HashMap;
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::{Exit, Handle, NewWindow, Opened, Pending, Terminal, TerminalError};
use crate::command::spawn_detached;

/// A process known to be gone is reaped within this time.
const REAPED: Duration = Duration::from_secs(3);

/// Opens detached processes.
#[derive(Debug)]
pub(crate) struct Bare {
    environment: Vec<(OsString, OsString)>,
    directory: PathBuf,
    /// How those that we started ended, once they have.
    ended: Mutex<HashMap<i32, watch::Receiver<Option<Exit>>>>,
}

impl Bare {
    /// `environment` is all that a process gets.
    pub(crate) fn new(environment: Vec<(OsString, OsString)>, directory: PathBuf) -> Self {
        Self { environment, directory, ended: Mutex::default() }
    }

    fn start(&self, window: &NewWindow) -> Result<Opened, TerminalError> {
        let program = window.argv.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
        let child = spawn_detached(&window.argv, &window.output, &self.environment, &self.directory)
            .map_err(|source| TerminalError::Start { program, source })?;
        let pid = child.pid();
        let (tell, ended) = watch::channel(None);
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).insert(pid, ended);
        // Waits for each child whether or not anybody asks, so that none stays a zombie.
        tokio::spawn(async move {
            let exit = child.wait().await.map_or(Exit::Unknown, exit_of);
            tell.send_replace(Some(exit));
        });
        Ok(Opened { handle: Handle::Process { pid }, pid })
    }

    fn record(&self, handle: &Handle) -> Option<watch::Receiver<Option<Exit>>> {
        let Handle::Process { pid } = handle else { return None };
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).get(pid).cloned()
    }
}

impl Terminal for Bare {
    fn open(&self, window: NewWindow) -> Pending<'_, Opened> {
        Box::pin(async move { self.start(&window) })
    }

    /// There is no window; only the record of its end is dropped.
    fn close<'a>(&'a self, handle: &'a Handle) -> Pending<'a, ()> {
        if let Handle::Process { pid } = handle {
            self.ended.lock().unwrap_or_else(PoisonError::into_inner).remove(pid);
        }
        Box::pin(async { Ok(()) })
    }

    /// What another supervisor started is not our child, and its status went to whoever reaped it.
    fn exit<'a>(&'a self, handle: &'a Handle) -> Pending<'a, Exit> {
        let record = self.record(handle);
        Box::pin(async move {
            let Some(mut record) = record else { return Ok(Exit::Unknown) };
            let ended = tokio::time::timeout(REAPED, record.wait_for(Option::is_some)).await;
            Ok(ended.ok().and_then(Result::ok).and_then(|exit| *exit).unwrap_or(Exit::Unknown))
        })
    }
}

fn exit_of(status: ExitStatus) -> Exit {
    match (status.code().map(u8::try_from), status.signal()) {
        (Some(Ok(code)), _) => Exit::Status(code),
        (_, Some(signal)) => Exit::Signal(signal),
        _ => Exit::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::signal::Signal;

    use super::*;
    use crate::command::PidFd;
    use crate::command::identity::{Identity, Liveness, liveness};
    use crate::command::tree::kill_tree;

    const DEADLINE: Duration = Duration::from_secs(20);

    fn bare(directory: &tempfile::TempDir) -> Bare {
        Bare::new(vec![("PATH".into(), std::env::var_os("PATH").unwrap())], directory.path().to_owned())
    }

    fn window(directory: &tempfile::TempDir, script: &str) -> NewWindow {
        let argv = ["sh", "-c", script].map(OsString::from).to_vec();
        NewWindow { name: "01-test".to_owned(), argv, output: directory.path().join("log.txt") }
    }

    async fn gone(pid: i32) {
        if let Some(watched) = PidFd::open(pid).unwrap() {
            tokio::time::timeout(DEADLINE, watched.gone()).await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_detached_process_tells_how_it_ended() {
        let directory = tempfile::tempdir().unwrap();
        let bare = bare(&directory);
        let three = bare.open(window(&directory, "echo boom; exit 3")).await.unwrap();
        gone(three.pid).await;
        assert_eq!(bare.exit(&three.handle).await.unwrap(), Exit::Status(3));
        assert_eq!(std::fs::read_to_string(directory.path().join("log.txt")).unwrap(), "boom\n");
        let killed = bare.open(window(&directory, "kill -9 $$")).await.unwrap();
        gone(killed.pid).await;
        assert_eq!(bare.exit(&killed.handle).await.unwrap(), Exit::Signal(9));
        bare.close(&killed.handle).await.unwrap();
        bare.close(&killed.handle).await.unwrap();
        assert_eq!(bare.exit(&killed.handle).await.unwrap(), Exit::Unknown);
    }

    #[tokio::test]
    async fn a_detached_process_outlives_the_place_that_opened_it() {
        let directory = tempfile::tempdir().unwrap();
        let bare = bare(&directory);
        let opened = bare.open(window(&directory, "exec sleep 600")).await.unwrap();
        let identity = Identity::of(opened.pid).unwrap();
        bare.close(&opened.handle).await.unwrap();
        drop(bare);
        assert_eq!(liveness(&identity), Liveness::Alive);
        kill_tree(&identity, Signal::SIGKILL);
        gone(opened.pid).await;
    }

    #[tokio::test]
    async fn a_missing_program_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let mut missing = window(&directory, "");
        missing.argv[0] = "/nowhere/decode".into();
        let error = bare(&directory).open(missing).await.unwrap_err();
        assert_eq!(error.to_string(), "failed to start `/nowhere/decode`");
    }

    #[tokio::test]
    async fn the_end_of_what_another_supervisor_started_is_unknown() {
        let directory = tempfile::tempdir().unwrap();
        let handle = Handle::Process { pid: 1 };
        assert_eq!(bare(&directory).exit(&handle).await.unwrap(), Exit::Unknown);
    }
}
