//! The process of a language server: confined as commands are, ended with all it started.
//!
//! A server runs what the repository says: build scripts, macros, plugins. Deliberately absent: what is said to it.

use std::path::Path;
use std::process::Stdio;

use nix::sys::signal::Signal;
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

use crate::command;
use crate::command::identity::Identity;
use crate::command::tree::Marked;
use crate::sandbox;
use crate::tool::Scope;

/// In the environment of all that a server starts, so that what leaves its session is found too.
const MARK: &str = "DECODE_SERVER";

/// A server that runs, until this is dropped.
#[derive(Debug)]
pub(super) struct Process {
    tree: Marked,
    /// Held so that it is waited for.
    _child: Child,
}

/// Both ends of a server's talk, and its complaints.
pub(super) struct Pipes {
    pub(super) stdin: ChildStdin,
    pub(super) stdout: ChildStdout,
    pub(super) stderr: ChildStderr,
}

impl Process {
    pub(super) fn start(argv: &[String], directory: &Path, scope: &Scope) -> std::io::Result<(Self, Pipes)> {
        let (program, arguments) = argv.split_first().ok_or(std::io::ErrorKind::InvalidInput)?;
        let mark = uuid::Uuid::new_v4().to_string();
        let mut command = Command::new(program);
        command.args(arguments).current_dir(directory).env_clear();
        command.envs(scope.environment.iter().map(|(name, value)| (name, value))).env(MARK, &mark);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        command::stand_alone(&mut command);
        if let Some(confinement) = &scope.sandbox {
            sandbox::confine(&mut command, confinement).map_err(std::io::Error::other)?;
        }
        let mut child = command.spawn()?;
        let leader = child.id().and_then(|id| Identity::of(id.cast_signed())).ok_or(std::io::ErrorKind::NotFound)?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
            return Err(std::io::ErrorKind::BrokenPipe.into());
        };
        let process = Self { tree: Marked::new(leader, format!("{MARK}={mark}")), _child: child };
        Ok((process, Pipes { stdin, stdout, stderr }))
    }

    #[cfg(test)]
    pub(super) fn living(&self) -> Vec<i32> {
        self.tree.living()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It has nothing to save: the files are ours.
        self.tree.signal(Signal::SIGKILL);
    }
}
