//! Events as telemetry: schema `slice-healer/event/v1`. Renders; sends nothing.

use serde::Serialize;
use serde_json::{Map, Value};
use slice_core::event::{Event, EventType, HealEvent};

/// The schema's name.
pub const SCHEMA: &str = "slice-healer/event/v1";
/// The longest value of one evidence entry, in bytes: a message should stay within the 4 KB that
/// IoT Hub bills as one.
const LONGEST_EVIDENCE: usize = 800;

/// A message for one output of the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Message id; the same over every re-send.
    pub id: String,
    /// `events` or `status`.
    pub output: &'static str,
    /// Its type, which decides what is dropped first when the outbox is full.
    pub kind: EventType,
    /// Application properties.
    pub properties: Vec<(String, String)>,
    /// JSON.
    pub body: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    schema: &'static str,
    id: &'a str,
    #[serde(rename = "type")]
    event_type: EventType,
    at: String,
    node: Option<&'a str>,
    namespace: Option<&'a str>,
    service: Option<&'a str>,
    slice: Option<&'a str>,
    #[serde(rename = "kind")]
    finding: Option<&'a str>,
    severity: &'a str,
    message: &'a str,
    evidence: Map<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    heal: Option<&'a HealEvent>,
    #[serde(skip_serializing_if = "Option::is_none")]
    incident: Option<&'a str>,
}

/// Renders an event. `labels` are the settings' labels; they become properties.
pub fn message(
    id: String,
    event: &Event,
    node: Option<&str>,
    labels: &[(String, String)],
) -> Message {
    let severity = event.severity.as_str();
    let body = Body {
        schema: SCHEMA,
        id: &id,
        event_type: event.kind,
        at: event.at.to_string(),
        node,
        namespace: event.service.as_ref().map(|s| &*s.namespace),
        service: event.service.as_ref().map(|s| &*s.name),
        slice: event.slice.as_deref(),
        finding: event.finding.map(|k| k.as_str()),
        severity,
        message: &event.message,
        evidence: event
            .evidence
            .iter()
            .map(|(k, v)| {
                (
                    k.clone(),
                    Value::String(cut(v, LONGEST_EVIDENCE).to_owned()),
                )
            })
            .collect(),
        heal: event.heal.as_ref(),
        incident: event.incident.as_deref(),
    };
    let mut properties = vec![
        ("schema".to_owned(), SCHEMA.to_owned()),
        ("type".to_owned(), event.kind.as_str().to_owned()),
        ("severity".to_owned(), severity.to_owned()),
    ];
    properties.extend(labels.iter().cloned());
    let output = if event.kind == EventType::Status {
        "status"
    } else {
        "events"
    };
    // A struct of strings, numbers and maps with string keys always serialises.
    let body = serde_json::to_string(&body).unwrap_or_default();
    Message {
        id,
        output,
        kind: event.kind,
        properties,
        body,
    }
}

/// The longest prefix of at most `max` bytes.
pub fn cut(text: &str, max: usize) -> &str {
    if text.len() <= max {
        return text;
    }
    let end = (0..=max)
        .rev()
        .find(|i| text.is_char_boundary(*i))
        .unwrap_or(0);
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;
    use slice_core::event::HealOutcome;
    use slice_core::judge::{FindingKind, RemedyAction, Severity};
    use slice_core::model::ServiceKey;

    fn event() -> Event {
        Event {
            kind: EventType::Heal,
            at: "2026-11-30T10:00:00Z".parse().unwrap(),
            severity: Severity::Info,
            message: "right again".to_owned(),
            service: Some(ServiceKey::new("line1", "model-endpoint")),
            slice: Some("model-endpoint-abc12".to_owned()),
            finding: Some(FindingKind::GhostEndpoint),
            evidence: vec![("story".to_owned(), "é".repeat(1000))],
            heal: Some(HealEvent {
                action: RemedyAction::RefreshService,
                outcome: Some(HealOutcome::Healed),
                reason: None,
                attempt: 1,
                seconds: 3.2,
            }),
            incident: Some("i-1".to_owned()),
        }
    }

    #[test]
    fn the_body_is_what_the_contract_says() {
        let labels = [("site".to_owned(), "brno".to_owned())];
        let m = message("m-1".to_owned(), &event(), Some("edge-7"), &labels);
        let body: Value = serde_json::from_str(&m.body).unwrap();
        assert_eq!(body["schema"], SCHEMA);
        assert_eq!(body["id"], "m-1");
        assert_eq!(body["type"], "heal");
        assert_eq!(body["at"], "2026-11-30T10:00:00Z");
        assert_eq!(body["node"], "edge-7");
        assert_eq!(body["namespace"], "line1");
        assert_eq!(body["service"], "model-endpoint");
        assert_eq!(body["kind"], "GhostEndpoint");
        assert_eq!(body["severity"], "info");
        assert_eq!(body["heal"]["action"], "refresh-service");
        assert_eq!(body["heal"]["outcome"], "healed");
        assert_eq!(body["heal"]["attempt"], 1);
        assert_eq!(body["incident"], "i-1");
        assert!(body["evidence"]["story"].as_str().unwrap().len() <= LONGEST_EVIDENCE);
        assert_eq!(m.output, "events");
        let site = ("site".to_owned(), "brno".to_owned());
        assert!(m.properties.contains(&site));
        assert!(
            m.properties
                .contains(&("severity".to_owned(), "info".to_owned()))
        );
    }
}
