//! Slices that mirror an Endpoints object. Deleting one never heals its content: the object that it
//! is made from must be put right, so every remedy here is words.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::{Value, json};

use super::bench::{Bench, none};
use super::expect::family_of;
use super::finding::{Finding, FindingKind, Severity};
use super::foreign;
use crate::model::{
    EndpointAddress, EndpointPort, Endpoints, Kind, Manager, Service, ServiceType, Slice,
    parse_address,
};

/// The mirroring controller takes at most this many addresses of a subset by default.
const MAX_ADDRESSES: usize = 1000;

/// One address on one port as traffic sees it.
type Backend = (IpAddr, Option<i32>);

pub(super) fn judge(bench: &Bench<'_>, service: &Service, out: &mut Vec<Finding>) {
    let mirrored: Vec<&Slice> = bench
        .slices
        .iter()
        .copied()
        .filter(|s| s.manager() == Manager::Mirroring && !s.meta.is_deleting())
        .collect();
    let selects = service.selector().is_some();
    let custom: Vec<&Slice> = bench
        .slices
        .iter()
        .copied()
        .filter(|s| {
            matches!(s.manager(), Manager::Other(_) | Manager::Unmarked)
                && !s.meta.is_deleting()
                && s.endpoints.iter().any(|e| e.conditions.is_ready())
        })
        .collect();
    if selects || !custom.is_empty() {
        for slice in mirrored {
            out.push(conflict(bench, slice, selects, &custom));
        }
        return;
    }
    if bench.view.seen(Kind::Endpoints) && service.spec.service_type != ServiceType::ExternalName {
        drift(bench, &mirrored, out);
    }
}

fn conflict(bench: &Bench<'_>, slice: &Slice, selects: bool, custom: &[&Slice]) -> Finding {
    let own = backends(slice);
    let right: BTreeSet<Backend> = if selects {
        bench.right_slices().flat_map(backends).collect()
    } else {
        custom.iter().flat_map(|s| backends(s)).collect()
    };
    let routed = slice.endpoints.iter().any(|e| bench.is_routed(slice, e));
    let severity = if !routed {
        Severity::Info
    } else if own.is_subset(&right) {
        Severity::Warning
    } else {
        Severity::Critical
    };
    let effect = match severity {
        Severity::Critical => "Part of the traffic goes to addresses that only the mirror lists.",
        Severity::Warning => "Both list the same for now.",
        Severity::Info => "No traffic uses the mirror.",
    };
    let (beside, advice) = if selects {
        (
            "the Service has a selector again",
            "The mirroring controller removes it from Kubernetes 1.23 on; if it stays, delete the \
             slice by hand, after the Endpoints object agrees with the selector."
                .to_owned(),
        )
    } else {
        (
            "somebody writes slices for the Service directly",
            format!(
                "A deleted mirror comes back: delete or repair the Endpoints object {}, or label it \
                 endpointslice.kubernetes.io/skip-mirror=true.",
                bench.view.key()
            ),
        )
    };
    let addresses: Vec<String> = slice
        .endpoints
        .iter()
        .flat_map(super::bench::texts)
        .collect();
    bench
        .draft(
            FindingKind::MirrorConflict,
            severity,
            format!(
                "Slice {} mirrors an Endpoints object, but {beside}. {effect}",
                slice.meta.name
            ),
        )
        .in_slice(slice)
        .shows(backends_json(&right), backends_json(&own))
        .at(addresses)
        .cured_by(none(advice))
}

fn drift(bench: &Bench<'_>, mirrored: &[&Slice], out: &mut Vec<Finding>) {
    let source = bench.view.endpoints().filter(|e| e.is_mirrored());
    let expected = source.map(entries).unwrap_or_default();
    let too_many = source.is_some_and(|e| {
        e.subsets
            .iter()
            .any(|s| s.addresses.len() + s.not_ready_addresses.len() > MAX_ADDRESSES)
    });
    let actual: Vec<(&Slice, BTreeSet<Entry>)> = mirrored
        .iter()
        .map(|slice| (*slice, slice_entries(slice)))
        .collect();
    let missing: Vec<&Entry> = expected
        .iter()
        .filter(|e| !actual.iter().any(|(_, own)| own.contains(*e)))
        .collect();
    let mut differing = false;
    for (slice, own) in &actual {
        let wrong: Vec<&Entry> = own.iter().filter(|e| !expected.contains(*e)).collect();
        if wrong.is_empty() {
            lists_gone(bench, slice, out);
        } else {
            // What is missing then is the other side of the same difference.
            out.push(differs(bench, slice, &wrong, &missing));
            differing = true;
        }
    }
    if !missing.is_empty() && !too_many && !differing {
        out.push(lacks(bench, mirrored, &missing));
    }
}

/// One address of an Endpoints object or of a mirrored slice, as far as the two must agree.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    address: IpAddr,
    ready: bool,
    ports: Vec<EndpointPort>,
}

fn entries(endpoints: &Endpoints) -> BTreeSet<Entry> {
    let mut all = BTreeSet::new();
    for subset in &endpoints.subsets {
        let mut ports = subset.ports.clone();
        ports.sort_unstable();
        let mut add = |addresses: &[EndpointAddress], ready| {
            for address in addresses.iter().filter_map(|a| parse_address(&a.ip)) {
                all.insert(Entry {
                    address,
                    ready,
                    ports: ports.clone(),
                });
            }
        };
        add(&subset.addresses, true);
        add(&subset.not_ready_addresses, false);
    }
    all
}

fn slice_entries(slice: &Slice) -> BTreeSet<Entry> {
    let ports = super::diff::sorted_ports(slice);
    let mut all = BTreeSet::new();
    for endpoint in &slice.endpoints {
        for address in endpoint.ips() {
            let ready = endpoint.conditions.is_ready();
            all.insert(Entry {
                address,
                ready,
                ports: ports.clone(),
            });
        }
    }
    all
}

fn differs(bench: &Bench<'_>, slice: &Slice, wrong: &[&Entry], missing: &[&Entry]) -> Finding {
    let routed = wrong.iter().any(|e| e.ready) && bench.service().is_some();
    let severity = if routed {
        Severity::Critical
    } else {
        Severity::Warning
    };
    let effect = if routed {
        "Traffic is sent to what the object does not offer."
    } else {
        "Addresses that the object offers get no traffic."
    };
    let addresses: BTreeSet<IpAddr> = wrong.iter().map(|e| e.address).collect();
    bench
        .draft(
            FindingKind::MirrorDrift,
            severity,
            format!(
                "Slice {} is not what the Endpoints object that it mirrors says. {effect}",
                slice.meta.name
            ),
        )
        .in_slice(slice)
        .at(addresses.iter().map(ToString::to_string).collect())
        .shows(entries_json(missing), entries_json(wrong))
        .cured_by(none(
            "The mirroring controller writes it: touch the Endpoints object to make it look again. \
             If the difference comes back it is a fault of this Kubernetes version (known in 1.19 \
             to 1.21).",
        ))
}

fn lacks(bench: &Bench<'_>, mirrored: &[&Slice], missing: &[&Entry]) -> Finding {
    let ready = missing.iter().any(|e| e.ready);
    let none_routed = !mirrored
        .iter()
        .any(|s| s.endpoints.iter().any(|e| bench.is_routed(s, e)));
    let severity = match (ready, none_routed) {
        (true, true) => Severity::Critical,
        (true, false) => Severity::Warning,
        (false, _) => Severity::Info,
    };
    let advice = none(
        "The mirroring controller writes these slices: touch the Endpoints object to make it look \
         again.",
    );
    let addresses: Vec<String> = missing.iter().map(|e| e.address.to_string()).collect();
    let (kind, what) = match mirrored {
        [] => (
            FindingKind::MissingSlice,
            "no slice mirrors the Endpoints object",
        ),
        _ => (
            FindingKind::MirrorDrift,
            "the mirrored slices lack addresses of the Endpoints object",
        ),
    };
    let effect = match severity {
        Severity::Critical => "No address gets traffic.",
        Severity::Warning => "They get no traffic.",
        Severity::Info => "They would take no traffic now.",
    };
    let finding = bench
        .draft(
            kind,
            severity,
            format!("{}: {what}. {effect}", bench.view.key()),
        )
        .at(addresses)
        .shows(entries_json(missing), Value::Null)
        .cured_by(advice);
    match mirrored {
        [only] => finding.in_slice(only),
        _ => finding,
    }
}

/// The mirror is true, but what it mirrors is not.
fn lists_gone(bench: &Bench<'_>, slice: &Slice, out: &mut Vec<Finding>) {
    let holders = foreign::node_holders(bench);
    let gone: Vec<_> = slice
        .endpoints
        .iter()
        .filter_map(|e| {
            foreign::gone_pod(bench, e)
                .or_else(|| foreign::gone_node(bench, e, &holders))
                .map(|why| (e, why))
        })
        .collect();
    let Some((first, why)) = gone.first() else {
        return;
    };
    let routed = gone.iter().any(|(e, _)| bench.is_routed(slice, e));
    let severity = if routed {
        Severity::Critical
    } else {
        Severity::Info
    };
    let addresses: Vec<String> = gone
        .iter()
        .flat_map(|(e, _)| super::bench::texts(e))
        .collect();
    let pod = (gone.len() == 1)
        .then(|| first.pod().map(|t| t.name.as_ref()))
        .flatten();
    out.push(
        bench
            .draft(
                FindingKind::MirrorDrift,
                severity,
                format!(
                    "Slice {} mirrors its Endpoints object, but that lists what is gone: {} {why}. {}",
                    slice.meta.name,
                    super::bench::texts(first).join(", "),
                    if routed { "Traffic is sent there." } else { "No traffic is sent there." }
                ),
            )
            .in_slice(slice)
            .of_pod(pod)
            .shows(Value::Null, json!({"addresses": addresses}))
            .at(addresses)
            .cured_by(none(format!(
                "A deleted mirror comes back: repair or delete the Endpoints object {}.",
                bench.view.key()
            ))),
    );
}

fn backends(slice: &Slice) -> BTreeSet<Backend> {
    let ready = slice.endpoints.iter().filter(|e| e.conditions.is_ready());
    ready
        .flat_map(|e| e.ips().collect::<Vec<_>>())
        .flat_map(|a| slice.ports.iter().map(move |p| (a, p.port)))
        .collect()
}

fn backends_json(backends: &BTreeSet<Backend>) -> Value {
    let all: Vec<String> = backends
        .iter()
        .map(|(address, port)| match (port, family_of(*address)) {
            (Some(port), crate::model::IpFamily::IPv6) => format!("[{address}]:{port}"),
            (Some(port), crate::model::IpFamily::IPv4) => format!("{address}:{port}"),
            (None, _) => address.to_string(),
        })
        .collect();
    json!({"addresses": all})
}

fn entries_json(entries: &[&Entry]) -> Value {
    let all: Vec<Value> = entries
        .iter()
        .map(|e| {
            json!({
                "address": e.address.to_string(), "ready": e.ready,
                "ports": e.ports.iter().map(|p| p.port).collect::<Vec<_>>()
            })
        })
        .collect();
    json!(all)
}
