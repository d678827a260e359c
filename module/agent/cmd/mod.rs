//! The subcommands, one file each.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command's output is for the one who ran it"
)]

pub mod config;
pub mod deleted_slice;
pub mod doctor;
pub mod findings;
pub mod heal;
pub mod health;
pub mod hold;
pub mod incidents;
pub mod inspect;
#[cfg(feature = "lab")]
pub mod lab;
mod live;
mod module;
pub mod output;
pub mod release;
pub mod run;
pub mod signals;
pub mod sweep;
mod table;
pub mod timeline;
pub mod verify;
mod way;
