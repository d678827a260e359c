//! `slice-healer run` killed without warning again and again, while events flow and edgeHub fails in
//! turns: what was accepted is at the cloud in the end, in order, each event under one id however
//! often it was sent.
//!
//! A line of the journal is one event, and is accepted once (`journal_kill` holds that), so the lines
//! written are what was accepted. `OUTBOX_KILLS` asks for more kills, `OUTBOX_SEED` for others.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::Value;
use slice_lab::edge::{Edge, EdgeOptions, TelemetryRecord};

use crate::support::journald::Journald;
use crate::support::lines::{RULES, Writer};
use crate::support::module::{Module, Setup};

/// How long anything may take on a slow machine.
const LONG: Duration = Duration::from_secs(120);

fn asked(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(otherwise)
}

fn setup(journald: &Journald, rules: &Path, edge: &Edge) -> Result<Setup> {
    let setup = Setup::new(Path::new("/nonexistent/kubeconfig"))
        .set("MODE", "observe")
        .reporting_to(edge)?
        .set("REPORT__TELEMETRY_PER_SECOND", "1000")
        .set(
            "JOURNAL__DIRECTORIES",
            &journald.volatile().display().to_string(),
        )
        .set("JOURNAL__RULES_FILE", &rules.display().to_string())
        .set("JOURNAL__LOOK_BACK", "PT1H");
    Ok(setup)
}

/// What goes wrong at the hub before a kill; it holds until the next one.
async fn disturb(edge: &Edge, round: u64) -> Result<()> {
    edge.faults(|f| {
        f.withhold_puback = false;
        f.disk_full = false;
    });
    edge.reset_clock();
    edge.start_hub().await?;
    if round % 7 > 2 {
        // These need a connection to go wrong on.
        edge.wait_for(|view| view.connected(), LONG).await?;
    }
    match round % 7 {
        1 => edge.restart().await?,
        2 => edge.stop_hub().await,
        3 => edge.faults(|f| f.withhold_puback = true),
        // Every token has expired, and is seen to have.
        4 => edge.advance_clock(Duration::from_secs(2 * 3600)),
        5 => edge.faults(|f| f.disk_full = true),
        6 => edge.drop_connections(),
        _ => {}
    }
    Ok(())
}

/// Lets some messages through, or some time pass, and kills: while it starts, connects, reads the
/// journal, sends, or waits.
async fn die(mut module: Module, edge: &Edge, rng: &mut SmallRng) -> Result<Module> {
    let patience = Duration::from_millis(rng.random_range(0..900));
    let more = rng.random_range(1..30);
    let before = edge.look(|view| view.telemetry().len());
    // Which of the two comes first is not the point.
    let _ = edge
        .wait_for(|view| view.telemetry().len() >= before + more, patience)
        .await;
    module.kill()?;
    module.restart()
}

/// A signal as the cloud has it.
struct Told {
    id: String,
    message: String,
    count: u64,
}

fn told(record: &TelemetryRecord) -> Result<Option<Told>> {
    let body: Value = record.json().context("no JSON")?;
    let id = record.message_id().context("no message id")?.to_owned();
    ensure!(body["id"] == *id, "two ids in one message: {id} and {body}");
    if body["type"] != "signal" {
        return Ok(None);
    }
    let count = body["evidence"]["count"].as_str().context("no count")?;
    Ok(Some(Told {
        id,
        message: body["message"].as_str().context("no message")?.to_owned(),
        count: count.parse()?,
    }))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_accepted_is_at_the_cloud_however_often_the_module_is_killed() -> Result<()> {
    let kills = asked("OUTBOX_KILLS", 24);
    let mut rng = SmallRng::seed_from_u64(asked("OUTBOX_SEED", 20_261_201));
    let journald = Arc::new(Journald::start(&["Storage=volatile"], &[])?);
    let folder = tempfile::tempdir()?;
    let rules = folder.path().join("rules.toml");
    std::fs::write(&rules, RULES)?;
    let edge = Edge::start(EdgeOptions {
        expiry_tick: Duration::from_secs(60),
        ..EdgeOptions::quick()
    })
    .await?;
    let mut module = setup(&journald, &rules, &edge)?.start()?;
    let writer = Writer::start(Arc::clone(&journald), Duration::from_millis(20))?;
    for round in 1..=kills {
        disturb(&edge, round).await?;
        module = die(module, &edge, &mut rng).await?;
    }
    let written = writer.finish()?;
    disturb(&edge, 0).await?;
    let is_last = |record: &TelemetryRecord| {
        record
            .json()
            .is_some_and(|body| body["message"] == "that was all")
    };
    // As long as something arrives, there is hope: what waits may be much on a slow machine.
    let mut arrived = 0;
    while !edge.look(|view| view.telemetry().iter().any(is_last)) {
        edge.wait_for(|view| view.telemetry().len() > arrived, LONG)
            .await
            .with_context(|| module.log())?;
        arrived = edge.look(|view| view.telemetry().len());
    }
    let (status, _) = module.terminate().await?;
    ensure!(status.success(), "{status}:\n{}", module.log());

    let records = edge.telemetry();
    let mut bodies: BTreeMap<String, &[u8]> = BTreeMap::new();
    let mut ids: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let (mut repeated, mut order) = (0, Vec::new());
    for record in &records {
        let Some(signal) = told(record)? else {
            continue;
        };
        let known = bodies.insert(signal.id.clone(), &record.body);
        ensure!(
            known.is_none_or(|body| body == record.body),
            "two messages are called {}",
            signal.id
        );
        if known.is_none() {
            if signal.message == "again" {
                repeated += signal.count;
            } else {
                order.push(signal.message.clone());
            }
        }
        ids.entry(signal.message).or_default().insert(signal.id);
    }
    ids.remove("again");
    let twice: Vec<_> = ids.iter().filter(|(_, ids)| ids.len() > 1).collect();
    ensure!(twice.is_empty(), "one event under two ids: {twice:?}");
    let mut expected: Vec<String> = (0..written).map(|n| format!("stale s{n}")).collect();
    expected.push("that was all".to_owned());
    let missing: Vec<_> = expected.iter().filter(|m| !ids.contains_key(*m)).collect();
    ensure!(missing.is_empty(), "of {written} missing: {missing:?}");
    ensure!(order == expected, "not in order: {order:?}");
    ensure!(
        repeated == written,
        "{repeated} repeated lines of {written}"
    );
    ensure!(written > kills * 5, "only {written} lines");
    let distinct = records
        .iter()
        .filter_map(TelemetryRecord::message_id)
        .collect::<BTreeSet<_>>();
    let _ = writeln!(
        std::io::stderr(),
        "outbox: {kills} kills, {written} named and as many repeated lines; {} messages at the cloud, \
         {} distinct; hub connections {}, expired tokens {}",
        records.len(),
        distinct.len(),
        edge.counters().connected,
        edge.counters().token_expired,
    );
    Ok(())
}
