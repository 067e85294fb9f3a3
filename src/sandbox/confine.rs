//! Puts the layers on a command, each between fork and exec: namespaces, Landlock, the filter.
//!
//! What this kernel allows is tried once. Deliberately absent: what each layer does; see its file.

use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::sync::OnceLock;

use nix::libc;

use super::filter::{Filter, UnixSockets};
use super::gateway::{self, Inside};
use super::landlock::{self, Made, Rules, Tcp};
use super::root::Plan;
use super::sockets::{self, Maps, Masks};
use super::{Confined, Confinement, Network, Rooms, SandboxError, Support, init, system};

/// Whether commands can be confined at all. Cheap: nothing is tried.
pub(crate) fn holds() -> bool {
    landlock::version() > 0
}

/// What this kernel can hold a command to.
pub(crate) fn support() -> Support {
    Support::of(landlock::version(), rooms())
}

/// Confines a command and all it starts. It fails rather than start one unconfined. Where the network is closed, what
/// comes back is its only way out.
pub(crate) fn confine(
    command: &mut tokio::process::Command,
    confinement: &Confinement,
) -> Result<Confined, SandboxError> {
    if !holds() {
        return Err(SandboxError::Unsupported);
    }
    let temporary = &confinement.temporary;
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(temporary);
    made.map_err(|source| SandboxError::Temporary { path: temporary.clone(), source })?;
    let prepare = |source| SandboxError::Prepare { source };
    let own_root = rooms() == Rooms::Own;
    let seen = if own_root { Path::new("/tmp") } else { temporary };
    for name in ["TMPDIR", "TMP", "TEMP"] {
        command.env(name, seen);
    }
    let (tcp, pair) = match (confinement.network, own_root) {
        (Network::Open, _) => (Tcp::Open, None),
        (Network::Closed, true) => (Tcp::Open, Some(gateway::pair().map_err(prepare)?)),
        (Network::Closed, false) => (Tcp::Refused, None),
    };
    let (gateway, inside) = pair.unzip();
    let mut rules = Rules::new(confinement, tcp)?;
    if own_root {
        let namespaces = Namespaces { maps: Maps::of_self(), plan: Plan::new(confinement), inside };
        let filter = Filter::new(UnixSockets::Allowed);
        before_exec(command, move || {
            namespaces.enter()?;
            for (place, made) in [
                (c"/", Made::Listed),
                (c"/proc", Made::Readable),
                (c"/dev/pts", Made::Terminals),
                (c"/dev/shm", Made::Writable),
            ] {
                rules.add(place, made)?;
            }
            rules.restrict()?;
            filter.apply()
        });
    } else {
        let kept = [confinement.writable.as_slice(), std::slice::from_ref(temporary)].concat();
        let masks = Masks::new(&confinement.sockets, &kept);
        let filter = Filter::new(masks.unix_sockets());
        before_exec(command, move || {
            masks.hide()?;
            rules.restrict()?;
            filter.apply()
        });
    }
    Ok(Confined { rooms: rooms(), gateway })
}

#[expect(unsafe_code, reason = "only the forked child can confine itself before it becomes the command")]
fn before_exec(
    command: &mut tokio::process::Command,
    layers: impl FnMut() -> std::io::Result<()> + Send + Sync + 'static,
) {
    // SAFETY: the layers make system calls on what was made before the fork; none of them allocates or takes a lock.
    unsafe {
        command.pre_exec(layers);
    }
}

/// All that a forked child needs to enter namespaces of its own, made before the fork.
#[derive(Debug)]
struct Namespaces {
    maps: Maps,
    plan: Plan,
    /// None leaves the network as it is.
    inside: Option<Inside>,
}

impl Namespaces {
    /// Goes on in the process that becomes the command.
    fn enter(&self) -> std::io::Result<()> {
        let directory = Directory::current();
        let mut wanted = libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWIPC;
        if self.inside.is_some() {
            wanted |= libc::CLONE_NEWNET;
        }
        sockets::leave(wanted, &self.maps)?;
        let teller = init::begin()?;
        if let Some(inside) = &self.inside {
            system::loopback_up()?;
            // Where nobody listens any more, there is no way out.
            let _ = inside.open();
        }
        self.plan.carry_out()?;
        directory.enter()?;
        init::go_on(teller)
    }
}

/// The working directory by name: of the old root it must be left, or it would lead out of the new one.
struct Directory([u8; libc::PATH_MAX as usize]);

impl Directory {
    fn current() -> Self {
        let mut name = [0_u8; libc::PATH_MAX as usize];
        #[expect(unsafe_code, reason = "the standard library's own allocates")]
        // SAFETY: the buffer is as long as is said; on failure it stays empty.
        unsafe {
            libc::getcwd(name.as_mut_ptr().cast(), name.len() - 1);
        }
        Self(name)
    }

    fn enter(&self) -> std::io::Result<()> {
        let name = std::ffi::CStr::from_bytes_until_nul(&self.0).map_err(|_| std::io::ErrorKind::InvalidInput)?;
        system::change_directory(name)
    }
}

/// Tried once, on a process of its own: half a namespace cannot be left again.
fn rooms() -> Rooms {
    static ROOMS: OnceLock<Rooms> = OnceLock::new();
    *ROOMS.get_or_init(|| {
        let mut trial = std::process::Command::new("/proc/self/exe");
        trial.arg("--version").current_dir("/").stdin(std::process::Stdio::null());
        trial.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        let Ok((_gateway, inside)) = gateway::pair() else { return Rooms::Shared };
        let namespaces = Namespaces { maps: Maps::of_self(), plan: Plan::of_system(), inside: Some(inside) };
        #[expect(unsafe_code, reason = "only a forked child can enter a namespace alone")]
        // SAFETY: the closure makes system calls only; it neither allocates nor takes a lock.
        unsafe {
            // An error before the program is begun is told by `status`, so that nothing of it ever runs.
            trial.pre_exec(move || namespaces.enter().and(Err(std::io::Error::from_raw_os_error(libc::ECANCELED))));
        }
        match trial.status() {
            Err(error) if error.raw_os_error() == Some(libc::ECANCELED) => Rooms::Own,
            Ok(_) | Err(_) => Rooms::Shared,
        }
    })
}
