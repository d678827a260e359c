//! The answer of `inspect` as schema `slice-healer/inspect/v1`. Field order is fixed, so that two
//! looks at the same objects print the same bytes.

use jiff::Timestamp;
use serde::Serialize;
use slice_core::judge::{Finding, Severity};
use slice_core::model::{Counts, ServerVersion};

/// The schema that this is.
pub const SCHEMA: &str = "slice-healer/inspect/v1";

/// One look at a cluster.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Look {
    schema: &'static str,
    /// The moment of judging.
    pub observed_at: Timestamp,
    /// What was looked at.
    pub cluster: Cluster,
    /// How many findings of each severity.
    pub summary: Summary,
    /// What is wrong, worst first.
    pub findings: Vec<Finding>,
    /// What could not be judged; not there when everything could.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// What was looked at.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cluster {
    /// Version of the API server; null if it is not known.
    pub server_version: Option<String>,
    services: usize,
    slices: usize,
    endpoints: usize,
    pods: usize,
}

/// How many findings of each severity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Traffic is lost.
    pub critical: usize,
    /// Traffic suffers or soon will.
    pub warning: usize,
    /// Notes.
    pub info: usize,
}

impl Summary {
    /// Counts findings.
    pub fn of(findings: &[Finding]) -> Self {
        let count = |severity| findings.iter().filter(|f| f.severity == severity).count();
        Self {
            critical: count(Severity::Critical),
            warning: count(Severity::Warning),
            info: count(Severity::Info),
        }
    }

    /// Whether a person, or a pipeline, should stop for it.
    pub fn is_clean(self) -> bool {
        self.critical == 0 && self.warning == 0
    }
}

impl Look {
    /// Puts a look together. Moments are written to the second.
    pub fn new(
        observed_at: Timestamp,
        server: Option<&ServerVersion>,
        counts: Counts,
        findings: Vec<Finding>,
        notes: Vec<String>,
    ) -> Self {
        let observed_at = Timestamp::from_second(observed_at.as_second()).unwrap_or(observed_at);
        Self {
            schema: SCHEMA,
            observed_at,
            cluster: Cluster {
                server_version: server.map(ToString::to_string),
                services: counts.services,
                slices: counts.slices,
                endpoints: counts.endpoints,
                pods: counts.pods,
            },
            summary: Summary::of(&findings),
            findings,
            notes,
        }
    }
}
