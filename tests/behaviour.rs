//! What slice-healer does, on the lab's cluster and on the real control plane: one script each, run
//! on both. A difference between the two is a fault of the lab.

use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::support::ground::Ground;
use crate::support::module::Setup;
use crate::support::objects;
use crate::support::stale::{PROMPT, SERVICE, Stale, healthy_in};
use crate::support::wait::{Look, eventually, throughout};

/// How long a heal may take, with all of its waits and a slow machine.
const HEAL: Duration = Duration::from_secs(90);
/// How long it is watched that nothing happens: past grace and first step.
const QUIET: Duration = Duration::from_secs(9);

/// Makes a test of each script for each cluster.
macro_rules! on_both {
    ($($script:ident),* $(,)?) => {
        mod lab {
            $(#[tokio::test] async fn $script() -> anyhow::Result<()> {
                super::$script(&super::Ground::lab().await?).await
            })*
        }
        mod real {
            $(#[tokio::test] async fn $script() -> anyhow::Result<()> {
                super::$script(&super::Ground::real().await?).await
            })*
        }
    };
}

on_both!(
    a_finished_pod_is_taken_out_by_a_refresh,
    a_slice_that_is_gone_is_brought_back,
    the_delete_rung_leaves_a_slice_behind,
    what_others_own_or_opted_out_is_left_alone,
    the_command_line_heals_once_and_then_finds_nothing,
);

async fn state(ground: &Ground, stem: &str) -> Result<Stale> {
    let state = healthy_in(ground.client().await?, ground.namespace(stem).await?).await?;
    ground.settle().await?;
    Ok(state)
}

async fn setup(ground: &Ground) -> Result<Setup> {
    Ok(Setup::new(&ground.kubeconfig().await?).set("SCOPE__LOCALITY", "cluster"))
}

async fn a_finished_pod_is_taken_out_by_a_refresh(ground: &Ground) -> Result<()> {
    let mut state = state(ground, "finished").await?;
    let name = |s: &EndpointSlice| s.metadata.name.clone().unwrap_or_default();
    let before: Vec<String> = state.slices().await?.iter().map(name).collect();
    state.finish_pod(0).await?;
    let mut module = setup(ground).await?.start()?;
    state
        .await_right(HEAL)
        .await
        .with_context(|| module.log())?;
    let line = module
        .await_line(&["kind=heal", "outcome=healed"], HEAL)
        .await?;
    ensure!(line.contains("refresh-service"), "{line}");
    let after: Vec<String> = state.slices().await?.iter().map(name).collect();
    ensure!(
        before == after,
        "a refresh takes no slice away: {before:?}, {after:?}"
    );
    Ok(())
}

async fn a_slice_that_is_gone_is_brought_back(ground: &Ground) -> Result<()> {
    let state = state(ground, "gone").await?;
    ground.restart_controller().await?;
    state.delete_slices().await?;
    state.stays_without_slices(Duration::from_secs(5)).await?;
    let mut module = setup(ground).await?.start()?;
    state
        .await_right(HEAL)
        .await
        .with_context(|| module.log())?;
    module
        .await_line(&["kind=heal", "outcome=healed"], HEAL)
        .await?;
    Ok(())
}

async fn the_delete_rung_leaves_a_slice_behind(ground: &Ground) -> Result<()> {
    let mut state = state(ground, "rung").await?;
    ground.restart_controller().await?;
    state.finish_pod(0).await?;
    state.finish_pod(1).await?;
    let mut module = setup(ground)
        .await?
        .set("SCOPE__NAMESPACES", &state.namespace)
        .set("LADDER", "delete-slice")
        .set("GRACE__DELETE", "PT6S")
        .start()?;
    // On a machine that is busy the canary may be late; then the delete is held and comes later.
    module
        .await_line(&["kind=heal", "outcome=healed", "delete-slice"], HEAL * 2)
        .await?;
    state.await_right(PROMPT).await?;
    ensure!(state.slices().await?.len() == 1);
    Ok(())
}

async fn what_others_own_or_opted_out_is_left_alone(ground: &Ground) -> Result<()> {
    let mut ours = state(ground, "theirs").await?;
    let api: Api<EndpointSlice> = Api::namespaced(ours.client.clone(), &ours.namespace);
    let foreign: EndpointSlice = serde_json::from_value(json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": "by-hand", "labels": {"kubernetes.io/service-name": SERVICE,
            "endpointslice.kubernetes.io/managed-by": "somebody.example.com"}},
        "endpoints": [{"addresses": ["10.9.9.9"], "conditions": {"ready": true},
            "targetRef": {"kind": "Pod", "namespace": ours.namespace, "name": "nobody", "uid": "u"}}],
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}]}))?;
    let made = api.create(&PostParams::default(), &foreign).await?;
    let services: Api<k8s_openapi::api::core::v1::Service> =
        Api::namespaced(ours.client.clone(), &ours.namespace);
    let opt_out = json!({"metadata": {"annotations": {"slice-healer.io/ignore": "true"}}});
    services
        .patch(SERVICE, &PatchParams::default(), &Patch::Merge(&opt_out))
        .await?;
    ground.restart_controller().await?;
    ours.finish_pod(0).await?;
    let mut module = setup(ground).await?.start()?;
    module
        .await_line(&["kind=finding", SERVICE], PROMPT)
        .await?;
    throughout("nothing is written", QUIET, async || {
        let service = objects::service(&ours.client, &ours.namespace, SERVICE).await?;
        let annotations = service.metadata.annotations.unwrap_or_default();
        let now = api.get("by-hand").await?;
        let touched = annotations.contains_key("slice-healer.io/refresh")
            || now.metadata.resource_version != made.metadata.resource_version;
        Ok(match touched {
            false => Look::Done(()),
            true => Look::NotYet(format!("{annotations:?} {:?}", now.metadata)),
        })
    })
    .await
}

async fn the_command_line_heals_once_and_then_finds_nothing(ground: &Ground) -> Result<()> {
    let mut state = state(ground, "by-hand").await?;
    state.finish_pod(0).await?;
    let kubeconfig = ground.kubeconfig().await?;
    let folder = tempfile::TempDir::new()?;
    let namespace = state.namespace.clone();
    let run = async |args: &[&str]| -> Result<Output> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_slice-healer"));
        command
            .args(args)
            .args(["-n", &namespace])
            .env("SLICE_HEALER__CLUSTER__KUBECONFIG", &kubeconfig)
            .env("SLICE_HEALER__STORE__DIRECTORY", folder.path());
        let output = tokio::task::spawn_blocking(move || command.output()).await??;
        Ok(output)
    };
    let inspected = run(&["inspect", "-o", "json"]).await?;
    let report: serde_json::Value = serde_json::from_slice(&inspected.stdout)?;
    ensure!(inspected.status.code() == Some(1), "{report}");
    ensure!(report["findings"][0]["kind"] == "TerminalPod", "{report}");

    let dry = run(&["heal", SERVICE, "--dry-run"]).await?;
    ensure!(dry.status.code() == Some(1), "{dry:?}");
    ensure!(
        String::from_utf8_lossy(&dry.stdout).contains("slice-healer.io/refresh"),
        "{dry:?}"
    );
    state.stays_wrong(Duration::from_secs(1)).await?;

    let swept = run(&["sweep", "--older-than", "1h", "--yes"]).await?;
    ensure!(swept.status.success(), "no slice is that old: {swept:?}");
    state.stays_wrong(Duration::from_secs(1)).await?;

    let healed = run(&["heal", SERVICE, "--yes"]).await?;
    ensure!(healed.status.success(), "{healed:?}");
    state.await_right(PROMPT).await?;
    let again = run(&["heal", SERVICE, "--yes"]).await?;
    ensure!(again.status.success(), "{again:?}");
    ensure!(
        String::from_utf8_lossy(&again.stdout).contains("nothing to do"),
        "{again:?}"
    );
    let unknown = run(&["heal", "nobody", "--yes"]).await?;
    ensure!(unknown.status.code() == Some(2), "{unknown:?}");

    // After a deployment everything stale that is older than it is swept.
    ground.settle().await?;
    state.finish_pod(1).await?;
    eventually("the slice is a second old", PROMPT, async || {
        let oldest = state
            .slices()
            .await?
            .into_iter()
            .filter_map(|s| s.metadata.creation_timestamp);
        let age = oldest
            .map(|t| jiff::Timestamp::now().duration_since(t.0).as_secs())
            .max();
        Ok(match age {
            Some(age) if age >= 2 => Look::Done(()),
            age => Look::NotYet(format!("{age:?}")),
        })
    })
    .await?;
    let swept = run(&["sweep", "--older-than", "1s", "--yes"]).await?;
    ensure!(swept.status.success(), "{swept:?}");
    state.await_right(PROMPT).await?;
    Ok(())
}
