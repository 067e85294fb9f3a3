//! Who may start, and with what share of the budget.
//!
//! Slots and money are derived from the children, never counted, so that nothing leaks.

use crate::model::budget::Budget;
use crate::model::child::{ChildSpec, Evidence};
use crate::model::usage::Usage;

/// With one request a child whose report must rest on something cannot look first.
const LEAST_REQUESTS: u64 = 2;
/// Nobody finds out anything in less.
const LEAST_SECONDS: u64 = 5;

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
pub(crate) fn grant(purse: &Purse, spec: &ChildSpec, child_spent: &Usage) -> Result<Budget, &'static str> {
    let child = &spec.budget;
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
    let requests = least_requests(spec);
    for (left, least, name) in
        [(grant.tokens, 1, "tokens"), (grant.requests, requests, "requests"), (grant.time_s, 1, "time")]
    {
        if left.is_some_and(|left| left < least) {
            return Err(name);
        }
    }
    Ok(grant)
}

/// The fewest requests that are worth a start. Whoever gives a child one in all means it.
pub(crate) fn least_requests(spec: &ChildSpec) -> u64 {
    match spec.evidence {
        Evidence::Required => LEAST_REQUESTS.min(spec.budget.requests.unwrap_or(LEAST_REQUESTS)),
        Evidence::NotRequired => 1,
    }
}

/// What an attempt gives to children of its own out of what it has left: four fifths, for it has to go on with what
/// they found. The text says which bound leaves too little.
pub(crate) fn for_children(left: &Budget) -> Result<Budget, String> {
    let part = |left: u64| left - left.div_ceil(5);
    let given = Budget {
        usd: left.usd.map(|usd| usd * 0.8),
        tokens: left.tokens.map(part),
        requests: left.requests.map(|requests| part(requests).min(requests.saturating_sub(LEAST_REQUESTS))),
        time_s: left.time_s.map(part),
    };
    let too_little =
        [
            given.usd.filter(|usd| *usd <= 0.0).map(|_| "no USD is left".to_owned()),
            given.tokens.filter(|tokens| *tokens == 0).map(|_| "no tokens are left".to_owned()),
            given.requests.filter(|requests| *requests < LEAST_REQUESTS).and(left.requests).map(|requests| {
                format!("{} left", crate::text::count(requests as usize, "request is", "requests are"))
            }),
            given
                .time_s
                .filter(|seconds| *seconds < LEAST_SECONDS)
                .and(left.time_s)
                .map(|seconds| format!("{} left", crate::text::count(seconds as usize, "second is", "seconds are"))),
        ];
    match too_little.into_iter().flatten().next() {
        Some(why) => Err(why),
        None => Ok(given),
    }
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
    use crate::machine::child::tests::spec;

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
        let grant = grant(&purse(), &spec(), &Usage::ZERO).unwrap();
        let want = Budget { usd: Some(1.25), tokens: Some(250), requests: Some(100), time_s: Some(900) };
        assert_eq!(grant, want);
    }

    #[test]
    fn grants_never_sum_above_the_limit() {
        let mut purse = Purse { sharers: 2, ..purse() };
        let mut sum = 0;
        for _ in 0..50 {
            let Ok(next) = grant(&purse, &spec(), &Usage::ZERO) else { break };
            sum += next.tokens.unwrap();
            purse.granted = purse.granted.plus(&next, &Usage::ZERO);
        }
        assert!(sum <= 1000, "{sum}");
        assert_eq!(grant(&purse, &spec(), &Usage::ZERO), Err("tokens"));
    }

    #[test]
    fn earlier_attempts_count_against_the_child() {
        let spent = Usage { requests: 98, ..Usage::ZERO };
        assert_eq!(grant(&purse(), &spec(), &spent).unwrap().requests, Some(2));
        let spent = Usage { requests: 100, ..Usage::ZERO };
        assert_eq!(grant(&purse(), &spec(), &spent), Err("requests"));
    }

    #[test]
    fn one_request_is_worth_a_start_only_to_whom_it_is_enough() {
        let one_left = Usage { requests: 99, ..Usage::ZERO };
        assert_eq!(grant(&purse(), &spec(), &one_left), Err("requests"), "a reader could not look first");
        let writer = ChildSpec { evidence: Evidence::NotRequired, ..spec() };
        assert_eq!(grant(&purse(), &writer, &one_left).unwrap().requests, Some(1));
        let meant = ChildSpec { budget: Budget { requests: Some(1), ..Budget::NONE }, ..spec() };
        assert_eq!(grant(&purse(), &meant, &Usage::ZERO).unwrap().requests, Some(1));
    }

    #[test]
    fn children_get_a_part_of_what_is_left_and_the_parent_keeps_enough_to_report() {
        let left = Budget { usd: Some(1.0), tokens: Some(1001), requests: Some(10), time_s: Some(100) };
        let given = for_children(&left).unwrap();
        assert_eq!(given, Budget { usd: Some(0.8), tokens: Some(800), requests: Some(8), time_s: Some(80) });
        assert_eq!(for_children(&Budget::NONE), Ok(Budget::NONE));
        let requests = |left| for_children(&Budget { requests: Some(left), ..Budget::NONE });
        assert_eq!(requests(4).unwrap().requests, Some(2));
        assert_eq!(requests(3), Err("3 requests are left".to_owned()));
        let seconds = Budget { time_s: Some(5), ..Budget::NONE };
        assert_eq!(for_children(&seconds), Err("5 seconds are left".to_owned()));
        assert!(for_children(&Budget { usd: Some(0.0), ..Budget::NONE }).is_err());
        assert!(for_children(&Budget { tokens: Some(0), ..Budget::NONE }).is_err());
    }

    #[test]
    fn an_unknown_cost_lifts_the_dollar_bound_but_not_the_tokens() {
        let spent = Usage { cost_usd: None, input_tokens: 900, ..Usage::ZERO };
        let grant = grant(&Purse { spent, ..purse() }, &spec(), &Usage::ZERO).unwrap();
        assert_eq!((grant.usd, grant.tokens), (None, Some(25)));
    }
}
