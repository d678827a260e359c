//! What a heal itself costs: requests that fail because of it, by the way it is done.
//!
//! The stale endpoints of these Services go on answering, so whatever fails, fails for the heal.
//! `DEMO_HEALS` says how many heals of each kind; CI does one of each.

use std::fmt::Write as _;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;

use super::network::Containers;
use super::traffic::{self, Traffic};
use super::{NODE, cluster_ip, create_node, note};
use crate::support::controlplane::{ControlPlane, Options, SLICE_CONTROLLER};
use crate::support::netns::inside;
use crate::support::product;
use crate::support::stale::{self, PROMPT, SERVICE, Stale};

/// Time between two requests of one Service.
const EVERY: Duration = Duration::from_millis(20);
/// How long requests go on after the slices are right: kube-proxy writes once a second.
const AFTER: Duration = Duration::from_secs(2);
/// How long a slice that nobody brings back is waited for.
const GONE: Duration = Duration::from_secs(5);

/// How it is healed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// A patch of an annotation of the Service: the ladder's first step.
    Refresh,
    /// A patch of a label of the slice.
    Nudge,
    /// The delete of slice-healer's ladder, with all that it does after it.
    Ladder,
    /// A delete, while the controller remembers that it has written the slice.
    Tracked,
    /// A delete, after a restart of the controller.
    Untracked,
}

impl Way {
    const ALL: [Self; 5] = [
        Self::Refresh,
        Self::Nudge,
        Self::Ladder,
        Self::Tracked,
        Self::Untracked,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Refresh => "annotation refresh",
            Self::Nudge => "label nudge on the slice",
            Self::Ladder => "the ladder's delete",
            Self::Tracked => "plain delete, slice tracked",
            Self::Untracked => "plain delete, after a controller restart",
        }
    }
}

/// What one heal cost.
#[derive(Debug, Clone, Copy)]
struct Cost {
    failed: usize,
    /// Of those, refused: the Service had no endpoint.
    refused: usize,
    /// Until the slices were right; none when they were not in time.
    took: Option<Duration>,
    /// Writes of the slice controller that were refused as conflicts.
    conflicts: usize,
}

/// A Service with three pods whose containers answer.
async fn service(plane: &ControlPlane, containers: &mut Containers, block: u8) -> Result<Stale> {
    let namespace = plane.namespace("heals").await?;
    let state = stale::healthy_on(plane.client().await?, namespace, block).await?;
    for address in &state.expected {
        containers.run(address, "2.0").await?;
    }
    Ok(state)
}

async fn heal(plane: &ControlPlane, way: Way, state: &Stale) -> Result<Cost> {
    let traffic = Traffic::start(cluster_ip(state).await?, EVERY, "2.0");
    traffic.await_right(PROMPT).await?;
    let (since, begun) = (Timestamp::now(), Instant::now());
    match way {
        Way::Refresh => state.touch("1").await?,
        Way::Nudge => drop(state.label_slices("nudge", Some("1")).await?),
        Way::Ladder => by_ladder(plane, state).await?,
        Way::Tracked | Way::Untracked => drop(state.delete_slices().await?),
    }
    let deadline = if way == Way::Untracked { GONE } else { PROMPT };
    let right = state.await_right(deadline).await;
    let took = begun.elapsed();
    if way != Way::Untracked {
        right
            .as_ref()
            .map_err(|error| anyhow::anyhow!("{}: {error}", way.name()))?;
    }
    tokio::time::sleep(AFTER).await;
    let counts = traffic::count(&traffic.since(begun));
    let conflicts = plane.writes_of(SLICE_CONTROLLER, &state.namespace, since)?;
    Ok(Cost {
        failed: counts.failed + counts.wrong,
        refused: counts.refused,
        took: right.is_ok().then_some(took),
        conflicts: conflicts.iter().filter(|write| write.code == 409).count(),
    })
}

/// `slice-healer heal`, under the product's account; only the last verification is shorter, which
/// is after all that is measured here.
async fn by_ladder(plane: &ControlPlane, state: &Stale) -> Result<()> {
    let kubeconfig = product::install(plane).await?;
    let folder = tempfile::TempDir::new()?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_slice-healer"));
    command
        .args([
            "heal",
            SERVICE,
            "-n",
            &state.namespace,
            "--yes",
            "--action",
            "delete-slice",
        ])
        .env("SLICE_HEALER__CLUSTER__KUBECONFIG", kubeconfig)
        .env("SLICE_HEALER__STORE__DIRECTORY", folder.path())
        // With so many stale at once it would only refresh.
        .env("SLICE_HEALER__SCOPE__NAMESPACES", &state.namespace)
        .env("SLICE_HEALER__HEAL__PACE__VERIFY_GAP", "PT1S");
    let output = tokio::task::spawn_blocking(move || command.output()).await??;
    ensure!(output.status.success(), "{output:?}");
    Ok(())
}

/// One after the other, as heals come.
async fn series(plane: &ControlPlane, way: Way, states: &[Stale]) -> Result<(Way, Vec<Cost>)> {
    let mut costs = Vec::new();
    for state in states {
        costs.push(heal(plane, way, state).await.with_context(|| way.name())?);
    }
    Ok((way, costs))
}

fn row(way: Way, costs: &[Cost]) -> String {
    let failed: Vec<usize> = costs.iter().map(|cost| cost.failed).collect();
    let mut took: Vec<f64> = costs
        .iter()
        .filter_map(|cost| cost.took)
        .map(|took| took.as_secs_f64())
        .collect();
    took.sort_by(f64::total_cmp);
    let seconds = match took.as_slice() {
        [] => format!("not within {} s", GONE.as_secs()),
        all => format!("{:.2} / {:.2}", all[all.len() / 2], all[all.len() - 1]),
    };
    let conflicts: usize = costs.iter().map(|cost| cost.conflicts).sum();
    format!(
        "| {} | {} | {:.1} / {} | {seconds} | {conflicts} |",
        way.name(),
        costs.len(),
        failed.iter().sum::<usize>() as f64 / costs.len() as f64,
        failed.iter().max().copied().unwrap_or_default(),
    )
}

/// Services after a restart of the controller, so that it has none of their slices in mind; then
/// some that it has. Two of three pods of each finish, of which it does not notice.
async fn states(
    plane: &ControlPlane,
    containers: &mut Containers,
    n: u8,
) -> Result<Vec<Vec<Stale>>> {
    let mut all: Vec<Vec<Stale>> = Vec::new();
    for (i, way) in (0_u8..).zip(Way::ALL) {
        let mut of_way = Vec::new();
        for k in 0..n {
            if way != Way::Tracked {
                of_way.push(service(plane, containers, 1 + i * n + k).await?);
            }
        }
        all.push(of_way);
    }
    plane.restart_manager().await?;
    for k in 0..n {
        all[3].push(service(plane, containers, 1 + 3 * n + k).await?);
    }
    plane.await_manager().await?;
    for state in all.iter_mut().flatten() {
        state.finish_pod(0).await?;
        state.finish_pod(1).await?;
    }
    Ok(all)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_heal_costs_by_the_way_it_is_done() -> Result<()> {
    if !inside("demo::heals::what_a_heal_costs_by_the_way_it_is_done")? {
        return Ok(());
    }
    let n: u8 = match std::env::var("DEMO_HEALS") {
        Ok(n) => n.parse().context("DEMO_HEALS")?,
        Err(_) => 1,
    };
    ensure!(
        (1..=50).contains(&n),
        "1 to 50 heals, as many as there are addresses"
    );
    let plane = ControlPlane::start(Options::default()).await?;
    create_node(&plane.client().await?).await?;
    let _proxy = plane.start_proxy(NODE)?;
    let mut containers = Containers::on_a_new_node()?;
    let states = states(&plane, &mut containers, n).await?;
    note(&format!(
        "{} Services are stale",
        states.iter().flatten().count()
    ));
    let [refresh, nudge, ladder, tracked, untracked] = states.as_slice() else {
        anyhow::bail!("five ways");
    };
    let done = tokio::try_join!(
        series(&plane, Way::Refresh, refresh),
        series(&plane, Way::Nudge, nudge),
        series(&plane, Way::Ladder, ladder),
        series(&plane, Way::Tracked, tracked),
        series(&plane, Way::Untracked, untracked),
    )?;
    let done = [done.0, done.1, done.2, done.3, done.4];
    let mut table = String::from(
        "| way | heals | failed requests a heal, mean / most | seconds to right, median / longest | \
         conflicts of the controller |\n| --- | ---: | ---: | ---: | ---: |\n",
    );
    for (way, costs) in &done {
        let _ = writeln!(table, "{}", row(*way, costs));
    }
    note(&format!("\n\n{table}"));
    if let Some(path) = std::env::var_os("DEMO_REPORT") {
        let mut page = std::fs::read_to_string(&path).unwrap_or_default();
        let _ = write!(
            page,
            "\n## What a heal costs by the way it is done\n\n{table}"
        );
        std::fs::write(&path, page)?;
    }
    // A busy machine may lose a request by itself; only kube-proxy refuses one.
    let refused = |costs: &[Cost]| costs.iter().map(|cost| cost.refused).sum::<usize>();
    let right = |costs: &[Cost]| costs.iter().filter(|cost| cost.took.is_some()).count();
    for (way, costs) in &done {
        let (refused, right, all) = (refused(costs), right(costs), costs.len());
        let (loses, heals) = match way {
            Way::Refresh | Way::Nudge => (false, true),
            Way::Ladder | Way::Tracked => (true, true),
            Way::Untracked => (true, false),
        };
        ensure!(
            (refused > 0) == loses,
            "{way:?}: {refused} refused; {costs:?}"
        );
        ensure!(right == if heals { all } else { 0 }, "{way:?}: {costs:?}");
    }
    Ok(())
}
