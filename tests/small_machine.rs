//! The usual edge: 50 Services and 110 pods, with hub and journal. How soon a change is judged, and what the module takes.
//!
//! With `SLICE_HEALER_CGROUP=1` it runs in a control group of 32 MiB and a tenth of a core, in which the kernel would kill
//! it for want of memory; `SLICE_HEALER_BINARY` names a release build. See `just small-machine`.

use std::io::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _};
use kube::Client;
use slice_lab::edge::{Edge, EdgeOptions};

use crate::support::cgroup::Group;
use crate::support::controlplane::{ControlPlane, Options};
use crate::support::journald::Journald;
use crate::support::module::Setup;
use crate::support::objects::{self, PodSeed};
use crate::support::scrape::scrape;
use crate::support::usage::kib;
use crate::support::wait::{Look, eventually};

const SERVICES: usize = 50;
const PODS: usize = 110;
const CHANGES: usize = 20;
const MEMORY: u64 = 32 << 20;
const MILLICORES: u64 = 100;
/// How long anything may take on a slow machine.
const LONG: Duration = Duration::from_secs(120);
/// Requests at a time.
const AT_ONCE: usize = 8;

fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "small machine: {text}");
}

fn pod(n: usize, node: &str) -> PodSeed {
    PodSeed {
        name: format!("pod-{n}"),
        app: format!("model-{}", n % SERVICES),
        version: "1".into(),
        node: node.into(),
        ip: format!("10.244.7.{}", n + 1),
        ready: true,
    }
}

async fn fill(client: &Client, namespace: &str) -> Result<()> {
    let node = format!("node-{namespace}");
    objects::create_node(client, &node).await?;
    futures::stream::iter(0..SERVICES)
        .map(|n| async move {
            objects::create_service(client, namespace, &format!("model-{n}"))
                .await
                .map(drop)
        })
        .buffer_unordered(AT_ONCE)
        .try_collect::<()>()
        .await?;
    futures::stream::iter(0..PODS)
        .map(|n| {
            let seed = pod(n, &node);
            async move {
                objects::create_pod(client, namespace, &seed)
                    .await
                    .map(drop)
            }
        })
        .buffer_unordered(AT_ONCE)
        .try_collect::<()>()
        .await?;
    let listed = async || {
        let mut all = 0;
        for n in 0..SERVICES {
            let slices = objects::slices(client, namespace, &format!("model-{n}")).await?;
            all += objects::routed(&slices).len();
        }
        Ok(match all {
            PODS => Look::Done(()),
            other => Look::NotYet(format!("{other} endpoints")),
        })
    };
    eventually("the controller lists all pods", LONG, listed).await?;
    Ok(())
}

/// How many endpoints are found to be ghosts.
async fn ghosts(metrics: &str) -> Result<usize> {
    let text = scrape(metrics).await?;
    let counts = text
        .lines()
        .filter(|l| l.starts_with("slice_healer_findings{") && l.contains("GhostEndpoint"))
        .filter_map(|l| l.rsplit(' ').next()?.parse::<f64>().ok());
    Ok(counts.sum::<f64>() as usize)
}

#[tokio::test]
async fn a_change_is_judged_at_once_on_the_usual_edge() -> Result<()> {
    let plane = ControlPlane::start(Options::default()).await?;
    let client = plane.client().await?;
    let namespace = plane.namespace("edge").await?;
    fill(&client, &namespace).await?;
    let edge = Edge::start(EdgeOptions::quick()).await?;
    let journald = Journald::start(&[], &[])?;
    let group = std::env::var_os("SLICE_HEALER_CGROUP")
        .map(|_| {
            Group::make(
                &format!("slice-healer-{}", std::process::id()),
                MEMORY,
                MILLICORES,
            )
        })
        .transpose()?;
    let mut setup = Setup::new(&plane.admin_kubeconfig())
        .set("MODE", "observe")
        // A finding is told at once: what is measured is how soon it is made.
        .set("GRACE__REFRESH", "PT0S")
        .set("GRACE__REFRESH_ON_SIGNAL", "PT0S")
        .set("SCOPE__LOCALITY", "cluster")
        .set(
            "JOURNAL__DIRECTORIES",
            &journald.volatile().display().to_string(),
        )
        .reporting_to(&edge)?;
    if let Some(group) = &group {
        setup = setup.within(&group.folders());
    }
    let begun = Instant::now();
    let mut module = setup.start()?;
    let metrics = module.metrics_address().await?;
    edge.wait_for(|view| view.reported()["cluster"]["state"] == "synced", LONG)
        .await
        .with_context(|| module.log())?;
    note(&format!(
        "synced and told to the hub {:.1?} after the start",
        begun.elapsed()
    ));

    // From now on nobody corrects the slices.
    plane.manager.pause()?;
    let mut times = Vec::new();
    for n in 0..CHANGES {
        objects::delete_pod(&client, &namespace, &format!("pod-{n}")).await?;
        let judged = async || {
            Ok(match ghosts(&metrics).await? {
                found if found > n => Look::Done(()),
                found => Look::NotYet(format!("{found} ghosts\n{}", module.log())),
            })
        };
        let (_, took) = eventually("the ghost is found", LONG, judged).await?;
        times.push(took);
    }
    times.sort();
    note(&format!(
        "{CHANGES} changes on {SERVICES} services and {PODS} pods: judged after {:.0?} at the median, {:.0?} at worst",
        times[CHANGES / 2],
        times[CHANGES - 1]
    ));
    plane.manager.resume()?;
    let corrected = async || {
        Ok(match ghosts(&metrics).await? {
            0 => Look::Done(()),
            found => Look::NotYet(format!("{found} ghosts")),
        })
    };
    eventually("the controller's corrections are seen", LONG, corrected).await?;
    note(&format!(
        "{} kB anonymous, {} kB resident, {} kB resident at most",
        kib(module.pid(), "RssAnon:")?,
        kib(module.pid(), "VmRSS:")?,
        kib(module.pid(), "VmHWM:")?
    ));
    if let Some(group) = &group {
        note(&format!(
            "in a group of {} MiB and {MILLICORES} thousandths of a core: {:.1} MiB charged at most, {} killed",
            MEMORY >> 20,
            group.peak()? as f64 / f64::from(1 << 20),
            group.killed()?
        ));
        ensure!(group.killed()? == 0, "killed for want of memory");
    }
    let (ended, took) = module.terminate().await?;
    ensure!(ended.success(), "{ended} after {took:?}\n{}", module.log());
    Ok(())
}
