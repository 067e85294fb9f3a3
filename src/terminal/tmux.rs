//! Windows of one run: opened, closed and asked for their exit over one control connection.
//!
//! Windows and panes are known by the ids tmux gave them, never by a name. Deliberately absent: text that a person or
//! a model wrote, which no command here carries, and the screen, which is never read.

use std::str::FromStr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use nix::sys::signal::Signal;
use tmux_interface::{DisplayMessage, KillWindow, ListPanes, NewWindow as NewWindowCommand};
use tokio::time::Instant;

use super::control::{Control, with_argv};
use super::server::{
    OPENED, Server, checked_argv, checked_id, checked_name, exact, is_missing, parse_opened, refused, words,
};
use super::{Exit, Handle, NewWindow, Opened, Pending, Terminal, TerminalError};
use crate::command::identity::{Identity, Liveness, liveness};

/// How long tmux may take to say how a pane ended.
const REAPED: Duration = Duration::from_secs(3);
/// Between two looks at a pane. Nothing announces the status sooner than once a second.
const LOOK: Duration = Duration::from_millis(25);

/// Descriptors and pseudo terminals that are left alone: a server that reaches its limit livelocks.
const SPARE: u64 = 64;

/// The windows of one run.
#[derive(Debug)]
pub(crate) struct Tmux {
    session: String,
    control: Control,
    /// The process of the server, for its descriptors.
    process: Mutex<Option<Identity>>,
}

impl Tmux {
    /// The windows of the session `run`, which exists or will by the time it is used.
    pub(crate) fn new(server: Server, run: &str) -> Result<Self, TerminalError> {
        checked_name(run)?;
        let control = Control::new(server, run.to_owned());
        Ok(Self { session: run.to_owned(), control, process: Mutex::default() })
    }

    async fn open_window(&self, window: NewWindow) -> Result<Opened, TerminalError> {
        checked_name(&window.name)?;
        checked_argv(&window.argv)?;
        self.room().await?;
        let target = format!("{}:", exact(&self.session));
        let command = NewWindowCommand::new().detached().print().format(OPENED);
        let command = command.target_window(target).window_name(&window.name).build();
        match self.control.send(&with_argv(&command, &window.argv)).await {
            Ok(reply) => parse_opened(&reply).ok_or_else(|| refused(format!("no ids in `{}`", reply.trim_end()))),
            // Both limits can be reached between our look and the opening.
            Err(TerminalError::Refused { message }) if message.contains("fork failed") => {
                Err(TerminalError::Full { detail: message })
            }
            Err(error) => Err(error),
        }
    }

    async fn close_window(&self, handle: &Handle) -> Result<(), TerminalError> {
        let pane = pane_of(handle)?;
        match self.control.send(&words(&KillWindow::new().target_window(pane).build())).await {
            Err(TerminalError::Refused { message }) if is_missing(&message) => Ok(()),
            // All windows went with it.
            Err(TerminalError::ServerGone) => Ok(()),
            other => other.map(drop),
        }
    }

    async fn exit_of(&self, handle: &Handle) -> Result<Exit, TerminalError> {
        let pane = pane_of(handle)?;
        let format = "#{pane_id} #{pane_dead} #{pane_dead_status} #{pane_dead_signal}";
        let command = words(&ListPanes::new().target(pane).format(format).build());
        let deadline = Instant::now() + REAPED;
        loop {
            let panes = match self.control.send(&command).await {
                Ok(panes) => panes,
                Err(TerminalError::Refused { message }) if is_missing(&message) => return Ok(Exit::Unknown),
                Err(TerminalError::ServerGone) => return Ok(Exit::Unknown),
                Err(error) => return Err(error),
            };
            // A person may have split the window: it has other panes too.
            let line = panes.lines().find(|line| line.split(' ').next() == Some(pane));
            if let Some(exit) = line.and_then(parse_exit) {
                return Ok(exit);
            }
            if line.is_none() || Instant::now() >= deadline {
                return Ok(Exit::Unknown);
            }
            // A server that went meanwhile shows at the next look.
            let _ = self.nudge().await;
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Makes the server look for children that have ended. A tmux linked with libutempter loses the signal that says
    /// so when a window closes at the same time, and then has no status until another child ends, hours later perhaps.
    async fn nudge(&self) -> Result<(), TerminalError> {
        let server = nix::unistd::Pid::from_raw(self.server_process().await?);
        nix::sys::signal::kill(server, Signal::SIGCHLD).map_err(|_| TerminalError::ServerGone)
    }

    /// Refuses while the server can still refuse by itself.
    async fn room(&self) -> Result<(), TerminalError> {
        let pid = self.server_process().await?;
        let descriptors = descriptors_of(pid);
        let terminals = terminals();
        check_room(descriptors, terminals).map_err(|detail| TerminalError::Full { detail })
    }

    async fn server_process(&self) -> Result<i32, TerminalError> {
        let known = self.process.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(process) = known.filter(|process| liveness(process) == Liveness::Alive) {
            return Ok(process.pid);
        }
        let reply = self.control.send(&words(&DisplayMessage::new().print().message("#{pid}").build())).await?;
        let pid = reply.trim().parse().map_err(|_| refused(format!("no pid in `{}`", reply.trim_end())))?;
        *self.process.lock().unwrap_or_else(PoisonError::into_inner) = Identity::of(pid);
        Ok(pid)
    }
}

impl Terminal for Tmux {
    fn open(&self, window: NewWindow) -> Pending<'_, Opened> {
        Box::pin(self.open_window(window))
    }

    fn close<'a>(&'a self, handle: &'a Handle) -> Pending<'a, ()> {
        Box::pin(self.close_window(handle))
    }

    fn exit<'a>(&'a self, handle: &'a Handle) -> Pending<'a, Exit> {
        Box::pin(self.exit_of(handle))
    }
}

/// The pane, proven to be an id: a handle may have been read from a file.
fn pane_of(handle: &Handle) -> Result<&str, TerminalError> {
    match handle {
        Handle::Window { pane } => {
            checked_id(pane, '%')?;
            Ok(pane)
        }
        Handle::Process { pid } => Err(refused(format!("process {pid} has no window"))),
    }
}

/// `%7 1 3 ` or `%7 1  9`. `None` while tmux does not know: an empty status is not 0.
fn parse_exit(line: &str) -> Option<Exit> {
    let fields: Vec<&str> = line.split(' ').collect();
    let &[_, "1", status, signal] = fields.as_slice() else { return None };
    if let Ok(status) = status.parse() {
        return Some(Exit::Status(status));
    }
    let named = || Signal::from_str(&format!("SIG{signal}")).map(|signal| signal as i32).ok();
    signal.parse().ok().or_else(named).map(Exit::Signal)
}

/// What is in use of what there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Use {
    used: u64,
    limit: u64,
}

/// A live window takes one descriptor of the server and one pseudo terminal of the machine; what cannot be read is
/// not checked.
fn check_room(descriptors: Option<Use>, terminals: Option<Use>) -> Result<(), String> {
    let what = [("descriptors of the tmux server", descriptors), ("pseudo terminals of the machine", terminals)];
    for (name, usage) in what {
        if let Some(Use { used, limit }) = usage.filter(|usage| usage.used + SPARE >= usage.limit) {
            return Err(format!("{used} of {limit} {name} are in use"));
        }
    }
    Ok(())
}

fn descriptors_of(pid: i32) -> Option<Use> {
    let used = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count() as u64;
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).ok()?;
    let soft = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?.split_whitespace().next()?;
    Some(Use { used, limit: soft.parse().unwrap_or(u64::MAX) })
}

fn terminals() -> Option<Use> {
    let number = |name| std::fs::read_to_string(format!("/proc/sys/kernel/pty/{name}")).ok()?.trim().parse().ok();
    Some(Use { used: number("nr")?, limit: number("max")? })
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;
    use std::path::PathBuf;
    use std::process::Command;

    use super::super::server::Server;
    use std::ffi::OsString;
    use std::path::Path;

    use super::super::server::{SocketName, Started};
    use super::*;
    use crate::command::PidFd;
    use crate::command::tree::kill_tree;

    const DEADLINE: Duration = Duration::from_secs(20);
    const RUN: &str = "k3x9ab";

    /// A server of its own for one test, killed at its end however that comes.
    struct Private {
        directory: tempfile::TempDir,
    }

    impl Private {
        fn new() -> Self {
            // The path of a socket may have 107 bytes; the usual temporary directory can be too deep.
            Self { directory: tempfile::Builder::new().prefix("dt").tempdir_in("/tmp").unwrap() }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.directory.path().join(name)
        }

        fn environment(&self) -> Vec<(OsString, OsString)> {
            let mut environment: Vec<_> = std::env::vars_os().collect();
            environment.retain(|(name, _)| name != "TMUX_TMPDIR");
            environment.push(("TMUX_TMPDIR".into(), self.directory.path().into()));
            environment.push(("SECRET_TOKEN".into(), "hunter2".into()));
            environment
        }

        fn server(&self) -> Server {
            Server::new(SocketName::new("test").unwrap(), self.environment())
        }

        async fn start(&self, run: &str, argv: &[OsString]) -> Result<Started, TerminalError> {
            self.server().start_session(run, argv, &self.path("tmux.conf")).await
        }

        /// A run whose first window does nothing.
        async fn run(&self) -> Tmux {
            self.start(RUN, &words(&["sleep", "600"])).await.unwrap();
            Tmux::new(self.server(), RUN).unwrap()
        }

        /// What a person could ask with the command line.
        fn ask(&self, arguments: &[&str]) -> String {
            let output = self.tmux().args(arguments).output().unwrap();
            String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
        }

        fn tmux(&self) -> Command {
            let mut command = Command::new("tmux");
            command.args(["-N", "-L", "test"]).env("TMUX_TMPDIR", self.directory.path()).env_remove("TMUX");
            command
        }

        fn kill(&self) {
            let _ = self.tmux().arg("kill-server").output();
        }
    }

    impl Drop for Private {
        fn drop(&mut self) {
            self.kill();
        }
    }

    fn words(argv: &[&str]) -> Vec<OsString> {
        argv.iter().map(OsString::from).collect()
    }

    fn window(name: &str, argv: &[&str]) -> NewWindow {
        NewWindow { name: name.to_owned(), argv: words(argv), output: PathBuf::from("/dev/null") }
    }

    async fn within<T>(work: impl Future<Output = T>) -> T {
        tokio::time::timeout(DEADLINE, work).await.expect("it takes no longer than the deadline")
    }

    async fn gone(pid: i32) {
        if let Some(watched) = PidFd::open(pid).unwrap() {
            within(watched.gone()).await;
        }
    }

    /// The whole content, once the file is there; writers rename it into place.
    async fn content(path: &Path) -> Vec<u8> {
        let read = async {
            loop {
                match std::fs::read(path) {
                    Ok(bytes) => return bytes,
                    Err(_) => tokio::task::yield_now().await,
                }
            }
        };
        within(read).await
    }

    /// Writes its arguments, each ended by a zero byte, to the file that `$0` names.
    const ECHO: &str = "printf '%s\\0' \"$@\" > \"$0.new\" && mv \"$0.new\" \"$0\" && exec sleep 600";

    fn echo(path: &Path, arguments: &[OsString]) -> Vec<OsString> {
        let mut argv = words(&["sh", "-c", ECHO]);
        argv.push(path.into());
        argv.extend_from_slice(arguments);
        argv
    }

    fn nasty() -> Vec<OsString> {
        let mut all = words(&[
            "two words",
            "\"double\" 'single'",
            "line\nfeed",
            "$HOME `id` $(id)",
            "a;b",
            "héllo 世界 🦀",
            "#{pane_id} #H",
            "#(touch /tmp/never)",
            "back\\slash \\n \\\\",
            "",
            "~",
            "~/x",
            "*",
            "-x",
            "--",
            "tab\there",
            "%1",
            "%if x",
            "!x",
            ";",
            "ends;",
            "ends\\;",
            "ends;;",
            "{ }",
            "\u{1b}[31m",
            "\r",
            "A=b",
            "@4",
            "=x",
            "trailing\\",
        ]);
        all.push(std::ffi::OsStr::from_bytes(b"\xff\xfe \xc3( ;").to_owned());
        all
    }

    fn ended_by_zero(arguments: &[OsString]) -> Vec<u8> {
        arguments.iter().flat_map(|word| word.as_bytes().iter().copied().chain([0])).collect()
    }

    #[tokio::test]
    async fn every_word_arrives_byte_for_byte_in_a_window_and_at_the_start() {
        let private = Private::new();
        let (first, second) = (private.path("first"), private.path("second"));
        private.start(RUN, &echo(&first, &nasty())).await.unwrap();
        let tmux = Tmux::new(private.server(), RUN).unwrap();
        let mut asked = window("01-echo", &[]);
        asked.argv = echo(&second, &nasty());
        tmux.open(asked).await.unwrap();
        let wanted = ended_by_zero(&nasty());
        assert_eq!(String::from_utf8_lossy(&content(&second).await), String::from_utf8_lossy(&wanted));
        assert_eq!(content(&second).await, wanted);
        assert_eq!(content(&first).await, wanted);
    }

    #[tokio::test]
    async fn a_name_that_tmux_would_run_or_misread_is_refused() {
        let private = Private::new();
        let tmux = private.run().await;
        let trace = private.path("trace");
        let hostile = format!("x#(touch {})", trace.display());
        for name in [hostile.as_str(), "", "a b", "rel-3.1.9", "-x", "Ä", "a:b", "a;b"] {
            let error = tmux.open(window(name, &["sleep", "600"])).await.unwrap_err();
            assert!(matches!(error, TerminalError::Refused { .. }), "{error}");
            assert!(Tmux::new(private.server(), name).is_err());
            assert!(private.server().attach_argv(RUN, "@0", name).is_err());
        }
        assert_eq!(private.ask(&["list-windows", "-a", "-F", "#{window_name}"]), "supervisor");
        assert!(!trace.exists());
    }

    #[tokio::test]
    async fn a_command_of_one_word_or_of_too_many_bytes_is_refused_with_the_limit() {
        let private = Private::new();
        let tmux = private.run().await;
        let one = tmux.open(window("01-a", &["exec sleep 600"])).await.unwrap_err();
        assert!(one.to_string().contains("two words"), "{one}");
        for length in [16_300, 20_000, 131_072] {
            let long = "x".repeat(length);
            let error = tmux.open(window("01-a", &["echo", &long])).await.unwrap_err();
            assert!(error.to_string().contains("16000"), "{error}");
            assert!(private.start("m4n5pq", &words(&["echo", &long])).await.is_err());
        }
        let opened = tmux.open(window("01-a", &["true", &"x".repeat(15_900)])).await.unwrap();
        gone(opened.pid).await;
        assert_eq!(tmux.exit(&opened.handle).await.unwrap(), Exit::Status(0));
    }

    #[tokio::test]
    async fn a_window_tells_its_status_and_its_signal() {
        let private = Private::new();
        let tmux = private.run().await;
        let status = tmux.open(window("01-a", &["sh", "-c", "exit 3"])).await.unwrap();
        let signal = tmux.open(window("02-b", &["sh", "-c", "kill -9 $$"])).await.unwrap();
        let missing = tmux.open(window("03-c", &["/nowhere/decode", "run"])).await.unwrap();
        for opened in [&status, &signal, &missing] {
            gone(opened.pid).await;
        }
        assert_eq!(within(tmux.exit(&status.handle)).await.unwrap(), Exit::Status(3));
        assert_eq!(within(tmux.exit(&signal.handle)).await.unwrap(), Exit::Signal(9));
        assert_eq!(within(tmux.exit(&missing.handle)).await.unwrap(), Exit::Status(1));
    }

    #[tokio::test]
    async fn no_status_is_lost_when_many_windows_end_at_once() {
        let private = Private::new();
        let tmux = private.run().await;
        for _ in 0..5 {
            let ending = (1..9).map(|status| {
                let tmux = &tmux;
                async move {
                    let opened = tmux.open(window("01-a", &["sh", "-c", &format!("exit {status}")])).await.unwrap();
                    gone(opened.pid).await;
                    let exit = tmux.exit(&opened.handle).await.unwrap();
                    tmux.close(&opened.handle).await.unwrap();
                    (exit, Exit::Status(status))
                }
            });
            for (exit, wanted) in within(futures_util::future::join_all(ending)).await {
                assert_eq!(exit, wanted);
            }
        }
    }

    #[tokio::test]
    async fn many_windows_are_opened_at_once_and_each_reply_goes_to_who_asked() {
        let private = Private::new();
        let tmux = private.run().await;
        let (private, tmux) = (&private, &tmux);
        let opening = (0..30).map(|n| async move {
            let path = private.path(&format!("w{n}"));
            let script = format!("echo $TMUX_PANE > '{0}.new' && mv '{0}.new' '{0}'; exec sleep 600", path.display());
            (path, tmux.open(window("01-a", &["sh", "-c", &script])).await.unwrap())
        });
        for (path, opened) in within(futures_util::future::join_all(opening)).await {
            let Handle::Window { pane } = opened.handle else { panic!("a window has a pane") };
            assert_eq!(String::from_utf8(content(&path).await).unwrap().trim_end(), pane);
        }
    }

    #[tokio::test]
    async fn closing_a_window_leaves_the_one_with_the_longer_name_alone() {
        let private = Private::new();
        let tmux = private.run().await;
        let short = tmux.open(window("01-fix", &["sleep", "600"])).await.unwrap();
        let long = tmux.open(window("01-fix-2", &["sleep", "600"])).await.unwrap();
        tmux.close(&short.handle).await.unwrap();
        gone(short.pid).await;
        tmux.close(&short.handle).await.expect("closing what is gone is no error");
        assert_eq!(within(tmux.exit(&short.handle)).await.unwrap(), Exit::Unknown);
        let live = Identity::of(long.pid).unwrap();
        assert_eq!(liveness(&live), Liveness::Alive);
        tmux.open(window("02-next", &["sleep", "600"])).await.expect("a closed window does not hinder the next");
        // The free place in the row of windows is taken again.
        assert_eq!(private.ask(&["list-windows", "-a", "-F", "#{window_name}"]), "supervisor\n02-next\n01-fix-2");
    }

    #[tokio::test]
    async fn a_window_that_was_renamed_or_closed_by_hand_is_known_by_its_id() {
        let private = Private::new();
        let tmux = private.run().await;
        let renamed = tmux.open(window("01-a", &["sh", "-c", "sleep 600"])).await.unwrap();
        let closed = tmux.open(window("02-b", &["sleep", "600"])).await.unwrap();
        private.ask(&["rename-window", "-t", "=k3x9ab:01-a", "02-b"]);
        private.ask(&["kill-window", "-t", "@2"]);
        gone(closed.pid).await;
        assert_eq!(within(tmux.exit(&closed.handle)).await.unwrap(), Exit::Unknown);
        tmux.close(&closed.handle).await.unwrap();
        assert_eq!(liveness(&Identity::of(renamed.pid).unwrap()), Liveness::Alive);
        tmux.close(&renamed.handle).await.unwrap();
        gone(renamed.pid).await;
    }

    #[tokio::test]
    async fn the_server_holds_no_descriptor_of_who_started_it() {
        let private = Private::new();
        let (reader, writer) = std::io::pipe().unwrap();
        nix::fcntl::fcntl(&writer, nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty())).unwrap();
        private.run().await;
        drop(writer);
        let end = tokio::task::spawn_blocking(move || std::io::read_to_string(reader));
        let end = tokio::time::timeout(DEADLINE, end).await;
        private.kill();
        assert_eq!(end.expect("the pipe is closed while the server lives").unwrap().unwrap(), "");
    }

    #[tokio::test]
    async fn a_handle_that_is_no_id_never_reaches_tmux() {
        let private = Private::new();
        let tmux = private.run().await;
        for pane in ["supervisor", "%", "0", "%0;", "%-1", "@0"] {
            let handle = Handle::Window { pane: pane.to_owned() };
            assert!(tmux.close(&handle).await.is_err(), "{handle:?}");
            assert!(tmux.exit(&handle).await.is_err(), "{handle:?}");
        }
        assert!(tmux.close(&Handle::Process { pid: 1 }).await.is_err());
        assert_eq!(private.ask(&["list-windows", "-a", "-F", "#{window_name}"]), "supervisor");
    }

    #[tokio::test]
    async fn the_windows_of_a_killed_server_are_gone_and_a_new_server_is_used() {
        let private = Private::new();
        let tmux = private.run().await;
        let opened = tmux.open(window("01-a", &["sleep", "600"])).await.unwrap();
        private.kill();
        gone(opened.pid).await;
        tmux.close(&opened.handle).await.unwrap();
        assert_eq!(within(tmux.exit(&opened.handle)).await.unwrap(), Exit::Unknown);
        let error = within(tmux.open(window("02-b", &["sleep", "600"]))).await.unwrap_err();
        assert!(matches!(error, TerminalError::ServerGone), "{error}");
        assert!(!private.server().alive().await.unwrap());
        assert_eq!(private.server().sessions().await.unwrap(), [""; 0]);
        private.start(RUN, &words(&["sleep", "600"])).await.expect("a server that was just killed is started again");
        within(tmux.open(window("03-c", &["sleep", "600"]))).await.unwrap();
    }

    #[tokio::test]
    async fn a_command_in_flight_when_the_server_dies_ends() {
        let private = Private::new();
        let tmux = private.run().await;
        tmux.open(window("01-a", &["sleep", "600"])).await.unwrap();
        let server = Identity::of(private.ask(&["display-message", "-p", "#{pid}"]).parse().unwrap()).unwrap();
        // Nobody signals the channel, so that the command is in flight when the server is killed with its windows.
        let waiting = words(&["wait-for", "never"]);
        let killing = async { kill_tree(&server, Signal::SIGKILL) };
        let (waited, _) = within(futures_util::future::join(tmux.control.send(&waiting), killing)).await;
        assert!(matches!(waited, Err(TerminalError::ServerGone)), "{waited:?}");
    }

    #[tokio::test]
    async fn a_run_that_has_no_session_is_told_from_a_server_that_is_gone() {
        let private = Private::new();
        let _other = private.run().await;
        let tmux = Tmux::new(private.server(), "zzzzzz").unwrap();
        let error = within(tmux.open(window("01-a", &["sleep", "600"]))).await.unwrap_err();
        assert!(error.to_string().contains("can't find session"), "{error}");
    }

    #[tokio::test]
    async fn two_that_start_the_server_at_once_share_it() {
        let private = Private::new();
        let runs = ["a11111", "b22222", "c33333", "d44444"];
        let argv = words(&["sleep", "600"]);
        let started = within(futures_util::future::join_all(runs.map(|run| private.start(run, &argv)))).await;
        let mut panes: Vec<_> = started.into_iter().map(|one| one.unwrap().opened.pid).collect();
        panes.sort_unstable();
        panes.dedup();
        assert_eq!(panes.len(), runs.len());
        let mut sessions = private.server().sessions().await.unwrap();
        sessions.sort_unstable();
        assert_eq!(sessions, runs);
    }

    #[tokio::test]
    async fn starting_a_run_twice_is_refused() {
        let private = Private::new();
        private.run().await;
        let error = private.start(RUN, &words(&["sleep", "600"])).await.unwrap_err();
        assert!(error.to_string().contains("duplicate session"), "{error}");
        assert_eq!(private.server().sessions().await.unwrap(), [RUN]);
    }

    #[tokio::test]
    async fn a_configuration_for_another_tmux_does_not_break_a_run() {
        let private = Private::new();
        let hostile = "set -g base-index 1\nset -g pane-base-index 1\nset -g nonexistent 3\nset -g default-command 'exit 3'\n\
            set -g default-shell /usr/bin/fish\nset -g destroy-unattached on\nset -s exit-empty on\n\
            setw -g remain-on-exit off\nsetw -g automatic-rename on\nset -s message-limit 1000\n\
            set-hook -g after-new-window kill-window\nset-hook -g after-new-session kill-session\nset -g status-left mine\n";
        std::fs::write(private.path("tmux.conf"), hostile).unwrap();
        let started = private.start(RUN, &words(&["sleep", "600"])).await.unwrap();
        assert!(started.complaint.unwrap().contains("nonexistent"));
        let tmux = Tmux::new(private.server(), RUN).unwrap();
        let opened = tmux.open(window("01-a", &["sh", "-c", "exit 4"])).await.unwrap();
        gone(opened.pid).await;
        assert_eq!(within(tmux.exit(&opened.handle)).await.unwrap(), Exit::Status(4));
        assert_eq!(private.ask(&["list-windows", "-a", "-F", "#{window_name}"]), "supervisor\n01-a");
        assert_eq!(private.ask(&["show", "-gv", "status-left"]), "mine");
        assert_eq!(private.ask(&["show", "-sv", "message-limit"]), "0");
    }

    #[tokio::test]
    async fn a_configuration_that_tmux_cannot_read_is_complained_about() {
        let private = Private::new();
        std::fs::write(private.path("tmux.conf"), "bogus-command\n").unwrap();
        let started = private.start(RUN, &words(&["sleep", "600"])).await.unwrap();
        assert!(started.complaint.unwrap().contains("bogus-command"));
        let private = Private::new();
        assert_eq!(private.start(RUN, &words(&["sleep", "600"])).await.unwrap().complaint, None);
    }

    #[tokio::test]
    async fn the_server_has_its_options_and_nothing_of_our_environment_that_is_not_allowed() {
        let private = Private::new();
        let tmux = private.run().await;
        for (scope, option, value) in [
            ("-sv", "exit-empty", "off"),
            ("-sv", "message-limit", "0"),
            ("-sv", "escape-time", "10"),
            ("-sv", "extended-keys", "on"),
            ("-sv", "focus-events", "on"),
            ("-sv", "set-clipboard", "external"),
            ("-gv", "mouse", "on"),
            ("-gv", "history-limit", "5000"),
            ("-gv", "default-shell", "/bin/sh"),
            ("-gwv", "remain-on-exit", "on"),
            ("-gwv", "allow-passthrough", "off"),
        ] {
            assert_eq!(private.ask(&["show", scope, option]), value, "{option}");
        }
        let keys = private.ask(&["list-keys", "-T", "root"]);
        for (key, command) in [("M-n", "next-window"), ("M-p", "previous-window"), ("M-q", "detach-client")] {
            assert!(keys.lines().any(|line| line.contains(key) && line.contains(command)), "{keys}");
        }
        let path = private.path("environment");
        let script = format!("env > '{0}.new'; mv '{0}.new' '{0}'; exec sleep 600", path.display());
        tmux.open(window("01-a", &["sh", "-c", &script])).await.unwrap();
        let environment = String::from_utf8(content(&path).await).unwrap();
        assert!(environment.contains("SHELL=/bin/sh\n") && environment.contains("PATH="), "{environment}");
        assert!(!environment.contains("hunter2") && !environment.contains("CARGO"), "{environment}");
        let global = private.ask(&["show-environment", "-g"]);
        assert!(!global.contains("hunter2"), "{global}");
    }

    #[tokio::test]
    async fn what_a_person_changed_on_a_running_server_stays() {
        let private = Private::new();
        private.run().await;
        private.ask(&["set", "-g", "mouse", "off"]);
        private.start("m4n5pq", &words(&["sleep", "600"])).await.unwrap();
        assert_eq!(private.ask(&["show", "-gv", "mouse"]), "off");
    }

    #[tokio::test]
    async fn the_supervisor_finds_its_own_window_and_lets_it_close() {
        let private = Private::new();
        let started = private.start(RUN, &words(&["sh", "-c", "read line"])).await.unwrap();
        let Handle::Window { pane } = &started.opened.handle else { panic!("a window has a pane") };
        let id = private.ask(&["display-message", "-p", "-t", pane, "#{window_id}"]);
        let tmux = Tmux::new(private.server(), RUN).unwrap();
        assert!(private.server().let_window_close("%999").await.is_err());
        private.server().let_window_close(pane).await.unwrap();
        let keep = tmux.open(window("01-a", &["sleep", "600"])).await.unwrap();
        private.ask(&["send-keys", "-t", pane, "Enter"]);
        gone(started.opened.pid).await;
        let left = async {
            while private.ask(&["list-windows", "-a", "-F", "#{window_id}"]).contains(id.as_str()) {
                tokio::task::yield_now().await;
            }
        };
        within(left).await;
        assert_eq!(liveness(&Identity::of(keep.pid).unwrap()), Liveness::Alive);
    }

    /// A terminal for a viewer: `script` gives one to what it runs.
    fn viewer(private: &Private, argv: &[OsString]) -> std::process::Child {
        let line: Vec<_> = argv.iter().map(|word| format!("'{}'", word.to_str().unwrap())).collect();
        let mut command = Command::new("script");
        command.args(["-qec", &line.join(" "), "/dev/null"]).env("TMUX_TMPDIR", private.directory.path());
        command.env_remove("TMUX").env("TERM", "xterm").stdin(std::process::Stdio::piped());
        command.stdout(std::process::Stdio::null()).spawn().unwrap()
    }

    #[tokio::test]
    async fn viewers_have_sessions_of_their_own_that_go_with_them() {
        let private = Private::new();
        let tmux = private.run().await;
        let opened = tmux.open(window("01-a", &["sleep", "600"])).await.unwrap();
        let Handle::Window { pane } = &opened.handle else { panic!("a window has a pane") };
        let id = private.ask(&["display-message", "-p", "-t", pane, "#{window_id}"]);
        let argv = private.server().attach_argv(RUN, &id, "v1").unwrap();
        let mut child = viewer(&private, &argv);
        let shown = async {
            while private.ask(&["display-message", "-p", "-t", "=k3x9ab-v1:", "#{session_name} #{window_id}"])
                != format!("k3x9ab-v1 {id}")
            {
                tokio::task::yield_now().await;
            }
        };
        within(shown).await;
        assert_eq!(
            private.ask(&["display-message", "-p", "-t", "=k3x9ab:", "#{window_id}"]),
            "@0",
            "nobody else moves"
        );
        assert_eq!(private.server().attached_clients(RUN).await.unwrap(), 1, "our control client does not count");
        assert_eq!(private.server().attached_clients("k3x9").await.unwrap(), 0);
        assert_eq!(private.server().sessions().await.unwrap(), [RUN], "a viewer is no run");
        // Alt-q.
        let mut keys = child.stdin.take().unwrap();
        std::io::Write::write_all(&mut keys, b"\x1bq").unwrap();
        let status = tokio::task::spawn_blocking(move || child.wait()).await.unwrap().unwrap();
        assert!(status.success(), "{status}");
        let left = async {
            while private.ask(&["list-sessions", "-F", "#{session_name}"]) != RUN {
                tokio::task::yield_now().await;
            }
        };
        within(left).await;
        assert_eq!(liveness(&Identity::of(opened.pid).unwrap()), Liveness::Alive);
    }

    #[tokio::test]
    async fn attaching_to_a_run_that_is_gone_makes_no_session() {
        let private = Private::new();
        private.run().await;
        let argv = private.server().attach_argv("zzzzzz", "@0", "v1").unwrap();
        let mut child = viewer(&private, &argv);
        let status = tokio::task::spawn_blocking(move || child.wait()).await.unwrap().unwrap();
        assert!(!status.success());
        assert_eq!(private.ask(&["list-sessions", "-F", "#{session_name}"]), RUN);
    }

    #[tokio::test]
    async fn killing_a_session_ends_its_windows_in_every_viewer_and_spares_others() {
        let private = Private::new();
        let tmux = private.run().await;
        let other = private.start("k3x9abc", &words(&["sleep", "600"])).await.unwrap();
        let opened = tmux.open(window("01-a", &["sleep", "600"])).await.unwrap();
        private.ask(&["new-session", "-d", "-t", "=k3x9ab", "-s", "k3x9ab-v1"]);
        private.server().kill_session(RUN).await.unwrap();
        gone(opened.pid).await;
        private.server().kill_session(RUN).await.expect("killing what is gone is no error");
        assert_eq!(private.server().sessions().await.unwrap(), ["k3x9abc"]);
        assert_eq!(liveness(&Identity::of(other.opened.pid).unwrap()), Liveness::Alive);
    }

    #[tokio::test]
    async fn without_tmux_that_is_what_is_said() {
        let private = Private::new();
        let nowhere = [("PATH".into(), private.directory.path().into())];
        let server = Server::new(SocketName::default(), nowhere);
        assert!(matches!(server.alive().await, Err(TerminalError::NoTmux)));
        let started = server.start_session(RUN, &words(&["sleep", "600"]), &private.path("tmux.conf")).await;
        assert!(matches!(started, Err(TerminalError::NoTmux)));
        let tmux = Tmux::new(server, RUN).unwrap();
        let opened = tmux.open(window("01-a", &["sleep", "600"])).await;
        assert!(matches!(opened, Err(TerminalError::NoTmux)));
    }

    #[tokio::test]
    async fn a_reply_of_any_length_comes_whole() {
        let private = Private::new();
        let tmux = private.run().await;
        let format = format!("#{{pane_id}} {}", "x".repeat(30_000));
        let reply = tmux.control.send(&words(&["list-panes", "-s", "-F", &format])).await.unwrap();
        assert_eq!(reply.len(), "%0 \n".len() + 30_000);
    }

    #[test]
    fn an_empty_status_is_not_success() {
        assert_eq!(parse_exit("%7 1 0 "), Some(Exit::Status(0)));
        assert_eq!(parse_exit("%7 1 3 "), Some(Exit::Status(3)));
        assert_eq!(parse_exit("%7 1  9"), Some(Exit::Signal(9)));
        assert_eq!(parse_exit("%7 1  KILL"), Some(Exit::Signal(9)));
        for unknown in ["%7 1  ", "%7 0  ", "%7 1", "", "%7 1  NOSUCH"] {
            assert_eq!(parse_exit(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn a_window_is_refused_before_the_server_runs_out_of_descriptors() {
        let usage = |used, limit| Some(Use { used, limit });
        assert_eq!(check_room(usage(900, 1024), usage(900, 4096)), Ok(()));
        assert_eq!(check_room(None, None), Ok(()));
        assert!(check_room(usage(960, 1024), None).unwrap_err().contains("960 of 1024 descriptors"));
        assert!(check_room(None, usage(4032, 4096)).unwrap_err().contains("pseudo terminals"));
        assert!(check_room(usage(1000, u64::MAX), None).is_ok());
    }

    #[test]
    fn a_socket_name_is_plain() {
        for name in ["", "a/b", "..", "a b", "x#(id)", &"x".repeat(65)] {
            assert!(SocketName::new(name).is_err(), "{name}");
        }
        assert_eq!(SocketName::new("decode-test_1").unwrap().as_str(), "decode-test_1");
    }
}
