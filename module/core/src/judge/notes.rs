//! What is worth a note about the endpoints that are routed: several pods on one address, several
//! versions after a rollout.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde_json::json;

use super::bench::{Bench, name_some, none};
use super::expect::Expectation;
use super::finding::{Finding, FindingKind, Severity};
use crate::model::{Endpoint, Kind, Pod};

/// A rollout counts as finished once the newest pod has been ready for this long.
const SETTLED_SECONDS: i64 = 120;

/// Labels that say that several versions are meant: canaries by convention, Argo Rollouts.
const MEANT: [&str; 2] = ["track", "rollouts-pod-template-hash"];

/// Addresses of this Service that several live pods, or several nodes, say they have.
pub(super) fn shared_addresses(bench: &Bench<'_>, out: &mut Vec<Finding>) {
    let mut holders: BTreeMap<IpAddr, BTreeSet<String>> = BTreeMap::new();
    for endpoint in bench.slices.iter().flat_map(|s| &s.endpoints) {
        let target = endpoint.pod();
        if bench.view.seen(Kind::Pod)
            && target
                .and_then(|t| bench.view.target_pod(t))
                .is_none_or(|p| !p.spec.host_network)
        {
            for address in endpoint.ips() {
                note_pods(bench, endpoint, address, &mut holders);
            }
        }
        if let Some(node) = endpoint
            .target_ref
            .as_ref()
            .filter(|t| t.kind.as_ref() == "Node")
        {
            for address in endpoint.ips() {
                holders
                    .entry(address)
                    .or_default()
                    .insert(format!("node {}", node.name));
            }
        }
    }
    for (address, names) in holders.into_iter().filter(|(_, names)| names.len() > 1) {
        let names: Vec<String> = names.into_iter().collect();
        out.push(
            bench
                .draft(
                    FindingKind::SharedAddress,
                    Severity::Info,
                    format!(
                        "{address}, which {} routes to, is the address of {}. Who answers there is \
                         not certain.",
                        bench.view.key(),
                        name_some(&names, 4)
                    ),
                )
                .at(vec![address.to_string()])
                .shows(json!({"holders": 1}), json!({"holders": names}))
                .cured_by(none(
                    "Normal while a virtual machine migrates; otherwise look at the network plugin's \
                     address management.",
                )),
        );
    }
}

fn note_pods(
    bench: &Bench<'_>,
    endpoint: &Endpoint,
    address: IpAddr,
    holders: &mut BTreeMap<IpAddr, BTreeSet<String>>,
) {
    let is_target = |pod: &Pod| endpoint.pod().is_some_and(|t| t.uid == pod.meta.uid);
    let names: Vec<String> = bench
        .view
        .pods_at(address)
        .filter(|p| !p.is_terminal() || is_target(p))
        .map(|p| format!("pod {}/{}", p.meta.namespace, p.meta.name))
        .collect();
    // The usual case, one pod, is not worth an entry.
    if names.len() > 1 {
        holders.entry(address).or_default().extend(names);
    }
}

/// Routed pods of more than one version, once nothing is being rolled out any more.
pub(super) fn mixed_versions(bench: &Bench<'_>, expect: &Expectation<'_>, out: &mut Vec<Finding>) {
    let routed: BTreeMap<&str, &Pod> = expect
        .endpoints
        .iter()
        .filter(|e| e.ready)
        .map(|e| (e.pod.meta.name.as_ref(), e.pod))
        .collect();
    let unsettled = |pod: &Pod| {
        let since = pod
            .status
            .condition("Ready")
            .and_then(|c| c.last_transition_time);
        pod.meta.is_deleting()
            || !pod.is_ready()
            || since
                .or(pod.meta.creation_timestamp)
                .is_some_and(|at| bench.ctx.now.duration_since(at).as_secs() < SETTLED_SECONDS)
    };
    let meant = |pod: &Pod| MEANT.iter().any(|l| pod.meta.labels.get(l).is_some());
    let mut live = bench.pods.iter().filter(|p| !p.is_terminal());
    if routed.len() < 2 || live.any(|p| unsettled(p) || meant(p)) {
        return;
    }
    let pods: Vec<&Pod> = routed.into_values().collect();
    let Some(by_version) = by_label(&pods, "version")
        .or_else(|| by_label(&pods, "app.kubernetes.io/version"))
        .or_else(|| by_image(&pods))
    else {
        return;
    };
    if by_version.len() < 2 {
        return;
    }
    let told: Vec<String> = by_version
        .iter()
        .map(|(version, pods)| format!("{} of {version}", pods.len()))
        .collect();
    out.push(
        bench
            .draft(
                FindingKind::MixedVersions,
                Severity::Warning,
                format!(
                    "{} routes to pods of more than one version ({}) though no rollout is going on. \
                     Answers depend on chance.",
                    bench.view.key(),
                    told.join(", ")
                ),
            )
            .shows(json!({"versions": 1}), json!({"versions": by_version}))
            .cured_by(none(
                "The slices say what the selector says. Remove the old workload or narrow the \
                 selector; where it is meant, label the pods `track`.",
            )),
    );
}

type ByVersion<'a> = BTreeMap<String, Vec<&'a str>>;

/// By a label, if every pod has it.
fn by_label<'a>(pods: &[&'a Pod], label: &str) -> Option<ByVersion<'a>> {
    let mut found = ByVersion::new();
    for pod in pods {
        let version = pod.meta.labels.get(label).filter(|v| !v.is_empty())?;
        found
            .entry(version.to_owned())
            .or_default()
            .push(&pod.meta.name);
    }
    Some(found)
}

/// By the tag of the first container's image, if all pods run the same image otherwise.
fn by_image<'a>(pods: &[&'a Pod]) -> Option<ByVersion<'a>> {
    let mut found = ByVersion::new();
    let mut image = None;
    for pod in pods {
        let (name, tag) = split_image(&pod.spec.containers.first()?.image)?;
        if *image.get_or_insert(name) != name {
            return None;
        }
        found
            .entry(tag.to_owned())
            .or_default()
            .push(&pod.meta.name);
    }
    Some(found)
}

/// Name and tag, or digest, of an image reference.
fn split_image(reference: &str) -> Option<(&str, &str)> {
    if let Some((name, digest)) = reference.split_once('@') {
        let name = name
            .rsplit_once(':')
            .filter(|(_, t)| !t.contains('/'))
            .map_or(name, |(n, _)| n);
        return Some((name, digest));
    }
    reference
        .rsplit_once(':')
        .filter(|(_, tag)| !tag.contains('/'))
}

#[cfg(test)]
mod tests {
    use super::split_image;

    #[test]
    fn image_references_split_at_the_tag_and_not_at_the_port() {
        assert_eq!(
            split_image("reg:5000/model:2.0"),
            Some(("reg:5000/model", "2.0"))
        );
        assert_eq!(split_image("reg:5000/model"), None);
        assert_eq!(
            split_image("model:2@sha256:ab"),
            Some(("model", "sha256:ab"))
        );
        assert_eq!(
            split_image("reg:5000/model@sha256:ab"),
            Some(("reg:5000/model", "sha256:ab"))
        );
    }
}
