//! The judge and the engine on a cluster on paper. One binary, so that the rig is built and linked once.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod budgets;
mod churning;
mod diagnosing;
mod healing;
mod holding;
mod judging;
mod rig;
mod telling;
