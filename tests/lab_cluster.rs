//! Senses and actions against the lab's API server, which can be made to misbehave: whatever happens
//! on the way, the product ends up with the cluster's own view, and no write goes out twice.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Value, json};
use slice_core::event::{Act, Action, ActionId, ClusterInput, LeaseAnswer, Link, Outcome};
use slice_core::model::{Kind, ServiceKey};
use slice_healer::act::permissions::{self, Need};
use slice_healer::act::{Actor, Options as ActorOptions};
use slice_healer::client::{Access, Supply, connect};
use slice_healer::sense::cluster::{Options, spawn};
use slice_lab::kube::resource::{ENDPOINT_SLICES, ENDPOINTS, NODES, PODS, SERVICES};
use slice_lab::kube::{
    Cluster, ClusterOptions, DeleteOptions, Failure, Fault, Forbid, Resource, namespace,
};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

const DEADLINE: Duration = Duration::from_secs(60);
const SPACE: &str = "line1";

async fn cluster(options: ClusterOptions) -> Result<(Cluster, Supply)> {
    let cluster = Cluster::start(options).await?;
    let _ = cluster.create(namespace(SPACE));
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("config");
    std::fs::write(&path, cluster.kubeconfig_yaml())?;
    let kubeconfig = Some(path);
    let access = Access {
        kubeconfig,
        ..Access::default()
    };
    let supply = Supply::fixed(connect(&access).await?);
    Ok((cluster, supply))
}

fn quick() -> Options {
    Options {
        first_pause: Duration::from_millis(10),
        longest_pause: Duration::from_millis(200),
        watch_timeout: Duration::from_secs(4),
        page_size: 3,
        ..Options::default()
    }
}

fn object(kind: &str, name: &str) -> Value {
    let (api, spec) = match kind {
        "EndpointSlice" => ("discovery.k8s.io/v1", Value::Null),
        "Service" => (
            "v1",
            json!({"ports": [{"port": 80}], "selector": {"app": "x"}}),
        ),
        "Pod" => ("v1", json!({"containers": [{"name": "c", "image": "i"}]})),
        _ => ("v1", Value::Null),
    };
    let mut object = json!({
        "apiVersion": api, "kind": kind, "metadata": {"name": name, "namespace": SPACE},
    });
    match kind {
        "EndpointSlice" => {
            object["addressType"] = "IPv4".into();
            object["endpoints"] = json!([]);
        }
        _ => object["spec"] = spec,
    }
    object
}

/// What the product believes of the kinds that are compared, by kind and name: the version that it has seen.
#[derive(Default)]
struct View(BTreeMap<(Kind, String, String), String>);

impl View {
    fn take(&mut self, input: ClusterInput) {
        match input {
            ClusterInput::Reset(kind, objects) => {
                self.0.retain(|(of, ..), _| *of != kind);
                objects
                    .into_iter()
                    .for_each(|o| self.take(ClusterInput::Apply(o)));
            }
            ClusterInput::Apply(object) => {
                let meta = object.meta();
                let key = (
                    object.kind(),
                    meta.namespace.to_string(),
                    meta.name.to_string(),
                );
                if SEEN.iter().any(|(seen, _)| *seen == key.0) {
                    self.0.insert(key, meta.resource_version.to_string());
                }
            }
            ClusterInput::Deleted(gone) => {
                let space = gone.namespace.unwrap_or_default();
                self.0.remove(&(gone.kind, space, gone.name));
            }
            ClusterInput::Link(..) | ClusterInput::Version(_) | ClusterInput::LocalNode(_) => {}
        }
    }
}

const SEEN: [(Kind, &Resource); 3] = [
    (Kind::Pod, &PODS),
    (Kind::Service, &SERVICES),
    (Kind::EndpointSlice, &ENDPOINT_SLICES),
];

fn truth(cluster: &Cluster) -> BTreeMap<(Kind, String, String), String> {
    let text = |o: &Value, key: &str| o["metadata"][key].as_str().unwrap_or_default().to_owned();
    let of = |(kind, resource): (Kind, &Resource)| {
        let all = cluster.list(resource, None);
        all.into_iter()
            .map(move |o| {
                let key = (kind, text(&o, "namespace"), text(&o, "name"));
                (key, text(&o, "resourceVersion"))
            })
            .collect::<Vec<_>>()
    };
    SEEN.into_iter().flat_map(of).collect()
}

/// One change of an object. Many fail, because it is there already or is not: that is fine.
fn change(cluster: &Cluster, dice: &mut StdRng) {
    let (kind, resource) = [
        ("Pod", &PODS),
        ("Service", &SERVICES),
        ("EndpointSlice", &ENDPOINT_SLICES),
    ][dice.random_range(0..3)];
    let name = format!("o{}", dice.random_range(0..12));
    match dice.random_range(0..14) {
        0..6 => drop(cluster.create(object(kind, &name))),
        6..10 => {
            let value = dice.random::<u32>().to_string();
            let patch = json!({"metadata": {"labels": {"n": value}}});
            drop(cluster.patch(resource, SPACE, &name, &patch));
        }
        _ => drop(cluster.delete(resource, SPACE, &name, &DeleteOptions::now())),
    }
}

/// One thing that happens to the objects or to the way there.
async fn happening(cluster: &Cluster, dice: &mut StdRng) -> Result<()> {
    match dice.random_range(0..20) {
        0..14 => change(cluster, dice),
        14 => cluster.drop_watches(),
        15 => cluster.compact(),
        16 => cluster.hold_watches(dice.random()),
        17 => {
            let failure = [
                Failure::Internal,
                Failure::Unavailable,
                Failure::TooManyRequests { retry_after: 1 },
                Failure::Hang(Duration::from_millis(50)),
            ][dice.random_range(0..4)];
            let verb = ["list", "watch"][dice.random_range(0..2)];
            let resource = Some(SEEN[dice.random_range(0..SEEN.len())].1);
            let times = dice.random_range(1..4);
            cluster.fail_next(Fault {
                verb,
                resource,
                times,
                failure,
            });
        }
        18 => {
            cluster.stop_listening().await?;
            tokio::time::sleep(Duration::from_millis(dice.random_range(0..30))).await;
            cluster.start_listening().await?;
        }
        _ => tokio::time::sleep(Duration::from_millis(dice.random_range(0..40))).await,
    }
    Ok(())
}

async fn chaos(seed: u64) -> Result<()> {
    // A short history: many watches come back to a version that is gone.
    let history = 40;
    let (cluster, supply) = cluster(ClusterOptions {
        history,
        bookmark_every: Duration::from_millis(200),
        ..ClusterOptions::default()
    })
    .await?;
    let (tx, mut rx) = mpsc::channel(4);
    let stop = CancellationToken::new();
    let (mut tasks, counters) = spawn(supply, tx, &stop, quick());
    let mut view = View::default();
    let mut dice = StdRng::seed_from_u64(seed);
    for _ in 0..400 {
        happening(&cluster, &mut dice).await?;
        while let Ok(input) = rx.try_recv() {
            view.take(input);
        }
    }
    cluster.heal_knobs();
    agree(&cluster, &mut view, &mut rx, seed).await?;
    let failures = SEEN.map(|(kind, _)| counters.of(kind).failures.load(Ordering::Relaxed));
    ensure!(
        failures.iter().sum::<u64>() > 0,
        "seed {seed}: nothing went wrong, so nothing was proved"
    );
    // From here on nothing goes wrong, and less happens than the history keeps: no list makes up for
    // a lost event.
    for _ in 0..history - 10 {
        change(&cluster, &mut dice);
    }
    agree(&cluster, &mut view, &mut rx, seed).await?;
    stop.cancel();
    while tasks.join_next().await.is_some() {}
    Ok(())
}

/// Takes inputs until the view is the cluster's.
async fn agree(
    cluster: &Cluster,
    view: &mut View,
    rx: &mut mpsc::Receiver<ClusterInput>,
    seed: u64,
) -> Result<()> {
    let agreed = async {
        while view.0 != truth(cluster) {
            view.take(rx.recv().await.context("the watches go on")?);
        }
        anyhow::Ok(())
    };
    let outcome = timeout(DEADLINE, agreed).await;
    let (believed, expected) = (&view.0, truth(cluster));
    ensure!(
        matches!(outcome, Ok(Ok(()))),
        "seed {seed}: believed {believed:?}, true {expected:?}"
    );
    Ok(())
}

#[tokio::test]
async fn whatever_happens_on_the_way_the_view_ends_up_right() -> Result<()> {
    for seed in 0..4 {
        chaos(seed).await?;
    }
    Ok(())
}

#[tokio::test]
async fn optional_kinds_may_be_forbidden() -> Result<()> {
    let (cluster, supply) = cluster(ClusterOptions::default()).await?;
    cluster.forbid(Forbid {
        verb: "",
        resource: Some(&ENDPOINTS),
        namespace: None,
    });
    let (tx, mut rx) = mpsc::channel(64);
    let stop = CancellationToken::new();
    let (_tasks, _) = spawn(supply.clone(), tx, &stop, quick());
    let mut states = BTreeMap::new();
    let settled = async {
        while states.len() < Kind::ALL.len() {
            match rx.recv().await.context("the watches go on")? {
                ClusterInput::Link(_, Link::Syncing) => {}
                ClusterInput::Link(kind, link) => drop(states.insert(kind, link)),
                _ => {}
            }
        }
        anyhow::Ok(())
    };
    timeout(DEADLINE, settled)
        .await
        .context("every kind tells its state")??;
    let refused = states.remove(&Kind::Endpoints);
    let named = |text: &str| text.starts_with("list endpoints: ");
    ensure!(
        matches!(&refused, Some(Link::Forbidden(text)) if named(text)),
        "{refused:?}"
    );
    ensure!(
        states.values().all(|link| *link == Link::Synced),
        "{states:?}"
    );
    let missing = permissions::missing(&supply, DEADLINE)
        .await
        .map_err(anyhow::Error::msg)?;
    // The lab serves no admission policies, so that `doctor` lacks them here.
    let missing: Vec<_> = missing
        .into_iter()
        .filter(|r| r.need != Need::Doctor)
        .collect();
    ensure!(
        missing.len() == 3 && missing.iter().all(|r| r.resource == "endpoints"),
        "{missing:?}"
    );
    stop.cancel();
    Ok(())
}

async fn run(actor: &Actor, act: Act) -> Outcome {
    let (id, deadline) = (ActionId(1), Duration::from_secs(30));
    actor.run(Action { id, deadline, act }).await
}

#[tokio::test]
async fn actions_do_what_they_do_on_a_real_server() -> Result<()> {
    let (cluster, supply) = cluster(ClusterOptions::default()).await?;
    let _ = cluster.create(namespace("slice-healer"));
    cluster.create(object("Service", "web"))?;
    let mut slice = object("EndpointSlice", "web-abc");
    slice["metadata"]["labels"] = json!({"kubernetes.io/service-name": "web"});
    cluster.create(slice)?;
    cluster.create(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "edge-7"}}))?;
    ensure!(cluster.list(&NODES, None).len() == 1);
    let actor = Actor::new(supply.clone(), ActorOptions::new("one"));
    let service = ServiceKey::new(SPACE, "web");

    let read = run(
        &actor,
        Act::Read {
            service: service.clone(),
        },
    )
    .await;
    let Outcome::Snapshot(seen) = read else {
        bail!("{read:?}")
    };
    let uid = seen.service.context("no Service")?.meta.uid.to_string();
    let meta = seen.slices.first().context("no slice")?.meta.clone();

    let refresh = |uid: &str| Act::Refresh {
        service: service.clone(),
        uid: uid.to_owned(),
        value: "1".to_owned(),
    };
    let outcome = run(&actor, refresh("another")).await;
    ensure!(matches!(outcome, Outcome::Conflict(_)), "{outcome:?}");
    let outcome = run(&actor, refresh(&uid)).await;
    ensure!(matches!(outcome, Outcome::Written), "{outcome:?}");

    let delete = |version: &str| Act::Delete {
        service: service.clone(),
        slice: meta.name.to_string(),
        uid: meta.uid.to_string(),
        resource_version: version.to_owned(),
    };
    let outcome = run(&actor, delete("1")).await;
    ensure!(matches!(outcome, Outcome::Conflict(_)), "{outcome:?}");
    let outcome = run(&actor, delete(&meta.resource_version)).await;
    ensure!(matches!(outcome, Outcome::Written), "{outcome:?}");
    let outcome = run(&actor, delete(&meta.resource_version)).await;
    ensure!(matches!(outcome, Outcome::Gone), "{outcome:?}");

    let other = Actor::new(supply, ActorOptions::new("two"));
    let outcome = run(&actor, Act::TakeLease).await;
    ensure!(
        matches!(outcome, Outcome::Lease(LeaseAnswer::Taken)),
        "{outcome:?}"
    );
    let outcome = run(&other, Act::TakeLease).await;
    ensure!(
        matches!(outcome, Outcome::Lease(LeaseAnswer::HeldBy(_))),
        "{outcome:?}"
    );
    let outcome = run(&actor, Act::ReleaseLease).await;
    ensure!(matches!(outcome, Outcome::Written), "{outcome:?}");
    let outcome = run(&other, Act::TakeLease).await;
    ensure!(
        matches!(outcome, Outcome::Lease(LeaseAnswer::Taken)),
        "{outcome:?}"
    );
    Ok(())
}

#[tokio::test]
async fn a_write_into_a_storm_goes_out_once_and_after_a_wait() -> Result<()> {
    let (cluster, supply) = cluster(ClusterOptions::default()).await?;
    let uid = cluster.create(object("Service", "web"))?["metadata"]["uid"].clone();
    let actor = Actor::new(supply, ActorOptions::new("one"));
    let refresh = || Act::Refresh {
        service: ServiceKey::new(SPACE, "web"),
        uid: uid.as_str().unwrap_or_default().to_owned(),
        value: "1".to_owned(),
    };
    let fail = |times, failure| {
        let (verb, resource) = ("patch", Some(&SERVICES));
        cluster.fail_next(Fault {
            verb,
            resource,
            times,
            failure,
        });
    };
    for (failure, times) in [
        (Failure::Conflict, 1),
        (Failure::Internal, 1),
        (Failure::Unavailable, 1),
    ] {
        cluster.clear_requests();
        fail(times, failure);
        let outcome = run(&actor, refresh()).await;
        let told = match failure {
            Failure::Conflict => matches!(outcome, Outcome::Conflict(_)),
            _ => matches!(&outcome, Outcome::Failed(text) if text.contains("not known")),
        };
        ensure!(told, "{failure:?}: {outcome:?}");
        ensure!(
            cluster.writes().len() == 1,
            "{failure:?}: {:?}",
            cluster.writes()
        );
    }
    cluster.clear_requests();
    fail(2, Failure::TooManyRequests { retry_after: 1 });
    let outcome = run(&actor, refresh()).await;
    ensure!(matches!(outcome, Outcome::Written), "{outcome:?}");
    let answers: Vec<u16> = cluster.writes().iter().map(|w| w.status).collect();
    ensure!(answers == [429, 429, 200], "{answers:?}");
    Ok(())
}
