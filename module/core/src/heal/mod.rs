//! Heals: what may be done, when, how often, and what came of it.

pub mod gate;
pub mod policy;
