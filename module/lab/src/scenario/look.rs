//! How the model server's slices stand against its pods, by looking from outside: addresses only.

use std::collections::BTreeSet;

use super::world::{NAMESPACE, SERVICE, World};
use crate::kube::{Cluster, Selector, object, resource};
use crate::traffic::Backend;

/// How an endpoint of a slice stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// A ready pod of the Service has this address.
    Right,
    /// A container still answers there, but its pod is gone.
    Old,
    /// Nobody is there.
    Gone,
}

/// One endpoint of a slice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Name of the slice.
    pub slice: String,
    /// Its address.
    pub address: String,
    /// Name of the pod that it points to, if it says.
    pub pod: String,
    /// Version that answers there, empty where nobody does.
    pub version: String,
    /// How it stands.
    pub standing: Standing,
}

/// The endpoints of the Service's slices.
pub(super) fn endpoints(world: &World) -> Vec<Endpoint> {
    let live = live(world.cluster());
    let mut found = Vec::new();
    for slice in world.cluster().slices_of(NAMESPACE, SERVICE) {
        let port = slice["ports"][0]["port"].as_u64().unwrap_or_default();
        let port = u16::try_from(port).unwrap_or_default();
        for endpoint in object::list(&slice["endpoints"]) {
            let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
            let address = text(&endpoint["addresses"][0]);
            let backend = Backend {
                ip: address.clone(),
                port,
            };
            let reply = world.traffic().network().reach(&backend);
            let standing = if live.contains(&address) {
                Standing::Right
            } else if reply.is_some() {
                Standing::Old
            } else {
                Standing::Gone
            };
            found.push(Endpoint {
                slice: object::name(&slice).to_owned(),
                pod: text(&endpoint["targetRef"]["name"]),
                version: reply.map(|reply| reply.version).unwrap_or_default(),
                address,
                standing,
            });
        }
    }
    found
}

/// Addresses of the Service's ready pods.
pub(super) fn live(cluster: &Cluster) -> BTreeSet<String> {
    let pods = cluster.select(
        &resource::PODS,
        NAMESPACE,
        &Selector::labels([("app", SERVICE)]),
    );
    pods.iter()
        .filter(|pod| object::condition(pod, "Ready") == Some("True") && !object::deleting(pod))
        .filter_map(|pod| pod["status"]["podIP"].as_str().map(str::to_owned))
        .collect()
}

/// Whether the slices route to the ready pods and to nobody else.
pub(super) fn right(cluster: &Cluster) -> bool {
    let routed: BTreeSet<String> = cluster
        .slices_of(NAMESPACE, SERVICE)
        .iter()
        .flat_map(|slice| object::list(&slice["endpoints"]).to_vec())
        .filter(|endpoint| endpoint["conditions"]["ready"] != false)
        .filter_map(|endpoint| endpoint["addresses"][0].as_str().map(str::to_owned))
        .collect();
    routed == live(cluster)
}
