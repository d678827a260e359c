//! Nodes, pods and Services as plain objects, and what the slices of a Service say.
//!
//! Plays scheduler and kubelet: writes the status that they would have written. Works against any
//! API server that a client reaches, the lab's as well.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::wait::{Look, eventually};

/// The label of the pods and the selector of the Service that these builders make.
pub const APP_LABEL: &str = "app";
/// The annotation whose change makes the controller look at a Service again.
pub const REFRESH: &str = "slice-healer.io/refresh";

/// What a pod of a test differs in.
#[derive(Debug, Clone)]
pub struct PodSeed {
    /// Name, such as `model-v1-a`.
    pub name: String,
    /// Value of the label `app`: the Service it belongs to.
    pub app: String,
    /// Value of the label `version`.
    pub version: String,
    /// The node it is bound to.
    pub node: String,
    /// Its only address.
    pub ip: String,
    /// Whether its Ready condition is True.
    pub ready: bool,
}

/// Accepts that an object was there before.
///
/// # Errors
/// Any other refusal.
pub fn ignore_existing<T>(made: kube::Result<T>) -> kube::Result<()> {
    match made {
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        other => other.map(drop),
    }
}

/// Makes a node that is Ready.
///
/// # Errors
/// When the API server refuses; a node of that name may be there already.
pub async fn create_node(client: &Client, name: &str) -> Result<()> {
    let api: Api<Node> = Api::all(client.clone());
    let node: Node = serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
    }))?;
    ignore_existing(api.create(&PostParams::default(), &node).await)?;
    let status = json!({"status": {
        "conditions": [condition("Ready", true)],
        "addresses": [{"type": "Hostname", "address": name}],
    }});
    api.patch_status(name, &PatchParams::default(), &Patch::Merge(status))
        .await?;
    Ok(())
}

/// Makes a ClusterIP Service that selects `app: name` and has one port, 80 to 8080.
///
/// # Errors
/// When the API server refuses.
pub async fn create_service(client: &Client, namespace: &str, name: &str) -> Result<Service> {
    let api: Api<Service> = Api::namespaced(client.clone(), namespace);
    let service: Service = serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {APP_LABEL: name}},
        "spec": {
            "selector": {APP_LABEL: name},
            "ports": [{"name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP"}],
        },
    }))?;
    Ok(api.create(&PostParams::default(), &service).await?)
}

/// Makes a pod and writes the status that a kubelet would write once its container runs.
///
/// # Errors
/// When the API server refuses.
pub async fn create_pod(client: &Client, namespace: &str, seed: &PodSeed) -> Result<Pod> {
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let image = format!("registry.invalid/model:{}", seed.version);
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {
            "name": seed.name,
            "labels": {APP_LABEL: seed.app, "version": seed.version},
        },
        "spec": {
            "nodeName": seed.node,
            "containers": [{
                "name": "model", "image": image, "ports": [{"name": "http", "containerPort": 8080}],
            }],
        },
    }))?;
    api.create(&PostParams::default(), &pod).await?;
    let status = json!({
        "phase": "Running",
        "podIP": seed.ip,
        "podIPs": [{"ip": seed.ip}],
        "conditions": pod_conditions(seed.ready),
        "containerStatuses": [{
            "name": "model", "image": image, "imageID": "", "restartCount": 0,
            "ready": seed.ready, "started": true, "state": {"running": {}},
        }],
    });
    set_pod_status(client, namespace, &seed.name, status).await
}

fn pod_conditions(ready: bool) -> Value {
    json!([
        condition("Initialized", true),
        condition("PodScheduled", true),
        condition("ContainersReady", ready),
        condition("Ready", ready),
    ])
}

/// Writes what a kubelet would when a probe begins to pass or to fail.
///
/// # Errors
/// When the API server refuses.
pub async fn set_pod_ready(
    client: &Client,
    namespace: &str,
    name: &str,
    ready: bool,
) -> Result<Pod> {
    let status = json!({"conditions": pod_conditions(ready)});
    set_pod_status(client, namespace, name, status).await
}

fn condition(kind: &str, holds: bool) -> Value {
    json!({
        "type": kind,
        "status": if holds { "True" } else { "False" },
        "lastTransitionTime": jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
    })
}

/// Merges `status` into a pod's status.
///
/// # Errors
/// When the API server refuses.
pub async fn set_pod_status(
    client: &Client,
    namespace: &str,
    name: &str,
    status: Value,
) -> Result<Pod> {
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let patch = Patch::Merge(json!({"status": status}));
    Ok(api
        .patch_status(name, &PatchParams::default(), &patch)
        .await?)
}

/// Removes a pod at once: there is no kubelet that would end a grace period.
///
/// # Errors
/// When the API server refuses.
pub async fn delete_pod(client: &Client, namespace: &str, name: &str) -> Result<()> {
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    api.delete(name, &DeleteParams::default().grace_period(0))
        .await?;
    Ok(())
}

/// The slices that carry the Service's name, in order of their names.
///
/// # Errors
/// When the API server refuses.
pub async fn slices(client: &Client, namespace: &str, service: &str) -> Result<Vec<EndpointSlice>> {
    let api: Api<EndpointSlice> = Api::namespaced(client.clone(), namespace);
    let of_service = format!("kubernetes.io/service-name={service}");
    Ok(api
        .list(&ListParams::default().labels(&of_service))
        .await?
        .items)
}

/// The addresses that kube-proxy would route to: those whose `ready` is true or unset.
pub fn routed(slices: &[EndpointSlice]) -> BTreeSet<String> {
    slices
        .iter()
        .flat_map(|slice| slice.endpoints.iter().flatten())
        .filter(|endpoint| endpoint.conditions.as_ref().and_then(|c| c.ready) != Some(false))
        .flat_map(|endpoint| endpoint.addresses.iter().cloned())
        .collect()
}

/// Waits until a Service routes to exactly `expected`; returns how long it took.
///
/// # Errors
/// When `deadline` passes, with what is routed instead.
pub async fn await_routed(
    client: &Client,
    namespace: &str,
    service: &str,
    expected: &BTreeSet<String>,
    deadline: Duration,
) -> Result<Duration> {
    let what = format!("{namespace}/{service} routes to {expected:?}");
    let ((), took) = eventually(&what, deadline, async || {
        let slices = slices(client, namespace, service).await?;
        let seen = routed(&slices);
        Ok(if &seen == expected {
            Look::Done(())
        } else {
            Look::NotYet(format!("{} slices, {seen:?}", slices.len()))
        })
    })
    .await?;
    Ok(took)
}

/// A Service as it is.
///
/// # Errors
/// When the API server refuses.
pub async fn service(client: &Client, namespace: &str, name: &str) -> Result<Service> {
    let api: Api<Service> = Api::namespaced(client.clone(), namespace);
    Ok(api.get(name).await?)
}

/// Changes the refresh annotation of a Service, as slice-healer does; `value` must be new.
///
/// # Errors
/// When the API server refuses.
pub async fn touch_service(
    client: &Client,
    namespace: &str,
    service: &str,
    value: &str,
) -> Result<()> {
    let api: Api<Service> = Api::namespaced(client.clone(), namespace);
    let patch = Patch::Merge(json!({"metadata": {"annotations": {REFRESH: value}}}));
    api.patch(service, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Sets or (with `None`) removes a label of a slice.
///
/// # Errors
/// When the API server refuses.
pub async fn label_slice(
    client: &Client,
    namespace: &str,
    slice: &str,
    label: &str,
    value: Option<&str>,
) -> Result<()> {
    let api: Api<EndpointSlice> = Api::namespaced(client.clone(), namespace);
    let patch = Patch::Merge(json!({"metadata": {"labels": {label: value}}}));
    api.patch(slice, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Deletes every slice of a Service and waits until none of them is there; returns their names.
///
/// # Errors
/// When the API server refuses, or one is still there after 30 s.
pub async fn delete_slices(client: &Client, namespace: &str, service: &str) -> Result<Vec<String>> {
    let api: Api<EndpointSlice> = Api::namespaced(client.clone(), namespace);
    let mut names = Vec::new();
    for slice in slices(client, namespace, service).await? {
        let name = slice.metadata.name.context("a slice without a name")?;
        api.delete(&name, &DeleteParams::default()).await?;
        names.push(name);
    }
    eventually("deleted slices go", Duration::from_secs(30), async || {
        let left = slices(client, namespace, service).await?;
        let left: Vec<_> = left
            .into_iter()
            .filter_map(|slice| slice.metadata.name)
            .filter(|name| names.contains(name))
            .collect();
        Ok(if left.is_empty() {
            Look::Done(())
        } else {
            Look::NotYet(format!("{left:?}"))
        })
    })
    .await?;
    Ok(names)
}
