//! Rollouts of all sorts under a healthy controller: nothing is stale, so nothing is written.
//!
//! Default settings, mode heal. Pods come up late, end slowly, flap, change their addresses; Services
//! change their selectors. The module is seen to be awake by what it does at the end.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::json;

use super::{note, size};
use crate::support::badway::BadWay;
use crate::support::ground::Ground;
use crate::support::module::Setup;
use crate::support::objects::{self, PodSeed};

/// Services that are rolled out at the same time.
const LANES: usize = 24;
/// In so many namespaces.
const SPACES: usize = 6;
/// How long a Service may take to be right on a busy machine.
const SETTLED: Duration = Duration::from_secs(120);

/// One Service whose pods are replaced again and again.
struct Lane {
    client: Client,
    namespace: String,
    node: String,
    service: String,
    number: usize,
    made: usize,
    pods: Vec<PodSeed>,
    rng: StdRng,
}

impl Lane {
    /// Adds a pod that is not ready yet; the version is the selector's where that asks for one.
    async fn add(&mut self, version: &str) -> Result<PodSeed> {
        self.made += 1;
        let (n, made) = (self.number, self.made);
        let seed = PodSeed {
            name: format!("{}-{made}", self.service),
            app: self.service.clone(),
            version: version.to_owned(),
            node: self.node.clone(),
            ip: format!(
                "10.{}.{}.{}",
                128 + n % 100,
                made / 200 % 200,
                10 + made % 200
            ),
            ready: false,
        };
        objects::create_pod(&self.client, &self.namespace, &seed).await?;
        self.pods.push(seed.clone());
        Ok(seed)
    }

    async fn ready(&self, pod: &PodSeed, ready: bool) -> Result<()> {
        objects::set_pod_ready(&self.client, &self.namespace, &pod.name, ready).await?;
        Ok(())
    }

    /// Ends a pod: at once, or after it was seen to be terminating for a while.
    async fn end(&mut self, pod: &PodSeed) -> Result<()> {
        if self.rng.random_bool(0.5) {
            let pods: Api<Pod> = Api::namespaced(self.client.clone(), &self.namespace);
            pods.delete(&pod.name, &DeleteParams::default().grace_period(30))
                .await?;
            // Longer than any grace, once in a while.
            let slow = self.rng.random_bool(0.02);
            self.pause(if slow { 9_000 } else { 300 }).await;
        }
        objects::delete_pod(&self.client, &self.namespace, &pod.name).await?;
        self.pods.retain(|other| other.name != pod.name);
        Ok(())
    }

    async fn pause(&mut self, at_most: u64) {
        let millis = self.rng.random_range(0..=at_most);
        tokio::time::sleep(Duration::from_millis(millis)).await;
    }

    /// One rollout to `version`, of a random kind.
    async fn roll(&mut self, version: &str) -> Result<()> {
        let old = self.pods.clone();
        let many = self.rng.random_range(1..=3);
        match self.rng.random_range(0..5) {
            // One by one, as a Deployment does it.
            0 | 1 => {
                for n in 0..many {
                    let new = self.add(version).await?;
                    self.pause(200).await;
                    self.ready(&new, true).await?;
                    if let Some(pod) = old.get(n) {
                        self.end(pod).await?;
                    }
                }
                for pod in old.iter().skip(many) {
                    self.end(pod).await?;
                }
            }
            // All at once: the Service has no endpoint for a while.
            2 => {
                for pod in &old {
                    self.end(pod).await?;
                }
                self.pause(300).await;
                for _ in 0..many {
                    let new = self.add(version).await?;
                    self.ready(&new, true).await?;
                }
            }
            // Blue and green: the selector changes between two sets that both stand.
            3 => {
                for _ in 0..many {
                    let new = self.add(version).await?;
                    self.ready(&new, true).await?;
                }
                self.select(Some(version)).await?;
                self.pause(300).await;
                for pod in &old {
                    self.end(pod).await?;
                }
                self.select(None).await?;
            }
            // A new pod that does not get well at first, and an old one that does not stay so.
            _ => {
                let new = self.add(version).await?;
                for ready in [true, false, true] {
                    self.ready(&new, ready).await?;
                    self.pause(150).await;
                }
                for pod in &old {
                    self.ready(pod, false).await?;
                    self.end(pod).await?;
                }
            }
        }
        Ok(())
    }

    async fn select(&self, version: Option<&str>) -> Result<()> {
        let services: Api<Service> = Api::namespaced(self.client.clone(), &self.namespace);
        let patch = Patch::Merge(json!({"spec": {"selector": {"version": version}}}));
        services
            .patch(&self.service, &PatchParams::default(), &patch)
            .await?;
        Ok(())
    }

    /// As many rollouts; then the slices must be what the pods are.
    async fn run(mut self, rollouts: usize) -> Result<Self> {
        for n in 0..rollouts {
            let version = format!("v{n}");
            self.roll(&version)
                .await
                .with_context(|| format!("{} {n}", self.service))?;
            self.pause(200).await;
        }
        let expected: BTreeSet<String> = self.pods.iter().map(|pod| pod.ip.clone()).collect();
        let (client, space) = (&self.client, &self.namespace);
        objects::await_routed(client, space, &self.service, &expected, SETTLED).await?;
        Ok(self)
    }
}

async fn lanes(ground: &Ground, seed: u64) -> Result<Vec<Lane>> {
    let client = ground.client().await?;
    let mut spaces = Vec::new();
    for n in 0..SPACES {
        spaces.push(ground.namespace(&format!("rollout{n}")).await?);
    }
    let node = "rollout-node".to_owned();
    objects::create_node(&client, &node).await?;
    let mut lanes = Vec::new();
    for number in 0..LANES {
        let namespace = spaces[number % SPACES].clone();
        let service = format!("model-{number}");
        objects::create_service(&client, &namespace, &service).await?;
        let rng = StdRng::seed_from_u64(seed + number as u64);
        let (client, node) = (client.clone(), node.clone());
        let (made, pods) = (0, Vec::new());
        lanes.push(Lane {
            client,
            namespace,
            node,
            service,
            number,
            made,
            pods,
            rng,
        });
    }
    Ok(lanes)
}

async fn no_rollout_is_taken_for_staleness(ground: &Ground, rollouts: usize) -> Result<()> {
    let seed = size("SLICE_HEALER_SEED", 20_261_201)? as u64;
    let lanes = lanes(ground, seed).await?;
    let way = BadWay::open(&ground.kubeconfig().await?).await?;
    let mut module = Setup::new(&way.kubeconfig())
        .set("SCOPE__LOCALITY", "cluster")
        .start()?;
    module.await_line(&["serving"], SETTLED).await?;
    let begun = Instant::now();
    let each = rollouts.div_ceil(LANES);
    let mut lanes = try_join_all(lanes.into_iter().map(|lane| lane.run(each)))
        .await
        .with_context(|| format!("seed {seed}"))?;
    let took = begun.elapsed();
    let writes = way.steps();
    ensure!(
        writes.is_empty(),
        "seed {seed}: {writes:?}\n{}",
        module.log()
    );
    ensure!(
        !module.log().contains("kind=heal"),
        "seed {seed}\n{}",
        module.log()
    );
    let slices: usize = lanes.iter().map(|lane| lane.made).sum();
    note(&format!(
        "{} rollouts of {LANES} Services ({slices} pods, seed {seed}) in {took:.0?}: 0 writes",
        each * LANES
    ));

    // It was awake all the time: what does go stale now is healed.
    let lane = lanes.last_mut().context("no lane")?;
    lane.add("last").await?;
    let pod = lane.add("last").await?;
    for pod in lane.pods.clone() {
        lane.ready(&pod, true).await?;
    }
    ground.settle().await?;
    let failed = json!({"phase": "Failed"});
    objects::set_pod_status(&lane.client, &lane.namespace, &pod.name, failed).await?;
    module
        .await_line(&["kind=heal", "outcome=healed"], SETTLED)
        .await?;
    let refreshes = way
        .steps()
        .iter()
        .filter(|(step, _)| step.name == "refresh")
        .count();
    ensure!(refreshes == 1, "{:?}", way.steps());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rollouts_on_the_real_control_plane_are_left_alone() -> Result<()> {
    let rollouts = size("FIRE_ROLLOUTS", 120)?;
    no_rollout_is_taken_for_staleness(&Ground::real().await?, rollouts).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rollouts_on_the_lab_cluster_are_left_alone() -> Result<()> {
    let rollouts = size("FIRE_LAB_ROLLOUTS", 120)?;
    no_rollout_is_taken_for_staleness(&Ground::lab().await?, rollouts).await
}
