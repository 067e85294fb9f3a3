//! What is said to a server and heard from it: requests with a limit, notifications, and what it tells by itself.
//!
//! A server is not trusted: it may be silent, talk without end, answer what nobody asked, or break off in the middle. Each
//! of these ends a request, never the agent. Deliberately absent: what the methods mean (`session.rs`).

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use super::frame;
use super::place;
use super::problem::Problem;
use super::process::{Pipes, Process};
use crate::text;

/// Messages that wait for a server that does not read.
const WAITING: usize = 64;

/// Files whose problems are kept, and tokens of progress; more than that is no project.
const KEPT: usize = 2_000;

/// The end of what a server complained of.
const COMPLAINT: usize = 2_000;

#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum LspError {
    #[error("the language server has ended: {0}")]
    Over(String),
    #[error("the language server did not answer `{method}` within {seconds} s")]
    Slow { method: String, seconds: u64 },
    #[error("the language server refused `{method}`: {message}")]
    Refused { method: String, code: i64, message: String },
}

/// What a server has told by itself.
#[derive(Debug, Default)]
pub(super) struct Heard {
    pub(super) problems: HashMap<PathBuf, Published>,
    /// Work it has announced and not ended.
    busy: BTreeSet<String>,
    was_busy: bool,
    /// What rust-analyzer says of itself.
    quiescent: Option<bool>,
    /// It asked us, after its start, to ask it for problems.
    pub(super) pulls: bool,
    /// Why it is over, if it is.
    pub(super) over: Option<String>,
}

/// The newest list of a file's problems.
#[derive(Debug, Default)]
pub(super) struct Published {
    pub(super) version: Option<i64>,
    /// How many lists there were.
    pub(super) count: u64,
    pub(super) problems: Vec<Problem>,
}

impl Heard {
    /// Whether it has begun to work, so that an end can be waited for.
    pub(super) fn has_begun(&self) -> bool {
        self.was_busy || self.quiescent.is_some()
    }

    /// Whether all that it began is done.
    pub(super) fn is_idle(&self) -> bool {
        self.quiescent.unwrap_or(self.busy.is_empty())
    }

    fn take(&mut self, method: &str, params: &Value) {
        match method {
            "textDocument/publishDiagnostics" => self.take_problems(params),
            "$/progress" => self.take_progress(params),
            "experimental/serverStatus" => self.quiescent = params["quiescent"].as_bool().or(self.quiescent),
            "client/registerCapability" => {
                let list = params["registrations"].as_array().map(Vec::as_slice).unwrap_or_default();
                self.pulls |= list.iter().any(|one| one["method"] == "textDocument/diagnostic");
            }
            _ => {}
        }
    }

    fn take_problems(&mut self, params: &Value) {
        let Some(path) = params["uri"].as_str().and_then(place::path_of) else { return };
        if self.problems.len() >= KEPT && !self.problems.contains_key(&path) {
            return;
        }
        let published = self.problems.entry(path).or_default();
        published.version = params["version"].as_i64();
        published.count += 1;
        published.problems = Problem::all(&params["diagnostics"]);
    }

    fn take_progress(&mut self, params: &Value) {
        let token = params["token"].to_string();
        match params["value"]["kind"].as_str() {
            Some("begin") if self.busy.len() < KEPT => {
                self.was_busy = true;
                self.busy.insert(token);
            }
            Some("end") => {
                self.busy.remove(&token);
            }
            Some(_) | None => {}
        }
    }
}

type Answered = Result<Value, (i64, String)>;

/// What the connection and its tasks both hold.
#[derive(Debug)]
struct Shared {
    pending: Mutex<HashMap<i64, oneshot::Sender<Answered>>>,
    heard: watch::Sender<Heard>,
    outgoing: mpsc::Sender<Vec<u8>>,
    settings: Value,
}

impl Shared {
    fn pending(&self) -> MutexGuard<'_, HashMap<i64, oneshot::Sender<Answered>>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says why there will be no more; who waits for an answer hears it.
    fn end(&self, why: String) {
        self.heard.send_modify(|heard| heard.over = heard.over.take().or(Some(why)));
        self.pending().clear();
    }

    fn take(&self, message: &Value) {
        match (message.get("id"), message.get("method").and_then(Value::as_str)) {
            (Some(id), Some(method)) => {
                self.heard.send_modify(|heard| heard.take(method, &message["params"]));
                let reply = match reply(method, &message["params"], &self.settings) {
                    Some(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
                    None => json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "not offered"}}),
                };
                // A server that asks and does not read gets no answer.
                let _ = self.outgoing.try_send(frame::encode(&reply));
            }
            (None, Some(method)) => self.heard.send_modify(|heard| heard.take(method, &message["params"])),
            (Some(id), None) => {
                let waiting = id.as_i64().and_then(|id| self.pending().remove(&id));
                if let Some(waiting) = waiting {
                    let answered = match message.get("error") {
                        None | Some(Value::Null) => Ok(message["result"].clone()),
                        Some(error) => Err((error["code"].as_i64().unwrap_or(0), said(&error["message"]))),
                    };
                    // Who asked may have stopped waiting at this moment.
                    let _ = waiting.send(answered);
                }
            }
            (None, None) => {}
        }
    }
}

fn said(value: &Value) -> String {
    text::one_line(&text::without_controls(value.as_str().unwrap_or("without a reason")), 200)
}

/// What a server gets for its own requests. Nothing it asks for changes a file or shows a window.
fn reply(method: &str, params: &Value, settings: &Value) -> Option<Value> {
    match method {
        "workspace/configuration" => {
            let items = params["items"].as_array().map(Vec::as_slice).unwrap_or_default();
            let one = |item: &Value| settings.get(item["section"].as_str().unwrap_or_default()).unwrap_or(&Value::Null);
            Some(items.iter().take(100).map(one).cloned().collect())
        }
        "workspace/applyEdit" => Some(json!({"applied": false})),
        "window/workDoneProgress/create"
        | "client/registerCapability"
        | "client/unregisterCapability"
        | "window/showMessageRequest"
        | "workspace/diagnostic/refresh"
        | "workspace/workspaceFolders" => Some(Value::Null),
        _ => None,
    }
}

/// A server that runs and is spoken to.
#[derive(Debug)]
pub(super) struct Connection {
    shared: Arc<Shared>,
    next: AtomicI64,
    tasks: [JoinHandle<()>; 2],
    #[cfg_attr(not(test), expect(dead_code, reason = "held, so that the server ends with the connection"))]
    process: Process,
}

impl Connection {
    /// `settings` by section, for the server that asks for them.
    pub(super) fn new(process: Process, pipes: Pipes, settings: Value) -> Self {
        let (outgoing, waiting) = mpsc::channel(WAITING);
        let shared =
            Arc::new(Shared { pending: Mutex::default(), heard: watch::Sender::default(), outgoing, settings });
        let tasks = [
            tokio::spawn(listen(pipes.stdout, pipes.stderr, Arc::clone(&shared))),
            tokio::spawn(speak(pipes.stdin, waiting)),
        ];
        Self { shared, next: AtomicI64::new(1), tasks, process }
    }

    pub(super) fn heard(&self) -> watch::Receiver<Heard> {
        self.shared.heard.subscribe()
    }

    /// Asks, and takes the question back when the time is up or nobody waits any more.
    pub(super) async fn request(&self, method: &str, params: Value, limit: Duration) -> Result<Value, LspError> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = oneshot::channel();
        self.shared.pending().insert(id, sender);
        let asked = Asked { shared: &self.shared, id };
        let work = async {
            self.send(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await?;
            receiver.await.map_err(|_| self.over())
        };
        let answered = tokio::time::timeout(limit, work).await;
        drop(asked);
        let method = method.to_owned();
        answered
            .map_err(|_| LspError::Slow { method: method.clone(), seconds: limit.as_secs() })??
            .map_err(|(code, message)| LspError::Refused { method, code, message })
    }

    pub(super) async fn notify(&self, method: &str, params: Value) -> Result<(), LspError> {
        self.send(json!({"jsonrpc": "2.0", "method": method, "params": params})).await
    }

    async fn send(&self, message: Value) -> Result<(), LspError> {
        if self.shared.heard.borrow().over.is_some() {
            return Err(self.over());
        }
        self.shared.outgoing.send(frame::encode(&message)).await.map_err(|_| self.over())
    }

    fn over(&self) -> LspError {
        LspError::Over(self.shared.heard.borrow().over.clone().unwrap_or_else(|| "it does not listen".to_owned()))
    }

    #[cfg(test)]
    pub(super) fn living(&self) -> Vec<i32> {
        self.process.living()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// A question that has no answer yet.
struct Asked<'a> {
    shared: &'a Shared,
    id: i64,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        if self.shared.pending().remove(&self.id).is_some() {
            let cancel = json!({"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": self.id}});
            let _ = self.shared.outgoing.try_send(frame::encode(&cancel));
        }
    }
}

/// Hears the server to its end. What it complains of is kept for the reason.
async fn listen(stdout: ChildStdout, stderr: ChildStderr, shared: Arc<Shared>) {
    let complaint = tokio::spawn(complaint(stderr));
    let mut reader = BufReader::new(stdout);
    let why = loop {
        match frame::decode(&mut reader).await {
            Ok(message) => shared.take(&message),
            Err(error) => break error,
        }
    };
    let mut why = why.to_string();
    let said = tokio::time::timeout(Duration::from_millis(200), complaint).await;
    if let Ok(Ok(said)) = said
        && !said.is_empty()
    {
        why = format!("{why}; it said: {said}");
    }
    shared.end(why);
}

/// The last line of what a server writes to its stderr.
async fn complaint(mut stderr: ChildStderr) -> String {
    let (mut kept, mut buffer) = (Vec::new(), [0; 4_096]);
    while let Ok(count @ 1..) = stderr.read(&mut buffer).await {
        kept.extend_from_slice(&buffer[..count]);
        kept.drain(..kept.len().saturating_sub(COMPLAINT));
    }
    let kept = text::without_controls(&String::from_utf8_lossy(&kept));
    text::one_line(kept.trim().lines().next_back().unwrap_or_default(), 300)
}

async fn speak(mut stdin: ChildStdin, mut waiting: mpsc::Receiver<Vec<u8>>) {
    while let Some(message) = waiting.recv().await {
        // A pipe that is closed is heard of on the other side too.
        if stdin.write_all(&message).await.is_err() || stdin.flush().await.is_err() {
            return;
        }
    }
}
