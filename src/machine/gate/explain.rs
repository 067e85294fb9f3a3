//! What a persona may do, tool by tool, for a person who asks before starting it.
//!
//! Deliberately absent: how it is shown.

use super::{Confinement, Policy};
use crate::model::persona::{Mode, Persona};
use crate::model::rule::Rule;
use crate::model::tool_name::{ToolKind, ToolName};

/// What becomes of the calls of one tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Explained {
    pub(crate) tool: ToolName,
    /// Rules that deny some or all of them; they come first.
    pub(crate) denied: Vec<Rule>,
    /// Rules that allow some or all of them.
    pub(crate) allowed: Vec<Rule>,
    /// What is left.
    pub(crate) otherwise: Otherwise,
}

/// What becomes of a call that no rule decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Otherwise {
    Allowed(Why),
    Asked(Why),
    Denied(Why),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// A rule without a pattern speaks of the whole tool.
    Rule,
    /// The mode.
    Mode(Mode),
    /// The sandbox keeps it in a workspace of its own; what leaves it is asked.
    Confined,
    /// It talks to the loop, not to the world.
    Control,
    /// It looks at the workspace; what lies outside is asked.
    Reading,
    /// Reading the web is sending: a rule must name the host, in every mode.
    Web,
}

/// Explains each tool of the persona in the order of its file. The policy is the one it will be judged by.
pub(crate) fn explain(persona: &Persona, policy: &Policy) -> Vec<Explained> {
    persona.tools.iter().map(|tool| explained(*tool, policy)).collect()
}

fn explained(tool: ToolName, policy: &Policy) -> Explained {
    let whole = |rules: &[Rule]| rules.iter().any(|rule| rule.tool == tool && rule.pattern.is_none());
    let denied = policy.deny.iter().filter(|rule| concerns(rule, tool)).cloned().collect();
    let plan = policy.mode == Mode::Plan && matches!(tool.kind(), ToolKind::Edit | ToolKind::Command);
    let allowed: Vec<Rule> = policy.allow.iter().filter(|rule| rule.tool == tool).cloned().collect();
    let otherwise = if whole(&policy.deny) {
        Otherwise::Denied(Why::Rule)
    } else if plan {
        Otherwise::Denied(Why::Mode(Mode::Plan))
    } else if tool.kind() == ToolKind::Control {
        Otherwise::Allowed(Why::Control)
    } else if whole(&policy.allow) {
        Otherwise::Allowed(Why::Rule)
    } else {
        by_mode(tool, policy)
    };
    // A rule that can never be reached is no permission.
    let reached = !plan && !whole(&policy.deny);
    Explained { tool, denied, allowed: if reached { allowed } else { Vec::new() }, otherwise }
}

fn by_mode(tool: ToolName, policy: &Policy) -> Otherwise {
    if tool == ToolName::WebFetch {
        return Otherwise::Asked(Why::Web);
    }
    match (policy.mode, tool.kind()) {
        (Mode::Bypass, _) => Otherwise::Allowed(Why::Mode(Mode::Bypass)),
        (_, ToolKind::ReadOnly | ToolKind::Control) => Otherwise::Allowed(Why::Reading),
        (_, ToolKind::Edit | ToolKind::Command) if policy.confinement == Confinement::InForce => {
            Otherwise::Allowed(Why::Confined)
        }
        (Mode::Edit, ToolKind::Edit) => Otherwise::Allowed(Why::Mode(Mode::Edit)),
        (mode, ToolKind::Edit | ToolKind::Command) => Otherwise::Asked(Why::Mode(mode)),
    }
}

/// Whether a deny rule holds for the tool: one about files holds for all that reach files, commands included.
fn concerns(rule: &Rule, tool: ToolName) -> bool {
    let files = matches!(rule.tool, ToolName::Read | ToolName::Write | ToolName::Edit) && rule.pattern.is_some();
    rule.tool == tool || super::paths::reaches(rule, tool) || (files && tool == ToolName::Bash)
}

#[cfg(test)]
mod tests {
    use super::super::{Decision, Subject, judge};
    use super::*;

    fn persona(tools: &[ToolName]) -> Persona {
        Persona {
            name: "x".to_owned(),
            description: String::new(),
            tools: tools.to_vec(),
            mode: Mode::Default,
            allow: Vec::new(),
            deny: Vec::new(),
            model: None,
            subagent: false,
        }
    }

    #[test]
    fn what_is_explained_is_what_is_judged() {
        let rules = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<Rule>>();
        let subject = |tool: ToolName| match tool {
            ToolName::Bash => Subject::Command("unknown x".to_owned()),
            ToolName::WebFetch => Subject::Url("https://unknown.example/".to_owned()),
            tool if tool.kind() == ToolKind::Control => Subject::None,
            ToolName::Agent | ToolName::Invoke | ToolName::WebSearch => Subject::None,
            _ => Subject::Path("unknown/x".to_owned()),
        };
        for (allow, deny) in
            [(&[][..], &[][..]), (&["bash", "write"], &[]), (&["bash(git *)"], &["edit", "read(secret/**)"])]
        {
            for mode in [Mode::Default, Mode::Edit, Mode::Plan, Mode::Bypass] {
                for confinement in [Confinement::None, Confinement::InForce] {
                    let policy = Policy { mode, allow: rules(allow), deny: rules(deny), confinement };
                    for explained in explain(&persona(ToolName::ALL), &policy) {
                        let decision = judge(explained.tool, &subject(explained.tool), &policy);
                        let agrees = match explained.otherwise {
                            Otherwise::Allowed(_) => decision == Decision::Allow,
                            Otherwise::Asked(_) => matches!(decision, Decision::Ask { .. }),
                            Otherwise::Denied(_) => matches!(decision, Decision::Deny { .. }),
                        };
                        assert!(agrees, "{explained:?} in {mode}: {decision:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_rule_about_files_is_told_of_every_tool_that_it_holds_for() {
        let policy = Policy {
            mode: Mode::Default,
            allow: vec!["bash(git *)".parse().unwrap()],
            deny: vec!["read(secret/**)".parse().unwrap()],
            confinement: Confinement::None,
        };
        let explained = explain(&persona(&[ToolName::Grep, ToolName::Bash, ToolName::Write]), &policy);
        let denied: Vec<usize> = explained.iter().map(|explained| explained.denied.len()).collect();
        assert_eq!(denied, [1, 1, 0]);
        assert_eq!(explained[1].allowed, policy.allow);
    }
}
