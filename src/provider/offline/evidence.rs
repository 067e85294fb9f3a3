//! What has been seen so far: every line, path and search in the conversation, and nothing that was not there.
//!
//! Deliberately absent: judgement. Whether a line answers anything is said in `rank.rs`.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::{Map, Value};

use crate::model::message::{Message, ToolCall, ToolInput, ToolResult};
use crate::text::prefix;

/// Bytes of a question that nobody writes by chance.
const QUOTED: usize = 32;

/// The lines of one file, by number.
pub(super) type Lines<'a> = BTreeMap<usize, &'a str>;

/// One call of the past.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Asked<'a> {
    pub(super) call: &'a ToolCall,
    /// `None` while there is no answer, as after a crash.
    pub(super) result: Option<&'a ToolResult>,
}

impl Asked<'_> {
    pub(super) fn argument(&self, key: &str) -> Option<&str> {
        input(self.call).and_then(|input| input.get(key)).and_then(Value::as_str)
    }

    pub(super) fn found_something(&self) -> bool {
        self.result.is_some_and(|result| result.ok && !result.output.trim().is_empty())
    }
}

fn input(call: &ToolCall) -> Option<&Map<String, Value>> {
    match &call.input {
        ToolInput::Sound(input) => Some(input),
        ToolInput::Broken { .. } => None,
    }
}

/// All that the conversation has shown.
#[derive(Debug, Default)]
pub(super) struct Evidence<'a> {
    pub(super) files: BTreeMap<&'a str, Lines<'a>>,
    /// Paths that `glob` named.
    pub(super) paths: BTreeSet<&'a str>,
    pub(super) asked: Vec<Asked<'a>>,
    /// Turns with calls since the newest question.
    pub(super) turns: usize,
}

impl<'a> Evidence<'a> {
    pub(super) fn of(messages: &'a [Message], newest_question: usize) -> Self {
        let mut evidence = Self::default();
        // Ids need only be unique within a turn, so a result belongs to the last call of its id.
        let mut calls: HashMap<&str, usize> = HashMap::new();
        for (index, message) in messages.iter().enumerate() {
            match message {
                Message::User(_) => {}
                Message::Assistant(turn) => {
                    evidence.turns += usize::from(index > newest_question && !turn.calls.is_empty());
                    for call in &turn.calls {
                        calls.insert(&call.id, evidence.asked.len());
                        evidence.asked.push(Asked { call, result: None });
                    }
                }
                Message::Tool(result) => {
                    if let Some(asked) = calls.get(result.call.as_str()).map(|place| &mut evidence.asked[*place]) {
                        asked.result = Some(result);
                        let call = asked.call;
                        evidence.take(call, result);
                    }
                }
            }
        }
        evidence.forget_quotations(messages);
        evidence
    }

    /// A line that quotes the question, as a script that asks it does, is no answer to it.
    fn forget_quotations(&mut self, messages: &[Message]) {
        let quoted = messages.iter().filter_map(|message| match message {
            Message::User(asked) => asked.text.lines().map(str::trim).find(|line| line.len() >= QUOTED),
            Message::Assistant(_) | Message::Tool(_) => None,
        });
        for start in quoted.map(|line| prefix(line, QUOTED)) {
            for lines in self.files.values_mut() {
                lines.retain(|_, line| !line.contains(start));
            }
        }
        self.files.retain(|_, lines| !lines.is_empty());
    }

    fn take(&mut self, call: &'a ToolCall, result: &'a ToolResult) {
        if !result.ok {
            return;
        }
        let lines = result.output.lines();
        match call.name.as_str() {
            "grep" => lines.filter_map(found_line).for_each(|(path, number, text)| self.see(path, number, text)),
            "read" => {
                let path = input(call).and_then(|input| input.get("path")).and_then(Value::as_str);
                let Some(path) = path else { return };
                lines.filter_map(numbered_line).for_each(|(number, text)| self.see(plain(path), number, text));
            }
            "glob" => self.paths.extend(lines.map(|line| plain(line.trim())).filter(|line| is_path(line))),
            _ => {}
        }
    }

    /// A search may cut a long line that a read shows whole.
    fn see(&mut self, path: &'a str, number: usize, text: &'a str) {
        let line = self.files.entry(path).or_default().entry(number).or_insert(text);
        if text.len() > line.len() {
            *line = text;
        }
    }

    /// Whether this very call was made before.
    pub(super) fn has_asked(&self, name: &str, arguments: &Map<String, Value>) -> bool {
        self.asked.iter().any(|asked| asked.call.name == name && input(asked.call) == Some(arguments))
    }

    pub(super) fn line(&self, path: &str, number: usize) -> Option<&'a str> {
        self.files.get(path)?.get(&number).copied()
    }

    /// Paths of files that were read, each once, in order.
    pub(super) fn read_files(&self) -> Vec<&str> {
        let mut read = Vec::new();
        for asked in self.asked.iter().filter(|asked| asked.call.name == "read" && asked.found_something()) {
            if let Some(path) = asked.argument("path").map(plain).filter(|path| !read.contains(path)) {
                read.push(path);
            }
        }
        read
    }
}

fn plain(path: &str) -> &str {
    path.strip_prefix("./").unwrap_or(path)
}

/// `path:line:text`; the path ends before the first number between two colons.
fn found_line(line: &str) -> Option<(&str, usize, &str)> {
    line.match_indices(':').find_map(|(colon, _)| {
        let (number, text) = line[colon + 1..].split_once(':')?;
        let path = plain(&line[..colon]);
        (is_path(path) && number.bytes().all(|b| b.is_ascii_digit()))
            .then(|| Some((path, number.parse().ok()?, text)))?
    })
}

/// `number<tab>text`.
fn numbered_line(line: &str) -> Option<(usize, &str)> {
    let (number, text) = line.split_once('\t')?;
    Some((number.trim().parse().ok()?, text))
}

/// Notices of the tools (`[cut …]`, `(3 more …)`) and places outside are no paths to cite.
fn is_path(text: &str) -> bool {
    !text.is_empty() && text.len() < 400 && !text.starts_with(['/', '(', '[', '…', ' ']) && !text.contains(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_found_line_is_split_at_its_number_and_a_notice_is_no_line() {
        assert_eq!(found_line("src/a.rs:12:    a::b(1:2:3)"), Some(("src/a.rs", 12, "    a::b(1:2:3)")));
        assert_eq!(found_line("./a b.py:1:"), Some(("a b.py", 1, "")));
        assert_eq!(found_line("odd:name.py:7:x"), Some(("odd:name.py", 7, "x")));
        assert_eq!(found_line("[cut at 2,000 lines: see /tmp/x:1:y]"), None);
        assert_eq!(found_line("no number here"), None);
        assert_eq!(numbered_line("    12\tdef a():"), Some((12, "def a():")));
    }

    #[test]
    fn a_result_belongs_to_the_last_call_of_its_id_and_a_failure_is_no_evidence() {
        let call = |name: &str, input: Value| ToolCall {
            id: "1".into(),
            name: name.into(),
            input: ToolInput::from_value(input),
        };
        let turn = |call| {
            Message::Assistant(crate::model::message::AssistantMessage { calls: vec![call], ..Default::default() })
        };
        let answer = |name: &str, ok, output: &str| {
            Message::Tool(ToolResult {
                call: "1".into(),
                name: name.into(),
                ok,
                output: output.into(),
                images: Vec::new(),
            })
        };
        let messages = [
            turn(call("grep", serde_json::json!({"pattern": "x"}))),
            answer("grep", false, "b.rs:1:x"),
            turn(call("read", serde_json::json!({"path": "./a.rs"}))),
            answer("read", true, "1\tfirst\n2\tsecond"),
        ];
        let evidence = Evidence::of(&messages, 0);
        assert_eq!(evidence.line("a.rs", 2), Some("second"));
        assert_eq!(evidence.line("b.rs", 1), None);
        assert_eq!((evidence.read_files(), evidence.turns), (vec!["a.rs"], 1));
    }

    #[test]
    fn a_line_that_quotes_the_question_is_no_answer_to_it() {
        let question = "Where is the state of a child changed? Report path:line.";
        let call = ToolCall {
            id: "1".into(),
            name: "grep".into(),
            input: ToolInput::from_value(serde_json::json!({"pattern": "x"})),
        };
        let output = format!("Makefile:3:  '{question}'\nsrc/child.rs:7:fn change_state()");
        let messages = [
            Message::User(crate::model::message::UserMessage { text: question.into(), by: "task".into() }),
            Message::Assistant(crate::model::message::AssistantMessage { calls: vec![call], ..Default::default() }),
            Message::Tool(ToolResult { call: "1".into(), name: "grep".into(), ok: true, output, images: Vec::new() }),
        ];
        let evidence = Evidence::of(&messages, 0);
        assert_eq!(evidence.line("src/child.rs", 7), Some("fn change_state()"));
        assert!(!evidence.files.contains_key("Makefile"));
    }
}
