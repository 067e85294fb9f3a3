//! `enter_plan_mode` and `exit_plan_mode`: look first, then have the plan approved.
//!
//! Deliberately absent: what plan mode forbids (`machine/gate.rs`) and who approves; the loop offers both tools only
//! where somebody can.

use serde_json::json;

use super::{Answer, Input, Running, Scope, Tool, Wish, input};
use crate::model::message::ToolSpec;
use crate::model::rule::Subject;
use crate::model::tool_name::ToolName;

#[derive(Debug)]
pub(crate) struct Enter;

impl Tool for Enter {
    fn name(&self) -> ToolName {
        ToolName::EnterPlanMode
    }

    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: ToolName::EnterPlanMode.as_str(),
            description: "Change nothing until the user has approved a plan. Before large or risky work.".to_owned(),
            input: json!({"type": "object", "properties": {}}),
        }
    }

    fn subject(&self, _: &Input, _: &Scope) -> Subject {
        Subject::None
    }

    fn run<'a>(&'a self, _: Input, _: &'a Scope) -> Running<'a> {
        Box::pin(async { Answer::wishing(Wish::EnterPlanMode) })
    }
}

#[derive(Debug)]
pub(crate) struct Exit;

impl Tool for Exit {
    fn name(&self) -> ToolName {
        ToolName::ExitPlanMode
    }

    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: ToolName::ExitPlanMode.as_str(),
            description: "Show the user your plan. Once it is approved, carry it out.".to_owned(),
            input: json!({
                "type": "object",
                "properties": {"plan": {"type": "string", "description": "The whole plan, as Markdown"}},
                "required": ["plan"]
            }),
        }
    }

    fn subject(&self, _: &Input, _: &Scope) -> Subject {
        Subject::None
    }

    fn run<'a>(&'a self, input: Input, _: &'a Scope) -> Running<'a> {
        Box::pin(async move {
            input::said(&input, "plan")
                .map_or_else(|correction| correction, |plan| Answer::wishing(Wish::ExitPlanMode { plan }))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::fixture::Fixture;

    #[test]
    fn a_plan_goes_to_the_loop_and_none_back_to_the_model() {
        let fixture = Fixture::new();
        let exit = |input: serde_json::Value| fixture.run(&Exit, input.as_object().unwrap().clone());
        assert_eq!(
            exit(json!({"plan": "1. look"})).wish,
            Some(Box::new(Wish::ExitPlanMode { plan: "1. look".into() }))
        );
        let answer = exit(json!({"plan": ""}));
        assert!(!answer.ok && answer.text.contains("`plan`"), "{answer:?}");
        assert_eq!(fixture.run(&Enter, Input::new()).wish, Some(Box::new(Wish::EnterPlanMode)));
    }
}
