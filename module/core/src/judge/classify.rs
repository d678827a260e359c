//! Turns differences of the controller's slices into findings: severity by the effect on traffic,
//! and words for a person. First match per endpoint wins, in the order of [`FindingKind`].

use serde_json::{Value, json};

use super::bench::{Bench, labels_json, none};
use super::diff::{Comparison, Diff, Why};
use super::expect::{Expectation, Expected, families};
use super::finding::{Finding, FindingKind, Severity};
use super::words::{evidence, message};
use crate::model::{
    EndpointPort, HEADLESS, IpFamily, Labels, MANAGED_BY, SERVICE_NAME, Service, Slice,
};

/// Findings on single endpoints, from the comparison.
pub(super) fn endpoints<'a>(
    bench: &Bench<'a>,
    expect: &Expectation<'a>,
    compared: &Comparison<'a>,
    out: &mut Vec<Finding>,
) {
    for diff in &compared.diffs {
        let expected = diff.expected.and_then(|i| expect.endpoints.get(i));
        let severity = severity(bench, expect, compared, diff, expected);
        let (wanted, actual) = evidence(expect, diff, expected);
        out.push(
            bench
                .endpoint(
                    diff.kind,
                    severity,
                    message(bench, diff, expected),
                    diff.slice,
                    diff.endpoint,
                )
                .shows(wanted, actual)
                .cured_by(bench.refresh(Some(diff.slice))),
        );
    }
    for expected in compared
        .missing
        .iter()
        .filter_map(|i| expect.endpoints.get(*i))
    {
        if has_slice(bench, expected.family) {
            out.push(missing_endpoint(bench, expect, compared, expected));
        }
    }
}

/// Findings on families without a slice.
pub(super) fn missing_slices(bench: &Bench<'_>, out: &mut Vec<Finding>) {
    let Some(service) = bench.service().filter(|s| s.is_controlled()) else {
        return;
    };
    for family in families(service) {
        if has_slice(bench, family) {
            continue;
        }
        let expected: Vec<&Expected<'_>> = bench
            .expect
            .iter()
            .flat_map(|e| &e.endpoints)
            .filter(|e| e.family == family)
            .collect();
        let usable = |e: &&&Expected<'_>| {
            bench
                .expect
                .as_ref()
                .is_some_and(|x| x.is_usable(e, service))
        };
        let ready = expected.iter().filter(usable).count();
        let (severity, effect) = match (ready, bench.expect.is_some()) {
            (0, true) => (
                Severity::Info,
                "no pod is ready for it, so no traffic is lost yet",
            ),
            (0, false) => (Severity::Warning, "traffic to it is refused"),
            _ => (Severity::Critical, "its ready pods get no traffic at all"),
        };
        let mut addresses: Vec<String> = expected
            .iter()
            .flat_map(|e| &e.addresses)
            .map(ToString::to_string)
            .collect();
        addresses.sort();
        out.push(
            bench
                .draft(
                    FindingKind::MissingSlice,
                    severity,
                    format!(
                        "{} has no {family} EndpointSlice of the slice controller; {effect}.",
                        bench.view.key()
                    ),
                )
                .shows(
                    json!({"family": family.to_string(), "addresses": addresses}),
                    Value::Null,
                )
                .cured_by(bench.refresh(None)),
        );
    }
}

/// Findings on a slice's own labels.
pub(super) fn metadata(bench: &Bench<'_>, out: &mut Vec<Finding>) {
    let Some(service) = bench.service() else {
        return;
    };
    for slice in bench.right_slices() {
        let expected = labels_of_slices(service);
        let actual = &slice.meta.labels;
        if expected == *actual {
            continue;
        }
        let hidden = !service.is_headless()
            && actual.get(HEADLESS).is_some()
            && slice.endpoints.iter().any(|e| e.conditions.is_ready());
        let (severity, effect) = if !hidden {
            (Severity::Info, "Traffic is not affected.")
        } else if others_serve(bench, slice) {
            (
                Severity::Warning,
                "Proxies skip the slice for its headless label.",
            )
        } else {
            (
                Severity::Critical,
                "Proxies skip the slice for its headless label: no endpoint is left.",
            )
        };
        let differing = |of: &Labels, other: &Labels| {
            labels_json(of.iter().filter(|(k, v)| other.get(k) != Some(v)))
        };
        out.push(
            bench
                .draft(
                    FindingKind::MetadataDrift,
                    severity,
                    format!(
                        "The labels of slice {} are not those of its Service. {effect}",
                        slice.meta.name
                    ),
                )
                .in_slice(slice)
                .shows(differing(&expected, actual), differing(actual, &expected))
                .cured_by(bench.refresh(Some(slice))),
        );
    }
}

/// Whether another slice of the family has a ready endpoint that traffic reaches.
fn others_serve(bench: &Bench<'_>, slice: &Slice) -> bool {
    bench.right_slices().any(|s| {
        s.family() == slice.family()
            && bench.is_used(s)
            && s.endpoints.iter().any(|e| e.conditions.is_ready())
    })
}

/// The labels that the controller gives a slice: the Service's, and three of its own.
fn labels_of_slices(service: &Service) -> Labels {
    let own = [
        Some((SERVICE_NAME, service.meta.name.as_ref())),
        Some((MANAGED_BY, crate::model::CONTROLLER)),
        service.is_headless().then_some((HEADLESS, "")),
    ];
    let copied = service
        .meta
        .labels
        .iter()
        .filter(|(k, _)| ![SERVICE_NAME, MANAGED_BY, HEADLESS].contains(k));
    copied.chain(own.into_iter().flatten()).collect()
}

fn has_slice(bench: &Bench<'_>, family: IpFamily) -> bool {
    bench
        .slices
        .iter()
        .any(|s| s.family() == Some(family) && bench.is_right(s))
}

fn missing_endpoint(
    bench: &Bench<'_>,
    expect: &Expectation<'_>,
    compared: &Comparison<'_>,
    expected: &Expected<'_>,
) -> Finding {
    let served = compared.served.get(&expected.family).copied().unwrap_or(0);
    let usable = bench
        .service()
        .is_some_and(|s| expect.is_usable(expected, s));
    let (severity, effect) = match (usable, served) {
        (false, _) => (Severity::Info, "It would take no traffic now.".to_owned()),
        (true, 0) => (
            Severity::Critical,
            "No ready pod of the Service gets traffic.".to_owned(),
        ),
        (true, n) => (
            Severity::Warning,
            format!("It gets no traffic; {n} others carry its load."),
        ),
    };
    let pod = &expected.pod.meta.name;
    let addresses: Vec<String> = expected.addresses.iter().map(ToString::to_string).collect();
    bench
        .draft(
            FindingKind::MissingEndpoint,
            severity,
            format!(
                "Pod {pod} belongs to the Service but no {} slice lists it. {effect}",
                expected.family
            ),
        )
        .of_pod(Some(pod))
        .shows(
            json!({"addresses": addresses, "ready": expected.ready}),
            Value::Null,
        )
        .cured_by(bench.refresh(None))
        .at(addresses)
}

fn severity(
    bench: &Bench<'_>,
    expect: &Expectation<'_>,
    compared: &Comparison<'_>,
    diff: &Diff<'_>,
    expected: Option<&Expected<'_>>,
) -> Severity {
    let routed = bench.is_routed(diff.slice, diff.endpoint);
    let alone = expected.is_some_and(|e| !compared.served.contains_key(&e.family));
    let unserved = if alone {
        Severity::Critical
    } else {
        Severity::Warning
    };
    match (&diff.why, expected) {
        (Why::Twice, _) => Severity::Info,
        (Why::OtherUid { same_address: true }, _) => Severity::Warning,
        (Why::Fields(fields), _) if fields.contains(&"hostname") => Severity::Warning,
        (Why::Fields(_), _) => Severity::Info,
        (Why::Conditions | Why::OtherUid { .. }, Some(e))
            if e.ready && !routed && bench.is_used(diff.slice) =>
        {
            unserved
        }
        (Why::Conditions, Some(e)) if e.ready || !diff.endpoint.conditions.is_ready() => {
            Severity::Info
        }
        (Why::Ports, Some(e)) if routed => ports_severity(bench, expect.ports(e.ports), diff.slice),
        _ if routed => Severity::Critical,
        _ => Severity::Info,
    }
}

/// A port that leads elsewhere misleads traffic; one that is missing only loses the pod, unless no
/// other slice has it.
fn ports_severity(bench: &Bench<'_>, expected: &[EndpointPort], slice: &Slice) -> Severity {
    let same = |a: &EndpointPort, b: &EndpointPort| {
        a.name == b.name && a.protocol == b.protocol && a.port == b.port
    };
    let missing: Vec<&EndpointPort> = expected
        .iter()
        .filter(|e| !slice.ports.iter().any(|a| same(a, e)))
        .collect();
    let misleads = slice
        .ports
        .iter()
        .any(|a| !expected.iter().any(|e| same(a, e)) && missing.iter().any(|m| m.name == a.name));
    if misleads {
        return Severity::Critical;
    }
    let unserved = |port: &EndpointPort| {
        !bench.right_slices().any(|s| {
            s.ports.iter().any(|p| same(p, port))
                && s.endpoints.iter().any(|e| bench.is_routed(s, e))
        })
    };
    match missing.as_slice() {
        [] => Severity::Info,
        missing if missing.iter().any(|m| unserved(m)) => Severity::Critical,
        _ => Severity::Warning,
    }
}

/// Slices of a family that the Service does not have: the controller removes them at a sync.
pub(super) fn other_families(bench: &Bench<'_>, out: &mut Vec<Finding>) {
    let Some(service) = bench.service().filter(|s| s.is_controlled()) else {
        return;
    };
    let families = families(service);
    for slice in bench.right_slices() {
        if slice.family().is_some_and(|f| families.contains(&f)) {
            continue;
        }
        let remedy = match slice.family() {
            None => none("The controller makes no slices of this address type; delete it by hand."),
            Some(_) if !bench.ctx.delete_leftover => none(
                "It is in nobody's way, and the controller removes it the next time that it writes \
                 the Service's slices. Set heal.delete_leftover to have it removed now.",
            ),
            Some(_) => bench.refresh(Some(slice)),
        };
        out.push(
            bench
                .draft(
                    FindingKind::LeftoverSlice,
                    Severity::Info,
                    format!(
                        "Slice {} is of an address family that the Service does not have. Traffic \
                         of the Service does not use it.",
                        slice.meta.name
                    ),
                )
                .in_slice(slice)
                .shows(
                    json!(families.iter().map(ToString::to_string).collect::<Vec<_>>()),
                    json!(slice.family().map(|f| f.to_string())),
                )
                .cured_by(remedy),
        );
    }
}
