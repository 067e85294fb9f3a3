//! What a server teaches by refusing: one setting is changed, and the request goes out once more.
//!
//! Servers of one dialect take different fields, and a table of them would never be whole. Each lesson is learned once
//! in the life of a process, so asking again ends. Deliberately absent: retries of a request that stays the same.

use std::collections::BTreeSet;

use super::{Request, history};

/// What is done otherwise from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Lesson {
    /// Pictures are told of instead of shown.
    NoImages,
    /// The limit of an answer goes by its newer name.
    CompletionTokens,
    /// The model's thinking goes back with the calls that followed from it.
    ThinkingBack,
    /// Usage is not asked for.
    NoStreamOptions,
}

/// Parts of a model's name that is known to take no pictures: asking would fail, or worse, the picture be ignored.
const BLIND: [&str; 10] = [
    "gpt-3.5",
    "o1-mini",
    "o3-mini",
    "gpt-oss",
    "deepseek-chat",
    "deepseek-reasoner",
    "deepseek-r1",
    "codestral",
    "qwen3-coder",
    "claude-2",
];

pub(super) fn is_blind(model: &str) -> bool {
    BLIND.iter().any(|part| model.contains(part))
}

/// What a refusal teaches, if anything new that this request could do otherwise.
pub(super) fn of(status: u16, body: &str, request: &Request, known: &BTreeSet<Lesson>) -> Option<Lesson> {
    if !matches!(status, 400 | 404 | 413 | 415 | 422) {
        return None;
    }
    let words = body.to_lowercase();
    let says = |part: &str| words.contains(part);
    let lesson = if says("max_completion_tokens") && says("max_tokens") {
        Lesson::CompletionTokens
    } else if says("stream_options") {
        Lesson::NoStreamOptions
    } else if says("reasoning_content") && history::has_thinking(&request.messages) {
        Lesson::ThinkingBack
    } else if says("image") && history::has_images(&request.messages) {
        Lesson::NoImages
    } else {
        return None;
    };
    (!known.contains(&lesson)).then_some(lesson)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::message::{AssistantMessage, Image, Message, Thinking, ToolResult};

    fn request() -> Request {
        let thinking = vec![Thinking { text: "so".into(), ..Thinking::default() }];
        let image = Image { media_type: "image/png".into(), data: "AAAA".into() };
        let result =
            ToolResult { call: "a".into(), name: "read".into(), ok: true, output: String::new(), images: vec![image] };
        let messages = vec![
            Message::Assistant(AssistantMessage { thinking, ..AssistantMessage::default() }),
            Message::Tool(result),
        ];
        Request { model: "m".into(), system: String::new(), messages, tools: Vec::new(), max_tokens: 9 }
    }

    #[test]
    fn a_refusal_teaches_once_what_can_be_done_otherwise() {
        for (message, lesson) in [
            (
                "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
                Lesson::CompletionTokens,
            ),
            ("Unrecognized request argument supplied: stream_options", Lesson::NoStreamOptions),
            ("Missing `reasoning_content` field in the assistant message at index 3", Lesson::ThinkingBack),
            ("No endpoints found that support image input", Lesson::NoImages),
            ("unknown variant `image_url`, expected `text`", Lesson::NoImages),
        ] {
            let body = json!({"error": {"message": message}}).to_string();
            assert_eq!(of(400, &body, &request(), &BTreeSet::new()), Some(lesson), "{message}");
            assert_eq!(of(400, &body, &request(), &BTreeSet::from([lesson])), None, "{message} again");
            assert_eq!(of(500, &body, &request(), &BTreeSet::new()), None);
        }
        assert_eq!(of(400, "messages: text must not be empty", &request(), &BTreeSet::new()), None);
    }

    #[test]
    fn a_request_without_pictures_is_not_sent_again_without_them() {
        let request = Request { messages: Vec::new(), ..request() };
        assert_eq!(of(400, "this model takes no image and no reasoning_content", &request, &BTreeSet::new()), None);
    }
}
