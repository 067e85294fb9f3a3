//! What is drawn at the bottom: what grows, what waits, one line of state, and the line a person writes.
//!
//! Deliberately absent: what is finished; that is written above and left alone.

use ratatui::style::{Style, Stylize};
use ratatui::text::{Line, Span};

use super::paint::{self, DIM, short};
use super::region::Picture;
use super::view::{Last, Phase, Thoughts, View, tokens};
use super::wrap::{wrap, wrap_all};
use crate::agent::event::QuestionKind;
use crate::text;

/// Rows of an answer that grows.
const LIVE_ROWS: usize = 12;
/// Rows of each list: todos, what is queued, candidates.
const LIST_ROWS: usize = 6;

impl View {
    /// The rows at the bottom of a terminal of this size.
    pub(super) fn picture(&self, columns: u16, rows: u16) -> Picture {
        let columns = usize::from(columns).max(10);
        // One row is left for what is above: the picture never takes the whole screen.
        let most = usize::from(rows).saturating_sub(1).max(3);
        let input = self.input.rows(columns, self.placeholder());
        let mut fixed: Vec<Line<'static>> = Vec::new();
        fixed.extend(self.asks(columns));
        fixed.push(self.status(columns));
        let candidates = self.candidates(columns);
        let room = most.saturating_sub(fixed.len() + input.rows.len());
        let mut growing = self.growing(columns);
        growing.extend(self.waiting(columns));
        // What is nearest to the line is the newest.
        let mut picture: Vec<Line<'static>> = growing.split_off(growing.len().saturating_sub(room));
        picture.extend(fixed);
        let cursor = (picture.len() + input.cursor.0, input.cursor.1);
        picture.extend(input.rows);
        picture.extend(candidates.into_iter().take(most.saturating_sub(picture.len())));
        Picture { rows: picture, cursor }
    }

    /// What comes in now: thoughts, an answer, calls that run.
    fn growing(&self, columns: usize) -> Vec<Line<'static>> {
        let mut rows = Vec::new();
        if !self.thinking.trim().is_empty() {
            match self.thoughts {
                Thoughts::Shown => rows.extend(tail(&self.thinking, DIM.italic(), columns)),
                Thoughts::Folded => {
                    let last = self.thinking.trim_end().lines().next_back().unwrap_or_default();
                    rows.push(Line::styled(text::one_line(&format!("thinks: {}", short(last)), columns), DIM));
                }
            }
        }
        if !self.live.trim().is_empty() {
            rows.extend(tail(&self.live, Style::new(), columns));
        }
        rows.extend(
            self.running.iter().map(|running| {
                Line::from(text::one_line(&format!("• {} {} …", running.name, running.summary), columns))
            }),
        );
        rows
    }

    /// What waits for its turn.
    fn waiting(&self, columns: usize) -> Vec<Line<'static>> {
        let mut rows: Vec<Line<'static>> = Vec::new();
        let todos = paint::todos(&self.todos);
        let open = self.todos.iter().position(|todo| todo.state != crate::agent::event::TodoState::Completed);
        // Around what is worked on.
        let from = open.unwrap_or(0).saturating_sub(1).min(todos.len().saturating_sub(LIST_ROWS));
        rows.extend(todos.into_iter().skip(from).take(LIST_ROWS).map(|line| cut(&line, columns)));
        let queued = self.queued.iter().take(LIST_ROWS).map(|(by, text)| {
            let who = if by.starts_with("person ") { String::new() } else { format!(" of {}", short(by)) };
            Line::styled(text::one_line(&format!("queued{who}: {}", short(text)), columns), DIM)
        });
        rows.extend(queued);
        if self.queued.len() > LIST_ROWS {
            rows.push(Line::styled(format!("… {} more queued", self.queued.len() - LIST_ROWS), DIM));
        }
        rows
    }

    /// The keys that answer what is asked.
    fn asks(&self, columns: usize) -> Vec<Line<'static>> {
        let keys = match &self.phase {
            Phase::Asking(QuestionKind::Permission { always: Some(rule), .. }) => {
                format!("[y] once  [a] always: {}  [n] no, or say why not", short(rule))
            }
            Phase::Asking(QuestionKind::Permission { always: None, .. }) => {
                "[y] once  [n] no, or say why not".to_owned()
            }
            Phase::Asking(QuestionKind::Plan) => "[y] go on, or say what to change".to_owned(),
            Phase::Asking(QuestionKind::Free) => "write the answer; Esc gives none".to_owned(),
            Phase::Ready
            | Phase::Working
            | Phase::Thinking
            | Phase::Writing
            | Phase::Running(_)
            | Phase::Waiting { .. }
            | Phase::Held
            | Phase::Idle
            | Phase::Ended(_) => return Vec::new(),
        };
        wrap(&Line::styled(keys, Style::new().bold()), columns, 0)
    }

    /// One line: what it does, who it is, what it used. What does not fit is left out, the least needed first.
    fn status(&self, columns: usize) -> Line<'static> {
        let phase = self.phase_words();
        let mut parts: Vec<String> = [self.agent.as_str(), &self.mode.map(|mode| mode.to_string()).unwrap_or_default()]
            .iter()
            .filter(|part| !part.is_empty())
            .map(|part| (*part).to_owned())
            .collect();
        if self.window > 0.0 {
            parts.push(format!("{:.0} % of window", self.window * 100.0));
        }
        if let Some(cost) = self.usage.cost_usd.filter(|cost| *cost > 0.0) {
            parts.push(format!("{cost:.2} USD"));
        }
        if self.usage.tokens() > 0 {
            parts.push(tokens(self.usage.tokens()));
        }
        if !self.model.is_empty() {
            parts.push(self.model.clone());
        }
        let mut rest = String::new();
        let mut used = ratatui::text::Span::raw(phase.as_str()).width();
        for part in parts {
            let part = format!(" · {part}");
            used += Span::raw(part.as_str()).width();
            if used > columns.saturating_sub(1) {
                break;
            }
            rest.push_str(&part);
        }
        let style = match &self.phase {
            Phase::Asking(_) => Style::new().yellow().bold(),
            Phase::Held => Style::new().magenta().bold(),
            Phase::Ready
            | Phase::Working
            | Phase::Thinking
            | Phase::Writing
            | Phase::Running(_)
            | Phase::Waiting { .. }
            | Phase::Idle
            | Phase::Ended(_) => Style::new().cyan(),
        };
        Line::from(vec![Span::styled(text::one_line(&phase, columns), style), Span::styled(rest, DIM)])
    }

    fn phase_words(&self) -> String {
        match &self.phase {
            Phase::Ready => "ready".to_owned(),
            Phase::Working => "working".to_owned(),
            Phase::Thinking => "thinking".to_owned(),
            Phase::Writing => "writing".to_owned(),
            Phase::Running(name) => format!("runs {name}"),
            Phase::Asking(_) => "asks you".to_owned(),
            Phase::Waiting { until } => format!("waits until {until}"),
            Phase::Held => "held".to_owned(),
            Phase::Idle => "waits for you".to_owned(),
            Phase::Ended(outcome) => format!("ended: {outcome}"),
        }
    }

    /// What an empty line says of itself.
    const fn placeholder(&self) -> &'static str {
        match &self.phase {
            Phase::Ready => "what is to be done? /help tells what you can type",
            Phase::Asking(_) => "",
            Phase::Held => "type to go on",
            Phase::Idle => "what next? /quit ends",
            Phase::Ended(_) => "",
            Phase::Working | Phase::Thinking | Phase::Writing | Phase::Running(_) | Phase::Waiting { .. } => {
                "type to steer; Esc holds; /help"
            }
        }
    }

    /// What Tab found, with the one in the line marked.
    fn candidates(&self, columns: usize) -> Vec<Line<'static>> {
        let Some((completion, at)) = &self.completion else { return Vec::new() };
        let all = &completion.candidates;
        let from = at.unwrap_or(0).saturating_sub(LIST_ROWS - 1);
        let row = |(number, name): (usize, &String)| {
            let line = format!("  {}", text::one_line(&short(name), columns.saturating_sub(2)));
            if *at == Some(number) { Line::from(line).reversed() } else { Line::styled(line, DIM) }
        };
        let mut rows: Vec<Line<'static>> = all.iter().enumerate().skip(from).take(LIST_ROWS).map(row).collect();
        if all.len() > LIST_ROWS {
            rows.push(Line::styled(format!("  {} in all", all.len()), DIM));
        }
        rows
    }

    /// What is finished, in rows of this terminal.
    pub(super) fn take_rows(&mut self, columns: u16) -> Vec<Line<'static>> {
        let mut rows = wrap_all(&self.take_finished(), usize::from(columns));
        // Neighbours each bring their blank line.
        rows.retain(|row| {
            let now = if row.width() == 0 { Last::Blank } else { Last::Text };
            let before = std::mem::replace(&mut self.last, now);
            (before, now) != (Last::Blank, Last::Blank)
        });
        rows
    }
}

/// The last rows of a text that grows.
fn tail(growing: &str, style: Style, columns: usize) -> Vec<Line<'static>> {
    let end = text::suffix(growing, LIVE_ROWS * columns * 4);
    let mut rows = wrap_all(&paint::plain(end, style), columns);
    rows.split_off(rows.len().saturating_sub(LIVE_ROWS))
}

fn cut(line: &Line<'_>, columns: usize) -> Line<'static> {
    // Not `one_line`: the indentation is part of it.
    wrap(line, columns, 0).into_iter().next().unwrap_or_default()
}
