//! Who may start, and with what share of the budget.
//!
//! Slots and money are derived from the children, never counted, so that nothing leaks.

use crate::model::budget::Budget;
use crate::model::usage::Usage;

/// The run's money and time as they stand.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Purse {
    pub(crate) limits: Budget,
    /// Spent by attempts that are over.
    pub(crate) spent: Usage,
    /// Set aside for attempts that run or are parked: the larger of grant and what they already used.
    pub(crate) granted: Granted,
    /// Seconds since the run began.
    pub(crate) elapsed_s: u64,
    /// min(width, children not final).
    pub(crate) sharers: u64,
}

/// Sums of what is set aside.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Granted {
    pub(crate) usd: f64,
    pub(crate) tokens: u64,
    pub(crate) requests: u64,
}

impl Granted {
    /// Adds one attempt's grant, or what it used where that is more.
    #[must_use]
    pub(crate) fn plus(self, grant: &Budget, used: &Usage) -> Self {
        Self {
            usd: self.usd + grant.usd.unwrap_or(0.0).max(used.cost_usd.unwrap_or(0.0)),
            tokens: self.tokens + grant.tokens.unwrap_or(0).max(used.tokens()),
            requests: self.requests + grant.requests.unwrap_or(0).max(used.requests),
        }
    }
}

/// The grant of the next attempt, or the bound that leaves nothing.
///
/// min(child's budget less what its earlier attempts spent, (limit − spent − granted) / sharers), bound by bound. USD
/// bind only where the cost is known; where it is not, tokens do.
pub(crate) fn grant(purse: &Purse, child: &Budget, child_spent: &Usage) -> Result<Budget, &'static str> {
    let sharers = purse.sharers.max(1);
    let usd = match (purse.limits.usd, purse.spent.cost_usd) {
        (Some(limit), Some(spent)) => Some((limit - spent - purse.granted.usd) / sharers as f64),
        (None, _) | (_, None) => None,
    };
    let own_usd = child.usd.zip(child_spent.cost_usd).map(|(limit, spent)| limit - spent);
    let share = |limit: Option<u64>, spent: u64, granted: u64| {
        limit.map(|limit| limit.saturating_sub(spent).saturating_sub(granted) / sharers)
    };
    let grant = Budget {
        usd: least_usd(usd, own_usd),
        tokens: least(
            share(purse.limits.tokens, purse.spent.tokens(), purse.granted.tokens),
            child.tokens.map(|limit| limit.saturating_sub(child_spent.tokens())),
        ),
        requests: least(
            share(purse.limits.requests, purse.spent.requests, purse.granted.requests),
            child.requests.map(|limit| limit.saturating_sub(child_spent.requests)),
        ),
        time_s: least(purse.limits.time_s.map(|limit| limit.saturating_sub(purse.elapsed_s)), child.time_s),
    };
    if grant.usd.is_some_and(|usd| usd <= 0.0) {
        return Err("USD");
    }
    for (left, name) in [(grant.tokens, "tokens"), (grant.requests, "requests"), (grant.time_s, "time")] {
        if left == Some(0) {
            return Err(name);
        }
    }
    Ok(grant)
}

fn least(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (one, other) => one.or(other),
    }
}

fn least_usd(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn purse() -> Purse {
        Purse {
            limits: Budget { usd: Some(5.0), tokens: Some(1000), requests: None, time_s: Some(3600) },
            spent: Usage::ZERO,
            granted: Granted::default(),
            elapsed_s: 0,
            sharers: 4,
        }
    }

    #[test]
    fn a_grant_is_the_smaller_of_share_and_own_budget() {
        let grant = grant(&purse(), &Budget::CHILD, &Usage::ZERO).unwrap();
        let want = Budget { usd: Some(1.25), tokens: Some(250), requests: Some(100), time_s: Some(900) };
        assert_eq!(grant, want);
    }

    #[test]
    fn grants_never_sum_above_the_limit() {
        let mut purse = Purse { sharers: 2, ..purse() };
        let mut sum = 0;
        for _ in 0..50 {
            let Ok(next) = grant(&purse, &Budget::CHILD, &Usage::ZERO) else { break };
            sum += next.tokens.unwrap();
            purse.granted = purse.granted.plus(&next, &Usage::ZERO);
        }
        assert!(sum <= 1000, "{sum}");
        assert_eq!(grant(&purse, &Budget::CHILD, &Usage::ZERO), Err("tokens"));
    }

    #[test]
    fn earlier_attempts_count_against_the_child() {
        let spent = Usage { requests: 99, ..Usage::ZERO };
        assert_eq!(grant(&purse(), &Budget::CHILD, &spent).unwrap().requests, Some(1));
        let spent = Usage { requests: 100, ..Usage::ZERO };
        assert_eq!(grant(&purse(), &Budget::CHILD, &spent), Err("requests"));
    }

    #[test]
    fn an_unknown_cost_lifts_the_dollar_bound_but_not_the_tokens() {
        let spent = Usage { cost_usd: None, input_tokens: 900, ..Usage::ZERO };
        let grant = grant(&Purse { spent, ..purse() }, &Budget::CHILD, &Usage::ZERO).unwrap();
        assert_eq!((grant.usd, grant.tokens), (None, Some(25)));
    }
}
