//! The gate: whether a Service may be refreshed or a slice be deleted at all. Default deny: what is
//! not known to be the slice controller's own, of a living Service in scope, is only reported.
//!
//! It never looks at time, budgets or mode; those hold back what the gate lets through.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::policy::{LoadBalancers, Scope};
use crate::model::{Manager, Meta, Namespace, Service, ServiceKey, ServiceType, Slice};

/// Namespace and name of this product's own canary Service.
pub const OWN_NAME: &str = "slice-healer";

/// The annotation whose change makes the slice controller look at a Service again; the only key of
/// a Service that is ever written.
pub const REFRESH: &str = "slice-healer.io/refresh";

/// The annotation that takes a Service, a slice or a whole namespace out of healing.
pub const IGNORE: &str = "slice-healer.io/ignore";

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// Why something stale is not healed. The texts are a contract.
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        pub enum HoldReason {
            $($(#[$doc])* #[serde(rename = $text)] $name,)*
        }

        impl HoldReason {
            /// Every reason.
            pub const ALL: [Self; [$($text),*].len()] = [$(Self::$name),*];

            /// The text in telemetry, twin and metrics.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

reasons! {
    /// The mode is `observe`.
    ObserveMode = "observe-mode",
    /// No maintenance window is open.
    OutsideWindow = "outside-window",
    /// Somebody asked to hold.
    Hold = "hold",
    /// It does not stand for long enough yet.
    Grace = "grace",
    /// The namespace or Service is out of scope.
    NotInScope = "not-in-scope",
    /// The slice controller would not write it again.
    NotManaged = "not-managed",
    /// It carries the opt-out annotation.
    OptedOut = "opted-out",
    /// A finalizer holds it.
    Finalizer = "finalizer",
    /// It is being deleted.
    Deleting = "deleting",
    /// The Service was healed too often.
    BudgetService = "budget-service",
    /// The namespace was healed too often.
    BudgetNamespace = "budget-namespace",
    /// This module healed too often.
    BudgetNode = "budget-node",
    /// The last heal is too fresh.
    CoolDown = "cool-down",
    /// Too many heals did not help.
    BreakerOpen = "breaker-open",
    /// The slice controller does not answer.
    CanaryFailed = "canary-failed",
    /// The API has been back for too short a time.
    Reconnected = "reconnected",
    /// Not everything has been listed.
    NotSynced = "not-synced",
    /// A delete would take away too many right endpoints.
    LostEndpoints = "lost-endpoints",
    /// The Service is a load balancer's.
    LoadBalancer = "load-balancer",
    /// Another healer is at work.
    Lease = "lease",
    /// The controller cannot sync this Service.
    Wedged = "wedged",
    /// The API refuses the write.
    MissingPermission = "missing-permission",
}

impl fmt::Display for HoldReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// All that the gate looks at.
#[derive(Clone, Copy, Debug)]
pub struct GateInput<'a> {
    /// Which Service.
    pub key: &'a ServiceKey,
    /// The Service, if it exists.
    pub service: Option<&'a Service>,
    /// Its namespace object, if it is known.
    pub namespace: Option<&'a Namespace>,
    /// The slice that is stale; none where something is missing.
    pub slice: Option<&'a Slice>,
    /// What is left alone.
    pub scope: &'a Scope,
    /// Whether slices of Services that the controller does not look at may be deleted.
    pub delete_leftover: bool,
    /// What is done about Services of type LoadBalancer.
    pub load_balancers: LoadBalancers,
}

/// Whether the Service may be refreshed on account of this slice, or of something missing.
///
/// # Errors
/// The first reason that forbids it.
pub fn refresh(input: &GateInput<'_>) -> Result<(), HoldReason> {
    let service = living_service(input)?;
    if !service.is_controlled() {
        return Err(HoldReason::NotManaged);
    }
    if let Some(slice) = input.slice {
        ours(slice, input, service)?;
    }
    in_scope(input, service)?;
    untouched(input, service)
}

/// Whether this slice may be deleted.
///
/// # Errors
/// The first reason that forbids it.
pub fn delete(input: &GateInput<'_>) -> Result<(), HoldReason> {
    let service = living_service(input)?;
    let slice = input.slice.ok_or(HoldReason::NotManaged)?;
    if !service.is_controlled() && !input.delete_leftover {
        return Err(HoldReason::NotManaged);
    }
    ours(slice, input, service)?;
    in_scope(input, service)?;
    untouched(input, service)
}

/// Whether scope settings leave this Service in, whatever its locality.
pub fn is_in_scope(scope: &Scope, key: &ServiceKey, service: Option<&Service>) -> bool {
    if key.namespace.as_ref() == OWN_NAME && key.name.as_ref() == OWN_NAME {
        // The canary is there to select nothing, and is nobody's traffic.
        return false;
    }
    let namespace = key.namespace.as_ref();
    let named = |list: &[String]| list.iter().any(|n| n == namespace);
    (scope.namespaces.is_empty() || named(&scope.namespaces))
        && !named(&scope.exclude_namespaces)
        && scope
            .service_selector
            .iter()
            .all(|(k, v)| service.is_some_and(|s| s.meta.labels.get(k) == Some(v)))
}

fn living_service<'a>(input: &GateInput<'a>) -> Result<&'a Service, HoldReason> {
    if Service::is_kubernetes(&input.key.namespace, &input.key.name) {
        return Err(HoldReason::NotManaged);
    }
    let service = input.service.ok_or(HoldReason::NotManaged)?;
    let named = service.meta.namespace == input.key.namespace
        && service.meta.name == input.key.name
        && !service.meta.uid.is_empty();
    if named {
        Ok(service)
    } else {
        Err(HoldReason::NotManaged)
    }
}

/// The slice controller's own: managed by exactly it, naming this Service, owned by exactly one
/// Service as its controller. An orphan is owned by a Service of this name with another uid; the
/// controller removes it itself at the next sync.
fn ours(slice: &Slice, input: &GateInput<'_>, service: &Service) -> Result<(), HoldReason> {
    let owner = match slice.meta.owner_references.as_slice() {
        [owner] if owner.controller && owner.kind.as_ref() == "Service" => owner,
        _ => return Err(HoldReason::NotManaged),
    };
    let own = slice.manager() == Manager::Controller
        && slice.meta.namespace == input.key.namespace
        && slice.service_name() == Some(input.key.name.as_ref())
        && owner.api_version.as_ref() == "v1"
        && owner.name.as_ref() == input.key.name.as_ref()
        && !owner.uid.is_empty()
        && (owner.uid == service.meta.uid || service.is_controlled());
    if own {
        Ok(())
    } else {
        Err(HoldReason::NotManaged)
    }
}

fn in_scope(input: &GateInput<'_>, service: &Service) -> Result<(), HoldReason> {
    if is_in_scope(input.scope, input.key, Some(service)) {
        Ok(())
    } else {
        Err(HoldReason::NotInScope)
    }
}

/// Nobody asked to leave it alone, and nothing of it is going away.
fn untouched(input: &GateInput<'_>, service: &Service) -> Result<(), HoldReason> {
    let metas = || {
        [
            input.namespace.map(|n| &n.meta),
            Some(&service.meta),
            input.slice.map(|s| &s.meta),
        ]
        .into_iter()
        .flatten()
    };
    if metas().any(is_opted_out) {
        return Err(HoldReason::OptedOut);
    }
    if metas().any(Meta::is_deleting) {
        return Err(HoldReason::Deleting);
    }
    if input.slice.is_some_and(|s| !s.meta.finalizers.is_empty()) {
        return Err(HoldReason::Finalizer);
    }
    if service.spec.service_type == ServiceType::LoadBalancer
        && input.load_balancers == LoadBalancers::Skip
    {
        return Err(HoldReason::LoadBalancer);
    }
    Ok(())
}

/// Whether an object asks to be left alone.
pub fn is_opted_out(meta: &Meta) -> bool {
    meta.annotations.get(IGNORE) == Some("true")
}

#[cfg(test)]
#[path = "gate_tests.rs"]
mod tests;
