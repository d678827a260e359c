//! What happened, in order, for whoever asks: the events of this process, and before them the stories
//! of the incidents on disk. Bounded; decides nothing.

use std::collections::VecDeque;

use jiff::Timestamp;
use serde_json::{Value, json};
use slice_core::event::Event;
use slice_core::heal::story::IncidentRecord;

/// How many events are kept in memory.
const MOST: usize = 500;

/// The latest events of this process.
#[derive(Debug, Default)]
pub(super) struct Timeline(VecDeque<Event>);

impl Timeline {
    /// Takes up an event.
    pub(super) fn note(&mut self, event: &Event) {
        if self.0.len() == MOST {
            self.0.pop_front();
        }
        self.0.push_back(event.clone());
    }

    /// Everything, or what is about a namespace, or what speaks of a pod; oldest first. The stories
    /// tell what events do not: each step of a heal, and what an earlier process did.
    pub(super) fn select(
        &self,
        incidents: &[IncidentRecord],
        namespace: Option<&str>,
        pod: Option<&str>,
    ) -> Value {
        let events = self.0.iter().map(entry_of_event);
        let steps = incidents.iter().flat_map(entries_of_incident);
        let mut all: Vec<(Timestamp, Value)> = events
            .chain(steps)
            .filter(|(_, e)| namespace.is_none_or(|n| e["namespace"] == n))
            .filter(|(_, e)| pod.is_none_or(|p| speaks_of(e, p)))
            .collect();
        all.sort_by_key(|(at, _)| *at);
        all.dedup();
        all.into_iter().map(|(_, entry)| entry).collect()
    }
}

fn entry_of_event(event: &Event) -> (Timestamp, Value) {
    let evidence = |name: &str| {
        let mut all = event.evidence.iter();
        all.find(|(known, _)| known == name).map(|(_, v)| v.clone())
    };
    let mut entry = json!({
        "at": event.at.to_string(),
        "type": event.kind.as_str(),
        "severity": event.severity.as_str(),
        "namespace": event.service.as_ref().map(|s| &*s.namespace),
        "service": event.service.as_ref().map(|s| &*s.name),
        "message": event.message,
    });
    let more = [
        ("slice", event.slice.clone()),
        ("kind", event.finding.map(|k| k.as_str().to_owned())),
        ("pod", evidence("pod")),
        ("incident", event.incident.clone()),
    ];
    for (key, value) in more {
        if let Some(value) = value {
            entry[key] = value.into();
        }
    }
    (event.at, entry)
}

fn entries_of_incident(incident: &IncidentRecord) -> impl Iterator<Item = (Timestamp, Value)> {
    incident.story.entries().iter().map(|step| {
        let entry = json!({
            "at": step.at.to_string(),
            "type": step.what,
            "severity": incident.severity.as_str(),
            "namespace": &*incident.service.namespace,
            "service": &*incident.service.name,
            "message": step.text,
            "incident": incident.id,
        });
        (step.at, entry)
    })
}

/// Whether an entry names the pod: as a word, so that `model-1` is not found in `model-10`.
fn speaks_of(entry: &Value, pod: &str) -> bool {
    let part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
    let in_text = |text: &str| {
        text.match_indices(pod).any(|(at, _)| {
            let before = text[..at].chars().next_back();
            // A full stop ends a sentence, and goes on in a name.
            let mut after = text[at + pod.len()..].chars();
            let next = after.next();
            let goes_on = match next {
                Some('.') => after.next().is_some_and(|c| c.is_ascii_alphanumeric()),
                next => next.is_some_and(part),
            };
            !before.is_some_and(part) && !goes_on
        })
    };
    entry["pod"] == pod || entry["message"].as_str().is_some_and(in_text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_found_by_its_whole_name() {
        let entry = |text: &str| json!({"message": text});
        for text in [
            "pod model-1 is gone.",
            "model-1",
            "gone: model-1.",
            "(model-1)",
        ] {
            assert!(speaks_of(&entry(text), "model-1"), "{text}");
        }
        for text in ["model-10", "my-model-1", "model-1-x", "model-1.line1"] {
            assert!(!speaks_of(&entry(text), "model-1"), "{text}");
        }
        assert!(speaks_of(
            &json!({"pod": "model-1", "message": ""}),
            "model-1"
        ));
    }

    #[test]
    fn the_oldest_leave_first() {
        let mut timeline = Timeline::default();
        let mut event = Event::of_module(
            slice_core::event::EventType::Drain,
            Timestamp::UNIX_EPOCH,
            slice_core::judge::Severity::Info,
            "",
        );
        for i in 0..MOST + 10 {
            event.message = i.to_string();
            timeline.note(&event);
        }
        let all = timeline.select(&[], None, None);
        assert_eq!(all.as_array().unwrap().len(), MOST);
        assert_eq!(all[0]["message"], "10");
    }
}
