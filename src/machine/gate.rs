//! Whether a tool call may run: deny rules, then the mode `plan`, then allow rules, then the mode, then ask.
//!
//! A rule is a filter; the sandbox is the boundary. So whatever is not fully understood is asked, never guessed.
//! Below, from the text up: `reader` turns a shell line to the types of `syntax`, `flow` follows `cd` through it, `unwrap`
//! knows which commands run others, `line` is all of it together. `commands` holds allow rules against a line, `denial`
//! deny rules; `programs` and `git` know which arguments make a harmless program run or write something. `paths` and
//! `web` are for rules about files and addresses, `remember` for the answer "always", `explain` for a person who asks
//! what a persona may do. Deliberately absent: the resolving of paths (the tools do it before they name a subject; a
//! shell line's paths are judged as written) and who is asked.

use std::path::Path;

use crate::model::persona::Mode;
use crate::model::rule::{Rule, Subject};
use crate::model::tool_name::{ToolKind, ToolName};

mod commands;
mod denial;
mod explain;
mod flow;
mod git;
mod line;
mod paths;
mod pattern;
mod programs;
mod reader;
mod remember;
mod syntax;
mod unwrap;
mod web;
mod words;

#[cfg(test)]
mod corpus_tests;
#[cfg(test)]
mod differential_tests;
#[cfg(test)]
mod tests;

use denial::Denial;
pub(crate) use explain::{Explained, Otherwise, Why, explain};
pub(crate) use paths::{PathRules, denies_path};
pub(crate) use remember::always;

/// What a call is judged by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Policy {
    pub(crate) mode: Mode,
    pub(crate) allow: Vec<Rule>,
    pub(crate) deny: Vec<Rule>,
    /// Whether edits and commands are held inside a workspace of the child's own by the kernel.
    pub(crate) confinement: Confinement,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Confinement {
    /// The sandbox is in force and the workspace is the child's own: what stays inside is free.
    InForce,
    None,
}

/// What becomes of a call. The reason is for the model and the person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Decision {
    Allow,
    Ask { reason: String },
    Deny { reason: String },
}

/// Judges a call by all it touches: the strictest decision holds.
pub(crate) fn judge_all(tool: ToolName, subjects: &[Subject], policy: &Policy) -> Decision {
    let mut strictest = Decision::Allow;
    for subject in subjects {
        // A host that a command names is a host, whoever fetches.
        let tool = if matches!(subject, Subject::Url(_)) { ToolName::WebFetch } else { tool };
        match (judge(tool, subject, policy), &strictest) {
            (deny @ Decision::Deny { .. }, _) => return deny,
            (ask @ Decision::Ask { .. }, Decision::Allow) => strictest = ask,
            (Decision::Ask { .. } | Decision::Allow, _) => {}
        }
    }
    strictest
}

/// Judges one subject of a call.
pub(crate) fn judge(tool: ToolName, subject: &Subject, policy: &Policy) -> Decision {
    let mut doubt = None;
    if let (ToolName::Bash, Subject::Command(line)) = (tool, subject) {
        match denial::denial(&policy.deny, line, &line::everything(line)) {
            Denial::Yes(rule) => return Decision::Deny { reason: format!("the rule `{rule}` denies this") },
            Denial::Maybe(rule) => doubt = Some(rule),
            Denial::No => {}
        }
    } else if let Some(rule) = denied_by(tool, subject, &policy.deny) {
        return Decision::Deny { reason: format!("the rule `{rule}` denies this") };
    }
    if tool.kind() == ToolKind::Control {
        return Decision::Allow;
    }
    if policy.mode == Mode::Plan && matches!(tool.kind(), ToolKind::Edit | ToolKind::Command) {
        // Before the allow rules: plan mode promises that nothing changes, and a rule cannot know what a command does.
        return Decision::Deny {
            reason: "plan mode is read-only; present the plan and call exit_plan_mode".to_owned(),
        };
    }
    if let Some(rule) = doubt {
        // In every mode: a rule that spelling could get round would be none.
        return Decision::Ask { reason: format!("it may be what the rule `{rule}` denies") };
    }
    match allowed_by_rule(tool, subject, policy) {
        Ok(()) => Decision::Allow,
        Err(reason) => by_mode(tool, subject, policy, reason),
    }
}

fn by_mode(tool: ToolName, subject: &Subject, policy: &Policy, reason: String) -> Decision {
    if matches!(subject, Subject::Url(_)) {
        // Reading the web is sending: also in bypass mode a host must have been named.
        return Decision::Ask { reason };
    }
    if policy.mode == Mode::Bypass {
        return Decision::Allow;
    }
    if let Subject::Path(path) = subject
        && paths::is_outside(path)
    {
        return Decision::Ask { reason: format!("`{path}` is outside the workspace") };
    }
    let confined = policy.confinement == Confinement::InForce;
    match tool.kind() {
        ToolKind::ReadOnly | ToolKind::Control => Decision::Allow,
        ToolKind::Edit | ToolKind::Command if confined => Decision::Allow,
        ToolKind::Edit if policy.mode == Mode::Edit => edit_freely(subject),
        ToolKind::Edit | ToolKind::Command => Decision::Ask { reason },
    }
}

/// Edits in mode `edit` without a sandbox: all but git's own files, whose configuration and hooks are commands.
fn edit_freely(subject: &Subject) -> Decision {
    match subject {
        Subject::Path(path) if !paths::is_of_git(path) => Decision::Allow,
        Subject::Path(path) => {
            Decision::Ask { reason: format!("`{path}` belongs to git, which runs what stands there") }
        }
        Subject::Command(_) | Subject::Url(_) | Subject::None => {
            Decision::Ask { reason: "the call names no path".to_owned() }
        }
    }
}

/// The first deny rule that fits.
fn denied_by<'a>(tool: ToolName, subject: &Subject, deny: &'a [Rule]) -> Option<&'a Rule> {
    deny.iter().find(|rule| match (&rule.pattern, subject) {
        (None, _) => rule.tool == tool,
        (Some(_), Subject::Path(path)) => denies_path(tool, path, std::slice::from_ref(rule)),
        (Some(pattern), Subject::Command(text)) => rule.tool == tool && pattern::fits(pattern, text),
        (Some(pattern), Subject::Url(url)) => rule.tool == tool && web::denies(pattern, url),
        (Some(pattern), Subject::None) => rule.tool == tool && pattern == tool.as_str(),
    })
}

/// Whether allow rules cover the call; if not, the reason to ask.
fn allowed_by_rule(tool: ToolName, subject: &Subject, policy: &Policy) -> Result<(), String> {
    let mut patterns = Vec::new();
    for rule in policy.allow.iter().filter(|rule| rule.tool == tool) {
        match &rule.pattern {
            // The whole tool, but for paths that a rule has to name.
            None if !matches!(subject, Subject::Path(path) if paths::must_be_named(tool, path)) => return Ok(()),
            None => {}
            Some(pattern) => patterns.push(pattern.as_str()),
        }
    }
    match subject {
        Subject::Command(line) => {
            let may_write = |path: &str| redirected_into(path, policy);
            commands::Allowing::new(&patterns, &may_write).allows(line)
        }
        Subject::Path(path) if patterns.iter().any(|pattern| paths::allows(tool, pattern, path)) => Ok(()),
        Subject::Url(url) if patterns.iter().any(|pattern| web::allows(pattern, url)) => Ok(()),
        Subject::Url(url) => Err(format!("no rule allows `{}`", web::shown(url))),
        Subject::Path(_) | Subject::None => Err(format!("no rule allows `{tool}` here")),
    }
}

/// A redirection is a write, and may do what the tool `write` may.
fn redirected_into(path: &str, policy: &Policy) -> Result<(), String> {
    match judge(ToolName::Write, &Subject::Path(path.to_owned()), policy) {
        Decision::Allow => Ok(()),
        Decision::Ask { .. } | Decision::Deny { .. } => Err(format!("it writes `{path}`, and no rule allows that")),
    }
}

/// Rules as people write them, turned to the form subjects have: `~` and the workspace's own absolute path taken out.
///
/// To be called once, when a policy is made: `judge` knows neither the workspace nor the home directory.
pub(crate) fn anchored(rules: Vec<Rule>, root: &Path, home: Option<&Path>) -> Vec<Rule> {
    let root = format!("{}/", root.to_string_lossy().trim_end_matches('/'));
    rules
        .into_iter()
        .map(|mut rule| {
            if rule.tool != ToolName::Bash
                && let Some(pattern) = &mut rule.pattern
            {
                if let (Some(rest), Some(home)) = (pattern.strip_prefix("~/"), home) {
                    *pattern = format!("{}/{rest}", home.to_string_lossy().trim_end_matches('/'));
                }
                if let Some(inside) = pattern.strip_prefix(&root) {
                    *pattern = inside.to_owned();
                } else if format!("{pattern}/") == root {
                    "**".clone_into(pattern);
                }
            }
            rule
        })
        .collect()
}
