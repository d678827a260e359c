//! How long a signal counts, and for whom.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Signal;
use crate::model::ServiceKey;

/// How many Services are kept by name; when more are named, the signal counts for all.
const MOST_NAMED: usize = 256;

/// Which Services are under a signal. A signal that names a Service counts for that Service, one
/// that names none counts for all.
#[derive(Clone, Debug)]
pub struct SignalWindow {
    length: Duration,
    any: Option<Duration>,
    named: BTreeMap<ServiceKey, Duration>,
}

impl SignalWindow {
    /// Signals count for `length`.
    pub fn new(length: Duration) -> Self {
        Self {
            length,
            any: None,
            named: BTreeMap::new(),
        }
    }

    /// The same signals under another length.
    #[must_use]
    pub fn with_length(&self, length: Duration) -> Self {
        Self {
            length,
            ..self.clone()
        }
    }

    /// Takes up a signal; `now` is monotonic.
    pub fn note(&mut self, signal: &Signal, now: Duration) {
        match signal.service_key() {
            Some(key) if self.named.len() < MOST_NAMED || self.named.contains_key(&key) => {
                self.named.insert(key, now);
            }
            _ => self.any = Some(now),
        }
        let length = self.length;
        self.named.retain(|_, at| *at + length > now);
    }

    /// Whether this Service is under a signal; `now` is monotonic.
    pub fn covers(&self, key: &ServiceKey, now: Duration) -> bool {
        let fresh = |at: &Duration| *at + self.length > now;
        self.any.as_ref().is_some_and(fresh) || self.named.get(key).is_some_and(fresh)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::Severity;
    use crate::signal::SignalKind;

    fn signal(service: Option<&str>) -> Signal {
        Signal {
            rule: "cache-hit".to_owned(),
            kind: SignalKind::CacheHit,
            severity: Severity::Warning,
            at: jiff::Timestamp::UNIX_EPOCH,
            unit: None,
            namespace: service.map(|_| "line1".to_owned()),
            service: service.map(str::to_owned),
            slice: None,
            pod: None,
            node: None,
            count: 1,
            message: String::new(),
            cursor: String::new(),
        }
    }

    #[test]
    fn a_named_signal_counts_for_that_service_alone() {
        let mut window = SignalWindow::new(Duration::from_secs(120));
        window.note(&signal(Some("a")), Duration::from_secs(10));
        let (a, b) = (ServiceKey::new("line1", "a"), ServiceKey::new("line1", "b"));
        assert!(window.covers(&a, Duration::from_secs(129)));
        assert!(!window.covers(&b, Duration::from_secs(11)));
        assert!(!window.covers(&a, Duration::from_secs(130)));
    }

    #[test]
    fn a_signal_that_names_nobody_counts_for_all() {
        let mut window = SignalWindow::new(Duration::from_secs(120));
        window.note(&signal(None), Duration::from_secs(10));
        assert!(window.covers(&ServiceKey::new("x", "y"), Duration::from_secs(60)));
        assert!(!window.covers(&ServiceKey::new("x", "y"), Duration::from_secs(131)));
    }

    #[test]
    fn a_flood_of_names_does_not_grow_without_bound() {
        let mut window = SignalWindow::new(Duration::from_secs(120));
        for i in 0..10_000 {
            window.note(&signal(Some(&format!("s{i}"))), Duration::from_secs(1));
        }
        assert!(window.named.len() <= MOST_NAMED);
        assert!(window.covers(&ServiceKey::new("line1", "s9999"), Duration::from_secs(2)));
    }
}
