//! What a person can do, in the words of `/help`, and what was used, in those of `/cost`.

use ratatui::style::Stylize;
use ratatui::text::Line;

use super::slash::COMMANDS;
use super::view::tokens;
use crate::model::usage::Usage;

/// Keys with what they do. `keys.rs` does it.
const KEYS: [(&str, &str); 12] = [
    ("Enter", "send: steers at the next boundary, or answers what is asked"),
    ("Alt+Enter", "send for when it would stop"),
    ("Ctrl-J", "a new line; Shift+Enter where the terminal tells them apart"),
    ("Esc", "stop what runs and hold; refuse what is asked"),
    ("Ctrl-C", "clear the line; on an empty line the same as Esc"),
    ("Ctrl-D", "on an empty line: leave"),
    ("Tab", "complete a command, a persona, or a path after @"),
    ("Shift+Tab", "the next mode: default, edit, plan"),
    ("Up, Down", "lines written before"),
    ("Ctrl-O", "show or fold what it thinks"),
    ("Ctrl-U, Ctrl-W", "delete to the start of the line, a word"),
    ("y, a, n", "on an empty line: answer a question"),
];

pub(super) fn commands() -> Vec<Line<'static>> {
    let mut lines = vec![Line::from("Commands").bold()];
    lines.extend(COMMANDS.iter().map(|(name, takes, does)| row(format!("/{name} {takes}").trim_end(), does)));
    lines
}

pub(super) fn help() -> Vec<Line<'static>> {
    let mut lines = commands();
    lines.push(Line::from("Keys").bold());
    lines.extend(KEYS.iter().map(|(key, does)| row(key, does)));
    lines
}

fn row(name: &str, does: &str) -> Line<'static> {
    Line::from(format!("  {name:<22} {does}"))
}

pub(super) fn skills(skills: &[(String, String)]) -> Vec<Line<'static>> {
    if skills.is_empty() {
        return vec![Line::from("no skills are installed here").dim()];
    }
    skills.iter().map(|(name, description)| row(&format!("/{name}"), &super::paint::short(description))).collect()
}

pub(super) fn cost(usage: &Usage) -> Line<'static> {
    let cost = usage.cost_usd.map_or("cost unknown".to_owned(), |usd| format!("{usd:.4} USD"));
    let used = tokens(usage.tokens());
    Line::from(format!("{} requests, {used} ({} cached), {cost}", usage.requests, usage.cached_tokens))
}
