//! Judges one Service: runs the rules in the order in which the first match wins.

use super::bench::Bench;
use super::classify;
use super::context::JudgeContext;
use super::diff::{Comparison, compare};
use super::finding::{Finding, FindingKind, Severity};
use super::{causes, foreign, legacy, mirror, notes, owners, readiness};
use crate::model::{Kind, Service, ServiceView};

/// All findings on one Service, in the order of [`Finding::order`]. Nothing is concluded from kinds
/// that were not seen.
pub fn judge_service(view: &ServiceView<'_>, ctx: &JudgeContext) -> Vec<Finding> {
    let mut out = Vec::new();
    if !view.seen(Kind::EndpointSlice) {
        return out;
    }
    let bench = Bench::new(view, ctx);
    owners::stuck(&bench, &mut out);
    let deleting = view.namespace().is_some_and(|n| n.meta.is_deleting())
        || view.service().is_some_and(|s| s.meta.is_deleting());
    if !deleting {
        rules(&bench, &mut out);
    }
    leave_out_drift(&mut out);
    out.sort_by(Finding::order);
    out
}

fn rules(bench: &Bench<'_>, out: &mut Vec<Finding>) {
    let key = bench.view.key();
    if Service::is_kubernetes(&key.namespace, &key.name) {
        foreign::kubernetes(bench, out);
        return;
    }
    owners::wedged(bench, out);
    owners::orphans(bench, out);
    foreign::judge(bench, out);
    if let Some(service) = bench.service() {
        mirror::judge(bench, service, out);
        if service.is_controlled() {
            controlled(bench, service, out);
        } else {
            owners::leftovers(bench, service, out);
        }
    }
    notes::shared_addresses(bench, out);
}

fn controlled(bench: &Bench<'_>, service: &Service, out: &mut Vec<Finding>) {
    classify::other_families(bench, out);
    classify::missing_slices(bench, out);
    classify::metadata(bench, out);
    let Some(expect) = &bench.expect else { return };
    let compared = compare(bench, expect);
    classify::endpoints(bench, expect, &compared, out);
    if is_right(&compared) {
        legacy::judge(bench, service, out);
    }
    readiness::suspects(bench, expect, out);
    causes::judge(bench, service, expect, out);
    notes::mixed_versions(bench, expect, out);
}

fn is_right(compared: &Comparison<'_>) -> bool {
    compared.diffs.is_empty() && compared.missing.is_empty()
}

/// Beside what keeps the controller from syncing the Service, its endpoints say nothing more; their
/// effect on traffic is that finding's.
fn leave_out_drift(out: &mut Vec<Finding>) {
    let blocks = |f: &Finding| {
        matches!(
            f.kind,
            FindingKind::ControllerWedged | FindingKind::StuckDeleting
        )
    };
    if !out.iter().any(blocks) {
        return;
    }
    let worst = out
        .iter()
        .filter(|f| f.kind.is_drift())
        .map(|f| f.severity)
        .min()
        .unwrap_or(Severity::Info);
    out.retain(|f| !f.kind.is_drift());
    for finding in out.iter_mut().filter(|f| blocks(f)) {
        finding.severity = finding.severity.worse(worst);
    }
}
