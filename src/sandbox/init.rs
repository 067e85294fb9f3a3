//! The two processes of ours around a command in a process namespace of its own.
//!
//! The outer one is the child that was spawned: it ends as the command ends. The inner one is the first process of the
//! namespace: it reaps, and when it ends the kernel ends all that is left in there. Both are copies of this process that
//! never become another program: they are unreadable, hold none of its descriptors and run nothing but this file.
//! Deliberately absent: files and network; see `root.rs` and `gateway.rs`.

use std::io;

use nix::libc;

use super::system::{self, checked};

/// How long what a command left behind may live without being ended by whoever started the command.
const LEFT_BEHIND_S: libc::time_t = 5;

/// How a command ended, from the inner to the outer process.
#[repr(C)]
#[derive(Clone, Copy)]
struct Ended {
    status: libc::c_int,
    /// Whether processes of the namespace still run.
    leaves: libc::c_int,
}

/// Where the inner process tells the outer one of the end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Teller(libc::c_int);

/// Becomes the outer process and goes on in the inner one. The process namespace must have been left already.
#[expect(unsafe_code, reason = "between fork and exec nothing else may be called")]
pub(super) fn begin() -> io::Result<Teller> {
    let mut pipe = [0; 2];
    // SAFETY: the array has room for both descriptors.
    checked(unsafe { libc::pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC) })?;
    system::set_dumpable(false);
    // SAFETY: this process has one thread; the copy goes on from here.
    let inner = unsafe { fork() };
    checked(inner)?;
    if inner != 0 {
        // SAFETY: it never returns, and touches nothing of this process but its descriptors.
        unsafe { outer(pipe[0], inner) }
    }
    // SAFETY: the call takes numbers only.
    checked(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) })?;
    Ok(Teller(pipe[1]))
}

/// Stays as the inner process and goes on in the one that becomes the command.
#[expect(unsafe_code, reason = "between fork and exec nothing else may be called")]
pub(super) fn go_on(teller: Teller) -> io::Result<()> {
    // SAFETY: this process has one thread; the copy goes on from here.
    let command = unsafe { fork() };
    checked(command)?;
    if command != 0 {
        // SAFETY: it never returns, and touches nothing of this process but its descriptors.
        unsafe { inner(teller.0, command) }
    }
    // SAFETY: the call takes nothing.
    checked(unsafe { libc::setsid() })
}

/// A copy of this process, made without what the C library does at a fork: its locks may be held for ever here.
#[expect(unsafe_code, reason = "the library's own fork takes locks")]
unsafe fn fork() -> libc::c_int {
    // SAFETY: without flags but the signal the call is fork; the caller sees to the copy.
    unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) as libc::c_int }
}

/// Lets go of every descriptor but one, which becomes the first, and hears no signal that can be refused.
#[expect(unsafe_code, reason = "between fork and exec nothing else may be called")]
unsafe fn withdraw(kept: libc::c_int) {
    // SAFETY: numbers and a set of our own.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut());
        libc::dup2(kept, 0);
        libc::syscall(libc::SYS_close_range, 1 as libc::c_uint, libc::c_uint::MAX, 0 as libc::c_uint);
    }
}

#[expect(unsafe_code, reason = "between fork and exec nothing else may be called")]
unsafe fn outer(reader: libc::c_int, inner: libc::pid_t) -> ! {
    let mut ended = Ended { status: 0, leaves: 0 };
    let size = size_of::<Ended>();
    // SAFETY: the buffers are ours and as long as is said.
    unsafe {
        // Whoever started the command and is gone cannot end it any more.
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
        withdraw(reader);
        let told = libc::read(0, (&raw mut ended).cast(), size);
        let heard = usize::try_from(told) == Ok(size);
        if !heard || ended.leaves == 0 {
            let mut status = 0;
            libc::waitpid(inner, &raw mut status, 0);
            if !heard {
                ended.status = status;
            }
        }
        end_as(ended.status)
    }
}

/// Ends this process in the same way.
#[expect(unsafe_code, reason = "between fork and exec nothing else may be called")]
unsafe fn end_as(status: libc::c_int) -> ! {
    // SAFETY: numbers and a set of our own.
    unsafe {
        if libc::WIFSIGNALED(status) {
            let signal = libc::WTERMSIG(status);
            let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
            libc::signal(signal, libc::SIG_DFL);
            let mut one: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut one);
            libc::sigaddset(&raw mut one, signal);
            libc::kill(libc::getpid(), signal);
            libc::sigprocmask(libc::SIG_UNBLOCK, &raw const one, std::ptr::null_mut());
            libc::_exit(128 + signal);
        }
        libc::_exit(libc::WEXITSTATUS(status))
    }
}

#[expect(unsafe_code, reason = "between fork and exec nothing else may be called")]
unsafe fn inner(writer: libc::c_int, command: libc::pid_t) -> ! {
    // SAFETY: the buffers are ours and as long as is said.
    unsafe {
        withdraw(writer);
        let mut status = 0;
        loop {
            let ended = libc::waitpid(-1, &raw mut status, 0);
            if ended == command || ended < 0 {
                break;
            }
        }
        let leaves = libc::c_int::from(reap() == Left::Some);
        if leaves != 0 {
            // From here on the outer process may end before us: whoever started the command looks at what is left.
            libc::prctl(libc::PR_SET_PDEATHSIG, 0, 0, 0, 0);
        }
        let ended = Ended { status, leaves };
        libc::write(0, (&raw const ended).cast(), size_of::<Ended>());
        if leaves != 0 {
            outlive();
        }
        libc::_exit(0)
    }
}

#[derive(PartialEq, Eq)]
enum Left {
    Some,
    None,
}

/// Takes what has ended; says whether something has not.
#[expect(unsafe_code, reason = "between fork and exec nothing else may be called")]
unsafe fn reap() -> Left {
    loop {
        let mut status = 0;
        // SAFETY: the status is ours.
        match unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) } {
            0 => return Left::Some,
            ended if ended < 0 => return Left::None,
            _ => {}
        }
    }
}

/// Waits until nothing is left, or for as long as that may take.
#[expect(unsafe_code, reason = "between fork and exec nothing else may be called")]
unsafe fn outlive() {
    // SAFETY: sets and times are ours; the signal is blocked, so that none is missed.
    unsafe {
        let mut ends: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut ends);
        libc::sigaddset(&raw mut ends, libc::SIGCHLD);
        let mut now: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now);
        let until = now.tv_sec + LEFT_BEHIND_S;
        while reap() == Left::Some && now.tv_sec < until {
            let patience = libc::timespec { tv_sec: until - now.tv_sec, tv_nsec: 0 };
            libc::sigtimedwait(&raw const ends, std::ptr::null_mut(), &raw const patience);
            libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now);
        }
    }
}
