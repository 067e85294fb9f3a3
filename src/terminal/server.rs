//! The tmux server all runs share: how to reach it, how it is started, and what is asked of it from outside a run.
//!
//! These are commands of their own process, for callers that ask once. Deliberately absent: the windows of a run
//! (`tmux.rs`), and our own environment: it is given by the caller.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::time::Duration;

use tmux_interface::{
    BindKey, ChooseTree, DetachClient, HasSession, KillSession, ListClients, ListSessions, ListWindows, NewSession,
    NewWindow, NextWindow, PreviousWindow, SelectWindow, SetHook, SetOption, SourceFile, StartServer, TmuxCommand,
};

use super::control::{Words, with_argv};
use super::{Handle, Opened, TerminalError};
use crate::command::{CommandError, Finished, Invocation, Ties, raise_descriptor_limit};

/// What a window is asked to print about itself when it opens.
pub(super) const OPENED: &str = "#{window_id} #{pane_id} #{pane_pid}";

/// The longest argv of a window, with its zero bytes. tmux refuses 16,364 bytes from its command line and silently
/// starts nothing for a word of 131,072; long text belongs in a file.
const ARGV: usize = 16_000;

/// A tmux command that takes longer is not going to end.
const LIMIT: Duration = Duration::from_secs(15);

/// A server that is going away refuses for a moment to be started again.
const STARTS: usize = 20;
const BETWEEN_STARTS: Duration = Duration::from_millis(50);

/// Variables of the caller that a server may keep for ever. No secret is among them, and nothing that names a socket.
const KEPT: [&str; 11] =
    ["PATH", "HOME", "LANG", "TERM", "USER", "LOGNAME", "TMUX_TMPDIR", "XDG_RUNTIME_DIR", "TZ", "TMPDIR", "COLORTERM"];

/// The name of a server's socket: `-L` of tmux.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SocketName(String);

impl SocketName {
    pub(crate) fn new(name: &str) -> Result<Self, TerminalError> {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if name.is_empty() || name.len() > 64 || !name.chars().all(plain) {
            return Err(refused(format!("`{name}` is not a socket name of [A-Za-z0-9_-]")));
        }
        Ok(Self(name.to_owned()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for SocketName {
    /// The server of all runs of the user.
    fn default() -> Self {
        Self("decode".to_owned())
    }
}

/// How to reach one tmux server.
#[derive(Debug, Clone)]
pub(crate) struct Server {
    socket: SocketName,
    environment: Vec<(OsString, OsString)>,
}

/// A window as a list has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WindowName {
    pub(crate) id: String,
    pub(crate) name: String,
}

/// A new session with its first window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Started {
    pub(crate) opened: Opened,
    /// What tmux said against the user's configuration; the session was made nevertheless.
    pub(crate) complaint: Option<String>,
}

impl Server {
    /// Takes from `environment` what tmux needs and no more: the server passes its own on to every window.
    pub(crate) fn new(socket: SocketName, environment: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let kept = |name: &OsStr| name.to_str().is_some_and(|name| KEPT.contains(&name) || name.starts_with("LC_"));
        let mut environment: Vec<_> = environment.into_iter().filter(|(name, _)| kept(name)).collect();
        environment.push(("SHELL".into(), "/bin/sh".into()));
        Self { socket, environment }
    }

    pub(crate) fn socket(&self) -> &SocketName {
        &self.socket
    }

    pub(super) fn environment(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.environment.iter().map(|(name, value)| (name.as_os_str(), value.as_os_str()))
    }

    /// What stands before every command. `-N`: asking starts no server.
    pub(super) fn options(&self) -> [&str; 5] {
        ["-N", "-L", self.socket.as_str(), "-f", "/dev/null"]
    }

    /// Makes a session named `name` whose first window runs `argv`, and the server first if there is none.
    ///
    /// Options are set when the server is started; on one that runs they may be what a person made of them since.
    /// Two callers that start it at once set the same twice.
    pub(crate) async fn start_session(
        &self,
        name: &str,
        argv: &[OsString],
        configuration: &Path,
    ) -> Result<Started, TerminalError> {
        checked_name(name)?;
        checked_argv(argv)?;
        let session = NewSession::new().detached().session_name(name).window_name("supervisor").width(200).height(50);
        let session = with_argv(&session.print().format(OPENED).build(), argv);
        // At the usual limit of 1,024 a server livelocks near its 1,012th window. What cannot be raised is still
        // looked at before each window.
        let _ = raise_descriptor_limit();
        let mut finished = self.start_once(&session, configuration).await?;
        for _ in 1..STARTS {
            if !no_server(&finished.stderr_text()) {
                break;
            }
            tokio::time::sleep(BETWEEN_STARTS).await;
            finished = self.start_once(&session, configuration).await?;
        }
        // The status is of the whole list, a bad line of the user's file included; the ids prove the session.
        let printed = finished.stdout_text();
        let Some(opened) = parse_opened(&printed) else { return Err(refused(finished.stderr_text())) };
        // A file that cannot be parsed is complained about on stdout, before the ids.
        let before = printed.rsplit_once('\n').map_or("", |(before, _)| before);
        let complaint = [before, &finished.stderr_text()].join("\n").trim().to_owned();
        Ok(Started { opened, complaint: Some(complaint).filter(|text| !text.is_empty()) })
    }

    async fn start_once(&self, session: &Words, configuration: &Path) -> Result<Finished, TerminalError> {
        if self.alive().await? {
            // One that goes away meanwhile is not to come back without its options.
            return self.ask(session.clone()).await;
        }
        let mut commands = vec![words(&StartServer::new().build())];
        commands.extend(defaults());
        commands.extend(bindings());
        if configuration.is_file() {
            let mut source = words(&SourceFile::new().quiet().build());
            source.push(without_wildcards(configuration));
            commands.push(source);
        }
        commands.extend(essentials());
        commands.push(session.clone());
        self.call(&self.options()[1..], &commands).await
    }

    /// Whether a server answers on the socket. One that is there and refuses is an error: it is not gone.
    pub(crate) async fn alive(&self) -> Result<bool, TerminalError> {
        let finished = self.ask(words(&ListSessions::new().build())).await?;
        let said = finished.stderr_text();
        match finished.status.success() {
            true => Ok(true),
            false if no_server(&said) => Ok(false),
            false => Err(refused(said)),
        }
    }

    /// The names of all runs that have a session; not those of viewers.
    pub(crate) async fn sessions(&self) -> Result<Vec<String>, TerminalError> {
        let sessions = self.grouped_sessions().await?;
        Ok(sessions.into_iter().filter(|(name, group)| group.is_empty() || name == group).map(|pair| pair.0).collect())
    }

    /// How many terminals show the run; our own connection is none.
    pub(crate) async fn attached_clients(&self, session: &str) -> Result<usize, TerminalError> {
        let format = "#{client_control_mode} #{session_name} #{session_group}";
        let list = self.ask(words(&ListClients::new().format(format).build())).await?.stdout_text();
        let shows = |line: &&str| {
            let mut fields = line.split(' ');
            fields.next() == Some("0") && fields.any(|name| name == session)
        };
        Ok(list.lines().filter(shows).count())
    }

    /// Sends away the terminal that shows the run and was used last: the one whose key was just read.
    pub(crate) async fn detach_latest(&self, session: &str) -> Result<(), TerminalError> {
        let format = "#{client_activity} #{client_control_mode} #{client_name} #{session_name} #{session_group}";
        let list = self.ask(words(&ListClients::new().format(format).build())).await?.stdout_text();
        let shows = |line: &str| {
            let mut fields = line.split(' ');
            let (activity, control, client) = (fields.next()?, fields.next()?, fields.next()?);
            let is_ours = control == "0" && fields.any(|name| name == session);
            is_ours.then(|| (activity.parse::<u64>().unwrap_or(0), client.to_owned()))
        };
        if let Some((_, client)) = list.lines().filter_map(shows).max() {
            self.ask(words(&DetachClient::new().target_client(client).build())).await?;
        }
        Ok(())
    }

    /// Ends the session and those of its viewers; what runs in the windows is hung up. No error if it is gone.
    #[cfg_attr(not(test), expect(dead_code, reason = "`decode gc` is not built yet"))]
    pub(crate) async fn kill_session(&self, name: &str) -> Result<(), TerminalError> {
        let sessions = self.grouped_sessions().await?;
        // Windows live as long as any session of the group has them.
        for (session, _) in sessions.iter().filter(|(session, group)| session == name || group == name) {
            let finished = self.ask(words(&KillSession::new().target_session(exact(session)).build())).await?;
            let said = finished.stderr_text();
            if !finished.status.success() && !is_missing(&said) && !no_server(&said) {
                return Err(refused(said));
            }
        }
        Ok(())
    }

    /// Opens one more window in a session that is there, such as that of a supervisor which takes up a run.
    pub(crate) async fn add_window(&self, session: &str, argv: &[OsString]) -> Result<Opened, TerminalError> {
        checked_argv(argv)?;
        let target = format!("{}:", exact(session));
        let command = NewWindow::new().detached().print().format(OPENED).target_window(target);
        let finished = self.ask(with_argv(&command.window_name("supervisor").build(), argv)).await?;
        parse_opened(&finished.stdout_text()).ok_or_else(|| refused(finished.stderr_text()))
    }

    /// The windows of a run, in the order they were opened; none if its session is gone.
    pub(crate) async fn windows(&self, session: &str) -> Result<Vec<WindowName>, TerminalError> {
        let list = ListWindows::new().target_session(exact(session)).format("#{window_id} #{window_name}");
        let finished = self.ask(words(&list.build())).await?;
        let said = finished.stderr_text();
        if !finished.status.success() && !is_missing(&said) && !no_server(&said) {
            return Err(refused(said));
        }
        let pair = |line: &str| {
            let (id, name) = line.split_once(' ')?;
            Some(WindowName { id: id.to_owned(), name: name.to_owned() })
        };
        Ok(finished.stdout_text().lines().filter_map(pair).collect())
    }

    /// The window of this pane goes when its process ends; others stay to be read.
    pub(crate) async fn let_window_close(&self, pane: &str) -> Result<(), TerminalError> {
        checked_id(pane, '%')?;
        let option = SetOption::new().window().target_pane(pane).option("remain-on-exit").value("off");
        let finished = self.ask(words(&option.build())).await?;
        if finished.status.success() { Ok(()) } else { Err(refused(finished.stderr_text())) }
    }

    /// The command that shows a window of a run in a session of the viewer's own, so that viewers neither move nor
    /// shrink each other. `viewer` is a name such as `v1`. `TMUX` must be out of its environment.
    ///
    /// The session goes with its viewer by a hook. `destroy-unattached` would do, but it frees the session while the
    /// client still leaves it: tmux 3.3a crashes there, about once in twenty, and takes every run with it.
    pub(crate) fn attach_argv(&self, run: &str, window: &str, viewer: &str) -> Result<Vec<OsString>, TerminalError> {
        for name in [run, viewer] {
            checked_name(name)?;
        }
        checked_id(window, '@')?;
        let own = format!("{run}-{viewer}");
        let leave = format!("kill-session -t {}", exact(&own));
        let commands = [
            // Without it a run that is gone would get a new session with a shell in it.
            HasSession::new().target_session(exact(run)).build(),
            NewSession::new().group_name(exact(run)).session_name(&own).build(),
            SetHook::new()
                .target_session(format!("{}:", exact(&own)))
                .hook_name("client-detached")
                .command(&leave)
                .build(),
            // An id alone is looked for in every session of the group.
            SelectWindow::new().target_window(format!("{}:{window}", exact(&own))).build(),
        ];
        let commands: Vec<_> = commands.iter().map(words).collect();
        let mut argv: Vec<OsString> = vec!["tmux".into()];
        argv.extend(self.options().map(OsString::from));
        argv.extend(command_line(&commands));
        Ok(argv)
    }

    /// Name and group of each session; none if there is no server.
    async fn grouped_sessions(&self) -> Result<Vec<(String, String)>, TerminalError> {
        let list = words(&ListSessions::new().format("#{session_group} #{session_name}").build());
        let finished = self.ask(list).await?;
        let said = finished.stderr_text();
        if !finished.status.success() && !no_server(&said) {
            return Err(refused(said));
        }
        let pair = |line: &str| line.split_once(' ').map(|(group, name)| (name.to_owned(), group.to_owned()));
        Ok(finished.stdout_text().lines().filter_map(pair).collect())
    }

    async fn ask(&self, command: Words) -> Result<Finished, TerminalError> {
        self.call(&self.options(), &[command]).await
    }

    async fn call(&self, options: &[&str], commands: &[Words]) -> Result<Finished, TerminalError> {
        let mut arguments: Vec<OsString> = options.iter().map(OsString::from).collect();
        arguments.extend(command_line(commands));
        let mut invocation = Invocation::new("tmux", arguments);
        invocation.environment.clone_from(&self.environment);
        invocation.ties = Ties::Cut;
        invocation.limit = LIMIT;
        invocation.run().await.map_err(|error| match error {
            CommandError::NotFound { .. } => TerminalError::NoTmux,
            CommandError::Start { program, source } => TerminalError::Start { program, source },
            CommandError::TimedOut { seconds, .. } => refused(format!("no answer within {seconds} s")),
        })
    }
}

/// What holds unless the user's file says otherwise. Quiet: another tmux may not have every option.
fn defaults() -> Vec<Words> {
    let server =
        [("escape-time", "10"), ("extended-keys", "on"), ("set-clipboard", "external"), ("focus-events", "on")];
    let session = [("mouse", "on"), ("history-limit", "5000"), ("default-shell", "/bin/sh")];
    let window = [("allow-passthrough", "off")];
    let option = |(name, value)| SetOption::new().quiet().option(name).value(value);
    let mut commands = Vec::new();
    commands.extend(server.map(|pair| words(&option(pair).server().build())));
    commands.extend(session.map(|pair| words(&option(pair).global().build())));
    commands.extend(window.map(|pair| words(&option(pair).global().window().build())));
    commands
}

/// What must hold whatever the user's file says: our windows stay, and what is sent to them is not kept to be read.
fn essentials() -> Vec<Words> {
    let server = [("exit-empty", "off"), ("exit-unattached", "off"), ("message-limit", "0")];
    // A viewer's sockets and keys must not reach windows opened later.
    let session = [("destroy-unattached", "off"), ("update-environment", "")];
    let window = [("remain-on-exit", "on")];
    // Written for sessions that a person opens, such hooks move, rename or kill what they are run for.
    let hooks = ["after-new-session", "after-new-window", "session-created", "window-linked"];
    let option = |(name, value)| SetOption::new().quiet().option(name).value(value);
    let mut commands = Vec::new();
    commands.extend(server.map(|pair| words(&option(pair).server().build())));
    commands.extend(session.map(|pair| words(&option(pair).global().build())));
    commands.extend(window.map(|pair| words(&option(pair).global().window().build())));
    commands.extend(hooks.map(|name| words(&SetHook::new().global().unset().hook_name(name).build())));
    commands
}

/// Keys that work in every window without the prefix: next, previous, list, back.
fn bindings() -> Vec<Words> {
    let keys = [
        ("M-n", NextWindow::new().build()),
        ("M-p", PreviousWindow::new().build()),
        ("M-w", ChooseTree::new().zoom().collapsed_windows().build()),
        ("M-q", DetachClient::new().build()),
    ];
    keys.map(|(key, command)| {
        let mut bind = words(&BindKey::new().root().key(key).build());
        bind.extend(words(&command));
        bind
    })
    .into()
}

/// The words of a command made by a builder.
pub(super) fn words(command: &TmuxCommand<'_>) -> Words {
    command.to_vec().into_iter().map(|word| OsString::from(Cow::into_owned(word))).collect()
}

/// A session by its whole name: without the sign a prefix would do.
pub(super) fn exact(session: &str) -> String {
    format!("={session}")
}

/// Commands as arguments of one tmux. A word that ends in `;` would end its command.
fn command_line(commands: &[Words]) -> Vec<OsString> {
    let mut line = Vec::new();
    for command in commands {
        if !line.is_empty() {
            line.push(";".into());
        }
        line.extend(command.iter().map(|word| {
            let mut bytes = word.as_bytes().to_vec();
            if bytes.last() == Some(&b';') {
                bytes.insert(bytes.len() - 1, b'\\');
            }
            OsString::from_vec(bytes)
        }));
    }
    line
}

/// `source-file` takes a pattern.
fn without_wildcards(path: &Path) -> OsString {
    let mut pattern = Vec::new();
    for byte in path.as_os_str().as_bytes() {
        if b"*?[\\".contains(byte) {
            pattern.push(b'\\');
        }
        pattern.push(*byte);
    }
    OsString::from_vec(pattern)
}

/// Names of sessions, windows and viewers: tmux runs a `#(command)` found in one.
pub(super) fn checked_name(name: &str) -> Result<(), TerminalError> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if name.is_empty() || name.starts_with('-') || !name.bytes().all(plain) {
        return Err(refused(format!("`{name}` is not a name of [a-z0-9-]")));
    }
    Ok(())
}

/// Ids that tmux gave: `@4`, `%7`. Anything else could be a name, and match another window.
pub(super) fn checked_id(id: &str, sign: char) -> Result<(), TerminalError> {
    match id.strip_prefix(sign) {
        Some(digits) if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) => Ok(()),
        _ => Err(refused(format!("`{id}` is not an id such as {sign}4"))),
    }
}

pub(super) fn checked_argv(argv: &[OsString]) -> Result<(), TerminalError> {
    if argv.len() < 2 {
        // tmux gives a single word to a shell.
        return Err(refused("a window's command has two words or more".to_owned()));
    }
    if argv.iter().any(|word| word.as_bytes().contains(&0)) {
        return Err(refused("a window's command holds a zero byte".to_owned()));
    }
    let length: usize = argv.iter().map(|word| word.len() + 1).sum();
    if length > ARGV {
        return Err(refused(format!("a window's command of {length} bytes is longer than {ARGV}")));
    }
    Ok(())
}

pub(super) fn parse_opened(text: &str) -> Option<Opened> {
    let mut fields = text.trim_end().lines().last()?.split(' ');
    let (window, pane, pid) = (fields.next()?, fields.next()?, fields.next()?);
    checked_id(window, '@').and_then(|()| checked_id(pane, '%')).ok()?;
    let handle = Handle::Window { pane: pane.to_owned() };
    Some(Opened { handle, pid: pid.parse().ok()? })
}

pub(super) fn refused(message: String) -> TerminalError {
    TerminalError::Refused { message }
}

/// The target of a command was not there.
pub(super) fn is_missing(said: &str) -> bool {
    // The second is what a server without any session says.
    said.contains("can't find") || said.contains("no current target")
}

/// There is no server, or it went while it was asked. A busy one refuses in other words.
fn no_server(said: &str) -> bool {
    let words =
        ["no server running", "(No such file or directory)", "(Connection refused)", "server exited", "lost server"];
    words.iter().any(|text| said.contains(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_server_is_not_taken_for_one_that_is_gone() {
        assert!(no_server("no server running on /tmp/tmux-0/decode"));
        assert!(no_server("error connecting to /tmp/tmux-0/decode (No such file or directory)"));
        assert!(no_server("server exited unexpectedly"));
        assert!(!no_server("error connecting to /tmp/tmux-0/decode (Resource temporarily unavailable)"));
        assert!(!no_server("error connecting to /tmp/tmux-0/decode (Permission denied)"));
        assert!(!no_server("can't find session: k3x9ab"));
    }

    #[test]
    fn a_word_that_ends_in_a_semicolon_does_not_end_its_command() {
        let commands = [vec!["a".into(), ";".into(), "x;".into(), "y\\;".into()], vec!["b;c".into()]];
        let wanted = ["a", "\\;", "x\\;", "y\\\\;", ";", "b;c"].map(OsString::from);
        assert_eq!(command_line(&commands), wanted);
    }

    #[test]
    fn only_what_tmux_needs_is_kept_of_an_environment() {
        let given =
            ["PATH", "LC_ALL", "LANG", "SHELL", "TMUX", "SSH_AUTH_SOCK", "API_KEY", "DECODE_DEPTH", "LD_PRELOAD"];
        let given = given.map(|name| (OsString::from(name), OsString::from("x")));
        let server = Server::new(SocketName::default(), given);
        let kept: Vec<_> = server.environment().map(|(name, value)| (name.to_str(), value.to_str())).collect();
        let x = Some("x");
        let shell = (Some("SHELL"), Some("/bin/sh"));
        assert_eq!(kept, [(Some("PATH"), x), (Some("LC_ALL"), x), (Some("LANG"), x), shell]);
    }

    #[test]
    fn the_path_of_a_configuration_is_no_pattern() {
        assert_eq!(without_wildcards(Path::new("/home/a[b]/*?/tmux.conf")), "/home/a\\[b]/\\*\\?/tmux.conf");
    }
}
