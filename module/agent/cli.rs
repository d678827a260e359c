//! The command line: which subcommand, with which settings. What a subcommand does is its own file's.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Parser, Subcommand};

use crate::settings::Loaded;
use crate::{cmd, origin};

/// Finds and heals stale Kubernetes EndpointSlices beside Azure IoT Edge.
#[derive(Debug, Parser)]
#[command(name = "slice-healer", version = origin::version(), about, propagate_version = true)]
pub struct Cli {
    /// A settings file over the compiled defaults; variables SLICE_HEALER__SECTION__KEY go over it.
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(cmd::run::Args),
    /// Looks once at a cluster, or at a dump of one, and says what is wrong; writes nothing
    Inspect(cmd::inspect::Args),
    Heal(cmd::heal::Args),
    Sweep(cmd::sweep::Args),
    Hold(cmd::hold::Args),
    Release(cmd::release::Args),
    Incidents(cmd::incidents::Args),
    Timeline(cmd::timeline::Args),
    DeletedSlice(cmd::deleted_slice::Args),
    Signals(cmd::signals::Args),
    Verify(cmd::verify::Args),
    #[cfg(feature = "lab")]
    Lab(cmd::lab::Args),
    /// Checks what `run` needs, and what makes staleness likely, and says what to do
    Doctor(cmd::doctor::Args),
    /// Shows the settings in force and where each came from
    Config(cmd::config::Args),
    /// Asks the running module whether it lives; for the image's health check
    Health,
}

impl Cli {
    /// Runs the subcommand.
    ///
    /// # Errors
    /// What kept it from doing its work; the exit code is then [`Cli::failure`].
    pub async fn run(self) -> anyhow::Result<ExitCode> {
        let config = self.config;
        let load = || {
            Loaded::load(config.as_deref(), std::env::vars()).context("the settings do not load")
        };
        match self.command {
            Command::Run(args) => cmd::run::run(args, load()?).await,
            Command::Inspect(args) => cmd::inspect::run(&args, load).await,
            Command::Heal(args) => cmd::heal::run(args, load()?).await,
            Command::Sweep(args) => cmd::sweep::run(args, load()?).await,
            Command::Hold(args) => cmd::hold::run(args, load()?).await,
            Command::Release(args) => cmd::release::run(args, load()?).await,
            Command::Incidents(args) => cmd::incidents::run(args, load()?).await,
            Command::Timeline(args) => cmd::timeline::run(args, load()?).await,
            Command::DeletedSlice(args) => cmd::deleted_slice::run(args, load()?).await,
            Command::Signals(args) => cmd::signals::run(args, load()?).await,
            Command::Verify(args) => cmd::verify::run(args, load()?).await,
            #[cfg(feature = "lab")]
            Command::Lab(args) => cmd::lab::run(args).await,
            Command::Doctor(args) => cmd::doctor::run(args, load()?).await,
            Command::Config(args) => cmd::config::run(args, load).await,
            Command::Health => cmd::health::run(load()?).await,
        }
    }

    /// The exit code of a failure: `run`, `lab` and `health` know only 0 and 1.
    pub fn failure(&self) -> u8 {
        match self.command {
            Command::Run(_) | Command::Health => 1,
            #[cfg(feature = "lab")]
            Command::Lab(_) => 1,
            Command::Inspect(_)
            | Command::Heal(_)
            | Command::Sweep(_)
            | Command::Hold(_)
            | Command::Release(_)
            | Command::Incidents(_)
            | Command::Timeline(_)
            | Command::DeletedSlice(_)
            | Command::Signals(_)
            | Command::Verify(_)
            | Command::Doctor(_)
            | Command::Config(_) => 2,
        }
    }
}
