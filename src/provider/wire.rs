//! Our conversation as `genai` sends it.
//!
//! What goes out is sound whatever the history holds: every call has an object for its arguments and exactly one result
//! in the message that follows, ids are used once, nothing is empty, and there is one system text. Deliberately absent:
//! reading of answers.

use std::collections::HashSet;

use genai::chat::{
    CacheControl, ChatMessage, ChatRequest, ChatRole, ContentPart, MessageContent, Tool, ToolCall as Call, ToolResponse,
};
use serde_json::Value;

use super::Request;
use crate::model::message::{AssistantMessage, Message, ToolInput, ToolSpec};

/// Told in place of a result that the history does not hold.
const NO_RESULT: &str = "There is no result: the call was interrupted.";

/// Whether the end of the conversation is marked, so that the next request finds all before it in the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Caching {
    Marked,
    ByProvider,
}

pub(super) fn chat_request(request: &Request, caching: Caching) -> ChatRequest {
    let mut messages = chat_messages(&request.messages);
    if caching == Caching::Marked
        && let Some(last) = messages.pop()
    {
        messages.push(last.with_options(CacheControl::Ephemeral));
    }
    let mut chat = ChatRequest::new(messages);
    if !request.system.trim().is_empty() {
        chat = chat.with_system(request.system.clone());
    }
    if !request.tools.is_empty() {
        chat = chat.with_tools(request.tools.iter().map(tool));
    }
    chat
}

fn tool(spec: &ToolSpec) -> Tool {
    Tool::new(spec.name).with_description(spec.description.clone()).with_schema(spec.input.clone())
}

fn chat_messages(messages: &[Message]) -> Vec<ChatMessage> {
    let mut chat: Vec<ChatMessage> = Vec::new();
    let mut ids = HashSet::new();
    for (at, message) in messages.iter().enumerate() {
        match message {
            Message::User(user) => say(&mut chat, &user.text),
            Message::Assistant(answer) => {
                push_answer(&mut chat, answer, &messages[at + 1..], |id| {
                    let id = if ids.contains(id) { format!("{id}-{at}") } else { id.to_owned() };
                    ids.insert(id.clone());
                    id
                });
            }
            // Told with its call; a result without one would be refused.
            Message::Tool(_) => {}
        }
    }
    chat
}

/// Two messages of the user in a row become one: some chat templates insist on turns.
fn say(chat: &mut Vec<ChatMessage>, text: &str) {
    if text.trim().is_empty() {
        return;
    }
    match chat.last_mut() {
        Some(last) if last.role == ChatRole::User => {
            let before = last.content.joined_texts().unwrap_or_default();
            last.content = MessageContent::from_text(format!("{before}\n\n{text}"));
        }
        _ => chat.push(ChatMessage::user(text)),
    }
}

/// An answer and, right behind it, the results of its calls in one message. They stand before the next answer.
fn push_answer(
    chat: &mut Vec<ChatMessage>,
    answer: &AssistantMessage,
    following: &[Message],
    mut sent_id: impl FnMut(&str) -> String,
) {
    let before_next = || following.iter().take_while(|next| !matches!(next, Message::Assistant(_)));
    let mut parts = Vec::new();
    if !answer.text.trim().is_empty() {
        parts.push(ContentPart::Text(answer.text.clone()));
    }
    let mut results = Vec::new();
    for call in &answer.calls {
        let call_id = sent_id(&call.id);
        let result = before_next().find_map(|message| match message {
            Message::Tool(result) if result.call == call.id => Some(result.output.clone()),
            Message::Tool(_) | Message::User(_) | Message::Assistant(_) => None,
        });
        let result = ToolResponse::new(call_id.clone(), result.unwrap_or_else(|| NO_RESULT.to_owned()));
        results.push(ContentPart::ToolResponse(result.with_fn_name(call.name.clone())));
        parts.push(ContentPart::ToolCall(Call {
            call_id,
            fn_name: call.name.clone(),
            fn_arguments: arguments(&call.input),
            thought_signatures: None,
        }));
    }
    if !parts.is_empty() {
        chat.push(ChatMessage::assistant(MessageContent::from_parts(parts)));
    }
    if !results.is_empty() {
        chat.push(ChatMessage::tool(MessageContent::from_parts(results)));
    }
}

/// Broken text would make a strict server refuse this and every later request; the result quotes it.
fn arguments(input: &ToolInput) -> Value {
    match input {
        ToolInput::Sound(map) => Value::Object(map.clone()),
        ToolInput::Broken { .. } => Value::Object(serde_json::Map::new()),
    }
}

/// Ids of calls that the conversation holds.
pub(super) fn call_ids(messages: &[Message]) -> HashSet<String> {
    let calls = messages.iter().flat_map(|message| match message {
        Message::Assistant(answer) => answer.calls.as_slice(),
        Message::User(_) | Message::Tool(_) => &[],
    });
    calls.map(|call| call.id.clone()).collect()
}

/// About how many bytes of the request a model reads.
pub(super) fn bytes_of(request: &Request) -> usize {
    let messages = request.messages.iter().map(|message| match message {
        Message::User(user) => user.text.len(),
        Message::Tool(result) => result.output.len(),
        Message::Assistant(answer) => {
            let calls = answer.calls.iter().map(|call| call.name.len() + arguments(&call.input).to_string().len());
            answer.text.len() + calls.sum::<usize>()
        }
    });
    let tools = request.tools.iter().map(|tool| tool.description.len() + tool.input.to_string().len());
    request.system.len() + messages.sum::<usize>() + tools.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::message::{ToolCall, ToolResult, UserMessage};

    fn user(text: &str) -> Message {
        Message::User(UserMessage { text: text.into(), by: "task".into() })
    }

    fn calling(ids: &[&str]) -> Message {
        let calls = ids.iter().map(|id| ToolCall {
            id: (*id).into(),
            name: "read".into(),
            input: ToolInput::Broken { broken: "{\"pa".into() },
        });
        Message::Assistant(AssistantMessage { calls: calls.collect(), ..AssistantMessage::default() })
    }

    fn result(id: &str) -> Message {
        Message::Tool(ToolResult {
            call: id.into(),
            name: "read".into(),
            ok: true,
            output: format!("of {id}"),
            images: Vec::new(),
        })
    }

    /// Each message as its role and what its parts say.
    fn sent(messages: &[Message]) -> Vec<String> {
        let part = |part: &ContentPart| match part {
            ContentPart::Text(text) => text.clone(),
            ContentPart::ToolCall(call) => format!("{}{}", call.call_id, call.fn_arguments),
            ContentPart::ToolResponse(response) => format!("{}={}", response.call_id, response.content),
            other => format!("{other:?}"),
        };
        let lines = chat_messages(messages).into_iter().map(|message| {
            let parts: Vec<String> = message.content.parts().iter().map(part).collect();
            format!("{}: {}", message.role, parts.join(" | "))
        });
        lines.collect()
    }

    #[test]
    fn every_call_goes_out_with_an_object_and_one_result() {
        let messages = [user("go"), calling(&["a", "b"]), result("b"), user("hurry"), result("a"), result("a")];
        assert_eq!(sent(&messages), ["User: go", "Assistant: a{} | b{}", "Tool: a=of a | b=of b", "User: hurry"]);
    }

    #[test]
    fn an_interrupted_call_is_closed_and_a_lost_result_left_out() {
        let messages = [user("go"), result("x"), calling(&["a"]), user("again")];
        let closed = format!("Tool: a={NO_RESULT}");
        assert_eq!(sent(&messages), ["User: go", "Assistant: a{}", &closed, "User: again"]);
    }

    #[test]
    fn an_id_used_again_is_sent_as_another() {
        let messages = [user("go"), calling(&["a"]), result("a"), calling(&["a"]), result("a")];
        assert_eq!(sent(&messages)[1..], ["Assistant: a{}", "Tool: a=of a", "Assistant: a-3{}", "Tool: a-3=of a"]);
    }

    #[test]
    fn empty_messages_are_not_sent_and_neighbours_are_joined() {
        let empty = Message::Assistant(AssistantMessage { text: " \n".into(), ..AssistantMessage::default() });
        assert_eq!(sent(&[user("a"), empty, user(""), user("b")]), ["User: a\n\nb"]);
    }

    #[test]
    fn the_end_of_the_conversation_is_marked_where_the_provider_wants_it() {
        let request = Request {
            model: "m".into(),
            system: String::new(),
            messages: vec![user("a"), calling(&["x"])],
            tools: vec![ToolSpec { name: "read", description: "d".into(), input: json!({"type": "object"}) }],
            max_tokens: 9,
        };
        let marked = |caching| {
            let chat = chat_request(&request, caching);
            assert!(chat.system.is_none() && chat.tools.is_some_and(|tools| tools.len() == 1));
            chat.messages.iter().map(|message| message.options.is_some()).collect::<Vec<_>>()
        };
        assert_eq!(marked(Caching::Marked), [false, false, true]);
        assert_eq!(marked(Caching::ByProvider), [false, false, false]);
    }
}
