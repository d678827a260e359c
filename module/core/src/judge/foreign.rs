//! Slices that somebody else writes, and the API server's own. Only what can be known from outside
//! is judged, and nothing of it is ever written to.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use super::bench::{Bench, endpoint_json, none};
use super::finding::{Finding, FindingKind, Severity};
use crate::model::{Endpoint, Kind, Manager, Node, Service, Slice};

/// Stale entries in the slices of others.
pub(super) fn judge(bench: &Bench<'_>, out: &mut Vec<Finding>) {
    let owned_here = |s: &Slice| {
        bench.service().is_some_and(|svc| {
            svc.is_controlled() && s.owning_service().is_some_and(|o| o.uid == svc.meta.uid)
        })
    };
    let judged = |s: &Slice| {
        let foreign = match s.manager() {
            Manager::Other(_) => true,
            Manager::Unmarked => !owned_here(s),
            Manager::Controller | Manager::Mirroring => false,
        };
        // A slice of another cluster's pods cannot be judged here.
        let elsewhere = s
            .meta
            .labels
            .get("multicluster.kubernetes.io/source-cluster")
            .is_some();
        foreign && !elsewhere && !s.meta.is_deleting()
    };
    let slices: Vec<&Slice> = bench.slices.iter().copied().filter(|s| judged(s)).collect();
    if slices.is_empty() {
        return;
    }
    let holders = node_holders(bench);
    for slice in slices {
        for endpoint in &slice.endpoints {
            let why = gone_pod(bench, endpoint)
                .or_else(|| gone_node(bench, endpoint, &holders))
                .or_else(|| no_node_has(bench, endpoint, &holders));
            if let Some(why) = why {
                out.push(stale(bench, slice, endpoint, &why));
            }
        }
    }
}

/// The slices of `default/kubernetes`, which the API servers write.
pub(super) fn kubernetes(bench: &Bench<'_>, out: &mut Vec<Finding>) {
    let holders = node_holders(bench);
    if !bench.view.seen(Kind::Node) || !hosts_control_plane(bench, &holders) {
        return;
    }
    for slice in &bench.slices {
        for endpoint in &slice.endpoints {
            if endpoint.ips().any(|a| !holders.contains_key(&a)) {
                let why = "is an API server's address that no node has";
                out.push(stale(bench, slice, endpoint, why).cured_by(none(
                    "The API servers write this slice themselves and deleting it cuts every client \
                     in the cluster off: look for an API server that was moved or removed (its \
                     lease in etcd, --advertise-address, the network plugin's state).",
                )));
            }
        }
    }
}

/// Why the pod that an endpoint names is not there to answer, if pods were seen.
pub(super) fn gone_pod(bench: &Bench<'_>, endpoint: &Endpoint) -> Option<String> {
    let target = endpoint.pod().filter(|_| bench.view.seen(Kind::Pod))?;
    match bench.view.target_pod(target) {
        None => Some(format!(
            "stands for pod {}, which does not exist",
            target.name
        )),
        Some(pod) if !target.uid.is_empty() && target.uid != pod.meta.uid => {
            Some(format!("stands for an earlier pod {}", target.name))
        }
        Some(pod) if pod.is_terminal() => Some(format!(
            "stands for pod {}, which has finished",
            target.name
        )),
        Some(_) => None,
    }
}

/// Why the node that an endpoint names is not there to answer, if nodes were seen.
pub(super) fn gone_node(
    bench: &Bench<'_>,
    endpoint: &Endpoint,
    holders: &HashMap<IpAddr, Vec<&Node>>,
) -> Option<String> {
    let target = endpoint
        .target_ref
        .as_ref()
        .filter(|t| t.kind.as_ref() == "Node")?;
    if !bench.view.seen(Kind::Node) {
        return None;
    }
    let Some(node) = bench.view.node(&target.name) else {
        return Some(format!(
            "stands for node {}, which does not exist",
            target.name
        ));
    };
    // A node that came back under another name keeps its address; the old entry is nobody's.
    let taken = endpoint.ips().any(|address| {
        holders.get(&address).is_some_and(|all| {
            all.iter()
                .any(|n| n.meta.name != node.meta.name && n.is_ready())
        })
    });
    (!node.is_ready() && taken).then(|| {
        format!(
            "stands for node {}, whose address another node has now",
            target.name
        )
    })
}

/// Which nodes have an address.
pub(super) fn node_holders<'a>(bench: &Bench<'a>) -> HashMap<IpAddr, Vec<&'a Node>> {
    let mut holders: HashMap<IpAddr, Vec<&Node>> = HashMap::new();
    for node in bench.view.nodes() {
        for address in node.addresses() {
            holders.entry(address).or_default().push(node);
        }
    }
    holders
}

/// Slices whose endpoints are nodes by definition: Talos' API, and the kubelets.
fn no_node_has(
    bench: &Bench<'_>,
    endpoint: &Endpoint,
    holders: &HashMap<IpAddr, Vec<&Node>>,
) -> Option<String> {
    let key = bench.view.key();
    let (namespace, name) = (key.namespace.as_ref(), key.name.as_ref());
    let of_nodes = (namespace == "default" && name == "talos")
        || (namespace == "kube-system" && (name == "kubelet" || name.ends_with("-kubelet")));
    let unknown = of_nodes
        && bench.view.seen(Kind::Node)
        && endpoint.ips().any(|a| !holders.contains_key(&a));
    unknown.then(|| "is an address that no node has".to_owned())
}

/// Whether the API servers run on nodes of this cluster: elsewhere their addresses are nobody's
/// here.
fn hosts_control_plane(bench: &Bench<'_>, holders: &HashMap<IpAddr, Vec<&Node>>) -> bool {
    let nodes: Vec<&Node> = bench.view.nodes().collect();
    let on_a_node = || {
        let listed: HashSet<IpAddr> = bench
            .slices
            .iter()
            .flat_map(|s| &s.endpoints)
            .flat_map(Endpoint::ips)
            .collect();
        listed.iter().any(|a| holders.contains_key(a))
    };
    let alone_and_in_no_cloud = || match nodes.as_slice() {
        [node] => node
            .spec
            .provider_id
            .as_deref()
            .is_none_or(|id| id.is_empty() || id.starts_with("k3s:")),
        _ => false,
    };
    nodes.iter().any(|n| n.is_control_plane()) || on_a_node() || alone_and_in_no_cloud()
}

fn stale(bench: &Bench<'_>, slice: &Slice, endpoint: &Endpoint, why: &str) -> Finding {
    let routed = bench.is_routed(slice, endpoint);
    let (severity, effect) = if routed {
        (Severity::Critical, "Traffic is sent there.")
    } else {
        (Severity::Info, "No traffic is sent there.")
    };
    let addresses = super::bench::texts(endpoint).join(", ");
    let writer = match slice.manager() {
        Manager::Other(name) => name,
        _ if Service::is_kubernetes(&slice.meta.namespace, slice.service_name().unwrap_or("")) => {
            "the API server"
        }
        _ => "whoever writes it",
    };
    bench
        .endpoint(
            FindingKind::ForeignStale,
            severity,
            format!("In slice {}, {addresses} {why}. {effect}", slice.meta.name),
            slice,
            endpoint,
        )
        .shows(serde_json::Value::Null, endpoint_json(endpoint))
        .cured_by(none(format!(
            "This slice belongs to {writer}; nobody would write it again if it were deleted. Put it \
             right there."
        )))
}
