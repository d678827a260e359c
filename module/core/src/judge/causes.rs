//! Why a Service serves nobody although its slices are right: what it selects, why pods are not
//! ready, where endpoints are missing, what is overdue. The remedies are words for people.

use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use super::bench::{Bench, is_local, name_some, none};
use super::expect::{Expectation, resolve};
use super::finding::{Finding, FindingKind, Severity};
use crate::model::{Kind, Labels, Node, Pod, Service, ServiceType};

/// A pod may outlive its grace by this much before it is called overdue.
const OVERDUE_SECONDS: i64 = 10;

/// How many names a sentence takes.
const NAMES: usize = 4;

/// All causes that follow from a Service and its pods.
pub(super) fn judge(
    bench: &Bench<'_>,
    service: &Service,
    expect: &Expectation<'_>,
    out: &mut Vec<Finding>,
) {
    let live: Vec<&Pod> = bench
        .pods
        .iter()
        .copied()
        .filter(|p| !p.is_terminal())
        .collect();
    if live.is_empty() {
        selects_nothing(bench, service, out);
        return;
    }
    lacks_port(bench, service, &live, out);
    let ready = live.iter().any(|p| p.is_ready() && !p.meta.is_deleting());
    if !ready && !service.spec.publish_not_ready_addresses {
        none_ready(bench, &live, out);
    }
    overdue(bench, expect, out);
    no_local(bench, service, expect, out);
}

fn selects_nothing(bench: &Bench<'_>, service: &Service, out: &mut Vec<Finding>) {
    let selector = service.selector().cloned().unwrap_or_default();
    let text = selector_text(&selector);
    let key = bench.view.key();
    let (message, actual, advice) = if bench.pods.is_empty() {
        let nearest = nearest(bench, &selector);
        let hint = if nearest.is_empty() {
            "no pod of the namespace has such labels".to_owned()
        } else {
            let known: Vec<String> = nearest
                .iter()
                .map(|(label, n)| format!("{n} {} {label}", pods_have(*n)))
                .collect();
            known.join(", ")
        };
        let shown: BTreeMap<&String, usize> = nearest.iter().map(|(l, n)| (l, *n)).collect();
        (
            format!("{key} selects {text}, which matches no pod ({hint}). Its traffic is refused."),
            json!({"pods": 0, "nearest": shown}),
            "Correct the selector or the pods' labels, or start the workload if it is scaled to \
             zero.",
        )
    } else {
        let names: Vec<String> = bench.pods.iter().map(|p| p.meta.name.to_string()).collect();
        (
            format!(
                "{key} selects only pods that have finished ({}). Its traffic is refused.",
                name_some(&names, NAMES)
            ),
            json!({"finished": names}),
            "Start the workload again, or let the selector leave finished jobs out.",
        )
    };
    out.push(
        bench
            .draft(FindingKind::SelectorSuspect, Severity::Warning, message)
            .shows(json!({"selector": selector}), actual)
            .cured_by(none(advice)),
    );
}

/// The labels in the namespace that are most like the selector: the same key with another value,
/// nearest text first, else the same value under another key.
fn nearest(bench: &Bench<'_>, selector: &Labels) -> Vec<(String, usize)> {
    let mut near: Vec<(usize, String, usize)> = Vec::new();
    for (key, value) in selector.iter() {
        for (other, pods) in bench.view.label_values(key) {
            near.push((distance(value, other), format!("{key}={other}"), pods));
        }
        for other in bench.view.label_keys().filter(|k| *k != key) {
            let same = bench.view.label_values(other).find(|(v, _)| *v == value);
            if let Some((_, pods)) = same {
                near.push((distance(key, other) + 1, format!("{other}={value}"), pods));
            }
        }
    }
    near.sort();
    near.dedup();
    near.into_iter()
        .take(3)
        .map(|(_, label, pods)| (label, pods))
        .collect()
}

/// Edits between two texts, bounded: labels are at most 63 characters long.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().take(64).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().take(64).enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (y, cell) in b.iter().zip(row.iter_mut().skip(1)) {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = *cell;
            left = replaced.min(left + 1).min(*cell + 1);
            *cell = left;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or_default()
}

fn lacks_port(bench: &Bench<'_>, service: &Service, live: &[&Pod], out: &mut Vec<Finding>) {
    // Without a known version a sidecar's port may or may not count.
    let lacking = |pod: &Pod| {
        service.spec.ports.iter().find(|p| {
            let sidecars = !bench.ctx.is_older_than(33);
            resolve(p, pod, sidecars).is_none()
        })
    };
    let found: Vec<(&Pod, _)> = live
        .iter()
        .filter_map(|p| Some((*p, lacking(p)?)))
        .collect();
    let Some((first, port)) = found.first() else {
        return;
    };
    let names: Vec<String> = found.iter().map(|(p, _)| p.meta.name.to_string()).collect();
    let all = found.len() == live.len();
    let (severity, effect) = if all {
        (Severity::Warning, "No pod serves it.")
    } else {
        (Severity::Info, "They are listed but get no traffic on it.")
    };
    let target = match &port.target_port {
        Some(crate::model::TargetPort::Name(name)) => name.to_string(),
        _ => port.name.to_string(),
    };
    out.push(
        bench
            .draft(
                FindingKind::SelectorSuspect,
                severity,
                format!(
                    "{} selects pods without the port that it names `{target}`: {}. {effect}",
                    bench.view.key(),
                    name_some(&names, NAMES)
                ),
            )
            .of_pod((found.len() == 1).then_some(first.meta.name.as_ref()))
            .shows(json!({"targetPort": target}), json!({"pods": names}))
            .cured_by(none(
                "The slices are right as they are. Name the port in the pods' containers, or let \
                 the selector leave these pods out.",
            )),
    );
}

fn none_ready(bench: &Bench<'_>, live: &[&Pod], out: &mut Vec<Finding>) {
    let reasons: BTreeMap<String, String> = live
        .iter()
        .map(|p| {
            (
                p.meta.name.to_string(),
                super::readiness::why_not_ready(bench.view, p),
            )
        })
        .collect();
    let told: Vec<String> = reasons
        .iter()
        .map(|(pod, why)| format!("{pod}: {why}"))
        .collect();
    out.push(
        bench
            .draft(
                FindingKind::NoReadyPods,
                Severity::Warning,
                format!(
                    "{} selects {} pods and none is ready, so its traffic is refused or goes to \
                     pods that are ending ({}).",
                    bench.view.key(),
                    live.len(),
                    name_some(&told, NAMES)
                ),
            )
            .of_pod(match live {
                [only] => Some(only.meta.name.as_ref()),
                _ => None,
            })
            .shows(json!({"ready": "at least 1"}), json!({"pods": reasons}))
            .cured_by(none("The slices say what the pods say: make a pod ready.")),
    );
}

fn overdue(bench: &Bench<'_>, expect: &Expectation<'_>, out: &mut Vec<Finding>) {
    let mut seen = BTreeSet::new();
    // Once for all of them, and only where some pod is late.
    let routed: LazyCell<BTreeSet<&Box<str>>, _> = LazyCell::new(|| {
        let all = bench
            .slices
            .iter()
            .flat_map(|s| s.endpoints.iter().map(move |e| (s, e)));
        let routed = all.filter(|(slice, e)| bench.is_routed(slice, e));
        routed.filter_map(|(_, e)| Some(&e.pod()?.uid)).collect()
    });
    for expected in expect.endpoints.iter().filter(|e| e.terminating) {
        let pod = expected.pod;
        let Some(until) = pod.meta.deletion_timestamp else {
            continue;
        };
        let late = bench.ctx.now.duration_since(until).as_secs();
        if late <= OVERDUE_SECONDS || !seen.insert(&pod.meta.name) {
            continue;
        }
        let routed = routed.contains(&pod.meta.uid);
        let node = pod.spec.node_name.as_deref();
        let why = if !pod.meta.finalizers.is_empty() {
            format!("finalizers hold it ({})", pod.meta.finalizers.join(", "))
        } else if node
            .and_then(|n| bench.view.node(n))
            .is_some_and(|n| !n.is_ready())
        {
            format!("its node {} does not answer", node.unwrap_or_default())
        } else {
            "its node has not confirmed that it is gone".to_owned()
        };
        let (severity, effect) = if routed {
            (Severity::Warning, "Traffic is still sent to it.")
        } else {
            (Severity::Info, "It gets no traffic.")
        };
        let addresses: Vec<String> = pod.addresses().map(|a| a.to_string()).collect();
        out.push(
            bench
                .draft(
                    FindingKind::TerminationOverdue,
                    severity,
                    format!(
                        "Pod {} should have ended {late} seconds ago and is still listed: {why}. {effect}",
                        pod.meta.name
                    ),
                )
                .of_pod(Some(&pod.meta.name))
                .at(addresses)
                .shows(json!({"goneBy": until.to_string()}), json!({"node": node}))
                .cured_by(none(
                    "The slices are right to list it. Bring the node back, or delete the pod with \
                     --force once its machine is known to be off.",
                )),
        );
    }
}

fn no_local(
    bench: &Bench<'_>,
    service: &Service,
    expect: &Expectation<'_>,
    out: &mut Vec<Finding>,
) {
    let outside = matches!(
        service.spec.service_type,
        ServiceType::NodePort | ServiceType::LoadBalancer
    ) && is_local(service.spec.external_traffic_policy);
    let inside = is_local(service.spec.internal_traffic_policy) && !service.is_headless();
    if (!outside && !inside) || !bench.view.seen(Kind::Node) {
        return;
    }
    let usable: BTreeSet<&str> = expect
        .endpoints
        .iter()
        .filter(|e| e.ready)
        .filter_map(|e| e.pod.spec.node_name.as_deref())
        .collect();
    if usable.is_empty() {
        return;
    }
    let mut nodes: Vec<&Node> = bench.view.nodes().filter(|n| n.is_ready()).collect();
    nodes.sort_by(|a, b| a.meta.name.cmp(&b.meta.name));
    let without: Vec<String> = nodes
        .iter()
        .filter(|n| {
            bench
                .ctx
                .node
                .as_deref()
                .is_none_or(|own| own == n.meta.name.as_ref())
        })
        .filter(|n| !usable.contains(n.meta.name.as_ref()))
        .map(|n| n.meta.name.to_string())
        .collect();
    // A load balancer is told which nodes have none, so only this node's own view is worth a word.
    if without.is_empty() || (bench.ctx.node.is_none() && !inside) {
        return;
    }
    let (policy, whose) = match (outside, inside) {
        (true, true) => (
            "externalTrafficPolicy and internalTrafficPolicy",
            "All traffic",
        ),
        (true, false) => ("externalTrafficPolicy", "Traffic from outside"),
        (false, _) => ("internalTrafficPolicy", "Traffic of pods"),
    };
    let severity = if bench.ctx.node.is_some() {
        Severity::Warning
    } else {
        Severity::Info
    };
    out.push(
        bench
            .draft(
                FindingKind::NoLocalEndpoint,
                severity,
                format!(
                    "{} keeps traffic on the node ({policy} is Local), but {} has no endpoint of \
                     it. {whose} there is dropped.",
                    bench.view.key(),
                    name_some(&without, NAMES)
                ),
            )
            .shows(json!({"nodes": usable}), json!({"nodesWithout": without}))
            .cured_by(none(
                "Run a pod there (a DaemonSet, or topologySpreadConstraints), or set the policy to \
                 Cluster.",
            )),
    );
}

fn pods_have(count: usize) -> &'static str {
    if count == 1 { "pod has" } else { "pods have" }
}

fn selector_text(selector: &Labels) -> String {
    selector
        .iter()
        .map(|(k, v)| format!("{k}={v}"))
        .collect::<Vec<_>>()
        .join(",")
}

#[cfg(test)]
mod tests {
    use super::distance;

    #[test]
    fn distance_counts_edits() {
        assert_eq!(distance("modle", "model"), 2);
        assert_eq!(distance("web", "web"), 0);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("web", "webs"), 1);
    }
}
