//! When a failed request to a model is tried again, and when no more.
//!
//! Deliberately absent: the waiting, the clock and the randomness, which are handed in.

/// Tries of one request, the first included.
pub(crate) const TRIES: u32 = 6;
/// The first wait after trouble that passes; each further one is twice as long.
const FIRST_S: f64 = 1.0;
/// No wait of our own choice is longer.
const LONGEST_S: f64 = 30.0;
/// How much later than asked a polite client comes back at most, so that all do not come at once.
const SPREAD: f64 = 0.1;

/// What a failed request says about the next one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Trouble {
    /// It may pass; the other side may have said when.
    Passing { retry_after_s: Option<f64> },
    /// The same request will fail again.
    Lasting,
}

/// What to do after a failure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Next {
    Wait { seconds: f64 },
    GiveUp(Reason),
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Reason {
    Lasting,
    /// All tries are used.
    Tries,
    /// The wait would not end within the child's time.
    Time {
        asked_s: f64,
    },
}

/// Decides after try number `tries`. `left_s` is what is left of the child's time, `jitter` lies in 0..1.
pub(crate) fn next(trouble: Trouble, tries: u32, left_s: Option<f64>, jitter: f64) -> Next {
    let Trouble::Passing { retry_after_s } = trouble else { return Next::GiveUp(Reason::Lasting) };
    if tries >= TRIES {
        return Next::GiveUp(Reason::Tries);
    }
    // A value that is no duration is as good as none.
    let asked = retry_after_s.filter(|seconds| seconds.is_finite() && *seconds >= 0.0);
    let own = FIRST_S * f64::from(1_u32 << (tries.saturating_sub(1)).min(8));
    let own = own.min(LONGEST_S) * (0.5 + 0.5 * jitter);
    let seconds = match asked {
        Some(0.0) | None => own,
        Some(asked) => asked + (asked * SPREAD).min(LONGEST_S) * jitter,
    };
    match left_s {
        Some(left) if asked.unwrap_or(seconds) >= left => {
            Next::GiveUp(Reason::Time { asked_s: asked.unwrap_or(seconds) })
        }
        Some(left) => Next::Wait { seconds: seconds.min(left) },
        None => Next::Wait { seconds },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(seconds: f64) -> Trouble {
        Trouble::Passing { retry_after_s: Some(seconds) }
    }

    const PASSING: Trouble = Trouble::Passing { retry_after_s: None };

    #[test]
    fn waits_grow_and_end_after_six_tries() {
        let waits: Vec<Next> = (1..=6).map(|tries| next(PASSING, tries, None, 1.0)).collect();
        let wait = |seconds| Next::Wait { seconds };
        assert_eq!(waits, [wait(1.0), wait(2.0), wait(4.0), wait(8.0), wait(16.0), Next::GiveUp(Reason::Tries)]);
        assert_eq!(next(PASSING, 3, None, 0.0), wait(2.0));
    }

    #[test]
    fn a_retry_after_is_a_lower_bound() {
        for jitter in [0.0, 0.5, 0.999] {
            let Next::Wait { seconds } = next(after(3.0), 1, Some(900.0), jitter) else { panic!() };
            assert!((3.0..=3.3).contains(&seconds), "{seconds}");
        }
    }

    #[test]
    fn a_retry_after_that_is_no_duration_falls_back_to_our_own_wait() {
        for odd in [f64::NAN, f64::INFINITY, -5.0, 0.0] {
            assert_eq!(next(after(odd), 1, Some(900.0), 1.0), Next::Wait { seconds: 1.0 }, "{odd}");
        }
    }

    #[test]
    fn a_wait_longer_than_the_childs_time_is_not_begun() {
        let reason = Reason::Time { asked_s: 86_400.0 };
        assert_eq!(next(after(86_400.0), 1, Some(900.0), 0.5), Next::GiveUp(reason));
        assert!(matches!(next(PASSING, 5, Some(3.0), 1.0), Next::GiveUp(Reason::Time { .. })));
        assert!(matches!(next(after(86_400.0), 1, None, 0.5), Next::Wait { .. }));
    }

    #[test]
    fn what_will_fail_again_is_not_tried_again() {
        assert_eq!(next(Trouble::Lasting, 1, None, 0.5), Next::GiveUp(Reason::Lasting));
    }
}
