//! `slice-healer run`: the module itself.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use crate::app::{self, Boot, End};
use crate::observe::logs::{self, LogOptions, LogTo};
use crate::settings::Loaded;

/// Follows the journal, watches the cluster, heals, reports: the container's entry point.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs until SIGTERM or SIGINT. 0 after an orderly end, 1 when the settings do not load, when a part
/// that must live has ended, or when this container must be made again.
///
/// # Errors
/// Logging or signals cannot be set up.
pub async fn run(_args: Args, loaded: Loaded) -> anyhow::Result<ExitCode> {
    let module = std::env::var("IOTEDGE_MODULEID").unwrap_or_else(|_| "slice-healer".to_owned());
    let (log, _guard) = logs::init(&LogOptions {
        level: loaded.settings.log_level,
        to: LogTo::Stdout,
        journal_as: Some(module),
    })?;
    info!(
        version = env!("CARGO_PKG_VERSION"),
        mode = loaded.settings.mode.as_str(),
        journal = log.to_journal(),
        "slice-healer starts"
    );
    let stop = CancellationToken::new();
    let mut term = signal(SignalKind::terminate()).context("SIGTERM cannot be caught")?;
    let mut int = signal(SignalKind::interrupt()).context("SIGINT cannot be caught")?;
    let stopper = stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = term.recv() => info!("SIGTERM: going down in order"),
            _ = int.recv() => info!("SIGINT: going down in order"),
        }
        stopper.cancel();
        // A second signal is somebody who does not want to wait.
        tokio::select! {
            _ = term.recv() => {}
            _ = int.recv() => {}
        }
        error!("a second signal: going down at once");
        std::process::exit(1);
    });
    let boot = Boot {
        loaded,
        vars: Arc::new(|name| std::env::var(name).ok()),
        hub_timings: None,
        log: Some(log),
        on_http: None,
    };
    match app::run(boot, stop).await {
        Ok(End::Drained) => Ok(ExitCode::SUCCESS),
        Ok(End::WorkloadRefused) => Ok(ExitCode::FAILURE),
        Err(why) => {
            error!(error = format!("{why:#}"), "slice-healer ends");
            Ok(ExitCode::FAILURE)
        }
    }
}
