//! What `ps`, `show`, the viewer and `--json` read of a run: plain values, and the lines and JSON made of them.
//!
//! Texts of children come out as one line without terminal escapes, and no line needs colour to be read: a state has
//! a word and a glyph. JSON is whole: it carries texts byte for byte, with escapes written as `\u001b`.
//! Deliberately absent: how a state is reached, colour, and printing.

use serde::Serialize;
use unicode_width::UnicodeWidthChar;

use super::fold::inert;
use super::prompts::cut_label;
use crate::model::budget::Budget;
use crate::model::id::{ChildId, RunId};
use crate::model::report::Outcome;
use crate::model::run::RunState;
use crate::model::status::Question;
use crate::model::time::Timestamp;
use crate::model::usage::Usage;
use crate::text;

/// The version of every JSON object here. Keys are only ever added within one.
const VERSION: u32 = 1;
/// Columns of the label and of what a child does, in a table.
const TABLE_COLUMNS: usize = 40;
/// Columns that the words of a line need before numbers may stand beside them.
const LEAST_WORDS: usize = 24;
/// Columns of words from which label and doing stand in columns of their own.
const TWO_COLUMNS: usize = 44;

/// A run as it stands.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct RunSnapshot {
    pub(crate) run: RunId,
    pub(crate) goal: String,
    pub(crate) state: RunState,
    /// The child whose agent asked for it, as `RUN/CHILD`; `None` where a person did.
    pub(crate) parent: Option<String>,
    /// The project's directory, absolute.
    pub(crate) project: String,
    pub(crate) created: Timestamp,
    /// Seconds up to `running_since`; all of them where that is `None`.
    pub(crate) elapsed_s: f64,
    #[serde(skip)]
    pub(crate) running_since: Option<Timestamp>,
    pub(crate) limits: Budget,
    /// What the run spent, its children and theirs included.
    pub(crate) spent: Usage,
    pub(crate) width: u32,
    /// In the order asked.
    pub(crate) children: Vec<ChildSnapshot>,
}

/// A child as it stands.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ChildSnapshot {
    pub(crate) id: ChildId,
    pub(crate) label: String,
    pub(crate) state: StateName,
    pub(crate) attempts: u32,
    /// What it does now, or waits for.
    pub(crate) doing: String,
    /// Requests to its model, those under way included.
    pub(crate) requests: u64,
    /// Seconds up to `running_since`; all of them where that is `None`.
    pub(crate) elapsed_s: f64,
    #[serde(skip)]
    pub(crate) running_since: Option<Timestamp>,
    pub(crate) usage: Usage,
    pub(crate) tool_calls: u64,
    pub(crate) files_changed: Vec<String>,
    /// What its report says; `None` while there is no report.
    pub(crate) outcome: Option<Outcome>,
    /// Why it failed, was cancelled or skipped.
    pub(crate) error: Option<String>,
    pub(crate) report_path: Option<String>,
    /// Where it works, absolute; the recipe's name while nothing is prepared.
    pub(crate) workspace: String,
    pub(crate) branch: Option<String>,
    /// What it asks a person.
    pub(crate) question: Option<Question>,
    pub(crate) session: Option<String>,
}

/// The states of a child by name, as JSON and people see them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StateName {
    Waiting,
    Preparing,
    Opening,
    Running,
    Exiting,
    Stopping,
    Collecting,
    Cooling,
    Parked,
    Done,
    Failed,
    Cancelled,
    Skipped,
}

impl StateName {
    #[cfg(test)]
    pub(crate) const ALL: &'static [Self] = &[
        Self::Waiting,
        Self::Preparing,
        Self::Opening,
        Self::Running,
        Self::Exiting,
        Self::Stopping,
        Self::Collecting,
        Self::Cooling,
        Self::Parked,
        Self::Done,
        Self::Failed,
        Self::Cancelled,
        Self::Skipped,
    ];

    /// The word of JSON and of lines.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Preparing => "preparing",
            Self::Opening => "opening",
            Self::Running => "running",
            Self::Exiting => "exiting",
            Self::Stopping => "stopping",
            Self::Collecting => "collecting",
            Self::Cooling => "cooling",
            Self::Parked => "parked",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Skipped => "skipped",
        }
    }

    /// One column that tells the groups apart without colour.
    const fn glyph(self) -> char {
        match self {
            Self::Waiting => '·',
            Self::Preparing | Self::Opening => '○',
            Self::Running => '●',
            Self::Exiting | Self::Stopping | Self::Collecting => '◐',
            Self::Cooling | Self::Parked => '~',
            Self::Done => '✓',
            Self::Failed => '✗',
            Self::Cancelled => '■',
            Self::Skipped => '-',
        }
    }

    pub(crate) const fn is_final(self) -> bool {
        match self {
            Self::Done | Self::Failed | Self::Cancelled | Self::Skipped => true,
            Self::Waiting
            | Self::Preparing
            | Self::Opening
            | Self::Running
            | Self::Exiting
            | Self::Stopping
            | Self::Collecting
            | Self::Cooling
            | Self::Parked => false,
        }
    }
}

impl std::fmt::Display for StateName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.word())
    }
}

/// How much a child or run wants a person, most first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Need {
    /// It asks something and waits.
    Answer,
    /// It failed: retry, resume, or let it be.
    Look,
    /// It works, or will by itself.
    Nothing,
    /// It is over.
    Over,
}

impl ChildSnapshot {
    pub(crate) fn need(&self) -> Need {
        match self.state {
            StateName::Failed => Need::Look,
            state if state.is_final() => Need::Over,
            _ if self.question.is_some() => Need::Answer,
            _ => Need::Nothing,
        }
    }

    /// Seconds of work, up to `now` while it runs. A clock that went back counts as one that stood.
    pub(crate) fn elapsed_s(&self, now: Timestamp) -> f64 {
        elapsed_s(self.elapsed_s, self.running_since, now)
    }

    /// How it ended in the words of a report; `None` while it goes on.
    pub(crate) fn outcome(&self) -> Option<Outcome> {
        match self.state {
            StateName::Done => Some(self.outcome.unwrap_or(Outcome::Done)),
            // A budget that ran out is a limit also where no report was left.
            StateName::Failed if self.outcome == Some(Outcome::Limit) => Some(Outcome::Limit),
            StateName::Failed => Some(Outcome::Failed),
            StateName::Cancelled | StateName::Skipped => Some(Outcome::Cancelled),
            StateName::Waiting
            | StateName::Preparing
            | StateName::Opening
            | StateName::Running
            | StateName::Exiting
            | StateName::Stopping
            | StateName::Collecting
            | StateName::Cooling
            | StateName::Parked => None,
        }
    }

    fn word(&self) -> &'static str {
        if self.need() == Need::Answer { "asks you" } else { self.state.word() }
    }

    fn glyph(&self) -> char {
        if self.need() == Need::Answer { '?' } else { self.state.glyph() }
    }

    /// The most useful line about it: its question, else why it ended, else what it does.
    fn words(&self) -> &str {
        match (&self.question, &self.error) {
            (Some(question), _) if self.need() == Need::Answer => &question.text,
            (_, Some(error)) if self.state.is_final() => error,
            _ => &self.doing,
        }
    }
}

impl RunSnapshot {
    /// What its neediest child wants.
    pub(crate) fn need(&self) -> Need {
        let need = self.children.iter().map(ChildSnapshot::need).min();
        let idle = match self.state {
            RunState::Ended => Need::Over,
            RunState::Made | RunState::Running => Need::Nothing,
        };
        need.unwrap_or(idle).min(idle)
    }

    pub(crate) fn elapsed_s(&self, now: Timestamp) -> f64 {
        elapsed_s(self.elapsed_s, self.running_since, now)
    }

    /// `None` while a child goes on. Done if all are; the one cause if all others share it; else failed.
    pub(crate) fn outcome(&self) -> Option<Outcome> {
        let outcomes: Vec<Outcome> = self.children.iter().map(ChildSnapshot::outcome).collect::<Option<_>>()?;
        let mut others = outcomes.into_iter().filter(|outcome| *outcome != Outcome::Done);
        let Some(first) = others.next() else { return Some(Outcome::Done) };
        Some(if others.all(|other| other == first) { first } else { Outcome::Failed })
    }
}

fn elapsed_s(before: f64, running_since: Option<Timestamp>, now: Timestamp) -> f64 {
    before + running_since.map_or(0.0, |since| now.since_s(since).max(0.0))
}

/// Children for `ps`: those who need a person first, else the order asked.
pub(crate) fn needs_you_first(children: &[ChildSnapshot]) -> Vec<&ChildSnapshot> {
    let mut sorted: Vec<&ChildSnapshot> = children.iter().collect();
    sorted.sort_by_key(|child| (child.need(), child.id.number()));
    sorted
}

/// Runs for `ps`: those who need a person first, then the newest.
pub(crate) fn runs_needing_you_first(runs: &[RunSnapshot]) -> Vec<&RunSnapshot> {
    let mut sorted: Vec<&RunSnapshot> = runs.iter().collect();
    sorted.sort_by_key(|run| (run.need(), std::cmp::Reverse(run.created)));
    sorted
}

/// One line a child of at most `columns` columns: number, glyph, state, label, what it does, requests, time.
pub(crate) fn line(child: &ChildSnapshot, columns: usize, now: Timestamp) -> String {
    let left = format!("{:>3} {} {:<10} ", child.id.number(), child.glyph(), child.word());
    let elapsed = text::elapsed(child.elapsed_s(now));
    let right = [format!(" {:>4} req {elapsed:>7}", child.requests), format!(" {elapsed:>7}"), String::new()]
        .into_iter()
        .find(|right| width(&left) + LEAST_WORDS + width(right) <= columns)
        .unwrap_or_default();
    let label = cut_label(&child.label);
    let words = plain_line(child.words(), columns);
    let room = columns.saturating_sub(width(&left) + width(&right));
    if right.is_empty() {
        return text::one_line(&format!("{}{label}", left.trim_start()), columns);
    }
    let middle = if room >= TWO_COLUMNS {
        let for_label = room * 2 / 5;
        format!("{} {}", padded(&label, for_label), text::one_line(&words, room - for_label - 1))
    } else if words.is_empty() {
        text::one_line(&label, room)
    } else {
        text::one_line(&format!("{label}: {words}"), room)
    };
    format!("{left}{}{right}", padded_as_is(middle, room))
}

/// One line about a run: id, state, counts, cost, time, goal.
pub(crate) fn heading(run: &RunSnapshot, columns: usize, now: Timestamp) -> String {
    let state = match run.state {
        RunState::Made => "made",
        RunState::Running => "running",
        RunState::Ended => "ended",
    };
    let count = |wanted: fn(&ChildSnapshot) -> bool| run.children.iter().filter(|child| wanted(child)).count();
    let asking = count(|child| child.need() == Need::Answer);
    let failed = count(|child| child.state == StateName::Failed);
    let mut parts = vec![match &run.parent {
        Some(parent) => format!("{} {state}, for {parent}", run.run),
        None => format!("{} {state}", run.run),
    }];
    parts.extend([format!("{} of {} done", count(|child| child.state == StateName::Done), run.children.len())]);
    parts.extend((asking > 0).then(|| format!("{} you", text::count(asking, "asks", "ask"))));
    parts.extend((failed > 0).then(|| format!("{failed} failed")));
    parts.push(match run.limits.usd {
        Some(limit) => format!("{} of {limit:.2}", cost_words(&run.spent)),
        None => cost_words(&run.spent),
    });
    parts.push(text::elapsed(run.elapsed_s(now)));
    let goal = plain_line(&run.goal, columns);
    parts.extend((!goal.is_empty()).then_some(goal));
    text::one_line(&parts.join(" · "), columns)
}

/// The children as a Markdown table that reads as well in a terminal: the body of `run.md`, and `show`.
pub(crate) fn table(run: &RunSnapshot, now: Timestamp) -> String {
    let mut rows = vec![["#", "child", "state", "doing", "requests", "time", "cost"].map(str::to_owned)];
    rows.extend(run.children.iter().map(|child| {
        [
            child.id.number().to_string(),
            cell(&child.label),
            format!("{} {}", child.glyph(), child.word()),
            cell(child.words()),
            child.requests.to_string(),
            text::elapsed(child.elapsed_s(now)),
            cost_words(&child.usage),
        ]
    }));
    let widths: Vec<usize> =
        (0..rows[0].len()).map(|column| rows.iter().map(|row| width(&row[column])).max().unwrap_or(0)).collect();
    let row = |cells: &[String]| {
        let cells: Vec<String> =
            cells.iter().zip(&widths).map(|(cell, width)| padded_as_is(cell.clone(), *width)).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
    let mut table = row(&rows[0]) + &row(&rule);
    table.extend(rows[1..].iter().map(|cells| row(cells)));
    table
}

/// `0.12 USD`, `under 0.01 USD`, `cost unknown`.
pub(crate) fn cost_words(usage: &Usage) -> String {
    match usage.cost_usd {
        None => "cost unknown".to_owned(),
        Some(cost) if cost > 0.0 && cost < 0.005 => "under 0.01 USD".to_owned(),
        Some(cost) => format!("{cost:.2} USD"),
    }
}

fn plain_line(text: &str, columns: usize) -> String {
    text::one_line(&text::without_controls(text), columns)
}

fn cell(text: &str) -> String {
    inert(&plain_line(text, TABLE_COLUMNS)).replace('|', "\\|")
}

fn width(text: &str) -> usize {
    text.chars().map(|c| c.width().unwrap_or(0)).sum()
}

fn padded(text: &str, columns: usize) -> String {
    padded_as_is(text::one_line(text, columns), columns)
}

/// The text and spaces up to `columns`; a longer one stays as it is.
fn padded_as_is(mut text: String, columns: usize) -> String {
    let missing = columns.saturating_sub(width(&text));
    text.extend(std::iter::repeat_n(' ', missing));
    text
}

/// The JSON of `fan`; its keys are a contract.
#[derive(Serialize)]
struct Fan<'a> {
    v: u32,
    run: &'a RunId,
    /// Null only where a child is not over yet.
    outcome: Option<Outcome>,
    fold: &'a str,
    children: Vec<FanChild<'a>>,
    usage: &'a Usage,
    duration_s: f64,
}

#[derive(Serialize)]
struct FanChild<'a> {
    id: &'a ChildId,
    label: &'a str,
    state: StateName,
    attempts: u32,
    /// Null only while it is not over.
    outcome: Option<Outcome>,
    usage: &'a Usage,
    /// Null where there is no report: a path to nothing would be a lie.
    report_path: Option<&'a str>,
    workspace: &'a str,
    branch: Option<&'a str>,
    error: Option<&'a str>,
}

impl<'a> From<&'a ChildSnapshot> for FanChild<'a> {
    fn from(child: &'a ChildSnapshot) -> Self {
        Self {
            id: &child.id,
            label: &child.label,
            state: child.state,
            attempts: child.attempts,
            outcome: child.outcome(),
            usage: &child.usage,
            report_path: child.report_path.as_deref(),
            workspace: &child.workspace,
            branch: child.branch.as_deref(),
            error: child.error.as_deref(),
        }
    }
}

/// The result of `fan` as one object on one line.
pub(crate) fn fan_json(run: &RunSnapshot, fold: &str, now: Timestamp) -> String {
    json(&Fan {
        v: VERSION,
        run: &run.run,
        outcome: run.outcome(),
        fold,
        children: run.children.iter().map(FanChild::from).collect(),
        usage: &run.spent,
        duration_s: run.elapsed_s(now),
    })
}

/// The first object of a stream: which run it is and whom it has.
pub(crate) fn start_json(run: &RunSnapshot) -> String {
    #[derive(Serialize)]
    struct Start<'a> {
        v: u32,
        r#type: &'static str,
        run: &'a RunId,
        goal: &'a str,
        children: Vec<&'a ChildId>,
    }
    let children = run.children.iter().map(|child| &child.id).collect();
    json(&Start { v: VERSION, r#type: "start", run: &run.run, goal: &run.goal, children })
}

/// An object of a stream: a child that changed its state.
pub(crate) fn change_json(child: &ChildSnapshot) -> String {
    #[derive(Serialize)]
    struct Change<'a> {
        v: u32,
        r#type: &'static str,
        #[serde(flatten)]
        child: FanChild<'a>,
        session: Option<&'a str>,
        doing: &'a str,
    }
    let session = child.session.as_deref();
    json(&Change { v: VERSION, r#type: "child", child: FanChild::from(child), session, doing: &child.doing })
}

/// The JSON of `run`; its keys are a contract.
#[derive(Serialize)]
struct Single<'a> {
    v: u32,
    run: &'a RunId,
    session: Option<&'a str>,
    outcome: Option<Outcome>,
    report: &'a str,
    usage: &'a Usage,
    tool_calls: u64,
    files_changed: &'a [String],
    duration_s: f64,
    error: Option<&'a str>,
}

/// The result of `run` as one object on one line. `report` is empty where there is none.
pub(crate) fn run_json(run: &RunSnapshot, child: &ChildSnapshot, report: &str, now: Timestamp) -> String {
    json(&Single {
        v: VERSION,
        run: &run.run,
        session: child.session.as_deref(),
        outcome: child.outcome(),
        report,
        usage: &run.spent,
        tool_calls: child.tool_calls,
        files_changed: &child.files_changed,
        duration_s: run.elapsed_s(now),
        error: child.error.as_deref(),
    })
}

/// A run with its children as one object on one line, for `ps` and `show`; times stand as of `now`.
pub(crate) fn snapshot_json(run: &RunSnapshot, now: Timestamp) -> String {
    #[derive(Serialize)]
    struct Versioned {
        v: u32,
        #[serde(flatten)]
        run: RunSnapshot,
    }
    let mut run = RunSnapshot { elapsed_s: run.elapsed_s(now), ..run.clone() };
    for child in &mut run.children {
        child.elapsed_s = child.elapsed_s(now);
    }
    json(&Versioned { v: VERSION, run })
}

/// JSON on one line that no terminal obeys. Of the control characters JSON itself escapes only the first 32, yet 0x9b
/// starts a sequence too; and bidirectional overrides reorder what a person reads.
fn json<T: Serialize>(value: &T) -> String {
    use std::fmt::Write as _;
    let plain = serde_json::to_string(value).expect("a snapshot is made of strings, numbers, lists and structs");
    let mut safe = String::with_capacity(plain.len());
    for c in plain.chars() {
        if c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}') {
            // None of these stands outside of a string, so each may be written as its number.
            let _ = write!(safe, "\\u{:04x}", u32::from(c));
        } else {
            safe.push(c);
        }
    }
    safe
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    const START: Timestamp = Timestamp::from_millis(1_796_074_899_000);

    pub(crate) fn child(number: u32, state: StateName) -> ChildSnapshot {
        ChildSnapshot {
            id: ChildId::new(number, "find login"),
            label: "Find the login".into(),
            state,
            attempts: 1,
            doing: "bash cargo test".into(),
            requests: 12,
            elapsed_s: 5.0,
            running_since: (!state.is_final()).then_some(START),
            usage: Usage { requests: 12, input_tokens: 900, output_tokens: 100, cost_usd: Some(0.12), ..Usage::ZERO },
            tool_calls: 30,
            files_changed: vec!["a.rs".into()],
            outcome: None,
            error: None,
            report_path: None,
            workspace: "/w".into(),
            branch: None,
            question: None,
            session: Some("5e55".into()),
        }
    }

    fn run(children: Vec<ChildSnapshot>) -> RunSnapshot {
        RunSnapshot {
            run: RunId::try_from("k3x9ab".to_owned()).unwrap(),
            goal: "Where is\nthe login?".into(),
            state: RunState::Running,
            parent: None,
            project: "/p".into(),
            created: START,
            elapsed_s: 0.0,
            running_since: Some(START),
            limits: Budget::RUN,
            spent: children.iter().map(|child| child.usage).sum(),
            width: 4,
            children,
        }
    }

    fn asking(number: u32) -> ChildSnapshot {
        let question = Question { id: "q1".into(), text: "May I push?".into(), asked: START };
        ChildSnapshot { question: Some(question), ..child(number, StateName::Running) }
    }

    #[test]
    fn a_line_says_all_without_colour() {
        let now = START.plus_s(120.0);
        assert_eq!(
            line(&child(3, StateName::Running), 80, now),
            "  3 ● running    Find the login     bash cargo test               12 req    2:05"
        );
        let failed = ChildSnapshot { error: Some("crash: signal 9".into()), ..child(12, StateName::Failed) };
        assert_eq!(line(&failed, 60, now), " 12 ✗ failed     Find the login: crash: si…   12 req     5 s");
        assert_eq!(line(&asking(1), 50, now), "  1 ? asks you   Find the login: May I pu…    2:05");
        assert_eq!(line(&asking(1), 20, now), "1 ? asks you Find t…");
    }

    #[test]
    fn a_line_fits_any_terminal_whatever_the_child_says() {
        for text in [
            "\u{1b}]0;x\u{7}日本語 🙂🙂🙂🙂🙂🙂🙂🙂🙂🙂🙂🙂🙂🙂\n## x",
            "",
            &"x".repeat(500),
            &"\u{200b}".repeat(5_000),
        ] {
            for state in StateName::ALL {
                let child = ChildSnapshot {
                    label: text.into(),
                    doing: text.into(),
                    error: Some(text.into()),
                    requests: u64::MAX,
                    ..child(1_000, *state)
                };
                for columns in (1..140).step_by(3) {
                    let line = line(&child, columns, START.plus_s(1e7));
                    assert!(width(&line) <= columns, "{columns}: {line}");
                    assert!(!line.contains(char::is_control));
                }
            }
        }
    }

    #[test]
    fn words_and_json_name_states_alike_and_no_word_breaks_its_column() {
        for state in StateName::ALL {
            assert_eq!(serde_json::to_string(state).unwrap(), format!("\"{state}\""));
            assert!(state.word().len() <= 10);
            assert_eq!(width(&state.glyph().to_string()), 1);
        }
    }

    #[test]
    fn who_needs_you_comes_first() {
        let children = vec![
            child(1, StateName::Done),
            child(2, StateName::Running),
            child(3, StateName::Failed),
            asking(4),
            child(5, StateName::Waiting),
        ];
        let order: Vec<u32> = needs_you_first(&children).iter().map(|child| child.id.number()).collect();
        assert_eq!(order, [4, 3, 2, 5, 1]);
        let quiet = RunSnapshot { created: START.plus_s(9.0), ..run(vec![child(1, StateName::Running)]) };
        let over =
            RunSnapshot { created: START.plus_s(99.0), state: RunState::Ended, ..run(vec![child(1, StateName::Done)]) };
        let runs = [over, quiet, run(children)];
        let needs: Vec<Need> = runs_needing_you_first(&runs).iter().map(|run| run.need()).collect();
        assert_eq!(needs, [Need::Answer, Need::Nothing, Need::Over]);
    }

    #[test]
    fn a_question_of_a_child_that_is_over_needs_nobody() {
        let over = ChildSnapshot { state: StateName::Cancelled, ..asking(1) };
        assert_eq!((over.need(), over.word()), (Need::Over, "cancelled"));
    }

    #[test]
    fn a_table_is_markdown_and_no_cell_breaks_it() {
        let mut odd = child(2, StateName::Done);
        odd.label = "a | b\n| c".into();
        odd.usage.cost_usd = None;
        let table = table(&run(vec![child(1, StateName::Running), odd]), START);
        assert_eq!(
            table,
            "\
| # | child          | state     | doing           | requests | time | cost         |
| - | -------------- | --------- | --------------- | -------- | ---- | ------------ |
| 1 | Find the login | ● running | bash cargo test | 12       | 5 s  | 0.12 USD     |
| 2 | a \\| b \\| c    | ✓ done    | bash cargo test | 12       | 5 s  | cost unknown |
"
        );
    }

    #[test]
    fn a_heading_counts_what_matters() {
        let run = run(vec![child(1, StateName::Done), asking(2), child(3, StateName::Failed)]);
        assert_eq!(
            heading(&run, 120, START.plus_s(65.0)),
            "k3x9ab running · 1 of 3 done · 1 asks you · 1 failed · 0.36 USD of 5.00 · 1:05 · Where is the login?"
        );
        assert!(width(&heading(&run, 30, START)) <= 30);
        let of_an_agent = RunSnapshot { parent: Some("abcdef/2".into()), ..run };
        assert!(heading(&of_an_agent, 120, START).starts_with("k3x9ab running, for abcdef/2 · 1 of 3 done"));
    }

    #[test]
    fn a_cost_that_is_not_known_is_never_nought() {
        let cost = |cost_usd| cost_words(&Usage { cost_usd, ..Usage::ZERO });
        assert_eq!(cost(None), "cost unknown");
        assert_eq!(cost(Some(0.0)), "0.00 USD");
        assert_eq!(cost(Some(0.001)), "under 0.01 USD");
        assert_eq!(cost(Some(0.123)), "0.12 USD");
    }

    #[test]
    fn the_json_of_fan_has_its_keys_in_order() {
        let mut done = child(1, StateName::Done);
        done.outcome = Some(Outcome::Limit);
        done.report_path = Some("/r/report.md".into());
        done.branch = Some("decode/k3x9ab/01-find-login".into());
        let mut failed = child(2, StateName::Failed);
        failed.error = Some("crash: signal 9".into());
        failed.usage.cost_usd = None;
        let json = fan_json(&run(vec![done, failed]), "the fold\n", START.plus_s(1.5));
        let usage = |cost: &str| {
            format!(
                "{{\"requests\":12,\"input_tokens\":900,\"cached_tokens\":0,\"output_tokens\":100,\"cost_usd\":{cost}}}"
            )
        };
        let first = format!(
            "{{\"id\":\"01-find-login\",\"label\":\"Find the login\",\"state\":\"done\",\"attempts\":1,\"outcome\":\"limit\",\
             \"usage\":{},\"report_path\":\"/r/report.md\",\"workspace\":\"/w\",\
             \"branch\":\"decode/k3x9ab/01-find-login\",\"error\":null}}",
            usage("0.12")
        );
        let second = format!(
            "{{\"id\":\"02-find-login\",\"label\":\"Find the login\",\"state\":\"failed\",\"attempts\":1,\
             \"outcome\":\"failed\",\"usage\":{},\"report_path\":null,\"workspace\":\"/w\",\"branch\":null,\
             \"error\":\"crash: signal 9\"}}",
            usage("null")
        );
        let total = usage("null").replace("12,", "24,").replace("900", "1800").replace("100", "200");
        assert_eq!(
            json,
            format!(
                "{{\"v\":1,\"run\":\"k3x9ab\",\"outcome\":\"failed\",\"fold\":\"the fold\\n\",\"children\":[{first},{second}],\
                 \"usage\":{total},\"duration_s\":1.5}}"
            )
        );
    }

    #[test]
    fn the_json_of_run_carries_the_report_byte_for_byte_and_no_raw_escape() {
        let report = "a\u{1b}[31mb\u{9b}2Jc\u{7f}\u{202e}d\"\\\r\n🙂";
        let done = child(1, StateName::Done);
        let json = run_json(&run(vec![done.clone()]), &done, report, START);
        assert!(!json.contains(|c: char| c.is_control() || c == '\u{202e}'), "{json}");
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(value["report"], report);
        let keys: Vec<&String> = value.as_object().unwrap().keys().collect();
        let want =
            ["v", "run", "session", "outcome", "report", "usage", "tool_calls", "files_changed", "duration_s", "error"];
        assert_eq!(keys, want);
        assert_eq!((&value["outcome"], &value["error"]), (&"done".into(), &serde_json::Value::Null));
    }

    #[test]
    fn a_snapshot_is_written_with_its_times_as_of_now() {
        let json = snapshot_json(&run(vec![child(1, StateName::Running)]), START.plus_s(10.0));
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!((&value["v"], &value["elapsed_s"]), (&1.into(), &10.0.into()));
        assert_eq!(value["children"][0]["elapsed_s"], 15.0);
        assert_eq!(value["children"][0]["state"], "running");
    }

    #[test]
    fn the_outcome_of_a_run_is_the_one_cause_or_failed() {
        let of = |states: &[StateName]| run(states.iter().map(|state| child(1, *state)).collect()).outcome();
        assert_eq!(of(&[StateName::Done, StateName::Done]), Some(Outcome::Done));
        assert_eq!(of(&[StateName::Done, StateName::Running]), None);
        assert_eq!(of(&[StateName::Done, StateName::Cancelled]), Some(Outcome::Cancelled));
        assert_eq!(of(&[StateName::Failed, StateName::Cancelled]), Some(Outcome::Failed));
        let limit = ChildSnapshot { outcome: Some(Outcome::Limit), ..child(1, StateName::Failed) };
        assert_eq!(run(vec![limit, child(2, StateName::Done)]).outcome(), Some(Outcome::Limit));
    }

    #[test]
    fn a_clock_that_went_back_does_not_take_time_away() {
        assert_eq!(child(1, StateName::Running).elapsed_s(START.plus_s(-3600.0)).to_bits(), 5.0_f64.to_bits());
    }
}
