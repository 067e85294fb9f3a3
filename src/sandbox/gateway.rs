//! The way out of a command's empty network: a listener made inside of it, handed to us.
//!
//! A socket belongs to the network it was made in, whoever holds it. So what the command connects to on its loopback is
//! accepted here, and no process has to stand between. Deliberately absent: what is let through; see `proxy.rs`.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use nix::libc;

use super::system::{self, checked};

/// Where the proxy is found inside. Its network is empty, so that no port is taken before the command takes it.
pub(super) const PORT: u16 = 41_593;

/// Room for one descriptor in a control message, as the kernel aligns it.
const ROOM: usize = 64;

/// Our end: the listener comes through it.
#[derive(Debug)]
pub(crate) struct Gateway(OwnedFd);

/// The command's end.
#[derive(Debug)]
pub(super) struct Inside(OwnedFd);

pub(super) fn pair() -> io::Result<(Gateway, Inside)> {
    let mut ends = [0; 2];
    #[expect(unsafe_code, reason = "std makes pairs of streams only, whose messages may be cut")]
    // SAFETY: the array has room for both descriptors, which nobody else owns.
    let (ours, theirs) = unsafe {
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
        checked(libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()))?;
        (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1]))
    };
    Ok((Gateway(ours), Inside(theirs)))
}

#[repr(align(8))]
struct Control([u8; ROOM]);

/// A message of one byte and one descriptor.
fn message(byte: &mut libc::iovec, control: &mut Control) -> libc::msghdr {
    #[expect(unsafe_code, reason = "the kernel's layout has hidden fields")]
    // SAFETY: zero is a sound value of plain data.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = byte;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = ROOM as _;
    message
}

impl Inside {
    /// In the forked child, in its own network: opens the listener and hands it over.
    pub(super) fn open(&self) -> io::Result<()> {
        let listener = system::listen(PORT)?;
        let mut text = [0_u8; 1];
        let mut byte = libc::iovec { iov_base: text.as_mut_ptr().cast(), iov_len: 1 };
        let mut control = Control([0; ROOM]);
        let mut message = message(&mut byte, &mut control);
        #[expect(unsafe_code, reason = "between fork and exec nothing else may be called")]
        // SAFETY: the control buffer is aligned and larger than one descriptor needs; all outlives the call.
        unsafe {
            let size = size_of::<libc::c_int>() as libc::c_uint;
            message.msg_controllen = libc::CMSG_SPACE(size) as _;
            let head = libc::CMSG_FIRSTHDR(&raw const message);
            (*head).cmsg_level = libc::SOL_SOCKET;
            (*head).cmsg_type = libc::SCM_RIGHTS;
            (*head).cmsg_len = libc::CMSG_LEN(size) as _;
            libc::CMSG_DATA(head).cast::<libc::c_int>().write_unaligned(listener.0);
            checked(libc::sendmsg(self.0.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) as libc::c_int)
        }
    }
}

impl Gateway {
    /// The listener, once the command has started: it is sent before.
    pub(crate) fn listener(&self) -> io::Result<tokio::net::TcpListener> {
        let mut text = [0_u8; 1];
        let mut byte = libc::iovec { iov_base: text.as_mut_ptr().cast(), iov_len: 1 };
        let mut control = Control([0; ROOM]);
        let mut message = message(&mut byte, &mut control);
        #[expect(unsafe_code, reason = "neither std nor our part of nix receives descriptors")]
        // SAFETY: the buffers outlive the call; the descriptor that comes is new and owned by nobody else.
        let listener = unsafe {
            let flags = libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT;
            checked(libc::recvmsg(self.0.as_raw_fd(), &raw mut message, flags) as libc::c_int)?;
            let head = libc::CMSG_FIRSTHDR(&raw const message);
            if head.is_null() || (*head).cmsg_type != libc::SCM_RIGHTS {
                return Err(io::ErrorKind::InvalidData.into());
            }
            OwnedFd::from_raw_fd(libc::CMSG_DATA(head).cast::<libc::c_int>().read_unaligned())
        };
        tokio::net::TcpListener::from_std(listener.into())
    }
}
