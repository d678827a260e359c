//! From what slices hold to what they should: which are created, updated and deleted.
//!
//! Endpoints stay where they are; slices that change anyway are filled up first, then the unchanged
//! slice with the closest fit, then new ones. Slices are never split or merged for tidiness.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::super::object;
use super::desired::{self, Desired, Endpoints, Family};
use super::{HEADLESS, MANAGED_BY, MANAGER, SERVICE_NAME, TRIGGER_TIME};

/// The writes of one sync, in the order in which they are done.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) create: Vec<Value>,
    pub(super) update: Vec<Value>,
    pub(super) delete: Vec<Arc<Value>>,
}

/// The surroundings of one sync.
pub(super) struct Context<'a> {
    pub(super) service: &'a Value,
    /// The earliest trigger since the last sync, for the annotation of slices that are written.
    pub(super) trigger: Option<String>,
    pub(super) max_endpoints: usize,
}

impl Context<'_> {
    /// Compares all families.
    pub(super) fn plan(&self, desired: &Desired, slices: &[Arc<Value>]) -> Plan {
        let mut plan = Plan::default();
        let mut by_family: BTreeMap<&str, Vec<&Arc<Value>>> = BTreeMap::new();
        for slice in slices {
            let family = slice["addressType"].as_str().unwrap_or_default();
            // Of another Service that had this name, or of a family that is gone.
            if !self.owns(slice) || !desired.families.contains_key(family) {
                plan.delete.push(Arc::clone(slice));
            } else {
                by_family.entry(family).or_default().push(slice);
            }
        }
        for (family, expectation) in &desired.families {
            let slices = by_family.remove(family.as_str()).unwrap_or_default();
            self.family(family, expectation, &slices, &mut plan);
        }
        if object::deleting(self.service) {
            plan.create.clear();
        }
        plan
    }

    fn owns(&self, slice: &Value) -> bool {
        object::owners(slice)
            .any(|owner| owner["controller"] == true && owner["uid"] == object::uid(self.service))
    }

    fn family(&self, family: &str, expected: &Family, slices: &[&Arc<Value>], plan: &mut Plan) {
        let mut by_ports: BTreeMap<String, Vec<&Arc<Value>>> = BTreeMap::new();
        for slice in slices {
            let key = desired::group_key(object::list(&slice["ports"]));
            by_ports.entry(key).or_default().push(slice);
        }
        let mut create = Vec::new();
        let mut update = Vec::new();
        let mut delete: Vec<Arc<Value>> = Vec::new();
        for (key, (ports, endpoints)) in &expected.groups {
            let present = by_ports.remove(key).unwrap_or_default();
            let changes = self.group(family, ports, endpoints, &present);
            create.extend(changes.create);
            update.extend(changes.update);
            delete.extend(changes.delete);
        }
        delete.extend(by_ports.into_values().flatten().cloned());

        // A family is never without a slice: an empty one holds the place.
        if create.is_empty() && delete.len() == slices.len() {
            let placeholder = self.slice(family, &[], Vec::new());
            let kept = delete.iter().position(|slice| {
                object::list(&slice["ports"]).is_empty()
                    && same_but_endpoints(slice, &placeholder)
                    && object::list(&slice["endpoints"]).is_empty()
            });
            match kept {
                Some(at) => {
                    delete.remove(at);
                }
                None => create.push(placeholder),
            }
        }
        // A slice that would go and one that would come are one update.
        while let (Some(going), false) = (delete.first().cloned(), create.is_empty()) {
            let coming = create.remove(0);
            update.push(self.rewritten(&going, coming));
            delete.remove(0);
        }
        plan.create.extend(create);
        plan.update.extend(update);
        plan.delete.extend(delete);
    }

    fn group(
        &self,
        family: &str,
        ports: &[Value],
        expected: &Endpoints,
        present: &[&Arc<Value>],
    ) -> Plan {
        let mut missing: Endpoints = expected.clone();
        // Slices with what stays in them, and whether that is a change.
        let mut changed: Vec<(Arc<Value>, Vec<Value>)> = Vec::new();
        let mut unchanged: Vec<(Arc<Value>, Vec<Value>)> = Vec::new();
        let mut plan = Plan::default();
        for slice in present {
            let mut kept = Vec::new();
            let mut differs = false;
            for endpoint in object::list(&slice["endpoints"]) {
                // Also gone from `missing` is what an earlier slice holds: a second copy goes.
                match missing.remove(&desired::identity(endpoint)) {
                    Some(right) => {
                        differs |= !same_endpoint(endpoint, &right);
                        kept.push(right);
                    }
                    None => differs = true,
                }
            }
            differs |= !same_but_endpoints(slice, &self.slice(family, ports, Vec::new()));
            if kept.is_empty() && !object::list(&slice["endpoints"]).is_empty() {
                plan.delete.push(Arc::clone(slice));
            } else if differs {
                changed.push((Arc::clone(slice), kept));
            } else {
                unchanged.push((Arc::clone(slice), kept));
            }
        }
        let mut missing: Vec<Value> = missing.into_values().collect();
        for (_, kept) in &mut changed {
            fill(kept, &mut missing, self.max_endpoints);
        }
        if !missing.is_empty() && missing.len() < self.max_endpoints {
            let room = |kept: &Vec<Value>| self.max_endpoints.saturating_sub(kept.len());
            let closest = (0..unchanged.len())
                .filter(|at| room(&unchanged[*at].1) >= missing.len())
                .min_by_key(|at| room(&unchanged[*at].1));
            if let Some(at) = closest {
                let (slice, mut kept) = unchanged.remove(at);
                fill(&mut kept, &mut missing, self.max_endpoints);
                changed.push((slice, kept));
            }
        }
        while !missing.is_empty() {
            let mut endpoints = Vec::new();
            fill(&mut endpoints, &mut missing, self.max_endpoints);
            plan.create.push(self.slice(family, ports, endpoints));
        }
        for (slice, endpoints) in changed {
            let new = self.slice(family, ports, endpoints);
            plan.update.push(self.rewritten(&slice, new));
        }
        plan
    }

    /// An update of `old` to the content of `new`; identity and foreign metadata stay.
    fn rewritten(&self, old: &Value, mut new: Value) -> Value {
        let mut metadata = old["metadata"].clone();
        metadata["labels"] = new["metadata"]["labels"].take();
        metadata["ownerReferences"] = new["metadata"]["ownerReferences"].take();
        new["metadata"] = metadata;
        match &self.trigger {
            Some(time) => object::set_annotation(&mut new, TRIGGER_TIME, time),
            None => {
                let annotations = new["metadata"]["annotations"].as_object_mut();
                annotations.map(|map| map.remove(TRIGGER_TIME));
            }
        }
        new
    }

    fn slice(&self, family: &str, ports: &[Value], endpoints: Vec<Value>) -> Value {
        let name = object::name(self.service);
        let mut slice = json!({
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "generateName": format!("{name}-"),
                "namespace": object::namespace(self.service),
                "ownerReferences": [{
                    "apiVersion": "v1", "kind": "Service", "name": name,
                    "uid": object::uid(self.service),
                    "controller": true, "blockOwnerDeletion": true,
                }],
            },
            "addressType": family,
            "endpoints": endpoints,
            "ports": ports,
        });
        for (key, value) in labels(self.service) {
            object::set_label(&mut slice, &key, &value);
        }
        if let Some(time) = &self.trigger {
            object::set_annotation(&mut slice, TRIGGER_TIME, time);
        }
        slice
    }
}

/// The labels of every slice of a Service: its own, and those by which slices are found.
fn labels(service: &Value) -> BTreeMap<String, String> {
    let own = service["metadata"]["labels"].as_object();
    let mut labels: BTreeMap<String, String> = own
        .into_iter()
        .flatten()
        .filter(|(key, _)| ![SERVICE_NAME, MANAGED_BY, HEADLESS].contains(&key.as_str()))
        .map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned()))
        .collect();
    let name = object::name(service).to_owned();
    labels.insert(SERVICE_NAME.to_owned(), name);
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    let cluster_ip = service["spec"]["clusterIP"].as_str().unwrap_or_default();
    if cluster_ip.is_empty() || cluster_ip == "None" {
        labels.insert(HEADLESS.to_owned(), String::new());
    }
    labels
}

/// Whether labels agree; owners were looked at before.
fn same_but_endpoints(have: &Value, want: &Value) -> bool {
    let labels = |slice: &Value| slice["metadata"]["labels"].as_object().cloned();
    labels(have) == labels(want)
}

/// Equality of what the controller writes into an endpoint. The version in a targetRef is not it.
fn same_endpoint(have: &Value, want: &Value) -> bool {
    let target = |endpoint: &Value, key: &str| endpoint["targetRef"][key].clone();
    ["conditions", "hostname", "nodeName", "zone", "hints"]
        .iter()
        .all(|key| have[key] == want[key])
        && ["kind", "namespace", "name", "uid"]
            .iter()
            .all(|key| target(have, key) == target(want, key))
}

fn fill(into: &mut Vec<Value>, from: &mut Vec<Value>, max: usize) {
    let room = max.saturating_sub(into.len()).min(from.len());
    into.extend(from.drain(..room));
}
