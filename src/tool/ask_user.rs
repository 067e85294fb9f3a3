//! `ask_user`: a question to the person at the window.
//!
//! Deliberately absent: whether somebody is there, and the waiting; the loop does both.

use serde_json::json;

use super::{Answer, Input, Running, Scope, Tool, Wish, input};
use crate::model::message::ToolSpec;
use crate::model::rule::Subject;
use crate::model::tool_name::ToolName;

#[derive(Debug)]
pub(crate) struct AskUser;

impl Tool for AskUser {
    fn name(&self) -> ToolName {
        ToolName::AskUser
    }

    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: ToolName::AskUser.as_str(),
            description: "Ask the user one question and wait. Only for what nothing here can tell you.".to_owned(),
            input: json!({
                "type": "object",
                "properties": {"question": {"type": "string"}},
                "required": ["question"]
            }),
        }
    }

    fn subject(&self, _: &Input, _: &Scope) -> Subject {
        Subject::None
    }

    fn run<'a>(&'a self, input: Input, _: &'a Scope) -> Running<'a> {
        Box::pin(async move {
            input::said(&input, "question")
                .map_or_else(|correction| correction, |question| Answer::wishing(Wish::Ask { question }))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::fixture::Fixture;

    #[test]
    fn a_question_goes_to_the_loop_and_an_empty_one_back_to_the_model() {
        let fixture = Fixture::new();
        let ask = |input: serde_json::Value| fixture.run(&AskUser, input.as_object().unwrap().clone());
        let wish = Wish::Ask { question: "left or right?".into() };
        assert_eq!(ask(json!({"question": " left or right? "})).wish, Some(Box::new(wish)));
        for input in [json!({}), json!({"question": " "}), json!({"question": 3})] {
            let answer = ask(input);
            assert!(!answer.ok && answer.wish.is_none() && answer.text.contains("question"), "{answer:?}");
        }
    }
}
