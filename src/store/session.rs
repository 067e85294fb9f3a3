//! `session.jsonl`: the lossless transcript. Append only, one writer, tolerant to read.
//!
//! A record is one line and one write. What a torn disk or a killed process leaves behind is reported with its line
//! and skipped; every sound record is kept. Deliberately absent: turning a conversation into a provider's.

use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::files::{self, FileError, Locked};
use crate::model::message::{Message, ToolCall, ToolResult};
use crate::model::time::Timestamp;

/// The version of a record.
const VERSION: u64 = 1;

#[derive(Debug, thiserror::Error)]
pub(crate) enum SessionError {
    #[error("failed to reach the session")]
    File(#[from] FileError),
    #[error("the session `{path}` is in use by another process")]
    Busy { path: PathBuf },
    #[error("line {line} of the session `{path}` has version {v}; this decode knows {VERSION}")]
    Newer { path: PathBuf, line: usize, v: u64 },
}

/// A line that could not be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Damage {
    pub(crate) line: usize,
    pub(crate) what: String,
}

/// What a session file holds.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct History {
    /// The session's id, if its first line is sound.
    pub(crate) id: Option<String>,
    pub(crate) messages: Vec<Message>,
    pub(crate) damage: Vec<Damage>,
    /// The sound lines but the first, as they stand in the file.
    lines: Vec<String>,
}

/// The writing end of a session.
#[derive(Debug)]
pub(crate) struct Session {
    file: Locked,
    path: PathBuf,
    /// The file does not end in a line feed: the next record starts with one.
    torn: bool,
}

impl Session {
    /// Begins a session, or goes on with the one that is there. A new one starts with the sound records of `earlier`.
    pub(crate) fn begin(
        path: &Path,
        id: &str,
        earlier: Option<&Path>,
        at: Timestamp,
    ) -> Result<(Self, History), SessionError> {
        let mut damage = Vec::new();
        if !path.exists() {
            let mut content = format!("{}\n", json!({"v": VERSION, "type": "session", "id": id, "at": at.to_string()}));
            if let Some(earlier) = earlier {
                let history = copyable(earlier)?;
                for line in &history.lines {
                    content.push_str(line);
                    content.push('\n');
                }
                damage = history.damage;
            }
            // Whole from the start: an attempt that dies while it copies must not pass for a short session.
            files::create(path, content.as_bytes())?;
        }
        let wrong = |source| FileError::Write { path: path.to_owned(), source };
        let file = std::fs::OpenOptions::new().read(true).append(true).open(path).map_err(wrong)?;
        let mut file = held(file, path)?;
        let mut bytes = Vec::new();
        file.file().read_to_end(&mut bytes).map_err(wrong)?;
        file.file().seek(SeekFrom::End(0)).map_err(wrong)?;
        let mut history = scan(&bytes, path)?;
        history.damage.splice(..0, damage);
        let torn = bytes.last().is_some_and(|byte| *byte != b'\n');
        Ok((Self { file, path: path.to_owned(), torn }, history))
    }

    pub(crate) fn append(&mut self, message: &Message, at: Timestamp) -> Result<(), SessionError> {
        let Ok(Value::Object(fields)) = serde_json::to_value(message) else {
            unreachable!("a message is a JSON object with a type")
        };
        self.record(fields, at)
    }

    /// Something a reader of the transcript should know and the model should not.
    pub(crate) fn note(&mut self, text: &str, at: Timestamp) -> Result<(), SessionError> {
        let fields = Map::from_iter([("type".to_owned(), json!("note")), ("text".to_owned(), json!(text))]);
        self.record(fields, at)
    }

    fn record(&mut self, fields: Map<String, Value>, at: Timestamp) -> Result<(), SessionError> {
        let mut record = Map::from_iter([("v".to_owned(), json!(VERSION)), ("at".to_owned(), json!(at.to_string()))]);
        record.extend(fields);
        let start = if self.torn { "\n" } else { "" };
        let line = format!("{start}{}\n", Value::Object(record));
        // A write that fails may have written a part.
        self.torn = true;
        self.file
            .file()
            .write_all(line.as_bytes())
            .map_err(|source| FileError::Write { path: self.path.clone(), source })?;
        self.torn = false;
        Ok(())
    }
}

/// Reads a session. Nobody needs to hold it.
pub(crate) fn read(path: &Path) -> Result<History, SessionError> {
    let bytes = std::fs::read(path).map_err(|source| FileError::Read { path: path.to_owned(), source })?;
    scan(&bytes, path)
}

/// Reads a session that nobody is writing.
fn copyable(path: &Path) -> Result<History, SessionError> {
    let file = std::fs::File::open(path).map_err(|source| FileError::Read { path: path.to_owned(), source })?;
    let _held = held(file, path)?;
    read(path)
}

fn held(file: std::fs::File, path: &Path) -> Result<Locked, SessionError> {
    let locked = Locked::at_once(file).map_err(|source| FileError::Read { path: path.to_owned(), source })?;
    locked.ok_or_else(|| SessionError::Busy { path: path.to_owned() })
}

fn scan(bytes: &[u8], path: &Path) -> Result<History, SessionError> {
    let mut history = History::default();
    for (index, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        let number = index + 1;
        // A crash of the file system leaves blocks of NUL bytes, also in front of a sound record.
        let kept: Vec<u8> = line.iter().copied().filter(|byte| *byte != 0).collect();
        let zeros = line.len() - kept.len();
        if zeros > 0 {
            history.damage.push(Damage { line: number, what: format!("{zeros} NUL bytes") });
        }
        if kept.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        match parse(&kept) {
            Ok(Record::Header(id)) => history.id = history.id.or(Some(id)),
            Ok(Record::Message(message, text)) => {
                history.messages.push(message);
                history.lines.push(text);
            }
            Ok(Record::Note(text)) => history.lines.push(text),
            Err(Unsound::Newer(v)) => return Err(SessionError::Newer { path: path.to_owned(), line: number, v }),
            Err(Unsound::Damage(what)) => history.damage.push(Damage { line: number, what }),
        }
    }
    Ok(history)
}

/// A sound line, with its text.
enum Record {
    Header(String),
    Message(Message, String),
    Note(String),
}

enum Unsound {
    Newer(u64),
    Damage(String),
}

fn parse(line: &[u8]) -> Result<Record, Unsound> {
    let damage = |what: String| Unsound::Damage(what);
    let text = std::str::from_utf8(line).map_err(|_| damage("not UTF-8 text".into()))?;
    let fields: Map<String, Value> =
        serde_json::from_str(text).map_err(|error| damage(format!("not a whole record: {error}")))?;
    match fields.get("v").and_then(Value::as_u64) {
        Some(v) if v > VERSION => return Err(Unsound::Newer(v)),
        Some(_) | None => {}
    }
    let text = text.trim().to_owned();
    match fields.get("type").and_then(Value::as_str) {
        Some("session") => Ok(Record::Header(fields.get("id").and_then(Value::as_str).unwrap_or_default().to_owned())),
        Some("note") => Ok(Record::Note(text)),
        Some("user" | "assistant" | "tool") => serde_json::from_value(Value::Object(fields))
            .map(|message| Record::Message(message, text))
            .map_err(|error| damage(format!("not a sound message: {error}"))),
        Some(other) => Err(damage(format!("unknown record type `{other}`"))),
        None => Err(damage("a record without a type".into())),
    }
}

/// A conversation that every provider takes: each call has exactly one result, right after the answer that made it.
///
/// What has no result was interrupted and says so; what answers no call is dropped.
pub(crate) fn repair(messages: Vec<Message>) -> Vec<Message> {
    let mut sound = Vec::with_capacity(messages.len());
    let mut rest = messages.into_iter().peekable();
    while let Some(message) = rest.next() {
        match message {
            // A result where none is awaited.
            Message::Tool(_) => {}
            Message::User(user) => sound.push(Message::User(user)),
            Message::Assistant(assistant) => {
                let calls = assistant.calls.clone();
                sound.push(Message::Assistant(assistant));
                let mut results = Vec::new();
                while let Some(Message::Tool(result)) = rest.next_if(|next| matches!(next, Message::Tool(_))) {
                    results.push(result);
                }
                for call in calls {
                    let at = results.iter().position(|result| result.call == call.id);
                    let result = at.map_or_else(|| interrupted(&call), |at| results.remove(at));
                    sound.push(Message::Tool(result));
                }
            }
        }
    }
    sound
}

/// The result of a call of which none was recorded.
pub(crate) fn interrupted(call: &ToolCall) -> ToolResult {
    ToolResult {
        call: call.id.clone(),
        name: call.name.clone(),
        ok: false,
        output: "interrupted: the process ended before this call had a result; look whether it took effect".into(),
        images: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::message::{AssistantMessage, ToolInput, UserMessage};

    const AT: Timestamp = Timestamp::from_millis(0);

    fn user(text: &str) -> Message {
        Message::User(UserMessage { text: text.into(), by: "task".into() })
    }

    fn calls(ids: &[&str]) -> Message {
        let call = |id: &&str| ToolCall {
            id: (*id).into(),
            name: "read".into(),
            input: ToolInput::Broken { broken: "{\"path\": \"é".into() },
        };
        Message::Assistant(AssistantMessage { calls: ids.iter().map(call).collect(), ..Default::default() })
    }

    fn result(id: &str) -> Message {
        Message::Tool(ToolResult {
            call: id.into(),
            name: "read".into(),
            ok: true,
            output: format!("of {id}"),
            images: Vec::new(),
        })
    }

    fn outputs(messages: &[Message]) -> Vec<String> {
        messages
            .iter()
            .map(|message| match message {
                Message::User(user) => format!("user {}", user.text),
                Message::Assistant(answer) => format!("answer {}", answer.calls.len()),
                Message::Tool(result) if result.ok => result.output.clone(),
                Message::Tool(result) => format!("{} {}", result.call, crate::text::prefix(&result.output, 11)),
            })
            .collect()
    }

    fn written(path: &Path, messages: &[Message]) {
        let (mut session, _) = Session::begin(path, "id", None, AT).unwrap();
        for message in messages {
            session.append(message, AT).unwrap();
        }
    }

    #[test]
    fn a_session_is_read_back_with_broken_arguments_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("session.jsonl");
        let messages = vec![user("a\nb\u{2028}c"), calls(&["1"]), result("1")];
        written(&path, &messages);
        let history = read(&path).unwrap();
        assert_eq!((history.id.as_deref(), &history.messages), (Some("id"), &messages));
        assert!(history.damage.is_empty());
    }

    #[test]
    fn a_session_torn_at_any_byte_of_its_last_record_resumes_twice() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("session.jsonl");
        written(&path, &[user("first"), user("日本語 last")]);
        let whole = std::fs::read(&path).unwrap();
        let last = whole[..whole.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
        for cut in last..=whole.len() {
            std::fs::write(&path, &whole[..cut]).unwrap();
            let (mut session, before) = Session::begin(&path, "id", None, AT).unwrap();
            assert_eq!(before.messages[0], user("first"));
            session.append(&user("added"), AT).unwrap();
            drop(session);
            let (_, after) = Session::begin(&path, "id", None, AT).unwrap();
            assert_eq!(after.messages[..before.messages.len()], before.messages, "cut at {cut}");
            assert_eq!(after.messages.last(), Some(&user("added")), "cut at {cut}");
            // Only the torn record is lost: whole without its line feed is whole.
            assert_eq!(before.messages.len(), if cut + 1 >= whole.len() { 2 } else { 1 }, "cut at {cut}");
        }
    }

    #[test]
    fn damage_is_reported_with_its_line_and_every_sound_record_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("session.jsonl");
        written(&path, &[user("a"), user("b"), user("c")]);
        let text = std::fs::read_to_string(&path).unwrap();
        let mut lines: Vec<Vec<u8>> = text.lines().map(|line| line.as_bytes().to_vec()).collect();
        lines.insert(2, vec![0; 300]);
        lines.insert(4, b"{\"v\":1,\"type\":\"user\"}".to_vec());
        lines.insert(5, b"not json \xff".to_vec());
        lines.insert(6, b"{\"v\":1,\"type\":\"thought\"}".to_vec());
        let mut joined = [vec![0; 7], lines.last().unwrap().clone()].concat();
        std::mem::swap(lines.last_mut().unwrap(), &mut joined);
        std::fs::write(&path, lines.join(&b'\n')).unwrap();
        let history = read(&path).unwrap();
        assert_eq!(history.messages, [user("a"), user("b"), user("c")]);
        let damaged: Vec<usize> = history.damage.iter().map(|damage| damage.line).collect();
        assert_eq!(damaged, [3, 5, 6, 7, 8]);
    }

    #[test]
    fn a_record_of_a_newer_version_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("session.jsonl");
        std::fs::write(&path, "{\"v\":2,\"type\":\"session\",\"id\":\"x\"}\n").unwrap();
        assert!(matches!(read(&path), Err(SessionError::Newer { line: 1, v: 2, .. })));
    }

    #[test]
    fn two_processes_do_not_write_one_session() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("session.jsonl");
        let first = Session::begin(&path, "id", None, AT).unwrap();
        assert!(matches!(Session::begin(&path, "id", None, AT), Err(SessionError::Busy { .. })));
        let copy = directory.path().join("copy.jsonl");
        assert!(matches!(Session::begin(&copy, "id", Some(&path), AT), Err(SessionError::Busy { .. })));
        drop(first);
        assert!(Session::begin(&path, "id", None, AT).is_ok());
    }

    #[test]
    fn a_resumed_session_holds_the_sound_records_of_the_earlier_one() {
        let directory = tempfile::tempdir().unwrap();
        let (earlier, path) = (directory.path().join("1.jsonl"), directory.path().join("2.jsonl"));
        written(&earlier, &[user("a"), user("b")]);
        let mut text = std::fs::read(&earlier).unwrap();
        text.truncate(text.len() - 9);
        std::fs::write(&earlier, text).unwrap();
        let (mut session, history) = Session::begin(&path, "id", Some(&earlier), AT).unwrap();
        assert_eq!(history.messages, [user("a")]);
        assert_eq!(history.damage.len(), 1);
        session.append(&user("c"), AT).unwrap();
        let whole = read(&path).unwrap();
        assert_eq!((whole.messages, whole.damage), (vec![user("a"), user("c")], vec![]));
    }

    #[test]
    fn every_call_gets_exactly_one_result() {
        let sound = [user("x"), calls(&["1", "2", "3"]), result("1"), result("2"), result("3"), user("y")];
        assert_eq!(repair(sound.to_vec()), sound);
        // Interrupted at any point.
        for kept in 2..=5 {
            let repaired = repair(sound[..kept].to_vec());
            let want: Vec<String> = (1..=3)
                .map(|id| if id + 2 <= kept { format!("of {id}") } else { format!("{id} interrupted") })
                .collect();
            assert_eq!(outputs(&repaired)[2..], want, "kept {kept}");
        }
        let messy = vec![result("9"), calls(&["1", "1"]), result("1"), result("7"), user("y"), result("1")];
        assert_eq!(outputs(&repair(messy)), ["answer 2", "of 1", "1 interrupted", "user y"]);
    }
}
