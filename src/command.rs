//! Processes: run one and hear its end, know it again, end it with all it started.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncReadExt;

/// Output past this is dropped; git and tmux say what matters first.
const CAPTURE: u64 = 16 * 1024 * 1024;

#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    #[error("`{program}` is not installed or not in PATH")]
    NotFound { program: String },
    #[error("failed to run `{program}`")]
    Start { program: String, source: std::io::Error },
    #[error("`{program}` took longer than {seconds} s")]
    TimedOut { program: String, seconds: u64 },
}

/// A short command whose output we want: git, tmux. No terminal, nothing on its input.
#[derive(Debug, Clone)]
pub(crate) struct Invocation {
    pub(crate) program: OsString,
    pub(crate) arguments: Vec<OsString>,
    pub(crate) directory: Option<PathBuf>,
    /// Set on top of our own environment.
    pub(crate) environment: Vec<(OsString, OsString)>,
    /// Taken out of it.
    pub(crate) removed: Vec<OsString>,
    pub(crate) limit: Duration,
}

impl Invocation {
    pub(crate) fn new<A: Into<OsString>>(program: impl Into<OsString>, arguments: impl IntoIterator<Item = A>) -> Self {
        Self {
            program: program.into(),
            arguments: arguments.into_iter().map(Into::into).collect(),
            directory: None,
            environment: Vec::new(),
            removed: Vec::new(),
            limit: Duration::from_secs(60),
        }
    }

    /// Runs to the end and returns what it printed. A failing status is not an error here.
    pub(crate) async fn run(self) -> Result<Finished, CommandError> {
        let program = self.program.to_string_lossy().into_owned();
        let mut command = tokio::process::Command::new(&self.program);
        command
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .envs(self.environment)
            .kill_on_drop(true);
        for name in &self.removed {
            command.env_remove(name);
        }
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        let mut child = command.spawn().map_err(|source| match source.kind() {
            // A missing directory gives the same error as a missing program.
            std::io::ErrorKind::NotFound if self.directory.as_ref().is_none_or(|path| path.is_dir()) => {
                CommandError::NotFound { program: program.clone() }
            }
            _ => CommandError::Start { program: program.clone(), source },
        })?;
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let out = child.stdout.take().expect("stdout is piped above");
        let err = child.stderr.take().expect("stderr is piped above");
        let work = async {
            let read_out = async { out.take(CAPTURE).read_to_end(&mut stdout).await };
            let read_err = async { err.take(CAPTURE).read_to_end(&mut stderr).await };
            let (_, _) = tokio::join!(read_out, read_err);
            child.wait().await
        };
        let status = tokio::time::timeout(self.limit, work)
            .await
            .map_err(|_| CommandError::TimedOut { program: program.clone(), seconds: self.limit.as_secs() })?
            .map_err(|source| CommandError::Start { program, source })?;
        Ok(Finished { status, stdout, stderr })
    }
}

/// What a command printed and how it ended.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) status: std::process::ExitStatus,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
}

impl Finished {
    pub(crate) fn stdout_text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).trim_end().to_owned()
    }

    pub(crate) fn stderr_text(&self) -> String {
        String::from_utf8_lossy(&self.stderr).trim_end().to_owned()
    }
}

/// Lets a process lead a session of its own: it has no terminal to take, and all it starts can be found again.
#[expect(unsafe_code, reason = "only pre_exec can act between fork and exec")]
pub(crate) fn in_own_session(command: &mut tokio::process::Command) {
    // SAFETY: setsid is async-signal-safe and nothing is allocated after the fork.
    unsafe {
        command.pre_exec(|| nix::unistd::setsid().map(drop).map_err(Into::into));
    }
}
