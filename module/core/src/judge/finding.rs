//! Findings: what is wrong, what it does to traffic, what will be done. They serialise as schema
//! `slice-healer/inspect/v1` has them; names here are a contract.

use std::cmp::Ordering;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::heal::gate::HoldReason;
use crate::model::ServiceKey;

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What is wrong.
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        pub enum FindingKind {
            $($(#[$doc])* $name,)*
        }

        impl FindingKind {
            /// Every kind, in the order in which the first match wins.
            pub const ALL: [Self; [$(stringify!($name)),*].len()] = [$(Self::$name),*];

            /// The name in JSON, metrics and telemetry.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                }
            }
        }
    };
}

kinds! {
    /// The pod that an endpoint stands for is gone, lives under another uid, or does not belong.
    GhostEndpoint,
    /// The pod is right, the address is not one of its own.
    WrongAddress,
    /// The pod has finished and is still listed.
    TerminalPod,
    /// Ready, serving or terminating is not what the pod says.
    ConditionDrift,
    /// A pod that belongs is not listed for a family or port set.
    MissingEndpoint,
    /// A Service that should have a slice of a family has none.
    MissingSlice,
    /// The ports are not what Service and pod resolve to.
    PortDrift,
    /// One identity twice in one port group.
    DuplicateEndpoint,
    /// Labels, zone, node, hostname, hints or the headless label differ.
    MetadataDrift,
    /// The owning Service is gone or has another uid.
    OrphanSlice,
    /// A controller's slice of a Service that the controller does not look at.
    LeftoverSlice,
    /// A mirrored slice beside a selector or beside a live custom slice.
    MirrorConflict,
    /// A mirrored slice is not what its Endpoints object says, or that lists what is gone.
    MirrorDrift,
    /// The Endpoints object disagrees with right slices.
    EndpointsDrift,
    /// Somebody else's slice lists what no longer exists.
    ForeignStale,
    /// Deletion pending for over two minutes behind a finalizer.
    StuckDeleting,
    /// The controller cannot sync this Service until a person frees it.
    ControllerWedged,
    /// Cluster-wide: the slice controller does not work.
    ControllerDown,
    /// The slice agrees with the pod, the pod disagrees with its node or containers.
    PodStatusSuspect,
    /// Several live pods on one address.
    SharedAddress,
    /// The selector selects nothing that could serve.
    SelectorSuspect,
    /// Pods are selected, none is ready.
    NoReadyPods,
    /// A Local traffic policy and no endpoint on this node.
    NoLocalEndpoint,
    /// A finished rollout that still routes to more than one version.
    MixedVersions,
    /// An endpoint terminates for longer than its pod's grace period.
    TerminationOverdue,
    /// A Service's slices change more often than the threshold.
    HighChurn,
    /// The node's rules list what the slices no longer do.
    DataplaneStale,
    /// The node's rules lack what the slices list.
    DataplaneMissing,
    /// The node's proxy cannot write its rules.
    DataplaneFailing,
    /// The node's rules cannot be read.
    DataplaneUnsupported,
    /// A probe through the Service fails.
    ProbeFailing,
    /// A probe is answered by another version than the expected one.
    VersionMismatch,
}

impl FindingKind {
    /// Whether it is a difference between what the slice controller should have written and what
    /// is there: what a heal can cure, and what says nothing more while the controller is down.
    pub fn is_drift(self) -> bool {
        self <= Self::OrphanSlice || self == Self::EndpointsDrift
    }
}

impl fmt::Display for FindingKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The effect on traffic. Critical sorts first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Traffic goes where nobody answers, or a Service with ready pods routes to none of them.
    Critical,
    /// Capacity or correctness suffers, or soon will.
    Warning,
    /// Cosmetic, or a note.
    Info,
}

impl Severity {
    /// Every severity, worst first.
    pub const ALL: [Self; 3] = [Self::Critical, Self::Warning, Self::Info];

    /// The name in JSON, metrics and telemetry.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::Warning => "warning",
            Self::Info => "info",
        }
    }

    /// The worse of two.
    #[must_use]
    pub fn worse(self, other: Self) -> Self {
        self.min(other)
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The first step that the ladder would take.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum RemedyAction {
    /// Patch the refresh annotation of the Service.
    RefreshService,
    /// Delete the slice, then refresh until it is back.
    DeleteSlice,
    /// Nothing is written.
    #[default]
    None,
}

impl RemedyAction {
    /// The name in JSON, metrics and telemetry.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RefreshService => "refresh-service",
            Self::DeleteSlice => "delete-slice",
            Self::None => "none",
        }
    }
}

impl fmt::Display for RemedyAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What would be done about a finding that outlives the grace, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remedy {
    /// The first step.
    pub action: RemedyAction,
    /// Why this one, or why none.
    pub reason: String,
    /// What the gate said, where a step would help and the gate forbids it.
    #[serde(skip)]
    pub hold: Option<HoldReason>,
}

/// The two sides of a difference.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// What should be there; null for nothing.
    pub expected: Value,
    /// What is there; null for nothing.
    pub actual: Value,
}

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// What.
    pub kind: FindingKind,
    /// What it does to traffic.
    pub severity: Severity,
    /// Where; `None` for the whole cluster.
    pub namespace: Option<String>,
    /// Of which Service.
    pub service: Option<String>,
    /// In which slice.
    pub slice: Option<String>,
    /// Which addresses it is about, canonical and sorted where they are addresses.
    pub addresses: Vec<String>,
    /// Which pod it is about.
    pub pod: Option<String>,
    /// One sentence or two that a person on shift understands.
    pub message: String,
    /// The two sides.
    pub evidence: Evidence,
    /// What would be done.
    pub remedy: Remedy,
}

/// What makes a finding the same one in the next evaluation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FindingId {
    /// What.
    pub kind: FindingKind,
    /// Where.
    pub namespace: Option<String>,
    /// Of which Service.
    pub service: Option<String>,
    /// In which slice.
    pub slice: Option<String>,
    /// Which pod.
    pub pod: Option<String>,
    /// Which addresses.
    pub addresses: Vec<String>,
}

impl Finding {
    /// The Service that it is about.
    pub fn service_key(&self) -> Option<ServiceKey> {
        Some(ServiceKey::new(
            self.namespace.as_deref()?,
            self.service.as_deref()?,
        ))
    }

    /// What makes it the same finding in the next evaluation.
    pub fn id(&self) -> FindingId {
        FindingId {
            kind: self.kind,
            namespace: self.namespace.clone(),
            service: self.service.clone(),
            slice: self.slice.clone(),
            pod: self.pod.clone(),
            addresses: self.addresses.clone(),
        }
    }

    /// The order of the contract: severity, namespace, service, kind, slice, first address, null
    /// first; what is left of the order makes it total.
    pub fn order(&self, other: &Self) -> Ordering {
        self.severity
            .cmp(&other.severity)
            .then_with(|| self.namespace.cmp(&other.namespace))
            .then_with(|| self.service.cmp(&other.service))
            .then_with(|| self.kind.as_str().cmp(other.kind.as_str()))
            .then_with(|| self.slice.cmp(&other.slice))
            .then_with(|| self.addresses.cmp(&other.addresses))
            .then_with(|| self.pod.cmp(&other.pod))
            .then_with(|| self.message.cmp(&other.message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_contract() {
        assert_eq!(FindingKind::ALL.len(), 32);
        for kind in FindingKind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.as_str());
        }
        for severity in Severity::ALL {
            assert_eq!(serde_json::to_value(severity).unwrap(), severity.as_str());
        }
        for action in [
            RemedyAction::RefreshService,
            RemedyAction::DeleteSlice,
            RemedyAction::None,
        ] {
            assert_eq!(serde_json::to_value(action).unwrap(), action.as_str());
        }
        assert!(Severity::Critical < Severity::Warning && Severity::Warning < Severity::Info);
    }

    #[test]
    fn a_finding_has_the_fields_of_the_schema_and_null_for_what_it_lacks() {
        let finding = Finding {
            kind: FindingKind::GhostEndpoint,
            severity: Severity::Critical,
            namespace: Some("line1".into()),
            service: None,
            slice: None,
            addresses: vec![],
            pod: None,
            message: String::new(),
            evidence: Evidence::default(),
            remedy: Remedy {
                hold: Some(HoldReason::Finalizer),
                ..Remedy::default()
            },
        };
        assert_eq!(
            serde_json::to_value(&finding).unwrap(),
            serde_json::json!({
                "kind": "GhostEndpoint", "severity": "critical", "namespace": "line1",
                "service": null, "slice": null, "addresses": [], "pod": null, "message": "",
                "evidence": {"expected": null, "actual": null},
                "remedy": {"action": "none", "reason": ""}
            })
        );
    }
}
