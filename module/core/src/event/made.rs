//! How the events are made that are not of one Service's heal.

use jiff::Timestamp;

use super::{Event, EventType};
use crate::judge::Severity;
use crate::model::ServiceKey;
use crate::signal::Signal;

impl Event {
    /// What the module tells of itself: of no Service, and without evidence.
    pub fn of_module(
        kind: EventType,
        at: Timestamp,
        severity: Severity,
        message: impl Into<String>,
    ) -> Self {
        Self {
            kind,
            at,
            severity,
            message: message.into(),
            service: None,
            slice: None,
            finding: None,
            evidence: Vec::new(),
            heal: None,
            incident: None,
        }
    }

    /// The event that tells of a signal.
    pub fn from_signal(signal: &Signal, service: Option<ServiceKey>) -> Self {
        let mut evidence = vec![
            ("rule".to_owned(), signal.rule.clone()),
            ("count".to_owned(), signal.count.to_string()),
        ];
        if let Some(unit) = &signal.unit {
            evidence.push(("unit".to_owned(), unit.clone()));
        }
        if let Some(pod) = &signal.pod {
            evidence.push(("pod".to_owned(), pod.clone()));
        }
        let kind = EventType::Signal;
        Self {
            service,
            slice: signal.slice.clone(),
            evidence,
            ..Self::of_module(kind, signal.at, signal.severity, signal.message.as_str())
        }
    }
}
