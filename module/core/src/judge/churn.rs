//! Counts how often the slices of each Service change, by the minute. Pure: the caller gives the
//! time, on a clock that only goes forward.

use std::collections::HashMap;
use std::collections::VecDeque;
use std::time::Duration;

use crate::model::ServiceKey;

const MINUTE: Duration = Duration::from_secs(60);

/// Changes of slices by Service over the last minute. Bounded: a Service is forgotten when nothing
/// of it changed for a minute, and no more changes are kept than the threshold needs.
#[derive(Debug)]
pub struct Churn {
    threshold: usize,
    changes: HashMap<ServiceKey, VecDeque<Duration>>,
}

impl Churn {
    /// Counts up to this many changes a minute as usual.
    pub fn new(threshold: usize) -> Self {
        Self {
            threshold,
            changes: HashMap::new(),
        }
    }

    /// Notes a change; the number of changes in the last minute if it is over the threshold.
    pub fn note(&mut self, service: &ServiceKey, now: Duration) -> Option<usize> {
        let changes = self.changes.entry(service.clone()).or_default();
        changes.push_back(now);
        expire(changes, now);
        while changes.len() > self.threshold.saturating_add(1) {
            changes.pop_front();
        }
        (changes.len() > self.threshold).then_some(changes.len())
    }

    /// How many changes of a Service there were in the last minute, counted up to one over the
    /// threshold.
    pub fn rate(&mut self, service: &ServiceKey, now: Duration) -> usize {
        let Some(changes) = self.changes.get_mut(service) else {
            return 0;
        };
        expire(changes, now);
        changes.len()
    }

    /// Forgets what is older than a minute.
    pub fn expire(&mut self, now: Duration) {
        self.changes.retain(|_, changes| {
            expire(changes, now);
            !changes.is_empty()
        });
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

    #[test]
    fn speaks_over_the_threshold_and_calms_down_after_a_minute() {
        let mut churn = Churn::new(3);
        let key = ServiceKey::new("line1", "model");
        let at = Duration::from_secs;
        assert_eq!([1, 2, 3].map(|s| churn.note(&key, at(s))), [None; 3]);
        assert_eq!(churn.note(&key, at(4)), Some(4));
        assert_eq!(churn.rate(&key, at(62)), 2);
        assert_eq!(churn.note(&ServiceKey::new("line1", "other"), at(62)), None);
        churn.expire(at(200));
        assert!(churn.changes.is_empty());
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
