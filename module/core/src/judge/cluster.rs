//! Judges everything in scope and weighs the whole: much drift at once means that the controller,
//! not the slices, is what is broken.

use std::collections::BTreeSet;

use serde_json::json;

use super::bench::none;
use super::context::{ControllerSign, JudgeContext};
use super::finding::{Evidence, Finding, FindingKind, Severity};
use super::service::judge_service;
use crate::heal::gate;
use crate::heal::policy::Locality;
use crate::model::{Endpoint, ServiceKey, ServiceView, World};

/// The guard against mass drift counts from this many Services in scope.
const GUARD_FROM: usize = 10;
/// More drifting Services than this are too many, however many there are.
const TOO_MANY: usize = 10;
/// More than one Service in this many is too many.
const TOO_LARGE_A_PART: usize = 5;

/// All findings in scope, in the order of the contract.
pub fn judge_world(world: &World, ctx: &JudgeContext) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut in_scope = 0;
    for key in world.services() {
        let view = world.view(&key);
        if is_in_scope(&view, ctx) {
            in_scope += usize::from(view.service().is_some());
            findings.extend(judge_service(&view, ctx));
        }
    }
    weigh(findings, in_scope, ctx)
}

/// Whether a Service is judged here: not left out by the settings and, where the locality is the
/// node and the node is known, having or due an endpoint on it, or having neither pod nor endpoint.
pub fn is_in_scope(view: &ServiceView<'_>, ctx: &JudgeContext) -> bool {
    if !gate::is_in_scope(&ctx.scope, view.key(), view.service()) {
        return false;
    }
    let Some(node) = ctx
        .node
        .as_deref()
        .filter(|_| ctx.scope.locality == Locality::Node)
    else {
        return true;
    };
    let pods = view.pods();
    let mut endpoints = view.slices().flat_map(|s| &s.endpoints).peekable();
    if pods.is_empty() && endpoints.peek().is_none() {
        return true;
    }
    let pod_here = |pod: &crate::model::Pod| pod.spec.node_name.as_deref() == Some(node);
    let endpoint_here = |e: &Endpoint| match e.node_name.as_deref() {
        Some(name) => name == node,
        None => e
            .pod()
            .and_then(|t| view.target_pod(t))
            .is_some_and(pod_here),
    };
    pods.into_iter().any(pod_here) || endpoints.any(endpoint_here)
}

/// Weighs the findings of all Services in scope and puts them in the order of the contract. Where
/// the controller itself is down, one finding says so and drift is left out.
pub fn weigh(mut findings: Vec<Finding>, in_scope: usize, ctx: &JudgeContext) -> Vec<Finding> {
    if let Some(down) = controller_down(&findings, in_scope, ctx) {
        findings.retain(|f| !f.kind.is_drift());
        findings.push(down);
    }
    findings.sort_by(Finding::order);
    findings
}

/// Whether so many Services drift at once that the controller must be what is broken.
pub fn is_mass_drift(drifting: usize, in_scope: usize) -> bool {
    in_scope >= GUARD_FROM
        && (drifting > TOO_MANY || drifting.saturating_mul(TOO_LARGE_A_PART) > in_scope)
}

fn controller_down(findings: &[Finding], in_scope: usize, ctx: &JudgeContext) -> Option<Finding> {
    let drifting: BTreeSet<ServiceKey> = findings
        .iter()
        .filter(|f| f.kind.is_drift() && f.severity < Severity::Info)
        .filter_map(Finding::service_key)
        .collect();
    let count = drifting.len();
    let why = match &ctx.controller {
        ControllerSign::Down(why) => why.clone(),
        ControllerSign::Unknown if ctx.mass_guard && is_mass_drift(count, in_scope) => {
            format!("{count} of {in_scope} Services drift at once")
        }
        ControllerSign::Unknown | ControllerSign::Works => return None,
    };
    let names: Vec<String> = drifting.iter().take(20).map(ToString::to_string).collect();
    Some(Finding {
        kind: FindingKind::ControllerDown,
        severity: Severity::Critical,
        namespace: None,
        service: None,
        slice: None,
        addresses: Vec::new(),
        pod: None,
        message: format!(
            "The slice controller does not seem to work: {why}. Slices stay as they are while pods \
             come and go, and a deleted slice would not come back."
        ),
        evidence: Evidence {
            expected: json!({"controller": "working"}),
            actual: json!({"sign": why, "drifting": count, "inScope": in_scope, "services": names}),
        },
        remedy: none(
            "Nothing is healed while nobody would write the slices again: look at \
             kube-controller-manager (on k3s, the k3s service) and at its connection to the API.",
        ),
    })
}
