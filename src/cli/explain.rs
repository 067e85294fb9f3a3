//! What a persona may do, tool by tool, in words: each tool is held against the gate with a call of the plainest kind.
//!
//! Deliberately absent: any rule of its own. What the gate says of the sample is what is told.

use serde_json::{Value, json};

use crate::machine::gate::{self, Confinement, Decision, Policy};
use crate::model::rule::Subject;
use crate::model::tool_name::{ToolKind, ToolName};

/// What becomes of the plainest call of a tool, and of what rules name.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Explained {
    tool: ToolName,
    usually: String,
    /// What rules allow or deny beyond that.
    rules: Vec<String>,
}

pub(super) fn explain(tools: &[ToolName], policy: &Policy) -> Vec<Explained> {
    tools.iter().map(|tool| one(*tool, policy)).collect()
}

fn one(tool: ToolName, policy: &Policy) -> Explained {
    let usually = usually(tool, policy);
    let own = |effect: &str, rules: &[crate::model::rule::Rule]| -> Vec<String> {
        let named = rules.iter().filter(|rule| rule.tool == tool && rule.pattern.is_some());
        named.map(|rule| format!("{effect} {rule}")).collect()
    };
    let mut rules = own("denied:", &policy.deny);
    rules.extend(own("free:", &policy.allow));
    rules.dedup();
    Explained { tool, usually, rules }
}

fn usually(tool: ToolName, policy: &Policy) -> String {
    let sample = match tool.kind() {
        ToolKind::Edit => Subject::Path("some/file".to_owned()),
        ToolKind::ReadOnly if matches!(tool, ToolName::Read | ToolName::Glob | ToolName::Grep | ToolName::Lsp) => {
            Subject::Path("some/file".to_owned())
        }
        ToolKind::Command => Subject::Command("some-program".to_owned()),
        ToolKind::ReadOnly | ToolKind::Control => Subject::None,
    };
    let confined =
        policy.confinement == Confinement::InForce && matches!(tool.kind(), ToolKind::Edit | ToolKind::Command);
    match gate::judge(tool, &sample, policy) {
        // Where it leads decides; which hosts were named is known only when the call is made.
        Decision::Allow | Decision::Ask { .. } if tool == ToolName::WebFetch => {
            "free for hosts that the user, settings or task named, asks for others".to_owned()
        }
        Decision::Allow if confined => "free inside its own workspace, held there by the kernel".to_owned(),
        Decision::Allow => "free".to_owned(),
        Decision::Ask { .. } => "asks".to_owned(),
        Decision::Deny { reason } => format!("denied: {reason}"),
    }
}

impl Explained {
    pub(super) fn lines(&self) -> Vec<String> {
        let first = format!("  {:<16} {}", self.tool.as_str(), self.usually);
        std::iter::once(first).chain(self.rules.iter().map(|rule| format!("  {:<16} {rule}", ""))).collect()
    }

    pub(super) fn json(&self) -> Value {
        json!({"tool": self.tool.as_str(), "usually": self.usually, "rules": self.rules})
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::persona::Mode;

    fn told(tool: ToolName, mode: Mode, confinement: Confinement) -> String {
        let policy = Policy {
            mode,
            allow: vec!["bash(git *)".parse().unwrap()],
            deny: vec!["bash(rm *)".parse().unwrap(), "grep".parse().unwrap()],
            confinement,
        };
        explain(&[tool], &policy)[0].lines().join("\n")
    }

    #[test]
    fn each_tool_is_told_as_the_gate_decides_it() {
        let bash = told(ToolName::Bash, Mode::Default, Confinement::None);
        assert_eq!(
            bash,
            "  bash             asks\n                   denied: bash(rm *)\n                   free: bash(git *)"
        );
        let words =
            |tool, mode, confinement| told(tool, mode, confinement).split_once("  ").unwrap().1.trim().to_owned();
        assert!(words(ToolName::Write, Mode::Default, Confinement::None).ends_with("asks"));
        assert!(words(ToolName::Write, Mode::Default, Confinement::InForce).contains("free inside its own workspace"));
        assert!(words(ToolName::Write, Mode::Edit, Confinement::None).ends_with("free"));
        assert!(words(ToolName::Write, Mode::Plan, Confinement::InForce).contains("denied: plan mode"));
        assert!(words(ToolName::Grep, Mode::Bypass, Confinement::None).contains("denied: the rule `grep`"));
        assert!(words(ToolName::Read, Mode::Default, Confinement::None).ends_with("free"));
    }
}
