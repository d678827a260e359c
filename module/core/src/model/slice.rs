//! EndpointSlices.

use std::net::IpAddr;
use std::sync::Arc;

use serde::Deserialize;

use super::decode::null_default;
use super::meta::{Meta, OwnerReference};
use super::pod::parse_address;
use super::service::{IpFamily, Protocol};

/// The label that names a slice's Service.
pub const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// The label that names a slice's manager.
pub const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
/// The label of slices that proxies leave alone.
pub const HEADLESS: &str = "service.kubernetes.io/headless";
/// Manager of the slices that follow from selectors.
pub const CONTROLLER: &str = "endpointslice-controller.k8s.io";
/// Manager of the slices that mirror Endpoints objects.
pub const MIRRORING: &str = "endpointslicemirroring-controller.k8s.io";

/// An EndpointSlice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Slice {
    /// Metadata.
    #[serde(rename = "metadata")]
    pub meta: Meta,
    /// What its addresses are.
    #[serde(default, deserialize_with = "null_default")]
    pub address_type: AddressType,
    /// Endpoints.
    #[serde(default, deserialize_with = "null_default")]
    pub endpoints: Vec<Endpoint>,
    /// Ports, which all its endpoints have.
    #[serde(default, deserialize_with = "null_default")]
    pub ports: Vec<EndpointPort>,
}

/// What an EndpointSlice has beside its metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SliceBody {
    /// What its addresses are.
    #[serde(deserialize_with = "null_default")]
    pub address_type: AddressType,
    /// Endpoints.
    #[serde(deserialize_with = "null_default")]
    pub endpoints: Vec<Endpoint>,
    /// Ports.
    #[serde(deserialize_with = "null_default")]
    pub ports: Vec<EndpointPort>,
}

/// Who a slice belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manager<'a> {
    /// The slice controller.
    Controller,
    /// The mirroring controller.
    Mirroring,
    /// Somebody else, who says so.
    Other(&'a str),
    /// Nobody says.
    Unmarked,
}

impl Slice {
    /// Puts the parts together.
    pub fn new(meta: Meta, body: SliceBody) -> Self {
        let SliceBody {
            address_type,
            endpoints,
            ports,
        } = body;
        Self {
            meta,
            address_type,
            endpoints,
            ports,
        }
    }

    /// Who manages it.
    pub fn manager(&self) -> Manager<'_> {
        match self.meta.labels.get(MANAGED_BY) {
            Some(CONTROLLER) => Manager::Controller,
            Some(MIRRORING) => Manager::Mirroring,
            Some("") | None => Manager::Unmarked,
            Some(other) => Manager::Other(other),
        }
    }

    /// The Service that it says it belongs to.
    pub fn service_name(&self) -> Option<&str> {
        self.meta.labels.get(SERVICE_NAME).filter(|n| !n.is_empty())
    }

    /// The Service that owns it as its controller.
    pub fn owning_service(&self) -> Option<&OwnerReference> {
        self.meta
            .controller()
            .filter(|o| o.kind.as_ref() == "Service")
    }

    /// Its family; none for names.
    pub fn family(&self) -> Option<IpFamily> {
        match self.address_type {
            AddressType::IPv4 => Some(IpFamily::IPv4),
            AddressType::IPv6 => Some(IpFamily::IPv6),
            AddressType::Fqdn | AddressType::Other => None,
        }
    }
}

/// What the addresses of a slice are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum AddressType {
    /// IP version 4.
    #[default]
    IPv4,
    /// IP version 6.
    IPv6,
    /// Names; proxies ignore them.
    #[serde(rename = "FQDN")]
    Fqdn,
    /// A type that this version does not know.
    #[serde(other)]
    Other,
}

/// An endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Endpoint {
    /// Addresses, all of the same thing.
    #[serde(deserialize_with = "null_default")]
    pub addresses: Vec<Box<str>>,
    /// Whether it takes traffic.
    #[serde(deserialize_with = "null_default")]
    pub conditions: Conditions,
    /// DNS name.
    #[serde(deserialize_with = "null_default")]
    pub hostname: Option<Box<str>>,
    /// Where it is.
    #[serde(deserialize_with = "null_default")]
    pub node_name: Option<Arc<str>>,
    /// The zone it is in.
    #[serde(deserialize_with = "null_default")]
    pub zone: Option<Arc<str>>,
    /// Who should prefer it.
    pub hints: Option<Box<Hints>>,
    /// What it stands for.
    pub target_ref: Option<TargetRef>,
}

impl Endpoint {
    /// Its addresses, names left out.
    pub fn ips(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.addresses.iter().filter_map(|a| parse_address(a))
    }

    /// The pod that it stands for.
    pub fn pod(&self) -> Option<&TargetRef> {
        self.target_ref
            .as_ref()
            .filter(|t| t.kind.as_ref() == "Pod")
    }
}

/// The conditions of an endpoint. What is missing reads as proxies read it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Conditions {
    /// Takes traffic.
    pub ready: Option<bool>,
    /// Would answer, even while it terminates.
    pub serving: Option<bool>,
    /// Is going away.
    pub terminating: Option<bool>,
}

impl Conditions {
    /// Ready, as proxies read it.
    pub fn is_ready(self) -> bool {
        self.ready.unwrap_or(true)
    }

    /// Serving, as proxies read it.
    pub fn is_serving(self) -> bool {
        self.serving.unwrap_or_else(|| self.is_ready())
    }

    /// Terminating, as proxies read it.
    pub fn is_terminating(self) -> bool {
        self.terminating.unwrap_or(false)
    }
}

/// Who should prefer an endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Hints {
    /// Zones.
    #[serde(deserialize_with = "null_default")]
    pub for_zones: Vec<Hint>,
    /// Nodes.
    #[serde(deserialize_with = "null_default")]
    pub for_nodes: Vec<Hint>,
}

/// One name in a hint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Hint {
    /// Of a zone or node.
    #[serde(deserialize_with = "null_default")]
    pub name: Box<str>,
}

/// What an endpoint stands for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct TargetRef {
    /// Kind, such as `Pod` or `Node`.
    #[serde(deserialize_with = "null_default")]
    pub kind: Arc<str>,
    /// Namespace.
    #[serde(deserialize_with = "null_default")]
    pub namespace: Arc<str>,
    /// Name.
    #[serde(deserialize_with = "null_default")]
    pub name: Box<str>,
    /// Identity; empty where the writer left it out.
    #[serde(deserialize_with = "null_default")]
    pub uid: Box<str>,
}

/// A port of a slice.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointPort {
    /// Name; empty where there is none.
    #[serde(deserialize_with = "null_default")]
    pub name: Box<str>,
    /// Protocol.
    #[serde(deserialize_with = "null_default")]
    pub protocol: Protocol,
    /// Number; none means all ports.
    pub port: Option<i32>,
    /// Application protocol.
    #[serde(deserialize_with = "null_default")]
    pub app_protocol: Option<Box<str>>,
}
