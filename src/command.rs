//! Processes: run one and hear its end, know it again, end it with all it started.
//!
//! Every call into the system that Rust cannot check is in this file; `identity` and `tree` build on it. Deliberately
//! absent: confinement (`sandbox/`), and any opinion about when a process should end.

pub(crate) mod identity;
pub(crate) mod tree;

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
#[cfg(target_os = "linux")]
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncReadExt, Interest};

use identity::Stat;

/// Output past this is dropped; git and tmux say what matters first.
const CAPTURE: u64 = 16 * 1024 * 1024;

/// As many descriptors as we ask for. Containers set the hard limit to a thousand million, and programs that close
/// every possible descriptor before an exec would then spin.
const DESCRIPTORS: u64 = 65_536;

/// How often a process is looked at where the kernel cannot tell us of its end.
const LOOK: Duration = Duration::from_secs(1);

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
    pub(crate) ties: Ties,
}

/// What a command takes over from us. A daemon it leaves behind would keep it for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ties {
    /// Our environment and session.
    Kept,
    /// Only the environment given, a session of its own, and none of our descriptors: a pipe of our caller that a
    /// daemon holds open makes the caller wait for the daemon.
    Cut,
}

impl Invocation {
    pub(crate) fn new<A: Into<OsString>>(program: impl Into<OsString>, arguments: impl IntoIterator<Item = A>) -> Self {
        Self {
            program: program.into(),
            arguments: arguments.into_iter().map(Into::into).collect(),
            directory: None,
            environment: Vec::new(),
            removed: Vec::new(),
            limit: Duration::from_mins(1),
            ties: Ties::Kept,
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
            .kill_on_drop(true);
        match self.ties {
            Ties::Kept => {}
            Ties::Cut => {
                command.env_clear();
                stand_alone(&mut command);
            }
        }
        command.envs(self.environment);
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

/// A process that lives on when we end. While we live, [`Detached::wait`] reaps it.
#[derive(Debug)]
pub(crate) struct Detached {
    child: tokio::process::Child,
    pid: i32,
}

impl Detached {
    pub(crate) const fn pid(&self) -> i32 {
        self.pid
    }

    /// Waits for its end. Dropping this value leaves the process running.
    pub(crate) async fn wait(mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }
}

/// Starts `argv` in a session of its own, under exactly `environment`. It reads nothing; what it prints is appended
/// to `output`. Must be called within the runtime, which reaps it.
pub(crate) fn spawn_detached(
    argv: &[OsString],
    output: &Path,
    environment: &[(OsString, OsString)],
    directory: &Path,
) -> io::Result<Detached> {
    let (program, arguments) = argv.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let mut options = std::fs::OpenOptions::new();
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let log = options.create(true).append(true).open(output)?;
    let mut command = tokio::process::Command::new(program);
    command
        .args(arguments)
        .current_dir(directory)
        .env_clear()
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log);
    stand_alone(&mut command);
    let child = command.spawn()?;
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).expect("a child not yet waited for has a pid");
    Ok(Detached { child, pid })
}

/// Gives the command a session of its own and none of our descriptors but the three it was given.
#[expect(unsafe_code, reason = "pre_exec: the closure makes two kinds of system calls and allocates nothing")]
pub(crate) fn stand_alone(command: &mut tokio::process::Command) {
    let begin = || {
        nix::unistd::setsid()?;
        close_on_exec();
        Ok(())
    };
    // SAFETY: setsid, close_range and fcntl are async-signal-safe, and nothing is allocated or locked.
    unsafe { command.pre_exec(begin) };
}

/// Marks every descriptor past stderr. Rust opens its own this way; those we were started with are the danger.
#[expect(unsafe_code, reason = "close_range and fcntl on descriptors that are only marked, not used")]
fn close_on_exec() {
    #[cfg(target_os = "linux")]
    {
        // SAFETY: the call takes three numbers.
        let marked = unsafe {
            libc::syscall(libc::SYS_close_range, 3 as libc::c_uint, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC)
        };
        if marked == 0 {
            return;
        }
    }
    // Before Linux 5.11: a descriptor that is not open is an error that says nothing.
    for descriptor in 3..1024 {
        // SAFETY: the call takes numbers, and a wrong descriptor is refused.
        unsafe { libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
}

/// Tells the end of a process that need not be our child.
#[derive(Debug)]
pub(crate) struct PidFd(Watched);

#[derive(Debug)]
enum Watched {
    Descriptor(AsyncFd<OwnedFd>),
    /// Other systems, old kernels, containers that forbid the call.
    Polled(Stat),
}

impl PidFd {
    /// `None` if there is no such process. Open first, then compare its identity: from then on it cannot be another.
    pub(crate) fn open(pid: i32) -> io::Result<Option<Self>> {
        match pidfd_open(pid) {
            Ok(descriptor) => Ok(Some(Self(Watched::Descriptor(readable(descriptor)?)))),
            Err(Errno::ESRCH) => Ok(None),
            Err(Errno::ENOSYS | Errno::EPERM) => Ok(Stat::read(pid)?.map(|stat| Self(Watched::Polled(stat)))),
            Err(other) => Err(other.into()),
        }
    }

    /// Returns when the process has ended; at once if it has already.
    pub(crate) async fn gone(&self) {
        match &self.0 {
            Watched::Descriptor(descriptor) => {
                // It fails only while the runtime goes down, when nobody acts on the answer.
                let _ = descriptor.readable().await;
            }
            Watched::Polled(stat) => {
                while stat.is_still_there() {
                    tokio::time::sleep(LOOK).await;
                }
            }
        }
    }
}

#[expect(unsafe_code, reason = "tokio trusts us that the descriptor stays open and the same")]
fn readable(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` is one open descriptor for as long as it lives, and it is given away whole.
    Ok(unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) }?)
}

#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "neither std nor nix offers pidfd_open")]
fn pidfd_open(pid: i32) -> Result<OwnedFd, Errno> {
    // SAFETY: the call takes two numbers.
    let descriptor = Errno::result(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0 as libc::c_uint) })?;
    let descriptor = i32::try_from(descriptor).map_err(|_| Errno::EBADF)?;
    // SAFETY: the kernel has just given us this descriptor, closed on exec; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

#[cfg(not(target_os = "linux"))]
fn pidfd_open(_: i32) -> Result<OwnedFd, Errno> {
    Err(Errno::ENOSYS)
}

/// Sends a signal to the process that `stat` describes and to no other. `false` if it has ended.
fn signal_exactly(stat: &Stat, signal: Signal) -> io::Result<bool> {
    let held = match pidfd_open(stat.pid) {
        Ok(descriptor) => Some(descriptor),
        Err(Errno::ESRCH) => return Ok(false),
        Err(Errno::ENOSYS | Errno::EPERM) => None,
        Err(other) => return Err(other.into()),
    };
    if !stat.is_still_there() {
        return Ok(false);
    }
    let sent = match held {
        Some(descriptor) => pidfd_send(&descriptor, signal),
        None => nix::sys::signal::kill(nix::unistd::Pid::from_raw(stat.pid), signal),
    };
    match sent {
        Ok(()) => Ok(true),
        Err(Errno::ESRCH) => Ok(false),
        Err(other) => Err(other.into()),
    }
}

#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "neither std nor nix offers pidfd_send_signal")]
fn pidfd_send(descriptor: &OwnedFd, signal: Signal) -> Result<(), Errno> {
    let none = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: the descriptor is open for the whole call, and a null siginfo means the default one.
    let sent = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            descriptor.as_raw_fd(),
            signal as libc::c_int,
            none,
            0 as libc::c_uint,
        )
    };
    Errno::result(sent).map(drop)
}

#[cfg(not(target_os = "linux"))]
fn pidfd_send(_: &OwnedFd, _: Signal) -> Result<(), Errno> {
    Err(Errno::ENOSYS)
}

/// Makes our memory, environment and descriptors unreadable to other processes of the user. Linux only; elsewhere
/// nothing is done.
pub(crate) fn make_undumpable() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    nix::sys::prctl::set_dumpable(false)?;
    Ok(())
}

/// Makes us the parent of whatever loses its own below us, so that a daemon which forks twice stays in our tree. They
/// are reaped when we end. Linux only; elsewhere nothing is done.
pub(crate) fn adopt_orphans() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    nix::sys::prctl::set_child_subreaper(true)?;
    Ok(())
}

/// Raises the soft limit of open descriptors towards the hard one and returns what now holds.
pub(crate) fn raise_descriptor_limit() -> io::Result<u64> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    let wanted = hard.min(DESCRIPTORS);
    if soft >= wanted {
        return Ok(soft);
    }
    setrlimit(Resource::RLIMIT_NOFILE, wanted, hard)?;
    Ok(wanted)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::identity::{Identity, Liveness, liveness};
    use super::*;

    /// Longer than anything here takes, short enough to fail.
    const DEADLINE: Duration = Duration::from_secs(20);

    fn words(argv: &[&str]) -> Vec<OsString> {
        argv.iter().map(OsString::from).collect()
    }

    fn path() -> Vec<(OsString, OsString)> {
        vec![("PATH".into(), std::env::var_os("PATH").unwrap())]
    }

    fn detached(script: &str, directory: &Path) -> Detached {
        let argv = words(&["sh", "-c", script]);
        spawn_detached(&argv, &directory.join("log.txt"), &path(), directory).unwrap()
    }

    fn logged(directory: &Path) -> String {
        std::fs::read_to_string(directory.join("log.txt")).unwrap()
    }

    #[tokio::test]
    async fn a_detached_process_leads_a_session_and_has_only_the_environment_it_was_given() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("log.txt"), "before\n").unwrap();
        let child = detached("cat; env; pwd; echo wrong >&2; cut -d' ' -f6 /proc/$$/stat; exit 7", directory.path());
        let pid = child.pid();
        let status = tokio::time::timeout(DEADLINE, child.wait()).await.unwrap().unwrap();
        assert_eq!(status.code(), Some(7));
        let log = logged(directory.path());
        assert!(log.starts_with("before\n"), "it appends: {log}");
        assert!(log.contains("\nwrong\n") && log.contains(&format!("\n{pid}\n")), "{log}");
        assert!(log.contains(&format!("\n{}\n", directory.path().display())), "{log}");
        assert!(!log.contains("CARGO"), "our own environment stays with us: {log}");
    }

    #[tokio::test]
    async fn what_outlives_us_holds_no_descriptor_of_ours() {
        let directory = tempfile::tempdir().unwrap();
        let (reader, writer) = std::io::pipe().unwrap();
        nix::fcntl::fcntl(&writer, nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty())).unwrap();
        let child = detached("ls /proc/self/fd | wc -l; exec sleep 600", directory.path());
        let root = Identity::of(child.pid()).unwrap();
        drop(writer);
        let end = tokio::task::spawn_blocking(move || std::io::read_to_string(reader));
        let end = tokio::time::timeout(DEADLINE, end).await;
        tree::kill_tree(&root, Signal::SIGKILL);
        let status = tokio::time::timeout(DEADLINE, child.wait()).await.unwrap().unwrap();
        assert_eq!(status.signal(), Some(9));
        assert_eq!(end.expect("the pipe is closed while the process lives").unwrap().unwrap(), "");
    }

    #[tokio::test]
    async fn a_missing_program_is_an_error_not_a_process() {
        let directory = tempfile::tempdir().unwrap();
        let argv = words(&["/nowhere/decode", "run"]);
        let error = spawn_detached(&argv, &directory.path().join("log.txt"), &path(), directory.path()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[tokio::test]
    async fn the_end_of_a_process_that_is_not_ours_is_heard() {
        let directory = tempfile::tempdir().unwrap();
        let child = detached("sleep 600 & echo $!; wait", directory.path());
        let parent = Identity::of(child.pid()).unwrap();
        let pid = wait_for_number(&directory.path().join("log.txt")).await;
        let grandchild = Identity::of(pid).unwrap();
        let watched = PidFd::open(pid).unwrap().unwrap();
        let polled = PidFd(Watched::Polled(Stat::read(pid).unwrap().unwrap()));
        assert!(tokio::time::timeout(Duration::from_millis(20), watched.gone()).await.is_err(), "it still runs");
        assert_eq!(tree::kill_tree(&grandchild, Signal::SIGKILL), [pid]);
        tokio::time::timeout(DEADLINE, watched.gone()).await.unwrap();
        tokio::time::timeout(DEADLINE, watched.gone()).await.expect("asking again returns at once");
        tokio::time::timeout(DEADLINE, polled.gone()).await.unwrap();
        assert_eq!(liveness(&grandchild), Liveness::Gone);
        tokio::time::timeout(DEADLINE, child.wait()).await.unwrap().unwrap();
        assert_eq!(liveness(&parent), Liveness::Gone);
        assert!(PidFd::open(parent.pid).unwrap().is_none(), "a pid that is gone is no error");
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    #[expect(unsafe_code, reason = "pre_exec: one prctl, which survives the exec")]
    async fn a_daemon_that_forks_twice_stays_in_the_tree_of_who_adopts_orphans() {
        let directory = tempfile::tempdir().unwrap();
        let script = "setsid -f sh -c 'echo $$ > pid.new; mv pid.new pid; exec sleep 600'; exec sleep 600";
        let mut command = tokio::process::Command::new("sh");
        command.args(["-c", script]).current_dir(directory.path()).process_group(0);
        // SAFETY: a system call that takes numbers.
        unsafe { command.pre_exec(adopt_orphans) };
        let mut child = command.spawn().unwrap();
        let root = Identity::of(i32::try_from(child.id().unwrap()).unwrap()).unwrap();
        let daemon = Identity::of(wait_for_number(&directory.path().join("pid")).await).unwrap();
        let watched = PidFd::open(daemon.pid).unwrap().unwrap();
        let signalled = tree::kill_tree(&root, Signal::SIGKILL);
        child.wait().await.unwrap();
        assert!(signalled.contains(&daemon.pid), "{signalled:?}");
        tokio::time::timeout(DEADLINE, watched.gone()).await.unwrap();
    }

    async fn wait_for_number(path: &Path) -> i32 {
        let read = async {
            loop {
                match std::fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok()) {
                    Some(number) => return number,
                    None => tokio::task::yield_now().await,
                }
            }
        };
        tokio::time::timeout(DEADLINE, read).await.unwrap()
    }

    #[tokio::test]
    async fn a_command_without_ties_has_only_the_environment_it_was_given() {
        let mut invocation = Invocation::new("env", [] as [&str; 0]);
        invocation.environment = path();
        invocation.environment.push(("ONLY".into(), "this".into()));
        invocation.ties = Ties::Cut;
        let mut names: Vec<_> = invocation.run().await.unwrap().stdout_text().lines().map(str::to_owned).collect();
        names.retain(|line| !line.starts_with("PATH="));
        assert_eq!(names, ["ONLY=this"]);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn an_undumpable_process_says_so() {
        make_undumpable().unwrap();
        let dumpable = nix::sys::prctl::get_dumpable().unwrap();
        nix::sys::prctl::set_dumpable(true).unwrap();
        assert!(!dumpable);
    }

    #[test]
    fn the_descriptor_limit_is_raised_but_not_without_end() {
        let limit = raise_descriptor_limit().unwrap();
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        assert_eq!(limit, soft);
        assert!(soft >= hard.min(DESCRIPTORS));
    }
}
