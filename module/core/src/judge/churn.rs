//! Counts how often the slices of each Service change, by the minute, and says which change too
//! often. Pure: the caller gives the time, on a clock that only goes forward.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use serde_json::json;

use super::bench::none;
use super::finding::{Evidence, Finding, FindingKind, Severity};
use crate::model::ServiceKey;

const MINUTE: Duration = Duration::from_secs(60);

/// Changes of slices by Service over the last minute. Bounded: a Service is forgotten when nothing
/// of it changed for a minute, and no more changes are kept than the threshold needs.
#[derive(Debug)]
pub struct Churn {
    threshold: usize,
    changes: HashMap<ServiceKey, VecDeque<Duration>>,
    high: BTreeSet<ServiceKey>,
}

impl Churn {
    /// Counts up to this many changes a minute as usual.
    pub fn new(threshold: usize) -> Self {
        Self {
            threshold,
            changes: HashMap::new(),
            high: BTreeSet::new(),
        }
    }

    /// Notes a change.
    pub fn note(&mut self, service: &ServiceKey, now: Duration) {
        let changes = self.changes.entry(service.clone()).or_default();
        changes.push_back(now);
        expire(changes, now);
        while changes.len() > self.threshold.saturating_add(1) {
            changes.pop_front();
        }
        if changes.len() > self.threshold {
            self.high.insert(service.clone());
        }
    }

    /// Whether the Service changes too often. It does until it changes at most half as often as
    /// that: at the threshold itself a finding would come and go.
    pub fn is_high(&self, service: &ServiceKey) -> bool {
        self.high.contains(service)
    }

    /// The Services that have calmed down since the last time.
    pub fn calmed(&mut self, now: Duration) -> Vec<ServiceKey> {
        let calm: Vec<ServiceKey> = self
            .high
            .iter()
            .filter(|service| self.calm_at(service).is_none_or(|at| now >= at))
            .cloned()
            .collect();
        for service in &calm {
            self.high.remove(service);
        }
        calm
    }

    /// When the first Service calms down if nothing changes any more.
    pub fn next_due(&self) -> Option<Duration> {
        self.high.iter().filter_map(|s| self.calm_at(s)).min()
    }

    /// Forgets what is older than a minute.
    pub fn expire(&mut self, now: Duration) {
        self.changes.retain(|_, changes| {
            expire(changes, now);
            !changes.is_empty()
        });
    }

    /// What there is to say of a Service that changes too often.
    pub fn finding(&self, service: &ServiceKey) -> Finding {
        let threshold = self.threshold;
        Finding {
            kind: FindingKind::HighChurn,
            severity: Severity::Info,
            namespace: Some(service.namespace.to_string()),
            service: Some(service.name.to_string()),
            slice: None,
            addresses: Vec::new(),
            pod: None,
            message: format!(
                "The slices of {service} change more than {threshold} times a minute. Every node \
                 rewrites its rules each time, so traffic follows late."
            ),
            evidence: Evidence {
                expected: json!({"changesPerMinute": threshold}),
                actual: json!({"changesPerMinute": format!("over {threshold}")}),
            },
            remedy: none(
                "Right slices are not written to. Outside a large rollout, look for pods whose \
                 readiness comes and goes (a probe that is too strict, restarts).",
            ),
        }
    }

    /// When a Service has changed seldom enough, if nothing changes any more.
    fn calm_at(&self, service: &ServiceKey) -> Option<Duration> {
        let changes = self.changes.get(service)?;
        let last_too_many = changes.len().checked_sub(self.threshold / 2 + 1)?;
        Some(*changes.get(last_too_many)? + MINUTE)
    }
}

fn expire(changes: &mut VecDeque<Duration>, now: Duration) {
    while changes
        .front()
        .is_some_and(|at| now.saturating_sub(*at) >= MINUTE)
    {
        changes.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn speaks_over_the_threshold_and_calms_down_at_half_of_it() {
        let mut churn = Churn::new(3);
        let key = ServiceKey::new("line1", "model");
        for second in [1, 2, 3] {
            churn.note(&key, at(second));
            assert!(!churn.is_high(&key));
        }
        churn.note(&key, at(4));
        churn.note(&ServiceKey::new("line1", "other"), at(4));
        assert!(churn.is_high(&key));
        // Of the changes at 1 to 4 only one is left at 63.
        assert_eq!(churn.next_due(), Some(at(63)));
        assert!(churn.calmed(at(62)).is_empty());
        churn.expire(at(62));
        assert_eq!(churn.calmed(at(63)), std::slice::from_ref(&key));
        assert!(!churn.is_high(&key));
        assert_eq!(churn.next_due(), None);
        churn.expire(at(200));
        assert!(churn.changes.is_empty());
    }

    #[test]
    fn what_was_forgotten_is_calm() {
        let mut churn = Churn::new(0);
        let key = ServiceKey::new("line1", "model");
        churn.note(&key, at(1));
        assert!(churn.is_high(&key));
        churn.expire(at(61));
        assert_eq!(churn.calmed(at(61)), [key]);
    }

    #[test]
    fn a_storm_keeps_no_more_than_it_needs() {
        let mut churn = Churn::new(5);
        let key = ServiceKey::new("line1", "model");
        for ms in 0..10_000 {
            churn.note(&key, Duration::from_millis(ms));
        }
        assert_eq!(churn.changes.get(&key).map(VecDeque::len), Some(6));
    }
}
