//! Our conversation as any provider may be told it.
//!
//! What comes out is sound whatever the history holds: the user speaks first, every call has an object for its arguments
//! and exactly one result right behind it, ids are used once, ids and names have only letters that every dialect takes,
//! and nothing is empty. The same history always gives the same turns, so that a cache finds them again. Deliberately
//! absent: the JSON of the dialects.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::Request;
use crate::model::message::{AssistantMessage, Image, Message, Thinking, ToolInput};

/// Told in place of a result that the history does not hold.
const NO_RESULT: &str = "There is no result: the call was interrupted.";
/// Told in place of a result without a word; some servers refuse an empty one.
const NO_OUTPUT: &str = "(no output)";
/// Told where a history does not begin with the user.
const BEGIN: &str = "(The conversation begins here.)";
/// The longest id of a call that every dialect takes.
const ID_LENGTH: usize = 40;
/// The longest name of a tool.
const NAME_LENGTH: usize = 64;

/// One turn of a conversation. Two of the user never follow each other.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Turn<'a> {
    User(String),
    Answer {
        thinking: Vec<&'a Thinking>,
        text: &'a str,
        calls: Vec<Call>,
    },
    /// One for each call of the answer before, in its order, and what the user said meanwhile.
    Results {
        results: Vec<ResultOf<'a>>,
        said: String,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Call {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) input: Map<String, Value>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct ResultOf<'a> {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) ok: bool,
    pub(super) output: &'a str,
    pub(super) images: &'a [Image],
}

/// Whether a model is shown pictures or told that there were some.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pictures {
    Shown,
    Told,
}

/// The turns of a request.
pub(super) fn turns(request: &Request) -> Vec<Turn<'_>> {
    let mut turns: Vec<Turn<'_>> = Vec::new();
    let mut ids = HashSet::new();
    for (at, message) in request.messages.iter().enumerate() {
        match message {
            Message::User(user) => say(&mut turns, &user.text),
            Message::Assistant(answer) => {
                if turns.is_empty() {
                    turns.push(Turn::User(BEGIN.to_owned()));
                }
                push_answer(&mut turns, answer, &request.messages[at + 1..], |id| sent_id(id, at, &mut ids));
            }
            // Told with its call; a result without one would be refused.
            Message::Tool(_) => {}
        }
    }
    turns
}

/// Two messages of the user in a row become one: some chat templates insist on turns.
fn say(turns: &mut Vec<Turn<'_>>, text: &str) {
    if text.trim().is_empty() {
        return;
    }
    match turns.last_mut() {
        Some(Turn::User(said) | Turn::Results { said, .. }) => {
            if !said.is_empty() {
                said.push_str("\n\n");
            }
            said.push_str(text);
        }
        Some(Turn::Answer { .. }) | None => turns.push(Turn::User(text.to_owned())),
    }
}

/// An answer and, right behind it, the results of its calls. They stand before the next answer.
fn push_answer<'a>(
    turns: &mut Vec<Turn<'a>>,
    answer: &'a AssistantMessage,
    following: &'a [Message],
    mut sent_id: impl FnMut(&str) -> String,
) {
    let text = if answer.text.trim().is_empty() { "" } else { answer.text.as_str() };
    if text.is_empty() && answer.calls.is_empty() {
        return;
    }
    let before_next = || following.iter().take_while(|next| !matches!(next, Message::Assistant(_)));
    let (mut calls, mut results) = (Vec::new(), Vec::new());
    for call in &answer.calls {
        let (id, name) = (sent_id(&call.id), tame(&call.name, NAME_LENGTH));
        let found = before_next().find_map(|message| match message {
            Message::Tool(result) if result.call == call.id => Some(result),
            Message::Tool(_) | Message::User(_) | Message::Assistant(_) => None,
        });
        results.push(match found {
            Some(result) => ResultOf {
                id: id.clone(),
                name: name.clone(),
                ok: result.ok,
                output: if result.output.trim().is_empty() { NO_OUTPUT } else { &result.output },
                images: &result.images,
            },
            None => ResultOf { id: id.clone(), name: name.clone(), ok: false, output: NO_RESULT, images: &[] },
        });
        calls.push(Call { id, name, input: arguments(&call.input) });
    }
    turns.push(Turn::Answer { thinking: answer.thinking.iter().collect(), text, calls });
    if !results.is_empty() {
        turns.push(Turn::Results { results, said: String::new() });
    }
}

/// The id itself where every dialect takes it and it is not used yet, else one made from it and the message's place.
fn sent_id(id: &str, at: usize, used: &mut HashSet<String>) -> String {
    let tamed = tame(id, ID_LENGTH);
    let mut sent = tamed.clone();
    let mut number = 0;
    while !used.insert(sent.clone()) {
        let end = if number == 0 { format!("-{at}") } else { format!("-{at}-{number}") };
        sent = format!("{}{end}", &tamed[..tamed.len().min(ID_LENGTH - end.len())]);
        number += 1;
    }
    sent
}

/// At most so many letters of those that every dialect takes in ids and names.
fn tame(text: &str, length: usize) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' };
    let tamed: String = text.chars().map(letter).take(length).collect();
    if tamed.is_empty() { "unnamed".to_owned() } else { tamed }
}

/// Broken text would make a strict server refuse this and every later request; the result quotes it.
fn arguments(input: &ToolInput) -> Map<String, Value> {
    match input {
        ToolInput::Sound(map) => map.clone(),
        ToolInput::Broken { .. } => Map::new(),
    }
}

/// What a model is told of pictures that it is not shown.
pub(super) fn told_of(images: &[Image]) -> String {
    let lines = images.iter().map(|image| {
        let bytes = image.data.len() / 4 * 3;
        format!("\n[an image ({}, {bytes} bytes) is left out: this model is shown no images]", image.media_type)
    });
    lines.collect()
}

/// Whether any result of the conversation holds a picture.
pub(super) fn has_images(messages: &[Message]) -> bool {
    messages.iter().any(|message| match message {
        Message::Tool(result) => !result.images.is_empty(),
        Message::User(_) | Message::Assistant(_) => false,
    })
}

/// Whether any answer of the conversation was thought about.
pub(super) fn has_thinking(messages: &[Message]) -> bool {
    messages.iter().any(|message| match message {
        Message::Assistant(answer) => answer.thinking.iter().any(|thinking| !thinking.text.is_empty()),
        Message::User(_) | Message::Tool(_) => false,
    })
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
            let calls = answer
                .calls
                .iter()
                .map(|call| call.name.len() + Value::Object(arguments(&call.input)).to_string().len());
            answer.text.len() + calls.sum::<usize>()
        }
    });
    let tools = request.tools.iter().map(|tool| tool.description.len() + tool.input.to_string().len());
    request.system.len() + messages.sum::<usize>() + tools.sum::<usize>()
}

#[cfg(test)]
mod tests {
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

    fn sent(messages: &[Message]) -> Vec<String> {
        let request = Request {
            model: "m".into(),
            system: String::new(),
            messages: messages.to_vec(),
            tools: Vec::new(),
            max_tokens: 9,
        };
        let lines = turns(&request).into_iter().map(|turn| match turn {
            Turn::User(text) => format!("user: {text}"),
            Turn::Answer { text, calls, .. } => {
                let calls = calls.iter().map(|call| format!(" {}{}", call.id, Value::Object(call.input.clone())));
                format!("answer: {text}{}", calls.collect::<String>())
            }
            Turn::Results { results, said } => {
                let results = results.iter().map(|result| format!(" {}={}", result.id, result.output));
                format!("results:{}{}{said}", results.collect::<String>(), if said.is_empty() { "" } else { " + " })
            }
        });
        lines.collect()
    }

    #[test]
    fn every_call_goes_out_with_an_object_and_one_result() {
        let messages = [user("go"), calling(&["a", "b"]), result("b"), user("hurry"), result("a"), result("a")];
        assert_eq!(sent(&messages), ["user: go", "answer:  a{} b{}", "results: a=of a b=of b + hurry"]);
    }

    #[test]
    fn an_interrupted_call_is_closed_and_a_lost_result_left_out() {
        let messages = [user("go"), result("x"), calling(&["a"]), user("again")];
        assert_eq!(sent(&messages), ["user: go", "answer:  a{}", &format!("results: a={NO_RESULT} + again")]);
    }

    #[test]
    fn an_id_used_again_is_sent_as_another() {
        let messages = [user("go"), calling(&["a"]), result("a"), calling(&["a"]), result("a")];
        assert_eq!(sent(&messages)[1..], ["answer:  a{}", "results: a=of a", "answer:  a-3{}", "results: a-3=of a"]);
    }

    #[test]
    fn ids_and_names_have_only_letters_and_lengths_that_every_dialect_takes() {
        let long = "x".repeat(90);
        let mut used = HashSet::new();
        let ids = [sent_id("call.1:é", 1, &mut used), sent_id(&long, 1, &mut used), sent_id(&long, 1, &mut used)];
        assert_eq!(ids[0], "call_1__");
        assert_eq!((ids[1].len(), ids[2].len()), (40, 40));
        assert_eq!(ids.iter().collect::<HashSet<_>>().len(), 3);
        assert_eq!(sent_id("", 5, &mut used), "unnamed");
        assert_eq!(sent_id("", 5, &mut used), "unnamed-5");
        assert_eq!(sent_id("", 5, &mut used), "unnamed-5-1");
        assert_eq!(tame("functions.read é", 64), "functions_read__");
    }

    #[test]
    fn empty_messages_are_not_sent_and_neighbours_are_joined() {
        let empty = Message::Assistant(AssistantMessage { text: " \n".into(), ..AssistantMessage::default() });
        assert_eq!(sent(&[user("a"), empty, user(""), user("b")]), ["user: a\n\nb"]);
    }

    #[test]
    fn a_history_that_begins_with_an_answer_is_given_a_beginning() {
        let answer = Message::Assistant(AssistantMessage { text: "hi".into(), ..AssistantMessage::default() });
        assert_eq!(sent(&[answer, user("go")]), [format!("user: {BEGIN}"), "answer: hi".into(), "user: go".into()]);
    }
}
