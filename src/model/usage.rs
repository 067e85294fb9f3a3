//! What was spent. A cost that is not known is `None`, never 0, and one unknown makes a sum unknown.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Usage {
    #[serde(default)]
    pub(crate) requests: u64,
    /// All input, the cached part included.
    #[serde(default)]
    pub(crate) input_tokens: u64,
    #[serde(default)]
    pub(crate) cached_tokens: u64,
    #[serde(default)]
    pub(crate) output_tokens: u64,
    #[serde(default)]
    pub(crate) cost_usd: Option<f64>,
}

impl Usage {
    /// Nothing spent, which costs nothing.
    pub(crate) const ZERO: Self =
        Self { requests: 0, input_tokens: 0, cached_tokens: 0, output_tokens: 0, cost_usd: Some(0.0) };

    pub(crate) const fn tokens(&self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }

    #[must_use]
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            requests: self.requests.saturating_add(other.requests),
            input_tokens: self.input_tokens.saturating_add(other.input_tokens),
            cached_tokens: self.cached_tokens.saturating_add(other.cached_tokens),
            output_tokens: self.output_tokens.saturating_add(other.output_tokens),
            cost_usd: self.cost_usd.zip(other.cost_usd).map(|(a, b)| a + b),
        }
    }
}

impl Default for Usage {
    fn default() -> Self {
        Self::ZERO
    }
}

impl std::iter::Sum for Usage {
    fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
        parts.fold(Self::ZERO, Self::plus)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_unknown_cost_makes_the_sum_unknown() {
        let known = Usage { cost_usd: Some(1.5), requests: 1, ..Usage::ZERO };
        let unknown = Usage { cost_usd: None, requests: 2, ..Usage::ZERO };
        assert_eq!([known, known].into_iter().sum::<Usage>().cost_usd, Some(3.0));
        let sum: Usage = [known, unknown].into_iter().sum();
        assert_eq!((sum.cost_usd, sum.requests), (None, 3));
    }
}
