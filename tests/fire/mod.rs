//! slice-healer under fire, on the real control plane: rollouts that are none of its business,
//! staleness of all kinds that can be healed, and faults at every step of a heal.
//!
//! CI runs each at a size that fits; `just fire` runs them at length (the variables `FIRE_*`). The
//! figures are in `docs/proved.md`.

mod faults;
mod kills;
mod rollouts;
pub(crate) mod scene;
mod staleness;

use std::io::Write as _;

use anyhow::{Context as _, Result};

/// Past the capture of the test harness: figures belong in the log of a green run.
fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "fire: {text}");
}

/// How many, from the environment or as CI has it.
fn size(variable: &str, in_ci: usize) -> Result<usize> {
    match std::env::var(variable) {
        Ok(text) => text.parse().with_context(|| format!("{variable}={text}")),
        Err(_) => Ok(in_ci),
    }
}
