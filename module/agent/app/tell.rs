//! Events on their way out: into the log, the metrics and, above a severity, the outbox.

use std::sync::Arc;

use slice_core::event::{Event, EventType};
use slice_core::judge::Severity;
use tracing::{error, info, warn};

use crate::observe::metrics::Metrics;
use crate::report::telemetry::{self, Message};
use crate::settings::Settings;

/// Gives events their ids and renders them.
pub struct Teller {
    metrics: Arc<Metrics>,
    boot: String,
    number: u64,
}

impl Teller {
    /// `boot` makes ids unique across restarts and devices.
    pub fn new(metrics: Arc<Metrics>, boot: String) -> Self {
        Self {
            metrics,
            boot,
            number: 0,
        }
    }

    /// Tells of an event; the message is for the outbox, if it is severe enough for telemetry.
    pub fn tell(
        &mut self,
        event: &Event,
        node: Option<&str>,
        settings: &Settings,
    ) -> Option<Message> {
        self.count(event);
        log(event);
        let least = settings.report.telemetry_min_severity;
        // The end of a story is told whenever its beginning may have been.
        let closing = matches!(event.kind, EventType::Resolved | EventType::Drain)
            || event.heal.as_ref().is_some_and(|h| h.outcome.is_some());
        if event.severity > least && !closing && event.kind != EventType::Status {
            return None;
        }
        self.number += 1;
        let id = format!("{}-{}", self.boot, self.number);
        let labels: Vec<(String, String)> = settings
            .labels
            .iter()
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect();
        Some(telemetry::message(id, event, node, &labels))
    }

    fn count(&self, event: &Event) {
        let evidence = |name: &str| {
            event
                .evidence
                .iter()
                .find(|(known, _)| known == name)
                .map(|(_, value)| value.as_str())
        };
        match (event.kind, &event.heal) {
            (EventType::Heal, Some(heal)) => match heal.outcome {
                Some(outcome) => self.metrics.heal_ended(heal.action, outcome, heal.seconds),
                None => {
                    if let Some(reason) = heal.held() {
                        self.metrics.heal_held(reason);
                    }
                }
            },
            (EventType::Signal, _) => {
                let count = evidence("count").and_then(|c| c.parse().ok()).unwrap_or(1);
                if let Some(rule) = evidence("rule") {
                    self.metrics.signalled(rule, count);
                }
            }
            (EventType::Finding, _) => {
                if let Some(seconds) = evidence("seconds").and_then(|s| s.parse().ok()) {
                    self.metrics.detected(seconds);
                }
            }
            _ => {}
        }
    }
}

fn log(event: &Event) {
    let kind = event.kind.as_str();
    let service = event.service.as_ref().map(ToString::to_string);
    let service = service.as_deref();
    let slice = event.slice.as_deref();
    let incident = event.incident.as_deref();
    let outcome = event.heal.as_ref().map(|h| {
        h.outcome
            .map_or("held", slice_core::event::HealOutcome::as_str)
    });
    let message = &event.message;
    // That something is held back is no failure of ours.
    let held = outcome == Some("held");
    match event.severity {
        Severity::Critical if !held => {
            error!(kind, service, slice, incident, outcome, "{message}");
        }
        Severity::Critical | Severity::Warning => {
            warn!(kind, service, slice, incident, outcome, "{message}");
        }
        Severity::Info => {
            info!(kind, service, slice, incident, outcome, "{message}");
        }
    }
}
