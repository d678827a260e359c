//! What the API server does to objects of each resource beyond storing them: defaults, fields that
//! only the server sets, the generation rule, and the validation that clients run into.
//!
//! Only rules that a reader of Services, pods and slices can notice are here; this is no admission
//! chain.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::object;
use super::resource::{
    DEPLOYMENTS, DISRUPTION_BUDGETS, ENDPOINT_SLICES, NAMESPACES, PODS, REPLICA_SETS, Resource,
    SERVICES,
};
use super::status::ApiError;

/// Hands out cluster IPs. Never gives one back: a lab does not run out of 65,000.
#[derive(Debug, Default)]
pub(crate) struct ClusterIps {
    next: u16,
}

impl ClusterIps {
    fn take(&mut self, family: &str) -> String {
        self.next = self.next.wrapping_add(1);
        let [high, low] = self.next.to_be_bytes();
        if family == "IPv6" {
            format!("fd00:10:96::{:x}", self.next)
        } else {
            format!("10.96.{high}.{low}")
        }
    }
}

/// Whether this object is counted in `metadata.generation` at all.
fn has_generation(resource: &Resource) -> bool {
    [
        &ENDPOINT_SLICES,
        &DEPLOYMENTS,
        &REPLICA_SETS,
        &DISRUPTION_BUDGETS,
        &PODS,
    ]
    .into_iter()
    .any(|r| r == resource)
}

/// Defaults and server-set fields of a new object.
pub(crate) fn prepare_create(resource: &Resource, new: &mut Value, ips: &mut ClusterIps) {
    if has_generation(resource) {
        object::set_meta(new, "generation", 1);
    }
    // Status of these is written through the subresource; nodes keep theirs, as kubelets need.
    if resource == &PODS {
        object::map(new).insert(
            "status".into(),
            json!({"phase": "Pending", "qosClass": "BestEffort"}),
        );
        let spec = object::map(object::map_entry(new, "spec"));
        spec.entry("restartPolicy").or_insert(json!("Always"));
        spec.entry("terminationGracePeriodSeconds")
            .or_insert(json!(30));
        spec.entry("dnsPolicy").or_insert(json!("ClusterFirst"));
    } else if resource == &SERVICES {
        object::map(new).insert("status".into(), json!({"loadBalancer": {}}));
        default_service(new, ips);
    } else if resource == &ENDPOINT_SLICES {
        default_slice(new);
    } else if resource == &NAMESPACES {
        let name = object::name(new).to_owned();
        object::set_label(new, "kubernetes.io/metadata.name", &name);
        object::map(new).insert("spec".into(), json!({"finalizers": ["kubernetes"]}));
        object::map(new).insert("status".into(), json!({"phase": "Active"}));
    } else if resource.status && !matches!(resource.plural, "nodes") {
        object::map(new).insert("status".into(), json!({}));
    }
}

/// Conditions are no pointer in the API: they are written out even when nothing is known.
fn default_slice(slice: &mut Value) {
    let endpoints = slice.get_mut("endpoints").and_then(Value::as_array_mut);
    for endpoint in endpoints.into_iter().flatten() {
        object::map_entry(endpoint, "conditions");
    }
}

/// Carries over what an update may not change, and raises the generation where it must.
pub(crate) fn prepare_update(
    resource: &Resource,
    old: &Value,
    new: &mut Value,
    status_only: bool,
    ips: &mut ClusterIps,
) {
    if resource.status {
        let keep = if status_only { "spec" } else { "status" };
        let kept = old.get(keep).cloned();
        match kept {
            Some(value) => object::map(new).insert(keep.into(), value),
            None => object::map(new).remove(keep),
        };
    }
    for key in [
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
    ] {
        match old["metadata"].get(key) {
            Some(value) => object::set_meta(new, key, value.clone()),
            None => {
                object::map(object::map_entry(new, "metadata")).remove(key);
            }
        }
    }
    if resource == &SERVICES {
        // A client that leaves the allocated addresses out keeps them.
        for key in ["clusterIP", "clusterIPs"] {
            if new["spec"][key].is_null() && new["spec"]["type"] != "ExternalName" {
                let had = old["spec"][key].clone();
                object::map(object::map_entry(new, "spec")).insert(key.into(), had);
            }
        }
        default_service(new, ips);
    } else if resource == &ENDPOINT_SLICES {
        default_slice(new);
    }
    if has_generation(resource) && content_changed(resource, old, new) {
        object::set_meta(new, "generation", object::generation(old) + 1);
    }
}

/// The rule of `metadata.generation`: for slices anything outside of metadata, and the labels;
/// for the others the spec.
fn content_changed(resource: &Resource, old: &Value, new: &Value) -> bool {
    if resource != &ENDPOINT_SLICES {
        return old["spec"] != new["spec"];
    }
    let content = |object: &Value| {
        let mut object = object.clone();
        object::map(&mut object).remove("metadata");
        object
    };
    let labels = |object: &Value| {
        object["metadata"]["labels"]
            .as_object()
            .cloned()
            .unwrap_or_default()
    };
    content(old) != content(new) || labels(old) != labels(new)
}

fn default_service(service: &mut Value, ips: &mut ClusterIps) {
    let spec = object::map(object::map_entry(service, "spec"));
    let kind = spec
        .entry("type")
        .or_insert(json!("ClusterIP"))
        .as_str()
        .unwrap_or_default()
        .to_owned();
    spec.entry("sessionAffinity").or_insert(json!("None"));
    // The API drops an empty selector on decoding: nil and `{}` are one thing.
    if spec
        .get("selector")
        .is_some_and(|s| s.as_object().is_none_or(serde_json::Map::is_empty))
    {
        spec.remove("selector");
    }
    if let Some(Value::Array(ports)) = spec.get_mut("ports") {
        for port in ports {
            let number = port["port"].clone();
            let port = object::map(port);
            port.entry("protocol").or_insert(json!("TCP"));
            port.entry("targetPort").or_insert(number);
        }
    }
    if kind == "ExternalName" {
        for key in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            spec.remove(key);
        }
        return;
    }
    spec.entry("internalTrafficPolicy")
        .or_insert(json!("Cluster"));
    let policy = spec
        .entry("ipFamilyPolicy")
        .or_insert(json!("SingleStack"))
        .clone();
    let default_families = if policy == "SingleStack" {
        json!(["IPv4"])
    } else {
        json!(["IPv4", "IPv6"])
    };
    let families = spec
        .entry("ipFamilies")
        .or_insert(default_families)
        .as_array()
        .cloned()
        .unwrap_or_default();
    let given = spec
        .get("clusterIP")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    if given == "None" {
        spec.insert("clusterIPs".into(), json!(["None"]));
        return;
    }
    let mut addresses: Vec<String> = spec
        .get("clusterIPs")
        .map_or(&[][..], object::list)
        .iter()
        .filter_map(|ip| ip.as_str().map(str::to_owned))
        .collect();
    if addresses.is_empty() && !given.is_empty() {
        addresses.push(given);
    }
    addresses.truncate(families.len().max(1));
    for family in families.iter().skip(addresses.len()) {
        addresses.push(ips.take(family.as_str().unwrap_or_default()));
    }
    spec.insert("clusterIP".into(), json!(addresses.first()));
    spec.insert("clusterIPs".into(), json!(addresses));
}

/// Validation of a new or changed object.
///
/// # Errors
/// 422 with the field that breaks a rule.
pub(crate) fn validate(
    resource: &Resource,
    new: &Value,
    old: Option<&Value>,
) -> Result<(), ApiError> {
    let name = object::name(new);
    let invalid = |field: &str, why: &str| Err(ApiError::invalid(resource, name, field, why));
    if !valid_name(name) {
        return invalid(
            "metadata.name",
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, \
             '-' or '.', and must start and end with an alphanumeric character",
        );
    }
    for owner in object::owners(new) {
        for key in ["apiVersion", "kind", "name", "uid"] {
            if owner[key].as_str().is_none_or(str::is_empty) {
                let field = format!("metadata.ownerReferences.{key}");
                return invalid(&field, "must not be empty");
            }
        }
    }
    if resource == &SERVICES && new["spec"]["type"] != "ExternalName" {
        let headless = new["spec"]["clusterIP"] == "None";
        if !headless && object::list(&new["spec"]["ports"]).is_empty() {
            return invalid("spec.ports", "Required value");
        }
    }
    if resource == &ENDPOINT_SLICES {
        return validate_slice(resource, new, old);
    }
    Ok(())
}

fn validate_slice(resource: &Resource, new: &Value, old: Option<&Value>) -> Result<(), ApiError> {
    let name = object::name(new);
    let invalid = |field: &str, why: &str| Err(ApiError::invalid(resource, name, field, why));
    let family = new["addressType"].as_str().unwrap_or_default();
    if !matches!(family, "IPv4" | "IPv6" | "FQDN") {
        return invalid(
            "addressType",
            "supported values: \"FQDN\", \"IPv4\", \"IPv6\"",
        );
    }
    if old.is_some_and(|old| old["addressType"] != new["addressType"]) {
        return invalid("addressType", "field is immutable");
    }
    if object::list(&new["endpoints"]).len() > 1000 {
        return invalid("endpoints", "must have at most 1000 items");
    }
    if object::list(&new["ports"]).len() > 100 {
        return invalid("ports", "must have at most 100 items");
    }
    for (i, endpoint) in object::list(&new["endpoints"]).iter().enumerate() {
        let addresses = object::list(&endpoint["addresses"]);
        if addresses.is_empty() || addresses.len() > 100 {
            let field = format!("endpoints[{i}].addresses");
            return invalid(&field, "must contain 1 to 100 addresses");
        }
        for address in addresses {
            let ip = address.as_str().and_then(|a| a.parse::<IpAddr>().ok());
            let right = match family {
                "IPv4" => ip.is_some_and(|ip| ip.is_ipv4()),
                "IPv6" => ip.is_some_and(|ip| ip.is_ipv6()),
                _ => true,
            };
            // The real server refuses loopback and link-local addresses as endpoints.
            if !right || ip.is_some_and(|ip| ip.is_loopback() || ip.is_unspecified()) {
                let field = format!("endpoints[{i}].addresses");
                return invalid(&field, "must be a valid address of the addressType");
            }
        }
    }
    Ok(())
}

fn valid_name(name: &str) -> bool {
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    name.len() <= 253
        && edge(name.chars().next())
        && edge(name.chars().last())
        && name
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.')
}
