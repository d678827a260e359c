//! The twin's side of the pump: desired settings in, reported document out.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use slice_core::engine::{HealthState, Status};
use slice_hub::{Handle, Urgency};
use tokio::time::Instant;
use tracing::{info, warn};

use crate::expiry::Ends;
use crate::report::twin::{self, ModuleInfo, credentials};
use crate::settings::{Loaded, Settings};

/// The settings as files and twin make them, and what the twin was answered.
pub struct Desired {
    loaded: Loaded,
    in_force: Settings,
    component: Value,
    seen: Option<(u64, Value)>,
}

impl Desired {
    /// The settings below the twin.
    pub fn new(loaded: Loaded) -> Self {
        let in_force = loaded.settings.clone();
        Self {
            loaded,
            in_force,
            component: json!({"__t": "c"}),
            seen: None,
        }
    }

    /// The settings in force.
    pub fn in_force(&self) -> &Settings {
        &self.in_force
    }

    /// The layers below the twin.
    pub fn loaded(&self) -> &Loaded {
        &self.loaded
    }

    /// The component `settings` of the reported document.
    pub fn component(&self) -> &Value {
        &self.component
    }

    /// Takes up a desired section. Returns whether other settings are in force now.
    pub fn apply(&mut self, version: u64, document: &Value) -> bool {
        let component = document
            .get("settings")
            .cloned()
            .unwrap_or_else(|| json!({}));
        if self
            .seen
            .as_ref()
            .is_some_and(|(v, c)| *v == version && *c == component)
        {
            return false;
        }
        let outcome = self.loaded.settings.apply_twin(&self.in_force, &component);
        let version_number = i64::try_from(version).unwrap_or(i64::MAX);
        self.component = outcome.reported(version_number);
        self.seen = Some((version, component));
        match outcome.settings {
            Some(settings) if settings != self.in_force => {
                info!(
                    version,
                    mode = settings.mode.as_str(),
                    "settings from the twin are in force"
                );
                self.in_force = settings;
                true
            }
            Some(_) => false,
            None => {
                let reasons: Vec<String> = outcome
                    .acks
                    .iter()
                    .filter(|(_, ack)| ack.ac != 200)
                    .map(|(key, ack)| format!("{key}: {}", ack.ad))
                    .collect();
                warn!(
                    version,
                    reasons = reasons.join("; "),
                    "desired settings refused; nothing of them applies"
                );
                false
            }
        }
    }
}

/// Keeps the reported document up to date.
pub struct Reported {
    module: ModuleInfo,
    last: Option<Value>,
    /// What the last document was rendered from.
    rendered: Option<(Status, Value, BTreeMap<String, String>)>,
    last_state: Option<HealthState>,
    reported_at: Timestamp,
    beat: Instant,
    heartbeat: Duration,
    ends: Ends,
    /// The spacing that the client has been told.
    interval: Option<Duration>,
}

impl Reported {
    /// `heartbeat` is how often `reportedAt` is renewed although nothing changed.
    pub fn new(started_at: Timestamp, heartbeat: Duration) -> Self {
        Self {
            module: ModuleInfo {
                version: env!("CARGO_PKG_VERSION"),
                started_at,
            },
            last: None,
            rendered: None,
            last_state: None,
            reported_at: started_at,
            beat: Instant::now(),
            heartbeat,
            ends: Ends::default(),
            interval: None,
        }
    }

    /// When the credentials end, as it was last seen.
    pub fn set_ends(&mut self, ends: Ends) {
        self.ends = ends;
    }

    /// The document as it is now.
    pub fn document(&self, status: &Status, desired: &Desired) -> Value {
        let labels: Vec<(String, String)> = desired
            .in_force()
            .labels
            .iter()
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect();
        twin::document(
            &self.module,
            self.reported_at,
            status,
            &labels,
            desired.component(),
            &credentials(&self.ends, Timestamp::now()),
        )
    }

    /// Reports if something changed or the heartbeat is due.
    pub fn update(&mut self, handle: &Handle, status: &Status, desired: &Desired) {
        // The twin itself may set how often it is reported.
        let interval = desired.in_force().report.min_interval.0;
        if self.interval != Some(interval) && handle.try_set_report_interval(interval) {
            self.interval = Some(interval);
        }
        let due = self.beat.elapsed() >= self.heartbeat;
        let same = self
            .rendered
            .as_ref()
            .is_some_and(|(old, component, labels)| {
                old == status
                    && component == desired.component()
                    && *labels == desired.in_force().labels
            });
        if same && !due {
            return;
        }
        self.rendered = Some((
            status.clone(),
            desired.component().clone(),
            desired.in_force().labels.clone(),
        ));
        let document = self.document(status, desired);
        if !due && self.last.as_ref() == Some(&document) {
            return;
        }
        self.reported_at = Timestamp::now();
        self.beat = Instant::now();
        let state = status.health.state;
        // What a person waits for goes out at once: a change of health.
        let urgency = if self.last_state.is_some_and(|s| s != state) {
            Urgency::Alarm
        } else {
            Urgency::Routine
        };
        self.last_state = Some(state);
        let document = self.document(status, desired);
        if let Err(refused) = handle.report(document.clone(), urgency) {
            warn!(error = %refused, "the reported document was not taken");
        }
        self.last = Some(document);
    }
}
