//! Decides; touches nothing.
//!
//! [`model`] holds what the cluster says, [`judge`] what it should say, [`heal`] what may be done
//! about a difference, [`signal`] what the journal adds, and [`engine`] puts them together as one
//! function: `step(state, input, now) -> outputs`. There is no IO here, no clock, no randomness.

pub mod engine;
pub mod event;
pub mod heal;
pub mod judge;
pub mod model;
pub mod signal;
