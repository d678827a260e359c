//! Decides; touches nothing.
