//! Slices of the slice controller that it no longer looks at, or can no longer sync: orphans,
//! leftovers, what is stuck in deletion, what wedges the controller.

use serde_json::json;

use super::bench::{Bench, none, texts};
use super::finding::{Finding, FindingKind, Severity};
use crate::model::{Kind, Manager, Service, ServiceType, Slice};

/// A deletion that waits for longer than this is stuck.
const STUCK_SECONDS: i64 = 120;

/// Slices that wait for a finalizer.
pub(super) fn stuck(bench: &Bench<'_>, out: &mut Vec<Finding>) {
    for slice in &bench.slices {
        let Some(since) = slice.meta.deletion_timestamp else {
            continue;
        };
        let waited = bench.ctx.now.duration_since(since).as_secs();
        if slice.meta.finalizers.is_empty() || waited <= STUCK_SECONDS {
            continue;
        }
        let finalizers = slice.meta.finalizers.join(", ");
        out.push(
            bench
                .draft(
                    FindingKind::StuckDeleting,
                    Severity::Warning,
                    format!(
                        "Slice {} has been waiting to be deleted for {} minutes behind {finalizers}. \
                         What it lists may stay in use, and the controller may be unable to sync \
                         the Service.",
                        slice.meta.name,
                        waited / 60
                    ),
                )
                .in_slice(slice)
                .at(slice.endpoints.iter().flat_map(texts).collect())
                .shows(json!(null), json!({"finalizers": slice.meta.finalizers}))
                .cured_by(none(
                    "Find who set the finalizer; if that program is gone, remove the finalizer by \
                     hand.",
                )),
        );
    }
}

/// Signs that the controller waits for a slice that it will never see again: one whose label was
/// edited while it tracked the slice. Only putting the label back, or a restart, frees it.
pub(super) fn wedged(bench: &Bench<'_>, out: &mut Vec<Finding>) {
    let Some(service) = bench.service().filter(|s| s.is_controlled()) else {
        return;
    };
    let ours = |slice: &Slice| {
        let prefix = format!("{}-", service.meta.name);
        slice
            .owning_service()
            .is_some_and(|o| o.uid == service.meta.uid)
            && (slice.meta.name.starts_with(&prefix)
                || slice.meta.generate_name.as_deref() == Some(prefix.as_str()))
    };
    let unmarked = bench
        .slices
        .iter()
        .copied()
        .filter(|s| s.manager() == Manager::Unmarked && ours(s))
        .map(|s| (s, crate::model::MANAGED_BY, crate::model::CONTROLLER));
    let strays = bench
        .view
        .strays()
        .filter(|s| s.manager() == Manager::Controller && ours(s))
        .map(|s| (s, crate::model::SERVICE_NAME, service.meta.name.as_ref()));
    for (slice, label, value) in unmarked
        .chain(strays)
        .filter(|(s, ..)| !s.meta.is_deleting())
    {
        let actual = slice.meta.labels.get(label);
        out.push(
            bench
                .draft(
                    FindingKind::ControllerWedged,
                    Severity::Warning,
                    format!(
                        "Slice {} is owned by the Service but its label {label} was changed. The \
                         controller may wait for it for ever and leave the Service's endpoints as \
                         they are.",
                        slice.meta.name
                    ),
                )
                .in_slice(slice)
                .at(slice.endpoints.iter().flat_map(texts).collect())
                .shows(json!({label: value}), json!({label: actual}))
                .cured_by(none(format!(
                    "Put the label back (kubectl label --overwrite -n {} endpointslice {} \
                     {label}={value}), or restart kube-controller-manager.",
                    slice.meta.namespace, slice.meta.name
                ))),
        );
    }
}

/// Slices whose owner is gone or was recreated.
pub(super) fn orphans(bench: &Bench<'_>, out: &mut Vec<Finding>) {
    if !bench.view.seen(Kind::Service) {
        return;
    }
    let service = bench.service();
    for slice in bench
        .slices
        .iter()
        .copied()
        .filter(|s| !s.meta.is_deleting())
    {
        match (service, slice.manager()) {
            (None, Manager::Controller | Manager::Mirroring)
                if !belongs_elsewhere(bench, slice) =>
            {
                out.push(ownerless(bench, slice));
            }
            (Some(service), Manager::Controller)
                if service.is_controlled()
                    && !bench.is_right(slice)
                    && !belongs_elsewhere(bench, slice) =>
            {
                out.push(orphan(bench, service, slice));
            }
            _ => {}
        }
    }
}

/// Slices that the controller made and no longer looks at.
pub(super) fn leftovers(bench: &Bench<'_>, service: &Service, out: &mut Vec<Finding>) {
    let why = if service.spec.service_type == ServiceType::ExternalName {
        "is an ExternalName now"
    } else {
        "has no selector any more"
    };
    let pods_seen = bench.view.seen(Kind::Pod);
    for slice in bench.slices.iter().copied() {
        if slice.meta.is_deleting() || slice.manager() != Manager::Controller {
            continue;
        }
        let routed = || slice.endpoints.iter().filter(|e| bench.is_routed(slice, e));
        let dead = routed().filter(|e| pods_seen && super::foreign::gone_pod(bench, e).is_some());
        let severity = match (routed().count(), dead.count()) {
            (0, _) => Severity::Info,
            (_, 0) => Severity::Warning,
            _ => Severity::Critical,
        };
        let effect = match severity {
            Severity::Critical => "Traffic is sent to pods that are gone.",
            Severity::Warning => "Traffic is sent to what it lists, and nobody keeps that right.",
            Severity::Info => "Traffic does not use it.",
        };
        out.push(
            bench
                .draft(
                    FindingKind::LeftoverSlice,
                    severity,
                    format!(
                        "Slice {} is left from when the slice controller looked after {}, which \
                         {why}. {effect}",
                        slice.meta.name,
                        bench.view.key()
                    ),
                )
                .in_slice(slice)
                .at(slice.endpoints.iter().flat_map(texts).collect())
                .shows(
                    json!(null),
                    json!({"managedBy": crate::model::CONTROLLER, "endpoints": slice.endpoints.len()}),
                )
                .cured_by(bench.delete_leftover(slice)),
        );
    }
}

/// Owned by another living Service: that one is judged with it (`wedged`).
fn belongs_elsewhere(bench: &Bench<'_>, slice: &Slice) -> bool {
    slice.owning_service().is_some_and(|o| {
        *o.name != *bench.view.key().name
            && bench
                .view
                .sibling(&o.name)
                .is_some_and(|s| s.meta.uid == o.uid)
    })
}

fn ownerless(bench: &Bench<'_>, slice: &Slice) -> Finding {
    let owner = slice.meta.controller();
    let collected = if owner.is_some() {
        "The garbage collector removes it; if it stays, kube-controller-manager is not working."
    } else {
        "It has no owner, so the garbage collector never removes it: delete it by hand."
    };
    bench
        .draft(
            FindingKind::OrphanSlice,
            Severity::Info,
            format!(
                "Slice {} names Service {}, which does not exist. No traffic uses it.",
                slice.meta.name,
                bench.view.key()
            ),
        )
        .in_slice(slice)
        .at(slice.endpoints.iter().flat_map(texts).collect())
        .shows(json!(null), json!({"ownerUid": owner.map(|o| &*o.uid)}))
        .cured_by(none(collected))
}

fn orphan(bench: &Bench<'_>, service: &Service, slice: &Slice) -> Finding {
    let owner = slice.meta.controller();
    let stale = slice
        .endpoints
        .iter()
        .filter(|e| bench.is_routed(slice, e))
        .any(|e| bench.expect.is_some() && !is_expected(bench, slice, e));
    let (severity, effect) = if stale {
        (
            Severity::Critical,
            "Traffic is sent to addresses that the Service does not have now.",
        )
    } else if slice.endpoints.iter().any(|e| bench.is_routed(slice, e)) {
        (
            Severity::Warning,
            "What it lists is right for now, but nobody keeps it right.",
        )
    } else {
        (Severity::Info, "No traffic uses it.")
    };
    bench
        .draft(
            FindingKind::OrphanSlice,
            severity,
            format!(
                "Slice {} was made for another Service of this name, since deleted. {effect}",
                slice.meta.name
            ),
        )
        .in_slice(slice)
        .at(slice.endpoints.iter().flat_map(texts).collect())
        .shows(
            json!({"ownerUid": &*service.meta.uid}),
            json!({"ownerUid": owner.map(|o| &*o.uid)}),
        )
        .cured_by(bench.refresh(Some(slice)))
}

fn is_expected(bench: &Bench<'_>, slice: &Slice, endpoint: &crate::model::Endpoint) -> bool {
    let found = || {
        let expect = bench.expect.as_ref()?;
        let index = expect.at(slice.family()?, super::diff::sorted_addresses(endpoint)?)?;
        expect.endpoints.get(index)
    };
    found().is_some_and(|e| e.ready == endpoint.conditions.is_ready())
}
