//! A disk that fails for a while loses nothing: no signal, no position behind which one was lost.
//! The module's own writes fail with EFBIG, as a limit on the size of its files makes them.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use slice_lab::edge::{Edge, EdgeOptions, TelemetryRecord};
use slice_lab::journal::{Format, JournalWriter};

use crate::support::module::{Module, Setup};
use crate::support::scrape::metric;
use crate::support::wait::{Look, eventually, throughout};

/// How long anything may take on a slow machine.
const LONG: Duration = Duration::from_secs(90);
const LINE: &str = "Cache hit for endpoint slice, skipping update";
const RULE: &str = "slice_healer_signals_total";

/// What the module may write to any file, in bytes.
fn limit(module: &Module, bytes: &str) -> Result<()> {
    let pid = module.pid().to_string();
    let status = Command::new("prlimit")
        .args(["--pid", &pid, &format!("--fsize={bytes}:unlimited")])
        .status()
        .context("prlimit of util-linux")?;
    ensure!(status.success(), "prlimit: {status}");
    Ok(())
}

fn line(journal: &mut JournalWriter) -> Result<()> {
    let now = u64::try_from(Timestamp::now().as_microsecond())?;
    journal.unit_line("iotedge.service", "iotedge", LINE, now)?;
    Ok(())
}

async fn seen(address: &str, count: f64) -> Result<()> {
    eventually("the signals are seen", LONG, async || {
        Ok(match metric(address, RULE, "").await? {
            found if found >= count => Look::Done(()),
            found => Look::NotYet(format!("{found} of {count}")),
        })
    })
    .await
    .map(drop)
}

/// Different signals among what arrived.
fn different(view: &[TelemetryRecord]) -> usize {
    let bodies = view.iter().filter_map(TelemetryRecord::json);
    let ids = bodies
        .filter(|b| b["type"] == "signal")
        .map(|b| b["id"].to_string());
    ids.collect::<BTreeSet<_>>().len()
}

/// Signals that arrived, each as often as it did.
fn signals<'a>(all: impl IntoIterator<Item = &'a TelemetryRecord>) -> usize {
    let is_signal = |t: &&TelemetryRecord| t.json().is_some_and(|b| b["type"] == "signal");
    all.into_iter().filter(is_signal).count()
}

#[tokio::test]
async fn signals_of_a_time_without_a_disk_arrive_when_it_is_back() -> Result<()> {
    let edge = Edge::start(EdgeOptions::quick()).await?;
    let folder = tempfile::TempDir::new()?;
    let mut journal = JournalWriter::create(folder.path().join("journal"), Format::MODERN)?;
    let journals = folder.path().join("journal");
    let nowhere = folder.path().join("no-kubeconfig");
    let setup = Setup::new(&nowhere)
        .set("JOURNAL__DIRECTORIES", &journals.display().to_string())
        .set("JOURNAL__COMMIT_INTERVAL", "PT1S")
        .reporting_to(&edge)?
        .deaf_to_file_size();
    let mut module = setup.start()?;
    let address = module.metrics_address().await?;
    line(&mut journal)?;
    seen(&address, 1.0).await?;
    edge.wait_for(|v| signals(v.telemetry()) == 1, LONG)
        .await
        .with_context(|| module.log())?;

    limit(&module, "0")?;
    for n in 0..5 {
        line(&mut journal)?;
        seen(&address, f64::from(n + 2)).await?;
    }
    ensure!(
        signals(&edge.telemetry()) == 1,
        "nothing is told that is not on disk"
    );
    limit(&module, "unlimited")?;
    edge.wait_for(|v| signals(v.telemetry()) >= 6, LONG)
        .await
        .with_context(|| module.log())?;
    ensure!(
        signals(&edge.telemetry()) == 6,
        "each once: {}",
        signals(&edge.telemetry())
    );

    // What the hub has and the disk does not know yet is not sent again and again.
    edge.stop_hub().await;
    line(&mut journal)?;
    seen(&address, 7.0).await?;
    let waiting = async || {
        Ok(
            match metric(&address, "slice_healer_outbox_messages", "").await? {
                count if count >= 1.0 => Look::Done(()),
                count => Look::NotYet(format!("{count} wait")),
            },
        )
    };
    eventually("the event is on disk", LONG, waiting).await?;
    limit(&module, "0")?;
    edge.start_hub().await?;
    edge.wait_for(|v| signals(v.telemetry()) >= 7, LONG)
        .await
        .with_context(|| module.log())?;
    throughout("it is sent once", Duration::from_secs(3), async || {
        Ok(match signals(&edge.telemetry()) {
            7 => Look::Done(()),
            count => Look::NotYet(format!("{count} signals")),
        })
    })
    .await?;
    limit(&module, "unlimited")?;

    // Killed while the disk fails, they are read from the journal once more.
    limit(&module, "0")?;
    line(&mut journal)?;
    seen(&address, 8.0).await?;
    module.kill()?;
    let module = module.restart()?;
    edge.wait_for(|v| different(v.telemetry()) >= 8, LONG)
        .await
        .with_context(|| module.log())?;
    Ok(())
}
