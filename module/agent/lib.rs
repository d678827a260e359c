//! The product: touches the world, decides nothing.

pub mod settings;
