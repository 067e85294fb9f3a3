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

/// The URL that `OLLAMA_HOST` means: a host, a port or both, or a URL; an address to listen at is this machine.
pub(crate) fn url_of_host(host: &str) -> String {
    let (scheme, rest) = host.trim().split_once("://").unwrap_or(("http", host.trim()));
    let (authority, path) = rest.split_once('/').map_or((rest, ""), |(authority, path)| (authority, path));
    let bracket = authority.rfind(']').map_or(0, |at| at + 1);
    let (name, port) = match authority[bracket..].rsplit_once(':') {
        Some((_, port)) => (&authority[..authority.len() - port.len() - 1], port),
        None if scheme == "https" => (authority, "443"),
        None => (authority, "11434"),
    };
    let name = if matches!(name, "" | "0.0.0.0" | "[::]") { "127.0.0.1" } else { name };
    let path = if path.is_empty() { String::new() } else { format!("/{}", path.trim_end_matches('/')) };
    format!("{scheme}://{name}:{port}{path}")
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
    fn a_host_of_ollama_is_read_as_ollama_reads_it() {
        for (host, url) in [
            ("0.0.0.0", "http://127.0.0.1:11434"),
            ("gpu.local:8080", "http://gpu.local:8080"),
            (":7000", "http://127.0.0.1:7000"),
            ("[::]:7000", "http://127.0.0.1:7000"),
            ("[fe80::1]", "http://[fe80::1]:11434"),
            ("http://localhost:11434/", "http://localhost:11434"),
            ("https://ollama.example/api", "https://ollama.example:443/api"),
        ] {
            assert_eq!(url_of_host(host), url, "{host}");
        }
    }

    #[test]
    fn the_provider_is_what_stands_before_the_first_slash() {
        assert_eq!(provider_of("openrouter/vendor/model"), "openrouter");
        assert_eq!(provider_of("explorer"), "explorer");
    }
}
