//! What a parent is told of its children while they work: what each is at, a few lines for the log, what they spend.
//!
//! Deliberately absent: where events come from, and who hears what is told.

use std::collections::BTreeMap;

use crate::agent::event::AgentEvent;
use crate::machine::snapshot::RunSnapshot;
use crate::model::usage::Usage;
use crate::text;
use crate::tool::Telling;

/// Steps of one child that stand in its parent's log; the rest is in its own.
const STEPS: u32 = 3;
/// Columns of what one child is at.
const WORDS: usize = 40;

/// All that was heard of the children of one call, by their numbers.
#[derive(Debug, Default)]
pub(super) struct Board {
    doing: BTreeMap<u32, String>,
    steps: BTreeMap<u32, u32>,
    /// What the present attempt of each had spent when it was last heard.
    spent: BTreeMap<u32, Usage>,
    /// What the run had spent when it was last looked at.
    seen: Usage,
}

impl Board {
    /// Takes an event of a child that is a task of this process.
    pub(super) fn hear(&mut self, number: u32, event: &AgentEvent) -> Vec<Telling> {
        match event {
            AgentEvent::Started { .. } => {
                self.spent.insert(number, Usage::ZERO);
                self.at(number, "starts".to_owned())
            }
            AgentEvent::ToolStarted { name, summary } => {
                let step = text::one_line(&text::without_controls(&format!("{name} {summary}")), WORDS);
                let mut tellings = self.at(number, step.clone());
                let steps = self.steps.entry(number).or_default();
                *steps += 1;
                if *steps <= STEPS {
                    tellings.push(Telling::Note(format!("[{number}] {step}")));
                }
                tellings
            }
            AgentEvent::Limited { until, .. } => self.at(number, format!("waits until {until}")),
            AgentEvent::Used { usage, .. } => self.spend(number, *usage).into_iter().collect(),
            AgentEvent::Ended { outcome, usage, .. } => {
                let mut tellings: Vec<Telling> = self.spend(number, *usage).into_iter().collect();
                let requests = text::count(usage.requests as usize, "request", "requests");
                tellings.push(Telling::Note(format!("[{number}] {outcome} · {requests}")));
                tellings.extend(self.at(number, outcome.to_string()));
                tellings
            }
            AgentEvent::Text(_)
            | AgentEvent::Thinking(_)
            | AgentEvent::Said(_)
            | AgentEvent::ToolEnded { .. }
            | AgentEvent::Changed { .. }
            | AgentEvent::Steered { .. }
            | AgentEvent::Queued { .. }
            | AgentEvent::Question { .. }
            | AgentEvent::Answered { .. }
            | AgentEvent::Held
            | AgentEvent::Idle
            | AgentEvent::Now { .. }
            | AgentEvent::Todo(_)
            | AgentEvent::Note(_)
            | AgentEvent::Cut { .. } => Vec::new(),
        }
    }

    /// Takes a look at a run that others drive.
    pub(super) fn look(&mut self, run: &RunSnapshot) -> Vec<Telling> {
        let before = (self.line(), self.seen);
        for child in &run.children {
            let words = if child.doing.is_empty() { child.state.word() } else { &child.doing };
            let words = text::one_line(&text::without_controls(words), WORDS);
            self.doing.insert(child.id.number(), words);
        }
        self.seen = run.spent;
        let mut tellings = Vec::new();
        if run.spent != before.1 {
            tellings.push(Telling::Spent(since(run.spent, before.1)));
        }
        if self.line() != before.0 {
            tellings.push(Telling::Doing(self.line()));
        }
        tellings
    }

    fn at(&mut self, number: u32, doing: String) -> Vec<Telling> {
        self.doing.insert(number, doing);
        vec![Telling::Doing(self.line())]
    }

    fn spend(&mut self, number: u32, usage: Usage) -> Option<Telling> {
        let before = self.spent.insert(number, usage).unwrap_or_default();
        (usage != before).then(|| Telling::Spent(since(usage, before)))
    }

    /// What all are at, in one line.
    fn line(&self) -> String {
        let each: Vec<String> = self.doing.iter().map(|(number, doing)| format!("[{number}] {doing}")).collect();
        format!("agent {}", each.join(" · "))
    }
}

/// What was spent since then. A cost that is not known now is not known of the difference.
pub(super) fn since(now: Usage, before: Usage) -> Usage {
    Usage {
        requests: now.requests.saturating_sub(before.requests),
        input_tokens: now.input_tokens.saturating_sub(before.input_tokens),
        cached_tokens: now.cached_tokens.saturating_sub(before.cached_tokens),
        output_tokens: now.output_tokens.saturating_sub(before.output_tokens),
        cost_usd: now.cost_usd.zip(before.cost_usd).map(|(now, before)| (now - before).max(0.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::report::Outcome;

    fn step(summary: &str) -> AgentEvent {
        AgentEvent::ToolStarted { name: "read".into(), summary: summary.into() }
    }

    fn ended(requests: u64) -> AgentEvent {
        let usage = Usage { requests, cost_usd: Some(requests as f64), ..Usage::ZERO };
        AgentEvent::Ended { outcome: Outcome::Done, detail: String::new(), usage }
    }

    fn started() -> AgentEvent {
        AgentEvent::Started { label: String::new(), model: String::new(), session: String::new() }
    }

    #[test]
    fn a_child_that_looks_for_long_fills_no_log_and_is_still_seen_at_work() {
        let mut board = Board::default();
        board.hear(2, &started());
        let told: Vec<Telling> = (0..9).flat_map(|nth| board.hear(1, &step(&format!("src/{nth}.rs")))).collect();
        let notes: Vec<&Telling> = told.iter().filter(|telling| matches!(telling, Telling::Note(_))).collect();
        assert_eq!(notes.len(), 3);
        assert_eq!(notes[0], &Telling::Note("[1] read src/0.rs".into()));
        assert_eq!(told.last(), Some(&Telling::Doing("agent [1] read src/8.rs · [2] starts".into())));
    }

    #[test]
    fn what_is_told_of_spending_adds_up_to_all_attempts_whatever_was_told_on_the_way() {
        let mut board = Board::default();
        let used =
            |requests, cost_usd| AgentEvent::Used { usage: Usage { requests, cost_usd, ..Usage::ZERO }, window: 0.1 };
        let events = [started(), used(1, Some(1.0)), used(2, Some(2.0)), ended(3), started(), ended(4)];
        let spent: Usage = events
            .iter()
            .flat_map(|event| board.hear(1, event))
            .filter_map(|telling| match telling {
                Telling::Spent(usage) => Some(usage),
                Telling::Doing(_) | Telling::Note(_) => None,
            })
            .sum();
        assert_eq!((spent.requests, spent.cost_usd), (7, Some(7.0)));
        assert_eq!(board.hear(1, &ended(4)).len(), 2, "the same again spends nothing");
    }

    #[test]
    fn no_name_or_argument_brings_a_control_character_into_the_parents_log() {
        let mut board = Board::default();
        for telling in board.hear(1, &step("a\u{1b}[2J\u{202e}b\nc")) {
            let (Telling::Doing(text) | Telling::Note(text)) = telling else { panic!("nothing was spent") };
            assert!(!text.chars().any(|c| c.is_control() || c == '\u{202e}'), "{text:?}");
        }
    }
}
