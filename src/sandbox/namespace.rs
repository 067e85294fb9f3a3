//! Namespaces of a command's own: what it sees of the file system, and a network with nothing in it.
//!
//! Everything here but `abilities` and `Doorway` runs between fork and exec: system calls, no allocation, no lock.
//! Deliberately absent: which places are granted (`mod.rs`), and who answers at the doorway (`proxy.rs`).

use std::ffi::{CStr, CString};
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::ptr::null;
use std::sync::OnceLock;

use nix::libc;

use super::Abilities;

/// Where a command finds the proxy, in a network of its own that nobody else listens in.
pub(super) const PROXY_PORT: u16 = 3128;

/// Tried on processes of their own: half a namespace cannot be left again.
pub(super) fn abilities() -> Abilities {
    static ABILITIES: OnceLock<Abilities> = OnceLock::new();
    *ABILITIES.get_or_init(|| {
        if is_possible(Network::Own) {
            return Abilities { mounts: true, network: true };
        }
        Abilities { mounts: is_possible(Network::Shared), network: false }
    })
}

/// Whether a command gets a network of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Network {
    Own,
    Shared,
}

fn is_possible(network: Network) -> bool {
    let mut trial = std::process::Command::new("/proc/self/exe");
    trial.arg("--version").stdin(std::process::Stdio::null());
    trial.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    let maps = Maps::of_self();
    let tried = move || {
        enter(&maps, network)?;
        read_only_but(&[])?;
        if network == Network::Own {
            raise_loopback()?;
        }
        // An error before the program is begun is told by `status`, so that nothing of it ever runs.
        Err(io::Error::from_raw_os_error(libc::ECANCELED))
    };
    #[expect(unsafe_code, reason = "only a forked child can enter a namespace alone")]
    // SAFETY: the closure makes system calls only; it neither allocates nor takes a lock.
    unsafe {
        trial.pre_exec(tried);
    }
    matches!(trial.status(), Err(error) if error.raw_os_error() == Some(libc::ECANCELED))
}

/// What an own user namespace is told of its one user and group.
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

/// Enters namespaces of one's own; for a user without powers, in a user namespace of one's own.
pub(super) fn enter(maps: &Maps, network: Network) -> io::Result<()> {
    let wanted = match network {
        Network::Own => libc::CLONE_NEWNS | libc::CLONE_NEWNET,
        Network::Shared => libc::CLONE_NEWNS,
    };
    if unshare(wanted).is_err() {
        // A process that must not be read has its files in /proc owned by root.
        #[expect(unsafe_code, reason = "no crate at hand wraps this call")]
        // SAFETY: the call takes numbers only.
        unsafe {
            libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0);
        }
        unshare(libc::CLONE_NEWUSER | wanted)?;
        write(c"/proc/self/setgroups", b"deny")?;
        write(c"/proc/self/uid_map", &maps.user)?;
        write(c"/proc/self/gid_map", &maps.group)?;
    }
    mount(None, c"/", None, libc::MS_REC | libc::MS_SLAVE)
}

/// Makes the whole file system read-only but for these places. Landlock alone lets the owner of a file change its mode
/// and times.
pub(super) fn read_only_but(places: &[CString]) -> io::Result<()> {
    for place in places {
        gone_is_hidden(mount(Some(place), place, None, libc::MS_BIND | libc::MS_REC))?;
    }
    set_read_only(c"/", ReadOnly::Yes)?;
    for place in places {
        // A place that was read-only for us before stays so.
        let _ = set_read_only(place, ReadOnly::No);
    }
    Ok(())
}

enum ReadOnly {
    Yes,
    No,
}

fn set_read_only(place: &CStr, wanted: ReadOnly) -> io::Result<()> {
    /// `struct mount_attr` of the kernel.
    #[repr(C)]
    struct Attributes {
        set: u64,
        clear: u64,
        propagation: u64,
        user_namespace: u64,
    }
    const READ_ONLY: u64 = 1;
    let (set, clear) = match wanted {
        ReadOnly::Yes => (READ_ONLY, 0),
        ReadOnly::No => (0, READ_ONLY),
    };
    let attributes = Attributes { set, clear, propagation: 0, user_namespace: 0 };
    #[expect(unsafe_code, reason = "no crate at hand wraps this call")]
    // SAFETY: the path ends in a zero byte, the structure is of the size that is said, and both outlive the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            place.as_ptr(),
            libc::AT_RECURSIVE,
            &raw const attributes,
            size_of::<Attributes>(),
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The working directory by its path.
pub(super) struct Here([u8; libc::PATH_MAX as usize]);

impl Here {
    pub(super) fn now() -> io::Result<Self> {
        let mut here = Self([0; libc::PATH_MAX as usize]);
        #[expect(unsafe_code, reason = "between fork and exec nothing else may be called")]
        // SAFETY: the buffer is as long as is said.
        let found = unsafe { libc::getcwd(here.0.as_mut_ptr().cast(), here.0.len()) };
        if found.is_null() { Err(io::Error::last_os_error()) } else { Ok(here) }
    }

    pub(super) fn enter(&self) -> io::Result<()> {
        #[expect(unsafe_code, reason = "between fork and exec nothing else may be called")]
        // SAFETY: the kernel has ended the path with a zero byte.
        checked(unsafe { libc::chdir(self.0.as_ptr().cast()) })
    }
}

/// A place that is covered, with what of it stays to be seen.
pub(super) struct Cover {
    pub(super) place: CString,
    /// What covers it; nothing but what stays is seen then.
    pub(super) with: With,
    /// What stays, outer before inner, with the folders that lead there.
    pub(super) kept: Vec<(CString, Vec<CString>)>,
}

pub(super) enum With {
    /// An empty file system.
    Nothing,
    /// A folder.
    Folder(CString),
}

/// How many places beneath one cover can stay.
const KEPT: usize = 16;

/// Covers a place.
pub(super) fn cover(cover: &Cover) -> io::Result<()> {
    // Once covered they have no path any more.
    let mut held = [-1; KEPT];
    for (slot, (path, _)) in held.iter_mut().zip(&cover.kept) {
        *slot = open(path, libc::O_PATH | libc::O_CLOEXEC);
    }
    let covered = match &cover.with {
        With::Nothing => mount(Some(c"tmpfs"), &cover.place, Some(c"tmpfs"), libc::MS_NOSUID),
        With::Folder(folder) => mount(Some(folder), &cover.place, None, libc::MS_BIND),
    };
    gone_is_hidden(covered)?;
    for (descriptor, (path, folders)) in held.iter().zip(&cover.kept) {
        if *descriptor < 0 {
            continue;
        }
        for folder in folders {
            make_folder(folder);
        }
        let mut name = [0_u8; 32];
        gone_is_hidden(mount(Some(path_of(*descriptor, &mut name)), path, None, libc::MS_BIND | libc::MS_REC))?;
        close(*descriptor);
    }
    Ok(())
}

/// `/proc/self/fd/N` without an allocation.
fn path_of(descriptor: RawFd, buffer: &mut [u8; 32]) -> &CStr {
    const START: &[u8] = b"/proc/self/fd/";
    buffer[..START.len()].copy_from_slice(START);
    let mut digits = [0_u8; 10];
    let (mut rest, mut count) = (descriptor.unsigned_abs(), 0);
    loop {
        digits[count] = b'0' + (rest % 10) as u8;
        (rest, count) = (rest / 10, count + 1);
        if rest == 0 {
            break;
        }
    }
    for (at, digit) in digits[..count].iter().rev().enumerate() {
        buffer[START.len() + at] = *digit;
    }
    CStr::from_bytes_until_nul(buffer).expect("a number leaves room for the zero byte")
}

/// Hides one file behind `/dev/null`.
pub(super) fn hide_file(path: &CStr) -> io::Result<()> {
    gone_is_hidden(mount(Some(c"/dev/null"), path, None, libc::MS_BIND))
}

/// The parent's end of a way out of a network that has none.
#[derive(Debug)]
pub(crate) struct Doorway(UnixStream);

/// The child's end.
pub(super) struct Sill(UnixStream);

pub(super) fn doorway() -> io::Result<(Doorway, Sill)> {
    let (outside, inside) = UnixStream::pair()?;
    outside.set_nonblocking(true)?;
    Ok((Doorway(outside), Sill(inside)))
}

impl Sill {
    /// In the forked child: listens in the command's own network and hands the listening socket out. A socket belongs to
    /// the network it was made in, so that who accepts on it need not be there.
    pub(super) fn open(&self) -> io::Result<()> {
        raise_loopback()?;
        let listener = listen(PROXY_PORT)?;
        let sent = send_descriptor(self.0.as_raw_fd(), listener);
        close(listener);
        sent
    }
}

impl Doorway {
    /// The listening socket; there as soon as the command has begun.
    pub(crate) fn listener(self) -> io::Result<std::net::TcpListener> {
        let descriptor = receive_descriptor(self.0.as_raw_fd())?;
        Ok(std::net::TcpListener::from(descriptor))
    }
}

fn raise_loopback() -> io::Result<()> {
    let socket = socket()?;
    #[expect(unsafe_code, reason = "between fork and exec nothing else may be called")]
    // SAFETY: the request is a plain structure of the kernel's, of which name and flags are set; it outlives the calls.
    let raised = unsafe {
        let mut request: libc::ifreq = zeroed();
        request.ifr_name[0] = b'l'.cast_signed() as libc::c_char;
        request.ifr_name[1] = b'o'.cast_signed() as libc::c_char;
        checked(libc::ioctl(socket, libc::SIOCGIFFLAGS, &raw mut request)).and_then(|()| {
            request.ifr_ifru.ifru_flags |= libc::IFF_UP as libc::c_short;
            checked(libc::ioctl(socket, libc::SIOCSIFFLAGS, &raw const request))
        })
    };
    close(socket);
    raised
}

fn listen(port: u16) -> io::Result<RawFd> {
    let socket = socket()?;
    let address = libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: port.to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes([127, 0, 0, 1]) },
        sin_zero: [0; 8],
    };
    #[expect(unsafe_code, reason = "between fork and exec nothing else may be called")]
    // SAFETY: the address is of the size that is said and outlives the call.
    unsafe {
        let size = size_of::<libc::sockaddr_in>() as libc::socklen_t;
        checked(libc::bind(socket, (&raw const address).cast(), size))?;
        checked(libc::listen(socket, 128))?;
    }
    Ok(socket)
}

fn socket() -> io::Result<RawFd> {
    #[expect(unsafe_code, reason = "between fork and exec nothing else may be called")]
    // SAFETY: the call takes numbers only.
    let socket = unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
    checked(socket)?;
    Ok(socket)
}

/// Room for one descriptor beside a message, aligned as the kernel wants it.
#[repr(C, align(8))]
struct Beside([u8; 64]);

#[expect(unsafe_code, reason = "between fork and exec nothing else may be called")]
fn send_descriptor(through: RawFd, descriptor: RawFd) -> io::Result<()> {
    let (mut byte, mut beside) = (0_u8, Beside([0; 64]));
    let mut part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    // SAFETY: the message points at buffers that outlive the call, `Beside` has room for one header and one descriptor.
    unsafe {
        let mut message: libc::msghdr = zeroed();
        (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
        message.msg_control = beside.0.as_mut_ptr().cast();
        message.msg_controllen = libc::CMSG_SPACE(size_of::<RawFd>() as u32) as _;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(size_of::<RawFd>() as u32) as _;
        libc::CMSG_DATA(header).cast::<RawFd>().write_unaligned(descriptor);
        if libc::sendmsg(through, &raw const message, libc::MSG_NOSIGNAL) < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

#[expect(unsafe_code, reason = "std has no stable way to receive a descriptor")]
fn receive_descriptor(through: RawFd) -> io::Result<OwnedFd> {
    let (mut byte, mut beside) = (0_u8, Beside([0; 64]));
    let mut part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    // SAFETY: the message points at buffers that outlive the call; a descriptor the kernel put there is ours alone.
    unsafe {
        let mut message: libc::msghdr = zeroed();
        (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
        message.msg_control = beside.0.as_mut_ptr().cast();
        message.msg_controllen = size_of::<Beside>() as _;
        if libc::recvmsg(through, &raw mut message, libc::MSG_CMSG_CLOEXEC) < 0 {
            return Err(io::Error::last_os_error());
        }
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        if header.is_null() || (*header).cmsg_type != libc::SCM_RIGHTS {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(OwnedFd::from_raw_fd(libc::CMSG_DATA(header).cast::<RawFd>().read_unaligned()))
    }
}

fn unshare(flags: libc::c_int) -> io::Result<()> {
    #[expect(unsafe_code, reason = "between fork and exec nothing else may be called")]
    // SAFETY: the call takes a number only.
    checked(unsafe { libc::unshare(flags) })
}

fn mount(what: Option<&CStr>, place: &CStr, kind: Option<&CStr>, flags: libc::c_ulong) -> io::Result<()> {
    let pointer = |text: Option<&CStr>| text.map_or(null(), CStr::as_ptr);
    #[expect(unsafe_code, reason = "between fork and exec nothing else may be called")]
    // SAFETY: all pointers are null or end in a zero byte, and outlive the call.
    checked(unsafe { libc::mount(pointer(what), place.as_ptr(), pointer(kind), flags, null()) })
}

fn open(path: &CStr, flags: libc::c_int) -> RawFd {
    #[expect(unsafe_code, reason = "between fork and exec nothing else may be called")]
    // SAFETY: the path ends in a zero byte and outlives the call.
    unsafe {
        libc::open(path.as_ptr(), flags)
    }
}

fn close(descriptor: RawFd) {
    #[expect(unsafe_code, reason = "between fork and exec nothing else may be called")]
    // SAFETY: every caller closes a descriptor that it opened, once.
    unsafe {
        libc::close(descriptor);
    }
}

/// One that is there already is as good.
fn make_folder(path: &CStr) {
    #[expect(unsafe_code, reason = "between fork and exec nothing else may be called")]
    // SAFETY: the path ends in a zero byte and outlives the call.
    unsafe {
        libc::mkdir(path.as_ptr(), 0o700);
    }
}

fn write(path: &CStr, text: &[u8]) -> io::Result<()> {
    let file = open(path, libc::O_WRONLY | libc::O_CLOEXEC);
    checked(file)?;
    #[expect(unsafe_code, reason = "between fork and exec nothing else may be called")]
    // SAFETY: the buffer is as long as is said, the descriptor is ours.
    let written = unsafe { libc::write(file, text.as_ptr().cast(), text.len()) };
    close(file);
    if usize::try_from(written) == Ok(text.len()) { Ok(()) } else { Err(io::Error::last_os_error()) }
}

pub(super) fn checked(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// What is not there any more, or where the user may not look, needs no cover.
fn gone_is_hidden(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR | libc::EACCES)) => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_has_its_path() {
        let mut buffer = [0; 32];
        assert_eq!(path_of(0, &mut buffer), c"/proc/self/fd/0");
        let mut buffer = [0; 32];
        assert_eq!(path_of(i32::MAX, &mut buffer), c"/proc/self/fd/2147483647");
    }

    #[test]
    fn a_descriptor_arrives_at_the_other_end() {
        let (outside, inside) = UnixStream::pair().unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "through").unwrap();
        send_descriptor(inside.as_raw_fd(), file.as_raw_fd()).unwrap();
        let received = receive_descriptor(outside.as_raw_fd()).unwrap();
        assert_eq!(std::io::read_to_string(std::fs::File::from(received)).unwrap(), "through");
    }
}
