//! Which model a child speaks to: the flag, the persona, the settings, the only provider with a key.

use std::collections::BTreeMap;

/// A provider that could be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// `anthropic`
    pub(crate) provider: String,
    /// The variable that holds its key.
    pub(crate) key_name: String,
    /// Its models by tier, where it is known.
    pub(crate) tiers: BTreeMap<&'static str, &'static str>,
}

/// All that the choice rests on.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wishes<'a> {
    pub(crate) flag: Option<&'a str>,
    pub(crate) persona: Option<&'a str>,
    /// Readers use the cheap tier unless told.
    pub(crate) only_reads: bool,
    /// A tier or name to what the settings say of it; `None` where they say nothing.
    pub(crate) settings: Option<&'a str>,
    pub(crate) settings_tiers: BTreeMap<&'static str, &'a str>,
    pub(crate) candidates: &'a [Candidate],
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ChoiceError {
    #[error("keys of several providers are set ({}) and no model is chosen", keys.join(", "))]
    Ambiguous { keys: Vec<String>, example: String },
    #[error("`{name}` is not a model; write provider/name, as in anthropic/claude-sonnet-4-5")]
    NotAModel { name: String },
    #[error("the tier `{tier}` has no model")]
    NoTier { tier: String },
}

/// The built-in model that needs no key and no network.
pub(crate) const OFFLINE: &str = "offline/explorer";

/// A provider, the variables that may hold its key, and its models by tier.
type Known = (&'static str, &'static [&'static str], &'static [(&'static str, &'static str)]);

/// The variables that may hold a provider's key, the usual one first.
pub(crate) fn key_names(provider: &str) -> &'static [&'static str] {
    KNOWN.iter().find(|known| known.0 == provider).map_or(&[], |known| known.1)
}

/// The models that a provider's key alone gives, as of 2026-11. Settings override them.
pub(crate) const KNOWN: &[Known] = &[
    (
        "anthropic",
        &["ANTHROPIC_API_KEY"],
        &[("cheap", "claude-haiku-4-5"), ("default", "claude-sonnet-4-5"), ("strong", "claude-opus-4-5")],
    ),
    ("openai", &["OPENAI_API_KEY"], &[("cheap", "gpt-5-mini"), ("default", "gpt-5"), ("strong", "gpt-5")]),
    (
        "gemini",
        &["GEMINI_API_KEY", "GOOGLE_API_KEY"],
        &[("cheap", "gemini-2.5-flash"), ("default", "gemini-2.5-pro"), ("strong", "gemini-2.5-pro")],
    ),
    (
        "openrouter",
        &["OPENROUTER_API_KEY"],
        &[("cheap", "openrouter/auto"), ("default", "openrouter/auto"), ("strong", "openrouter/auto")],
    ),
];

/// Chooses `provider/name`.
pub(crate) fn choose(wishes: &Wishes<'_>) -> Result<String, ChoiceError> {
    let usual = if wishes.only_reads { "cheap" } else { "default" };
    match wishes.flag.or(wishes.persona) {
        Some(name) => match tier(name) {
            Some(tier) => by_tier(tier, wishes),
            None => whole(name),
        },
        None => by_tier(usual, wishes),
    }
}

/// The tier a name means; personas of Claude Code name models of one provider.
fn tier(name: &str) -> Option<&'static str> {
    match name {
        "cheap" | "haiku" => Some("cheap"),
        "default" | "sonnet" | "inherit" => Some("default"),
        "strong" | "opus" => Some("strong"),
        _ => None,
    }
}

fn whole(name: &str) -> Result<String, ChoiceError> {
    match name.split_once('/') {
        Some((provider, model)) if !provider.is_empty() && !model.is_empty() => Ok(name.to_owned()),
        _ => Err(ChoiceError::NotAModel { name: name.to_owned() }),
    }
}

fn by_tier(wanted: &'static str, wishes: &Wishes<'_>) -> Result<String, ChoiceError> {
    if let Some(model) = wishes.settings_tiers.get(wanted) {
        return whole(model);
    }
    if let Some(model) = wishes.settings.filter(|name| tier(name).is_none()) {
        return whole(model);
    }
    match wishes.candidates {
        [] => Ok(OFFLINE.to_owned()),
        [one] => match one.tiers.get(wanted).or_else(|| one.tiers.get("default")) {
            Some(model) => Ok(format!("{}/{model}", one.provider)),
            None => Err(ChoiceError::NoTier { tier: wanted.to_owned() }),
        },
        [first, ..] => Err(ChoiceError::Ambiguous {
            keys: wishes.candidates.iter().map(|candidate| candidate.key_name.clone()).collect(),
            example: format!("model: {}/{}", first.provider, first.tiers.get("default").copied().unwrap_or("NAME")),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(provider: &str) -> Candidate {
        let (name, keys, tiers) = KNOWN.iter().find(|known| known.0 == provider).unwrap();
        Candidate { provider: (*name).to_owned(), key_name: keys[0].to_owned(), tiers: tiers.iter().copied().collect() }
    }

    #[test]
    fn the_flag_comes_before_the_persona_before_the_settings_before_the_key() {
        let candidates = [candidate("anthropic")];
        let wishes = Wishes { candidates: &candidates, ..Wishes::default() };
        assert_eq!(choose(&wishes).unwrap(), "anthropic/claude-sonnet-4-5");
        let wishes = Wishes { only_reads: true, ..wishes };
        assert_eq!(choose(&wishes).unwrap(), "anthropic/claude-haiku-4-5");
        let wishes = Wishes { settings: Some("ollama/qwen"), ..wishes };
        assert_eq!(choose(&wishes).unwrap(), "ollama/qwen");
        let wishes = Wishes { persona: Some("openai/gpt-5"), ..wishes };
        assert_eq!(choose(&wishes).unwrap(), "openai/gpt-5");
        let wishes = Wishes { flag: Some("script/a/b.jsonl"), ..wishes };
        assert_eq!(choose(&wishes).unwrap(), "script/a/b.jsonl");
    }

    #[test]
    fn a_persona_of_claude_code_names_a_tier() {
        let candidates = [candidate("openai")];
        let wishes = Wishes { persona: Some("haiku"), candidates: &candidates, ..Wishes::default() };
        assert_eq!(choose(&wishes).unwrap(), "openai/gpt-5-mini");
    }

    #[test]
    fn two_keys_and_no_setting_ask_for_a_line_and_none_is_the_search() {
        let candidates = [candidate("anthropic"), candidate("openai")];
        let wishes = Wishes { candidates: &candidates, ..Wishes::default() };
        let ChoiceError::Ambiguous { keys, example } = choose(&wishes).unwrap_err() else { panic!() };
        assert_eq!(keys, ["ANTHROPIC_API_KEY", "OPENAI_API_KEY"]);
        assert_eq!(example, "model: anthropic/claude-sonnet-4-5");
        assert_eq!(choose(&Wishes::default()).unwrap(), OFFLINE);
        let wishes = Wishes { flag: Some("gpt-5"), ..Wishes::default() };
        assert!(matches!(choose(&wishes), Err(ChoiceError::NotAModel { .. })));
    }
}
