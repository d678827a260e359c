//! Writing results to stdout, where a machine may read them alone.

use std::io::{ErrorKind, Write};

use anyhow::Result;
use clap::ValueEnum;

/// The forms of output that every command with a choice knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// For people.
    #[default]
    Table,
    /// For machines.
    Json,
}

/// Writes a text that ends in a line break.
///
/// # Errors
/// Stdout cannot be written. A reader that has gone is none.
pub fn print(text: &str) -> Result<()> {
    let end = if text.ends_with('\n') { "" } else { "\n" };
    let mut out = std::io::stdout().lock();
    match write!(out, "{text}{end}").and_then(|()| out.flush()) {
        // `| head` has seen enough.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => Ok(result?),
    }
}

/// Writes a document as JSON.
///
/// # Errors
/// Stdout cannot be written. A reader that has gone is none.
pub fn print_json(document: &impl serde::Serialize) -> Result<()> {
    print(&serde_json::to_string_pretty(document)?)
}
