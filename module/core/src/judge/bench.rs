//! What the parts of one judgement share: the objects of the Service, what traffic reaches, and how
//! a finding is written down.

use serde_json::{Value, json};

use super::context::JudgeContext;
use super::expect::Expectation;
use super::finding::{Evidence, Finding, FindingKind, Remedy, RemedyAction, Severity};
use crate::heal::gate::{self, GateInput, HoldReason};
use crate::model::{
    Endpoint, EndpointPort, IpFamily, Kind, Labels, Manager, Pod, Protocol, Service, ServiceView,
    Slice, TrafficPolicy, parse_address,
};

/// One Service under judgement.
pub(super) struct Bench<'a> {
    pub(super) view: &'a ServiceView<'a>,
    pub(super) ctx: &'a JudgeContext,
    /// Slices that name the Service, by name.
    pub(super) slices: Vec<&'a Slice>,
    /// Pods that it selects, by name; empty while pods were not seen.
    pub(super) pods: Vec<&'a Pod>,
    /// What the controller's slices should say, where it looks at the Service and pods were seen.
    pub(super) expect: Option<Expectation<'a>>,
    /// Ports for which proxies find something ready, by family.
    served: Vec<(IpFamily, &'a str, Protocol)>,
}

impl<'a> Bench<'a> {
    pub(super) fn new(view: &'a ServiceView<'a>, ctx: &'a JudgeContext) -> Self {
        let slices: Vec<&Slice> = view.slices().collect();
        let pods = if view.seen(Kind::Pod) {
            view.pods()
        } else {
            Vec::new()
        };
        let expect = view
            .service()
            .filter(|s| s.is_controlled() && view.seen(Kind::Pod))
            .map(|service| Expectation::new(service, &pods, view, ctx));
        let mut served: Vec<(IpFamily, &str, Protocol)> = slices
            .iter()
            .copied()
            .filter(|s| !has_headless_label(s))
            .filter(|s| s.endpoints.iter().any(|e| e.conditions.is_ready()))
            .filter_map(|s| s.family().map(|family| (family, s)))
            .flat_map(|(family, s)| proxied(s).map(move |p| (family, p.name.as_ref(), p.protocol)))
            .collect();
        served.sort_unstable();
        served.dedup();
        Self {
            view,
            ctx,
            slices,
            pods,
            expect,
            served,
        }
    }

    pub(super) fn service(&self) -> Option<&'a Service> {
        self.view.service()
    }

    /// Whether a slice is the slice controller's and owned by the Service as it is now: what it
    /// looks at when it syncs (`ownedBy` in its source).
    pub(super) fn is_right(&self, slice: &Slice) -> bool {
        slice.manager() == Manager::Controller
            && self.service().is_some_and(|service| {
                slice.meta.owner_references.iter().any(|o| {
                    o.uid == service.meta.uid
                        && o.kind.as_ref() == "Service"
                        && o.api_version.as_ref() == "v1"
                })
            })
    }

    /// The slices that count as the controller's answer.
    pub(super) fn right_slices(&self) -> impl Iterator<Item = &'a Slice> {
        self.slices
            .iter()
            .copied()
            .filter(|s| !s.meta.is_deleting() && self.is_right(s))
    }

    /// Whether proxies, or DNS for a headless Service, look at this slice at all.
    pub(super) fn is_used(&self, slice: &Slice) -> bool {
        self.service().is_some_and(|service| {
            slice.family().is_some()
                && service.spec.service_type != crate::model::ServiceType::ExternalName
                && (service.is_headless()
                    || (!slice.ports.is_empty() && !has_headless_label(slice)))
        })
    }

    /// Whether traffic reaches an endpoint of this slice: proxies use what is ready and, for a port
    /// of which nothing is, what still serves while it terminates (`CategorizeEndpoints` in
    /// pkg/proxy/topology.go of kubernetes/kubernetes). DNS publishes only what is ready.
    pub(super) fn is_routed(&self, slice: &Slice, endpoint: &Endpoint) -> bool {
        let conditions = endpoint.conditions;
        self.is_used(slice)
            && (conditions.is_ready()
                || (conditions.is_serving()
                    && conditions.is_terminating()
                    && self.falls_back(slice)))
    }

    /// Whether proxies have nothing ready for some port of this slice.
    fn falls_back(&self, slice: &Slice) -> bool {
        let is_headless = self.service().is_some_and(Service::is_headless);
        !is_headless
            && slice.family().is_some_and(|family| {
                proxied(slice).any(|p| {
                    let port = (family, p.name.as_ref(), p.protocol);
                    self.served.binary_search(&port).is_err()
                })
            })
    }

    /// The remedy of what a sync of the controller cures.
    pub(super) fn refresh(&self, slice: Option<&Slice>) -> Remedy {
        if self.ctx.is_older_than(25) && self.expect.as_ref().is_some_and(|e| e.lost_node) {
            return none(
                "This server gives up on a Service while a pod's node is missing (fixed in 1.25): \
                 bring the node back or delete the pod.",
            );
        }
        match gate::refresh(&self.gate(slice)) {
            Ok(()) => Remedy {
                action: RemedyAction::RefreshService,
                reason: "A refresh makes the slice controller compute the endpoints of the \
                         Service again; nothing is taken away."
                    .into(),
                hold: None,
            },
            Err(hold) => held(hold),
        }
    }

    /// The remedy of a slice that the controller no longer looks at.
    pub(super) fn delete_leftover(&self, slice: &Slice) -> Remedy {
        if !self.ctx.delete_leftover {
            return none(
                "The controller never touches it again and somebody may rely on it: delete it by \
                 hand, or set heal.delete_leftover.",
            );
        }
        match gate::delete(&self.gate(Some(slice))) {
            Ok(()) => Remedy {
                action: RemedyAction::DeleteSlice,
                reason: "The controller never touches it again, and heal.delete_leftover is set."
                    .into(),
                hold: None,
            },
            Err(hold) => held(hold),
        }
    }

    pub(super) fn gate<'b>(&'b self, slice: Option<&'b Slice>) -> GateInput<'b> {
        GateInput {
            key: self.view.key(),
            service: self.view.service(),
            namespace: self.view.namespace(),
            slice,
            scope: &self.ctx.scope,
            delete_leftover: self.ctx.delete_leftover,
            load_balancers: self.ctx.load_balancers,
        }
    }

    /// A finding about this Service, to be filled.
    pub(super) fn draft(
        &self,
        kind: FindingKind,
        severity: Severity,
        message: impl Into<String>,
    ) -> Finding {
        let key = self.view.key();
        Finding {
            kind,
            severity,
            namespace: Some(key.namespace.to_string()),
            service: Some(key.name.to_string()),
            slice: None,
            addresses: Vec::new(),
            pod: None,
            message: message.into(),
            evidence: Evidence::default(),
            remedy: Remedy::default(),
        }
    }

    /// A finding about one endpoint.
    pub(super) fn endpoint(
        &self,
        kind: FindingKind,
        severity: Severity,
        message: impl Into<String>,
        slice: &Slice,
        endpoint: &Endpoint,
    ) -> Finding {
        self.draft(kind, severity, message)
            .in_slice(slice)
            .at(texts(endpoint))
            .of_pod(endpoint.pod().map(|t| t.name.as_ref()))
    }
}

impl Finding {
    pub(super) fn in_slice(mut self, slice: &Slice) -> Self {
        self.slice = Some(slice.meta.name.to_string());
        self
    }

    pub(super) fn at(mut self, addresses: Vec<String>) -> Self {
        self.addresses = addresses;
        self.addresses.sort();
        self.addresses.dedup();
        self
    }

    pub(super) fn of_pod(mut self, pod: Option<&str>) -> Self {
        self.pod = pod.map(str::to_owned);
        self
    }

    pub(super) fn shows(mut self, expected: Value, actual: Value) -> Self {
        self.evidence = Evidence { expected, actual };
        self
    }

    pub(super) fn cured_by(mut self, remedy: Remedy) -> Self {
        self.remedy = remedy;
        self
    }
}

/// No remedy, and why.
pub(super) fn none(reason: impl Into<String>) -> Remedy {
    Remedy {
        action: RemedyAction::None,
        reason: reason.into(),
        hold: None,
    }
}

/// No remedy because the gate forbids it.
pub(super) fn held(hold: HoldReason) -> Remedy {
    let why = match hold {
        HoldReason::NotManaged => {
            "Only slices of the slice controller for a living Service with a selector are written \
             to; this is not one, or its owner is not in order."
        }
        HoldReason::NotInScope => "The settings leave this namespace or Service out.",
        HoldReason::OptedOut => "The annotation slice-healer.io/ignore asks to leave it alone.",
        HoldReason::Finalizer => {
            "A finalizer holds the slice; whoever set it must remove it first."
        }
        HoldReason::Deleting => "It is being deleted.",
        HoldReason::LoadBalancer => {
            "The settings leave Services of type LoadBalancer alone; refresh it by hand."
        }
        _ => "It is held back.",
    };
    Remedy {
        action: RemedyAction::None,
        reason: why.into(),
        hold: Some(hold),
    }
}

/// The addresses of an endpoint, canonical where they are addresses, sorted.
pub(super) fn texts(endpoint: &Endpoint) -> Vec<String> {
    let mut all: Vec<String> = endpoint.addresses.iter().map(|a| canonical(a)).collect();
    all.sort();
    all
}

/// An address in its canonical form; other text unchanged.
pub(super) fn canonical(text: &str) -> String {
    parse_address(text).map_or_else(|| text.to_owned(), |a| a.to_string())
}

/// How an endpoint reads in evidence.
pub(super) fn endpoint_json(endpoint: &Endpoint) -> Value {
    let mut shown = json!({"addresses": texts(endpoint), "ready": endpoint.conditions.is_ready()});
    if let (Some(target), Some(map)) = (&endpoint.target_ref, shown.as_object_mut()) {
        map.insert(
            "target".into(),
            json!({"kind": &*target.kind, "name": &*target.name, "uid": &*target.uid}),
        );
    }
    shown
}

/// Labels as JSON.
pub(super) fn labels_json<'l>(entries: impl Iterator<Item = (&'l str, &'l str)>) -> Value {
    json!(entries.collect::<Labels>())
}

/// The ports that proxies take from a slice: those that say a number.
fn proxied(slice: &Slice) -> impl Iterator<Item = &EndpointPort> {
    slice.ports.iter().filter(|p| p.port.is_some())
}

pub(super) fn has_headless_label(slice: &Slice) -> bool {
    slice.meta.labels.get(crate::model::HEADLESS).is_some()
}

/// Whether a policy keeps traffic on the node.
pub(super) fn is_local(policy: TrafficPolicy) -> bool {
    policy == TrafficPolicy::Local
}

/// Names for a sentence: at most `most`, then how many more.
pub(super) fn name_some(names: &[String], most: usize) -> String {
    let shown = names
        .iter()
        .take(most)
        .cloned()
        .collect::<Vec<_>>()
        .join(", ");
    match names.len().saturating_sub(most) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
