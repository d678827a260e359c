//! The judge against the real slice controller: on random clusters that the controller has settled,
//! no slice is judged wrong; and of what is then corrupted in a dump, everything is found and
//! nothing else.
//!
//! `SLICE_HEALER_SEED` and `SLICE_HEALER_SERVICES` choose another cluster, `SLICE_HEALER_SEEDS` how
//! many seeds are tried from there on, and `SLICE_HEALER_CORRUPTIONS` how often each corruption is;
//! the seed is printed.

use std::io::{BufWriter, Write as _};
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use serde_json::Value;
use slice_core::judge::{Finding, FindingKind, JudgeContext, judge_world};
use slice_core::model::ServerVersion;
use slice_healer::load::{Source, load};

use crate::support::controlplane::ControlPlane;
use crate::support::random::{Plan, dump};
use crate::support::wait::{Look, eventually};

/// How long the controller may take for everything on a busy machine.
const SETTLE: Duration = Duration::from_secs(240);
/// What CI judges, in two clusters.
const SERVICES: usize = 300;
/// Dumps of more Services than this are not corrupted: they hold no other targets, and each of
/// dozens of corruptions reads the whole dump again.
const CORRUPTED: usize = 600;
/// The seed that is the same each time.
const SEED: u64 = 20_261_130;

fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "differential: {text}");
}

pub(crate) fn number(variable: &str) -> Result<Option<u64>> {
    std::env::var(variable)
        .ok()
        .map(|text| text.parse().with_context(|| format!("{variable}={text}")))
        .transpose()
}

/// Judges lists as `inspect -f` does.
pub(crate) fn judge(lists: &[Value], version: &str) -> Result<Vec<Finding>> {
    let mut file = tempfile::NamedTempFile::new()?;
    let mut writer = BufWriter::new(&mut file);
    for list in lists {
        serde_json::to_writer(&mut writer, list)?;
    }
    writer.flush()?;
    drop(writer);
    let now = Timestamp::now();
    let dump = load(&[Source::File(file.path().to_owned())], now)?;
    let mut ctx = JudgeContext::at(now);
    ctx.server = ServerVersion::parse(version);
    ctx.mass_guard = false;
    Ok(judge_world(&dump.world, &ctx))
}

/// Findings on slices; causes for people (no ready pods and the like) are true of random pods.
pub(crate) fn on_slices(findings: Vec<Finding>) -> Vec<Finding> {
    findings
        .into_iter()
        .filter(|f| f.kind <= FindingKind::ControllerDown)
        .collect()
}

async fn settles(plane: &ControlPlane, namespace: &str, what: &str) -> Result<Vec<Value>> {
    let client = plane.client().await?;
    let (lists, took) = eventually(what, SETTLE, async || {
        let lists = dump(&client, namespace).await?;
        let wrong = on_slices(judge(&lists, plane.version())?);
        Ok(match wrong.first() {
            None => Look::Done(lists),
            Some(first) => Look::NotYet(format!(
                "{} findings, such as {}",
                wrong.len(),
                serde_json::to_string(first)?
            )),
        })
    })
    .await?;
    let count = |n: usize| lists[n]["items"].as_array().map_or(0, Vec::len);
    note(&format!(
        "{what}: no mismatch on {} services, {} pods, {} slices after {took:.1?}",
        count(1),
        count(2),
        count(4)
    ));
    Ok(lists)
}

async fn agrees(seed: u64, services: usize) -> Result<()> {
    let plane = ControlPlane::shared().await?;
    note(&format!(
        "seed {seed}, {services} services on {}",
        plane.version()
    ));
    let namespace = plane.namespace("random").await?;
    let client = plane.client().await?;
    let mut plan = Plan::new(seed, &namespace, services);
    plan.write(&client).await?;
    let lists = settles(plane, &namespace, &format!("seed {seed}, made")).await?;
    if services <= CORRUPTED {
        super::mutation::every_corruption_is_found(&lists, plane.version(), seed)?;
    }
    plan.roll(&client).await?;
    let lists = settles(plane, &namespace, &format!("seed {seed}, rolled")).await?;
    ensure!(lists.len() == 5);
    Ok(())
}

#[tokio::test]
async fn the_judge_agrees_with_the_controller_on_a_fixed_cluster() -> Result<()> {
    let seed = number("SLICE_HEALER_SEED")?.unwrap_or(SEED);
    let services = number("SLICE_HEALER_SERVICES")?.map_or(SERVICES / 2, |n| n as usize);
    let seeds = number("SLICE_HEALER_SEEDS")?.unwrap_or(1);
    for seed in seed..seed.saturating_add(seeds) {
        agrees(seed, services)
            .await
            .with_context(|| format!("seed {seed}"))?;
    }
    Ok(())
}

#[tokio::test]
async fn the_judge_agrees_with_the_controller_on_a_fresh_cluster() -> Result<()> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    let seed = u64::from(now.subsec_nanos());
    agrees(seed, SERVICES / 2)
        .await
        .with_context(|| format!("seed {seed}"))
}
