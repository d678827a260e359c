//! Nodes, as far as endpoints follow from them: that they exist, their zone, addresses, readiness.

use std::net::IpAddr;

use serde::Deserialize;

use super::decode::null_default;
use super::meta::Meta;
use super::pod::{Condition, Truth, parse_address};

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Node {
    /// Metadata.
    #[serde(rename = "metadata")]
    pub meta: Meta,
    /// What it is set up as.
    #[serde(default, deserialize_with = "null_default")]
    pub spec: NodeSpec,
    /// How it does.
    #[serde(default, deserialize_with = "null_default")]
    pub status: NodeStatus,
}

impl Node {
    /// Puts the parts together.
    pub fn new(meta: Meta, spec: NodeSpec, status: NodeStatus) -> Self {
        Self { meta, spec, status }
    }

    /// Its zone, if it has one.
    pub fn zone(&self) -> Option<&str> {
        self.meta
            .labels
            .get("topology.kubernetes.io/zone")
            .filter(|z| !z.is_empty())
    }

    /// Its Ready condition.
    pub fn ready(&self) -> Option<&Condition> {
        self.status
            .conditions
            .iter()
            .find(|c| c.name.as_ref() == "Ready")
    }

    /// Whether its Ready condition is True.
    pub fn is_ready(&self) -> bool {
        self.ready().is_some_and(|c| c.status == Truth::True)
    }

    /// Whether it is labelled as part of the control plane.
    pub fn is_control_plane(&self) -> bool {
        const LABELS: [&str; 3] = [
            "node-role.kubernetes.io/control-plane",
            "node-role.kubernetes.io/master",
            "node.kubernetes.io/microk8s-controlplane",
        ];
        LABELS.iter().any(|l| self.meta.labels.get(l).is_some())
    }

    /// Its addresses, names left out.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.status
            .addresses
            .iter()
            .filter_map(|a| parse_address(&a.address))
    }
}

/// `spec` of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct NodeSpec {
    /// Which cloud it is a machine of, such as `azure:///…`.
    #[serde(rename = "providerID", deserialize_with = "null_default")]
    pub provider_id: Option<Box<str>>,
}

/// `status` of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeStatus {
    /// Addresses and host names.
    #[serde(deserialize_with = "null_default")]
    pub addresses: Vec<NodeAddress>,
    /// Conditions.
    #[serde(deserialize_with = "null_default")]
    pub conditions: Vec<Condition>,
    /// What the machine says of itself.
    #[serde(deserialize_with = "null_default")]
    pub node_info: NodeInfo,
}

/// An address of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct NodeAddress {
    /// Kind, such as `InternalIP`.
    #[serde(rename = "type", deserialize_with = "null_default")]
    pub kind: Box<str>,
    /// The address or name.
    #[serde(deserialize_with = "null_default")]
    pub address: Box<str>,
}

/// What the machine says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct NodeInfo {
    /// The host's machine id.
    #[serde(rename = "machineID", deserialize_with = "null_default")]
    pub machine_id: Box<str>,
}
