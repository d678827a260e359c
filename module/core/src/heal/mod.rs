//! Heals: what may be done, when, how often, and what came of it.

pub mod budget;
pub mod clues;
pub mod diagnose;
pub mod explain;
pub mod gate;
pub mod incident;
pub mod judged;
pub mod ladder;
pub mod plan;
pub mod policy;
pub mod record;
pub mod story;
