//! The product: touches the world, decides nothing.

pub mod act;
pub mod app;
pub mod cli;
pub mod client;
pub mod cmd;
pub mod expiry;
pub mod load;
pub mod observe;
pub mod origin;
pub mod report;
pub mod sense;
pub mod serve;
pub mod settings;
pub mod store;
#[cfg(test)]
mod testing;
