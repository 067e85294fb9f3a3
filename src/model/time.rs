//! Times as the machine sees them: a pair of clocks, handed in from outside.

use serde::{Deserialize, Serialize};

/// A point of the wall clock in milliseconds, written as RFC 3339 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Timestamp(i64);

impl Timestamp {
    pub(crate) const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    pub(crate) const fn as_millis(self) -> i64 {
        self.0
    }

    /// This time moved by `seconds`, which may be negative.
    pub(crate) fn plus_s(self, seconds: f64) -> Self {
        Self(self.0.saturating_add((seconds * 1000.0) as i64))
    }

    /// Seconds from `earlier` to this time; negative if the clock went back.
    pub(crate) fn since_s(self, earlier: Self) -> f64 {
        (self.0 - earlier.0) as f64 / 1000.0
    }
}

impl std::fmt::Display for Timestamp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let at = jiff::Timestamp::from_millisecond(self.0).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
        write!(f, "{at:.3}")
    }
}

impl From<Timestamp> for String {
    fn from(at: Timestamp) -> Self {
        at.to_string()
    }
}

impl TryFrom<String> for Timestamp {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl std::str::FromStr for Timestamp {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse::<jiff::Timestamp>()
            .map(|at| Self(at.as_millisecond()))
            .map_err(|_| format!("`{text}` is not a time as in 2026-11-30T21:41:39.000Z"))
    }
}

/// Now, twice: a clock that never jumps for timers, and the wall clock for what people and files say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Now {
    /// Milliseconds of a monotonic clock; only differences mean anything.
    pub(crate) mono_ms: u64,
    pub(crate) wall: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_with_milliseconds_and_read_back() {
        let at = Timestamp::from_millis(1_796_074_899_007);
        assert_eq!(at.to_string(), "2026-11-30T21:41:39.007Z");
        assert_eq!(at.to_string().parse(), Ok(at));
    }
}
