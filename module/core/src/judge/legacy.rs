//! The Endpoints object of a Service with a selector against what the Endpoints controller should
//! write (kubernetes `endpoints_controller.go`): who still reads it, such as older ingress
//! controllers, sends traffic by it. Judged only where the slices are right.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::{Value, json};

use super::bench::Bench;
use super::expect::{families, family_of, resolve};
use super::finding::{Finding, FindingKind, Severity};
use crate::model::{Endpoints, Kind, Service, parse_address};

/// The Endpoints controller writes no more addresses than this.
const MAX_ADDRESSES: usize = 1000;

pub(super) fn judge(bench: &Bench<'_>, service: &Service, out: &mut Vec<Finding>) {
    let Some(endpoints) = bench
        .view
        .endpoints()
        .filter(|_| bench.view.seen(Kind::Endpoints))
    else {
        return;
    };
    let leader = "control-plane.alpha.kubernetes.io/leader";
    if bench.expect.is_none()
        || endpoints.meta.is_deleting()
        || endpoints.meta.annotations.get(leader).is_some()
    {
        return;
    }
    let expected = expected(bench, service);
    if expected.len() > MAX_ADDRESSES {
        return;
    }
    let actual = actual(endpoints);
    if expected == actual {
        return;
    }
    let missing: Vec<&(IpAddr, bool)> = expected.difference(&actual).collect();
    let surplus: Vec<&(IpAddr, bool)> = actual.difference(&expected).collect();
    let affects = missing.iter().chain(&surplus).any(|(_, ready)| *ready);
    let severity = if affects {
        Severity::Warning
    } else {
        Severity::Info
    };
    let addresses: BTreeSet<String> = missing
        .iter()
        .chain(&surplus)
        .map(|(a, _)| a.to_string())
        .collect();
    out.push(
        bench
            .draft(
                FindingKind::EndpointsDrift,
                severity,
                format!(
                    "The Endpoints object of {} disagrees with its slices, which are right. Proxies \
                     follow the slices; whoever still reads Endpoints is misled.",
                    bench.view.key()
                ),
            )
            .at(addresses.into_iter().collect())
            .shows(shown(&missing), shown(&surplus))
            .cured_by(bench.refresh(None)),
    );
}

/// Address and whether it is ready, for the Service's primary family.
fn expected(bench: &Bench<'_>, service: &Service) -> BTreeSet<(IpAddr, bool)> {
    let publish = service.spec.publish_not_ready_addresses;
    let family = families(service).first().copied();
    // Ports of sidecars count since the two controllers share one FindPort (kubernetes/kubernetes#128850, 1.33).
    let sidecars = !bench.ctx.is_older_than(33);
    let no_ports = service.spec.ports.is_empty() && service.is_headless();
    bench
        .pods
        .iter()
        .filter(|p| !p.is_terminal() && (publish || !p.meta.is_deleting()))
        .filter(|p| {
            no_ports
                || service
                    .spec
                    .ports
                    .iter()
                    .any(|s| resolve(s, p, sidecars).is_some())
        })
        .filter_map(|p| {
            let address = p.addresses().find(|a| Some(family_of(*a)) == family)?;
            Some((address, publish || p.is_ready()))
        })
        .collect()
}

fn actual(endpoints: &Endpoints) -> BTreeSet<(IpAddr, bool)> {
    let mut all = BTreeSet::new();
    for subset in &endpoints.subsets {
        let ready = subset.addresses.iter().map(|a| (a, true));
        let not_ready = subset.not_ready_addresses.iter().map(|a| (a, false));
        all.extend(
            ready
                .chain(not_ready)
                .filter_map(|(a, ready)| Some((parse_address(&a.ip)?, ready))),
        );
    }
    all
}

fn shown(entries: &[&(IpAddr, bool)]) -> Value {
    if entries.is_empty() {
        return Value::Null;
    }
    json!(
        entries
            .iter()
            .map(|(address, ready)| json!({"address": address.to_string(), "ready": ready}))
            .collect::<Vec<_>>()
    )
}
