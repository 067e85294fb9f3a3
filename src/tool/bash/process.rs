//! One command of the tool as a process: started in its sandbox, listened to, ended with all it started.
//!
//! Deliberately absent: how long it may take, and what the model is told.

use std::convert::Infallible;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::Signal;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::super::Scope;
use super::super::output::Output;
use crate::command;
use crate::command::identity::Identity;
use crate::command::tree::Marked;
use crate::sandbox::proxy::{self, Host, Hosts};
use crate::sandbox::{self, Confined, Network, Rooms};
use crate::text;

/// What a background process prints after its command has ended is still gathered for so long.
pub(super) const DRAIN: Duration = Duration::from_millis(200);

/// Between TERM and KILL.
pub(super) const GRACE: Duration = Duration::from_secs(2);

/// The same for what was left in the background, which nobody waits for.
pub(super) const LEFT_GRACE: Duration = Duration::from_millis(500);

/// After KILL a process is gone as soon as the kernel gets to it.
const KILLED: Duration = Duration::from_secs(1);

/// The death of a process that is not our child announces itself to nobody; so we look.
const LOOK: Duration = Duration::from_millis(20);

/// In the environment of all that a call starts, so that what leaves its session is found too.
const MARK: &str = "DECODE_CALL";

/// Variables that make a shell run or print something of its own before the command.
const SHELL_VARIABLES: &[&str] = &["BASH_ENV", "ENV", "SHELLOPTS", "BASHOPTS", "PS4"];

/// A command that runs.
pub(super) struct Process {
    pub(super) child: Child,
    pub(super) pipe: Receiver,
    pub(super) tree: Tree,
    way_out: WayOut,
}

/// How the command reaches the network.
enum WayOut {
    /// As the machine does, or not at all: nothing needs to be said.
    Plain,
    /// The kernel has no network of its own for it, so that the hosts it named are closed too.
    Missing,
    Proxy {
        hosts: Hosts,
        serving: JoinHandle<()>,
    },
}

impl Drop for WayOut {
    fn drop(&mut self) {
        match self {
            Self::Plain | Self::Missing => {}
            Self::Proxy { serving, .. } => serving.abort(),
        }
    }
}

impl Process {
    /// Starts the shell in a session of its own; both of its outputs come through one pipe, in order. Only these hosts
    /// are let through where the network is closed.
    pub(super) fn start(line: &str, hosts: Vec<Host>, scope: &Scope) -> std::io::Result<Self> {
        let mark = uuid::Uuid::new_v4().to_string();
        let (reader, writer) = std::io::pipe()?;
        let mut command = shell(line, scope, &mark);
        command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer).kill_on_drop(true);
        command::stand_alone(&mut command);
        let named_any = !hosts.is_empty();
        let hosts = Hosts::new(hosts);
        let mut confined = Confined { rooms: Rooms::Shared, gateway: None };
        let mut network = Network::Open;
        if let Some(confinement) = &scope.sandbox {
            confined = sandbox::confine(&mut command, confinement).map_err(std::io::Error::other)?;
            network = confinement.network;
        }
        if confined.gateway.is_some() {
            command.envs(proxy::VARIABLES.map(|name| (name, proxy::ADDRESS)));
            command.envs(proxy::EXCEPTIONS.map(|name| (name, hosts.exceptions())));
        }
        let child = command.spawn()?;
        let leader = child.id().and_then(|id| Identity::of(id.cast_signed())).ok_or(std::io::ErrorKind::NotFound)?;
        let members = Marked::new(leader, format!("{MARK}={mark}"));
        let members = match confined.rooms {
            Rooms::Own => members.in_namespace(),
            Rooms::Shared => members,
        };
        // The tree comes first: from here on it is ended even if a later line fails.
        let tree = Tree { members, is_over: false };
        let way_out = match (&confined.gateway, network) {
            (Some(gateway), _) => {
                let serve = proxy::serve(gateway.listener()?, hosts.clone());
                WayOut::Proxy { hosts, serving: tokio::spawn(async move { match serve.await {} }) }
            }
            (None, Network::Closed) if named_any => WayOut::Missing,
            (None, Network::Closed | Network::Open) => WayOut::Plain,
        };
        Ok(Self { child, pipe: Receiver::from_owned_fd(OwnedFd::from(reader))?, tree, way_out })
    }

    /// Ends the tree while its last words are still taken: a process that cannot write cannot tidy up.
    pub(super) async fn end(&mut self, grace: Duration, output: &mut Output) {
        tokio::select! {
            () = self.tree.end(grace) => {}
            never = gather_on(&mut self.pipe, output) => match never {},
        }
    }

    /// What must be said of the network, in brackets.
    pub(super) fn network_note(&self) -> Option<String> {
        match &self.way_out {
            WayOut::Plain => None,
            WayOut::Missing => {
                Some("[this kernel cannot let single hosts through: the network stayed closed]".to_owned())
            }
            WayOut::Proxy { hosts, .. } => {
                let refused = hosts.refused();
                let quoted: Vec<String> = refused.iter().map(|host| format!("\"{host}\"")).collect();
                let list = quoted.join(", ");
                (!refused.is_empty())
                    .then(|| format!("[not allowed to reach {list}; to ask, call with \"hosts\": [{list}]]"))
            }
        }
    }
}

/// The shell with its line.
fn shell(line: &str, scope: &Scope, mark: &str) -> Command {
    let program = if Path::new("/bin/bash").exists() { "/bin/bash" } else { "/bin/sh" };
    let mut command = Command::new(program);
    // Without `--` a line that starts with a dash would be an option.
    command.args(["-c", "--", line]).current_dir(&scope.root).env_clear();
    let kept = scope.environment.iter().filter(|(name, _)| !SHELL_VARIABLES.contains(&name.as_str()));
    command.envs(kept.map(|(name, value)| (name, value))).env(MARK, mark);
    command
}

/// Takes what is printed until every writer has closed the pipe.
pub(super) async fn gather(pipe: &mut Receiver, output: &mut Output) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(count @ 1..) = pipe.read(&mut buffer).await {
        output.push(&buffer[..count]);
    }
}

/// The same, without an end of its own.
pub(super) async fn gather_on(pipe: &mut Receiver, output: &mut Output) -> Infallible {
    gather(pipe, output).await;
    std::future::pending().await
}

/// All that a call has started.
pub(super) struct Tree {
    members: Marked,
    pub(super) is_over: bool,
}

impl Tree {
    /// TERM to all of it, KILL to what is left after the grace.
    async fn end(&mut self, grace: Duration) {
        for (signal, patience) in [(Signal::SIGTERM, grace), (Signal::SIGKILL, KILLED)] {
            let until = Instant::now() + patience;
            self.members.signal(signal);
            while !self.members.living().is_empty() && Instant::now() < until {
                sleep(LOOK).await;
                if signal == Signal::SIGKILL {
                    // What was forked since the last look.
                    self.members.signal(signal);
                }
            }
        }
        self.is_over = true;
    }

    /// What people call the members that still run.
    pub(super) fn names(&self) -> Vec<String> {
        let name = |pid: &i32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            format!("{pid} {}", text::one_line(&line, 60)).trim_end().to_owned()
        };
        self.members.living().iter().map(name).collect()
    }
}

impl Drop for Tree {
    /// A call that is dropped half-way takes all it started along.
    fn drop(&mut self) {
        if !self.is_over {
            self.members.signal(Signal::SIGKILL);
        }
    }
}
