//! The annotation `last-change-trigger-time`: the earliest change since the last sync of a Service.

use std::collections::HashMap;

use serde_json::Value;

use super::super::object;
use super::tracker::ServiceKey;

#[derive(Debug, Default)]
struct Seen {
    service: String,
    pods: HashMap<String, String>,
}

/// The times seen per Service. RFC 3339 in UTC with whole seconds sorts as text.
#[derive(Debug, Default)]
pub(super) struct Triggers {
    services: HashMap<ServiceKey, Seen>,
}

impl Triggers {
    /// The earliest time that is later than at the last call for this Service.
    pub(super) fn earliest<'a>(
        &mut self,
        key: &ServiceKey,
        service: &Value,
        pods: impl Iterator<Item = &'a Value>,
    ) -> Option<String> {
        let seen = self.services.entry(key.clone()).or_default();
        let mut earliest: Option<String> = None;
        let mut changed = |time: &str| {
            if earliest.as_deref().is_none_or(|have| time < have) {
                earliest = Some(time.to_owned());
            }
        };
        let mut now = HashMap::new();
        for pod in pods {
            let ready = object::list(&pod["status"]["conditions"])
                .iter()
                .find(|condition| condition["type"] == "Ready");
            let time = ready.and_then(|condition| condition["lastTransitionTime"].as_str());
            let Some(time) = time else {
                continue;
            };
            let before = seen.pods.get(object::name(pod));
            if before.is_none_or(|before| time > before.as_str()) {
                changed(time);
            }
            now.insert(object::name(pod).to_owned(), time.to_owned());
        }
        let created = service["metadata"]["creationTimestamp"]
            .as_str()
            .unwrap_or_default();
        if created > seen.service.as_str() {
            changed(created);
        }
        seen.pods = now;
        created.clone_into(&mut seen.service);
        earliest
    }

    /// Forgets a Service that is gone.
    pub(super) fn forget(&mut self, key: &ServiceKey) {
        self.services.remove(key);
    }
}
