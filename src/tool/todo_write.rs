//! `todo_write`: the list an agent keeps of its own work. Each call replaces the whole list.
//!
//! Deliberately absent: keeping and showing it, which is the loop's.

use serde_json::{Value, json};

use super::{Answer, Input, Running, Scope, Tool, Wish};
use crate::model::message::ToolSpec;
use crate::model::rule::Subject;
use crate::model::todo::Todo;
use crate::model::tool_name::ToolName;

/// More is no list any more.
const MOST: usize = 100;
/// Bytes of one entry that are kept.
const LONGEST: usize = 300;

#[derive(Debug)]
pub(crate) struct TodoWrite;

impl Tool for TodoWrite {
    fn name(&self) -> ToolName {
        ToolName::TodoWrite
    }

    fn spec(&self) -> ToolSpec {
        let state = json!({"type": "string", "enum": ["pending", "in_progress", "completed"]});
        ToolSpec {
            name: ToolName::TodoWrite.as_str(),
            description: "Keep a list of your steps. Each call replaces the whole list.".to_owned(),
            input: json!({
                "type": "object",
                "properties": {"tasks": {"type": "array", "items": {
                    "type": "object",
                    "properties": {"id": {"type": "string"}, "content": {"type": "string"}, "status": state},
                    "required": ["content", "status"]
                }}},
                "required": ["tasks"]
            }),
        }
    }

    fn subject(&self, _: &Input, _: &Scope) -> Subject {
        Subject::None
    }

    fn run<'a>(&'a self, input: Input, _: &'a Scope) -> Running<'a> {
        Box::pin(
            async move { tasks(&input).map_or_else(Answer::correction, |todos| Answer::wishing(Wish::Todo(todos))) },
        )
    }
}

fn tasks(input: &Input) -> Result<Vec<Todo>, String> {
    let tasks = input.get("tasks").and_then(Value::as_array).ok_or("the argument `tasks` must be a list of tasks")?;
    if tasks.len() > MOST {
        return Err(format!("a list of {} tasks is too long; keep at most {MOST}", tasks.len()));
    }
    tasks.iter().enumerate().map(|(at, task)| todo(task).map_err(|why| format!("task {}: {why}", at + 1))).collect()
}

fn todo(task: &Value) -> Result<Todo, String> {
    let text = task.get("content").and_then(Value::as_str).map(str::trim).unwrap_or_default();
    if text.is_empty() {
        return Err("`content` is missing: say what is to be done".to_owned());
    }
    let state = task.get("status").and_then(Value::as_str).unwrap_or("pending").parse()?;
    Ok(Todo { text: crate::text::prefix(text, LONGEST).to_owned(), state })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::todo::TodoState;
    use crate::tool::fixture::Fixture;

    fn write(input: &Value) -> Answer {
        Fixture::new().run(&TodoWrite, input.as_object().unwrap().clone())
    }

    #[test]
    fn a_list_is_handed_to_the_loop_in_its_order() {
        let answer = write(&json!({"tasks": [
            {"id": "1", "content": " look ", "status": "completed"},
            {"content": "change", "status": "in_progress"},
            {"content": "test"}
        ]}));
        let todo = |text: &str, state| Todo { text: text.into(), state };
        let want = vec![
            todo("look", TodoState::Completed),
            todo("change", TodoState::InProgress),
            todo("test", TodoState::Pending),
        ];
        assert_eq!(answer.wish, Some(Wish::Todo(want)));
        assert_eq!(write(&json!({"tasks": []})).wish, Some(Wish::Todo(Vec::new())));
    }

    #[test]
    fn a_task_that_is_wrong_is_named_with_its_number() {
        let cases = [
            (json!({}), "`tasks` must be a list"),
            (json!({"tasks": "look"}), "`tasks` must be a list"),
            (json!({"tasks": [{"content": "a", "status": "pending"}, {"status": "pending"}]}), "task 2: `content`"),
            (json!({"tasks": [{"content": "a", "status": "done"}]}), "task 1: `done` is not a status"),
            (json!({"tasks": vec![json!({"content": "a", "status": "pending"}); 101]}), "a list of 101 tasks"),
        ];
        for (input, want) in cases {
            let answer = write(&input);
            assert!(!answer.ok && answer.text.contains(want), "{answer:?}");
        }
    }
}
