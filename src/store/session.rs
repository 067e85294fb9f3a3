//! `session.jsonl`: the lossless transcript. Append only, one writer, tolerant to read.
//!
//! A record is one line and one write. What a torn disk or a killed process leaves behind is reported with its line
//! and skipped; every sound record is kept. Deliberately absent: turning a conversation into a provider's.

use std::io::{BufRead, BufReader, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::files::{self, FileError, Locked};
use crate::model::message::{Message, ToolCall, ToolResult};
use crate::model::time::Timestamp;

/// The version of a record.
const VERSION: u64 = 1;

/// A longer line is no record of ours, whatever stands in it.
const LONGEST_LINE: usize = 64 * 1024 * 1024;

/// What is held of a conversation at most before old tool results are let go. No model takes in as much.
const HELD: usize = 32 * 1024 * 1024;

/// A tool result shorter than this is not worth letting go.
const SHORT: usize = 200;

/// Stands for a tool result that is only in the file.
const LET_GO: &str = "[left out: this older result is too long ago; call the tool again if you need it]";

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
    /// What the conversation goes on from: all that was said, or what the last summary left of it.
    pub(crate) messages: Vec<Message>,
    pub(crate) damage: Vec<Damage>,
}

/// The writing end of a session.
#[derive(Debug)]
pub(crate) struct Session {
    file: Locked,
    path: PathBuf,
    /// The file does not end in a line feed: the next record starts with one.
    torn: bool,
    /// The file that this one goes on from under the same id: nobody else goes on from it meanwhile.
    _earlier: Option<Locked>,
}

impl Session {
    /// Begins a session, or goes on with the one that is there. A new one starts with the sound records of `earlier`.
    ///
    /// Under the same id it goes on from there, which one process at a time can do; under another id it is a copy.
    pub(crate) fn begin(
        path: &Path,
        id: &str,
        earlier: Option<&Path>,
        at: Timestamp,
    ) -> Result<(Self, History), SessionError> {
        let mut damage = Vec::new();
        let mut goes_on_from = None;
        if !path.exists() {
            let header = format!("{}\n", json!({"v": VERSION, "type": "session", "id": id, "at": at.to_string()}));
            if let Some(earlier) = earlier {
                if id_of(earlier)?.is_none_or(|other| other == id) {
                    goes_on_from = Some(held(open(earlier)?, earlier)?);
                }
                damage = copy(earlier, path, &header)?;
            } else {
                files::create(path, header.as_bytes())?;
            }
        }
        let wrong = |source| FileError::Write { path: path.to_owned(), source };
        let file = std::fs::OpenOptions::new().read(true).append(true).open(path).map_err(wrong)?;
        let mut file = held(file, path)?;
        let mut gathered = Gathered::default();
        let end = each_line(BufReader::new(file.file()), path, |line| gathered.take(line).map(drop))?;
        file.file().seek(SeekFrom::End(0)).map_err(wrong)?;
        let mut history = gathered.history;
        history.damage.splice(..0, damage);
        let session = Self { file, path: path.to_owned(), torn: end == End::Torn, _earlier: goes_on_from };
        Ok((session, history))
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

    /// The conversation goes on from these messages. What was said before stays in the file, for readers.
    pub(crate) fn compacted(&mut self, messages: &[Message], at: Timestamp) -> Result<(), SessionError> {
        let fields =
            Map::from_iter([("type".to_owned(), json!("compacted")), ("messages".to_owned(), json!(messages))]);
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
    let mut gathered = Gathered::default();
    each_line(BufReader::new(open(path)?), path, |line| gathered.take(line).map(drop))?;
    Ok(gathered.history)
}

/// The id in a session's first record, if that is sound. Reads no further.
pub(crate) fn id_of(path: &Path) -> Result<Option<String>, SessionError> {
    let mut reader = BufReader::new(open(path)?);
    let mut line = Line { number: 1, ..Line::default() };
    line.read(&mut reader).map_err(|source| FileError::Read { path: path.to_owned(), source })?;
    match parse(&line.bytes) {
        Ok(Record::Header(id)) => Ok(Some(id)),
        Ok(Record::Message(_) | Record::Compacted(_) | Record::Note) | Err(_) => Ok(None),
    }
}

fn open(path: &Path) -> Result<std::fs::File, SessionError> {
    Ok(std::fs::File::open(path).map_err(|source| FileError::Read { path: path.to_owned(), source })?)
}

fn held(file: std::fs::File, path: &Path) -> Result<Locked, SessionError> {
    let locked = Locked::at_once(file).map_err(|source| FileError::Read { path: path.to_owned(), source })?;
    locked.ok_or_else(|| SessionError::Busy { path: path.to_owned() })
}

/// Copies the sound records of a session behind a header of its own; what is not sound is told.
///
/// Whole from the start: an attempt that dies while it copies must not pass for a short session.
fn copy(earlier: &Path, path: &Path, header: &str) -> Result<Vec<Damage>, SessionError> {
    let reader = BufReader::new(open(earlier)?);
    let mut gathered = Gathered { keep: Keep::Damage, ..Gathered::default() };
    let mut fault = None;
    files::create_by(path, |file| {
        let mut file = BufWriter::new(file);
        file.write_all(header.as_bytes())?;
        let mut written = Ok(());
        let copied = each_line(reader, earlier, |line| {
            if gathered.take(line)? && written.is_ok() {
                written = file.write_all(line.bytes.trim_ascii()).and_then(|()| file.write_all(b"\n"));
            }
            Ok(())
        });
        fault = copied.err();
        written?;
        file.flush()
    })?;
    match fault {
        None => Ok(gathered.history.damage),
        Some(error) => {
            // Not whole after all. The error says more than a file that cannot be removed.
            let _ = std::fs::remove_file(path);
            Err(error)
        }
    }
}

/// A line of the file without its NUL bytes and its line feed.
#[derive(Debug, Default)]
struct Line {
    number: usize,
    bytes: Vec<u8>,
    /// A crash of the file system leaves blocks of NUL bytes, also in front of a sound record.
    zeros: usize,
    /// Bytes beyond the longest line, which are not held.
    beyond: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// After a line feed, or of an empty file.
    Whole,
    Torn,
}

impl Line {
    /// Reads the next line. `None` after the last.
    fn read(&mut self, reader: &mut impl BufRead) -> std::io::Result<Option<End>> {
        (self.zeros, self.beyond) = (0, 0);
        self.bytes.clear();
        let mut began = false;
        loop {
            let buffer = reader.fill_buf()?;
            if buffer.is_empty() {
                return Ok(began.then_some(End::Torn));
            }
            began = true;
            let feed = buffer.iter().position(|byte| *byte == b'\n');
            let taken = feed.unwrap_or(buffer.len());
            for byte in &buffer[..taken] {
                match byte {
                    0 => self.zeros += 1,
                    _ if self.bytes.len() == LONGEST_LINE => self.beyond += 1,
                    byte => self.bytes.push(*byte),
                }
            }
            reader.consume(taken + usize::from(feed.is_some()));
            if feed.is_some() {
                return Ok(Some(End::Whole));
            }
        }
    }
}

/// Goes through a file line by line, holding one at a time.
fn each_line(
    mut reader: impl BufRead,
    path: &Path,
    mut take: impl FnMut(&Line) -> Result<(), Newer>,
) -> Result<End, SessionError> {
    let mut line = Line::default();
    let mut end = End::Whole;
    loop {
        line.number += 1;
        let read = line.read(&mut reader).map_err(|source| FileError::Read { path: path.to_owned(), source })?;
        let Some(ended) = read else { return Ok(end) };
        end = ended;
        take(&line).map_err(|Newer(v)| SessionError::Newer { path: path.to_owned(), line: line.number, v })?;
    }
}

/// What is kept of a file while it is read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Keep {
    #[default]
    Conversation,
    Damage,
}

/// A history as it is read, never larger than is held of one.
#[derive(Debug, Default)]
struct Gathered {
    history: History,
    keep: Keep,
    bytes: usize,
    /// Results before this one were let go.
    let_go: usize,
}

impl Gathered {
    /// Takes a line in. Whether it is a sound record that belongs into a copy.
    fn take(&mut self, line: &Line) -> Result<bool, Newer> {
        let mut damaged = |what: String| self.history.damage.push(Damage { line: line.number, what });
        if line.zeros > 0 {
            damaged(format!("{} NUL bytes", line.zeros));
        }
        if line.beyond > 0 {
            damaged(format!("a line of more than {LONGEST_LINE} bytes"));
            return Ok(false);
        }
        if line.bytes.iter().all(u8::is_ascii_whitespace) {
            return Ok(false);
        }
        match (parse(&line.bytes), self.keep) {
            (Ok(Record::Header(id)), _) => {
                self.history.id.get_or_insert(id);
                Ok(false)
            }
            (Ok(Record::Message(message)), Keep::Conversation) => {
                self.hold(message);
                Ok(true)
            }
            (Ok(Record::Compacted(messages)), Keep::Conversation) => {
                (self.bytes, self.let_go) = (0, 0);
                self.history.messages.clear();
                messages.into_iter().for_each(|message| self.hold(message));
                Ok(true)
            }
            (Ok(Record::Message(_) | Record::Compacted(_) | Record::Note), _) => Ok(true),
            (Err(Unsound::Damage(what)), _) => {
                damaged(what);
                Ok(false)
            }
            (Err(Unsound::Newer(newer)), _) => Err(newer),
        }
    }

    fn hold(&mut self, message: Message) {
        self.bytes += held_bytes(&message);
        self.history.messages.push(message);
        if self.bytes <= HELD {
            return;
        }
        let messages = &mut self.history.messages;
        while self.bytes > HELD / 2 && self.let_go + 1 < messages.len() {
            if let Message::Tool(result) = &mut messages[self.let_go]
                && result.output.len() > SHORT
            {
                self.bytes -= result.output.len() - LET_GO.len();
                result.output = LET_GO.to_owned();
                self.bytes -= result.images.drain(..).map(|image| image.data.len()).sum::<usize>();
            }
            self.let_go += 1;
        }
    }
}

fn held_bytes(message: &Message) -> usize {
    match message {
        Message::User(user) => user.text.len(),
        Message::Assistant(answer) => answer.text.len(),
        Message::Tool(result) => {
            result.output.len() + result.images.iter().map(|image| image.data.len()).sum::<usize>()
        }
    }
}

/// A sound line.
enum Record {
    Header(String),
    Message(Message),
    /// The conversation goes on from these.
    Compacted(Vec<Message>),
    Note,
}

/// The version of a record that we do not know.
#[derive(Debug)]
struct Newer(u64);

#[derive(Debug)]
enum Unsound {
    Newer(Newer),
    Damage(String),
}

fn parse(line: &[u8]) -> Result<Record, Unsound> {
    let damage = |what: String| Unsound::Damage(what);
    let text = std::str::from_utf8(line).map_err(|_| damage("not UTF-8 text".into()))?;
    let mut fields: Map<String, Value> =
        serde_json::from_str(text).map_err(|error| damage(format!("not a whole record: {error}")))?;
    match fields.get("v").and_then(Value::as_u64) {
        Some(v) if v > VERSION => return Err(Unsound::Newer(Newer(v))),
        Some(_) | None => {}
    }
    let unsound = |error: serde_json::Error| damage(format!("not a sound message: {error}"));
    match fields.get("type").and_then(Value::as_str) {
        Some("session") => Ok(Record::Header(fields.get("id").and_then(Value::as_str).unwrap_or_default().to_owned())),
        Some("note") => Ok(Record::Note),
        Some("compacted") => {
            let messages = fields.remove("messages").unwrap_or_default();
            serde_json::from_value(messages).map(Record::Compacted).map_err(unsound)
        }
        Some("user" | "assistant" | "tool") => {
            serde_json::from_value(Value::Object(fields)).map(Record::Message).map_err(unsound)
        }
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
