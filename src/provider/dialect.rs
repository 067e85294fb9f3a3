//! Which way of speaking a provider has: where its API is, how a key is shown to it, and who writes and hears.
//!
//! Deliberately absent: the ways themselves, each in a file of its own.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::answer::Answer;
use super::history::Pictures;
use super::lesson::{self, Lesson};
use super::{ProviderError, ProviderEvent, Request, anthropic, gemini, openai};
use crate::model::provider::ProviderKind;

/// The version of Anthropic's API that its file speaks.
const ANTHROPIC_VERSION: &str = "2023-06-01";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    OpenAi,
    Anthropic,
    Gemini,
}

impl Dialect {
    pub(super) const fn of(kind: ProviderKind) -> Self {
        match kind {
            ProviderKind::Anthropic => Self::Anthropic,
            ProviderKind::Gemini => Self::Gemini,
            // Ollama's own API has no more than the compatible one.
            ProviderKind::OpenAi | ProviderKind::Ollama | ProviderKind::OpenRouter => Self::OpenAi,
        }
    }

    /// Where a model is asked; `base` ends in a slash.
    pub(super) fn url(self, base: &str, model: &str) -> String {
        match self {
            Self::OpenAi => format!("{base}chat/completions"),
            Self::Anthropic => format!("{base}messages"),
            Self::Gemini => {
                let model = model.strip_prefix("models/").unwrap_or(model);
                format!("{base}models/{model}:streamGenerateContent?alt=sse")
            }
        }
    }

    /// How a key is shown, and what else a server is told beside the request.
    pub(super) fn headers(self, key: Option<&str>) -> Vec<(&'static str, String)> {
        let key = key.map(|key| match self {
            Self::OpenAi => ("authorization", format!("Bearer {key}")),
            Self::Anthropic => ("x-api-key", key.to_owned()),
            Self::Gemini => ("x-goog-api-key", key.to_owned()),
        });
        let version = (self == Self::Anthropic).then(|| ("anthropic-version", ANTHROPIC_VERSION.to_owned()));
        key.into_iter().chain(version).collect()
    }

    pub(super) fn hear(self, answer: &mut Answer, frame: &Value) -> Result<Vec<ProviderEvent>, ProviderError> {
        match self {
            Self::OpenAi => openai::hear(answer, frame),
            Self::Anthropic => Ok(anthropic::hear(answer, frame)),
            Self::Gemini => gemini::hear(answer, frame),
        }
    }

    /// Whether nothing need come after the reason why an answer ends.
    pub(super) const fn may_end_with_its_reason(self) -> bool {
        match self {
            Self::OpenAi | Self::Gemini => true,
            Self::Anthropic => false,
        }
    }
}

/// What goes out.
pub(super) fn body(kind: ProviderKind, request: &Request, lessons: &BTreeSet<Lesson>) -> Value {
    let blind = lessons.contains(&Lesson::NoImages) || lesson::is_blind(&request.model);
    let pictures = if blind { Pictures::Told } else { Pictures::Shown };
    let mut body = match Dialect::of(kind) {
        Dialect::OpenAi => openai::body(request, pictures, lessons),
        Dialect::Anthropic => anthropic::body(request, pictures),
        Dialect::Gemini => gemini::body(request, pictures),
    };
    if kind == ProviderKind::OpenRouter {
        // What it charged, and what of the prompt was in the cache.
        body["usage"] = json!({"include": true});
        if request.model.starts_with("anthropic/") {
            openai::mark(&mut body);
        }
    }
    body
}
