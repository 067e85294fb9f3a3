//! What a persona may do, tool by tool, in words.
//!
//! Deliberately absent: any rule of its own. What the gate explains is what is told.

use serde_json::{Value, json};

use crate::machine::gate::{self, Otherwise, Policy, Why};
use crate::model::persona::Persona;
use crate::model::rule::Rule;
use crate::model::tool_name::ToolName;

/// What becomes of a call that no rule names, and what rules name.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Explained {
    tool: ToolName,
    usually: String,
    /// What rules allow or deny beyond that.
    rules: Vec<String>,
}

pub(super) fn explain(persona: &Persona, policy: &Policy) -> Vec<Explained> {
    gate::explain(persona, policy).into_iter().map(one).collect()
}

fn one(explained: gate::Explained) -> Explained {
    let gate::Explained { tool, denied, allowed, otherwise } = explained;
    let own = |effect: &str, rules: Vec<Rule>| -> Vec<String> {
        rules.iter().filter(|rule| rule.pattern.is_some()).map(|rule| format!("{effect} {rule}")).collect()
    };
    let mut rules = own("denied:", denied);
    rules.extend(own("free:", allowed));
    rules.dedup();
    Explained { tool, usually: usually(otherwise), rules }
}

fn usually(otherwise: Otherwise) -> String {
    let because = |why: Why| match why {
        Why::Rule => " by a rule".to_owned(),
        Why::Mode(mode) => format!(" in mode {mode}"),
        Why::Confined => " inside its own workspace, held there by the kernel".to_owned(),
        Why::Reading => " inside the workspace".to_owned(),
        Why::Web => " for hosts that neither the user, settings nor the task named".to_owned(),
        Why::Control => String::new(),
    };
    match otherwise {
        Otherwise::Allowed(why) => format!("free{}", because(why)),
        Otherwise::Asked(why) => format!("asks{}", because(why)),
        Otherwise::Denied(why) => format!("denied{}", because(why)),
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
    use crate::machine::gate::Confinement;
    use crate::model::persona::Mode;

    fn told(tool: ToolName, mode: Mode, confinement: Confinement) -> String {
        let policy = Policy {
            mode,
            allow: vec!["bash(git *)".parse().unwrap()],
            deny: vec!["bash(rm *)".parse().unwrap(), "grep".parse().unwrap()],
            confinement,
        };
        let persona = Persona {
            name: "x".to_owned(),
            description: String::new(),
            tools: vec![tool],
            mode,
            allow: Vec::new(),
            deny: Vec::new(),
            model: None,
            subagent: false,
        };
        explain(&persona, &policy)[0].lines().join("\n")
    }

    #[test]
    fn each_tool_is_told_as_the_gate_decides_it() {
        let bash = told(ToolName::Bash, Mode::Default, Confinement::None);
        let want = "  bash             asks in mode default\n                   denied: bash(rm *)\n                   \
                    free: bash(git *)";
        assert_eq!(bash, want);
        for (tool, mode, confinement, want) in [
            (ToolName::Write, Mode::Default, Confinement::InForce, "free inside its own workspace"),
            (ToolName::Write, Mode::Edit, Confinement::None, "free in mode edit"),
            (ToolName::Write, Mode::Plan, Confinement::InForce, "denied in mode plan"),
            (ToolName::Grep, Mode::Bypass, Confinement::None, "denied by a rule"),
            (ToolName::Read, Mode::Default, Confinement::None, "free inside the workspace"),
            (ToolName::WebFetch, Mode::Bypass, Confinement::None, "asks for hosts"),
        ] {
            let said = told(tool, mode, confinement);
            assert!(said.contains(want), "{said}");
        }
    }
}
