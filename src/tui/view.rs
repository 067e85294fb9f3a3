//! What there is to see of one agent, as a value: events change it, keys change it, a picture is made of it.
//!
//! What is finished is handed out once and never looked at again. Deliberately absent: clocks, terminals, and what keys
//! mean (`keys.rs`) and look like (`picture.rs`).

use std::sync::Arc;

use ratatui::style::{Style, Stylize};
use ratatui::text::{Line, Span};

use super::complete::Completion;
use super::input::Input;
use super::paint::{self, DIM, short};
use crate::agent::Command;
use crate::agent::event::{AgentEvent, QuestionKind, Todo, TodoState};
use crate::model::persona::Mode;
use crate::model::report::Outcome;
use crate::model::usage::Usage;
use crate::text;

/// The end of a growing answer that is kept at hand: more than any screen shows.
const LIVE_BYTES: usize = 16 * 1024;

/// Lists the paths of a project that begin so; directories end in a slash.
pub(crate) type Paths = Arc<dyn Fn(&str) -> Vec<String> + Send + Sync>;

/// What a person can name.
#[derive(Clone)]
pub(crate) struct Known {
    pub(crate) personas: Vec<String>,
    /// Names and descriptions.
    pub(crate) skills: Vec<(String, String)>,
    pub(crate) paths: Paths,
}

impl Default for Known {
    fn default() -> Self {
        Self { personas: Vec::new(), skills: Vec::new(), paths: Arc::new(|_| Vec::new()) }
    }
}

/// What there is when it opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Opens {
    /// Nothing yet: the first line is the task.
    ForATask,
    AtWork,
}

/// What a key asks for beyond the view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    Line(String),
    FollowUp(String),
    Escape,
    Command(Command),
    Skill {
        name: String,
        arguments: String,
    },
    /// Ctrl-D on an empty line.
    Leave,
    /// A line worth keeping for later sessions.
    Remember(String),
    /// Any other key: the person is there.
    Touched,
}

/// What the agent does now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Phase {
    /// A session without a task yet.
    Ready,
    Working,
    Thinking,
    Writing,
    Running(String),
    Asking(QuestionKind),
    Waiting {
        until: String,
    },
    Held,
    Idle,
    Ended(Outcome),
}

/// Whether what was thought is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Thoughts {
    Folded,
    Shown,
}

/// A call that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Running {
    pub(super) name: String,
    pub(super) summary: String,
}

pub(super) struct View {
    pub(super) known: Known,
    pub(super) columns: u16,
    /// Lines above, not handed out yet.
    finished: Vec<Line<'static>>,
    /// The last row handed out.
    pub(super) last: Last,
    pub(super) phase: Phase,
    pub(super) agent: String,
    pub(super) mode: Option<Mode>,
    pub(super) model: String,
    pub(super) usage: Usage,
    /// How full the model's window is, 0 to 1.
    pub(super) window: f64,
    /// The end of the answer as it comes, and of what is thought.
    pub(super) live: String,
    pub(super) thinking: String,
    thought: String,
    pub(super) thoughts: Thoughts,
    pub(super) running: Vec<Running>,
    pub(super) todos: Vec<Todo>,
    pub(super) queued: Vec<(String, String)>,
    /// What was shown with a question need not be shown again when it is done.
    asked_diff: Option<String>,
    pub(super) input: Input,
    /// What Tab found, and which of it stands in the line.
    pub(super) completion: Option<(Completion, Option<usize>)>,
    pub(super) attention: Attention,
}

/// What the last row above is: two blank ones never follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Last {
    Blank,
    Text,
}

/// Whether a person should be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attention {
    None,
    Wanted,
}

impl View {
    pub(super) fn new(known: Known, history: Vec<String>, opens: Opens) -> Self {
        Self {
            known,
            columns: 80,
            finished: Vec::new(),
            last: Last::Text,
            phase: match opens {
                Opens::ForATask => Phase::Ready,
                Opens::AtWork => Phase::Working,
            },
            agent: String::new(),
            mode: None,
            model: String::new(),
            usage: Usage::ZERO,
            window: 0.0,
            live: String::new(),
            thinking: String::new(),
            thought: String::new(),
            thoughts: Thoughts::Folded,
            running: Vec::new(),
            todos: Vec::new(),
            queued: Vec::new(),
            asked_diff: None,
            input: Input::new(history),
            completion: None,
            attention: Attention::None,
        }
    }

    /// What is finished since the last time.
    pub(super) fn take_finished(&mut self) -> Vec<Line<'static>> {
        std::mem::take(&mut self.finished)
    }

    /// Lines of our own.
    pub(super) fn say(&mut self, lines: impl IntoIterator<Item = Line<'static>>) {
        self.finished.extend(lines);
    }

    /// What a person said, as it stands in the transcript.
    pub(super) fn say_of_person(&mut self, said: &str) {
        self.finished.push(Line::default());
        for (number, mut line) in paint::plain(said, Style::new().bold()).into_iter().enumerate() {
            line.spans.insert(0, Span::raw(if number == 0 { "> " } else { "  " }));
            self.finished.push(line);
        }
        self.finished.push(Line::default());
    }

    /// Something happened.
    pub(super) fn apply(&mut self, event: &AgentEvent) {
        match event {
            AgentEvent::Started { label, model, session } => {
                self.model = short(model);
                self.phase = Phase::Working;
                let head = format!("== {} · {} · session {}", short(label), self.model, short(session));
                self.finished.push(Line::from(head).bold());
            }
            AgentEvent::Text(piece) => {
                self.phase = Phase::Writing;
                self.end_thought();
                keep_the_end(&mut self.live, piece);
            }
            AgentEvent::Thinking(piece) => {
                self.phase = Phase::Thinking;
                self.thinking.push_str(piece);
            }
            AgentEvent::Said(text) => {
                self.phase = Phase::Working;
                self.end_thought();
                self.live.clear();
                self.finished.push(Line::default());
                self.finished.extend(paint::markdown(text, self.columns));
                self.finished.push(Line::default());
            }
            AgentEvent::ToolStarted { name, summary } => {
                self.end_thought();
                self.running.push(Running { name: short(name), summary: short(summary) });
                self.phase = Phase::Running(short(name));
            }
            AgentEvent::ToolEnded { name, ok, line } => self.tool_ended(&short(name), *ok, &short(line)),
            AgentEvent::Changed { diff } => {
                if self.asked_diff.take().as_ref() != Some(diff) {
                    self.finished.extend(paint::diff(diff));
                }
            }
            AgentEvent::Steered { by, text } => {
                self.unqueue(by, text);
                self.phase = Phase::Working;
                self.steered(by, text);
            }
            AgentEvent::Queued { by, text } => self.queued.push((by.clone(), text.clone())),
            AgentEvent::Question { text, kind } => self.question(text, kind),
            AgentEvent::Answered { by, text } => {
                self.phase = Phase::Working;
                self.note(&format!("[{}, answers] {}", short(by), short(text)));
            }
            AgentEvent::Limited { until, detail } => {
                self.phase = Phase::Waiting { until: until.to_string() };
                self.note(&format!("-- waits until {until}: {}", short(detail)));
            }
            AgentEvent::Held => {
                self.phase = Phase::Held;
                self.note("-- held; type to go on");
            }
            AgentEvent::Idle => {
                self.phase = Phase::Idle;
                self.running.clear();
            }
            AgentEvent::Now { agent, mode, model } => self.now(agent, *mode, model),
            AgentEvent::Used { usage, window } => {
                self.usage = *usage;
                self.window = *window;
            }
            AgentEvent::Todo(todos) => {
                self.todos.clone_from(todos);
                if todos.iter().all(|todo| todo.state == TodoState::Completed) {
                    let done = std::mem::take(&mut self.todos);
                    self.finished.extend(paint::todos(&done));
                }
            }
            AgentEvent::Note(text) => self.note(&format!("-- {}", short(text))),
            AgentEvent::Cut { why } => {
                self.end_thought();
                let partial = std::mem::take(&mut self.live);
                self.finished.extend(paint::plain(&partial, DIM));
                self.note(&format!("-- cut: {}", short(why)));
            }
            AgentEvent::Ended { outcome, detail, usage } => self.ended(*outcome, &short(detail), *usage),
        }
    }

    pub(super) fn note(&mut self, text: &str) {
        self.finished.push(Line::styled(text.to_owned(), DIM));
    }

    /// What was thought is folded to one line, or shown whole.
    fn end_thought(&mut self) {
        if self.thinking.trim().is_empty() {
            self.thinking.clear();
            return;
        }
        self.thought = std::mem::take(&mut self.thinking);
        match self.thoughts {
            Thoughts::Shown => self.say_thought(),
            Thoughts::Folded => {
                let lines = text::count(self.thought.trim().lines().count(), "line", "lines");
                self.note(&format!("thought: {lines} (Ctrl-O shows them)"));
            }
        }
    }

    fn say_thought(&mut self) {
        self.finished.extend(paint::plain(self.thought.trim(), DIM.italic()));
    }

    /// Ctrl-O: folds what is thought, or shows it from the last thought on.
    pub(super) fn toggle_thoughts(&mut self) {
        self.thoughts = match self.thoughts {
            Thoughts::Folded => {
                self.say_thought();
                Thoughts::Shown
            }
            Thoughts::Shown => Thoughts::Folded,
        };
    }

    fn tool_ended(&mut self, name: &str, ok: bool, line: &str) {
        self.end_thought();
        let at = self.running.iter().position(|running| running.name == name);
        let summary = at.map(|at| self.running.remove(at).summary).unwrap_or_default();
        self.phase = self.running.last().map_or(Phase::Working, |running| Phase::Running(running.name.clone()));
        let call = Span::raw(if summary.is_empty() { format!("• {name}") } else { format!("• {name} {summary}") });
        self.finished.push(Line::from(if ok {
            vec![call, Span::styled(format!(": {line}"), DIM)]
        } else {
            vec![call, " failed".red(), Span::raw(format!(": {line}"))]
        }));
    }

    fn unqueue(&mut self, by: &str, text: &str) {
        if let Some(at) = self.queued.iter().position(|(who, what)| who == by && what == text) {
            self.queued.remove(at);
        }
    }

    fn steered(&mut self, by: &str, text: &str) {
        if by.starts_with("person ") {
            self.say_of_person(text);
        } else {
            self.finished.push(Line::default());
            self.finished.push(Line::from(format!("[{}]", short(by))).bold());
            self.finished.extend(paint::plain(text, Style::new()));
            self.finished.push(Line::default());
        }
    }

    fn question(&mut self, asked: &str, kind: &QuestionKind) {
        self.attention = Attention::Wanted;
        self.phase = Phase::Asking(kind.clone());
        self.finished.push(Line::default());
        match kind {
            QuestionKind::Permission { diff, .. } => {
                // The keys stand below the line; they are the last of what a plain window is told.
                let what = asked.lines().filter(|line| !line.starts_with("[y] ")).collect::<Vec<_>>().join("\n");
                self.question_text(&what);
                if let Some(diff) = diff {
                    self.finished.extend(paint::diff(diff));
                    self.asked_diff = Some(diff.clone());
                }
            }
            QuestionKind::Plan => self.finished.extend(paint::markdown(asked, self.columns)),
            QuestionKind::Free => self.question_text(asked),
        }
    }

    fn question_text(&mut self, asked: &str) {
        for (number, mut line) in paint::plain(asked, Style::new().yellow()).into_iter().enumerate() {
            line.spans.insert(0, Span::raw(if number == 0 { "? " } else { "  " }));
            self.finished.push(line);
        }
    }

    fn now(&mut self, agent: &str, mode: Mode, model: &str) {
        let (agent, model) = (short(agent), short(model));
        let first = self.agent.is_empty();
        let same = first || (self.agent == agent && self.model == model && self.mode == Some(mode));
        self.agent = agent;
        self.model = model;
        self.mode = Some(mode);
        if !same {
            self.note(&format!("-- {} · {mode} · {}", self.agent, self.model));
        }
    }

    fn ended(&mut self, outcome: Outcome, detail: &str, usage: Usage) {
        self.end_thought();
        self.live.clear();
        self.running.clear();
        self.usage = usage;
        self.phase = Phase::Ended(outcome);
        let used = format!(
            "{}, {}",
            text::count(usize::try_from(usage.requests).unwrap_or(usize::MAX), "request", "requests"),
            tokens(usage.tokens())
        );
        let words = if detail.is_empty() {
            format!("== {outcome} · {used}")
        } else {
            format!("== {outcome}: {detail} · {used}")
        };
        let line = Line::from(words).bold();
        self.finished.push(match outcome {
            Outcome::Done => line.green(),
            Outcome::Limit => line.yellow(),
            Outcome::Failed | Outcome::Cancelled => line.red(),
        });
    }
}

/// Keeps the last bytes of what grows.
fn keep_the_end(text: &mut String, piece: &str) {
    text.push_str(piece);
    if text.len() > 2 * LIVE_BYTES {
        *text = text::suffix(text, LIVE_BYTES).to_owned();
    }
}

/// `950 tokens`, `12k tokens`, `1.2m tokens`.
pub(super) fn tokens(count: u64) -> String {
    match count {
        0..1_000 => format!("{count} tokens"),
        1_000..1_000_000 => format!("{}k tokens", count / 1_000),
        _ => format!("{:.1}m tokens", count as f64 / 1e6),
    }
}
