//! What the process shows of itself: log lines and metrics. It holds no state that decides anything
//! and never writes a secret.

mod entry;
mod held;
mod journal;
pub mod logs;
pub mod metrics;
mod queue;
mod stdout;
mod watches;

pub use logs::{LogGuard, LogHandle, LogOptions, LogTo, init};
pub use metrics::Metrics;
