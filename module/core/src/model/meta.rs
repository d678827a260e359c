//! What every Kubernetes object has, as far as it is judged: names, versions, owners, deletion.

use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer};

use super::decode::null_default;
use super::labels::Labels;

/// The part of `metadata` that is judged. Decodes from Kubernetes JSON; what is not listed is
/// dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Meta {
    /// Empty for objects without one, as in the API.
    #[serde(deserialize_with = "null_default")]
    pub namespace: Arc<str>,
    /// Name within namespace and kind.
    #[serde(deserialize_with = "null_default")]
    pub name: Arc<str>,
    /// Identity: another object of the same name has another uid.
    #[serde(deserialize_with = "null_default")]
    pub uid: Box<str>,
    /// Version of the object; opaque.
    #[serde(deserialize_with = "null_default")]
    pub resource_version: Box<str>,
    /// Rises with changes outside metadata (for slices, labels count as well).
    #[serde(deserialize_with = "null_default")]
    pub generation: i64,
    /// When it was made.
    #[serde(deserialize_with = "timestamp")]
    pub creation_timestamp: Option<Timestamp>,
    /// Set once deletion was asked for. For pods it is the moment at which the grace ends.
    #[serde(deserialize_with = "timestamp")]
    pub deletion_timestamp: Option<Timestamp>,
    /// Seconds of grace that the deletion gives.
    pub deletion_grace_period_seconds: Option<i64>,
    /// Labels.
    #[serde(deserialize_with = "null_default")]
    pub labels: Labels,
    /// Annotations, without what tools keep there for themselves.
    #[serde(deserialize_with = "annotations")]
    pub annotations: Labels,
    /// Owners.
    #[serde(deserialize_with = "null_default")]
    pub owner_references: Vec<OwnerReference>,
    /// What holds up the deletion.
    #[serde(deserialize_with = "null_default")]
    pub finalizers: Vec<Box<str>>,
    /// The prefix that the name was made from.
    #[serde(deserialize_with = "null_default")]
    pub generate_name: Option<Box<str>>,
}

impl Meta {
    /// Whether an annotation is kept: kubectl's copy of the whole object is not.
    pub fn keeps_annotation(key: &str) -> bool {
        key != "kubectl.kubernetes.io/last-applied-configuration"
    }

    /// Whether deletion was asked for.
    pub fn is_deleting(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    /// The owner that says `controller: true`.
    pub fn controller(&self) -> Option<&OwnerReference> {
        self.owner_references.iter().find(|o| o.controller)
    }
}

/// An owner of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OwnerReference {
    /// Group and version, such as `apps/v1`.
    #[serde(deserialize_with = "null_default")]
    pub api_version: Box<str>,
    /// Kind, such as `Service`.
    #[serde(deserialize_with = "null_default")]
    pub kind: Box<str>,
    /// Name of the owner.
    #[serde(deserialize_with = "null_default")]
    pub name: Box<str>,
    /// Identity of the owner.
    #[serde(deserialize_with = "null_default")]
    pub uid: Box<str>,
    /// Whether it is the one that manages the object.
    #[serde(deserialize_with = "null_default")]
    pub controller: bool,
}

fn timestamp<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Timestamp>, D::Error> {
    Option::<Timestamp>::deserialize(from)
}

fn annotations<'de, D: Deserializer<'de>>(from: D) -> Result<Labels, D::Error> {
    let all: Labels = null_default(from)?;
    Ok(all.filtered(Meta::keeps_annotation))
}
