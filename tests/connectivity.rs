//! The module over a link that is cut in turns, slow and lossy, after the connectivity tests of IoT Edge
//! itself: what was accepted is at the cloud, each event under one id, and the twin is in step soon
//! after the link is back. In CI with short turns; `just connectivity` plays the real ones, measures,
//! and has the Python SDK play the same.
//!
//! The link is a pair of TUN devices with a carrier between them (`support/link.py`): real TCP over
//! lost and late packets, without netem, which not every kernel has.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use slice_core::event::EventType;
use slice_healer::store::{Batch, Limits, Outgoing, Store};
use slice_lab::edge::{Edge, EdgeOptions};

use crate::support::journald::Journald;
use crate::support::lines::{RULES, Writer};
use crate::support::link::{Link, NEAR};
use crate::support::module::{Module, Setup};
use crate::support::netns::inside;
use crate::support::peer::{Peer, Sdk};
use crate::support::usage::{kib, ticks};

/// How long anything may take on a slow machine.
const LONG: Duration = Duration::from_secs(120);
/// In full: how soon the twin must be in step.
const IN_STEP: Duration = Duration::from_secs(10);

fn full() -> bool {
    std::env::var("CONNECTIVITY").is_ok_and(|value| value == "full")
}

fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "connectivity: {text}");
}

/// What the link does while events flow.
#[derive(Clone, Copy)]
struct Weather {
    name: &'static str,
    one_way_ms: u32,
    loss_percent: u32,
    turns: u32,
    up: Duration,
    down: Duration,
}

fn weathers() -> Vec<Weather> {
    let s = Duration::from_secs;
    let cut = |name, turns, up, down| Weather {
        name,
        one_way_ms: 1,
        loss_percent: 0,
        turns,
        up,
        down,
    };
    let satellite = |up| Weather {
        name: "satellite, 600 ms there and back, 2 % loss",
        one_way_ms: 300,
        loss_percent: 2,
        turns: 1,
        up,
        down: Duration::ZERO,
    };
    if full() {
        vec![
            cut("5 s up, 5 s down, ten times", 10, s(5), s(5)),
            cut("30 s up, 30 s down, twice", 2, s(30), s(30)),
            satellite(s(60)),
        ]
    } else {
        vec![
            cut("1 s up, 1 s down, twice", 2, s(1), s(1)),
            satellite(s(3)),
        ]
    }
}

/// Lets the weather happen; the link is up and sound afterwards. Returns when it came back.
async fn blow(link: &mut Link, weather: Weather) -> Result<Instant> {
    link.shape(weather.one_way_ms, weather.loss_percent)?;
    let mut back = Instant::now();
    for _ in 0..weather.turns {
        tokio::time::sleep(weather.up).await;
        back = Instant::now();
        if !weather.down.is_zero() {
            link.set_up(false)?;
            tokio::time::sleep(weather.down).await;
            link.set_up(true)?;
            back = Instant::now();
        }
    }
    Ok(back)
}

/// A device at the near end of the link.
async fn edge() -> Result<Edge> {
    Ok(Edge::start(EdgeOptions {
        // The Python SDK knows no other port.
        mqtt: SocketAddr::new(NEAR, 8883),
        gateway_host: NEAR.to_string(),
        sync_interval: Duration::from_millis(500),
        ..EdgeOptions::default()
    })
    .await?)
}

fn setup(link: &Link, edge: &Edge) -> Result<Setup> {
    Ok(Setup::new(Path::new("/nonexistent/kubeconfig"))
        .started_by(link.enter())
        .set("MODE", "observe")
        .set("LOG_LEVEL", "debug")
        .set("REPORT__MIN_INTERVAL", "PT1S")
        .variables(edge.module_env("slice-healer")?))
}

/// Resident memory in KiB, and processor time in the kernel's ticks of 10 ms.
fn usage(pid: u32) -> Result<(u64, u64)> {
    Ok((kib(pid, "VmRSS:")?, ticks(pid)?))
}

/// From the event to the hub's acknowledgement as the module's log has it, sorted.
fn latencies(module: &Module, edge: &Edge) -> Result<Vec<Duration>> {
    let mut happened = BTreeMap::new();
    for record in edge.telemetry() {
        let body = record.json().context("no JSON")?;
        let at: jiff::Timestamp = body["at"].as_str().context("no at")?.parse()?;
        happened.insert(record.message_id().context("no id")?.to_owned(), at);
    }
    let mut all = Vec::new();
    for line in module
        .log()
        .lines()
        .filter(|l| l.contains("acknowledged by the hub"))
    {
        let mut words = line.split_whitespace();
        let (day, time) = (
            words.nth(1).context("no day")?,
            words.next().context("no time")?,
        );
        let at: jiff::Timestamp = format!("{day}T{time}Z").parse()?;
        let id = line.split("id=").nth(1).context("no id")?.trim_matches('"');
        if let Some(from) = happened.get(id.split_whitespace().next().unwrap_or_default()) {
            all.push(at.duration_since(*from).try_into().unwrap_or_default());
        }
    }
    all.sort();
    Ok(all)
}

fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let at = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(at).copied().unwrap_or_default()
}

/// The product in one weather.
async fn product(link: &mut Link, weather: Weather) -> Result<()> {
    link.shape(0, 0)?;
    let edge = edge().await?;
    let journald = Arc::new(Journald::start(&["Storage=volatile"], &[])?);
    let folder = tempfile::tempdir()?;
    let rules = folder.path().join("rules.toml");
    std::fs::write(&rules, RULES)?;
    let directory = journald.volatile().display().to_string();
    let module = setup(link, &edge)?
        .set("JOURNAL__DIRECTORIES", &directory)
        .set("JOURNAL__RULES_FILE", &rules.display().to_string())
        .start()?;
    edge.wait_for(|view| view.reported()["health"].is_object(), LONG)
        .await
        .with_context(|| module.log())?;
    let writer = Writer::start(Arc::clone(&journald), Duration::from_millis(200))?;
    let back = blow(link, weather).await?;
    // Whatever was written until now, and the line that says so, must be told by twin as well.
    let written = writer.finish()?;
    let lines = 2 * written + 1;
    edge.wait_for(|view| view.reported()["journal"]["signals"] == lines, LONG)
        .await
        .with_context(|| module.log())?;
    let in_step = back.elapsed();
    let mut expected: Vec<String> = (0..written).map(|n| format!("stale s{n}")).collect();
    expected.push("that was all".to_owned());
    edge.wait_for(
        |view| {
            let told = view.telemetry().iter().filter_map(|t| t.json());
            told.filter(|b| b["message"] == "that was all").count() > 0
        },
        LONG,
    )
    .await
    .with_context(|| module.log())?;
    let mut ids: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for record in edge.telemetry() {
        let body = record.json().context("no JSON")?;
        let message = body["message"].as_str().unwrap_or_default().to_owned();
        let id = record.message_id().context("no id")?.to_owned();
        let of = ids.entry(message).or_default();
        if !of.contains(&id) {
            of.push(id);
        }
    }
    for message in &expected {
        let of = ids.get(message).map_or(0, Vec::len);
        ensure!(of == 1, "{message}: {of} ids, in {}", weather.name);
    }
    let times = latencies(&module, &edge)?;
    let counters = edge.counters();
    note(&format!(
        "{}: {} events accepted, {} at the cloud, {} sent twice; {} connections; event to ack p50 {:.2?}, \
         p99 {:.2?}, last {:.2?}; twin in step {in_step:.1?} after the link came back",
        weather.name,
        expected.len(),
        expected.len(),
        edge.telemetry().len() - ids.values().map(Vec::len).sum::<usize>(),
        counters.connected,
        percentile(&times, 50),
        percentile(&times, 99),
        percentile(&times, 100),
    ));
    if full() && !weather.down.is_zero() {
        ensure!(
            in_step <= IN_STEP,
            "the twin was in step only after {in_step:?}"
        );
    }
    edge.shut_down().await;
    Ok(())
}

/// The Python SDK in one weather: sends as fast as it is acknowledged, at most as our writer does.
async fn reference(link: &mut Link, weather: Weather) -> Result<()> {
    link.shape(0, 0)?;
    let edge = edge().await?;
    let mut peer = Peer::start_by(&link.enter(), Sdk::Python, &edge, &[])?;
    peer.order(json!({"do": "connect"})).await?;
    let over = Cell::new(false);
    let flow = async {
        let (mut accepted, mut failed, mut times) = (Vec::new(), 0, Vec::new());
        loop {
            let id = format!("m{}", accepted.len() + failed);
            let begun = Instant::now();
            let order = json!({"do": "send", "output": "events", "id": id, "body": {"id": id}, "properties": {}});
            match peer.order(order).await {
                Ok(_) => accepted.push(id),
                Err(_) => failed += 1,
            }
            times.push(begun.elapsed());
            let report = json!({"do": "report", "patch": {"n": accepted.len()}});
            let _ = peer.order(report).await;
            if over.get() {
                return (accepted, failed, times);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let weather_done = async {
        let back = blow(link, weather).await;
        over.set(true);
        back
    };
    let ((accepted, failed, mut times), back) = tokio::join!(flow, weather_done);
    let back = back?;
    edge.wait_for(|view| view.reported()["n"] == accepted.len(), LONG)
        .await?;
    let in_step = back.elapsed();
    let at_cloud: BTreeSet<String> = edge
        .telemetry()
        .iter()
        .filter_map(|record| record.message_id().map(str::to_owned))
        .collect();
    let lost = accepted.iter().filter(|id| !at_cloud.contains(*id)).count();
    times.sort();
    note(&format!(
        "{}, Python SDK: {} sent without an error, {lost} of them not at the cloud, {failed} errors; {} \
         connections; send to ack p50 {:.2?}, p99 {:.2?}, last {:.2?}; twin in step {in_step:.1?} after the \
         link came back",
        weather.name,
        accepted.len(),
        edge.counters().connected,
        percentile(&times, 50),
        percentile(&times, 99),
        percentile(&times, 100),
    ));
    drop(peer);
    edge.shut_down().await;
    Ok(())
}

/// Fills an outbox as a long outage does.
async fn fill(directory: &Path, bytes: u64) -> Result<u64> {
    let limits = Limits {
        bytes,
        messages: 1_000_000,
    };
    let (store, _) = Store::open(directory, limits)?;
    let body = json!({"at": "2026-12-01T08:00:00Z", "message": "m".repeat(380)}).to_string();
    let mut number = 0;
    while store.stats().outbox_dropped == 0 {
        let events = (0..5000).map(|_| {
            number += 1;
            Outgoing {
                id: format!("fill-{number}"),
                kind: EventType::Heal,
                output: "events".to_owned(),
                properties: vec![("type".to_owned(), "heal".to_owned())],
                body: body.clone(),
                accepted_at: Some(jiff::Timestamp::now()),
            }
        });
        let batch = Batch {
            events: events.collect(),
            ..Batch::default()
        };
        store.commit(batch).await?;
    }
    Ok(store.stats().outbox_messages)
}

/// Memory and processor time: idle, and with a full outbox.
async fn weight(link: &mut Link) -> Result<()> {
    link.shape(0, 0)?;
    let edge = edge().await?;
    let setup = setup(link, &edge)?.set("LOG_LEVEL", "info");
    let module = setup.start()?;
    edge.wait_for(|view| view.reported()["health"].is_object(), LONG)
        .await?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let (_, before) = usage(module.pid())?;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let (idle, after) = usage(module.pid())?;
    note(&format!(
        "idle for a minute: {:.1} MiB resident, {:.2} % of one core",
        idle as f64 / 1024.0,
        (after - before) as f64 / 60.0,
    ));
    drop(module);

    let bytes = 50 << 20;
    let setup = setup
        .set("STORE__OUTBOX_BYTES", &bytes.to_string())
        .set("STORE__OUTBOX_MESSAGES", "1000000")
        .set("REPORT__TELEMETRY_PER_SECOND", "500");
    let folder = tempfile::tempdir()?;
    let waiting = fill(folder.path(), bytes).await?;
    let module = setup.start_in(folder)?;
    let begun = Instant::now();
    let mut most = 0;
    while begun.elapsed() < Duration::from_secs(20) {
        most = most.max(usage(module.pid())?.0);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let sent = edge.telemetry().len();
    note(&format!(
        "an outbox of 50 MiB, {waiting} messages: at most {:.1} MiB resident while {sent} were sent in 20 s",
        most as f64 / 1024.0,
    ));
    ensure!(sent > 0, "{}", module.log());
    edge.shut_down().await;
    Ok(())
}

#[tokio::test]
async fn the_module_loses_nothing_over_a_link_that_is_cut_slow_and_lossy() -> Result<()> {
    let name = "connectivity::the_module_loses_nothing_over_a_link_that_is_cut_slow_and_lossy";
    if !inside(name)? {
        return Ok(());
    }
    let mut link = Link::start()?;
    for weather in weathers() {
        product(&mut link, weather).await?;
        if full() {
            reference(&mut link, weather).await?;
        }
    }
    if full() {
        weight(&mut link).await?;
    }
    Ok(())
}
