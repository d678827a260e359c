//! What topology hints should say, as far as that can be known from outside
//! (kubernetes/endpointslice `trafficdist`). The allocation of annotation mode depends on the
//! controller's memory and is not judged.

use super::context::JudgeContext;
use crate::model::{Endpoint, Hint, Service};

/// Whether an endpoint's hints are not what its zone and node ask for.
pub(super) fn differ(ctx: &JudgeContext, service: &Service, endpoint: &Endpoint) -> bool {
    if is_annotation_mode(service) {
        return false;
    }
    let hints = endpoint.hints.as_deref();
    let by_node = match service.spec.traffic_distribution.as_deref() {
        Some("PreferClose" | "PreferSameZone") => false,
        Some("PreferSameNode") => true,
        // An unknown heuristic may belong to a newer server.
        Some(_) => return false,
        None => return hints.is_some(),
    };
    if !endpoint.conditions.is_ready() {
        // Keeps whatever it had.
        return false;
    }
    // Alpha until 1.31: may be off. Off means no hints at all.
    let may_be_off = ctx.server.is_none() || ctx.is_older_than(33);
    let Some(hints) = hints else {
        let wants = endpoint.zone.is_some() || (by_node && endpoint.node_name.is_some());
        return wants && !may_be_off;
    };
    let nodes_may_be_off = ctx.server.is_none() || ctx.is_older_than(35);
    let zones = !says(&hints.for_zones, endpoint.zone.as_deref());
    let nodes = if by_node {
        let accepted = nodes_may_be_off && hints.for_nodes.is_empty();
        !accepted && !says(&hints.for_nodes, endpoint.node_name.as_deref())
    } else {
        !hints.for_nodes.is_empty()
    };
    zones || nodes
}

fn says(hints: &[Hint], name: Option<&str>) -> bool {
    match (hints, name) {
        ([], None) => true,
        ([hint], Some(name)) => hint.name.as_ref() == name,
        _ => false,
    }
}

/// The older annotation wins over the newer, and both over the field.
fn is_annotation_mode(service: &Service) -> bool {
    let annotations = &service.meta.annotations;
    let mode = annotations
        .get("service.kubernetes.io/topology-aware-hints")
        .or_else(|| annotations.get("service.kubernetes.io/topology-mode"));
    matches!(mode, Some("Auto" | "auto"))
}
