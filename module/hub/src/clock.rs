//! The monotonic clock, read through tokio so that a test which stops the clock stops all of it.

use std::time::Instant;

/// Now.
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
