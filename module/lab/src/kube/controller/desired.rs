//! What the slices of a Service should hold: which pods belong, their endpoints and ports, by
//! address family and port group. A pure function of objects.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::{Map, Value, json};

use super::super::object;
use super::super::selector::Selector;

/// Endpoints of one port group by identity.
pub(super) type Endpoints = BTreeMap<String, Value>;

/// The expectation of one address family: port group key to its ports and endpoints.
#[derive(Debug, Default)]
pub(super) struct Family {
    pub(super) groups: BTreeMap<String, (Vec<Value>, Endpoints)>,
}

/// What could not be decided: pods whose Node is missing. The rest is decided all the same.
#[derive(Debug, Default)]
pub(super) struct Desired {
    pub(super) families: BTreeMap<String, Family>,
    pub(super) missing_nodes: Vec<String>,
}

/// Whether the controller makes slices for this Service at all.
pub(super) fn in_scope(service: &Value) -> bool {
    service["spec"]["type"] != "ExternalName" && service["spec"]["selector"].is_object()
}

/// The selector of the Service; only meaningful where it is in scope.
pub(super) fn selector(service: &Value) -> Selector {
    let pairs = service["spec"]["selector"].as_object();
    Selector::labels(
        pairs
            .into_iter()
            .flatten()
            .map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default())),
    )
}

/// Computes the expectation. `node` finds a Node by name.
pub(super) fn desired<'a>(
    service: &Value,
    pods: impl Iterator<Item = &'a Value>,
    node: impl Fn(&str) -> Option<&'a Value>,
) -> Desired {
    let mut out = Desired::default();
    for family in object::list(&service["spec"]["ipFamilies"]) {
        let family = family.as_str().unwrap_or_default().to_owned();
        out.families.entry(family).or_default();
    }
    let publish_all = service["spec"]["publishNotReadyAddresses"] == true;
    for pod in pods {
        let phase = pod["status"]["phase"].as_str().unwrap_or_default();
        let has_ip = pod["status"]["podIP"].is_string()
            || !object::list(&pod["status"]["podIPs"]).is_empty();
        if matches!(phase, "Failed" | "Succeeded") || !has_ip {
            continue;
        }
        let node_name = pod["spec"]["nodeName"].as_str().unwrap_or_default();
        let node = node(node_name);
        if node.is_none() && !publish_all {
            out.missing_nodes.push(node_name.to_owned());
            continue;
        }
        let ports = ports_of(service, pod);
        let group = group_key(&ports);
        for (family, expectation) in &mut out.families {
            let (_, endpoints) = expectation
                .groups
                .entry(group.clone())
                .or_insert_with(|| (ports.clone(), Endpoints::new()));
            if let Some(endpoint) = endpoint(service, pod, node, family) {
                endpoints.insert(identity(&endpoint), endpoint);
            }
        }
    }
    out
}

/// Addresses of the pod of one family, printed canonically.
fn addresses(pod: &Value, family: &str) -> Vec<String> {
    object::list(&pod["status"]["podIPs"])
        .iter()
        .filter_map(|ip| ip["ip"].as_str()?.parse::<IpAddr>().ok())
        .filter(|ip| ip.is_ipv4() == (family == "IPv4"))
        .map(|ip| ip.to_string())
        .collect()
}

fn endpoint(service: &Value, pod: &Value, node: Option<&Value>, family: &str) -> Option<Value> {
    let addresses = addresses(pod, family);
    if addresses.is_empty() {
        return None;
    }
    let serving = object::condition(pod, "Ready") == Some("True");
    let terminating = object::deleting(pod);
    let publish_all = service["spec"]["publishNotReadyAddresses"] == true;
    let mut endpoint = json!({
        "addresses": addresses,
        "conditions": {
            "ready": publish_all || (serving && !terminating),
            "serving": serving,
            "terminating": terminating,
        },
        "targetRef": {
            "kind": "Pod",
            "namespace": object::namespace(pod),
            "name": object::name(pod),
            "uid": object::uid(pod),
        },
    });
    let text = |value: &Value| value.as_str().filter(|t| !t.is_empty()).map(str::to_owned);
    if let Some(name) = text(&pod["spec"]["nodeName"]) {
        endpoint["nodeName"] = json!(name);
    }
    let zone = node.and_then(|node| object::label(node, "topology.kubernetes.io/zone"));
    if let Some(zone) = zone.filter(|zone| !zone.is_empty()) {
        endpoint["zone"] = json!(zone);
    }
    if let Some(hostname) = text(&pod["spec"]["hostname"])
        && pod["spec"]["subdomain"] == object::name(service)
    {
        endpoint["hostname"] = json!(hostname);
    }
    hint(service, &mut endpoint);
    Some(endpoint)
}

/// Hints of `spec.trafficDistribution`. The annotation mode depends on history and is left out.
fn hint(service: &Value, endpoint: &mut Value) {
    let distribution = service["spec"]["trafficDistribution"].as_str();
    let (Some(distribution), Some(zone), true) = (
        distribution,
        endpoint["zone"].as_str().map(str::to_owned),
        endpoint["conditions"]["ready"] == true,
    ) else {
        return;
    };
    endpoint["hints"] = json!({"forZones": [{"name": zone}]});
    if distribution == "PreferSameNode" {
        endpoint["hints"]["forNodes"] = json!([{"name": endpoint["nodeName"]}]);
    }
}

/// Two entries with one identity are one endpoint; the uid of the pod is no part of it.
pub(super) fn identity(endpoint: &Value) -> String {
    let mut addresses: Vec<&str> = object::list(&endpoint["addresses"])
        .iter()
        .filter_map(Value::as_str)
        .collect();
    addresses.sort_unstable();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    format!(
        "{}|{}|{}/{}",
        addresses.join(","),
        text(&endpoint["hostname"]),
        text(&endpoint["targetRef"]["namespace"]),
        text(&endpoint["targetRef"]["name"]),
    )
}

/// The ports of the Service as this pod resolves them; a name that it lacks is left out.
fn ports_of(service: &Value, pod: &Value) -> Vec<Value> {
    let mut ports = Vec::new();
    for port in object::list(&service["spec"]["ports"]) {
        let target = &port["targetPort"];
        let number = match target.as_str() {
            Some(name) => named_port(pod, name, &port["protocol"]),
            None => target.as_i64().or_else(|| port["port"].as_i64()),
        };
        let Some(number) = number else {
            continue;
        };
        let mut resolved = Map::new();
        let name = port["name"].as_str().unwrap_or_default();
        resolved.insert("name".into(), json!(name));
        resolved.insert("port".into(), json!(number));
        resolved.insert("protocol".into(), port["protocol"].clone());
        if let Some(protocol) = port["appProtocol"].as_str() {
            resolved.insert("appProtocol".into(), json!(protocol));
        }
        ports.push(Value::Object(resolved));
    }
    ports
}

/// In containers first, then in sidecars: init containers that are restarted always.
fn named_port(pod: &Value, name: &str, protocol: &Value) -> Option<i64> {
    let sidecars = object::list(&pod["spec"]["initContainers"])
        .iter()
        .filter(|container| container["restartPolicy"] == "Always");
    object::list(&pod["spec"]["containers"])
        .iter()
        .chain(sidecars)
        .flat_map(|container| object::list(&container["ports"]))
        .find(|port| {
            let default = port["protocol"].is_null() && *protocol == "TCP";
            port["name"] == name && (default || port["protocol"] == *protocol)
        })
        .and_then(|port| port["containerPort"].as_i64())
}

/// The key of a port group: the set of ports, whatever their order; null and `[]` are one.
pub(super) fn group_key(ports: &[Value]) -> String {
    let mut keys: Vec<String> = ports
        .iter()
        .map(|port| {
            format!(
                "{}|{}|{}|{}",
                port["name"].as_str().unwrap_or_default(),
                port["port"],
                port["protocol"].as_str().unwrap_or("TCP"),
                port["appProtocol"].as_str().unwrap_or_default(),
            )
        })
        .collect();
    keys.sort_unstable();
    keys.join(";")
}
