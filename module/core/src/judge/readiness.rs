//! Why a pod is not ready, and pods whose status cannot be true: the slice agrees with them, so
//! healing the slice would be wrong.

use serde_json::json;

use super::bench::{Bench, none};
use super::expect::Expectation;
use super::finding::{Finding, FindingKind, Severity};
use crate::model::{ContainerStatus, Phase, Pod, ServiceView, Truth};

/// How long a node may be not ready before its pods must say so: the node controller marks them
/// when the node turns Unknown, after some 40 to 50 seconds.
const NODE_LAG_SECONDS: i64 = 60;

/// Why a pod is not ready, in a few words.
pub(super) fn why_not_ready(view: &ServiceView<'_>, pod: &Pod) -> String {
    if pod.meta.is_deleting() {
        return "it is ending".into();
    }
    let Some(node_name) = pod.spec.node_name.as_deref().filter(|n| !n.is_empty()) else {
        let scheduled = pod.status.condition("PodScheduled");
        let why = scheduled
            .and_then(|c| c.message.as_deref())
            .unwrap_or("no node was found for it");
        return format!("not scheduled: {why}");
    };
    match view.node(node_name) {
        None if view.seen(crate::model::Kind::Node) => {
            return format!("its node {node_name} does not exist");
        }
        Some(node) if !node.is_ready() => return format!("its node {node_name} is not ready"),
        _ => {}
    }
    if let Some(why) = pod
        .status
        .container_statuses
        .iter()
        .find_map(container_reason)
    {
        return why;
    }
    let gates: Vec<&str> = pod
        .spec
        .readiness_gates
        .iter()
        .map(|g| g.condition_type.as_ref())
        .filter(|g| {
            pod.status
                .condition(g)
                .is_none_or(|c| c.status != Truth::True)
        })
        .collect();
    if !gates.is_empty() {
        return format!("readiness gate {} is not True", gates.join(", "));
    }
    let unready: Vec<&str> = pod
        .status
        .container_statuses
        .iter()
        .filter(|c| !c.ready)
        .map(|c| c.name.as_ref())
        .collect();
    let has_probe = |name: &str| {
        pod.spec
            .containers
            .iter()
            .any(|c| c.name.as_ref() == name && c.readiness_probe)
    };
    match unready.as_slice() {
        [] if pod.status.phase == Phase::Pending => "it has not started yet".into(),
        [] => match pod
            .status
            .condition("Ready")
            .and_then(|c| c.message.as_deref())
        {
            Some(message) => message.to_owned(),
            None => "its Ready condition is not True and says no more".into(),
        },
        names if names.iter().any(|n| has_probe(n)) => {
            format!("the readiness probe of {} fails", names.join(", "))
        }
        names => format!("container {} is not ready", names.join(", ")),
    }
}

fn container_reason(status: &ContainerStatus) -> Option<String> {
    if status.ready {
        return None;
    }
    let name = &status.name;
    let state = &status.state;
    if let Some(waiting) = &state.waiting {
        let why = waiting.reason.as_deref().unwrap_or("waiting");
        return Some(match why {
            "ImagePullBackOff" | "ErrImagePull" | "InvalidImageName" | "ErrImageNeverPull" => {
                format!("the image of {name} cannot be pulled ({why})")
            }
            "CrashLoopBackOff" => format!("{name} crashes again and again ({why})"),
            _ => format!("{name} waits ({why})"),
        });
    }
    let terminated = state.terminated.as_ref()?;
    Some(format!(
        "{name} has ended ({})",
        terminated.reason.as_deref().unwrap_or("no reason given")
    ))
}

/// Pods whose Ready condition contradicts their node or their containers.
pub(super) fn suspects(bench: &Bench<'_>, expect: &Expectation<'_>, out: &mut Vec<Finding>) {
    let mut last = None;
    for expected in &expect.endpoints {
        let pod = expected.pod;
        if pod.meta.is_deleting() || last == Some(&pod.meta.name) {
            continue;
        }
        last = Some(&pod.meta.name);
        let node = pod
            .spec
            .node_name
            .as_deref()
            .and_then(|n| bench.view.node(n));
        let node_lost = node.and_then(|n| n.ready()).is_some_and(|c| {
            c.status != Truth::True
                && c.last_transition_time.is_none_or(|since| {
                    bench.ctx.now.duration_since(since).as_secs() > NODE_LAG_SECONDS
                })
        });
        let containers = pod.status.condition("ContainersReady").map(|c| c.status);
        let name = &pod.meta.name;
        let (severity, message, advice) = if pod.is_ready() && node_lost {
            (
                Severity::Warning,
                format!(
                    "Pod {name} says it is ready, but its node {} is not. Traffic is sent to it and \
                     may be lost.",
                    pod.spec.node_name.as_deref().unwrap_or_default()
                ),
                "The slices say what the pod says. Bring the node back, or delete the pod so that \
                 another one takes its place.",
            )
        } else if !pod.is_ready()
            && containers == Some(Truth::True)
            && pod.spec.readiness_gates.is_empty()
            && node.is_some_and(crate::model::Node::is_ready)
        {
            (
                Severity::Warning,
                format!(
                    "All containers of pod {name} are ready and it has no readiness gate, yet it \
                     says it is not ready. It gets no traffic."
                ),
                "The slices say what the pod says. Restart the kubelet of its node, or delete the \
                 pod.",
            )
        } else {
            continue;
        };
        let addresses: Vec<String> = pod.addresses().map(|a| a.to_string()).collect();
        out.push(
            bench
                .draft(FindingKind::PodStatusSuspect, severity, message)
                .of_pod(Some(name))
                .at(addresses)
                .shows(
                    json!({"nodeReady": node.map(crate::model::Node::is_ready),
                           "containersReady": containers.map(|c| c == Truth::True)}),
                    json!({"podReady": pod.is_ready()}),
                )
                .cured_by(none(advice)),
        );
    }
}
