//! `status.md`: written at once when the phase changes, at most five times a second otherwise, every 10 s at least.
//!
//! Deliberately absent: what is read from it, and the window.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use crate::files;
use crate::front_matter;
use crate::model::status::{Phase, Status, WindowState};
use crate::model::time::Now;
use crate::model::usage::Usage;

/// A child is heard at least this often.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// Small changes are gathered for this long.
const GATHER: Duration = Duration::from_millis(200);

/// The one writer of a `status.md`; clones share it.
#[derive(Debug, Clone)]
pub(crate) struct StatusWriter(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    clock: fn() -> Now,
    status: Mutex<Status>,
    changed: tokio::sync::Notify,
}

impl StatusWriter {
    /// Writes the first status, phase `starting`.
    pub(crate) fn start(path: PathBuf, nonce: String, clock: fn() -> Now) -> Self {
        let now = clock().wall;
        let status = Status {
            v: Status::VERSION,
            nonce,
            phase: Phase::Starting,
            heartbeat: now,
            progress: now,
            usage: Usage::ZERO,
            tool_calls: 0,
            doing: String::new(),
            question: None,
            seen: Vec::new(),
            acted_on: Vec::new(),
            window: WindowState::Open,
        };
        let writer =
            Self(Arc::new(Shared { path, clock, status: Mutex::new(status), changed: tokio::sync::Notify::new() }));
        writer.write(&mut writer.lock());
        writer
    }

    /// Enters a phase; written before this returns.
    pub(crate) fn phase(&self, phase: Phase, doing: impl Into<String>) {
        let mut status = self.lock();
        status.phase = phase;
        status.doing = doing.into();
        self.write(&mut status);
    }

    /// Changes anything; written before this returns.
    pub(crate) fn now(&self, change: impl FnOnce(&mut Status)) {
        let mut status = self.lock();
        change(&mut status);
        self.write(&mut status);
    }

    /// Changes anything; written within a fifth of a second by `keep`.
    pub(crate) fn soon(&self, change: impl FnOnce(&mut Status)) {
        change(&mut self.lock());
        self.0.changed.notify_one();
    }

    /// Something came of the work.
    pub(crate) fn progressed(&self) {
        let now = (self.0.clock)().wall;
        self.soon(|status| status.progress = now);
    }

    /// The heartbeat: runs beside the loop until it is dropped.
    pub(crate) async fn keep(self) {
        loop {
            tokio::select! {
                () = self.0.changed.notified() => tokio::time::sleep(GATHER).await,
                () = tokio::time::sleep(self.until_next_beat()) => {}
            }
            self.write(&mut self.lock());
        }
    }

    /// On whole seconds, so that the supervisor of many children wakes once for all whose turn it is.
    fn until_next_beat(&self) -> Duration {
        let past = (self.0.clock)().wall.as_millis().rem_euclid(1_000);
        HEARTBEAT.saturating_sub(Duration::from_millis(past.unsigned_abs()))
    }

    fn lock(&self) -> MutexGuard<'_, Status> {
        // A status is plain data: it is sound whoever panicked while changing it.
        self.0.status.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// A status that cannot be written must not end the work: the supervisor sees the silence.
    fn write(&self, status: &mut Status) {
        status.heartbeat = (self.0.clock)().wall;
        // `seen` is not watched: six events of a hundred children each 10 s are most of what supervising them costs.
        let way = self.0.path.with_file_name("seen");
        let _ = files::write_by_way_of(&way, &self.0.path, front_matter::write(status, "").as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::time::Timestamp;

    fn clock() -> Now {
        static START: std::sync::LazyLock<tokio::time::Instant> = std::sync::LazyLock::new(tokio::time::Instant::now);
        let ms = START.elapsed().as_millis() as u64;
        Now { mono_ms: ms, wall: Timestamp::from_millis(i64::try_from(ms).unwrap()) }
    }

    fn read(path: &std::path::Path) -> Status {
        front_matter::read(&std::fs::read_to_string(path).unwrap()).unwrap().0
    }

    #[tokio::test(start_paused = true)]
    async fn a_phase_is_written_at_once_a_small_change_soon_and_a_heartbeat_always() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("status.md");
        let writer = StatusWriter::start(path.clone(), "n".into(), clock);
        assert_eq!((read(&path).phase, read(&path).nonce.as_str()), (Phase::Starting, "n"));
        writer.phase(Phase::Tool, "grep foo");
        assert_eq!((read(&path).phase, read(&path).doing.as_str()), (Phase::Tool, "grep foo"));
        let keeper = tokio::spawn(writer.clone().keep());
        writer.soon(|status| status.tool_calls = 3);
        assert_eq!(read(&path).tool_calls, 0);
        tokio::time::sleep(Duration::from_millis(300)).await;
        let gathered = read(&path);
        assert_eq!(gathered.tool_calls, 3);
        tokio::time::sleep(Duration::from_secs(11)).await;
        assert!(read(&path).heartbeat.since_s(gathered.heartbeat) >= 9.0);
        keeper.abort();
    }
}
