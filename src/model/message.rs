//! A conversation as the loop keeps it: our own messages, turned into a provider's at the call.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::usage::Usage;

/// One entry of a conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Message {
    User(UserMessage),
    Assistant(AssistantMessage),
    Tool(ToolResult),
}

/// Text from outside the model: the task, a person, the supervisor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct UserMessage {
    pub(crate) text: String,
    /// Who said it: `task`, `person pts/3`, `supervisor`, `send`.
    pub(crate) by: String,
}

/// One answer of a model.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct AssistantMessage {
    /// What a provider wants to see again with the calls that followed from it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) thinking: Vec<Thinking>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) text: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) calls: Vec<ToolCall>,
    #[serde(default)]
    pub(crate) usage: Usage,
    #[serde(default)]
    pub(crate) stop: StopReason,
}

/// A piece of a model's thinking, with the provider's proof that it is its own.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Thinking {
    #[serde(default)]
    pub(crate) text: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) signature: Option<String>,
    /// What stands in place of a text that the provider keeps to itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) redacted: Option<String>,
    /// Who thought it, by the provider's own name; to another model it proves nothing.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) model: String,
}

/// A picture for models that take them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Image {
    /// As in `image/png`.
    pub(crate) media_type: String,
    /// The bytes in base64.
    pub(crate) data: String,
}

/// What a model asks a tool to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ToolCall {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) input: ToolInput,
}

/// Arguments of a call. What is not a JSON object is kept as text, never run, and answered with a correction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum ToolInput {
    Broken {
        #[serde(rename = "$broken")]
        broken: String,
    },
    Sound(serde_json::Map<String, Value>),
}

impl ToolInput {
    /// Arguments as they came from a provider.
    pub(crate) fn from_value(value: Value) -> Self {
        match value {
            Value::Object(map) => Self::Sound(map),
            Value::Null => Self::Sound(serde_json::Map::new()),
            Value::String(text) => match serde_json::from_str(&text) {
                Ok(Value::Object(map)) => Self::Sound(map),
                _ => Self::Broken { broken: text },
            },
            other => Self::Broken { broken: other.to_string() },
        }
    }
}

/// What a tool answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ToolResult {
    /// The id of the call this answers.
    pub(crate) call: String,
    pub(crate) name: String,
    /// False for a correction, a denial or a failure. Evidence counts only true.
    pub(crate) ok: bool,
    pub(crate) output: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) images: Vec<Image>,
}

/// Why the model stopped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StopReason {
    #[default]
    End,
    ToolCalls,
    /// Cut by `max_tokens`: the text is not whole.
    Length,
    Refused,
}

/// A tool as the model is told of it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ToolSpec {
    pub(crate) name: &'static str,
    pub(crate) description: String,
    /// JSON Schema of the arguments.
    pub(crate) input: Value,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_that_are_no_object_are_kept_as_text() {
        let broken = ToolInput::from_value(Value::String("{\"command\": \"ls\"".into()));
        assert_eq!(broken, ToolInput::Broken { broken: "{\"command\": \"ls\"".into() });
        let sound = ToolInput::from_value(Value::String("{\"path\": \"a\"}".into()));
        assert!(matches!(sound, ToolInput::Sound(map) if map["path"] == "a"));
        assert!(matches!(ToolInput::from_value(serde_json::json!([1])), ToolInput::Broken { .. }));
    }

    #[test]
    fn a_message_is_read_back_from_its_json() {
        let message = Message::Assistant(AssistantMessage {
            text: "é".into(),
            calls: vec![ToolCall {
                id: "1".into(),
                name: "read".into(),
                input: ToolInput::Broken { broken: "{".into() },
            }],
            ..AssistantMessage::default()
        });
        let json = serde_json::to_string(&message).unwrap();
        assert_eq!(serde_json::from_str::<Message>(&json).unwrap(), message);
        let short: Message = serde_json::from_str(r#"{"type":"assistant","text":"hi"}"#).unwrap();
        assert!(matches!(short, Message::Assistant(m) if m.text == "hi" && m.calls.is_empty()));
    }
}
