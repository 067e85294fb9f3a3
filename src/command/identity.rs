//! Who a process is: a pid is reused, a pid with its start time, boot and host is not.
//!
//! Deliberately absent: signals (`tree`), and the file the identity is written to (`model/brief.rs`).

use std::io;

use crate::model::brief::Claim;
use crate::model::run::Supervisor;

/// A process, for as long as anybody remembers it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) pid: i32,
    /// Clock ticks after boot; 0 on systems that do not tell.
    pub(crate) start_time: u64,
    pub(crate) boot_id: String,
    pub(crate) host: String,
}

impl Identity {
    pub(crate) fn of_self() -> Self {
        let pid = i32::try_from(std::process::id()).expect("a pid fits in an i32");
        Self { pid, start_time: start_time(pid).unwrap_or(0), boot_id: boot_id(), host: hostname() }
    }

    /// `None` if there is no such process.
    pub(crate) fn of(pid: i32) -> Option<Self> {
        Some(Self { pid, start_time: start_time(pid)?, boot_id: boot_id(), host: hostname() })
    }
}

impl From<&Claim> for Identity {
    fn from(claim: &Claim) -> Self {
        let Claim { pid, start_time, boot_id, host, .. } = claim;
        Self { pid: *pid, start_time: *start_time, boot_id: boot_id.clone(), host: host.clone() }
    }
}

impl From<&Supervisor> for Identity {
    fn from(supervisor: &Supervisor) -> Self {
        let Supervisor { pid, start_time, boot_id, host, .. } = supervisor;
        Self { pid: *pid, start_time: *start_time, boot_id: boot_id.clone(), host: host.clone() }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Liveness {
    Alive,
    Gone,
    /// It cannot be told from here: never a reason to call it dead.
    Unknown,
}

/// Whether the process still runs. One that has ended and waits to be reaped is gone.
pub(crate) fn liveness(identity: &Identity) -> Liveness {
    if identity.host != hostname() {
        return Liveness::Unknown;
    }
    if identity.boot_id != boot_id() {
        return Liveness::Gone;
    }
    match Stat::read(identity.pid) {
        Ok(Some(stat)) if stat.has_ended() || stat.start_time != identity.start_time => Liveness::Gone,
        Ok(Some(_)) => Liveness::Alive,
        Ok(None) => Liveness::Gone,
        Err(_) => Liveness::Unknown,
    }
}

/// One word for this boot of the kernel; empty on systems that have none.
pub(crate) fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

pub(crate) fn hostname() -> String {
    nix::unistd::gethostname().unwrap_or_default().to_string_lossy().into_owned()
}

/// When the process started, in clock ticks after boot.
pub(crate) fn start_time(pid: i32) -> Option<u64> {
    Stat::read(pid).ok().flatten().map(|stat| stat.start_time)
}

/// The processes that this one stands below, the nearest first, as far as the kernel shows them.
pub(crate) fn ancestors() -> impl Iterator<Item = i32> {
    let parent = |pid: i32| Stat::read(pid).ok().flatten().map(|stat| stat.parent).filter(|parent| *parent > 0);
    std::iter::successors(parent(Identity::of_self().pid), move |pid| parent(*pid))
}

/// What a process is called by the kernel; also of one that may not be looked into.
pub(crate) fn name(pid: i32) -> Option<String> {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).ok().map(|name| name.trim_end().to_owned())
}

/// The command line of a process; empty where it has ended.
pub(crate) fn command_line(pid: i32) -> Vec<String> {
    let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = bytes.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned());
    // Each word ends in a nought.
    let mut words: Vec<String> = words.collect();
    words.pop();
    words
}

/// What the kernel says of a process in one line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) pid: i32,
    pub(crate) parent: i32,
    pub(crate) group: i32,
    pub(crate) session: i32,
    pub(crate) start_time: u64,
    state: u8,
}

impl Stat {
    /// `Ok(None)` if there is no such process.
    #[cfg(target_os = "linux")]
    pub(crate) fn read(pid: i32) -> io::Result<Option<Self>> {
        match std::fs::read(format!("/proc/{pid}/stat")) {
            Ok(line) => Self::parse(&line).map(Some).ok_or_else(|| io::ErrorKind::InvalidData.into()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            // It ended between the opening and the reading.
            Err(error) if error.raw_os_error() == Some(nix::libc::ESRCH) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Without /proc all that can be told is that the pid is in use.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn read(pid: i32) -> io::Result<Option<Self>> {
        match nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), None) {
            Ok(()) | Err(nix::errno::Errno::EPERM) => {
                Ok(Some(Self { pid, parent: 0, group: 0, session: 0, start_time: 0, state: b'R' }))
            }
            Err(nix::errno::Errno::ESRCH) => Ok(None),
            Err(other) => Err(other.into()),
        }
    }

    /// The name of the program stands in parentheses and may hold anything, `) R 1 1` too, so that only what follows
    /// the last one counts.
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "there is no such line to read"))]
    fn parse(line: &[u8]) -> Option<Self> {
        let name_ends = line.iter().rposition(|byte| *byte == b')')?;
        let pid = std::str::from_utf8(line.split(|byte| *byte == b' ').next()?).ok()?.parse().ok()?;
        let rest = std::str::from_utf8(line.get(name_ends + 1..)?).ok()?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        // Field 3 of the manual, the state, is the first here.
        let number = |field: usize| fields.get(field - 3)?.parse::<i32>().ok();
        Some(Self {
            pid,
            parent: number(4)?,
            group: number(5)?,
            session: number(6)?,
            start_time: fields.get(22 - 3)?.parse().ok()?,
            state: *fields.first()?.as_bytes().first()?,
        })
    }

    #[cfg(test)]
    pub(super) const fn for_test(pid: i32, parent: i32, group: i32, session: i32) -> Self {
        Self { pid, parent, group, session, start_time: 1, state: b'S' }
    }

    /// It has ended, and its parent has not asked how.
    pub(crate) const fn has_ended(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x')
    }

    /// Stopped by a signal or a debugger: it hears nothing but KILL and CONT.
    pub(crate) const fn is_stopped(&self) -> bool {
        matches!(self.state, b'T' | b't')
    }

    /// The same process runs now.
    pub(crate) fn is_still_there(&self) -> bool {
        matches!(Self::read(self.pid), Ok(Some(now)) if now.start_time == self.start_time && !now.has_ended())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(name: &[u8]) -> Vec<u8> {
        let mut line = b"42 (".to_vec();
        line.extend(name);
        line.extend(b") S 7 8 9 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 123456 8601600 1 18446744073709551615\n");
        line
    }

    #[test]
    fn a_program_cannot_forge_its_start_time_by_its_name() {
        for name in [&b"sh"[..], b"a b", b") R 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 0 0 0 0 1", b"((", b"\xff\xfe )"] {
            let stat = Stat::parse(&line(name)).unwrap();
            assert_eq!((stat.pid, stat.parent, stat.group, stat.session), (42, 7, 8, 9));
            assert_eq!(stat.start_time, 123_456);
            assert!(!stat.has_ended());
        }
        assert_eq!(Stat::parse(b"42 (sh) S 7"), None);
        assert_eq!(Stat::parse(b""), None);
    }

    #[test]
    fn we_are_alive_and_a_reused_pid_is_not_us() {
        let me = Identity::of_self();
        assert_eq!(liveness(&me), Liveness::Alive);
        assert_eq!(Identity::of(me.pid), Some(me.clone()));
        assert_eq!(liveness(&Identity { start_time: me.start_time + 1, ..me.clone() }), Liveness::Gone);
        assert_eq!(liveness(&Identity { boot_id: "another".to_owned(), ..me }), Liveness::Gone);
    }

    #[test]
    fn a_process_of_another_host_is_unknown_never_gone() {
        let elsewhere = Identity { host: "elsewhere.example".to_owned(), pid: i32::MAX, ..Identity::of_self() };
        assert_eq!(liveness(&elsewhere), Liveness::Unknown);
    }

    #[test]
    fn a_process_that_waits_to_be_reaped_is_gone() {
        let mut command = std::process::Command::new("sh");
        let mut child = command.args(["-c", "read line"]).stdin(std::process::Stdio::piped()).spawn().unwrap();
        let identity = Identity::of(i32::try_from(child.id()).unwrap()).unwrap();
        assert_eq!(liveness(&identity), Liveness::Alive);
        drop(child.stdin.take());
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while liveness(&identity) == Liveness::Alive && std::time::Instant::now() < deadline {
            std::thread::yield_now();
        }
        assert_eq!(liveness(&identity), Liveness::Gone, "nobody has waited for it yet");
        child.wait().unwrap();
        assert_eq!(liveness(&identity), Liveness::Gone);
    }
}
