//! Services.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::decode::null_default;
use super::labels::Labels;
use super::meta::Meta;

/// A Service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Service {
    /// Metadata.
    #[serde(rename = "metadata")]
    pub meta: Meta,
    /// What it asks for.
    #[serde(default, deserialize_with = "null_default")]
    pub spec: ServiceSpec,
}

impl Service {
    /// Puts the parts together.
    pub fn new(meta: Meta, spec: ServiceSpec) -> Self {
        Self { meta, spec }
    }

    /// The selector, if there is one. An empty selector counts as none, as the API's decoding does.
    pub fn selector(&self) -> Option<&Labels> {
        self.spec.selector.as_ref().filter(|s| !s.is_empty())
    }

    /// Whether the slice controller looks at it at all.
    pub fn is_controlled(&self) -> bool {
        self.spec.service_type != ServiceType::ExternalName && self.selector().is_some()
    }

    /// Whether slices of it carry the headless label: no cluster IP, or none yet.
    pub fn is_headless(&self) -> bool {
        matches!(self.spec.cluster_ip.as_deref(), None | Some("" | "None"))
    }

    /// The Service through which pods reach the API; its slices are the API server's own.
    pub fn is_kubernetes(namespace: &str, name: &str) -> bool {
        namespace == "default" && name == "kubernetes"
    }
}

/// `spec` of a Service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceSpec {
    /// Type.
    #[serde(rename = "type", deserialize_with = "null_default")]
    pub service_type: ServiceType,
    /// Labels of the pods that belong.
    pub selector: Option<Labels>,
    /// Virtual address; `None` as text for headless.
    #[serde(rename = "clusterIP")]
    pub cluster_ip: Option<Box<str>>,
    /// IP families, the first one being the primary.
    #[serde(deserialize_with = "null_default")]
    pub ip_families: Vec<IpFamily>,
    /// Ports.
    #[serde(deserialize_with = "null_default")]
    pub ports: Vec<ServicePort>,
    /// Whether pods that are not ready are published as ready.
    #[serde(deserialize_with = "null_default")]
    pub publish_not_ready_addresses: bool,
    /// Who gets traffic from outside.
    #[serde(deserialize_with = "null_default")]
    pub external_traffic_policy: TrafficPolicy,
    /// Who gets traffic from inside.
    #[serde(deserialize_with = "null_default")]
    pub internal_traffic_policy: TrafficPolicy,
    /// `PreferClose`, `PreferSameZone`, `PreferSameNode`.
    pub traffic_distribution: Option<Box<str>>,
}

/// The type of a Service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum ServiceType {
    /// Reached on a virtual address in the cluster.
    #[default]
    ClusterIP,
    /// And on a port of every node.
    NodePort,
    /// And through a load balancer.
    LoadBalancer,
    /// A DNS alias; has no endpoints.
    ExternalName,
    /// A type that this version does not know; treated like the default.
    #[serde(other)]
    Other,
}

/// Which endpoints a node may send traffic to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum TrafficPolicy {
    /// All.
    #[default]
    Cluster,
    /// Those on the node itself.
    Local,
    /// A policy that this version does not know; treated like the default.
    #[serde(other)]
    Other,
}

/// An IP family, as Services name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum IpFamily {
    /// Version 4.
    IPv4,
    /// Version 6.
    IPv6,
}

impl fmt::Display for IpFamily {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::IPv4 => "IPv4",
            Self::IPv6 => "IPv6",
        })
    }
}

/// A port of a Service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServicePort {
    /// Name; empty where there is none.
    #[serde(deserialize_with = "null_default")]
    pub name: Box<str>,
    /// Protocol.
    #[serde(deserialize_with = "null_default")]
    pub protocol: Protocol,
    /// Application protocol.
    pub app_protocol: Option<Box<str>>,
    /// The port on the virtual address.
    #[serde(deserialize_with = "null_default")]
    pub port: i32,
    /// Where it leads in the pod.
    pub target_port: Option<TargetPort>,
}

/// A number, or the name of a container's port.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum TargetPort {
    /// This port.
    Number(i32),
    /// The container port with this name and protocol.
    Name(Box<str>),
}

/// Transport protocol.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum Protocol {
    /// TCP.
    #[default]
    #[serde(rename = "TCP")]
    Tcp,
    /// UDP.
    #[serde(rename = "UDP")]
    Udp,
    /// SCTP.
    #[serde(rename = "SCTP")]
    Sctp,
    /// A protocol that this version does not know.
    #[serde(other)]
    Other,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP",
            Self::Other => "other",
        })
    }
}
