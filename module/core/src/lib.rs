//! Decides; touches nothing.

pub mod heal;
pub mod judge;
pub mod model;
