//! Commands that go on after their call: at most eight, read and ended by name, all ended with the attempt.
//!
//! Each has a task that listens to it; what it prints is kept as the output of any call is, until it is read.
//! Deliberately absent: any way to outlive the attempt, and input to a job.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::super::output::Output;
use super::super::{Answer, Scope};
use super::process::{self, DRAIN, GRACE, LEFT_GRACE, Process};
use super::{ending, is_cut, joined};
use crate::text;

/// Jobs that run at a time.
const RUNNING: usize = 8;

/// What a job prints at once, a wrong option as a rule, is in the first answer.
const FIRST_WORDS: Duration = Duration::from_millis(300);

#[derive(Debug, Default)]
pub(super) struct Jobs(Mutex<Listed>);

#[derive(Debug, Default)]
struct Listed {
    started: usize,
    jobs: BTreeMap<String, Job>,
}

#[derive(Debug)]
struct Job {
    line: String,
    printed: Arc<Mutex<Output>>,
    state: watch::Receiver<State>,
    stop: watch::Sender<Wish>,
    task: JoinHandle<()>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Running,
    Ended { ok: bool, note: String },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wish {
    GoOn,
    Stop,
}

impl Drop for Job {
    /// With its task goes the process, and with that all it started.
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Jobs {
    fn listed(&self) -> MutexGuard<'_, Listed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The command of a job.
    pub(super) fn line(&self, name: &str) -> Option<String> {
        self.listed().jobs.get(name).map(|job| job.line.clone())
    }

    pub(super) fn has_room(&self) -> Result<(), Answer> {
        let listed = self.listed();
        let running: Vec<&str> = listed
            .jobs
            .iter()
            .filter(|(_, job)| *job.state.borrow() == State::Running)
            .map(|(name, _)| name.as_str())
            .collect();
        if running.len() < RUNNING {
            return Ok(());
        }
        Err(Answer::correction(format!("{RUNNING} jobs run already: {}; stop one first", running.join(", "))))
    }

    /// Lets a process go on, and says by what name.
    pub(super) fn add(&self, line: &str, process: Process, scope: &Scope) -> Answer {
        let printed = Arc::new(Mutex::new(Output::new(&scope.spill)));
        let (teller, state) = watch::channel(State::Running);
        let (stop, wish) = watch::channel(Wish::GoOn);
        let task = tokio::spawn(listen(process, Arc::clone(&printed), teller, wish, scope.spill.clone()));
        let mut listed = self.listed();
        listed.started += 1;
        let name = format!("job-{}", listed.started);
        listed.jobs.insert(name.clone(), Job { line: line.to_owned(), printed, state, stop, task });
        Answer::done(format!("[{name} runs in the background; read it with \"job\": \"{name}\"]"))
    }

    /// What a job printed since it was last read, and how it stands.
    pub(super) async fn read(&self, name: &str, patience: Duration, scope: &Scope) -> Result<Answer, Answer> {
        let mut state = self.found(name)?;
        let patience = patience.max(FIRST_WORDS);
        let ended = state.wait_for(|state| *state != State::Running);
        tokio::select! {
            _ = timeout(patience, ended) => {}
            () = is_cut(scope) => {}
        }
        self.said(name, scope)
    }

    /// Ends a job and answers its last words.
    pub(super) async fn stop(&self, name: &str, scope: &Scope) -> Result<Answer, Answer> {
        let mut state = self.found(name)?;
        if let Some(job) = self.listed().jobs.get(name) {
            // It fails for one that has ended, which is what is wanted.
            let _ = job.stop.send(Wish::Stop);
        }
        // The task ends the tree in a bounded time; an error means that it is gone already.
        let _ = state.wait_for(|state| *state != State::Running).await;
        self.said(name, scope)
    }

    fn found(&self, name: &str) -> Result<watch::Receiver<State>, Answer> {
        let listed = self.listed();
        listed.jobs.get(name).map(|job| job.state.clone()).ok_or_else(|| {
            let names: Vec<&str> = listed.jobs.keys().map(String::as_str).collect();
            let known =
                if names.is_empty() { "there is none".to_owned() } else { format!("there are: {}", names.join(", ")) };
            Answer::correction(format!("there is no job `{name}`; {known}"))
        })
    }

    fn said(&self, name: &str, scope: &Scope) -> Result<Answer, Answer> {
        let mut listed = self.listed();
        let Some(job) = listed.jobs.get(name) else { return Err(Answer::correction("the job is gone")) };
        let mut printed = job.printed.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = std::mem::replace(&mut *printed, Output::new(&scope.spill));
        drop(printed);
        let state = job.state.borrow().clone();
        Ok(match state {
            State::Running => Answer::done(joined(fresh, &format!("[{name} still runs]"))),
            State::Ended { ok, note } => {
                // Its last words are told once.
                listed.jobs.remove(name);
                Answer { ok, ..Answer::done(joined(fresh, &format!("{note}\n[{name} has ended]"))) }
            }
        })
    }
}

/// Listens to a process until it ends or is to end.
async fn listen(
    mut process: Process,
    printed: Arc<Mutex<Output>>,
    teller: watch::Sender<State>,
    mut wish: watch::Receiver<Wish>,
    spill: PathBuf,
) {
    let mut buffer = vec![0; 16 * 1024];
    let mut is_open = true;
    let status = loop {
        tokio::select! {
            biased;
            status = process.child.wait() => break Some(status),
            // The sender lives as long as the job that owns this task.
            _ = wish.wait_for(|wish| *wish == Wish::Stop) => break None,
            read = process.pipe.read(&mut buffer), if is_open => match read {
                Ok(count @ 1..) => keep(&printed, &buffer[..count]),
                Ok(0) | Err(_) => is_open = false,
            },
        }
    };
    let mut last = Output::new(&spill);
    if status.is_some() {
        // What has ended may still have words in the pipe.
        let _ = timeout(DRAIN, process::gather(&mut process.pipe, &mut last)).await;
    }
    let left = process.tree.names();
    let grace = if status.is_some() { LEFT_GRACE } else { GRACE };
    process.end(grace, &mut last).await;
    let _ = timeout(DRAIN, process::gather(&mut process.pipe, &mut last)).await;
    keep(&printed, last.finish().as_bytes());
    let (ok, mut note) = match status {
        Some(status) => ending(status),
        None => (true, "[stopped]".to_owned()),
    };
    if ok && !left.is_empty() && note != "[stopped]" {
        note.push_str(&format!("\n[ended with it: {}]", text::one_line(&left.join(", "), 200)));
    }
    if let Some(more) = process.network_note() {
        note.push_str(&format!("\n{more}"));
    }
    teller.send_replace(State::Ended { ok, note });
}

fn keep(printed: &Mutex<Output>, more: &[u8]) {
    printed.lock().unwrap_or_else(PoisonError::into_inner).push(more);
}
