//! Full-jitter back-off: pure arithmetic, the random number comes from the caller.

use std::time::Duration;

/// Counts failures in a row and says how long to wait.
///
/// The wait is drawn from zero to a ceiling that doubles with each failure, so that a fleet whose
/// hub comes back does not return as one. A floor of a twentieth of the first ceiling keeps a loop
/// of instant failures from spinning.
#[derive(Debug, Clone, Default)]
pub(crate) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// Notes one more failure and returns the wait. `random` is in `0.0..1.0`.
    pub(crate) fn next(&mut self, (first, cap): (Duration, Duration), random: f64) -> Duration {
        let doubled = first.saturating_mul(1 << self.failures.min(20));
        self.failures = self.failures.saturating_add(1);
        doubled
            .min(cap)
            .mul_f64(random.clamp(0.0, 1.0))
            .max(first / 20)
    }

    /// To be called after a link that was stable, not after one that merely came up: some hubs
    /// accept and drop in a loop.
    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }

    /// Failures since the last reset.
    pub(crate) fn failures(&self) -> u32 {
        self.failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANGE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(120));

    #[test]
    fn the_ceiling_doubles_up_to_the_cap_and_stays_there() {
        let mut backoff = Backoff::default();
        let ceilings: Vec<u64> = (0..40)
            .map(|_| backoff.next(RANGE, 1.0).as_secs())
            .collect();
        assert_eq!(ceilings[..8], [1, 2, 4, 8, 16, 32, 64, 120]);
        assert!(ceilings[8..].iter().all(|s| *s == 120));
        assert_eq!(backoff.failures(), 40);
        backoff.reset();
        assert_eq!(backoff.next(RANGE, 1.0), Duration::from_secs(1));
    }

    #[test]
    fn the_jitter_is_full_but_never_zero() {
        let mut backoff = Backoff::default();
        for _ in 0..7 {
            backoff.next(RANGE, 0.5);
        }
        assert_eq!(backoff.next(RANGE, 0.25), Duration::from_secs(30));
        assert_eq!(backoff.next(RANGE, 0.0), Duration::from_millis(50));
    }
}
