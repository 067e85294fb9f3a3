//! Landlock: the kernel's allow-list of places, put on a command between fork and exec.
//!
//! The rules are made before the fork; the child of the fork makes two system calls and no allocation. Deliberately
//! absent: what is granted; see `mod.rs`.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use ::landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, Scope,
};
use nix::libc;

use super::{Confinement, Network, SandboxError, Support, places};

/// The newest version whose rights were looked at one by one. Older kernels get what they know.
const NEWEST: ABI = ABI::V9;

/// Asks the kernel; nothing is confined by it.
pub(crate) fn support() -> Support {
    const ASK_VERSION: libc::c_uint = 1;
    #[expect(
        unsafe_code,
        reason = "the crate asks only when it confines; the call takes no pointer and changes nothing"
    )]
    // SAFETY: a null attribute of size 0 with this flag is the documented way to ask for the version.
    let version = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<libc::c_void>(), 0_usize, ASK_VERSION)
    };
    Support::of(u32::try_from(version).unwrap_or(0))
}

/// Confines a command and all it starts. It fails rather than start one unconfined.
pub(crate) fn confine(command: &mut tokio::process::Command, confinement: &Confinement) -> Result<(), SandboxError> {
    if !support().is_there() {
        return Err(SandboxError::Unsupported);
    }
    let temporary = &confinement.temporary;
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(temporary);
    made.map_err(|source| SandboxError::Temporary { path: temporary.clone(), source })?;
    for name in ["TMPDIR", "TMP", "TEMP"] {
        command.env(name, temporary);
    }
    let mut ruleset = Some(rules(confinement)?);
    let restrict = move || {
        // Each fork has its own copy of the option, so that a command may be started again.
        let ruleset = ruleset.take().ok_or(std::io::ErrorKind::PermissionDenied)?;
        match ruleset.restrict_self() {
            Ok(_) => Ok(()),
            Err(_) => Err(std::io::Error::from_raw_os_error(libc::EPERM)),
        }
    };
    #[expect(unsafe_code, reason = "only the forked child can confine itself before it becomes the command")]
    // SAFETY: the closure makes two system calls, and neither allocates nor takes a lock.
    unsafe {
        command.pre_exec(restrict);
    }
    Ok(())
}

fn rules(confinement: &Confinement) -> Result<RulesetCreated, SandboxError> {
    let wrong = |source| SandboxError::Ruleset { source };
    let read = AccessFs::from_read(NEWEST);
    let all = AccessFs::from_all(NEWEST);
    let mut ruleset = Ruleset::default().handle_access(all).map_err(wrong)?;
    ruleset = ruleset.scope(Scope::AbstractUnixSocket | Scope::Signal).map_err(wrong)?;
    if confinement.network == Network::NoTcp {
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
