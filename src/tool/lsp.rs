//! `lsp`: what a language server knows of the code: definitions, references, types, problems.
//!
//! A server is a help, never needed: whatever fails is a correction that says to read and grep instead. Below: `frame` and
//! `connection` speak the protocol, `session` is one server, `servers` finds and keeps them. Deliberately absent: every
//! operation that changes files.

mod connection;
mod frame;
mod place;
mod problem;
mod process;
mod servers;
mod session;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use self::connection::LspError;
use self::place::{Location, Position, Spot};
use self::problem::Problem;
pub(crate) use self::servers::Servers;
use self::session::{SHOWN, Session, Settled};
use super::output::Output;
use super::path::Place;
use super::{Answer, Input, Running, Scope, Tool, input, path};
use crate::files;
use crate::machine::gate;
use crate::model::message::ToolSpec;
use crate::model::rule::Subject;
use crate::model::tool_name::ToolName;
use crate::text;

/// How long a server may look at a project before it is asked all the same.
const SETTLE: Duration = Duration::from_mins(1);

const LIMIT: Duration = Duration::from_secs(20);

/// Places that are shown; more is a search.
const PLACES: usize = 300;

#[derive(Debug)]
pub(crate) struct Lsp {
    pub(super) servers: Arc<Servers>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Op {
    Definition,
    References,
    Hover,
    Diagnostics,
}

impl Op {
    const ALL: &'static [(&'static str, Self)] = &[
        ("definition", Self::Definition),
        ("references", Self::References),
        ("hover", Self::Hover),
        ("diagnostics", Self::Diagnostics),
    ];

    fn of(name: &str) -> Result<Self, Answer> {
        Self::ALL.iter().find(|(known, _)| *known == name).map(|(_, op)| *op).ok_or_else(|| {
            Answer::correction(format!("`{name}` is no operation; use definition, references, hover or diagnostics"))
        })
    }
}

impl Tool for Lsp {
    fn name(&self) -> ToolName {
        ToolName::Lsp
    }

    fn spec(&self) -> ToolSpec {
        let names: Vec<&str> = Op::ALL.iter().map(|(name, _)| *name).collect();
        ToolSpec {
            name: ToolName::Lsp.as_str(),
            description:
                "Ask the language server about a place in a file: its definition, its references, its type and \
                documentation (hover); or for the diagnostics of a file. Lines and columns count from 1."
                    .to_owned(),
            input: json!({
                "type": "object",
                "properties": {
                    "op": {"type": "string", "enum": names},
                    "path": {"type": "string"},
                    "line": {"type": "integer", "minimum": 1},
                    "column": {"type": "integer", "minimum": 1}
                },
                "required": ["op", "path"]
            }),
        }
    }

    fn subject(&self, input: &Input, scope: &Scope) -> Subject {
        input::text(input, "path").map_or(Subject::None, |path| path::subject(scope, path))
    }

    fn run<'a>(&'a self, input: Input, scope: &'a Scope) -> Running<'a> {
        Box::pin(async move {
            tokio::select! {
                biased;
                answer = self.ask(&input, scope) => answer.unwrap_or_else(|correction| correction),
                () = scope.is_cut() => Answer::correction("cut short: the language server was not waited for"),
            }
        })
    }
}

/// A question about a file, with all it takes to ask it.
struct Question<'a> {
    op: Op,
    place: Place,
    text: String,
    spot: Option<Spot>,
    scope: &'a Scope,
}

impl Lsp {
    async fn ask(&self, input: &Input, scope: &Scope) -> Result<Answer, Answer> {
        let question = Question::new(input, scope)?;
        let path = question.place.absolute();
        let session = self.servers.session(&path, scope).await.map_err(|why| unavailable(&why))?;
        let settled = session.settle(SETTLE).await;
        let answer = question.put(&session).await?;
        let note = match settled {
            Settled::Yes => String::new(),
            Settled::NotYet => {
                format!("\n[{} is still looking at the project: something may be missing]", session.name())
            }
        };
        Ok(Answer { text: answer.text + &note, ..answer })
    }
}

fn unavailable(why: &str) -> Answer {
    Answer::correction(format!("unavailable: {why}; use grep and read instead"))
}

fn failed(error: &LspError) -> Answer {
    unavailable(&error.to_string())
}

impl<'a> Question<'a> {
    fn new(input: &Input, scope: &'a Scope) -> Result<Self, Answer> {
        let op = Op::of(input::text(input, "op")?)?;
        let name = input::text(input, "path")?;
        let (line, column) = (input::optional_count(input, "line")?, input::optional_count(input, "column")?);
        let spot = match (op, line, column) {
            (Op::Diagnostics, _, _) => None,
            (_, Some(line), Some(column)) => Some(Spot { line: line as usize, column: column as usize }),
            (_, _, _) => {
                return Err(Answer::correction("this operation needs line and column: where the name begins, from 1"));
            }
        };
        let place = path::locate(scope, ToolName::Lsp, name)?;
        if path::is_env_file(&place.relative) {
            return Err(Answer::correction(format!("`{name}` is for commands, not for lsp")));
        }
        drop(place.open()?);
        let text = files::read(&place.absolute(), SHOWN).map_err(|error| Answer::correction(text::chain(&error)))?;
        Ok(Self { op, place, text, spot, scope })
    }

    async fn put(&self, session: &Session) -> Result<Answer, Answer> {
        let path = self.place.absolute();
        let language = servers::language_of(&path);
        let Some(spot) = self.spot else {
            let problems =
                session.problems(&path, &language, &self.text, LIMIT).await.map_err(|error| failed(&error))?;
            return Ok(self.listed(&problems));
        };
        let position = Position::of(spot, &self.text).ok_or_else(|| {
            let lines = text::count(self.text.lines().count(), "line", "lines");
            Answer::correction(format!("`{}` has {lines}; there is no line {}", self.place.shown(), spot.line))
        })?;
        session.show(&path, &language, &self.text).await.map_err(|error| failed(&error))?;
        let uri = place::uri_of(&path).unwrap_or_default();
        let mut params = json!({"textDocument": {"uri": uri}, "position": position.to_json()});
        let (method, what) = match self.op {
            Op::Definition => ("textDocument/definition", "definition"),
            Op::References => ("textDocument/references", "reference"),
            Op::Hover | Op::Diagnostics => ("textDocument/hover", "documentation"),
        };
        if self.op == Op::References {
            params["context"] = json!({"includeDeclaration": true});
        }
        let answer = session.ask(method, &params, LIMIT).await.map_err(|error| failed(&error))?;
        let found = match self.op {
            Op::Definition | Op::References => self.places(&Location::all(&answer)),
            Op::Hover | Op::Diagnostics => hover(&answer),
        };
        if found.trim().is_empty() {
            let at = format!("{}:{}:{}", self.place.shown(), spot.line, spot.column);
            return Ok(Answer::done(format!("no {what} found at {at}; the column must be that of the name")));
        }
        Ok(Answer::done(self.cut(&found)))
    }

    fn listed(&self, problems: &[Problem]) -> Answer {
        let name = self.place.shown();
        if problems.is_empty() {
            return Answer::done(format!("no problem found in {name}"));
        }
        let lines: Vec<&str> = self.text.lines().collect();
        let told = problems.iter().map(|problem| problem.line(&name, lines.get(problem.position.line).copied()));
        Answer::done(self.cut(&told.collect::<Vec<_>>().join("\n")))
    }

    /// `src/a.rs:3:5: the line`. What rules deny is left out; of files outside only the place is told.
    fn places(&self, places: &[Location]) -> String {
        let mut texts = HashMap::new();
        let mut shown: Vec<String> =
            places.iter().take(PLACES).filter_map(|place| self.place(place, &mut texts)).collect();
        if places.len() > PLACES {
            shown.push(format!("[{} more]", text::count(places.len() - PLACES, "place", "places")));
        }
        shown.join("\n")
    }

    fn place(&self, location: &Location, texts: &mut HashMap<PathBuf, String>) -> Option<String> {
        // The server's word for a path is not ours: links are resolved before a rule is held against it.
        let root = self.place.root.path();
        let Ok(relative) = self.place.root.resolve(&location.path) else {
            let spot = location.position.spot(None);
            return Some(format!(
                "{}:{}:{}",
                text::without_controls(&location.path.to_string_lossy()),
                spot.line,
                spot.column
            ));
        };
        let name = path::shown(&relative);
        if gate::denies_path(ToolName::Lsp, &name, &self.scope.deny) || path::is_env_file(&relative) {
            return None;
        }
        let read = |path: &Path| files::read(path, SHOWN).unwrap_or_default();
        let text = texts.entry(relative.clone()).or_insert_with(|| read(&root.join(&relative)));
        let line = text.lines().nth(location.position.line);
        let spot = location.position.spot(line);
        let line = text::one_line(line.unwrap_or_default().trim(), 200);
        Some(format!("{name}:{}:{}: {line}", spot.line, spot.column))
    }

    fn cut(&self, text: &str) -> String {
        let mut output = Output::new(&self.scope.spill);
        output.push(text.as_bytes());
        output.finish()
    }
}

/// The text of a hover in each of its forms.
fn hover(answer: &Value) -> String {
    let one = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other["value"].as_str().unwrap_or_default().to_owned(),
    };
    let whole = match &answer["contents"] {
        Value::Array(list) => list.iter().map(one).collect::<Vec<_>>().join("\n"),
        single => one(single),
    };
    text::without_controls(&whole)
}

#[cfg(test)]
mod tests;
