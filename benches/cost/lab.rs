//! A place of its own for what is measured: home, state, tmux server; and the end of all that was started there.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Why a row could not be measured.
pub(crate) type Failed = Box<dyn std::error::Error>;

/// The binary whose cost is measured, as cargo built it for this bench.
pub(crate) const DECODE: &str = env!("CARGO_BIN_EXE_decode");

/// What is waited for comes within this time or the bench fails.
const PATIENCE: Duration = Duration::from_mins(1);
/// How often a file is looked for that somebody else writes; the error of what is timed that way.
const LOOK: Duration = Duration::from_millis(1);

/// Home, state and sockets of one run of the bench; all gone when it is dropped.
pub(crate) struct Lab {
    directory: tempfile::TempDir,
    sockets: [String; 2],
}

/// Which of the two tmux servers.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Side {
    Ours = 0,
    Theirs = 1,
}

impl Lab {
    pub(crate) fn new() -> Result<Self, Failed> {
        let directory = tempfile::Builder::new().prefix("bench").tempdir()?;
        for name in ["home", "tmux", "project", "state/runs"] {
            std::fs::create_dir_all(directory.path().join(name))?;
        }
        std::fs::write(directory.path().join("project/Cargo.toml"), "[package]\nname = \"subject\"\n")?;
        let id = std::process::id();
        let lab = Self { directory, sockets: [format!("bench-{id}"), format!("bench-theirs-{id}")] };
        Ok(lab)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> Result<PathBuf, Failed> {
        let path = self.path(name);
        std::fs::write(&path, text)?;
        Ok(path)
    }

    /// The whole environment of everything started here.
    pub(crate) fn environment(&self) -> Vec<(String, String)> {
        let path = std::env::var("PATH").unwrap_or_default();
        let text = |name: &str| self.path(name).to_string_lossy().into_owned();
        [
            ("PATH", path),
            ("HOME", text("home")),
            ("LANG", "C.UTF-8".to_owned()),
            ("TERM", "xterm-256color".to_owned()),
            ("DECODE_STATE", text("state")),
            ("DECODE_TMUX_SOCKET", self.sockets[Side::Ours as usize].clone()),
            ("TMUX_TMPDIR", text("tmux")),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }

    /// A program in the project, with nothing of the caller's environment and nothing to read.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env_clear().envs(self.environment()).current_dir(self.path("project"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    pub(crate) fn decode(&self, words: &[&str]) -> Command {
        let mut command = self.command(DECODE);
        command.args(words);
        command
    }

    pub(crate) fn tmux(&self, side: Side, words: &[&str]) -> Command {
        let mut command = self.command("tmux");
        command.args(["-L", &self.sockets[side as usize], "-f", "/dev/null"]).args(words);
        command
    }

    pub(crate) fn socket(&self, side: Side) -> &str {
        &self.sockets[side as usize]
    }

    /// Names of runs, to find the one that comes next.
    pub(crate) fn runs(&self) -> Vec<String> {
        names(&self.path("state/runs"))
    }

    /// Waits for the run that was not there before.
    pub(crate) fn new_run(&self, before: &[String]) -> Result<String, Failed> {
        wait("a new run", || self.runs().into_iter().find(|run| !before.contains(run)))
    }

    /// Every file of that name in the first attempts of a run.
    pub(crate) fn files(&self, run: &str, name: &str) -> Vec<PathBuf> {
        let children = self.path("state/runs").join(run).join("children");
        let paths = names(&children).into_iter().map(|child| children.join(child).join("1").join(name));
        paths.filter(|path| path.exists()).collect()
    }

    /// Stops a run and waits for its end.
    pub(crate) fn stop(&self, run: &str) -> Result<(), Failed> {
        self.decode(&["stop", run]).status()?;
        self.decode(&["wait", run, "-q"]).status()?;
        Ok(())
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for run in self.runs() {
            let mut files = self.files(&run, "claim.md");
            files.push(self.path("state/runs").join(&run).join("run.md"));
            for pid in files.iter().filter_map(|file| pid_in(file)).filter(|pid| is_ours(*pid)) {
                let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
        }
        for side in [Side::Ours, Side::Theirs] {
            let _ = self.tmux(side, &["kill-server"]).status();
        }
    }
}

/// A number that is somebody else's by now is not killed.
fn is_ours(pid: i32) -> bool {
    std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|path| path == Path::new(DECODE))
        || std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.starts_with(DECODE.as_bytes()))
}

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| !name.starts_with('.'))
        .collect();
    names.sort_unstable();
    names
}

/// The `pid:` of a claim, or of the supervisor in a `run.md`.
pub(crate) fn pid_in(file: &Path) -> Option<i32> {
    let text = std::fs::read_to_string(file).ok()?;
    text.lines().find_map(|line| line.trim_start().strip_prefix("pid:")?.trim().parse().ok())
}

/// Looks until it is there.
pub(crate) fn wait<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> Result<T, Failed> {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return Ok(found);
        }
        if Instant::now() > end {
            return Err(format!("{what} did not come within {} s", PATIENCE.as_secs()).into());
        }
        std::thread::sleep(LOOK);
    }
}

/// Runs it to its end; what it printed is in the error if it failed.
pub(crate) fn succeed(command: &mut Command) -> Result<Output, Failed> {
    let output = command.stdout(Stdio::piped()).stderr(Stdio::piped()).output()?;
    if output.status.success() {
        return Ok(output);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{command:?} ended with {}: {said}", output.status).into())
}

/// Seconds of processor time that all threads of a process have used.
pub(crate) fn processor_s(pid: i32) -> Result<f64, Failed> {
    let mut nanoseconds = 0.0;
    for thread in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let times = std::fs::read_to_string(thread?.path().join("schedstat"))?;
        nanoseconds += times.split(' ').next().and_then(|first| first.parse::<f64>().ok()).unwrap_or(0.0);
    }
    Ok(nanoseconds / 1e9)
}

pub(crate) fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or("?").to_owned()
}

pub(crate) fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
