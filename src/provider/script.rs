//! `script/FILE`: a model that replays the assistant turns of a `session.jsonl`. No network, no cost.
//!
//! One JSON object a line. `"type":"assistant"` lines are the turns, lines of any other type are skipped, and three
//! kinds of line without a type steer the replay:
//!
//! ```text
//! {"wait_ms": 500}                                    the next turn comes after half a second
//! {"fail": "rate_limited", "retry_after_s": 1}        one request fails before the next turn, once per process
//! {"match": "TEXT"}                                   what follows is for conversations that start with TEXT in them
//! ```
//!
//! The turn is the number of answers the conversation holds already, so a resumed session goes on where it was.
//! Deliberately absent: judging what the conversation says; a script answers whatever it is told.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::{StreamExt, stream};
use serde::Deserialize;
use serde_json::Value;

use super::calls::unique_id;
use super::{EventStream, Provider, ProviderError, ProviderEvent, Request, history};
use crate::files;
use crate::model::message::{Message, StopReason, ToolCall, ToolInput};
use crate::model::time::Timestamp;
use crate::model::usage::Usage;

/// The most that is read of a script.
const LIMIT: u64 = 64 * 1024 * 1024;

#[derive(Debug, thiserror::Error)]
pub(crate) enum ScriptError {
    #[error("there is no script to replay in `{}`", path.display())]
    Read { path: PathBuf, source: files::FileError },
    #[error("{}:{line}: {fault}", path.display())]
    Line { path: PathBuf, line: usize, fault: String },
}

/// A script that has been read.
#[derive(Debug)]
pub(crate) struct Script {
    path: PathBuf,
    /// The first serves every conversation that fits no other.
    sections: Vec<Section>,
}

#[derive(Debug, Default)]
struct Section {
    /// Text of the first user message; `None` for all others.
    fits: Option<String>,
    turns: Vec<Turn>,
    /// What stands after the last turn, to happen before the script is found to be at its end.
    rest: Turn,
}

/// What one request gets, once what stands before it has happened.
#[derive(Debug, Default)]
struct Turn {
    before: Vec<Before>,
    answer: Answer,
}

#[derive(Debug)]
enum Before {
    Wait(Duration),
    Fail { how: Fail, used: AtomicBool },
}

/// A line that makes a request fail.
#[derive(Debug, Clone, Deserialize)]
struct Fail {
    #[serde(rename = "fail")]
    kind: Kind,
    retry_after_s: Option<f64>,
    until: Option<Timestamp>,
    #[serde(default)]
    detail: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    RateLimited,
    UsageLimit,
    Server,
    Refused,
    Invalid,
    TooLong,
    Unreachable,
    Interrupted,
    /// Not an error: an answer without a word.
    Empty,
}

/// An assistant line, of which people write only what matters to them.
#[derive(Debug, Clone, Default, Deserialize)]
struct Answer {
    #[serde(default)]
    text: String,
    #[serde(default)]
    calls: Vec<Call>,
    usage: Option<Usage>,
    stop: Option<StopReason>,
}

/// Keys of an assistant line that say what the turn is.
const TURN_KEYS: [&str; 3] = ["text", "calls", "stop"];

#[derive(Debug, Clone, Deserialize)]
struct Call {
    #[serde(default)]
    id: String,
    name: String,
    #[serde(default)]
    input: Value,
}

impl Script {
    pub(crate) fn read(path: &Path) -> Result<Self, ScriptError> {
        let text = files::read(path, LIMIT).map_err(|source| ScriptError::Read { path: path.to_owned(), source })?;
        Self::parse(path, &text)
    }

    pub(crate) fn parse(path: &Path, text: &str) -> Result<Self, ScriptError> {
        let mut script = Self { path: path.to_owned(), sections: vec![Section::default()] };
        for (number, line) in text.lines().enumerate() {
            if line.trim().is_empty() {
                continue;
            }
            script.take_line(line).map_err(|fault| ScriptError::Line {
                path: path.to_owned(),
                line: number + 1,
                fault,
            })?;
        }
        Ok(script)
    }

    fn take_line(&mut self, line: &str) -> Result<(), String> {
        let value: Value = serde_json::from_str(line).map_err(|error| format!("not JSON: {error}"))?;
        let section = self.sections.last_mut().expect("a script begins with a section and loses none");
        if let Some(kind) = value.get("type") {
            if kind == "assistant" {
                // The answer of a provider's own log would be read as one without a word.
                if !TURN_KEYS.iter().any(|key| value.get(key).is_some()) {
                    return Err(format!("a turn has one of `{}`", TURN_KEYS.join("`, `")));
                }
                let mut turn = std::mem::take(&mut section.rest);
                turn.answer = read(value)?;
                section.turns.push(turn);
            }
        } else if let Some(wait) = value.get("wait_ms") {
            let millis = wait.as_u64().ok_or_else(|| format!("`wait_ms` is no count of milliseconds: {wait}"))?;
            section.rest.before.push(Before::Wait(Duration::from_millis(millis)));
        } else if value.get("fail").is_some() {
            let how: Fail = read(value)?;
            if how.kind == Kind::UsageLimit && how.until.is_none() {
                return Err("`usage_limit` needs `until`".into());
            }
            section.rest.before.push(Before::Fail { how, used: AtomicBool::new(false) });
        } else if let Some(fits) = value.get("match") {
            let fits = fits.as_str().ok_or_else(|| format!("`match` is no text: {fits}"))?;
            self.sections.push(Section { fits: Some(fits.to_owned()), ..Section::default() });
        } else {
            return Err("neither `type`, `wait_ms`, `fail` nor `match`".into());
        }
        Ok(())
    }

    /// The first section that names a part of the conversation's first user message, else the one for all others.
    fn section(&self, messages: &[Message]) -> &Section {
        let first = messages.iter().find_map(|message| match message {
            Message::User(user) => Some(user.text.as_str()),
            Message::Assistant(_) | Message::Tool(_) => None,
        });
        let first = first.unwrap_or_default();
        let fits = |section: &&Section| section.fits.as_ref().is_some_and(|part| first.contains(part.as_str()));
        self.sections.iter().find(fits).unwrap_or(&self.sections[0])
    }

    async fn answer(&self, request: &Request) -> Result<Vec<ProviderEvent>, ProviderError> {
        let section = self.section(&request.messages);
        let number = request.messages.iter().filter(|message| matches!(message, Message::Assistant(_))).count();
        let found = section.turns.get(number);
        // A failure after the last turn belongs to the request that comes right after it, and to none later.
        let turn = found.or((number == section.turns.len()).then_some(&section.rest));
        for before in turn.iter().flat_map(|turn| &turn.before) {
            match before {
                Before::Wait(time) => tokio::time::sleep(*time).await,
                Before::Fail { how, used } if !used.swap(true, Ordering::Relaxed) => return how.happen(request),
                Before::Fail { .. } => {}
            }
        }
        match found {
            Some(turn) => Ok(turn.answer.events(request)),
            None => Err(ProviderError::Missing { detail: self.at_its_end(section, number) }),
        }
    }

    fn at_its_end(&self, section: &Section, number: usize) -> String {
        let turns = crate::text::count(section.turns.len(), "turn", "turns");
        let part = section.fits.as_ref().map(|fits| format!(" for `{fits}`")).unwrap_or_default();
        format!("script `{}` has {turns}{part} and was asked for number {}", self.path.display(), number + 1)
    }
}

fn read<T: serde::de::DeserializeOwned>(value: Value) -> Result<T, String> {
    serde_json::from_value(value).map_err(|error| error.to_string())
}

impl Fail {
    fn happen(&self, request: &Request) -> Result<Vec<ProviderEvent>, ProviderError> {
        let detail = if self.detail.is_empty() { "as the script says".to_owned() } else { self.detail.clone() };
        let retry_after_s = self.retry_after_s;
        Err(match self.kind {
            Kind::RateLimited => ProviderError::RateLimited { retry_after_s, detail },
            Kind::UsageLimit => {
                let until = self.until.expect("a usage limit without an end is refused when it is read");
                ProviderError::UsageLimit { until, detail }
            }
            Kind::Server => ProviderError::Server { retry_after_s, detail },
            Kind::Refused => ProviderError::Refused { detail },
            Kind::Invalid => ProviderError::Invalid { detail },
            Kind::TooLong => ProviderError::TooLong { detail },
            Kind::Unreachable => ProviderError::Unreachable { detail },
            Kind::Interrupted => ProviderError::Interrupted { detail },
            Kind::Empty => return Ok(Answer::default().events(request)),
        })
    }
}

impl Answer {
    fn events(&self, request: &Request) -> Vec<ProviderEvent> {
        let mut taken = history::call_ids(&request.messages);
        let calls: Vec<ToolCall> = self.calls.iter().map(|call| call.call(&mut taken)).collect();
        let stop = self.stop.unwrap_or(StopReason::End);
        let stop = if calls.is_empty() || stop == StopReason::Refused { stop } else { StopReason::ToolCalls };
        let usage = self.usage.unwrap_or_else(|| self.estimate(request));
        let text = (!self.text.is_empty()).then(|| ProviderEvent::Text(self.text.clone()));
        let calls = calls.into_iter().map(ProviderEvent::Call);
        text.into_iter().chain(calls).chain([ProviderEvent::Finished { usage, stop }]).collect()
    }

    /// A request of a script costs nothing; its tokens are counted so that budgets of tokens can be tried.
    fn estimate(&self, request: &Request) -> Usage {
        let calls = self.calls.iter().map(|call| call.name.len() + call.input.to_string().len());
        let answered = self.text.len() + calls.sum::<usize>();
        Usage {
            requests: 1,
            input_tokens: history::bytes_of(request).div_ceil(4) as u64,
            output_tokens: answered.div_ceil(4) as u64,
            ..Usage::ZERO
        }
    }
}

impl Call {
    fn call(&self, taken: &mut std::collections::HashSet<String>) -> ToolCall {
        // Broken arguments are recorded as `{"$broken": TEXT}`, which is read back as what it was.
        let recorded = serde_json::from_value::<ToolInput>(self.input.clone()).ok();
        let input = recorded.unwrap_or_else(|| ToolInput::from_value(self.input.clone()));
        ToolCall { id: unique_id(self.id.clone(), taken), name: self.name.clone(), input }
    }
}

/// A script as a provider.
pub(crate) struct ScriptModel(Arc<Script>);

impl ScriptModel {
    pub(crate) fn new(script: Script) -> Self {
        Self(Arc::new(script))
    }

    pub(crate) fn open(path: &Path) -> Result<Self, ScriptError> {
        Script::read(path).map(Self::new)
    }
}

impl Provider for ScriptModel {
    fn stream(&self, request: Request) -> EventStream {
        let script = Arc::clone(&self.0);
        let answer = async move {
            let told = script.answer(&request).await;
            let told: Vec<_> =
                told.map_or_else(|error| vec![Err(error)], |events| events.into_iter().map(Ok).collect());
            stream::iter(told)
        };
        Box::pin(stream::once(answer).flatten())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::message::{AssistantMessage, UserMessage};

    fn model(text: &str) -> ScriptModel {
        ScriptModel::new(Script::parse(Path::new("s.jsonl"), text).unwrap())
    }

    /// A conversation that began with `task` and has had so many answers.
    fn request(task: &str, answers: usize) -> Request {
        let task = Message::User(UserMessage { text: task.into(), by: "task".into() });
        let answer = Message::Assistant(AssistantMessage { text: "x".into(), ..AssistantMessage::default() });
        let messages = std::iter::once(task).chain(std::iter::repeat_n(answer, answers)).collect();
        Request { model: "s.jsonl".into(), system: String::new(), messages, tools: Vec::new(), max_tokens: 9 }
    }

    async fn ask(model: &ScriptModel, task: &str, answers: usize) -> Vec<Result<ProviderEvent, ProviderError>> {
        model.stream(request(task, answers)).collect().await
    }

    async fn text(model: &ScriptModel, task: &str, answers: usize) -> Result<String, ProviderError> {
        let mut said = String::new();
        for event in ask(model, task, answers).await {
            if let ProviderEvent::Text(text) = event? {
                said.push_str(&text);
            }
        }
        Ok(said)
    }

    #[tokio::test]
    async fn a_recorded_session_is_replayed_from_where_the_conversation_is() {
        let model = model(concat!(
            r#"{"type":"session","v":1,"later":true}"#,
            "\n",
            r#"{"type":"user","text":"go","by":"task"}"#,
            "\n",
            r#"{"type":"assistant","text":"one","unknown":1}"#,
            "\n\n",
            r#"{"type":"tool","call":"1","name":"read","ok":true,"output":"x"}"#,
            "\n",
            r#"{"type":"assistant","text":"two"}"#,
            "\n",
        ));
        assert_eq!(text(&model, "go", 0).await.as_deref(), Ok("one"));
        assert_eq!(text(&model, "go", 1).await.as_deref(), Ok("two"));
        assert_eq!(text(&model, "go", 1).await.as_deref(), Ok("two"), "asked again, answered again");
        let end = "script `s.jsonl` has 2 turns and was asked for number 3";
        assert_eq!(text(&model, "go", 2).await, Err(ProviderError::Missing { detail: end.into() }));
    }

    #[tokio::test]
    async fn a_section_answers_the_conversations_it_names() {
        let model = model(concat!(
            r#"{"type":"assistant","text":"others"}"#,
            "\n",
            r#"{"match":"alpha"}"#,
            "\n",
            r#"{"type":"assistant","text":"A"}"#,
            "\n",
            r#"{"match":"beta"}"#,
            "\n",
            r#"{"type":"assistant","text":"B"}"#,
        ));
        assert_eq!(text(&model, "do alpha", 0).await.as_deref(), Ok("A"));
        assert_eq!(text(&model, "do beta", 0).await.as_deref(), Ok("B"));
        assert_eq!(text(&model, "do gamma", 0).await.as_deref(), Ok("others"));
        let end = "script `s.jsonl` has 1 turn for `alpha` and was asked for number 2";
        assert_eq!(text(&model, "do alpha", 1).await, Err(ProviderError::Missing { detail: end.into() }));
    }

    #[tokio::test]
    async fn a_failure_happens_once_before_its_turn() {
        let model = model(concat!(
            r#"{"fail":"rate_limited","retry_after_s":1}"#,
            "\n",
            r#"{"fail":"empty"}"#,
            "\n",
            r#"{"type":"assistant","text":"one"}"#,
            "\n",
            r#"{"fail":"server"}"#,
        ));
        let first = text(&model, "go", 0).await;
        assert!(matches!(first, Err(ProviderError::RateLimited { retry_after_s: Some(1.0), .. })));
        let empty = ask(&model, "go", 0).await;
        assert!(matches!(empty[..], [Ok(ProviderEvent::Finished { stop: StopReason::End, .. })]));
        assert_eq!(text(&model, "go", 0).await.as_deref(), Ok("one"));
        assert!(matches!(text(&model, "go", 1).await, Err(ProviderError::Server { .. })));
        assert!(matches!(text(&model, "go", 1).await, Err(ProviderError::Missing { .. })));
    }

    #[tokio::test]
    async fn every_failure_has_a_line() {
        let until = "2026-11-30T21:41:39.000Z";
        for (line, want) in [
            (r#"{"fail":"refused"}"#, "refused the key"),
            (r#"{"fail":"invalid","detail":"why"}"#, "refused the request: why"),
            (r#"{"fail":"too_long"}"#, "too long"),
            (r#"{"fail":"unreachable"}"#, "cannot be reached"),
            (r#"{"fail":"interrupted"}"#, "cut off"),
            (&format!(r#"{{"fail":"usage_limit","until":"{until}"}}"#), until),
        ] {
            let error = text(&model(line), "go", 0).await.unwrap_err().to_string();
            assert!(error.contains(want), "{error}");
        }
    }

    #[tokio::test]
    async fn a_wait_comes_before_the_turn() {
        let model = model("{\"wait_ms\":60}\n{\"type\":\"assistant\",\"text\":\"one\"}");
        let begun = std::time::Instant::now();
        assert_eq!(text(&model, "go", 0).await.as_deref(), Ok("one"));
        assert!(begun.elapsed() >= Duration::from_millis(60));
    }

    #[tokio::test]
    async fn calls_get_ids_and_usage_is_estimated_at_no_cost() {
        let line = json!({"type": "assistant", "calls": [
            {"name": "read", "input": {"path": "a"}},
            {"id": "k", "name": "bash", "input": {"$broken": "{\"co"}},
            {"id": "k", "name": "bash", "input": "{\"command\": \"l"},
        ]});
        let events = ask(&model(&line.to_string()), "12345678", 0).await;
        let calls: Vec<&ToolCall> = events
            .iter()
            .filter_map(|event| if let Ok(ProviderEvent::Call(call)) = event { Some(call) } else { None })
            .collect();
        assert!(!calls[0].id.is_empty() && calls[1].id == "k" && calls[2].id != "k");
        assert!(matches!(&calls[0].input, ToolInput::Sound(map) if map["path"] == "a"));
        assert!(calls[1..].iter().all(|call| matches!(call.input, ToolInput::Broken { .. })));
        let Some(Ok(ProviderEvent::Finished { usage, stop })) = events.last() else { panic!("{events:?}") };
        assert_eq!(*stop, StopReason::ToolCalls);
        assert_eq!((usage.requests, usage.input_tokens, usage.cost_usd), (1, 2, Some(0.0)));
        assert!(usage.output_tokens > 0);
        let told = r#"{"type":"assistant","text":"x","usage":{"requests":1,"input_tokens":5,"output_tokens":6,"cost_usd":0.5}}"#;
        let events = ask(&model(told), "go", 0).await;
        assert!(matches!(&events[1], Ok(ProviderEvent::Finished { usage, .. }) if usage.cost_usd == Some(0.5)));
    }

    #[test]
    fn a_wrong_line_is_named() {
        let fault = |text: &str| Script::parse(Path::new("s.jsonl"), text).unwrap_err().to_string();
        assert!(fault("{\"wait_ms\":1}\n{").starts_with("s.jsonl:2: not JSON"));
        assert!(fault(r#"{"fail":"soon"}"#).starts_with("s.jsonl:1: unknown variant `soon`"));
        assert_eq!(fault(r#"{"fail":"usage_limit"}"#), "s.jsonl:1: `usage_limit` needs `until`");
        assert!(fault(r#"{"wait_ms":-1}"#).contains("milliseconds"));
        for other in [r#"{"type":"assistant","message":{"content":"hi"}}"#, r#"{"type":"assistant"}"#] {
            assert_eq!(fault(other), "s.jsonl:1: a turn has one of `text`, `calls`, `stop`");
        }
        assert!(fault(r#"{"wait":1}"#).contains("neither"));
        assert!(fault(r#"{"type":"assistant","calls":[{}]}"#).contains("name"));
        let missing = Script::read(Path::new("/nowhere/s.jsonl")).unwrap_err();
        assert_eq!(missing.to_string(), "there is no script to replay in `/nowhere/s.jsonl`");
    }
}
