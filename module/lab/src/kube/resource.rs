//! The resources that the lab's API server knows, and how they are named on the wire.
//!
//! A resource is only a name here: objects stay plain JSON. What an object needs beyond that
//! (defaults, validation, generation) is in `strategy`.

use serde_json::Value;

/// One resource of the API: where it is served and what its objects are called.
#[derive(Debug, PartialEq, Eq)]
pub struct Resource {
    /// API group, empty for the core group.
    pub group: &'static str,
    /// Version within the group.
    pub version: &'static str,
    /// Plural name, as in paths.
    pub plural: &'static str,
    /// Singular name, as kubectl accepts it.
    pub singular: &'static str,
    /// Kind of its objects.
    pub kind: &'static str,
    /// Plural with the group, as in error messages; also the key of its table in the store.
    pub qualified: &'static str,
    /// Whether objects live in a namespace.
    pub namespaced: bool,
    /// Short names for kubectl.
    pub short: &'static [&'static str],
    /// Whether `status` is written through a subresource only.
    pub status: bool,
}

impl Resource {
    /// `v1` or `group/version`.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// The resource served under this group, version and plural.
    #[must_use]
    pub fn find(group: &str, version: &str, plural: &str) -> Option<&'static Self> {
        ALL.iter()
            .copied()
            .find(|r| r.group == group && r.version == version && r.plural == plural)
    }

    /// The resource of an object, by its `apiVersion` and `kind`.
    #[must_use]
    pub fn of(object: &Value) -> Option<&'static Self> {
        let api_version = object["apiVersion"].as_str()?;
        let kind = object["kind"].as_str()?;
        Self::of_kind(api_version, kind)
    }

    /// The resource whose objects carry this `apiVersion` and `kind`.
    #[must_use]
    pub fn of_kind(api_version: &str, kind: &str) -> Option<&'static Self> {
        ALL.iter()
            .copied()
            .find(|r| r.kind == kind && r.api_version() == api_version)
    }
}

const fn core(
    plural: &'static str,
    singular: &'static str,
    kind: &'static str,
    namespaced: bool,
    short: &'static [&'static str],
    status: bool,
) -> Resource {
    Resource {
        group: "",
        version: "v1",
        plural,
        singular,
        kind,
        qualified: plural,
        namespaced,
        short,
        status,
    }
}

/// core/v1 namespaces.
pub static NAMESPACES: Resource =
    core("namespaces", "namespace", "Namespace", false, &["ns"], true);
/// core/v1 nodes.
pub static NODES: Resource = core("nodes", "node", "Node", false, &["no"], true);
/// core/v1 services.
pub static SERVICES: Resource = core("services", "service", "Service", true, &["svc"], true);
/// core/v1 pods.
pub static PODS: Resource = core("pods", "pod", "Pod", true, &["po"], true);
/// core/v1 endpoints.
pub static ENDPOINTS: Resource = core("endpoints", "endpoints", "Endpoints", true, &["ep"], false);
/// core/v1 configmaps.
pub static CONFIGMAPS: Resource =
    core("configmaps", "configmap", "ConfigMap", true, &["cm"], false);
/// core/v1 events. The events.k8s.io form is another view of the same objects.
pub static EVENTS: Resource = core("events", "event", "Event", true, &["ev"], false);
/// events.k8s.io/v1 events: shares the table of [`EVENTS`], as in the real server.
pub static EVENTS_V1: Resource = Resource {
    group: "events.k8s.io",
    version: "v1",
    plural: "events",
    singular: "event",
    kind: "Event",
    qualified: "events",
    namespaced: true,
    short: &["ev"],
    status: false,
};
/// discovery.k8s.io/v1 endpointslices.
pub static ENDPOINT_SLICES: Resource = Resource {
    group: "discovery.k8s.io",
    version: "v1",
    plural: "endpointslices",
    singular: "endpointslice",
    kind: "EndpointSlice",
    qualified: "endpointslices.discovery.k8s.io",
    namespaced: true,
    short: &[],
    status: false,
};
/// coordination.k8s.io/v1 leases.
pub static LEASES: Resource = Resource {
    group: "coordination.k8s.io",
    version: "v1",
    plural: "leases",
    singular: "lease",
    kind: "Lease",
    qualified: "leases.coordination.k8s.io",
    namespaced: true,
    short: &[],
    status: false,
};
/// apps/v1 deployments.
pub static DEPLOYMENTS: Resource = Resource {
    group: "apps",
    version: "v1",
    plural: "deployments",
    singular: "deployment",
    kind: "Deployment",
    qualified: "deployments.apps",
    namespaced: true,
    short: &["deploy"],
    status: true,
};
/// apps/v1 replicasets.
pub static REPLICA_SETS: Resource = Resource {
    group: "apps",
    version: "v1",
    plural: "replicasets",
    singular: "replicaset",
    kind: "ReplicaSet",
    qualified: "replicasets.apps",
    namespaced: true,
    short: &["rs"],
    status: true,
};
/// policy/v1 poddisruptionbudgets.
pub static DISRUPTION_BUDGETS: Resource = Resource {
    group: "policy",
    version: "v1",
    plural: "poddisruptionbudgets",
    singular: "poddisruptionbudget",
    kind: "PodDisruptionBudget",
    qualified: "poddisruptionbudgets.policy",
    namespaced: true,
    short: &["pdb"],
    status: true,
};
/// authorization.k8s.io/v1 selfsubjectaccessreviews: answered, never stored.
pub static ACCESS_REVIEWS: Resource = Resource {
    group: "authorization.k8s.io",
    version: "v1",
    plural: "selfsubjectaccessreviews",
    singular: "selfsubjectaccessreview",
    kind: "SelfSubjectAccessReview",
    qualified: "selfsubjectaccessreviews.authorization.k8s.io",
    namespaced: false,
    short: &[],
    status: false,
};

/// Everything that is served.
pub static ALL: &[&Resource] = &[
    &NAMESPACES,
    &NODES,
    &SERVICES,
    &PODS,
    &ENDPOINTS,
    &CONFIGMAPS,
    &EVENTS,
    &EVENTS_V1,
    &ENDPOINT_SLICES,
    &LEASES,
    &DEPLOYMENTS,
    &REPLICA_SETS,
    &DISRUPTION_BUDGETS,
    &ACCESS_REVIEWS,
];
