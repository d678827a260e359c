//! What one process of the controller remembers of its own writes, and forgets with a restart.
//!
//! The rules are the real controller's, traps included: a slice that it found right and did not
//! write is untracked, and the deletion of an untracked slice wakes nobody.

use std::collections::HashMap;

use serde_json::Value;

use super::super::object;
use super::SERVICE_NAME;

/// Namespace and name of a Service.
pub(super) type ServiceKey = (String, String);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expectation {
    /// The generation of our last write.
    Generation(i64),
    /// We deleted it.
    Deletion,
}

/// Slices by Service and uid.
#[derive(Debug, Default)]
pub(super) struct Tracker {
    slices: HashMap<ServiceKey, HashMap<String, Expectation>>,
}

impl Tracker {
    /// Remembers a slice that was just created or updated.
    pub(super) fn update(&mut self, slice: &Value) {
        self.slices.entry(service_of(slice)).or_default().insert(
            object::uid(slice).to_owned(),
            Expectation::Generation(object::generation(slice)),
        );
    }

    /// Remembers that a slice was just deleted.
    pub(super) fn expect_deletion(&mut self, slice: &Value) {
        self.slices
            .entry(service_of(slice))
            .or_default()
            .insert(object::uid(slice).to_owned(), Expectation::Deletion);
    }

    /// Whether a slice that was added or changed is news: untracked, or newer than our write.
    pub(super) fn should_sync(&self, slice: &Value) -> bool {
        match self.find(slice) {
            Some(Expectation::Generation(ours)) => object::generation(slice) > ours,
            // The deletion is under way; its event will tell.
            Some(Expectation::Deletion) => false,
            None => true,
        }
    }

    /// Takes note of a deletion. Whether it is a reason to sync: the slice was ours, and it was not
    /// we who deleted it.
    pub(super) fn deleted(&mut self, slice: &Value) -> bool {
        let Some(slices) = self.slices.get_mut(&service_of(slice)) else {
            return false;
        };
        matches!(
            slices.remove(object::uid(slice)),
            Some(Expectation::Generation(_))
        )
    }

    /// Whether the slices given contradict what was written last: then nothing may be decided.
    pub(super) fn stale(&self, service: &ServiceKey, slices: &[&Value]) -> bool {
        let Some(tracked) = self.slices.get(service) else {
            return false;
        };
        let behind = slices
            .iter()
            .any(|slice| match tracked.get(object::uid(slice)) {
                Some(Expectation::Deletion) => true,
                Some(Expectation::Generation(ours)) => *ours > object::generation(slice),
                None => false,
            });
        behind
            || tracked.iter().any(|(uid, expectation)| {
                matches!(expectation, Expectation::Generation(_))
                    && slices.iter().all(|slice| object::uid(slice) != uid)
            })
    }

    /// Forgets a Service that is gone.
    pub(super) fn forget(&mut self, service: &ServiceKey) {
        self.slices.remove(service);
    }

    fn find(&self, slice: &Value) -> Option<Expectation> {
        self.slices
            .get(&service_of(slice))?
            .get(object::uid(slice))
            .copied()
    }
}

/// The Service that a slice is filed under: by its label, as the controller does.
pub(super) fn service_of(slice: &Value) -> ServiceKey {
    (
        object::namespace(slice).to_owned(),
        object::label(slice, SERVICE_NAME)
            .unwrap_or_default()
            .to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn slice(uid: &str, generation: i64) -> Value {
        json!({"metadata": {"namespace": "x", "name": uid, "uid": uid, "generation": generation,
            "labels": {"kubernetes.io/service-name": "web"}}})
    }

    #[test]
    fn only_own_writes_are_remembered() {
        let key: ServiceKey = ("x".into(), "web".into());
        let mut tracker = Tracker::default();
        let (ours, found) = (slice("a", 2), slice("b", 1));
        tracker.update(&ours);
        assert!(!tracker.should_sync(&ours) && tracker.should_sync(&slice("a", 3)));
        assert!(tracker.should_sync(&found));
        assert!(!tracker.stale(&key, &[&ours, &found]));
        assert!(tracker.stale(&key, &[&slice("a", 1)]), "an older copy");
        assert!(tracker.stale(&key, &[&found]), "ours is missing");

        assert!(!tracker.deleted(&found), "an untracked one wakes nobody");
        assert!(tracker.deleted(&ours));
        tracker.update(&ours);
        tracker.expect_deletion(&ours);
        assert!(tracker.stale(&key, &[&ours]), "still there");
        assert!(!tracker.deleted(&ours), "we did that ourselves");
        assert!(!tracker.stale(&key, &[]));
    }
}
