//! Decides; touches nothing.
//!
//! [`model`] holds what the cluster says, [`judge`] what it should say, [`heal`] what may be done
//! about a difference, and [`signal`] what the journal adds. There is no IO here, no clock, no
//! randomness.

pub mod event;
pub mod heal;
pub mod judge;
pub mod model;
pub mod signal;
