//! Every action of the product, under its own account, on the real API server.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt as _;
use kube::api::{Api, PostParams};
use serde_json::json;
use slice_core::event::{Act, Action, ActionId, CanaryAnswer, LeaseAnswer, Outcome, Snapshot};
use slice_core::model::ServiceKey;
use slice_healer::act::recorder::{Note, Recorder};
use slice_healer::act::{Actor, Options};
use slice_healer::client::Supply;

use crate::support::controlplane::ControlPlane;
use crate::support::product::{NAME, account};
use crate::support::stale::{self, SERVICE};
use crate::support::{objects, wait::Look, wait::eventually};

const DEADLINE: Duration = Duration::from_secs(30);

async fn run(actor: &Actor, act: Act) -> Outcome {
    let (id, deadline) = (ActionId(1), DEADLINE);
    actor.run(Action { id, deadline, act }).await
}

async fn read(actor: &Actor, service: &ServiceKey) -> Result<Snapshot> {
    let service = service.clone();
    match run(actor, Act::Read { service }).await {
        Outcome::Snapshot(snapshot) => Ok(*snapshot),
        other => bail!("not read: {other:?}"),
    }
}

#[tokio::test]
async fn a_read_brings_all_that_a_service_is_judged_on() -> Result<()> {
    let plane = ControlPlane::shared().await?;
    let state = stale::healthy(plane, "rights-read").await?;
    let actor = Actor::new(Supply::fixed(account(plane).await?), Options::new("test"));
    let key = ServiceKey::new(state.namespace.as_str(), SERVICE);
    let seen = read(&actor, &key).await?;
    ensure!(
        seen.service
            .as_ref()
            .is_some_and(|s| s.selector().is_some()),
        "{seen:?}"
    );
    ensure!(
        seen.namespace.is_some() && seen.endpoints.is_some(),
        "{seen:?}"
    );
    ensure!(seen.pods.len() == 3 && seen.slices.len() == 1, "{seen:?}");
    let nodes: Vec<&str> = seen.nodes.iter().map(|n| n.meta.name.as_ref()).collect();
    ensure!(nodes == [state.node.as_str()], "{nodes:?}");
    let raw = seen.raw_slices.values().next();
    let raw = raw.ok_or_else(|| anyhow::anyhow!("no raw slice"))?;
    ensure!(
        raw["kind"] == "EndpointSlice" && raw["metadata"]["managedFields"].is_null(),
        "{raw}"
    );

    let nothing = read(&actor, &ServiceKey::new(state.namespace.as_str(), "none")).await?;
    ensure!(
        nothing.service.is_none() && nothing.slices.is_empty(),
        "{nothing:?}"
    );
    Ok(())
}

#[tokio::test]
async fn a_pod_that_only_a_slice_names_is_read_as_well() -> Result<()> {
    let plane = ControlPlane::shared().await?;
    let client = plane.client().await?;
    let space = plane.namespace("rights-named").await?;
    let node = format!("node-{space}");
    objects::create_node(&client, &node).await?;
    objects::create_service(&client, &space, "web").await?;
    let seed = objects::PodSeed {
        name: "stray".into(),
        app: "other".into(),
        version: "1".into(),
        node: node.clone(),
        ip: "10.244.9.9".into(),
        ready: true,
    };
    objects::create_pod(&client, &space, &seed).await?;
    let slice = json!({
        "metadata": {"name": "own-made", "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4",
        "endpoints": [
            {"addresses": ["10.244.9.9"], "targetRef": {"kind": "Pod", "namespace": space, "name": "stray"}},
            {"addresses": ["10.244.9.8"], "targetRef": {"kind": "Pod", "namespace": space, "name": "gone"}},
        ],
    });
    let slices: Api<EndpointSlice> = Api::namespaced(client, &space);
    slices
        .create(&PostParams::default(), &serde_json::from_value(slice)?)
        .await?;
    let actor = Actor::new(Supply::fixed(account(plane).await?), Options::new("test"));
    let seen = read(&actor, &ServiceKey::new(space.as_str(), "web")).await?;
    let pods: Vec<&str> = seen.pods.iter().map(|p| p.meta.name.as_ref()).collect();
    ensure!(pods == ["stray"], "{pods:?}");
    ensure!(
        seen.nodes.iter().any(|n| n.meta.name.as_ref() == node),
        "{:?}",
        seen.nodes
    );
    Ok(())
}

#[tokio::test]
async fn a_refresh_is_accepted_for_this_service_and_no_later_one() -> Result<()> {
    let plane = ControlPlane::shared().await?;
    let state = stale::healthy(plane, "rights-refresh").await?;
    let actor = Actor::new(Supply::fixed(account(plane).await?), Options::new("test"));
    let key = ServiceKey::new(state.namespace.as_str(), SERVICE);
    let seen = read(&actor, &key).await?;
    let uid = seen
        .service
        .map(|s| s.meta.uid.to_string())
        .unwrap_or_default();
    let refresh = |service: &ServiceKey, uid: &str| Act::Refresh {
        service: service.clone(),
        uid: uid.to_owned(),
        value: "i-1".to_owned(),
    };
    let done = run(&actor, refresh(&key, &uid)).await;
    ensure!(matches!(done, Outcome::Written), "{done:?}");
    let services: Api<Service> = Api::namespaced(plane.client().await?, &state.namespace);
    let value = services
        .get(SERVICE)
        .await?
        .annotations()
        .get("slice-healer.io/refresh")
        .cloned();
    ensure!(value.as_deref() == Some("i-1"), "{value:?}");

    let other = run(
        &actor,
        refresh(&key, "6a3c6a6e-3c6f-4a4c-9d3b-0123456789ab"),
    )
    .await;
    ensure!(matches!(&other, Outcome::Conflict(_)), "{other:?}");
    let none = run(
        &actor,
        refresh(&ServiceKey::new(state.namespace.as_str(), "none"), &uid),
    )
    .await;
    ensure!(matches!(none, Outcome::Gone), "{none:?}");
    Ok(())
}

#[tokio::test]
async fn a_delete_takes_only_the_version_that_was_judged() -> Result<()> {
    let plane = ControlPlane::shared().await?;
    let state = stale::healthy(plane, "rights-delete").await?;
    let actor = Actor::new(Supply::fixed(account(plane).await?), Options::new("test"));
    let key = ServiceKey::new(state.namespace.as_str(), SERVICE);
    let seen = read(&actor, &key).await?;
    let slice = seen
        .slices
        .first()
        .ok_or_else(|| anyhow::anyhow!("no slice"))?
        .clone();
    let delete = |uid: &str, resource_version: &str| Act::Delete {
        service: key.clone(),
        slice: slice.meta.name.to_string(),
        uid: uid.to_owned(),
        resource_version: resource_version.to_owned(),
    };
    let (uid, version) = (
        slice.meta.uid.as_ref(),
        slice.meta.resource_version.as_ref(),
    );
    let old = run(&actor, delete(uid, "1")).await;
    ensure!(matches!(&old, Outcome::Conflict(_)), "{old:?}");
    let other = run(
        &actor,
        delete("6a3c6a6e-3c6f-4a4c-9d3b-0123456789ab", version),
    )
    .await;
    ensure!(matches!(&other, Outcome::Conflict(_)), "{other:?}");
    let done = run(&actor, delete(uid, version)).await;
    ensure!(matches!(done, Outcome::Written), "{done:?}");
    let again = run(&actor, delete(uid, version)).await;
    ensure!(matches!(again, Outcome::Gone), "{again:?}");
    Ok(())
}

#[tokio::test]
async fn the_canary_is_answered_by_a_controller_that_works_and_by_no_other() -> Result<()> {
    let plane = ControlPlane::start(Default::default()).await?;
    let supply = Supply::fixed(account(&plane).await?);
    let actor = Actor::new(supply.clone(), Options::new("test"));
    // The controller makes the canary's slice a moment after the Service.
    eventually("the canary has a slice", DEADLINE, async || {
        Ok(match run(&actor, Act::Canary).await {
            Outcome::Canary(CanaryAnswer::Answered) => Look::Done(()),
            other => Look::NotYet(format!("{other:?}")),
        })
    })
    .await?;
    plane.manager.pause()?;
    let paused = run(&actor, Act::Canary).await;
    ensure!(
        matches!(paused, Outcome::Canary(CanaryAnswer::Unanswered)),
        "{paused:?}"
    );
    plane.manager.resume()?;

    let services: Api<Service> = Api::namespaced(plane.client().await?, NAME);
    services.delete(NAME, &Default::default()).await?;
    let absent = run(&actor, Act::Canary).await;
    let Outcome::Canary(CanaryAnswer::Absent(text)) = absent else {
        bail!("{absent:?}")
    };
    ensure!(text.contains("config/kubernetes"), "{text}");
    Ok(())
}

#[tokio::test]
async fn the_lease_has_one_holder_until_it_is_given_back_or_has_ended() -> Result<()> {
    let plane = ControlPlane::start(Default::default()).await?;
    let supply = Supply::fixed(account(&plane).await?);
    let one = Actor::new(supply.clone(), Options::new("one"));
    let two = Actor::new(supply.clone(), Options::new("two"));
    let taken = |outcome: &Outcome| matches!(outcome, Outcome::Lease(LeaseAnswer::Taken));
    let first = run(&one, Act::TakeLease).await;
    ensure!(taken(&first), "{first:?}");
    let again = run(&one, Act::TakeLease).await;
    ensure!(taken(&again), "taken again by its holder: {again:?}");
    let held = run(&two, Act::TakeLease).await;
    let Outcome::Lease(LeaseAnswer::HeldBy(holder)) = held else {
        bail!("{held:?}")
    };
    ensure!(holder == one.holder(), "{holder}");
    let not_his = run(&two, Act::ReleaseLease).await;
    ensure!(matches!(not_his, Outcome::Conflict(_)), "{not_his:?}");
    let given = run(&one, Act::ReleaseLease).await;
    ensure!(matches!(given, Outcome::Written), "{given:?}");

    // A holder that dies: its time ends, and the next one takes over.
    let mut options = Options::new("short");
    options.lease = Duration::from_secs(1);
    let short = Actor::new(supply, options);
    ensure!(taken(&run(&short, Act::TakeLease).await));
    eventually("the Lease ends", DEADLINE, async || {
        let outcome = run(&two, Act::TakeLease).await;
        Ok(if taken(&outcome) {
            Look::Done(())
        } else {
            Look::NotYet(format!("{outcome:?}"))
        })
    })
    .await?;
    let late = run(&short, Act::TakeLease).await;
    ensure!(
        matches!(late, Outcome::Lease(LeaseAnswer::HeldBy(_))),
        "{late:?}"
    );
    Ok(())
}

#[tokio::test]
async fn of_many_that_take_the_lease_at_once_one_gets_it() -> Result<()> {
    let plane = ControlPlane::start(Default::default()).await?;
    let supply = Supply::fixed(account(&plane).await?);
    for round in 0..5 {
        let actors: Vec<Actor> = (0..5)
            .map(|n| Actor::new(supply.clone(), Options::new(format!("a{n}"))))
            .collect();
        let all = actors.iter().map(|a| run(a, Act::TakeLease));
        let all = futures::future::join_all(all).await;
        let winners: Vec<usize> = (0..5)
            .filter(|n| matches!(all[*n], Outcome::Lease(LeaseAnswer::Taken)))
            .collect();
        ensure!(winners.len() == 1, "round {round}: {all:?}");
        let given = run(&actors[winners[0]], Act::ReleaseLease).await;
        ensure!(
            matches!(given, Outcome::Written),
            "round {round}: {given:?}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn an_event_is_told_on_the_service() -> Result<()> {
    let plane = ControlPlane::shared().await?;
    let state = stale::healthy(plane, "rights-event").await?;
    let recorder = Recorder::new(Supply::fixed(account(plane).await?), "test");
    let services: Api<Service> = Api::namespaced(plane.client().await?, &state.namespace);
    let note = Note {
        service: ServiceKey::new(state.namespace.as_str(), SERVICE),
        uid: services.get(SERVICE).await?.uid().unwrap_or_default(),
        warning: false,
        reason: "Healed".into(),
        action: "RefreshService".into(),
        text: "The slices are right again.".into(),
    };
    recorder
        .record(&note, DEADLINE)
        .await
        .map_err(anyhow::Error::msg)?;
    let events: Api<k8s_openapi::api::events::v1::Event> =
        Api::namespaced(plane.client().await?, &state.namespace);
    let found = events.list(&Default::default()).await?.items;
    ensure!(
        found.iter().any(|e| e.reason.as_deref() == Some("Healed")),
        "{found:?}"
    );
    Ok(())
}
