//! Stories of staleness, played on the whole outside world of an edge device: cluster, controller,
//! edgeHub, journal, pods and requests.
//!
//! A scenario makes something go wrong and then only watches what anybody outside could watch: the
//! objects of the cluster, the module twin, the telemetry, the requests. The product is started by
//! the caller; nothing here knows a type of it, only its names on the wire.

mod connections;
mod journal;
mod look;
mod observe;
mod play;
mod scripts;
mod stage;
#[cfg(test)]
mod tests;
mod timeline;
pub mod view;
mod world;

use serde_json::{Value, json};

pub use connections::Connections;
pub use journal::Journal;
pub use look::{Endpoint, Standing};
pub use play::{PlayError, play};
pub use timeline::{Happening, Timeline};
pub use world::{NAMESPACE, NODE, SERVICE, World, WorldError, WorldOptions};

use crate::traffic::Counts;
use stage::Script;

/// How a scenario ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// What was stale is right, and the fleet knows; or nothing was stale and nothing was done.
    Healed,
    /// The product held back, and said so.
    Held,
    /// Neither.
    Failed,
}

impl Outcome {
    /// As on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Healed => "healed",
            Self::Held => "held",
            Self::Failed => "failed",
        }
    }
}

/// One story.
#[derive(Debug)]
pub struct Scenario {
    /// Its name on the command line.
    pub name: &'static str,
    /// What goes wrong, in a sentence.
    pub summary: &'static str,
    /// The outcome that a good product brings about.
    pub expected: Outcome,
    script: Script,
}

/// Every scenario, the one that is played by default first.
#[must_use]
pub fn list() -> &'static [Scenario] {
    scripts::ALL
}

/// The scenario of that name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Scenario> {
    list().iter().find(|scenario| scenario.name == name)
}

/// Seconds from the moment at which the Service became stale; `None` for what did not happen.
#[derive(Debug, Clone, Copy, Default, PartialEq, serde::Serialize)]
pub struct Seconds {
    /// Until the fleet heard of the first journal signal.
    pub signal: Option<f64>,
    /// Until it heard of the first finding.
    pub finding: Option<f64>,
    /// Until the slices were right again.
    pub healed: Option<f64>,
}

/// How a scenario went, schema `slice-healer/lab/v1`.
#[derive(Debug, Clone)]
pub struct Report {
    /// Name of the scenario.
    pub scenario: &'static str,
    /// What it came to.
    pub outcome: Outcome,
    /// What it should have come to.
    pub expected: Outcome,
    /// All that happened.
    pub timeline: Vec<Happening>,
    /// How long it took.
    pub seconds: Seconds,
    /// What became of the requests.
    pub requests: Counts,
    /// The reported twin at the end.
    pub twin: Value,
    /// Messages at the cloud.
    pub telemetry: usize,
}

impl Report {
    /// Whether it went as a good product makes it go.
    #[must_use]
    pub fn as_expected(&self) -> bool {
        self.outcome == self.expected
    }

    /// The JSON of the contract.
    #[must_use]
    pub fn json(&self) -> Value {
        json!({
            "schema": "slice-healer/lab/v1",
            "scenario": self.scenario,
            "outcome": self.outcome,
            "timeline": self.timeline,
            "seconds": self.seconds,
            "requests": self.requests,
            "twin": self.twin,
            "telemetry": self.telemetry,
        })
    }
}
