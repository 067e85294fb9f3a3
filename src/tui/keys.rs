//! What keys mean. The wheel is in a person's hands: text steers or answers, Esc holds, Ctrl-D leaves.
//!
//! Deliberately absent: what becomes of an action.

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::complete::{self, common};
use super::help;
use super::input::Taken;
use super::slash::{self, Slash};
use super::view::{Action, Phase, View};
use crate::agent::Command;
use crate::agent::event::QuestionKind;
use crate::model::persona::Mode;

impl View {
    /// A key was pressed.
    pub(super) fn key(&mut self, key: KeyEvent) -> Vec<Action> {
        if key.kind == KeyEventKind::Release {
            return Vec::new();
        }
        let actions = self.meaning(key);
        if actions.is_empty() { vec![Action::Touched] } else { actions }
    }

    /// Text was pasted. Its newlines are text: nothing is sent.
    pub(super) fn paste(&mut self, text: &str) -> Vec<Action> {
        self.completion = None;
        self.input.paste(text);
        vec![Action::Touched]
    }

    fn meaning(&mut self, key: KeyEvent) -> Vec<Action> {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        let alt = key.modifiers.contains(KeyModifiers::ALT);
        let shift = key.modifiers.contains(KeyModifiers::SHIFT);
        let completion = self.completion.take();
        match key.code {
            KeyCode::Tab => self.complete(completion, Step::Next),
            KeyCode::BackTab if completion.is_some() => self.complete(completion, Step::Back),
            KeyCode::BackTab => return vec![Action::Command(Command::Mode(self.next_mode()))],
            KeyCode::Esc if completion.is_some() => {}
            KeyCode::Esc => return vec![Action::Escape],
            KeyCode::Enter if alt => return self.send(Sends::FollowUp),
            KeyCode::Enter if shift || control => self.input.newline(),
            KeyCode::Enter => return self.send(Sends::Line),
            KeyCode::Char('j') if control => self.input.newline(),
            KeyCode::Char('c') if control && self.input.is_empty() => return vec![Action::Escape],
            KeyCode::Char('c') if control => self.input.clear(),
            KeyCode::Char('d') if control && self.input.is_empty() => return vec![Action::Leave],
            KeyCode::Char('d') if control => self.input.delete_next(),
            KeyCode::Char('z') if control => {}
            KeyCode::Char('o') if control => self.toggle_thoughts(),
            KeyCode::Char('u') if control => self.input.delete_to_head(),
            KeyCode::Char(c) if !control && !alt && self.input.is_empty() && self.answers(c) => {
                return vec![Action::Line(c.to_string())];
            }
            KeyCode::Up if !shift => self.input.up(),
            KeyCode::Down if !shift => self.input.down(),
            _ => self.input.edit(key),
        }
        Vec::new()
    }

    /// Whether a single key answers what is asked.
    fn answers(&self, key: char) -> bool {
        match &self.phase {
            Phase::Asking(QuestionKind::Permission { always, .. }) => {
                matches!(key, 'y' | 'n') || (key == 'a' && always.is_some())
            }
            Phase::Asking(QuestionKind::Plan) => key == 'y',
            Phase::Asking(QuestionKind::Free)
            | Phase::Ready
            | Phase::Working
            | Phase::Thinking
            | Phase::Writing
            | Phase::Running(_)
            | Phase::Waiting { .. }
            | Phase::Held
            | Phase::Idle
            | Phase::Ended(_) => false,
        }
    }

    /// The mode after this one. The one without any bound is never got into by a key that is hit by chance.
    fn next_mode(&self) -> Mode {
        match self.mode {
            None | Some(Mode::Default) => Mode::Edit,
            Some(Mode::Edit) => Mode::Plan,
            Some(Mode::Plan | Mode::Bypass) => Mode::Default,
        }
    }

    fn send(&mut self, how: Sends) -> Vec<Action> {
        let Some(Taken { text, keep }) = self.input.take() else { return Vec::new() };
        let mut actions: Vec<Action> = keep.map(Action::Remember).into_iter().collect();
        match slash::read(&text, &self.known.skills, &self.known.personas) {
            None => actions.push(match how {
                Sends::Line => Action::Line(text),
                Sends::FollowUp => Action::FollowUp(text),
            }),
            Some(Slash::Command(command)) => actions.push(Action::Command(command)),
            Some(Slash::Skill { name, arguments }) => actions.push(Action::Skill { name, arguments }),
            Some(Slash::Help) => self.say(help::help()),
            Some(Slash::Skills) => {
                let lines = help::skills(&self.known.skills);
                self.say(lines);
            }
            Some(Slash::Cost) => {
                let line = help::cost(&self.usage);
                self.say([line]);
            }
            Some(Slash::Wrong(why)) => self.note(&format!("-- {why}")),
        }
        actions
    }

    /// Tab: types what all candidates have in common, then one after the other.
    fn complete(&mut self, before: Option<(complete::Completion, Option<usize>)>, step: Step) {
        let Some((mut completion, at)) = before else {
            self.begin_completion();
            return;
        };
        let count = completion.candidates.len();
        let next = match (at, step) {
            (None, Step::Next) => 0,
            (None, Step::Back) => count - 1,
            (Some(at), Step::Next) => (at + 1) % count,
            (Some(at), Step::Back) => (at + count - 1) % count,
        };
        let with = completion.candidates[next].clone();
        self.input.replace_before(completion.replaces, &with);
        completion.replaces = with.chars().count();
        self.completion = Some((completion, Some(next)));
    }

    fn begin_completion(&mut self) {
        let before = self.input.before_cursor();
        let known =
            complete::Known { skills: &self.known.skills, personas: &self.known.personas, paths: &*self.known.paths };
        // A command stands at the start of the text, not of any line of it.
        let before = if self.input.is_first_line() { before } else { format!(" {before}") };
        let Some(mut completion) = complete::complete(&before, &known) else { return };
        let with = common(&completion.candidates).to_owned();
        self.input.replace_before(completion.replaces, &with);
        completion.replaces = with.chars().count();
        match completion.candidates.as_slice() {
            [only] if only.ends_with('/') => {}
            [_] => self.input.replace_before(0, " "),
            _ => self.completion = Some((completion, None)),
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Sends {
    Line,
    FollowUp,
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Next,
    Back,
}
