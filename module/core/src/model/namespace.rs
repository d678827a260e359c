//! Namespaces: only whether they go away and whether they opt out.

use serde::Deserialize;

use super::meta::Meta;

/// A namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Namespace {
    /// Metadata.
    #[serde(rename = "metadata")]
    pub meta: Meta,
}

impl Namespace {
    /// Puts the parts together.
    pub fn new(meta: Meta) -> Self {
        Self { meta }
    }
}
