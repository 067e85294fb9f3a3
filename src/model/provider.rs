//! Whose API a provider speaks.
//!
//! Deliberately absent: addresses, keys, and how each is spoken (`provider/`).

use serde::{Deserialize, Serialize};

/// The APIs decode speaks. A provider of one of these names speaks it; others say which in the settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ProviderKind {
    Anthropic,
    OpenAi,
    Gemini,
    Ollama,
    OpenRouter,
}

impl ProviderKind {
    pub(crate) const ALL: &'static [Self] =
        &[Self::Anthropic, Self::OpenAi, Self::Gemini, Self::Ollama, Self::OpenRouter];

    /// The name before the slash in `provider/model`.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::OpenAi => "openai",
            Self::Gemini => "gemini",
            Self::Ollama => "ollama",
            Self::OpenRouter => "openrouter",
        }
    }

    /// The kind of a provider that is known by its name alone.
    pub(crate) fn of(provider: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.name() == provider)
    }
}

/// The provider in `provider/model`.
pub(crate) fn provider_of(model: &str) -> &str {
    model.split('/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_has_one_name_on_the_command_line_and_in_files() {
        for kind in ProviderKind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
            assert_eq!(ProviderKind::of(kind.name()), Some(*kind));
        }
        assert_eq!(ProviderKind::of("local"), None);
    }

    #[test]
    fn the_provider_is_what_stands_before_the_first_slash() {
        assert_eq!(provider_of("openrouter/vendor/model"), "openrouter");
        assert_eq!(provider_of("explorer"), "explorer");
    }
}
