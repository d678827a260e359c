//! What the controller remembers, forgets and does wrong on demand.

use std::time::Duration;

use serde_json::json;

use super::super::super::resource::{ENDPOINT_SLICES, LEASES, SERVICES};
use super::super::super::{DeleteOptions, object};
use super::super::{CACHE_HIT, MANAGER, Refusal};
use super::Rig;

#[tokio::test]
async fn a_tracked_slice_comes_back_and_an_untracked_one_does_not() {
    let rig = Rig::new().await;
    let slice = rig.deployed().await;
    rig.delete(&slice);
    rig.until(|rig| !rig.slices().is_empty()).await;
    rig.settle().await;
    let again = rig.only_slice();
    assert_ne!(object::uid(&again), object::uid(&slice));

    // After a restart the right slice is not written, so it is not tracked.
    rig.controller.restart();
    rig.settle().await;
    assert_eq!(*rig.only_slice(), *again);
    rig.delete(&again);
    rig.settle().await;
    assert_eq!(rig.slices().len(), 0, "nobody was woken");
    rig.touch("1");
    rig.until(|rig| rig.slices().len() == 1).await;
    assert_eq!(rig.addresses(), rig.pod_addresses());
}

#[tokio::test]
async fn a_refresh_rewrites_what_is_wrong_and_leaves_what_is_right() {
    let rig = Rig::new().await;
    let slice = rig.deployed().await;
    let before = rig.controller.writes();
    rig.touch("1");
    rig.settle().await;
    assert_eq!(rig.controller.writes(), before);
    assert_eq!(*rig.only_slice(), *slice);

    // A hand's edit raises the generation, and the controller puts it right by itself.
    let name = object::name(&slice).to_owned();
    let edit = json!({"metadata": {"labels": {"slice-healer.io/canary": "x"}},
        "endpoints": [{"addresses": ["10.9.9.9"]}]});
    rig.cluster
        .patch(&ENDPOINT_SLICES, "line1", &name, &edit)
        .unwrap();
    rig.until(|rig| {
        rig.addresses() == rig.pod_addresses()
            && object::label(&rig.only_slice(), "slice-healer.io/canary").is_none()
    })
    .await;
}

#[tokio::test]
async fn a_cache_hit_lasts_until_the_slice_is_deleted() {
    let rig = Rig::new().await;
    rig.deployed().await;
    rig.cluster
        .redeploy_one("line1", "model-endpoint", "v2.1")
        .unwrap()
        .unwrap();
    rig.settle().await;
    assert_eq!(rig.addresses(), rig.pod_addresses());
    rig.controller.cache_hits("line1", "model-endpoint");
    rig.cluster
        .redeploy("line1", "model-endpoint", "v2.1")
        .unwrap();
    rig.settle().await;
    let stale = rig.only_slice();
    let live = rig.pod_addresses();
    assert_eq!(rig.addresses().intersection(&live).count(), 1);
    assert_eq!(rig.addresses().difference(&live).count(), 2);

    let said = rig.log().len();
    rig.touch("1");
    rig.settle().await;
    assert_eq!(*rig.only_slice(), *stale);
    assert_eq!(rig.log()[said..], [CACHE_HIT]);

    rig.delete(&stale);
    rig.until(|rig| rig.slices().len() == 1).await;
    assert_eq!(rig.addresses(), live);
}

#[tokio::test]
async fn refused_writes_back_off_and_a_refresh_cuts_the_wait() {
    let rig = Rig::new().await;
    rig.deployed().await;
    rig.controller.back_off_by(Duration::from_secs(512));
    rig.controller.refuse_writes(Some(Refusal::Denied));
    rig.cluster
        .redeploy("line1", "model-endpoint", "v2.1")
        .unwrap();
    rig.settle().await;
    let old = rig.addresses();
    assert_ne!(old, rig.pod_addresses());
    let log = rig.log().join("\n");
    assert!(
        log.contains(
            "\"Error syncing endpoint slices for service, retrying\" key=\"line1/model-endpoint\""
        ) && log.contains("denied request"),
        "{log}"
    );
    let events = rig
        .cluster
        .list(&super::super::super::resource::EVENTS, Some("line1"));
    assert_eq!(events[0]["reason"], "FailedToUpdateEndpointSlices");

    // The ban is lifted, and the controller waits all the same.
    rig.controller.refuse_writes(None);
    rig.settle().await;
    assert_eq!(rig.addresses(), old);
    rig.touch("1");
    rig.until(|rig| rig.addresses() == rig.pod_addresses())
        .await;
}

#[tokio::test]
async fn a_service_is_given_up_after_its_retries() {
    let mut options = super::super::ControllerOptions::quick();
    options.backoff = Duration::from_millis(1);
    options.retries = 3;
    let rig = Rig::with(options).await;
    rig.deployed().await;
    rig.controller.refuse_writes(Some(Refusal::Conflict));
    rig.cluster
        .redeploy_one("line1", "model-endpoint", "v2.1")
        .unwrap();
    rig.cluster
        .wait_for(super::LONG, |_| {
            rig.log()
                .iter()
                .any(|line| line.contains("Retry budget exceeded"))
                .then_some(())
        })
        .await
        .unwrap();
    rig.controller.refuse_writes(None);
    rig.settle().await;
    assert_ne!(rig.addresses(), rig.pod_addresses());
}

#[tokio::test]
async fn a_relabelled_slice_wedges_its_service_until_it_is_restored() {
    let rig = Rig::new().await;
    let slice = rig.deployed().await;
    let name = object::name(&slice).to_owned();
    let manager = |value: serde_json::Value| {
        let patch = json!({"metadata": {"labels": {
            "endpointslice.kubernetes.io/managed-by": value}}});
        rig.cluster
            .patch(&ENDPOINT_SLICES, "line1", &name, &patch)
            .unwrap();
    };
    manager(json!("somebody-else"));
    rig.until(|rig| rig.log().iter().any(|l| l.contains("cache is out of date")))
        .await;
    rig.cluster
        .redeploy("line1", "model-endpoint", "v2.1")
        .unwrap();
    rig.settle().await;
    assert_ne!(rig.addresses(), rig.pod_addresses());
    manager(json!(MANAGER));
    rig.until(|rig| rig.addresses() == rig.pod_addresses())
        .await;
}

#[tokio::test]
async fn a_finalizer_on_a_deleted_slice_wedges_too() {
    let rig = Rig::new().await;
    let slice = rig.deployed().await;
    let hold = |value: serde_json::Value| {
        let patch = json!({"metadata": {"finalizers": value}});
        let name = object::name(&slice);
        rig.cluster
            .patch(&ENDPOINT_SLICES, "line1", name, &patch)
            .unwrap();
    };
    hold(json!(["example.com/hold"]));
    rig.delete(&slice);
    rig.touch("1");
    rig.until(|rig| rig.log().iter().any(|l| l.contains("cache is out of date")))
        .await;
    assert_eq!(object::uid(&rig.slices()[0]), object::uid(&slice));
    hold(json!(null));
    rig.until(|rig| rig.slices().len() == 1 && rig.addresses() == rig.pod_addresses())
        .await;
}

#[tokio::test]
async fn slices_of_a_predecessor_are_replaced() {
    let rig = Rig::new().await;
    let slice = rig.deployed().await;
    rig.cluster.set_garbage_collector(false);
    rig.cluster
        .delete(
            &SERVICES,
            "line1",
            "model-endpoint",
            &DeleteOptions::default(),
        )
        .unwrap();
    rig.cluster.add_service("line1", "model-endpoint").unwrap();
    rig.until(|rig| {
        let slices = rig.slices();
        slices.len() == 1 && object::uid(&slices[0]) != object::uid(&slice)
    })
    .await;
    assert_eq!(rig.addresses(), rig.pod_addresses());
}

#[tokio::test]
async fn a_paused_controller_catches_up_and_its_lease_stands_still() {
    let rig = Rig::new().await;
    rig.deployed().await;
    let lease = || {
        rig.cluster
            .get(&LEASES, "kube-system", "kube-controller-manager")
            .map(|lease| lease["spec"]["renewTime"].clone())
    };
    rig.until(|_| lease().is_some()).await;
    rig.controller.pause();
    rig.settle().await;
    let renewed = lease();
    rig.cluster
        .redeploy("line1", "model-endpoint", "v2.1")
        .unwrap();
    assert!(!rig.controller.settle(Duration::from_millis(600)).await);
    assert_ne!(rig.addresses(), rig.pod_addresses());
    assert_eq!(lease(), renewed);
    rig.controller.resume();
    rig.settle().await;
    assert_eq!(rig.addresses(), rig.pod_addresses());
}

#[tokio::test]
async fn creates_are_withheld_for_a_time() {
    let rig = Rig::new().await;
    let slice = rig.deployed().await;
    rig.controller.withhold_creates(Duration::from_millis(700));
    rig.delete(&slice);
    rig.until(|rig| rig.slices().is_empty()).await;
    rig.touch("1");
    let early = rig
        .cluster
        .wait_for(Duration::from_millis(300), |_| {
            (!rig.slices().is_empty()).then_some(())
        })
        .await;
    assert!(early.is_none());
    rig.until(|rig| rig.slices().len() == 1).await;
    assert_eq!(rig.addresses(), rig.pod_addresses());
}
