//! What the module costs while nothing happens: bytes written to disk and requests to the API server,
//! extrapolated to a day. Flash cards of edge devices wear out by bytes.
//!
//! `IDLE_SECONDS` sets how long it is measured; see `just idle`.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use serde_json::{Value, json};
use slice_lab::edge::{Edge, EdgeOptions};
use slice_lab::journal::{Format, JournalWriter};

use crate::support::ground::Ground;
use crate::support::module::{Module, Setup};
use crate::support::scrape::metric;
use crate::support::stale::healthy_in;

/// How long anything may take on a slow machine.
const LONG: Duration = Duration::from_secs(90);
/// How long each part is measured unless the environment says otherwise.
const SECONDS: u64 = 8;
const DAY: f64 = 86_400.0;
/// More than one commit of a position takes, in bytes.
const COMMIT: f64 = 64.0 * 1024.0;

fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "idle: {text}");
}

/// What was spent up to now.
#[derive(Clone, Copy, Debug)]
struct Spent {
    at: Instant,
    /// Handed to the state file.
    store: f64,
    /// Sent to the storage layer by the kernel, the log included; none on a file system in memory.
    disk: u64,
    /// Passed to `write` and the like, sockets included.
    written: u64,
    log: u64,
    requests: u64,
}

async fn spent(module: &Module, address: &str, ground: &Ground) -> Result<Spent> {
    let io = std::fs::read_to_string(format!("/proc/{}/io", module.pid()))?;
    let field = |key: &str| {
        let line = io.lines().find_map(|l| l.strip_prefix(key));
        anyhow::Ok(line.context(key.to_owned())?.trim().parse()?)
    };
    let Ground::Lab { cluster, .. } = ground else {
        anyhow::bail!("requests are counted by the lab's API server");
    };
    Ok(Spent {
        at: Instant::now(),
        store: metric(address, "slice_healer_store_written_bytes_total", "").await?,
        disk: field("write_bytes:")?,
        written: field("wchar:")?,
        log: module.log().len() as u64,
        requests: cluster.requests().len() as u64 + cluster.requests_dropped(),
    })
}

fn day(what: &str, from: Spent, to: Spent) {
    let seconds = to.at.duration_since(from.at).as_secs_f64();
    let of_day = |count: f64| count * DAY / seconds;
    note(&format!(
        "{what}, {seconds:.0} s: {:.0} B to the state file ({:.0} KiB a day), {} B to the disk \
         ({:.0} KiB a day), {} B of log ({:.0} KiB a day), {} B written in all, {} requests to the \
         API server ({:.0} a day)",
        to.store - from.store,
        of_day(to.store - from.store) / 1024.0,
        to.disk - from.disk,
        of_day((to.disk - from.disk) as f64) / 1024.0,
        to.log - from.log,
        of_day((to.log - from.log) as f64) / 1024.0,
        to.written - from.written,
        to.requests - from.requests,
        of_day((to.requests - from.requests) as f64),
    ));
}

#[tokio::test]
async fn an_idle_day_costs_next_to_nothing() -> Result<()> {
    let seconds = match std::env::var("IDLE_SECONDS") {
        Ok(text) => text.parse().context("IDLE_SECONDS")?,
        Err(_) => SECONDS,
    };
    let long = seconds > SECONDS;
    let ground = Ground::lab().await?;
    let edge = Edge::start(EdgeOptions::quick()).await?;
    let _state = healthy_in(ground.client().await?, ground.namespace("idle").await?).await?;
    ground.settle().await?;
    let folder = tempfile::TempDir::new()?;
    let journals = folder.path().join("journal");
    let mut journal = JournalWriter::create(&journals, Format::MODERN)?;
    let mut setup = Setup::new(&ground.kubeconfig().await?)
        .set("SCOPE__LOCALITY", "cluster")
        .set("JOURNAL__DIRECTORIES", &journals.display().to_string())
        .reporting_to(&edge)?;
    if !long {
        // So that the short run sees more than one commit.
        setup = setup.set("JOURNAL__COMMIT_INTERVAL", "PT2S");
    }
    edge.cloud()
        .set_desired(json!({"settings": {"__t": "c", "mode": "heal"}}))?;
    let mut module = setup.start()?;
    let address = module.metrics_address().await?;
    // Synced, and the twin's settings taken up: they are kept on disk, however late the hub sends them.
    let is_up = |r: Value| r["cluster"]["state"] == "synced" && r["settings"]["mode"]["ac"] == 200;
    edge.wait_for(|v| is_up(v.reported()), LONG)
        .await
        .with_context(|| module.log())?;
    // What the start itself has to tell is told: a finding stands for its grace first, and is
    // acknowledged by the hub then.
    let mut last = spent(&module, &address, &ground).await?;
    loop {
        tokio::time::sleep(Duration::from_secs(9)).await;
        let now = spent(&module, &address, &ground).await?;
        if now.store == last.store && now.requests == last.requests {
            break;
        }
        last = now;
    }

    let from = spent(&module, &address, &ground).await?;
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let to = spent(&module, &address, &ground).await?;
    day("nothing happens", from, to);
    if let Ground::Lab { cluster, .. } = &ground {
        let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
        for request in cluster
            .requests()
            .iter()
            .skip(usize::try_from(from.requests)?)
        {
            let path = request.path.split('?').next().unwrap_or_default();
            *kinds.entry(format!("{} {path}", request.verb)).or_default() += 1;
        }
        note(&format!("of them {kinds:?}"));
    }
    // In a long run the position that the start has read comes due, once.
    let most = if long { COMMIT } else { 0.0 };
    ensure!(
        to.store - from.store <= most,
        "{} B were written though nothing happened\n{}",
        to.store - from.store,
        module.log()
    );

    // A host that logs, and nothing of it matters: only the position moves.
    let from = spent(&module, &address, &ground).await?;
    let begun = Instant::now();
    let mut lines = 0;
    while begun.elapsed() < Duration::from_secs(seconds) {
        let now = u64::try_from(Timestamp::now().as_microsecond())?;
        journal.unit_line("k3s.service", "k3s", "Trace: 12 ms in the scheduler", now)?;
        lines += 1;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let to = spent(&module, &address, &ground).await?;
    day(&format!("{lines} journal lines of no interest"), from, to);
    let read = metric(&address, "slice_healer_journal_entries_total", "").await?;
    ensure!(read > 0.0, "the journal is read\n{}", module.log());
    if !long {
        let commits = seconds as f64 / 2.0 + 1.0;
        let most = commits * COMMIT;
        ensure!(
            to.store - from.store <= most,
            "{} B for at most {commits} commits",
            to.store - from.store
        );
    }
    Ok(())
}
