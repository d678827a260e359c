//! The product: touches the world, decides nothing.

pub mod act;
pub mod client;
pub mod observe;
pub mod sense;
pub mod serve;
pub mod settings;
pub mod store;
#[cfg(test)]
mod testing;
