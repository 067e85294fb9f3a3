//! Unix sockets that have a path: out of reach of a command, because Landlock lets it connect to any of them.
//!
//! One `tmux run-shell` to the server of our own windows would run outside of every bound. Where the kernel lets us, a
//! mount namespace of the command's own hides the places sockets lie in and each socket that is there now; elsewhere
//! it gets no Unix socket at all but pairs. Deliberately absent: which places are named, see `places.rs`.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::libc;

use super::namespace::{self, Cover, Maps, Network, With, checked};

/// How sockets are kept out of reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// Hidden in a mount namespace.
    Hidden,
    /// No socket can be made that could connect to one.
    Refused,
}

pub(super) fn way() -> Way {
    if namespace::abilities().mounts { Way::Hidden } else { Way::Refused }
}

/// Folders that all users share: a command has its own in their place.
const SHARED: [&str; 3] = ["/tmp", "/var/tmp", "/dev/shm"];

/// All that a forked child needs, made before the fork.
pub(super) struct Masks {
    way: Way,
    maps: Maps,
    network: Network,
    covers: Vec<Cover>,
    sockets: Vec<CString>,
    writable: Vec<CString>,
}

/// What a command is shown.
pub(super) struct Shown<'a> {
    /// Where sockets lie.
    pub(super) sockets: &'a [PathBuf],
    pub(super) writable: &'a [PathBuf],
    pub(super) readable: &'a [PathBuf],
    /// What stands in the place of the folders that all users share.
    pub(super) temporary: Option<&'a Path>,
    pub(super) network: Network,
}

impl Masks {
    /// Covers these places, and every socket of the machine, but for what is granted.
    pub(super) fn new(shown: &Shown<'_>) -> Self {
        let canonical =
            |paths: &[PathBuf]| paths.iter().filter_map(|path| path.canonicalize().ok()).collect::<Vec<_>>();
        let mut writable = canonical(shown.writable);
        let mut kept = [writable.clone(), canonical(shown.readable)].concat();
        let temporary = shown.temporary.and_then(|path| path.canonicalize().ok());
        if let Some(temporary) = &temporary {
            writable.push(temporary.clone());
            kept.push(temporary.clone());
        }
        // Outer before inner: what is mounted later covers what was before.
        kept.sort();
        kept.dedup();
        let found = canonical(shown.sockets);
        let mut covers = Vec::new();
        if let Some(temporary) = &temporary {
            for place in SHARED.iter().filter_map(|path| Path::new(path).canonicalize().ok()) {
                // What lies beneath a granted folder is granted by Landlock, so that what stays beneath must not lie in
                // the private one.
                if kept.iter().any(|kept| kept.starts_with(&place)) {
                    covers.extend(cover(&place, With::Nothing, &kept));
                } else {
                    covers.extend(text(temporary).and_then(|with| cover(&place, With::Folder(with), &kept)));
                    writable.push(place);
                }
            }
        }
        let folders: Vec<&PathBuf> = found.iter().filter(|path| path.is_dir()).collect();
        covers.extend(folders.iter().filter_map(|place| cover(place, With::Nothing, &kept)));
        let listed = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
        let sockets = named(&listed).map(PathBuf::from).chain(found.iter().filter(|path| !path.is_dir()).cloned());
        let covered = |path: &Path| {
            let canonical = path.canonicalize().unwrap_or_else(|_| path.to_owned());
            kept.iter().any(|kept| canonical.starts_with(kept))
                || folders.iter().any(|folder| canonical.starts_with(folder))
        };
        let sockets = sockets.filter(|path| !covered(path)).filter_map(|path| text(&path)).collect();
        let writable = writable.iter().filter_map(|path| text(path)).collect();
        Self { way: way(), maps: Maps::of_self(), network: shown.network, covers, sockets, writable }
    }

    /// In the forked child, before Landlock, which allows no mounts any more.
    pub(super) fn hide(&self) -> std::io::Result<()> {
        if self.way == Way::Refused {
            return Ok(());
        }
        namespace::enter(&self.maps, self.network)?;
        // The place we stand in is one of the old view; it has to be entered again in the new one.
        let here = namespace::Here::now()?;
        // Sockets first: one that lies beneath a cover has no path any more afterwards.
        for socket in &self.sockets {
            namespace::hide_file(socket)?;
        }
        for cover in &self.covers {
            namespace::cover(cover)?;
        }
        namespace::read_only_but(&self.writable)?;
        here.enter()
    }

    /// In the forked child, after Landlock, which promised that no program gains a power.
    pub(super) fn refuse(&self) -> std::io::Result<()> {
        if self.way == Way::Hidden { Ok(()) } else { refuse_sockets() }
    }
}

fn text(path: &Path) -> Option<CString> {
    CString::new(path.as_os_str().as_bytes()).ok()
}

/// A cover of a place that leaves what is kept beneath it; none where the place itself, or all around it, is kept.
fn cover(place: &Path, with: With, kept: &[PathBuf]) -> Option<Cover> {
    if kept.iter().any(|kept| place.starts_with(kept)) {
        return None;
    }
    let beneath = kept.iter().filter(|kept| kept.starts_with(place) && kept.is_dir());
    let kept = beneath.filter_map(|kept| {
        let mut folders: Vec<CString> =
            kept.ancestors().take_while(|folder| *folder != place).filter_map(text).collect();
        folders.reverse();
        Some((text(kept)?, folders))
    });
    Some(Cover { place: text(place)?, with, kept: kept.collect() })
}

/// Paths of the kernel's list of Unix sockets: the eighth word and what follows it.
fn named(listed: &str) -> impl Iterator<Item = &str> {
    listed.lines().skip(1).filter_map(|line| {
        let path = line.find(" /").map(|at| &line[at + 1..])?;
        Some(path.trim_end())
    })
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
    use std::os::unix::process::CommandExt;

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
                let shown =
                    Shown { sockets: &[], writable: &[], readable: &[], temporary: None, network: Network::Shared };
                let masks = Masks { way, ..Masks::new(&shown) };
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
