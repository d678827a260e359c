//! Endpoints objects, the predecessor of slices.

use serde::Deserialize;

use super::decode::null_default;
use super::meta::Meta;
use super::slice::{EndpointPort, TargetRef};

/// An Endpoints object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Endpoints {
    /// Metadata.
    #[serde(rename = "metadata")]
    pub meta: Meta,
    /// Groups of addresses with the same ports.
    #[serde(default, deserialize_with = "null_default")]
    pub subsets: Vec<Subset>,
}

/// What an Endpoints object has beside its metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct EndpointsBody {
    /// Groups of addresses with the same ports.
    #[serde(deserialize_with = "null_default")]
    pub subsets: Vec<Subset>,
}

impl Endpoints {
    /// Puts the parts together.
    pub fn new(meta: Meta, body: EndpointsBody) -> Self {
        Self {
            meta,
            subsets: body.subsets,
        }
    }

    /// Whether the mirroring controller would make slices of it: not marked to be skipped, no
    /// leader election record.
    pub fn is_mirrored(&self) -> bool {
        self.meta
            .labels
            .get("endpointslice.kubernetes.io/skip-mirror")
            != Some("true")
            && self
                .meta
                .annotations
                .get("control-plane.alpha.kubernetes.io/leader")
                .is_none()
    }
}

/// Addresses with the same ports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Subset {
    /// That take traffic.
    #[serde(deserialize_with = "null_default")]
    pub addresses: Vec<EndpointAddress>,
    /// That do not.
    #[serde(deserialize_with = "null_default")]
    pub not_ready_addresses: Vec<EndpointAddress>,
    /// Their ports.
    #[serde(deserialize_with = "null_default")]
    pub ports: Vec<EndpointPort>,
}

/// An address of an Endpoints object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointAddress {
    /// As text.
    #[serde(deserialize_with = "null_default")]
    pub ip: Box<str>,
    /// What it stands for.
    pub target_ref: Option<TargetRef>,
}
