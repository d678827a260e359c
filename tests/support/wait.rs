//! Waiting for a condition instead of for time.
//!
//! Every wait has a deadline and says, when it passes, what was seen last.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// How often a condition is looked at.
const POLL: Duration = Duration::from_millis(50);

/// What one look at a condition saw.
#[derive(Debug)]
pub enum Look<T> {
    /// It holds, with what the caller wants to know of it.
    Done(T),
    /// It does not hold yet; the text says what was seen instead.
    NotYet(String),
}

/// Looks until the condition holds and returns what it yielded and how long that took.
///
/// # Errors
/// When `deadline` has passed, with what was seen last, and at once when a look fails.
pub async fn eventually<T>(
    what: &str,
    deadline: Duration,
    mut look: impl AsyncFnMut() -> Result<Look<T>>,
) -> Result<(T, Duration)> {
    let begun = Instant::now();
    loop {
        let seen = match look().await? {
            Look::Done(value) => return Ok((value, begun.elapsed())),
            Look::NotYet(seen) => seen,
        };
        if begun.elapsed() >= deadline {
            bail!("{what}: not within {deadline:?}; seen last: {seen}");
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Looks again and again for the whole of `span` and fails as soon as the condition does not hold.
///
/// For proving that something does *not* happen. The span is what the proof is worth, so it is
/// measured out in full.
///
/// # Errors
/// When a look says [`Look::NotYet`], with what it saw, or fails.
pub async fn throughout(
    what: &str,
    span: Duration,
    mut look: impl AsyncFnMut() -> Result<Look<()>>,
) -> Result<()> {
    let begun = Instant::now();
    while begun.elapsed() < span {
        if let Look::NotYet(seen) = look().await? {
            bail!("{what}: no longer after {:?}: {seen}", begun.elapsed());
        }
        tokio::time::sleep(POLL).await;
    }
    Ok(())
}
