//! Corruptions that leave the slices right and give a person something to look at. Where several
//! Services select one pod, the findings that follow are worked out here for all of them, from the
//! rules of the contract and not from the judge.

use serde_json::{Value, json};
use slice_core::judge::{FindingKind, RemedyAction, Severity};

use super::Corruption;
use super::bench::*;

use FindingKind::*;
use Severity::{Info, Warning};

/// Before every test, so that nothing counts as being rolled out.
const LONG_AGO: &str = "2026-01-01T00:00:00Z";

pub(super) const CORRUPTIONS: [(&str, Corruption); 8] = [
    ("a selector of nobody", selects_nobody),
    ("pods not ready", not_ready),
    (
        "a pod not ready whose containers are",
        contradicts_containers,
    ),
    ("a node lost", node_lost),
    ("traffic kept on the node", local),
    ("two versions", two_versions),
    ("a pod that does not end", overdue),
    ("an address used twice", shared),
];

/// Makes all pods old, and forgets the Endpoints objects that would have to follow.
pub(super) fn prepare(lists: &mut [Value]) {
    let selecting: Vec<Value> = items(&lists[SERVICES])
        .iter()
        .filter(|s| s["spec"].get("selector").is_some())
        .map(|s| s["metadata"]["name"].clone())
        .collect();
    if let Some(objects) = lists[ENDPOINTS]["items"].as_array_mut() {
        objects.retain(|e| !selecting.contains(&e["metadata"]["name"]));
    }
    for pod in lists[PODS]["items"].as_array_mut().into_iter().flatten() {
        pod["metadata"]["creationTimestamp"] = json!(LONG_AGO);
        for condition in pod["status"]["conditions"]
            .as_array_mut()
            .into_iter()
            .flatten()
        {
            condition["lastTransitionTime"] = json!(LONG_AGO);
        }
    }
}

fn items(list: &Value) -> &[Value] {
    list["items"].as_array().map_or(&[], Vec::as_slice)
}

fn due(kind: FindingKind, service: &Value, severity: Severity) -> Due {
    Due {
        kind,
        service: text(&service["metadata"]["name"]),
        slice: None,
        severity,
        remedy: RemedyAction::None,
    }
}

fn selects(service: &Value, pod: &Value) -> bool {
    service["spec"]["selector"].as_object().is_some_and(|all| {
        all.iter()
            .all(|(key, value)| pod["metadata"]["labels"][key] == *value)
    })
}

fn condition<'a>(object: &'a Value, name: &str) -> &'a str {
    let all = object["status"]["conditions"].as_array();
    all.into_iter()
        .flatten()
        .find(|c| c["type"] == name)
        .and_then(|c| c["status"].as_str())
        .unwrap_or_default()
}

fn set_condition(object: &mut Value, name: &str, status: &str) {
    let all = object["status"]["conditions"].as_array_mut();
    for condition in all.into_iter().flatten().filter(|c| c["type"] == name) {
        condition["status"] = json!(status);
        condition["lastTransitionTime"] = json!(LONG_AGO);
    }
}

fn is_live(pod: &Value) -> bool {
    pod["status"]["phase"] != "Succeeded" && pod["status"]["phase"] != "Failed"
}

fn is_ending(pod: &Value) -> bool {
    pod["metadata"].get("deletionTimestamp").is_some()
}

/// Ready for good: not about to end.
fn is_up(pod: &Value) -> bool {
    condition(pod, "Ready") == "True" && !is_ending(pod)
}

impl Bench {
    fn service_where(&mut self, fits: impl Fn(&Self, &Value) -> bool) -> Option<Value> {
        let all: Vec<usize> = (0..self.items(SERVICES).len())
            .filter(|n| {
                let service = &self.items(SERVICES)[*n];
                service["spec"].get("selector").is_some() && fits(self, service)
            })
            .collect();
        let at = self.any(&all)?;
        Some(self.items(SERVICES)[at].clone())
    }

    fn pod_where(&mut self, fits: impl Fn(&Self, &Value) -> bool) -> Option<Value> {
        let all: Vec<usize> = (0..self.items(PODS).len())
            .filter(|n| fits(self, &self.items(PODS)[*n]))
            .collect();
        let at = self.any(&all)?;
        Some(self.items(PODS)[at].clone())
    }

    fn live(&self, service: &Value) -> Vec<&Value> {
        let all = self.items(PODS).iter();
        all.filter(|p| selects(service, p) && is_live(p)).collect()
    }

    fn slices_of<'a>(&'a self, service: &'a Value) -> impl Iterator<Item = &'a Value> {
        let name = &service["metadata"]["name"];
        self.items(SLICES)
            .iter()
            .filter(move |s| s["metadata"]["labels"][NAME] == *name)
    }

    fn lists(&self, service: &Value, pod: &Value) -> bool {
        self.slices_of(service)
            .flat_map(endpoints)
            .any(|e| e["targetRef"]["uid"] == pod["metadata"]["uid"])
    }

    /// Services whose slices list a pod.
    fn listing<'a>(&'a self, pod: &'a Value) -> impl Iterator<Item = &'a Value> {
        let all = self.items(SERVICES).iter();
        all.filter(move |s| self.lists(s, pod))
    }

    fn same_pod(&mut self, pod: &Value) -> Option<&mut Value> {
        let uid = pod["metadata"]["uid"].clone();
        let mut all = self.items_mut(PODS).iter_mut();
        all.find(|p| p["metadata"]["uid"] == uid)
    }

    /// Services of whose pods none is ready.
    fn without_ready(&self) -> Vec<String> {
        self.items(SERVICES)
            .iter()
            .filter(|s| s["spec"]["publishNotReadyAddresses"] != true)
            .filter(|s| {
                let live = self.live(s);
                !live.is_empty() && !live.into_iter().any(is_up)
            })
            .map(|s| text(&s["metadata"]["name"]))
            .collect()
    }
}

fn selects_nobody(b: &mut Bench) -> Option<Vec<Due>> {
    // With pods it may have causes already, which would go with them.
    let service = b.service_where(|b, s| {
        let live = b.live(s);
        !live.is_empty()
            && live.iter().all(|p| b.lists(s, p))
            && b.slices_of(s).all(|s| {
                s["ports"].as_array().is_some_and(|ports| {
                    Some(ports.len()) == b.service_of(s)["spec"]["ports"].as_array().map(Vec::len)
                })
            })
            && live.into_iter().any(is_up)
    })?;
    let name = service["metadata"]["name"].clone();
    for other in b.items_mut(SERVICES) {
        if other["metadata"]["name"] == name {
            other["spec"]["selector"]["app"] = json!("nobody");
        }
    }
    // What the controller writes then: one slice of each family, with nothing in it.
    let mut families = Vec::new();
    b.items_mut(SLICES).retain_mut(|slice| {
        if slice["metadata"]["labels"][NAME] != name {
            return true;
        }
        slice["endpoints"] = json!([]);
        slice["ports"] = json!([]);
        let is_first = !families.contains(&slice["addressType"]);
        families.push(slice["addressType"].clone());
        is_first
    });
    Some(vec![due(SelectorSuspect, &service, Warning)])
}

fn not_ready(b: &mut Bench) -> Option<Vec<Due>> {
    let before = b.without_ready();
    let service = b.service_where(|b, s| {
        s["spec"]["publishNotReadyAddresses"] != true && b.live(s).into_iter().any(is_up)
    })?;
    let uids: Vec<Value> = b
        .live(&service)
        .into_iter()
        .map(|p| p["metadata"]["uid"].clone())
        .collect();
    for pod in b.items_mut(PODS) {
        if uids.contains(&pod["metadata"]["uid"]) {
            set_condition(pod, "Ready", "False");
            set_condition(pod, "ContainersReady", "False");
        }
    }
    let publishing: Vec<Value> = b
        .items(SERVICES)
        .iter()
        .filter(|s| s["spec"]["publishNotReadyAddresses"] == true)
        .map(|s| s["metadata"]["name"].clone())
        .collect();
    for slice in b.items_mut(SLICES) {
        let publishes = publishing.contains(&slice["metadata"]["labels"][NAME]);
        for endpoint in slice["endpoints"].as_array_mut().into_iter().flatten() {
            if uids.contains(&endpoint["targetRef"]["uid"]) {
                endpoint["conditions"]["ready"] = json!(publishes);
                endpoint["conditions"]["serving"] = json!(false);
            }
        }
    }
    let after = b.without_ready();
    Some(
        b.items(SERVICES)
            .iter()
            .filter(|s| {
                let name = text(&s["metadata"]["name"]);
                after.contains(&name) && !before.contains(&name)
            })
            .map(|s| due(NoReadyPods, s, Warning))
            .collect(),
    )
}

fn contradicts_containers(b: &mut Bench) -> Option<Vec<Due>> {
    let pod = b.pod_where(|b, p| {
        let node = &p["spec"]["nodeName"];
        condition(p, "Ready") == "False"
            && is_live(p)
            && !is_ending(p)
            && p["spec"].get("readinessGates").is_none()
            && b.has_node(node)
            && b.listing(p).next().is_some()
    })?;
    set_condition(b.same_pod(&pod)?, "ContainersReady", "True");
    Some(
        b.listing(&pod)
            .map(|s| due(PodStatusSuspect, s, Warning))
            .collect(),
    )
}

fn node_lost(b: &mut Bench) -> Option<Vec<Due>> {
    let pod = b.pod_where(|b, p| {
        let node = &p["spec"]["nodeName"];
        is_up(p) && is_live(p) && b.has_node(node) && b.listing(p).next().is_some()
    })?;
    let name = pod["spec"]["nodeName"].clone();
    for node in b.items_mut(NODES) {
        if node["metadata"]["name"] == name {
            set_condition(node, "Ready", "Unknown");
        }
    }
    let on_it = |p: &&Value| p["spec"]["nodeName"] == name && is_up(p) && is_live(p);
    Some(
        b.items(PODS)
            .iter()
            .filter(on_it)
            .flat_map(|p| b.listing(p))
            .map(|s| due(PodStatusSuspect, s, Warning))
            .collect(),
    )
}

fn local(b: &mut Bench) -> Option<Vec<Due>> {
    let service = b.service_where(|b, s| {
        let used: Vec<&Value> = b
            .slices_of(s)
            .flat_map(endpoints)
            .filter(|e| is_ready(e))
            .map(|e| &e["nodeName"])
            .collect();
        !is_headless(s)
            && !used.is_empty()
            && b.items(NODES)
                .iter()
                .any(|n| !used.contains(&&n["metadata"]["name"]))
    })?;
    for other in b.items_mut(SERVICES) {
        if other["metadata"]["name"] == service["metadata"]["name"] {
            other["spec"]["internalTrafficPolicy"] = json!("Local");
        }
    }
    Some(vec![due(NoLocalEndpoint, &service, Info)])
}

fn two_versions(b: &mut Bench) -> Option<Vec<Due>> {
    let all_up = |b: &Bench, s: &Value| b.live(s).into_iter().all(is_up);
    let routed = |b: &Bench, s: &Value| -> Vec<Value> {
        let mut uids: Vec<Value> = b
            .slices_of(s)
            .flat_map(endpoints)
            .filter(|e| is_ready(e))
            .map(|e| e["targetRef"]["uid"].clone())
            .collect();
        uids.sort_by_key(ToString::to_string);
        uids.dedup();
        uids
    };
    let service = b.service_where(|b, s| all_up(b, s) && routed(b, s).len() > 1)?;
    let uids = routed(b, &service);
    for pod in b.items_mut(PODS) {
        if let Some(at) = uids.iter().position(|u| *u == pod["metadata"]["uid"]) {
            pod["metadata"]["labels"]["version"] = json!(if at == 0 { "1" } else { "2" });
        }
    }
    // Where a pod of another Service has no such label, the images count, and they are the same.
    let mixed = |s: &&Value| {
        let all = routed(b, s);
        all_up(b, s)
            && all.len() > 1
            && all.contains(&uids[0])
            && all.iter().all(|u| uids.contains(u))
    };
    Some(
        b.items(SERVICES)
            .iter()
            .filter(|s| s["spec"].get("selector").is_some())
            .filter(mixed)
            .map(|s| due(MixedVersions, s, Warning))
            .collect(),
    )
}

fn overdue(b: &mut Bench) -> Option<Vec<Due>> {
    let pod = b.pod_where(|b, p| is_ending(p) && is_live(p) && b.listing(p).next().is_some())?;
    b.same_pod(&pod)?["metadata"]["deletionTimestamp"] = json!(LONG_AGO);
    let uid = &pod["metadata"]["uid"];
    Some(
        b.listing(&pod)
            .map(|s| {
                let routed = b.slices_of(s).any(|slice| {
                    let mut own = endpoints(slice).iter();
                    own.any(|e| e["targetRef"]["uid"] == *uid && b.is_routed(slice, e))
                });
                due(TerminationOverdue, s, if routed { Warning } else { Info })
            })
            .collect(),
    )
}

fn shared(b: &mut Bench) -> Option<Vec<Due>> {
    // A pod may be listed only by an address of the other family.
    let pod = b.pod_where(|b, p| {
        let ip = &p["status"]["podIPs"][0]["ip"];
        let mut listed = b.items(SLICES).iter().flat_map(endpoints);
        is_live(p)
            && p["spec"].get("hostNetwork").is_none()
            && b.listing(p).next().is_some()
            && listed.any(|e| e["addresses"][0] == *ip)
    })?;
    let ip = pod["status"]["podIPs"][0]["ip"].clone();
    let mut second = pod.clone();
    second["metadata"]["name"] = json!("second");
    second["metadata"]["uid"] = json!("second-uid");
    second["metadata"]["labels"] = json!({});
    second["status"]["podIP"] = ip.clone();
    second["status"]["podIPs"] = json!([{"ip": ip}]);
    b.items_mut(PODS).push(second);
    Some(
        b.items(SERVICES)
            .iter()
            .filter(|s| {
                b.slices_of(s)
                    .flat_map(endpoints)
                    .any(|e| e["addresses"][0] == ip)
            })
            .map(|s| due(SharedAddress, s, Info))
            .collect(),
    )
}
