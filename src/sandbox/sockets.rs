//! Unix sockets that have a path: out of reach of a command, because Landlock lets it connect to any of them.
//!
//! One `tmux run-shell` to the server of our own windows would run outside of every bound. Where the kernel lets us, a
//! mount namespace of the command's own hides the places sockets lie in and each socket that is there now; elsewhere
//! it gets no Unix socket at all but pairs. Deliberately absent: which places are named, see `places.rs`.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::ptr::null;
use std::sync::OnceLock;

use nix::libc;

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

    /// In the forked child, before Landlock, which allows no mounts any more.
    pub(super) fn hide(&self) -> std::io::Result<()> {
        if self.way == Way::Refused {
            return Ok(());
        }
        enter(&self.maps)?;
        for folder in &self.folders {
            gone_is_hidden(mount(Some(c"tmpfs"), folder, Some(c"tmpfs"), libc::MS_RDONLY | libc::MS_NOSUID))?;
        }
        for socket in &self.sockets {
            gone_is_hidden(mount(Some(c"/dev/null"), socket, None, libc::MS_BIND))?;
        }
        Ok(())
    }

    /// In the forked child, after Landlock, which promised that no program gains a power.
    pub(super) fn refuse(&self) -> std::io::Result<()> {
        if self.way == Way::Hidden { Ok(()) } else { refuse_sockets() }
    }
}

/// Paths of the kernel's list of Unix sockets: the eighth word and what follows it.
fn named(listed: &str) -> impl Iterator<Item = &str> {
    listed.lines().skip(1).filter_map(|line| {
        let path = line.find(" /").map(|at| &line[at + 1..])?;
        Some(path.trim_end())
    })
}

/// What an own user namespace is told of its one user and group.
struct Maps {
    user: Vec<u8>,
    group: Vec<u8>,
}

impl Maps {
    fn of_self() -> Self {
        let (user, group) = (nix::unistd::geteuid(), nix::unistd::getegid());
        Self { user: format!("{user} {user} 1").into_bytes(), group: format!("{group} {group} 1").into_bytes() }
    }
}

/// Enters a mount namespace of one's own; for a user without powers, in a user namespace of one's own.
fn enter(maps: &Maps) -> std::io::Result<()> {
    if unshare(libc::CLONE_NEWNS).is_err() {
        // A process that must not be read has its files in /proc owned by root.
        #[expect(unsafe_code, reason = "no crate at hand wraps this call")]
        // SAFETY: the call takes numbers only.
        unsafe {
            libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0);
        }
        unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS)?;
        write(c"/proc/self/setgroups", b"deny")?;
        write(c"/proc/self/uid_map", &maps.user)?;
        write(c"/proc/self/gid_map", &maps.group)?;
    }
    mount(None, c"/", None, libc::MS_REC | libc::MS_SLAVE)
}

fn unshare(flags: libc::c_int) -> std::io::Result<()> {
    #[expect(unsafe_code, reason = "between fork and exec nothing else may be called")]
    // SAFETY: the call takes a number only.
    checked(unsafe { libc::unshare(flags) })
}

fn mount(
    what: Option<&std::ffi::CStr>,
    place: &std::ffi::CStr,
    kind: Option<&std::ffi::CStr>,
    flags: libc::c_ulong,
) -> std::io::Result<()> {
    let pointer = |text: Option<&std::ffi::CStr>| text.map_or(null(), std::ffi::CStr::as_ptr);
    #[expect(unsafe_code, reason = "between fork and exec nothing else may be called")]
    // SAFETY: all pointers are null or end in a zero byte, and outlive the call.
    checked(unsafe { libc::mount(pointer(what), place.as_ptr(), pointer(kind), flags, null()) })
}

fn write(path: &std::ffi::CStr, text: &[u8]) -> std::io::Result<()> {
    #[expect(unsafe_code, reason = "between fork and exec nothing else may be called")]
    // SAFETY: the path ends in a zero byte, the buffer is as long as is said, the descriptor is ours.
    unsafe {
        let file = libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        checked(file)?;
        let written = libc::write(file, text.as_ptr().cast(), text.len());
        libc::close(file);
        if usize::try_from(written) == Ok(text.len()) { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    }
}

fn checked(result: libc::c_int) -> std::io::Result<()> {
    if result < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}

/// What is not there any more, or where the user may not look, needs no mask.
fn gone_is_hidden(result: std::io::Result<()>) -> std::io::Result<()> {
    match result {
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR | libc::EACCES)) => Ok(()),
        other => other,
    }
}

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xC000_00B7;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const ARCHITECTURE: u32 = 0;

/// No `socket(AF_UNIX)`, and no ring that makes sockets past this filter. Calls of another architecture are refused.
fn refuse_sockets() -> std::io::Result<()> {
    const LOAD: u16 = 0x20;
    const IS: u16 = 0x15;
    const AT_LEAST: u16 = 0x35;
    const RETURN: u16 = 0x06;
    const ALLOW: u32 = 0x7fff_0000;
    const FAIL: u32 = 0x0005_0000;
    /// Where x86 programs with short pointers have their calls; no other architecture counts so far.
    const X32: u32 = 0x4000_0000;
    if ARCHITECTURE == 0 {
        return Ok(());
    }
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let program = [
        step(LOAD, 0, 0, 4),
        step(IS, 0, 7, ARCHITECTURE),
        step(LOAD, 0, 0, 0),
        step(AT_LEAST, 5, 0, X32),
        step(IS, 4, 0, libc::SYS_io_uring_setup as u32),
        step(IS, 0, 2, libc::SYS_socket as u32),
        step(LOAD, 0, 0, 16),
        step(IS, 1, 0, libc::AF_UNIX as u32),
        step(RETURN, 0, 0, ALLOW),
        step(RETURN, 0, 0, FAIL | libc::EPERM as u32),
    ];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
    #[expect(unsafe_code, reason = "between fork and exec nothing else may be called")]
    // SAFETY: the program outlives the call, which copies it.
    checked(unsafe { libc::prctl(libc::PR_SET_SECCOMP, 2, &raw const filter, 0, 0) })
}

#[cfg(test)]
mod tests {
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
                #[expect(unsafe_code, reason = "the same as in use")]
                // SAFETY: system calls only.
                unsafe {
                    command.pre_exec(move || {
                        masks.hide()?;
                        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
                        masks.refuse()
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
