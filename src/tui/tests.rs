//! Whole screens and what keys do on them, without a terminal and without a clock.

use std::sync::Arc;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::layout::Position;
use ratatui::text::{Line, Text};

use super::view::{Action, Known, Opens, Phase, View};
use crate::agent::Command;
use crate::agent::event::{AgentEvent, QuestionKind, Todo, TodoState};
use crate::model::persona::Mode;
use crate::model::report::Outcome;
use crate::model::usage::Usage;

const OWN: &str = "person pts/3";

/// A view with everything that was finished so far, as a terminal would hold it.
struct Shown {
    view: View,
    above: Vec<Line<'static>>,
    size: (u16, u16),
}

impl Shown {
    fn new(columns: u16, rows: u16) -> Self {
        let known = Known {
            personas: vec!["build".to_owned(), "plan".to_owned()],
            skills: vec![("tidy".to_owned(), "cleans up".to_owned())],
            paths: Arc::new(|start| {
                let all = ["src/", "src/main.rs", "src/map.rs"];
                all.iter().filter(|path| path.starts_with(start)).map(|path| (*path).to_owned()).collect()
            }),
        };
        let mut view = View::new(known, vec!["what I wrote before".to_owned()], Opens::ForATask);
        view.columns = columns;
        Self { view, above: Vec::new(), size: (columns, rows) }
    }

    /// In the middle of work.
    fn working(columns: u16, rows: u16) -> Self {
        let mut shown = Self::new(columns, rows);
        shown.view.apply(&AgentEvent::Now { agent: "build".into(), mode: Mode::Default, model: "openai/small".into() });
        shown.view.apply(&AgentEvent::Started {
            label: "look".into(),
            model: "openai/small".into(),
            session: "0a1b".into(),
        });
        shown.take();
        shown.above.clear();
        shown
    }

    fn apply(&mut self, events: &[AgentEvent]) {
        for event in events {
            self.view.apply(event);
        }
        self.take();
    }

    fn take(&mut self) {
        self.above.extend(self.view.take_rows(self.size.0));
    }

    fn key(&mut self, code: KeyCode) -> Vec<Action> {
        self.pressed(code, KeyModifiers::NONE)
    }

    fn control(&mut self, c: char) -> Vec<Action> {
        self.pressed(KeyCode::Char(c), KeyModifiers::CONTROL)
    }

    fn pressed(&mut self, code: KeyCode, modifiers: KeyModifiers) -> Vec<Action> {
        let actions = self.view.key(KeyEvent::new(code, modifiers));
        self.take();
        actions
    }

    /// Types a text, key by key; what the last key does.
    fn types(&mut self, text: &str) -> Vec<Action> {
        text.chars().fold(Vec::new(), |_, c| self.key(KeyCode::Char(c)))
    }

    /// What a terminal shows: the end of what is above, then the picture, with `_` where the cursor is.
    fn screen(&self) -> String {
        let (columns, rows) = self.size;
        let picture = self.view.picture(columns, rows);
        let room = usize::from(rows).saturating_sub(picture.rows.len());
        let from = self.above.len().saturating_sub(room);
        let above: Vec<Line<'static>> = self.above[from..].to_vec();
        let cursor = Position::new(picture.cursor.1 as u16, (above.len() + picture.cursor.0) as u16);
        let text = Text::from(above.into_iter().chain(picture.rows).collect::<Vec<_>>());
        let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
        terminal
            .draw(|frame| {
                frame.render_widget(text, frame.area());
                frame.set_cursor_position(cursor);
            })
            .unwrap();
        let buffer = terminal.backend().buffer();
        let mut lines: Vec<String> = (0..rows)
            .map(|y| {
                let cell = |x| if Position::new(x, y) == cursor { "_" } else { buffer[(x, y)].symbol() };
                (0..columns).map(cell).collect::<String>().trim_end().to_owned()
            })
            .collect();
        while lines.last().is_some_and(String::is_empty) {
            lines.pop();
        }
        lines.join("\n")
    }

    #[track_caller]
    fn expect(&self, screen: &str) {
        let (shown, expected) = (self.screen(), screen.trim_matches('\n'));
        assert_eq!(shown.trim_start_matches('\n'), expected, "\n{shown}");
    }
}

fn text(piece: &str) -> AgentEvent {
    AgentEvent::Text(piece.to_owned())
}

fn started(name: &str, summary: &str) -> AgentEvent {
    AgentEvent::ToolStarted { name: name.to_owned(), summary: summary.to_owned() }
}

fn ended(name: &str, ok: bool, line: &str) -> AgentEvent {
    AgentEvent::ToolEnded { name: name.to_owned(), ok, line: line.to_owned() }
}

fn permission(always: Option<&str>, diff: Option<&str>) -> AgentEvent {
    AgentEvent::Question {
        text: "May it run bash rm x?\nno rule allows it\n[y] yes  [n] no, or say why not".to_owned(),
        kind: QuestionKind::Permission { always: always.map(str::to_owned), diff: diff.map(str::to_owned) },
    }
}

#[test]
fn an_answer_is_shown_as_it_comes_and_as_markdown_when_it_is_whole() {
    let mut shown = Shown::working(60, 12);
    shown.apply(&[text("It **begins** in\nsrc/"), text("lib.rs.")]);
    shown.expect(
        "
It **begins** in
src/lib.rs.
writing · build · default · openai/small
> _ype to steer; Esc holds; /help",
    );
    shown.apply(&[
        AgentEvent::Said("It **begins** in\nsrc/lib.rs.".into()),
        AgentEvent::Used { usage: Usage { input_tokens: 12_345, ..Usage::ZERO }, window: 0.25 },
        AgentEvent::Idle,
    ]);
    shown.expect(
        "
It begins in src/lib.rs.

waits for you · build · default · 25 % of window
> _hat next? /quit ends",
    );
}

#[test]
fn calls_are_one_line_each_with_their_outcome() {
    let mut shown = Shown::working(60, 12);
    shown.apply(&[
        AgentEvent::Thinking("Where could it be?\nPerhaps in src.".into()),
        started("read", "src/lib.rs"),
        started("bash", "cargo test"),
        ended("read", true, "12 lines"),
    ]);
    shown.expect(
        "
thought: 2 lines (Ctrl-O shows them)
• read src/lib.rs: 12 lines
• bash cargo test …
runs bash · build · default · openai/small
> _ype to steer; Esc holds; /help",
    );
    shown.apply(&[ended("bash", false, "exit 101")]);
    assert!(shown.screen().contains("• bash cargo test failed: exit 101"), "{}", shown.screen());
    shown.control('o');
    assert!(shown.screen().contains("\nWhere could it be?\nPerhaps in src.\n"), "{}", shown.screen());
}

#[test]
fn what_is_typed_is_queued_until_the_model_was_given_it() {
    let mut shown = Shown::working(60, 12);
    let queued = AgentEvent::Queued { by: OWN.into(), text: "look at b too".into() };
    let other = AgentEvent::Queued { by: "send pts/9".into(), text: "hurry".into() };
    shown.apply(&[queued, other]);
    shown.expect(
        "
queued: look at b too
queued of send pts/9: hurry
working · build · default · openai/small
> _ype to steer; Esc holds; /help",
    );
    shown.apply(&[
        AgentEvent::Steered { by: OWN.into(), text: "look at b too".into() },
        AgentEvent::Steered { by: "send pts/9".into(), text: "hurry".into() },
    ]);
    let screen = shown.screen();
    assert!(screen.contains("> look at b too\n\n[send pts/9]\nhurry"), "{screen}");
    assert!(!screen.contains("queued"), "{screen}");
}

#[test]
fn a_permission_shows_what_it_would_change_and_its_keys() {
    let mut shown = Shown::working(60, 14);
    let diff = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-old\n+new";
    shown.apply(&[permission(Some("bash(rm *)"), Some(diff))]);
    shown.expect(
        "
? May it run bash rm x?
  no rule allows it
  --- a/x
  +++ b/x
  @@ -1 +1 @@
  -old
  +new
[y] once  [a] always: bash(rm *)  [n] no, or say why not
asks you · build · default · openai/small
> _",
    );
    // The same diff is not shown again when it is done.
    let before = shown.above.len();
    shown.apply(&[AgentEvent::Answered { by: OWN.into(), text: "y".into() }]);
    shown.apply(&[AgentEvent::Changed { diff: diff.into() }]);
    assert_eq!(shown.above.len(), before + 1);
    shown.apply(&[AgentEvent::Changed { diff: diff.into() }]);
    assert_eq!(shown.above.len(), before + 6);
}

#[test]
fn single_keys_answer_on_an_empty_line_only_and_only_what_is_offered() {
    let mut shown = Shown::working(60, 12);
    assert_eq!(shown.types("y"), [Action::Touched], "nothing is asked");
    shown.control('c');
    shown.apply(&[permission(None, None)]);
    assert_eq!(shown.types("a"), [Action::Touched], "always is not offered");
    assert_eq!(shown.types("y"), [Action::Touched], "the line is not empty");
    shown.control('c');
    assert_eq!(shown.types("y"), [Action::Line("y".into())]);
    shown.apply(&[permission(Some("bash(rm *)"), None)]);
    assert_eq!(shown.types("a"), [Action::Line("a".into())]);
    shown.apply(&[permission(None, None)]);
    assert_eq!(shown.types("n"), [Action::Line("n".into())]);
    shown.apply(&[AgentEvent::Question { text: "# A plan".into(), kind: QuestionKind::Plan }]);
    assert_eq!(shown.types("y"), [Action::Line("y".into())]);
    shown.apply(&[AgentEvent::Question { text: "Which?".into(), kind: QuestionKind::Free }]);
    assert_eq!(shown.types("y"), [Action::Touched], "a word of the person's own");
}

#[test]
fn enter_steers_alt_enter_follows_up_and_newlines_are_text() {
    let mut shown = Shown::working(60, 12);
    shown.types("one");
    shown.control('j');
    shown.types("two");
    shown.pressed(KeyCode::Enter, KeyModifiers::SHIFT);
    shown.types("three");
    shown.expect(
        "
working · build · default · openai/small
> one
  two
  three_",
    );
    let sent = "one\ntwo\nthree".to_owned();
    assert_eq!(shown.key(KeyCode::Enter), [Action::Remember(sent.clone()), Action::Line(sent)]);
    shown.types("later");
    let later = "later".to_owned();
    let sent = shown.pressed(KeyCode::Enter, KeyModifiers::ALT);
    assert_eq!(sent, [Action::Remember(later.clone()), Action::FollowUp(later)]);
    assert_eq!(shown.key(KeyCode::Enter), [Action::Touched], "an empty line is not sent");
}

#[test]
fn escape_holds_and_control_keys_clear_leave_or_do_nothing() {
    let mut shown = Shown::working(60, 12);
    assert_eq!(shown.key(KeyCode::Esc), [Action::Escape]);
    shown.types("half a line");
    assert_eq!(shown.control('d'), [Action::Touched]);
    assert_eq!(shown.control('z'), [Action::Touched]);
    assert_eq!(shown.control('c'), [Action::Touched]);
    assert!(shown.view.input.is_empty());
    assert_eq!(shown.control('c'), [Action::Escape]);
    assert_eq!(shown.control('d'), [Action::Leave]);
}

#[test]
fn a_paste_sends_nothing_and_a_long_one_is_a_mark() {
    let mut shown = Shown::working(60, 12);
    assert_eq!(shown.view.paste("go\n"), [Action::Touched]);
    shown.control('c');
    shown.view.paste(&"line\n".repeat(120));
    shown.expect(
        "
working · build · default · openai/small
> [pasted 120 lines]_",
    );
    let sent = shown.key(KeyCode::Enter);
    assert!(matches!(&sent[..], [Action::Line(text)] if text.lines().count() == 120), "{sent:?}");
}

#[test]
fn tab_completes_and_lists_and_escape_closes_the_list_first() {
    let mut shown = Shown::working(60, 12);
    shown.types("see @s");
    shown.key(KeyCode::Tab);
    shown.key(KeyCode::Tab);
    shown.key(KeyCode::Tab);
    shown.expect(
        "
working · build · default · openai/small
> see @src/main.rs_
  src/
  src/main.rs
  src/map.rs",
    );
    assert_eq!(shown.key(KeyCode::Esc), [Action::Touched]);
    assert!(!shown.screen().contains("map.rs"));
    assert_eq!(shown.key(KeyCode::Esc), [Action::Escape]);
    shown.control('c');
    shown.types("/agent p");
    shown.key(KeyCode::Tab);
    let sent = shown.key(KeyCode::Enter);
    assert_eq!(sent.last(), Some(&Action::Command(Command::Agent("plan".into()))));
}

#[test]
fn slash_commands_go_to_the_loop_or_are_answered_here() {
    let mut shown = Shown::working(70, 40);
    let mut sends = |line: &str| {
        shown.types(line);
        shown.key(KeyCode::Enter).pop()
    };
    assert_eq!(sends("/mode plan"), Some(Action::Command(Command::Mode(Mode::Plan))));
    assert_eq!(sends("/quit"), Some(Action::Command(Command::Quit)));
    let skill = Action::Skill { name: "tidy".into(), arguments: "src".into() };
    assert_eq!(sends("/tidy src"), Some(skill));
    for line in ["/help", "/skills", "/cost", "/hlep"] {
        assert_eq!(sends(line), Some(Action::Remember(line.into())));
    }
    let screen = shown.screen();
    for part in ["/compact", "Alt+Enter", "/tidy", "cleans up", "0 requests", "did you mean /help?"] {
        assert!(screen.contains(part), "{part}: {screen}");
    }
    assert_eq!(shown.key(KeyCode::BackTab), [Action::Command(Command::Mode(Mode::Edit))]);
}

#[test]
fn the_line_written_before_comes_back() {
    let mut shown = Shown::working(60, 12);
    shown.key(KeyCode::Up);
    assert!(shown.screen().ends_with("> what I wrote before_"), "{}", shown.screen());
}

#[test]
fn todos_stand_above_the_line_until_all_are_done() {
    let mut shown = Shown::working(60, 12);
    let todo = |text: &str, state| Todo { text: text.into(), state };
    shown.apply(&[AgentEvent::Todo(vec![
        todo("read", TodoState::Completed),
        todo("write", TodoState::InProgress),
        todo("test", TodoState::Pending),
    ])]);
    shown.expect(
        "
  [x] read
  [>] write
  [ ] test
working · build · default · openai/small
> _ype to steer; Esc holds; /help",
    );
    shown.apply(&[AgentEvent::Todo(vec![todo("read", TodoState::Completed)])]);
    assert_eq!(shown.above.last().map(ToString::to_string).as_deref(), Some("  [x] read"));
    assert!(shown.view.todos.is_empty());
}

#[test]
fn forty_columns_hold_everything_and_the_picture_leaves_room_above() {
    let mut shown = Shown::working(40, 8);
    shown.apply(&[
        AgentEvent::Said("A sentence that is longer than forty columns are wide.".into()),
        started("bash", "a command that is much longer than forty columns"),
        permission(Some("bash(a command *)"), None),
        text(&"words and words ".repeat(40)),
    ]);
    let picture = shown.view.picture(40, 8);
    assert!(picture.rows.len() <= 7, "{}", picture.rows.len());
    for row in shown.above.iter().chain(&picture.rows) {
        assert!(row.width() <= 40, "{row}");
    }
    shown.view.phase = Phase::Idle;
    assert!(shown.screen().contains("waits for you · build · default"), "{}", shown.screen());
}

#[test]
fn nothing_foreign_brings_a_control_character_to_the_screen() {
    let evil = || "a\u{1b}[2Jb\u{1b}]0;title\u{7}c\rd\u{202e}e".to_owned();
    let mut shown = Shown::working(60, 40);
    let todo = || vec![Todo { text: evil(), state: TodoState::Pending }];
    let kinds =
        [QuestionKind::Free, QuestionKind::Plan, QuestionKind::Permission { always: Some(evil()), diff: Some(evil()) }];
    let mut events = vec![
        AgentEvent::Started { label: evil(), model: evil(), session: evil() },
        AgentEvent::Thinking(evil()),
        text(&evil()),
        AgentEvent::Cut { why: evil() },
        AgentEvent::Thinking(evil()),
        AgentEvent::Said(evil()),
        started(&evil(), &evil()),
        ended(&evil(), false, &evil()),
        started(&evil(), &evil()),
        AgentEvent::Changed { diff: evil() },
        AgentEvent::Steered { by: evil(), text: evil() },
        AgentEvent::Steered { by: format!("person {}", evil()), text: evil() },
        AgentEvent::Queued { by: evil(), text: evil() },
        AgentEvent::Answered { by: evil(), text: evil() },
        AgentEvent::Now { agent: evil(), mode: Mode::Edit, model: evil() },
        AgentEvent::Todo(todo()),
        AgentEvent::Note(evil()),
        text(&evil()),
        AgentEvent::Thinking(evil()),
    ];
    events.extend(kinds.map(|kind| AgentEvent::Question { text: evil(), kind }));
    let check = |rows: &[Line<'_>]| {
        for row in rows {
            let text = row.to_string();
            assert!(!text.chars().any(|c| c.is_control() || c == '\u{202e}'), "{text:?}");
            assert!(!text.contains("title"), "{text:?}");
        }
    };
    for event in &events {
        shown.apply(std::slice::from_ref(event));
        shown.view.thoughts = super::view::Thoughts::Shown;
        check(&shown.view.picture(60, 40).rows);
    }
    shown.apply(&[AgentEvent::Ended { outcome: Outcome::Failed, detail: evil(), usage: Usage::ZERO }]);
    check(&shown.above);
    assert!(!shown.above.is_empty());
}

#[test]
fn a_cut_answer_keeps_what_was_shown_and_says_so() {
    let mut shown = Shown::working(60, 12);
    shown.apply(&[text("Half a sen"), AgentEvent::Cut { why: "by a person".into() }, AgentEvent::Held]);
    shown.expect(
        "
Half a sen
-- cut: by a person
-- held; type to go on
held · build · default · openai/small
> _ype to go on",
    );
}
