//! Writing results to stdout, where a machine may read them alone.

use std::io::Write;

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
/// Stdout is closed.
pub fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    if !text.ends_with('\n') {
        out.write_all(b"\n")?;
    }
    out.flush()?;
    Ok(())
}

/// Writes a document as JSON.
///
/// # Errors
/// Stdout is closed.
pub fn print_json(document: &impl serde::Serialize) -> Result<()> {
    print(&serde_json::to_string_pretty(document)?)
}
