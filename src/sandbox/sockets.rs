//! Unix sockets that have a path: out of reach of a command, because Landlock lets it connect to any of them.
//!
//! One `tmux run-shell` to the server of our own windows would run outside of every bound. Where the kernel lets us, a
//! mount namespace of the command's own hides the places sockets lie in and each socket that is there now; elsewhere
//! it gets no Unix socket at all but pairs. Deliberately absent: which places are named, see `places.rs`.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use nix::libc;

use super::filter::UnixSockets;
use super::system::{self, mount, unshare, write};

/// How sockets are kept out of reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// Hidden in a mount namespace.
    Hidden,
    /// No socket can be made that could connect to one.
    Refused,
}

/// Tried once, on a process of its own: half a namespace cannot be left again.
pub(super) fn way() -> Way {
    static WAY: OnceLock<Way> = OnceLock::new();
    *WAY.get_or_init(|| {
        let mut trial = std::process::Command::new("/proc/self/exe");
        trial.arg("--version").stdin(std::process::Stdio::null());
        trial.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        let maps = Maps::of_self();
        #[expect(unsafe_code, reason = "only a forked child can enter a namespace alone")]
        // SAFETY: the closure makes system calls only; it neither allocates nor takes a lock.
        unsafe {
            // An error before the program is begun is told by `status`, so that nothing of it ever runs.
            trial.pre_exec(move || enter(&maps).and(Err(std::io::Error::from_raw_os_error(libc::ECANCELED))));
        }
        match trial.status() {
            Err(error) if error.raw_os_error() == Some(libc::ECANCELED) => Way::Hidden,
            Ok(_) | Err(_) => Way::Refused,
        }
    })
}

/// All that a forked child needs, made before the fork.
pub(super) struct Masks {
    way: Way,
    maps: Maps,
    folders: Vec<CString>,
    sockets: Vec<CString>,
}

impl Masks {
    /// Hides these places, and every socket of the machine, but for what lies beneath `kept`.
    pub(super) fn new(places: &[PathBuf], kept: &[PathBuf]) -> Self {
        let kept: Vec<PathBuf> = kept.iter().filter_map(|path| path.canonicalize().ok()).collect();
        let text = |path: &Path| CString::new(path.as_os_str().as_bytes()).ok();
        let found: Vec<PathBuf> = places.iter().filter_map(|path| path.canonicalize().ok()).collect();
        let hides_kept = |path: &Path| kept.iter().any(|kept| kept.starts_with(path));
        let folders: Vec<&PathBuf> = found.iter().filter(|path| path.is_dir() && !hides_kept(path)).collect();
        let listed = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
        let sockets = named(&listed).map(PathBuf::from).chain(found.iter().filter(|path| !path.is_dir()).cloned());
        let covered = |path: &Path| {
            let canonical = path.canonicalize().unwrap_or_else(|_| path.to_owned());
            kept.iter().any(|kept| canonical.starts_with(kept))
                || folders.iter().any(|folder| canonical.starts_with(folder))
        };
        let sockets = sockets.filter(|path| !covered(path)).filter_map(|path| text(&path)).collect();
        let folders = folders.iter().filter_map(|path| text(path)).collect();
        Self { way: way(), maps: Maps::of_self(), folders, sockets }
    }

    /// What is left to a filter of calls.
    pub(super) fn unix_sockets(&self) -> UnixSockets {
        match self.way {
            Way::Hidden => UnixSockets::Allowed,
            Way::Refused => UnixSockets::Refused,
        }
    }

    /// In the forked child, before Landlock, which allows no mounts any more.
    pub(super) fn hide(&self) -> std::io::Result<()> {
        if self.way == Way::Refused {
            return Ok(());
        }
        enter(&self.maps)?;
        for folder in &self.folders {
            gone_is_hidden(mount(Some(c"tmpfs"), folder, Some(c"tmpfs"), libc::MS_RDONLY | libc::MS_NOSUID, None))?;
        }
        for socket in &self.sockets {
            gone_is_hidden(mount(Some(c"/dev/null"), socket, None, libc::MS_BIND, None))?;
        }
        Ok(())
    }
}

/// Paths of the kernel's list of Unix sockets: the eighth word and what follows it.
pub(super) fn named(listed: &str) -> impl Iterator<Item = &str> {
    listed.lines().skip(1).filter_map(|line| {
        let path = line.find(" /").map(|at| &line[at + 1..])?;
        Some(path.trim_end())
    })
}

/// What an own user namespace is told of its one user and group.
#[derive(Debug)]
pub(super) struct Maps {
    user: Vec<u8>,
    group: Vec<u8>,
}

impl Maps {
    pub(super) fn of_self() -> Self {
        let (user, group) = (nix::unistd::geteuid(), nix::unistd::getegid());
        Self { user: format!("{user} {user} 1").into_bytes(), group: format!("{group} {group} 1").into_bytes() }
    }
}

/// Enters a mount namespace of one's own; for a user without powers, in a user namespace of one's own.
fn enter(maps: &Maps) -> std::io::Result<()> {
    leave(libc::CLONE_NEWNS, maps)?;
    mount(None, c"/", None, libc::MS_REC | libc::MS_SLAVE, None)
}

/// Leaves these namespaces for new ones; a user without powers gets them in a user namespace of one's own.
pub(super) fn leave(namespaces: libc::c_int, maps: &Maps) -> std::io::Result<()> {
    if unshare(namespaces).is_ok() {
        return Ok(());
    }
    // A process that must not be read has its files in /proc owned by root.
    system::set_dumpable(true);
    unshare(libc::CLONE_NEWUSER | namespaces)?;
    write(c"/proc/self/setgroups", b"deny")?;
    write(c"/proc/self/uid_map", &maps.user)?;
    write(c"/proc/self/gid_map", &maps.group)
}

/// What is not there any more, or where the user may not look, needs no mask.
fn gone_is_hidden(result: std::io::Result<()>) -> std::io::Result<()> {
    match result {
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR | libc::EACCES)) => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::super::filter::Filter;
    use super::*;

    #[test]
    fn the_kernels_list_names_paths_even_with_spaces_and_no_abstract_ones() {
        let listed = "Num       RefCount Protocol Flags    Type St Inode Path\n\
                      0000000000000000: 00000002 00000000 00010000 0001 01 19523 /run/a b/sock\n\
                      0000000000000000: 00000003 00000000 00000000 0001 03 20001\n\
                      0000000000000000: 00000002 00000000 00010000 0001 01 19524 @/tmp/.X11-unix/X0\n";
        assert_eq!(named(listed).collect::<Vec<_>>(), ["/run/a b/sock"]);
    }

    /// Both ways on a shell that makes a socket of its own and one that connects to a socket of ours.
    #[test]
    fn no_socket_outside_can_be_connected_to_whichever_way() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("outside.sock");
        let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let connects = |way: Option<Way>| {
            let mut command = std::process::Command::new("python3");
            let script =
                "import socket,sys; a,b=socket.socketpair(); s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])";
            command.args(["-c", script]).arg(&path).stderr(std::process::Stdio::null());
            if let Some(way) = way {
                let masks = Masks { way, ..Masks::new(&[], &[]) };
                let filter = Filter::new(masks.unix_sockets());
                #[expect(unsafe_code, reason = "the same as in use")]
                // SAFETY: system calls only.
                unsafe {
                    command.pre_exec(move || {
                        masks.hide()?;
                        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
                        filter.apply()
                    });
                }
            }
            command.status().unwrap().success()
        };
        assert!(connects(None), "without masks it does");
        assert!(!connects(Some(Way::Refused)));
        if way() == Way::Hidden {
            assert!(!connects(Some(Way::Hidden)));
        }
    }
}
