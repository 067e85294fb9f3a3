//! Landlock: the kernel's allow-list of places, put on a command between fork and exec.
//!
//! The rules are made before the fork; the child of the fork makes a few system calls and no allocation. Deliberately
//! absent: what is granted; see `mod.rs`.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use ::landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, Scope,
};
use nix::libc;

use super::{Confinement, SandboxError, places, system};

/// The newest version whose rights were looked at one by one. Older kernels get what they know.
const NEWEST: ABI = ABI::V9;

/// The version of Landlock; 0 without it. Asks the kernel; nothing is confined by it.
pub(super) fn version() -> u32 {
    const ASK_VERSION: libc::c_uint = 1;
    #[expect(
        unsafe_code,
        reason = "the crate asks only when it confines; the call takes no pointer and changes nothing"
    )]
    // SAFETY: a null attribute of size 0 with this flag is the documented way to ask for the version.
    let version = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<libc::c_void>(), 0_usize, ASK_VERSION)
    };
    u32::try_from(version).unwrap_or(0)
}

/// The grants for one command, made before the fork.
#[derive(Debug)]
pub(super) struct Rules {
    ruleset: Option<RulesetCreated>,
    /// The same ruleset, to add to it without an allocation.
    added_to: Option<OwnedFd>,
    /// All rights that this kernel knows and the ruleset handles.
    all: u64,
}

/// A place that is made in the forked child, and what is granted there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Made {
    /// To see what is there, not to open it.
    Listed,
    Readable,
    Terminals,
    Writable,
}

/// As the kernel's `struct landlock_path_beneath_attr`.
#[repr(C, packed)]
struct Beneath {
    allowed: u64,
    place: libc::c_int,
}

impl Rules {
    pub(super) fn new(confinement: &Confinement, tcp: Tcp) -> Result<Self, SandboxError> {
        let ruleset = rules(confinement, tcp)?;
        let copy = ruleset.try_clone().map_err(|source| SandboxError::Prepare { source })?;
        let all = match version() {
            0 => 0,
            1 => 0x1fff,
            2 => 0x3fff,
            3 | 4 => 0x7fff,
            5.. => 0xffff,
        };
        Ok(Self { ruleset: Some(ruleset), added_to: Option::<OwnedFd>::from(copy), all })
    }

    /// In the forked child: grants a place that was not there before the fork.
    pub(super) fn add(&self, place: &CStr, made: Made) -> std::io::Result<()> {
        const EXECUTE: u64 = 1;
        const WRITE_FILE: u64 = 1 << 1;
        const READ_FILE: u64 = 1 << 2;
        const READ_FOLDER: u64 = 1 << 3;
        const DEVICE: u64 = 1 << 15;
        const PATH_BENEATH: libc::c_int = 1;
        let Some(ruleset) = &self.added_to else { return Err(std::io::ErrorKind::Unsupported.into()) };
        let wanted = match made {
            Made::Listed => READ_FOLDER,
            Made::Readable => EXECUTE | READ_FILE | READ_FOLDER,
            Made::Terminals => WRITE_FILE | READ_FILE | READ_FOLDER | DEVICE,
            Made::Writable => u64::MAX,
        };
        let place = system::open_folder(place)?;
        let beneath = Beneath { allowed: wanted & self.all, place: place.0 };
        #[expect(unsafe_code, reason = "the crate's own call may allocate")]
        // SAFETY: the attributes outlive the call and have the kernel's layout.
        let result = unsafe {
            libc::syscall(libc::SYS_landlock_add_rule, ruleset.as_raw_fd(), PATH_BENEATH, &raw const beneath, 0)
        };
        system::checked(result as libc::c_int)
    }

    /// In the forked child: from here on the grants are all there is. Each fork has its own copy, so that a command may
    /// be started again.
    pub(super) fn restrict(&mut self) -> std::io::Result<()> {
        let ruleset = self.ruleset.take().ok_or(std::io::ErrorKind::PermissionDenied)?;
        drop_capabilities();
        match ruleset.restrict_self() {
            Ok(_) => Ok(()),
            Err(_) => Err(std::io::Error::from_raw_os_error(libc::EPERM)),
        }
    }
}

/// Whether Landlock is to refuse TCP, because no network of the command's own does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tcp {
    Open,
    Refused,
}

/// Powers with which root, as in a container, reaches round Landlock: on Linux 6.18 a confined root read the environment
/// of other processes until `CAP_PERFMON` was gone. In the order of the kernel's numbers.
const CAPABILITIES: &[libc::c_ulong] = &[
    2,  // CAP_DAC_READ_SEARCH: opens files by handle, without a path
    16, // CAP_SYS_MODULE
    17, // CAP_SYS_RAWIO
    19, // CAP_SYS_PTRACE
    20, // CAP_SYS_PACCT
    21, // CAP_SYS_ADMIN
    22, // CAP_SYS_BOOT
    25, // CAP_SYS_TIME
    27, // CAP_MKNOD
    32, // CAP_MAC_OVERRIDE
    33, // CAP_MAC_ADMIN
    34, // CAP_SYSLOG
    38, // CAP_PERFMON
    39, // CAP_BPF
];

/// Takes these powers from what the command can have. For a user without them each call fails, as it should.
fn drop_capabilities() {
    for capability in CAPABILITIES {
        #[expect(unsafe_code, reason = "no crate at hand wraps this call")]
        // SAFETY: the call takes numbers only.
        unsafe {
            libc::prctl(libc::PR_CAPBSET_DROP, *capability, 0, 0, 0);
        }
    }
}

fn rules(confinement: &Confinement, tcp: Tcp) -> Result<RulesetCreated, SandboxError> {
    let wrong = |source| SandboxError::Ruleset { source };
    let read = AccessFs::from_read(NEWEST);
    let all = AccessFs::from_all(NEWEST);
    let mut ruleset = Ruleset::default().handle_access(all).map_err(wrong)?;
    ruleset = ruleset.scope(Scope::AbstractUnixSocket | Scope::Signal).map_err(wrong)?;
    if tcp == Tcp::Refused {
        ruleset = ruleset.handle_access(AccessNet::BindTcp | AccessNet::ConnectTcp).map_err(wrong)?;
    }
    let mut ruleset = ruleset.create().map_err(wrong)?;
    let hidden: Vec<PathBuf> = confinement.hidden.iter().filter_map(|path| path.canonicalize().ok()).collect();
    for path in &confinement.readable {
        ruleset = grant(ruleset, path, &hidden, read)?;
    }
    for path in confinement.writable.iter().chain([&confinement.temporary]) {
        ruleset = grant(ruleset, path, &hidden, all)?;
    }
    let device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
    for path in places::DEVICES {
        ruleset = grant(ruleset, Path::new(path), &[], device | AccessFs::ReadDir)?;
    }
    // To list, not to open: memory and disks of the machine lie there too.
    grant(ruleset, Path::new("/dev"), &[], AccessFs::ReadDir.into())
}

/// Grants a place. One that holds hidden places is granted entry by entry, because a grant reaches all below it.
fn grant(
    mut ruleset: RulesetCreated,
    path: &Path,
    hidden: &[PathBuf],
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, SandboxError> {
    // What is not there needs no grant; the tables name more than any one machine has.
    let Ok(path) = path.canonicalize() else { return Ok(ruleset) };
    for granted in without(&path, hidden) {
        let Ok(place) = PathFd::new(&granted) else { continue };
        let is_folder = granted.metadata().is_ok_and(|data| data.is_dir());
        let access = if is_folder { access } else { access & AccessFs::from_file(NEWEST) };
        if access.is_empty() {
            continue;
        }
        ruleset =
            ruleset.add_rule(PathBeneath::new(place, access)).map_err(|source| SandboxError::Ruleset { source })?;
    }
    Ok(ruleset)
}

/// The largest parts of a place that hold nothing hidden. Links inside are not followed: where they lead is granted by
/// its own name or not at all.
fn without(path: &Path, hidden: &[PathBuf]) -> Vec<PathBuf> {
    if hidden.iter().any(|secret| secret == path) {
        return Vec::new();
    }
    if !hidden.iter().any(|secret| secret.starts_with(path)) {
        return vec![path.to_owned()];
    }
    let Ok(entries) = std::fs::read_dir(path) else { return Vec::new() };
    let parts = entries.filter_map(Result::ok).filter(|entry| entry.file_type().is_ok_and(|kind| !kind.is_symlink()));
    parts.flat_map(|entry| without(&entry.path(), hidden)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_granted_without_what_is_hidden_in_it() {
        let directory = tempfile::tempdir().unwrap();
        let home = directory.path().canonicalize().unwrap();
        for path in [".cargo/registry", ".config", ".ssh"] {
            std::fs::create_dir_all(home.join(path)).unwrap();
        }
        for path in [".cargo/credentials.toml", ".gitconfig", ".netrc", "notes.txt"] {
            std::fs::write(home.join(path), "").unwrap();
        }
        std::os::unix::fs::symlink(home.join(".ssh"), home.join(".cargo/link")).unwrap();
        let hidden = [home.join(".cargo/credentials.toml"), home.join(".ssh")];
        assert_eq!(without(&home.join(".cargo"), &hidden), [home.join(".cargo/registry")]);
        assert_eq!(without(&home.join(".ssh"), &hidden), Vec::<PathBuf>::new());
        let mut all = without(&home, &hidden);
        all.sort();
        let want = [".cargo/registry", ".config", ".gitconfig", ".netrc", "notes.txt"].map(|name| home.join(name));
        assert_eq!(all, want);
    }
}
