//! Models: one trait, one request, one stream of events. Each way of speaking is a file of its own.
//!
//! ```text
//! http.rs       asks a server and reads its answer; client.rs is the HTTP client, sse.rs the events of a body
//!   dialect.rs    which way of speaking: anthropic.rs, openai.rs, gemini.rs write requests and hear events
//!   history.rs    the conversation as any of them may be told it; lesson.rs what a server taught us
//!   answer.rs     what has been heard of an answer; calls.rs puts its calls together
//!   failure.rs    what a refusal means
//! offline/      the built-in search; script.rs replays
//! ```
//!
//! Deliberately absent: retries and budgets (the agent's), prices, and any knowledge of who asks.

mod answer;
mod anthropic;
mod calls;
pub(crate) mod client;
mod dialect;
mod failure;
mod gemini;
mod history;
pub(crate) mod http;
mod lesson;
pub(crate) mod offline;
mod openai;
pub(crate) mod script;
mod sse;

use std::pin::Pin;

use futures_util::Stream;

use crate::model::message::{Message, StopReason, Thinking, ToolCall, ToolSpec};
use crate::model::time::Timestamp;
use crate::model::usage::Usage;

/// All a model is told. A provider is a function of this and nothing else.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Request {
    /// The model's own name, without the provider.
    pub(crate) model: String,
    pub(crate) system: String,
    pub(crate) messages: Vec<Message>,
    pub(crate) tools: Vec<ToolSpec>,
    pub(crate) max_tokens: u32,
}

/// What comes back, in order. A stream that ends without `Finished` was cut and must be an error.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ProviderEvent {
    Text(String),
    /// A piece of thinking, to be shown.
    Thinking(String),
    /// Whole thinking, to be kept with the answer: the provider may want to see it again.
    Thought(Thinking),
    /// A whole call; fragments never leave the provider.
    Call(ToolCall),
    /// Always the last.
    Finished {
        usage: Usage,
        stop: StopReason,
    },
}

/// A request that failed, by what can be done about it.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub(crate) enum ProviderError {
    /// 429 or an overload that passes.
    #[error("the provider asks to wait: {detail}")]
    RateLimited { retry_after_s: Option<f64>, detail: String },
    /// The account's quota is used up until a known time.
    #[error("the usage limit is reached until {until}: {detail}")]
    UsageLimit { until: Timestamp, detail: String },
    /// 5xx, 529, an error event that says it passes.
    #[error("the provider failed: {detail}")]
    Server { retry_after_s: Option<f64>, detail: String },
    /// 401 or 403.
    #[error("the provider refused the key: {detail}")]
    Refused { detail: String },
    /// Any other 4xx, or an error event that says the request is wrong.
    #[error("the provider refused the request: {detail}")]
    Invalid { detail: String },
    /// The conversation does not fit the model's window.
    #[error("the conversation is too long for the model: {detail}")]
    TooLong { detail: String },
    #[error("the provider cannot be reached: {detail}")]
    Unreachable { detail: String },
    /// The stream ended before its end.
    #[error("the answer was cut off: {detail}")]
    Interrupted { detail: String },
    /// The model, script or key is not there.
    #[error("{detail}")]
    Missing { detail: String },
}

/// The events of one answer.
pub(crate) type EventStream = Pin<Box<dyn Stream<Item = Result<ProviderEvent, ProviderError>> + Send>>;

/// A source of answers.
pub(crate) trait Provider: Send + Sync {
    fn stream(&self, request: Request) -> EventStream;
}
