//! What must outlive the process, and what the engine gets back at its start.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::policy::Step;
use super::story::IncidentRecord;
use crate::model::ServiceKey;

/// One thing to be on disk before the actions of the same step start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Record {
    /// A heal is charged to the budgets. Written before its first write, so that a crash loop
    /// cannot heal without limit.
    Charge(Charge),
    /// What is about to be written; `None` when the heal is over.
    Intent(Option<Intent>),
    /// The slice that is about to be deleted, word for word.
    Evidence(DeletedSlice),
    /// An incident as it stands, with its story; a later one of the same id takes its place.
    Incident(Box<IncidentRecord>),
    /// How a heal ended: the counters of the twin and the cool-down live on it.
    Ended(Ended),
}

/// A heal on the books.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Charge {
    /// Whose.
    pub service: ServiceKey,
    /// When.
    pub at: Timestamp,
}

/// A write that was decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intent {
    /// The incident's id.
    pub incident: String,
    /// The Service.
    pub service: ServiceKey,
    /// The step.
    pub step: Step,
    /// The slice, for a delete.
    pub slice: Option<String>,
    /// When.
    pub at: Timestamp,
}

/// A slice that was deleted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeletedSlice {
    /// The Service it belonged to.
    pub service: ServiceKey,
    /// Its name.
    pub slice: String,
    /// When.
    pub at: Timestamp,
    /// The incident's id.
    pub incident: String,
    /// The whole object.
    pub object: serde_json::Value,
}

/// The end of a heal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ended {
    /// Whose.
    pub service: ServiceKey,
    /// When.
    pub at: Timestamp,
    /// The last step taken.
    pub action: crate::judge::RemedyAction,
    /// How.
    pub outcome: crate::event::HealOutcome,
    /// From the first sight of the staleness, in seconds.
    pub seconds: f64,
}

/// What an earlier process left behind.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    /// The charges of the last hours, oldest first.
    pub charges: Vec<Charge>,
    /// The ends of the last hours, oldest first.
    pub ended: Vec<Ended>,
    /// A heal that was cut off.
    pub intent: Option<Intent>,
}
