//! The filter on system calls: what no command of a tool needs and what leads round the other layers.
//!
//! Deliberately absent: files and network addresses, of which a filter sees only numbers.

use nix::libc;

use super::system::checked;

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xC000_00B7;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const ARCHITECTURE: u32 = 0;

/// Whether a command may make Unix sockets that connect by path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UnixSockets {
    Allowed,
    /// Only pairs.
    Refused,
}

/// Calls that are refused as if the user had no right to them.
const REFUSED: &[libc::c_long] = &[
    // Keys of the user's session, which have no path.
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    // Rings make sockets and open files past this filter.
    libc::SYS_io_uring_setup,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_open_by_handle_at,
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_mount_setattr,
    libc::SYS_fsopen,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
];

const LOAD: u16 = 0x20;
const IS: u16 = 0x15;
const AT_LEAST: u16 = 0x35;
const ANY_BIT: u16 = 0x45;
const RETURN: u16 = 0x06;

const ALLOW: u32 = 0x7fff_0000;
const FAIL: u32 = 0x0005_0000;
const NOT_PERMITTED: u32 = FAIL | libc::EPERM as u32;
const NO_SUCH_FAMILY: u32 = FAIL | libc::EAFNOSUPPORT as u32;
/// By this the C library knows to use `clone`, whose flags can be looked at.
const NO_SUCH_CALL: u32 = FAIL | libc::ENOSYS as u32;

/// Where the number, the architecture and the arguments lie in what a filter sees; the lower half of each argument.
const NUMBER: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;
const FIRST: u32 = 16;
const SECOND: u32 = 24;

/// Where x86 programs with short pointers have their calls; no other architecture counts so far.
const X32: u32 = 0x4000_0000;

/// Typed into a terminal, or into the console, as if by a person.
const TYPE_INTO: [u32; 2] = [0x5412, 0x541C];

/// A filter, made before the fork.
#[derive(Debug)]
pub(super) struct Filter {
    program: Vec<libc::sock_filter>,
}

impl Filter {
    pub(super) fn new(sockets: UnixSockets) -> Self {
        Self { program: if ARCHITECTURE == 0 { Vec::new() } else { program(sockets) } }
    }

    /// In the forked child, which has given up gaining powers.
    pub(super) fn apply(&self) -> std::io::Result<()> {
        if self.program.is_empty() {
            return Ok(());
        }
        let filter = libc::sock_fprog { len: self.program.len() as u16, filter: self.program.as_ptr().cast_mut() };
        #[expect(unsafe_code, reason = "between fork and exec nothing else may be called")]
        // SAFETY: the program outlives the call, which copies it.
        checked(unsafe { libc::prctl(libc::PR_SET_SECCOMP, 2, &raw const filter, 0, 0) })
    }
}

fn step(code: u16, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt, jf, k }
}

fn answer(k: u32) -> libc::sock_filter {
    step(RETURN, 0, 0, k)
}

/// Steps for one call: all of its ways end in an answer.
fn for_call(number: libc::c_long, steps: &[libc::sock_filter]) -> Vec<libc::sock_filter> {
    let mut all = vec![step(IS, 0, steps.len() as u8, number as u32)];
    all.extend_from_slice(steps);
    all
}

fn program(sockets: UnixSockets) -> Vec<libc::sock_filter> {
    let mut program = vec![
        step(LOAD, 0, 0, ARCHITECTURE_AT),
        step(IS, 1, 0, ARCHITECTURE),
        answer(NOT_PERMITTED),
        step(LOAD, 0, 0, NUMBER),
        step(AT_LEAST, 0, 1, X32),
        answer(NOT_PERMITTED),
    ];
    for number in REFUSED {
        program.extend(for_call(*number, &[answer(NOT_PERMITTED)]));
    }
    program.extend(for_call(libc::SYS_clone3, &[answer(NO_SUCH_CALL)]));
    for number in [libc::SYS_clone, libc::SYS_unshare] {
        let own_users = [
            step(LOAD, 0, 0, FIRST),
            step(ANY_BIT, 0, 1, libc::CLONE_NEWUSER as u32),
            answer(NOT_PERMITTED),
            answer(ALLOW),
        ];
        program.extend(for_call(number, &own_users));
    }
    let typing = [
        step(LOAD, 0, 0, SECOND),
        step(IS, 1, 0, TYPE_INTO[0]),
        step(IS, 0, 1, TYPE_INTO[1]),
        answer(NOT_PERMITTED),
        answer(ALLOW),
    ];
    program.extend(for_call(libc::SYS_ioctl, &typing));
    let unix = match sockets {
        UnixSockets::Allowed => ALLOW,
        UnixSockets::Refused => NOT_PERMITTED,
    };
    // A virtual machine's way to its host is a family of sockets too, and no network holds it.
    let families = [
        step(LOAD, 0, 0, FIRST),
        step(IS, 0, 1, libc::AF_UNIX as u32),
        answer(unix),
        step(IS, 2, 0, libc::AF_INET as u32),
        step(IS, 1, 0, libc::AF_INET6 as u32),
        step(IS, 0, 1, libc::AF_NETLINK as u32),
        answer(ALLOW),
        answer(NO_SUCH_FAMILY),
    ];
    program.extend(for_call(libc::SYS_socket, &families));
    program.push(answer(ALLOW));
    program
}
