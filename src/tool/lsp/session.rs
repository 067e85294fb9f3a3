//! One language server at work: its start, the files it is shown, and when what it says can be believed.
//!
//! A server sees a file as we last showed it, so each is shown anew before a question. Deliberately absent: which server
//! it is, and how answers look.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::{Mutex, OnceCell};
use tokio::time::{Instant, timeout, timeout_at};

use super::connection::{Connection, Heard, LspError};
use super::place;
use super::problem::Problem;
use super::process::Process;
use crate::files;
use crate::tool::Scope;

/// Loading a server and a first look at the project.
const START: Duration = Duration::from_secs(30);

/// A server that means to index says so soon after it has started.
const FIRST_WORD: Duration = Duration::from_secs(1);

/// Larger files are not shown to servers.
pub(super) const SHOWN: u64 = 2 * 1024 * 1024;

/// Files that are shown at once; the one opened first is closed for one more.
const OPEN: usize = 32;

/// What a server answers while files change under it: ask again.
const AGAIN: &[i64] = &[-32801, -32802, -32800];

/// And so often.
const DISTURBED: u32 = 50;

/// A server as it is to be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Launch {
    pub(super) name: String,
    pub(super) argv: Vec<String>,
    pub(super) root: PathBuf,
}

impl Launch {
    fn is_rust_analyzer(&self) -> bool {
        self.argv.first().is_some_and(|program| program.rsplit('/').next() == Some("rust-analyzer"))
    }

    /// What a server is told about how to work, by the section it asks for.
    fn settings(&self, scope: &Scope) -> Value {
        if !self.is_rust_analyzer() {
            return json!({});
        }
        // Its own build must neither wait for the user's nor need a workspace it may write.
        let target = match &scope.sandbox {
            Some(confinement) => json!(confinement.temporary.join("rust-analyzer")),
            None => json!(true),
        };
        json!({"rust-analyzer": {
            "cargo": {"targetDir": target},
            // To compile is what bash is for; this would do it after every edit.
            "checkOnSave": false,
            "cachePriming": {"enable": false},
            "files": {"watcher": "server"},
        }})
    }
}

/// Whether a server has seen all of the project.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Settled {
    Yes,
    NotYet,
}

#[derive(Debug)]
pub(super) struct Session {
    connection: Connection,
    launch: Launch,
    started: Instant,
    /// Whether it waits to be asked for problems.
    pulls: bool,
    open: Mutex<BTreeMap<PathBuf, Document>>,
    /// Set when the first word has come or its time is over.
    first_word: OnceCell<()>,
}

#[derive(Debug)]
struct Document {
    version: i64,
    opened: u64,
    text: String,
}

impl Session {
    pub(super) async fn start(launch: Launch, scope: &Scope) -> Result<Self, String> {
        let settings = launch.settings(scope);
        let (process, pipes) = Process::start(&launch.argv, &launch.root, scope)
            .map_err(|error| format!("`{}` cannot be started: {error}", launch.argv.join(" ")))?;
        let options = settings.get(&launch.name).cloned().unwrap_or(Value::Null);
        let connection = Connection::new(process, pipes, settings);
        let uri = place::uri_of(&launch.root).ok_or("the workspace has no address")?;
        let params = initialize(&uri, &options);
        let told = connection.request("initialize", params, START).await.map_err(|error| error.to_string())?;
        connection.notify("initialized", json!({})).await.map_err(|error| error.to_string())?;
        let offered = &told["capabilities"];
        let pulls = offered.get("diagnosticProvider").is_some_and(Value::is_object);
        let (open, first_word) = (Mutex::default(), OnceCell::new());
        Ok(Self { connection, launch, started: Instant::now(), pulls, open, first_word })
    }

    pub(super) fn name(&self) -> &str {
        &self.launch.name
    }

    pub(super) fn is_over(&self) -> bool {
        self.connection.heard().borrow().over.is_some()
    }

    /// Whether it could be asked now and would know.
    pub(super) fn is_settled(&self) -> bool {
        let heard = self.connection.heard();
        let heard = heard.borrow();
        heard.over.is_none() && self.has_spoken(&heard) && heard.is_idle()
    }

    fn has_spoken(&self, heard: &Heard) -> bool {
        heard.has_begun() || (!self.launch.is_rust_analyzer() && self.started.elapsed() >= FIRST_WORD)
    }

    /// Waits until it has seen the project, so far as it says.
    pub(super) async fn settle(&self, limit: Duration) -> Settled {
        let end = Instant::now() + limit;
        let mut heard = self.connection.heard();
        let first = if self.launch.is_rust_analyzer() { end } else { self.started + FIRST_WORD };
        self.first_word
            .get_or_init(|| async {
                let _ = timeout_at(first, heard.wait_for(|heard| heard.has_begun() || heard.over.is_some())).await;
            })
            .await;
        let mut heard = self.connection.heard();
        let idle = timeout_at(end, heard.wait_for(|heard| heard.is_idle() || heard.over.is_some())).await;
        if idle.is_ok_and(|heard| heard.is_ok()) { Settled::Yes } else { Settled::NotYet }
    }

    /// Asks about a file that was shown; again where the server says that it was disturbed.
    pub(super) async fn ask(&self, method: &str, params: &Value, limit: Duration) -> Result<Value, LspError> {
        let end = Instant::now() + limit;
        let mut disturbed = 0;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match self.connection.request(method, params.clone(), left).await {
                Err(LspError::Refused { code, .. }) if AGAIN.contains(&code) && disturbed < DISTURBED => {
                    disturbed += 1;
                    // What disturbed it mostly shows as work.
                    self.settle(left).await;
                }
                Err(LspError::Slow { method, .. }) => return Err(LspError::Slow { method, seconds: limit.as_secs() }),
                answered => return answered,
            }
        }
    }

    /// Shows a file with this text, and every other open file as it is now.
    pub(super) async fn show(&self, path: &Path, language: &str, text: &str) -> Result<i64, LspError> {
        let mut open = self.open.lock().await;
        self.refresh(&mut open, path).await?;
        let uri = place::uri_of(path).unwrap_or_default();
        if let Some(document) = open.get_mut(path) {
            if document.text != text {
                document.version += 1;
                text.clone_into(&mut document.text);
                self.changed(&uri, document).await?;
            }
            return Ok(document.version);
        }
        if open.len() >= OPEN
            && let Some(oldest) = open.iter().min_by_key(|(_, document)| document.opened).map(|(path, _)| path.clone())
        {
            open.remove(&oldest);
            self.close(&oldest).await?;
        }
        let item = json!({"uri": uri, "languageId": language, "version": 1, "text": text});
        self.connection.notify("textDocument/didOpen", json!({"textDocument": item})).await?;
        let opened = open.values().map(|document| document.opened + 1).max().unwrap_or(0);
        open.insert(path.to_owned(), Document { version: 1, opened, text: text.to_owned() });
        Ok(1)
    }

    /// Files that something else has changed, or removed, are shown again.
    async fn refresh(&self, open: &mut BTreeMap<PathBuf, Document>, but: &Path) -> Result<(), LspError> {
        let mut gone = Vec::new();
        for (path, document) in open.iter_mut().filter(|(path, _)| path.as_path() != but) {
            match files::read(path, SHOWN) {
                Ok(text) if text == document.text => {}
                Ok(text) => {
                    document.version += 1;
                    document.text = text;
                    self.changed(&place::uri_of(path).unwrap_or_default(), document).await?;
                }
                Err(_) => gone.push(path.clone()),
            }
        }
        for path in gone {
            open.remove(&path);
            self.close(&path).await?;
        }
        Ok(())
    }

    async fn changed(&self, uri: &str, document: &Document) -> Result<(), LspError> {
        let named = json!({"uri": uri, "version": document.version});
        let params = json!({"textDocument": named, "contentChanges": [{"text": document.text}]});
        self.connection.notify("textDocument/didChange", params).await?;
        self.connection.notify("textDocument/didSave", json!({"textDocument": {"uri": uri}})).await
    }

    async fn close(&self, path: &Path) -> Result<(), LspError> {
        let uri = place::uri_of(path).unwrap_or_default();
        self.connection.notify("textDocument/didClose", json!({"textDocument": {"uri": uri}})).await
    }

    /// Tells of a file that was written, open or not.
    pub(super) async fn tell_changed(&self, path: &Path, kind: u8) -> Result<(), LspError> {
        let change = json!({"uri": place::uri_of(path).unwrap_or_default(), "type": kind});
        self.connection.notify("workspace/didChangeWatchedFiles", json!({"changes": [change]})).await
    }

    /// What is wrong with a file that has this text.
    pub(super) async fn problems(
        &self,
        path: &Path,
        language: &str,
        text: &str,
        limit: Duration,
    ) -> Result<Vec<Problem>, LspError> {
        let mut heard = self.connection.heard();
        let known = |heard: &Heard| heard.problems.get(path).map_or(0, |published| published.count);
        let shown = self.open.lock().await.get(path).is_some_and(|document| document.text == text);
        let before = if shown { 0 } else { known(&heard.borrow()) };
        let version = self.show(path, language, text).await?;
        if self.pulls || heard.borrow().pulls {
            let uri = place::uri_of(path).unwrap_or_default();
            let params = json!({"textDocument": {"uri": uri}});
            let answer = self.ask("textDocument/diagnostic", &params, limit).await?;
            return Ok(Problem::all(&answer["items"]));
        }
        let fresh = |heard: &Heard| {
            heard.over.is_some()
                || heard.problems.get(path).is_some_and(|published| {
                    published.count > before && published.version.is_none_or(|published| published >= version)
                })
        };
        let slow = || LspError::Slow { method: "textDocument/publishDiagnostics".to_owned(), seconds: limit.as_secs() };
        let heard = timeout(limit, heard.wait_for(fresh)).await.map_err(|_| slow())?.map_err(|_| slow())?;
        match &heard.over {
            Some(why) => Err(LspError::Over(why.clone())),
            None => Ok(heard.problems.get(path).map(|published| published.problems.clone()).unwrap_or_default()),
        }
    }

    #[cfg(test)]
    pub(super) fn living(&self) -> Vec<i32> {
        self.connection.living()
    }
}

fn initialize(uri: &str, options: &Value) -> Value {
    json!({
        // Some servers end with this process; where pids are other ones inside, they would end at once.
        "processId": null,
        "clientInfo": {"name": "decode", "version": env!("CARGO_PKG_VERSION")},
        "rootUri": uri,
        "workspaceFolders": [{"uri": uri, "name": "workspace"}],
        "initializationOptions": options,
        "capabilities": {
            "general": {"positionEncodings": ["utf-16"]},
            "window": {"workDoneProgress": true},
            "workspace": {
                "configuration": true,
                "workspaceFolders": true,
                "didChangeWatchedFiles": {"dynamicRegistration": true},
                "diagnostics": {"refreshSupport": true}
            },
            "textDocument": {
                "synchronization": {"didSave": true},
                "definition": {"linkSupport": true},
                "references": {},
                "hover": {"contentFormat": ["markdown", "plaintext"]},
                "publishDiagnostics": {"versionSupport": true},
                "diagnostic": {"dynamicRegistration": true}
            },
            "experimental": {"serverStatusNotification": true}
        }
    })
}
