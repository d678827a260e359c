//! The subcommands, one file each.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command's output is for the one who ran it"
)]

pub mod heal;
pub mod run;
