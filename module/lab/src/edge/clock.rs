//! The clock that the emulated hub judges tokens by. It is wall time plus an offset that a test
//! sets, so that an hour can pass in no time. It never sleeps and never touches the system's clock.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// Wall time plus an offset.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    offset_ms: AtomicI64,
}

impl Clock {
    /// The present moment as the hub sees it.
    pub(crate) fn now(&self) -> Timestamp {
        let offset = SignedDuration::from_millis(self.offset_ms.load(Ordering::SeqCst));
        Timestamp::now()
            .checked_add(offset)
            .unwrap_or(Timestamp::MAX)
    }

    /// Lets time jump forward by `by`.
    pub(crate) fn advance(&self, by: Duration) {
        let ms = i64::try_from(by.as_millis()).unwrap_or(i64::MAX / 4);
        self.offset_ms.fetch_add(ms, Ordering::SeqCst);
    }

    /// Takes back all jumps.
    pub(crate) fn reset(&self) {
        self.offset_ms.store(0, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_advance_moves_now_and_nothing_else_does() {
        let clock = Clock::default();
        let before = clock.now();
        clock.advance(Duration::from_secs(3600));
        let passed = clock.now().duration_since(before);
        assert!(passed >= SignedDuration::from_secs(3600));
        assert!(passed < SignedDuration::from_secs(3700));
        clock.reset();
        assert!(clock.now().duration_since(before) < SignedDuration::from_secs(100));
    }
}
