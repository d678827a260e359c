//! What the journal tells: a line that matched a rule, as a [`Signal`], and how long it counts.

mod rules;
mod window;

use jiff::Timestamp;
use serde::Serialize;

use crate::judge::Severity;
use crate::model::ServiceKey;

pub use rules::{BadRule, Line, MAX_PATTERN, MAX_RULES, RuleSet, RuleSpec};
pub use window::SignalWindow;

/// What a rule's match means.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, serde::Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum SignalKind {
    /// Somebody took a cached slice for right.
    CacheHit,
    /// A write of a slice met another writer.
    SyncConflict,
    /// A Service's sync failed.
    FailedSync,
    /// A model answered in another version than was asked for.
    VersionMismatch,
    /// A request met nobody.
    UpstreamError,
    /// A rule of the site's own.
    Custom,
}

/// One or more journal entries that matched a rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Signal {
    /// The rule's id.
    pub rule: String,
    /// What it means.
    pub kind: SignalKind,
    /// How much it weighs.
    pub severity: Severity,
    /// When the entry was written, by the host's clock.
    pub at: Timestamp,
    /// The unit that wrote it.
    pub unit: Option<String>,
    /// What the line names.
    pub namespace: Option<String>,
    /// What the line names.
    pub service: Option<String>,
    /// What the line names.
    pub slice: Option<String>,
    /// What the line names.
    pub pod: Option<String>,
    /// What the line names.
    pub node: Option<String>,
    /// How many entries this stands for.
    pub count: u32,
    /// The line, cut to a bounded length.
    pub message: String,
    /// Where in the journal it is.
    pub cursor: String,
}

impl Signal {
    /// The Service that the line names, if it names one with its namespace.
    pub fn service_key(&self) -> Option<ServiceKey> {
        match (&self.namespace, &self.service) {
            (Some(namespace), Some(service)) => {
                Some(ServiceKey::new(namespace.as_str(), service.as_str()))
            }
            _ => None,
        }
    }
}
