//! `slice-healer run` killed without warning again and again while a real journald writes and
//! rotates: each entry is in the outbox exactly once, whenever death comes.
//!
//! The outbox is the border at which "exactly once" holds: events and the journal position are one
//! transaction. From there to the hub an event may be sent twice, under the same id.
//! `JOURNAL_KILLS` asks for more kills.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use slice_healer::store::{Limits, Store};

use crate::support::journald::Journald;
use crate::support::lines::{RULES, Writer};
use crate::support::module::{Module, Setup};
use crate::support::wait::{Look, eventually};

const LONG: Duration = Duration::from_secs(60);
/// Far more than the test writes: a full outbox drops.
const LIMITS: Limits = Limits {
    bytes: 1 << 30,
    messages: 1_000_000,
};

fn setup(journald: &Journald, rules: &Path) -> Setup {
    Setup::new(Path::new("/nonexistent/kubeconfig"))
        .set("MODE", "observe")
        .set("HUB__ENABLED", "never")
        .set("STORE__OUTBOX_BYTES", &LIMITS.bytes.to_string())
        .set("STORE__OUTBOX_MESSAGES", &LIMITS.messages.to_string())
        .set(
            "JOURNAL__DIRECTORIES",
            &journald.volatile().display().to_string(),
        )
        .set("JOURNAL__RULES_FILE", &rules.display().to_string())
        .set("JOURNAL__LOOK_BACK", "PT1H")
}

fn signals_in(log: &str) -> usize {
    log.lines()
        .filter(|line| line.contains("kind=signal"))
        .count()
}

/// Kills `module` at another point each time: while it starts, or after so many more signals.
async fn die(mut module: Module, round: usize) -> Result<Module> {
    let before = signals_in(&module.log());
    let more = round * 7 % 23;
    if more == 0 {
        // Any moment of the start will do; which one is not the point.
        tokio::time::sleep(Duration::from_millis(round as u64 * 11 % 300)).await;
    } else {
        eventually("more signals before the kill", LONG, async || {
            let now = signals_in(&module.log());
            Ok(if now >= before + more {
                Look::Done(())
            } else {
                Look::NotYet(format!("{now} of {before} + {more}: {}", module.log()))
            })
        })
        .await?;
    }
    module.kill()?;
    module.restart()
}

/// The signals that wait in the outbox, by message: how many events, and how many lines they count.
async fn told(directory: &Path) -> Result<BTreeMap<String, (u64, u64)>> {
    let (store, found) = Store::open(directory, LIMITS)?;
    ensure!(found.set_aside.is_none(), "{found:?}");
    ensure!(store.cursor().await?.is_some(), "no position was kept");
    let mut ids = BTreeSet::new();
    let mut told = BTreeMap::new();
    for waiting in store.outbox_peek(LIMITS.messages as usize).await? {
        let id = waiting.message.id;
        ensure!(ids.insert(id.clone()), "two events are called {id}");
        let body: Value = serde_json::from_str(&waiting.message.body)?;
        if body["type"] != "signal" {
            continue;
        }
        let message = body["message"].as_str().context("no message")?.to_owned();
        let count = body["evidence"]["count"].as_str().context("no count")?;
        let entry: &mut (u64, u64) = told.entry(message).or_default();
        entry.0 += 1;
        entry.1 += count.parse::<u64>()?;
    }
    Ok(told)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_entry_is_told_once_however_often_the_module_is_killed() -> Result<()> {
    let kills = std::env::var("JOURNAL_KILLS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(30);
    let journald = Arc::new(Journald::start(&["Storage=volatile"], &[])?);
    let folder = tempfile::tempdir()?;
    let rules = folder.path().join("rules.toml");
    std::fs::write(&rules, RULES)?;
    let mut module = setup(&journald, &rules).start()?;
    let writer = Writer::start(Arc::clone(&journald), Duration::from_millis(5))?;
    for round in 1..=kills {
        module = die(module, round).await?;
    }
    let written = writer.finish()?;
    module
        .await_line(&["kind=signal", "that was all"], LONG)
        .await?;
    // The line that was told last may have been told by a process before this one.
    let (status, _) = module.terminate().await?;
    ensure!(status.success(), "{status}:\n{}", module.log());

    let mut told = told(module.directory()).await?;
    let (_, repeated) = told.remove("again").context("no repeated line was told")?;
    let last = told.remove("that was all");
    ensure!(last == Some((1, 1)), "the last line: {last:?}");
    let wrong: Vec<_> = told.iter().filter(|(_, seen)| **seen != (1, 1)).collect();
    ensure!(wrong.is_empty(), "not once (events, lines): {wrong:?}");
    let missing: Vec<u64> = (0..written)
        .filter(|n| !told.contains_key(&format!("stale s{n}")))
        .collect();
    ensure!(missing.is_empty(), "of {written} lost: {missing:?}");
    ensure!(
        told.len() as u64 == written && repeated == written,
        "{} named and {repeated} repeated lines of {written} each",
        told.len()
    );
    ensure!(written as usize > kills * 5, "only {written} lines");
    Ok(())
}
