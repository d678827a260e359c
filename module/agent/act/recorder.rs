//! Tells on the Service what was done to it, or why nothing was: a Kubernetes Event that
//! `kubectl describe` shows. An Event that cannot be written is lost; nothing waits for it.

use std::time::Duration;

use http::Method;
use jiff::Timestamp;
use serde_json::json;
use slice_core::model::ServiceKey;
use tokio::time::Instant;

use super::FIELD_MANAGER;
use super::call::{Caller, Payload, Target};
use crate::client::Supply;

/// Who reports, as Events name controllers.
const CONTROLLER: &str = "slice-healer.io/slice-healer";
/// The API's limit for notes.
const LONGEST_NOTE: usize = 1024;
/// The API's limit for the reporting instance.
const LONGEST_INSTANCE: usize = 128;

/// What is told on a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The Service.
    pub service: ServiceKey,
    /// Its uid, so that the Event belongs to this one and no later one.
    pub uid: String,
    /// Whether somebody should look at it.
    pub warning: bool,
    /// One word in CamelCase, such as `Healed`.
    pub reason: String,
    /// What was done, one word in CamelCase, such as `RefreshService`.
    pub action: String,
    /// One sentence.
    pub text: String,
}

/// Writes Events. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Recorder {
    supply: Supply,
    instance: String,
}

impl Recorder {
    /// `instance` names this module among others, as the Lease does.
    pub fn new(supply: Supply, instance: &str) -> Self {
        Self {
            supply,
            instance: instance.chars().take(LONGEST_INSTANCE).collect(),
        }
    }

    /// Writes one Event within `deadline`.
    ///
    /// # Errors
    /// Why it was not written, with the verb where it is missing.
    pub async fn record(&self, note: &Note, deadline: Duration) -> Result<(), String> {
        let client = self.supply.current().map_err(|reason| reason.to_string())?;
        let caller = Caller::new(client, Instant::now() + deadline);
        let namespace = &note.service.namespace;
        let event = json!({
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"generateName": "slice-healer-", "namespace": namespace.as_ref()},
            "eventTime": format!("{:.6}", Timestamp::now()),
            "reportingController": CONTROLLER,
            "reportingInstance": self.instance,
            "type": if note.warning { "Warning" } else { "Normal" },
            "reason": note.reason,
            "action": note.action,
            "note": shortened(&note.text),
            "regarding": {
                "apiVersion": "v1",
                "kind": "Service",
                "namespace": namespace.as_ref(),
                "name": note.service.name.as_ref(),
                "uid": note.uid,
            },
        });
        let target = Target::new("create", format!("events in {namespace}"));
        let path = format!(
            "/apis/events.k8s.io/v1/namespaces/{namespace}/events?fieldManager={FIELD_MANAGER}"
        );
        let sent = caller
            .send(&target, &Method::POST, &path, Payload::Json(&event))
            .await;
        sent.map(drop).map_err(|failure| failure.to_string())
    }
}

fn shortened(text: &str) -> &str {
    let mut end = LONGEST_NOTE.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_note_is_cut_between_letters() {
        let text = "é".repeat(600);
        assert_eq!(shortened(&text).len(), 1024);
        assert_eq!(shortened("short"), "short");
        let odd = format!("a{text}");
        assert_eq!(shortened(&odd).len(), 1023);
    }
}
