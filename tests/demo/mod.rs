//! The demonstration: three Services get the same redeployment on a real cluster with a real
//! dataplane, and what differs is only who looks after them.
//!
//! `just demo` runs it at length and writes a page. CI runs it with a shorter look at the end; the
//! claims are the same.

mod heals;
mod network;
mod report;
mod traffic;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

use crate::support::ban::WriteBan;
use crate::support::controlplane::audit::Write;
use crate::support::controlplane::{ControlPlane, Options};
use crate::support::journald::Journald;
use crate::support::module::{Module, Setup};
use crate::support::netns::inside;
use crate::support::objects;
use crate::support::product;
use crate::support::stale::{self, SERVICE, Stale};
use crate::support::wait::{Look, eventually};
use network::{Containers, NODE_IP};
use report::{Lane, Report};
use traffic::{Reply, Sample, Traffic};

/// The node whose kube-proxy it is.
const NODE: &str = "edge-node";
/// Requests a second in each lane.
const RATE: u64 = 50;
/// How long the lanes are at least watched in CI: until lane C is verified, and some time more.
const WATCHED: Duration = Duration::from_secs(12);
/// What the end of a lane is judged by.
const QUIET: Duration = Duration::from_secs(4);
/// What the controller's back-off must at least be, so that none of its own tries falls in the window.
const BACK_OFF: Duration = Duration::from_secs(120);
/// How long anything may take on a slow machine.
const LONG: Duration = Duration::from_secs(90);
/// Whoever asked with the tests' own token.
const ADMIN: &str = "admin";

/// Past the capture of the test harness.
fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "demo: {text}");
}

/// A lane under way.
struct Running {
    letter: char,
    cure: &'static str,
    /// Who writes in this lane.
    user: String,
    state: Stale,
    traffic: Traffic,
    redeployed: Instant,
}

/// The node that kube-proxy is for: it waits for the node's address.
async fn create_node(client: &Client) -> Result<()> {
    objects::create_node(client, NODE).await?;
    let nodes: Api<Node> = Api::all(client.clone());
    let status = json!({"status": {"addresses": [
        {"type": "Hostname", "address": NODE},
        {"type": "InternalIP", "address": NODE_IP},
    ]}});
    nodes
        .patch_status(NODE, &PatchParams::default(), &Patch::Merge(status))
        .await?;
    Ok(())
}

/// Where clients of the Service connect.
async fn cluster_ip(state: &Stale) -> Result<SocketAddr> {
    let service = objects::service(&state.client, &state.namespace, SERVICE).await?;
    let ip = service.spec.and_then(|spec| spec.cluster_ip);
    let ip: IpAddr = ip.context("a Service without an address")?.parse()?;
    Ok(SocketAddr::new(ip, 80))
}

/// A Service whose three pods answer with 2.0, and requests that go through it.
async fn lane(
    plane: &ControlPlane,
    containers: &mut Containers,
    (letter, cure, user): (char, &'static str, &str),
) -> Result<Running> {
    let block = u8::try_from(u32::from(letter))?;
    let namespace = plane
        .namespace(&format!("lane-{}", letter.to_ascii_lowercase()))
        .await?;
    let state = stale::healthy_on(plane.client().await?, namespace, block).await?;
    for address in &state.expected {
        containers.run(address, "2.0").await?;
    }
    let every = Duration::from_millis(1000 / RATE);
    let traffic = Traffic::start(cluster_ip(&state).await?, every, "2.0");
    let (user, redeployed) = (user.to_owned(), Instant::now());
    Ok(Running {
        letter,
        cure,
        user,
        state,
        traffic,
        redeployed,
    })
}

impl Running {
    /// Replaces the pods of 2.0 by pods of 2.1 on other addresses. Of the old containers one goes on:
    /// its pod was deleted with no grace, and the container runtime is slow.
    async fn redeploy(&mut self, containers: &mut Containers) -> Result<()> {
        let old = self.state.expected.clone();
        for n in 0..3 {
            containers
                .run(&self.state.pod("2.1", n, 20).ip, "2.1")
                .await?;
        }
        self.state.redeploy().await?;
        for address in old.iter().skip(1) {
            containers.end(address)?;
        }
        self.traffic.expect("2.1");
        self.redeployed = Instant::now();
        Ok(())
    }

    async fn result(&self, plane: &ControlPlane, since: Timestamp) -> Result<Lane> {
        let samples = self.traffic.since(self.redeployed);
        let bad = |s: &&Sample| s.reply != Reply::Right;
        let tail: Vec<Sample> = samples
            .iter()
            .filter(|s| s.at.elapsed() < QUIET)
            .copied()
            .collect();
        // A busy machine loses a request now and then; a stale Service a third of them or more.
        let ends_right = tail.iter().filter(bad).count() * 20 < tail.len();
        let last = samples.iter().filter(bad).map(|s| s.at).max();
        let last = last.map(|at| at.saturating_duration_since(self.redeployed));
        let right_after = ends_right.then_some(last.unwrap_or_default());
        let heals: Vec<Write> = plane
            .writes_of(&self.user, &self.state.namespace, since)?
            .into_iter()
            .filter(|write| write.is_heal() && write.done())
            .collect();
        let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
        for write in &heals {
            *kinds
                .entry(format!("{} {}", write.verb, write.resource))
                .or_default() += 1;
        }
        Ok(Lane {
            letter: self.letter,
            cure: self.cure,
            counts: traffic::count(&samples),
            right_after,
            writes: kinds
                .into_iter()
                .map(|(kind, n)| format!("{n} {kind}"))
                .collect(),
            slices: self.state.slices().await?.len(),
            next_try: self.state.back_off_left(plane, since)?,
        })
    }
}

/// The module, in charge of one lane, on a journal that tells of other things.
async fn module(plane: &ControlPlane, journald: &Journald, lane: &Running) -> Result<Module> {
    let kubeconfig = product::install(plane).await?;
    let mut module = Setup::new(&kubeconfig)
        .set("SCOPE__NAMESPACES", &lane.state.namespace)
        .set("SCOPE__LOCALITY", "cluster")
        .set(
            "JOURNAL__DIRECTORIES",
            &journald.volatile().display().to_string(),
        )
        .start()?;
    let mut unit = journald.stream("aziot-edged", "iotedge.service")?;
    unit.write_all(b"Starting module model-endpoint...\nSuccessfully started module\n")?;
    module.await_line(&["following", "journal"], LONG).await?;
    Ok(module)
}

async fn play(window: Duration) -> Result<Report> {
    let plane = ControlPlane::start(Options::default()).await?;
    let client = plane.client().await?;
    let journald = Journald::start(&[], &[])?;
    create_node(&client).await?;
    let _proxy = plane.start_proxy(NODE)?;
    let mut containers = Containers::on_a_new_node()?;
    let healer = format!("system:serviceaccount:{0}:{0}", product::NAME);
    let mut lanes = Vec::new();
    for which in [
        ('A', "nothing installed", ADMIN),
        ('B', "kubectl delete endpointslice", ADMIN),
        ('C', "slice-healer", healer.as_str()),
    ] {
        lanes.push(lane(&plane, &mut containers, which).await?);
    }
    let mut healer = module(&plane, &journald, &lanes[2]).await?;
    for lane in &lanes {
        lane.traffic.await_right(LONG).await?;
    }
    note("requests flow through three ClusterIPs; kube-controller-manager is restarted");
    plane.restart_manager().await?;

    let mut bans = Vec::new();
    for lane in &lanes {
        bans.push(WriteBan::impose(&plane, &lane.state.namespace).await?);
    }
    let since = Timestamp::now();
    for lane in &mut lanes {
        lane.redeploy(&mut containers).await?;
    }
    for lane in &lanes {
        // Each event is one more failed try: after a dozen or so the back-off is long enough.
        eventually("the controller's back-off is long", LONG, async || {
            let left = lane.state.back_off_left(&plane, since)?;
            if left >= BACK_OFF {
                return Ok(Look::Done(()));
            }
            lane.state.flap("2.1", 2).await?;
            Ok(Look::NotYet(format!("{left:?}")))
        })
        .await?;
    }
    for ban in bans {
        ban.lift().await?;
    }
    note("redeployed while the controller's writes were refused; now they are allowed again");
    // As soon as anybody could: the best case for a delete by hand.
    let cured = Timestamp::now();
    lanes[1].state.delete_slices().await?;
    let begun = Instant::now();
    healer
        .await_line(&["kind=heal", "outcome=healed"], LONG)
        .await?;
    lanes[2].traffic.await_right(LONG).await?;
    let rest = window.saturating_sub(begun.elapsed());
    tokio::time::sleep(rest.max(QUIET + Duration::from_secs(1))).await;
    let window = begun.elapsed();

    let mut results = Vec::new();
    for lane in &lanes {
        // What the tests did for the redeployment itself was written before.
        let since = if lane.letter == 'C' { since } else { cured };
        results.push(lane.result(&plane, since).await?);
    }
    let log = healer.log();
    ensure!(
        !log.contains("kind=signal"),
        "a line of the journal helped:\n{log}"
    );
    let version = plane.version().to_owned();
    Ok(Report {
        version,
        window,
        rate: RATE,
        lanes: results,
    })
}

/// Three lanes, one redeployment. What the documents say of it is held here.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_redeployment_three_ways() -> Result<()> {
    if !inside("demo::the_same_redeployment_three_ways")? {
        return Ok(());
    }
    let window = match std::env::var("DEMO_SECONDS") {
        Ok(seconds) => Duration::from_secs(seconds.parse().context("DEMO_SECONDS")?),
        Err(_) => WATCHED,
    };
    let report = play(window).await?;
    note(&format!("\n\n{}", report.table()));
    if let Some(path) = std::env::var_os("DEMO_REPORT").map(PathBuf::from) {
        std::fs::write(&path, report.page()).with_context(|| path.display().to_string())?;
        note(&format!("the page is in {}", path.display()));
    }
    let [a, b, c] = report.lanes.as_slice() else {
        anyhow::bail!("three lanes, not {}", report.lanes.len());
    };
    ensure!(
        a.right_after.is_none() && a.counts.wrong > 0 && a.counts.failed > 0,
        "{a:?}"
    );
    ensure!(a.writes.is_empty() && a.slices == 1, "{a:?}");
    ensure!(
        b.slices == 0 && b.right_after.is_none() && b.counts.refused > 0,
        "{b:?}"
    );
    ensure!(c.slices == 1 && c.right_after.is_some(), "{c:?}");
    ensure!(
        c.writes == ["1 patch services"] && c.counts.refused == 0,
        "{c:?}"
    );
    Ok(())
}
