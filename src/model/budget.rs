//! Limits: what a run or a child may spend, as people write it and as a grant holds it.

use serde::{Deserialize, Serialize};

use super::usage::Usage;

/// Upper bounds. `None` means that this bound is not set.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Budget {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) usd: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tokens: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) requests: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) time_s: Option<u64>,
}

impl Budget {
    /// A run without flags: 5 USD and 60 minutes; tokens count where the cost is not known.
    pub(crate) const RUN: Self =
        Self { usd: Some(5.0), tokens: Some(2_000_000), requests: None, time_s: Some(60 * 60) };
    /// A child without flags.
    pub(crate) const CHILD: Self = Self { usd: None, tokens: None, requests: Some(100), time_s: Some(15 * 60) };
    /// Only by `--budget none`.
    pub(crate) const NONE: Self = Self { usd: None, tokens: None, requests: None, time_s: None };

    /// These bounds, with those of `other` where this sets none.
    #[must_use]
    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            usd: self.usd.or(other.usd),
            tokens: self.tokens.or(other.tokens),
            requests: self.requests.or(other.requests),
            time_s: self.time_s.or(other.time_s),
        }
    }

    /// What is left of these bounds after `spent`. Where the cost is not known, USD bind no more; time is not spent here.
    #[must_use]
    pub(crate) fn less(self, spent: &Usage) -> Self {
        Self {
            usd: self.usd.zip(spent.cost_usd).map(|(limit, cost)| (limit - cost).max(0.0)),
            tokens: self.tokens.map(|limit| limit.saturating_sub(spent.tokens())),
            requests: self.requests.map(|limit| limit.saturating_sub(spent.requests)),
            time_s: self.time_s,
        }
    }

    /// The first bound that `usage` passes, in words; `None` if all hold. Time is kept by timers, not here.
    pub(crate) fn passed_by(&self, usage: &Usage) -> Option<String> {
        if let (Some(limit), Some(cost)) = (self.usd, usage.cost_usd)
            && cost > limit
        {
            return Some(format!("{cost:.2} USD of {limit:.2}"));
        }
        if let Some(limit) = self.tokens
            && usage.tokens() > limit
        {
            return Some(format!("{} tokens of {limit}", usage.tokens()));
        }
        if let Some(limit) = self.requests
            && usage.requests > limit
        {
            return Some(format!("{} requests of {limit}", usage.requests));
        }
        None
    }
}

impl std::str::FromStr for Budget {
    type Err = String;

    /// `usd=5,tokens=2m,requests=200,time=30m`, in any order; `none` for no limits; a bare number is USD.
    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text == "none" {
            return Ok(Self::NONE);
        }
        let mut budget = Self::default();
        for part in text.split(',').map(str::trim) {
            let (key, value) = part.split_once('=').unwrap_or(("usd", part));
            match key.trim() {
                "usd" => budget.usd = Some(dollars(value)?),
                "tokens" => budget.tokens = Some(count(value)?),
                "requests" => budget.requests = Some(count(value)?),
                "time" => budget.time_s = Some(seconds(value)?),
                other => return Err(format!("`{other}` is not a limit; write usd, tokens, requests or time")),
            }
        }
        Ok(budget)
    }
}

impl std::fmt::Display for Budget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let parts: Vec<String> = [
            self.usd.map(|usd| format!("{usd:.2} USD")),
            self.tokens.map(|tokens| format!("{} tokens", short_count(tokens))),
            self.requests.map(|requests| format!("{requests} requests")),
            self.time_s.map(short_seconds),
        ]
        .into_iter()
        .flatten()
        .collect();
        if parts.is_empty() { f.write_str("no limit") } else { f.write_str(&parts.join(", ")) }
    }
}

fn dollars(text: &str) -> Result<f64, String> {
    text.trim()
        .parse::<f64>()
        .ok()
        .filter(|usd| usd.is_finite() && *usd > 0.0)
        .ok_or_else(|| format!("`{text}` is not an amount of USD above 0"))
}

/// A whole number with an optional `k` or `m`.
fn count(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let (digits, factor) = match text.to_ascii_lowercase() {
        t if t.ends_with('k') => (t[..t.len() - 1].to_owned(), 1_000.0),
        t if t.ends_with('m') => (t[..t.len() - 1].to_owned(), 1_000_000.0),
        t => (t, 1.0),
    };
    digits
        .parse::<f64>()
        .ok()
        .map(|number| number * factor)
        .filter(|number| *number >= 1.0 && *number < 1e15 && number.fract() == 0.0)
        .map(|number| number as u64)
        .ok_or_else(|| format!("`{text}` is not a count above 0, as in 200, 50k or 2m"))
}

/// A duration: `90`, `90s`, `30m`, `2h`.
pub(crate) fn seconds(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let (digits, factor) = match text.as_bytes().last() {
        Some(b's') => (&text[..text.len() - 1], 1.0),
        Some(b'm') => (&text[..text.len() - 1], 60.0),
        Some(b'h') => (&text[..text.len() - 1], 3600.0),
        Some(b'd') => (&text[..text.len() - 1], 86_400.0),
        _ => (text, 1.0),
    };
    digits
        .parse::<f64>()
        .ok()
        .map(|number| number * factor)
        .filter(|number| *number >= 1.0 && *number < 1e10)
        .map(|number| number as u64)
        .ok_or_else(|| format!("`{text}` is not a duration of a second or more, as in 90s, 30m or 2h"))
}

fn short_count(number: u64) -> String {
    match number {
        0..10_000 => number.to_string(),
        10_000..1_000_000 => format!("{} k", number / 1000),
        _ => format!("{:.1} M", number as f64 / 1e6).replace(".0 ", " "),
    }
}

fn short_seconds(seconds: u64) -> String {
    if seconds.is_multiple_of(60) { format!("{} min", seconds / 60) } else { format!("{seconds} s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_read_as_people_write_it() {
        let budget: Budget = "usd=5, tokens=2m,requests=200,time=30m".parse().unwrap();
        let want = Budget { usd: Some(5.0), tokens: Some(2_000_000), requests: Some(200), time_s: Some(1800) };
        assert_eq!(budget, want);
        assert_eq!("none".parse(), Ok(Budget::NONE));
        assert_eq!("2.5".parse::<Budget>().unwrap().usd, Some(2.5));
        for text in ["", "usd=", "usd=-1", "usd=nan", "tokens=1.5", "requests=0", "time=0", "dollars=5", "time=x"] {
            assert!(text.parse::<Budget>().is_err(), "{text}");
        }
        assert_eq!(want.to_string(), "5.00 USD, 2 M tokens, 200 requests, 30 min");
    }

    #[test]
    fn an_unknown_cost_is_held_by_tokens() {
        let usage = Usage { input_tokens: 90, output_tokens: 11, cost_usd: None, ..Usage::ZERO };
        let budget = Budget { usd: Some(0.01), tokens: Some(100), ..Budget::NONE };
        assert_eq!(budget.passed_by(&usage).as_deref(), Some("101 tokens of 100"));
        assert_eq!(Budget::NONE.passed_by(&usage), None);
    }
}
