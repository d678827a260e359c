//! The product: touches the world, decides nothing.

pub mod observe;
pub mod settings;
pub mod store;
