//! Compares the controller's slices with the expectation, endpoint by endpoint. Says what differs;
//! `classify.rs` says what that does to traffic.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use super::bench::Bench;
use super::expect::{Expectation, Expected};
use super::finding::FindingKind;
use crate::model::{
    Conditions, Endpoint, EndpointPort, IpFamily, Pod, Service, Slice, parse_address,
};

/// One endpoint that is not as it should be.
pub(super) struct Diff<'a> {
    pub(super) kind: FindingKind,
    pub(super) slice: &'a Slice,
    pub(super) endpoint: &'a Endpoint,
    /// Which expected endpoint it stands for.
    pub(super) expected: Option<usize>,
    pub(super) why: Why,
}

/// What exactly differs, in the terms of the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// The pod does not exist.
    PodGone,
    /// The pod was recreated; traffic to the address reaches the new one if that has it.
    OtherUid { same_address: bool },
    /// The endpoint names no pod.
    NoReference,
    /// The pod's labels do not match the selector.
    NotSelected,
    /// The pod's node does not exist.
    NodeGone(String),
    /// The pod has finished.
    Finished,
    /// The address is not the pod's.
    Address,
    /// Conditions differ.
    Conditions,
    /// Ports differ.
    Ports,
    /// A second copy.
    Twice,
    /// These fields differ.
    Fields(Vec<&'static str>),
}

/// The comparison of all of a Service's slices.
pub(super) struct Comparison<'a> {
    pub(super) diffs: Vec<Diff<'a>>,
    /// Expected endpoints that no slice lists.
    pub(super) missing: Vec<usize>,
    /// By family, how many expected ready endpoints traffic reaches.
    pub(super) served: HashMap<IpFamily, usize>,
    /// Endpoints that are as they should be: slice name and index of the expectation.
    pub(super) right: Vec<(&'a Slice, usize)>,
}

type Identity = (usize, Vec<IpAddr>, Option<String>, Option<String>);

/// Compares right slices with the expectation.
pub(super) fn compare<'a>(bench: &Bench<'a>, expect: &Expectation<'a>) -> Comparison<'a> {
    let mut out = Comparison {
        diffs: Vec::new(),
        missing: Vec::new(),
        served: HashMap::new(),
        right: Vec::new(),
    };
    let Some(service) = bench.service() else {
        return out;
    };
    let mut listed = vec![false; expect.endpoints.len()];
    let mut groups: HashMap<(IpFamily, Vec<EndpointPort>), usize> = HashMap::new();
    let mut identities: HashSet<Identity> = HashSet::new();
    for slice in bench.right_slices() {
        let Some(family) = slice.family().filter(|f| expect.families.contains(f)) else {
            continue;
        };
        let ports = sorted_ports(slice);
        let next = groups.len();
        let group = *groups.entry((family, ports.clone())).or_insert(next);
        for endpoint in &slice.endpoints {
            let judged = judge(bench, expect, service, family, endpoint, &ports);
            if let Some(index) = judged.expected
                && let Some(flag) = listed.get_mut(index)
            {
                *flag = true;
            }
            let mut kind_and_why = judged.diff;
            let is_second = !identities.insert(identity(bench, group, endpoint));
            if is_second && kind_and_why.as_ref().is_none_or(|(k, _)| *k == META) {
                kind_and_why = Some((FindingKind::DuplicateEndpoint, Why::Twice));
            }
            let harmless = match &kind_and_why {
                None => true,
                Some((_, Why::OtherUid { same_address })) => *same_address,
                Some((kind, _)) => *kind == META,
            };
            if harmless
                && bench.is_routed(slice, endpoint)
                && judged
                    .expected
                    .and_then(|i| expect.endpoints.get(i))
                    .is_some_and(|e| e.ready)
            {
                *out.served.entry(family).or_default() += 1;
            }
            match kind_and_why {
                None => out.right.extend(judged.expected.map(|i| (slice, i))),
                Some((kind, why)) => {
                    out.diffs.push(Diff {
                        kind,
                        slice,
                        endpoint,
                        expected: judged.expected,
                        why,
                    });
                }
            }
        }
    }
    mark_deleting(bench, expect, &mut listed);
    if bench.ctx.is_older_than(27) {
        mark_shared(expect, &mut listed);
    }
    out.missing = listed
        .iter()
        .enumerate()
        .filter_map(|(index, listed)| (!listed).then_some(index))
        .collect();
    out
}

const META: FindingKind = FindingKind::MetadataDrift;

struct Judged {
    diff: Option<(FindingKind, Why)>,
    /// The expected endpoint that this one speaks for, so that it is not missing.
    expected: Option<usize>,
}

fn judge(
    bench: &Bench<'_>,
    expect: &Expectation<'_>,
    service: &Service,
    family: IpFamily,
    endpoint: &Endpoint,
    ports: &[EndpointPort],
) -> Judged {
    let found = |kind, why, expected| Judged {
        diff: Some((kind, why)),
        expected,
    };
    let own = endpoint
        .pod()
        .filter(|t| t.namespace.is_empty() || t.namespace == bench.view.key().namespace);
    let addresses = sorted_addresses(endpoint);
    let Some(target) = own else {
        let same = addresses.and_then(|a| expect.at(family, a));
        return match same {
            Some(index) => found(META, Why::Fields(vec!["targetRef"]), Some(index)),
            None => found(FindingKind::GhostEndpoint, Why::NoReference, None),
        };
    };
    let Some(pod) = bench.view.target_pod(target) else {
        return found(FindingKind::GhostEndpoint, Why::PodGone, None);
    };
    let expected = expect.of_pod(family, &target.name);
    if !target.uid.is_empty() && target.uid != pod.meta.uid {
        let same = expected.filter(|(_, e)| Some(&e.addresses) == addresses.as_ref());
        return found(
            FindingKind::GhostEndpoint,
            Why::OtherUid {
                same_address: same.is_some_and(|(_, e)| e.ready == is_ready(endpoint)),
            },
            same.map(|(index, _)| index),
        );
    }
    if pod.is_terminal() {
        return found(FindingKind::TerminalPod, Why::Finished, None);
    }
    if !service
        .selector()
        .is_some_and(|s| pod.meta.labels.matches(s))
    {
        return found(FindingKind::GhostEndpoint, Why::NotSelected, None);
    }
    if !addresses
        .as_ref()
        .is_some_and(|a| !a.is_empty() && all_of_pod(pod, a))
    {
        return found(
            FindingKind::WrongAddress,
            Why::Address,
            expected.map(|(i, _)| i),
        );
    }
    let Some((index, expected)) = expected else {
        let node = pod.spec.node_name.as_deref().unwrap_or("(none)").to_owned();
        return found(FindingKind::GhostEndpoint, Why::NodeGone(node), None);
    };
    if addresses.as_ref() != Some(&expected.addresses) {
        return found(FindingKind::WrongAddress, Why::Address, Some(index));
    }
    if conditions_differ(bench, endpoint.conditions, expected) {
        return found(FindingKind::ConditionDrift, Why::Conditions, Some(index));
    }
    if ports != expect.ports(expected.ports) && ports != expect.ports(expected.old_ports) {
        return found(FindingKind::PortDrift, Why::Ports, Some(index));
    }
    let fields = fields_that_differ(bench, service, endpoint, expected, target.uid.is_empty());
    let diff = (!fields.is_empty()).then_some((META, Why::Fields(fields)));
    Judged {
        diff,
        expected: Some(index),
    }
}

fn conditions_differ(bench: &Bench<'_>, actual: Conditions, expected: &Expected<'_>) -> bool {
    // Serving and terminating came with 1.22; without them nothing can differ.
    let young = bench.ctx.server.is_some() && bench.ctx.is_at_least(22);
    let differs = |actual: Option<bool>, expected: bool| match actual {
        Some(actual) => actual != expected,
        None => young,
    };
    actual.ready != Some(expected.ready)
        || differs(actual.serving, expected.serving)
        || differs(actual.terminating, expected.terminating)
}

fn fields_that_differ(
    bench: &Bench<'_>,
    service: &Service,
    endpoint: &Endpoint,
    expected: &Expected<'_>,
    no_uid: bool,
) -> Vec<&'static str> {
    let mut fields = Vec::new();
    let filled = |text: Option<&str>| text.filter(|t| !t.is_empty()).map(str::to_owned);
    if no_uid {
        fields.push("targetRef.uid");
    }
    if filled(endpoint.hostname.as_deref()).as_deref() != expected.hostname {
        fields.push("hostname");
    }
    if filled(endpoint.node_name.as_deref()) != filled(expected.pod.spec.node_name.as_deref()) {
        fields.push("nodeName");
    }
    if bench.view.seen(crate::model::Kind::Node) {
        if filled(endpoint.zone.as_deref()).as_deref() != expected.zone {
            fields.push("zone");
        } else if super::hints::differ(bench.ctx, service, endpoint) {
            fields.push("hints");
        }
    }
    fields
}

/// What a slice that is being deleted still lists is not missing yet.
fn mark_deleting(bench: &Bench<'_>, expect: &Expectation<'_>, listed: &mut [bool]) {
    for slice in bench.slices.iter().filter(|s| s.meta.is_deleting()) {
        let Some(family) = slice.family() else {
            continue;
        };
        for target in slice.endpoints.iter().filter_map(Endpoint::pod) {
            if let Some((index, _)) = expect.of_pod(family, &target.name)
                && let Some(flag) = listed.get_mut(index)
            {
                *flag = true;
            }
        }
    }
}

/// Before 1.27 two pods on one address were one endpoint.
fn mark_shared(expect: &Expectation<'_>, listed: &mut [bool]) {
    let key = |e: &Expected<'_>| (e.addresses.clone(), e.hostname.map(str::to_owned), e.ports);
    let there: HashSet<_> = expect
        .endpoints
        .iter()
        .zip(listed.iter())
        .filter(|(_, listed)| **listed)
        .map(|(e, _)| key(e))
        .collect();
    for (expected, flag) in expect.endpoints.iter().zip(listed) {
        *flag = *flag || there.contains(&key(expected));
    }
}

fn identity(bench: &Bench<'_>, group: usize, endpoint: &Endpoint) -> Identity {
    // The pod joined the identity with 1.27.
    let pod = if bench.ctx.is_older_than(27) {
        None
    } else {
        endpoint.target_ref.as_ref().map(|t| t.name.to_string())
    };
    (
        group,
        sorted_addresses(endpoint).unwrap_or_default(),
        endpoint.hostname.as_deref().map(str::to_owned),
        pod,
    )
}

/// The addresses of an endpoint in order; none if one of them is not an address.
pub(super) fn sorted_addresses(endpoint: &Endpoint) -> Option<Vec<IpAddr>> {
    let mut all: Vec<IpAddr> = endpoint
        .addresses
        .iter()
        .map(|a| parse_address(a))
        .collect::<Option<_>>()?;
    all.sort_unstable();
    Some(all)
}

/// The ports of a slice in order.
pub(super) fn sorted_ports(slice: &Slice) -> Vec<EndpointPort> {
    let mut ports = slice.ports.clone();
    ports.sort_unstable();
    ports
}

fn all_of_pod(pod: &Pod, addresses: &[IpAddr]) -> bool {
    addresses
        .iter()
        .all(|a| pod.addresses().any(|own| own == *a))
}

fn is_ready(endpoint: &Endpoint) -> bool {
    endpoint.conditions.is_ready()
}
