//! What an attempt may still spend of its grant, decided before each request is sent.
//!
//! Deliberately absent: counting (the caller hands in what was spent), prices of models, and what a run has left.

use crate::model::budget::Budget;
use crate::model::usage::Usage;

/// The share of a grant after which the model is told to come to an end.
const TIGHT: f64 = 0.8;
/// The share of the time after which only a report is asked for.
const CLOSING: f64 = 0.9;
/// An answer shorter than this is not worth a request.
const SHORTEST: u64 = 256;
/// Room kept for the report that the last request asks for.
const REPORT: u64 = 1024;

/// USD for a million tokens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Price {
    pub(crate) input: f64,
    pub(crate) cached: f64,
    pub(crate) output: f64,
}

impl Price {
    /// What `usage` costs; the cached tokens are a part of the input.
    pub(crate) fn of(&self, usage: &Usage) -> f64 {
        let fresh = usage.input_tokens.saturating_sub(usage.cached_tokens);
        (fresh as f64 * self.input
            + usage.cached_tokens as f64 * self.cached
            + usage.output_tokens as f64 * self.output)
            / 1e6
    }

    /// The average so far, where no price is known but a cost was told.
    pub(crate) fn seen(spent: &Usage) -> Option<Self> {
        let cost = spent.cost_usd.filter(|_| spent.tokens() > 0)?;
        let each = cost * 1e6 / spent.tokens() as f64;
        Some(Self { input: each, cached: each, output: each })
    }
}

/// What the next request would take at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Need {
    pub(crate) input_tokens: u64,
    pub(crate) max_tokens: u32,
}

/// What is left for it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Leave {
    Free {
        max_tokens: u32,
    },
    /// Four fifths of the grant are gone: the model is told, once.
    Tight {
        max_tokens: u32,
    },
    /// There will be no other: no tools, only the report.
    Last {
        max_tokens: u32,
        why: String,
    },
    /// It does not fit and is not sent.
    Nothing {
        why: String,
    },
}

/// Judges the next request. A bound in USD holds where the cost of what was spent is known.
pub(crate) fn ahead(grant: &Budget, spent: &Usage, elapsed_s: f64, price: Option<Price>, need: Need) -> Leave {
    let mut room = Room { max_tokens: u64::from(need.max_tokens), used: 0.0, last: None };
    let verdict = room
        .requests(grant, spent)
        .and_then(|()| room.time(grant, elapsed_s))
        .and_then(|()| room.tokens(grant, spent, need))
        .and_then(|()| room.usd(grant, spent, price, need));
    let max_tokens = room.max_tokens as u32;
    match (verdict, room.last) {
        (Err(why), _) => Leave::Nothing { why },
        (Ok(()), Some(why)) => Leave::Last { max_tokens, why },
        (Ok(()), None) if room.used >= TIGHT => Leave::Tight { max_tokens },
        (Ok(()), None) => Leave::Free { max_tokens },
    }
}

/// The narrowest of the bounds looked at so far.
struct Room {
    max_tokens: u64,
    /// The largest share of any bound that is gone.
    used: f64,
    /// Why the next request is the last, if it is.
    last: Option<String>,
}

impl Room {
    fn requests(&mut self, grant: &Budget, spent: &Usage) -> Result<(), String> {
        let Some(limit) = grant.requests else { return Ok(()) };
        let why = format!("{} of {limit} requests", spent.requests);
        if spent.requests >= limit {
            return Err(why);
        }
        self.take(spent.requests as f64 / limit as f64);
        if spent.requests + 1 == limit {
            self.last.get_or_insert(why);
        }
        Ok(())
    }

    fn time(&mut self, grant: &Budget, elapsed_s: f64) -> Result<(), String> {
        let Some(limit) = grant.time_s else { return Ok(()) };
        let used = elapsed_s / limit as f64;
        let why = format!("{elapsed_s:.0} of {limit} s");
        if used >= 1.0 {
            return Err(why);
        }
        self.take(used);
        if used >= CLOSING {
            self.last.get_or_insert(why);
        }
        Ok(())
    }

    fn tokens(&mut self, grant: &Budget, spent: &Usage, need: Need) -> Result<(), String> {
        let Some(limit) = grant.tokens else { return Ok(()) };
        self.take(spent.tokens() as f64 / limit as f64);
        let left = limit.saturating_sub(spent.tokens()).saturating_sub(need.input_tokens);
        let why = format!("{} of {limit} tokens", spent.tokens());
        self.fit(left, left.saturating_sub(need.input_tokens + REPORT), why)
    }

    fn usd(&mut self, grant: &Budget, spent: &Usage, price: Option<Price>, need: Need) -> Result<(), String> {
        let (Some(limit), Some(cost)) = (grant.usd, spent.cost_usd) else { return Ok(()) };
        let Some(price) = price.or_else(|| Price::seen(spent)) else { return Ok(()) };
        self.take(cost / limit);
        if price.output <= 0.0 {
            return Ok(());
        }
        let input = need.input_tokens as f64 * price.input / 1e6;
        let outputs = |usd: f64| (usd.max(0.0) * 1e6 / price.output) as u64;
        let left = limit - cost - input;
        let why = format!("{cost:.2} of {limit:.2} USD");
        self.fit(outputs(left), outputs(left - input).saturating_sub(REPORT), why)
    }

    fn take(&mut self, used: f64) {
        self.used = self.used.max(used);
    }

    /// Lowers the answer to `left`, or to `shared` where that leaves room for one more request.
    fn fit(&mut self, left: u64, shared: u64, why: String) -> Result<(), String> {
        if left < SHORTEST {
            return Err(why);
        }
        if shared >= SHORTEST {
            self.max_tokens = self.max_tokens.min(shared);
        } else {
            self.max_tokens = self.max_tokens.min(left);
            self.last.get_or_insert(why);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEED: Need = Need { input_tokens: 1000, max_tokens: 8000 };

    fn requests(number: u64) -> Usage {
        Usage { requests: number, ..Usage::ZERO }
    }

    #[test]
    fn requests_are_told_at_four_fifths_and_the_last_is_for_the_report() {
        let grant = Budget { requests: Some(10), ..Budget::NONE };
        let leave = |number| ahead(&grant, &requests(number), 0.0, None, NEED);
        assert_eq!(leave(7), Leave::Free { max_tokens: 8000 });
        assert_eq!(leave(8), Leave::Tight { max_tokens: 8000 });
        assert_eq!(leave(9), Leave::Last { max_tokens: 8000, why: "9 of 10 requests".into() });
        assert_eq!(leave(10), Leave::Nothing { why: "10 of 10 requests".into() });
    }

    #[test]
    fn without_bounds_all_is_free() {
        assert_eq!(ahead(&Budget::NONE, &requests(9999), 1e9, None, NEED), Leave::Free { max_tokens: 8000 });
    }

    #[test]
    fn time_ends_with_a_report_before_it_is_over() {
        let grant = Budget { time_s: Some(100), ..Budget::NONE };
        let leave = |elapsed| ahead(&grant, &Usage::ZERO, elapsed, None, NEED);
        assert!(matches!(leave(79.0), Leave::Free { .. }));
        assert!(matches!(leave(80.0), Leave::Tight { .. }));
        assert!(matches!(leave(90.0), Leave::Last { .. }));
        assert!(matches!(leave(100.0), Leave::Nothing { .. }));
    }

    #[test]
    fn an_answer_is_lowered_to_the_tokens_left_and_what_does_not_fit_is_not_sent() {
        let grant = Budget { tokens: Some(10_000), ..Budget::NONE };
        let leave = |spent| ahead(&grant, &Usage { input_tokens: spent, ..Usage::ZERO }, 0.0, None, NEED);
        assert_eq!(leave(0), Leave::Free { max_tokens: 6976 });
        assert_eq!(leave(7000), Leave::Last { max_tokens: 2000, why: "7000 of 10000 tokens".into() });
        assert!(matches!(leave(9000), Leave::Nothing { .. }));
    }

    #[test]
    fn whatever_was_spent_before_the_next_request_stays_within_the_grant() {
        let grant = Budget { tokens: Some(100_000), usd: Some(1.0), ..Budget::NONE };
        let price = Price { input: 10.0, cached: 1.0, output: 30.0 };
        for spent in (0..100_000).step_by(731) {
            let mut usage = Usage { input_tokens: spent, ..Usage::ZERO };
            usage.cost_usd = Some(price.of(&usage));
            let max_tokens = match ahead(&grant, &usage, 0.0, Some(price), NEED) {
                Leave::Free { max_tokens } | Leave::Tight { max_tokens } | Leave::Last { max_tokens, .. } => max_tokens,
                Leave::Nothing { .. } => continue,
            };
            let next = Usage { input_tokens: NEED.input_tokens, output_tokens: u64::from(max_tokens), ..Usage::ZERO };
            assert!(usage.tokens() + next.tokens() <= 100_000, "{spent}");
            assert!(price.of(&usage) + price.of(&next) <= 1.0 + 1e-9, "{spent}");
        }
    }

    #[test]
    fn a_cost_is_held_by_the_average_where_no_price_is_known() {
        let grant = Budget { usd: Some(1.0), ..Budget::NONE };
        let spent = Usage { input_tokens: 90_000, cost_usd: Some(0.9), ..Usage::ZERO };
        assert!(matches!(ahead(&grant, &spent, 0.0, None, NEED), Leave::Tight { max_tokens: 6900..7000 }));
        let unknown = Usage { cost_usd: None, ..spent };
        assert!(matches!(ahead(&grant, &unknown, 0.0, None, NEED), Leave::Free { .. }));
        let free = Usage { cost_usd: Some(0.0), ..spent };
        assert!(matches!(ahead(&grant, &free, 0.0, None, NEED), Leave::Free { max_tokens: 8000 }));
    }
}
