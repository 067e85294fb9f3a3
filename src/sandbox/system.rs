//! The system calls between fork and exec, each checked. None of them allocates or takes a lock.
//!
//! Deliberately absent: the order they are made in; see `rooms.rs` and `init.rs`.

use std::ffi::CStr;
use std::io;
use std::mem::size_of;
use std::ptr::null;

use nix::libc;

/// As the kernel's `struct mount_attr`.
#[repr(C)]
struct MountAttributes {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

const READ_ONLY: u64 = 0x1;
const NO_SET_USER: u64 = 0x2;
const RECURSIVE: libc::c_uint = 0x8000;
const EMPTY_PATH: libc::c_uint = 0x1000;
const CLONE_TREE: libc::c_uint = 1;
const MOVE_FROM_EMPTY_PATH: libc::c_uint = 0x4;
const MOVE_TO_EMPTY_PATH: libc::c_uint = 0x40;

/// Whether what is below a mount can be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Held {
    ReadOnly,
    Writable,
}

/// A descriptor that is closed when it goes.
#[derive(Debug)]
pub(super) struct Descriptor(pub(super) libc::c_int);

impl Drop for Descriptor {
    fn drop(&mut self) {
        #[expect(unsafe_code, reason = "between fork and exec nothing else may be called")]
        // SAFETY: the descriptor is ours alone.
        unsafe {
            libc::close(self.0);
        }
    }
}

pub(super) fn checked(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn descriptor(result: libc::c_long) -> io::Result<Descriptor> {
    match libc::c_int::try_from(result) {
        Ok(descriptor) if descriptor >= 0 => Ok(Descriptor(descriptor)),
        Ok(_) | Err(_) => Err(io::Error::last_os_error()),
    }
}

pub(super) fn unshare(flags: libc::c_int) -> io::Result<()> {
    #[expect(unsafe_code, reason = "between fork and exec nothing else may be called")]
    // SAFETY: the call takes a number only.
    checked(unsafe { libc::unshare(flags) })
}

/// Whether other processes of the user may look into this one.
pub(super) fn set_dumpable(readable: bool) {
    #[expect(unsafe_code, reason = "between fork and exec nothing else may be called")]
    // SAFETY: the call takes numbers only.
    unsafe {
        libc::prctl(libc::PR_SET_DUMPABLE, libc::c_ulong::from(readable), 0, 0, 0);
    }
}

pub(super) fn mount(
    what: Option<&CStr>,
    place: &CStr,
    kind: Option<&CStr>,
    flags: libc::c_ulong,
    options: Option<&CStr>,
) -> io::Result<()> {
    let pointer = |text: Option<&CStr>| text.map_or(null(), CStr::as_ptr);
    #[expect(unsafe_code, reason = "between fork and exec nothing else may be called")]
    // SAFETY: all pointers are null or end in a zero byte, and outlive the call.
    checked(unsafe { libc::mount(pointer(what), place.as_ptr(), pointer(kind), flags, pointer(options).cast()) })
}

pub(super) fn write(path: &CStr, text: &[u8]) -> io::Result<()> {
    #[expect(unsafe_code, reason = "between fork and exec nothing else may be called")]
    // SAFETY: the path ends in a zero byte, the buffer is as long as is said, the descriptor is ours.
    unsafe {
        let file = libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        checked(file)?;
        let written = libc::write(file, text.as_ptr().cast(), text.len());
        libc::close(file);
        if usize::try_from(written) == Ok(text.len()) { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

/// A copy of the mounts at a path, not yet anywhere.
pub(super) fn copy_of(path: &CStr) -> io::Result<Descriptor> {
    let flags = CLONE_TREE | RECURSIVE | libc::O_CLOEXEC as libc::c_uint;
    #[expect(unsafe_code, reason = "no crate at hand wraps this call")]
    // SAFETY: the path ends in a zero byte and outlives the call.
    descriptor(unsafe { libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, path.as_ptr(), flags) })
}

/// Whether a change reaches the mounts below.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    This,
    AllBelow,
}

/// Says of a mount what may be done in it. What was read-only stays so.
pub(super) fn hold(tree: &Descriptor, held: Held, reach: Reach) -> io::Result<()> {
    let flags = match reach {
        Reach::This => EMPTY_PATH,
        Reach::AllBelow => EMPTY_PATH | RECURSIVE,
    };
    let set = match held {
        Held::ReadOnly => READ_ONLY | NO_SET_USER,
        Held::Writable => NO_SET_USER,
    };
    let attributes = MountAttributes { set, clear: 0, propagation: 0, user_namespace: 0 };
    #[expect(unsafe_code, reason = "no crate at hand wraps this call")]
    // SAFETY: the attributes outlive the call and are as long as is said.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.0,
            c"".as_ptr(),
            flags,
            &raw const attributes,
            size_of::<MountAttributes>(),
        )
    };
    checked(result as libc::c_int)
}

/// Puts a copy on a place.
pub(super) fn attach(tree: &Descriptor, place: &Descriptor) -> io::Result<()> {
    #[expect(unsafe_code, reason = "no crate at hand wraps this call")]
    // SAFETY: both paths end in a zero byte.
    let result = unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            tree.0,
            c"".as_ptr(),
            place.0,
            c"".as_ptr(),
            MOVE_FROM_EMPTY_PATH | MOVE_TO_EMPTY_PATH,
        )
    };
    checked(result as libc::c_int)
}

/// Opens a directory or file by name, not through a link, to be a place and nothing else.
pub(super) fn place(parent: &Descriptor, name: &CStr) -> io::Result<Descriptor> {
    let flags = libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    #[expect(unsafe_code, reason = "between fork and exec nothing else may be called")]
    // SAFETY: the name ends in a zero byte and outlives the call.
    descriptor(libc::c_long::from(unsafe { libc::openat(parent.0, name.as_ptr(), flags) }))
}

pub(super) fn open_folder(path: &CStr) -> io::Result<Descriptor> {
    let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
    #[expect(unsafe_code, reason = "between fork and exec nothing else may be called")]
    // SAFETY: the path ends in a zero byte and outlives the call.
    descriptor(libc::c_long::from(unsafe { libc::open(path.as_ptr(), flags) }))
}

/// Makes a directory; one that is there will do, and so will a place where none can be made.
pub(super) fn make_folder(parent: &Descriptor, name: &CStr) {
    #[expect(unsafe_code, reason = "between fork and exec nothing else may be called")]
    // SAFETY: the name ends in a zero byte and outlives the call.
    unsafe {
        libc::mkdirat(parent.0, name.as_ptr(), 0o755);
    }
}

/// The same for an empty file.
pub(super) fn make_file(parent: &Descriptor, name: &CStr) {
    let flags = libc::O_CREAT | libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_WRONLY;
    #[expect(unsafe_code, reason = "between fork and exec nothing else may be called")]
    // SAFETY: the name ends in a zero byte and outlives the call; the descriptor is closed at once.
    unsafe {
        let file = libc::openat(parent.0, name.as_ptr(), flags | libc::O_EXCL, 0o600);
        if file >= 0 {
            libc::close(file);
        }
    }
}

/// The same for a link.
pub(super) fn make_link(parent: &Descriptor, name: &CStr, target: &CStr) {
    #[expect(unsafe_code, reason = "between fork and exec nothing else may be called")]
    // SAFETY: both texts end in a zero byte and outlive the call.
    unsafe {
        libc::symlinkat(target.as_ptr(), parent.0, name.as_ptr());
    }
}

/// Makes `root` the root of this process and lets go of the old one.
pub(super) fn change_root(root: &CStr) -> io::Result<()> {
    #[expect(unsafe_code, reason = "no crate at hand wraps this call")]
    // SAFETY: all paths end in a zero byte.
    unsafe {
        checked(libc::chdir(root.as_ptr()))?;
        checked(libc::syscall(libc::SYS_pivot_root, c".".as_ptr(), c".".as_ptr()) as libc::c_int)?;
        checked(libc::umount2(c".".as_ptr(), libc::MNT_DETACH))?;
        checked(libc::chdir(c"/".as_ptr()))
    }
}

pub(super) fn change_directory(path: &CStr) -> io::Result<()> {
    #[expect(unsafe_code, reason = "between fork and exec nothing else may be called")]
    // SAFETY: the path ends in a zero byte and outlives the call.
    checked(unsafe { libc::chdir(path.as_ptr()) })
}

/// Makes the loopback device of an empty network usable.
pub(super) fn loopback_up() -> io::Result<()> {
    #[expect(unsafe_code, reason = "between fork and exec nothing else may be called")]
    // SAFETY: the request is zeroed plain data of the kernel's own layout and outlives the call.
    unsafe {
        let socket =
            descriptor(libc::c_long::from(libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0)))?;
        let mut request: libc::ifreq = std::mem::zeroed();
        std::ptr::copy_nonoverlapping(c"lo".as_ptr(), request.ifr_name.as_mut_ptr(), 2);
        request.ifr_ifru.ifru_flags = libc::IFF_UP as libc::c_short;
        checked(libc::ioctl(socket.0, libc::SIOCSIFFLAGS, &raw const request))
    }
}

/// A listener on the loopback of this network.
pub(super) fn listen(port: u16) -> io::Result<Descriptor> {
    #[expect(unsafe_code, reason = "between fork and exec nothing else may be called")]
    // SAFETY: the address is plain data of the kernel's own layout and outlives the call.
    unsafe {
        let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let socket = descriptor(libc::c_long::from(libc::socket(libc::AF_INET, kind, 0)))?;
        let mut address: libc::sockaddr_in = std::mem::zeroed();
        address.sin_family = libc::AF_INET as libc::sa_family_t;
        address.sin_port = port.to_be();
        address.sin_addr.s_addr = u32::from(std::net::Ipv4Addr::LOCALHOST).to_be();
        let length = size_of::<libc::sockaddr_in>() as libc::socklen_t;
        checked(libc::bind(socket.0, (&raw const address).cast(), length))?;
        checked(libc::listen(socket.0, 64))?;
        Ok(socket)
    }
}

pub(super) fn unmount(place: &CStr) -> io::Result<()> {
    #[expect(unsafe_code, reason = "between fork and exec nothing else may be called")]
    // SAFETY: the path ends in a zero byte and outlives the call.
    checked(unsafe { libc::umount2(place.as_ptr(), libc::MNT_DETACH) })
}
