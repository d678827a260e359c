//! How the real slice controller gets stuck on a Service, and what frees it.
//!
//! Somebody edits or deletes a slice that the controller tracks, in a way that it cannot see the
//! slice any more. From then on it takes its own cache for stale and refuses to sync the Service:
//! no refresh helps, so slice-healer must report it and not touch it.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::json;

use crate::support::controlplane::{ControlPlane, Options};
use crate::support::objects;
use crate::support::stale::{self, PROMPT, Stale};
use crate::support::wait::{Look, eventually};

const SERVICE_NAME: &str = "kubernetes.io/service-name";
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const CONTROLLER: &str = "endpointslice-controller.k8s.io";

/// A wedged Service does not follow its pods, does not answer a refresh, and says why.
async fn assert_wedged(plane: &ControlPlane, state: &mut Stale) -> Result<()> {
    state.lose_pod().await?;
    state.touch("1").await?;
    let key = format!("key=\"{}/{}\"", state.namespace, stale::SERVICE);
    eventually(
        "the controller calls its cache out of date",
        PROMPT,
        async || {
            let log = plane.manager.log();
            let says = |line: &str| line.contains("cache is out of date") && line.contains(&key);
            Ok(match log.lines().any(says) {
                true => Look::Done(()),
                false => Look::NotYet("no such line".into()),
            })
        },
    )
    .await?;
    state.stays_wrong(Duration::from_secs(10)).await?;
    state.touch("2").await?;
    state.stays_wrong(Duration::from_secs(5)).await
}

#[tokio::test]
async fn a_tracked_slice_given_to_another_service_wedges_until_the_label_is_back() -> Result<()> {
    let plane = ControlPlane::shared().await?;
    let mut state = stale::healthy(plane, "wedge-name").await?;
    let names = state
        .label_slices(SERVICE_NAME, Some("somebody-else"))
        .await?;
    assert_wedged(plane, &mut state).await?;
    for name in names {
        let (client, namespace) = (&state.client, &state.namespace);
        let back = Some(stale::SERVICE);
        objects::label_slice(client, namespace, &name, SERVICE_NAME, back).await?;
    }
    state.await_right(PROMPT).await?;
    Ok(())
}

#[tokio::test]
async fn a_tracked_slice_that_lost_its_manager_wedges_until_the_label_is_back() -> Result<()> {
    let plane = ControlPlane::shared().await?;
    let mut state = stale::healthy(plane, "wedge-manager").await?;
    let names = state.label_slices(MANAGED_BY, None).await?;
    assert_wedged(plane, &mut state).await?;
    for name in names {
        let (client, namespace) = (&state.client, &state.namespace);
        objects::label_slice(client, namespace, &name, MANAGED_BY, Some(CONTROLLER)).await?;
    }
    state.await_right(PROMPT).await?;
    Ok(())
}

#[tokio::test]
async fn a_tracked_slice_deleted_behind_a_finalizer_wedges_until_it_is_gone() -> Result<()> {
    let plane = ControlPlane::shared().await?;
    let mut state = stale::healthy(plane, "wedge-finalizer").await?;
    let api: Api<EndpointSlice> = Api::namespaced(state.client.clone(), &state.namespace);
    let finalizers = |list: &[&str]| Patch::Merge(json!({"metadata": {"finalizers": list}}));
    let mut names = Vec::new();
    for slice in state.slices().await? {
        let name = slice.metadata.name.unwrap_or_default();
        let kept = finalizers(&["example.com/keep"]);
        api.patch(&name, &PatchParams::default(), &kept).await?;
        api.delete(&name, &DeleteParams::default()).await?;
        names.push(name);
    }
    ensure!(!names.is_empty(), "no slice to delete");
    assert_wedged(plane, &mut state).await?;
    for name in names {
        api.patch(&name, &PatchParams::default(), &finalizers(&[]))
            .await?;
    }
    state.await_right(PROMPT).await?;
    Ok(())
}

#[tokio::test]
async fn a_slice_deleted_under_another_name_wedges_until_the_controller_restarts() -> Result<()> {
    let plane = ControlPlane::start(Options::default()).await?;
    let mut state = stale::healthy(&plane, "wedge-gone").await?;
    let api: Api<EndpointSlice> = Api::namespaced(state.client.clone(), &state.namespace);
    for name in state
        .label_slices(SERVICE_NAME, Some("somebody-else"))
        .await?
    {
        api.delete(&name, &DeleteParams::default()).await?;
    }
    assert_wedged(&plane, &mut state).await?;
    plane.restart_manager().await?;
    state.await_right(PROMPT).await?;
    Ok(())
}
