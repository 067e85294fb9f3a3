//! Confinement of the commands that tools run: where they may write, what they may read.
//!
//! This file says what is granted; `confine.rs` tells the kernel, in layers: namespaces with a root, processes and a
//! network of the command's own (`root.rs`, `init.rs`, `gateway.rs`), or masks where there are none (`sockets.rs`);
//! Landlock; a filter of system calls. `proxy.rs` is the only way to the network. Deliberately absent: whether a command
//! may run at all (`machine/gate.rs`).

#[cfg(target_os = "linux")]
mod confine;
#[cfg(target_os = "linux")]
mod filter;
#[cfg(target_os = "linux")]
mod gateway;
#[cfg(target_os = "linux")]
mod init;
#[cfg(target_os = "linux")]
mod landlock;
mod places;
pub(crate) mod proxy;
#[cfg(target_os = "linux")]
mod root;
#[cfg(target_os = "linux")]
mod sockets;
#[cfg(target_os = "linux")]
mod system;
#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests;

use std::path::{Path, PathBuf};

#[cfg(target_os = "linux")]
pub(crate) use confine::{confine, holds, support};
#[cfg(target_os = "linux")]
pub(crate) use gateway::Gateway;

/// What a command may touch. All that is not named is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Confinement {
    /// Read, written and executed.
    pub(crate) writable: Vec<PathBuf>,
    /// Read and executed.
    pub(crate) readable: Vec<PathBuf>,
    /// Never reached through a wider grant. A path named above that lies beneath one of these is still granted.
    pub(crate) hidden: Vec<PathBuf>,
    /// Where sockets lie that lead outside; what is there is out of reach.
    pub(crate) sockets: Vec<PathBuf>,
    /// Private temporary files: made if missing, writable, and `TMPDIR` of the command.
    pub(crate) temporary: PathBuf,
    pub(crate) network: Network,
}

/// What network a command has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Network {
    #[default]
    /// That of the machine.
    Open,
    /// One of its own, out of which only the proxy leads; where there can be none, no TCP.
    Closed,
}

/// What a command was given.
#[derive(Debug)]
pub(crate) struct Confined {
    pub(crate) rooms: Rooms,
    /// The only way out of a closed network; none where it stays closed.
    pub(crate) gateway: Option<Gateway>,
}

/// Whether a command may change the workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

impl Confinement {
    /// The usual grants: the system and the toolchains of `home` to read, the workspace to use, and neither the state
    /// root nor anything secret of `home`.
    pub(crate) fn new(workspace: &Path, access: Access, temporary: &Path, state: &Path, home: &Path) -> Self {
        let mut confinement = Self {
            writable: Vec::new(),
            readable: places::readable(home),
            hidden: places::hidden(home),
            sockets: places::SOCKETS.iter().map(PathBuf::from).collect(),
            temporary: temporary.to_owned(),
            network: Network::Open,
        };
        confinement.hidden.push(state.to_owned());
        match access {
            Access::Read => confinement.readable.push(workspace.to_owned()),
            Access::Write => confinement.writable.push(workspace.to_owned()),
        }
        confinement
    }

    /// Adds the places that the caller's own environment names, such as `XDG_RUNTIME_DIR` and tmux's.
    #[must_use]
    pub(crate) fn with_sockets<'a>(mut self, environment: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        for (name, value) in environment {
            match name {
                "XDG_RUNTIME_DIR" | "SSH_AUTH_SOCK" => self.sockets.push(value.into()),
                "TMUX_TMPDIR" => self.sockets.push(Path::new(value).join(places::tmux_folder())),
                "TMUX" => self.sockets.extend(Path::new(value).parent().map(Path::to_owned)),
                _ => {}
            }
        }
        self.sockets.push(Path::new("/tmp").join(places::tmux_folder()));
        self
    }

    /// Adds the places that the command's environment names: of toolchains, such as `CARGO_HOME`, and of the programs
    /// in `PATH`.
    #[must_use]
    pub(crate) fn with_toolchains<'a>(mut self, environment: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let named = environment.into_iter().flat_map(|(name, value)| match name {
            "PATH" => std::env::split_paths(value).map(|path| places::tree_of_programs(&path)).collect(),
            _ if places::TOOLCHAIN_VARIABLES.contains(&name) => vec![PathBuf::from(value)],
            _ => Vec::new(),
        });
        for path in named.filter(|path| path.is_absolute()) {
            self.hidden.extend(places::SECRETS_OF_TOOLCHAINS.iter().map(|name| path.join(name)));
            self.readable.push(path);
        }
        self
    }
}

/// Whether the kernel gives commands namespaces of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rooms {
    /// A root with what is granted, processes and a network of its own.
    Own,
    /// The machine's, behind Landlock.
    Shared,
}

/// What the kernel can hold a command to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Support {
    /// The version of Landlock; 0 without it.
    pub(crate) abi: u32,
    pub(crate) rooms: Rooms,
    /// What is held, in words.
    pub(crate) can: Vec<&'static str>,
    /// What is not, in words.
    pub(crate) cannot: Vec<&'static str>,
}

impl Support {
    pub(crate) const fn is_there(&self) -> bool {
        self.abi > 0
    }

    /// What follows from a version of Landlock, and from namespaces.
    fn of(abi: u32, rooms: Rooms) -> Self {
        let (mut can, mut cannot) = (Vec::new(), Vec::new());
        if abi == 0 {
            cannot.push("this kernel has no Landlock: commands are not confined");
            return Self { abi, rooms, can, cannot };
        }
        for (since, held, open) in FEATURES {
            if abi >= *since { can.push(*held) } else { cannot.push(*open) }
        }
        for (held, open) in OF_ROOMS {
            match rooms {
                Rooms::Own => can.push(*held),
                Rooms::Shared => cannot.push(*open),
            }
        }
        Self { abi, rooms, can, cannot }
    }

    /// The layers in a few words, for one line.
    pub(crate) const fn words(&self) -> &'static str {
        match (self.is_there(), self.rooms) {
            (false, _) => "off",
            (true, Rooms::Own) => "namespaces and landlock",
            (true, Rooms::Shared) => "landlock",
        }
    }
}

/// Since which version what is held, and what is open before.
const FEATURES: &[(u32, &str, &str)] = &[
    (1, "files outside the granted places are neither read, written nor executed", "files are not confined"),
    (1, "memory and environment of processes outside are unreadable", "memory and environment of others are readable"),
    (2, "files move between granted folders", "files cannot be moved or linked between folders, not even granted ones"),
    (3, "files outside are not truncated", "files outside can be truncated (emptied) by a path"),
    (5, "devices take no commands (ioctl) but those granted", "devices that can be opened take any command (ioctl)"),
    (6, "abstract Unix sockets outside are out of reach", "abstract Unix sockets outside can be connected to"),
    (6, "processes outside get no signals", "processes of the same user outside can be signalled"),
    (
        1,
        "path-named Unix sockets (tmux, docker, ssh-agent, D-Bus) are out of reach",
        "Unix sockets can be connected to",
    ),
];

/// What is held by namespaces, and what is open without them.
const OF_ROOMS: &[(&str, &str)] = &[
    (
        "the network is reached through a proxy that knows the allowed hosts; no UDP",
        "UDP is not refused; no host can be allowed",
    ),
    (
        "files outside are not there: no mode, owner, time, name or size",
        "mode, owner and times of files outside can be changed",
    ),
    ("processes outside are not there", "names of processes outside can be listed"),
    (
        "Unix sockets made later outside the granted folders are not there",
        "Unix sockets made after a command started can be connected to",
    ),
    ("terminals of the user are not there", "terminals of the same user can be opened"),
    (
        "what a command leaves behind ends with it, however it hides",
        "a process that drops its mark outlives its command",
    ),
];

#[derive(Debug, thiserror::Error)]
pub(crate) enum SandboxError {
    #[error("this kernel has no Landlock; commands cannot be confined")]
    Unsupported,
    #[error("failed to make the temporary directory `{path}`")]
    Temporary { path: PathBuf, source: std::io::Error },
    #[error("failed to prepare the sandbox of a command")]
    Prepare { source: std::io::Error },
    #[cfg(target_os = "linux")]
    #[error("failed to confine a command")]
    Ruleset { source: ::landlock::RulesetError },
}

/// Elsewhere than on Linux nothing is held, and this is said.
#[cfg(not(target_os = "linux"))]
pub(crate) fn support() -> Support {
    Support::of(0, Rooms::Shared)
}

#[cfg(not(target_os = "linux"))]
pub(crate) const fn holds() -> bool {
    false
}

/// There is no way out of a network that is not there.
#[cfg(not(target_os = "linux"))]
#[derive(Debug)]
pub(crate) enum Gateway {}

#[cfg(not(target_os = "linux"))]
impl Gateway {
    pub(crate) fn listener(&self) -> std::io::Result<tokio::net::TcpListener> {
        match *self {}
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn confine(_: &mut tokio::process::Command, _: &Confinement) -> Result<Confined, SandboxError> {
    Err(SandboxError::Unsupported)
}

#[cfg(test)]
mod words {
    use super::*;

    #[test]
    fn support_says_what_an_old_kernel_leaves_open() {
        let (none, old) = (Support::of(0, Rooms::Shared), Support::of(2, Rooms::Shared));
        let new = Support::of(7, Rooms::Own);
        assert!(!none.is_there() && none.can.is_empty());
        assert_eq!(none.cannot, ["this kernel has no Landlock: commands are not confined"]);
        assert!(old.cannot.iter().any(|words| words.contains("truncated")));
        assert!(old.cannot.iter().any(|words| words.contains("UDP")));
        assert!(new.can.iter().any(|words| words.contains("path-named Unix sockets")));
        assert_eq!(new.cannot, [""; 0]);
    }

    #[test]
    fn a_toolchain_variable_grants_its_place_but_not_its_credentials() {
        let at = |path: &str| PathBuf::from(path);
        let plain = Confinement::new(&at("/w"), Access::Write, &at("/t"), &at("/s"), &at("/h"));
        let with = plain.clone().with_toolchains([("CARGO_HOME", "/c"), ("HOME", "/h"), ("GOPATH", "relative")]);
        let added: Vec<_> = with.readable.iter().filter(|path| !plain.readable.contains(path)).collect();
        assert_eq!(added, [&at("/c")]);
        assert!(with.hidden.contains(&at("/c/credentials.toml")));
    }
}
