//! The scenarios themselves.

use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::json;

use super::stage::{LONG, Stage, refused};
use super::world::{NAMESPACE, SERVICE};
use super::{Outcome, Scenario};
use crate::kube::controller::Refusal;
use crate::kube::{DeleteOptions, object, resource};

/// In the order in which they are listed.
pub(super) static ALL: &[Scenario] = &[
    Scenario {
        name: "redeploy-stale-slice",
        summary: "Model v2.1 replaces v2.0; the slice keeps two old addresses, a refresh is \
                  answered from a cache, only deleting the slice helps.",
        expected: Outcome::Healed,
        script: redeploy_stale_slice,
    },
    Scenario {
        name: "controller-backoff",
        summary: "Writes of the slice controller were refused during a redeployment; it now waits \
                  out its back-off. A refresh is enough.",
        expected: Outcome::Healed,
        script: controller_backoff,
    },
    Scenario {
        name: "missing-slice",
        summary: "After a restart the controller tracks no slice; somebody deletes one by hand and \
                  it does not come back.",
        expected: Outcome::Healed,
        script: missing_slice,
    },
    Scenario {
        name: "controller-down",
        summary: "The slice controller does not run. Deleting a slice would leave the Service \
                  without any, so nothing is deleted.",
        expected: Outcome::Held,
        script: controller_down,
    },
    Scenario {
        name: "foreign-slice",
        summary: "A slice that somebody else manages lists a pod that is gone. It is reported and \
                  never touched.",
        expected: Outcome::Held,
        script: foreign_slice,
    },
    Scenario {
        name: "quiet",
        summary: "A redeployment that goes well. Nothing is stale, nothing is written.",
        expected: Outcome::Healed,
        script: quiet,
    },
];

/// Replaces what is left of v2.0, and asks for v2.1 from then on.
fn redeploy(stage: &Stage) -> Result<(), String> {
    let cluster = stage.world.cluster();
    cluster
        .redeploy(NAMESPACE, SERVICE, "v2.1")
        .map_err(refused)?;
    stage.world.traffic().expect("v2.1");
    stage.say("redeployed", "all three pods run model v2.1");
    Ok(())
}

/// Two old addresses stay beside one new one: a dead one, and one where v2.0 goes on answering.
pub(super) async fn make_stale(stage: &Stage) -> Result<(), String> {
    let world = &stage.world;
    stage.say("redeploy", "model v2.1 replaces v2.0, pod by pod");
    let first = world.cluster().redeploy_one(NAMESPACE, SERVICE, "v2.1");
    first.map_err(refused)?;
    stage.controller_settled().await?;
    // From here on the runtime's cache answers in place of the controller.
    world.controller().cache_hits(NAMESPACE, SERVICE);
    let next = world.cluster().redeploy_one(NAMESPACE, SERVICE, "v2.1");
    if let Some(step) = next.map_err(refused)? {
        // One old container is slow to end and goes on answering.
        let ip = step.old["status"]["podIP"].as_str().unwrap_or_default();
        world.traffic().network().linger(ip, "v2.0");
    }
    redeploy(stage)?;
    stage.controller_settled().await?;
    stage.stale("the slice keeps two old addresses beside one new one")
}

fn redeploy_stale_slice(stage: &Stage) -> BoxFuture<'_, Result<Outcome, String>> {
    Box::pin(async move {
        stage.product_ready().await?;
        make_stale(stage).await?;
        stage
            .until("requests go wrong", LONG, |stage| {
                let total = stage.world.traffic().total();
                total.wrong > 0 && total.failed > 0
            })
            .await?;
        let outcome = stage.healed().await?;
        if stage.product_deletes() == 0 {
            return Err("the slice is right although nobody deleted it".to_owned());
        }
        Ok(outcome)
    })
}

fn controller_backoff(stage: &Stage) -> BoxFuture<'_, Result<Outcome, String>> {
    Box::pin(async move {
        let controller = stage.world.controller();
        stage.product_ready().await?;
        // Where it would be after ten refused retries: far longer than anybody wants to wait.
        controller.back_off_by(Duration::from_secs(512));
        controller.refuse_writes(Some(Refusal::Denied));
        redeploy(stage)?;
        stage.controller_settled().await?;
        controller.refuse_writes(None);
        stage.stale("writes are allowed again, but the controller waits out its back-off")?;
        let outcome = stage.healed().await?;
        no_delete(stage)?;
        Ok(outcome)
    })
}

/// A delete would have been more than was needed.
fn no_delete(stage: &Stage) -> Result<(), String> {
    match stage.product_deletes() {
        0 => Ok(()),
        _ => Err("a slice was deleted although a refresh was enough".to_owned()),
    }
}

fn missing_slice(stage: &Stage) -> BoxFuture<'_, Result<Outcome, String>> {
    Box::pin(async move {
        let world = &stage.world;
        stage.product_ready().await?;
        world.controller().restart();
        stage.controller_settled().await?;
        stage.say(
            "restarted",
            "the controller has restarted and found everything right",
        );
        for slice in world.cluster().slices_of(NAMESPACE, SERVICE) {
            let name = object::name(&slice);
            world
                .cluster()
                .delete(
                    &resource::ENDPOINT_SLICES,
                    NAMESPACE,
                    name,
                    &DeleteOptions::default(),
                )
                .map_err(refused)?;
        }
        stage.stale("somebody deleted the slice, and nobody makes a new one")?;
        let outcome = stage.healed().await?;
        no_delete(stage)?;
        Ok(outcome)
    })
}

fn controller_down(stage: &Stage) -> BoxFuture<'_, Result<Outcome, String>> {
    Box::pin(async move {
        stage.product_ready().await?;
        stage.world.controller().pause();
        stage.say("controller-stops", "kube-controller-manager hangs");
        redeploy(stage)?;
        stage.stale("nobody updates the slice")?;
        stage
            .until(
                "the product says that it holds back",
                LONG,
                Stage::told_held,
            )
            .await?;
        stage
            .throughout("nothing is deleted", Duration::from_secs(5), |stage| {
                stage.product_deletes() == 0
            })
            .await?;
        Ok(Outcome::Held)
    })
}

fn foreign_slice(stage: &Stage) -> BoxFuture<'_, Result<Outcome, String>> {
    Box::pin(async move {
        let cluster = stage.world.cluster();
        stage.product_ready().await?;
        let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"namespace": NAMESPACE, "name": "model-endpoint-mesh", "labels": {
                "kubernetes.io/service-name": SERVICE,
                "endpointslice.kubernetes.io/managed-by": "mesh.example.com"}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": ["10.244.200.9"],
                "conditions": {"ready": true, "serving": true, "terminating": false},
                "targetRef": {"kind": "Pod", "namespace": NAMESPACE, "name": "model-gone",
                    "uid": "00000000-0000-4000-8000-000000000000"}}],
            "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}]});
        cluster.create(slice).map_err(refused)?;
        stage.stale("a mesh's own slice lists a pod that is gone")?;
        stage
            .until("the finding is reported", LONG, |stage| {
                let findings = stage.events("finding");
                findings.iter().any(|event| event["kind"] == "ForeignStale")
            })
            .await?;
        stage
            .throughout("nothing is written", Duration::from_secs(8), |stage| {
                stage.product_writes().is_empty()
            })
            .await?;
        Ok(Outcome::Held)
    })
}

fn quiet(stage: &Stage) -> BoxFuture<'_, Result<Outcome, String>> {
    Box::pin(async move {
        stage.product_ready().await?;
        redeploy(stage)?;
        stage.controller_settled().await?;
        stage
            .throughout("nothing is written", Duration::from_secs(8), |stage| {
                stage.product_writes().is_empty()
            })
            .await?;
        stage
            .until(
                "the twin still says that all is well",
                LONG,
                Stage::told_well,
            )
            .await?;
        Ok(Outcome::Healed)
    })
}
