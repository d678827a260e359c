//! Reported properties: the document that is wanted, the one that the hub has, and the way from one
//! to the other: minimal merge patches, one at a time, well spaced.
//!
//! An accepted patch is not yet one that the cloud took: edgeHub answers 204 as soon as it has
//! stored it, and when the cloud refuses it, every later patch is stuck behind it. Only a GET tells.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use serde_json::{Map, Value};

use super::Urgency;
use super::merge::{diff, merge, strip_hub_keys};
use crate::timings::Timings;

/// GETs in a row that lack what was accepted before it counts as stuck. One may be a lost answer.
const STUCK_AFTER: u32 = 2;

/// Spacing of patches and of the GETs that check on them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    pub(crate) interval: Duration,
    pub(crate) alarm_interval: Duration,
    pub(crate) backoff: (Duration, Duration),
    pub(crate) verify_after: Duration,
    pub(crate) verify_spacing: Duration,
    pub(crate) patch_bytes: usize,
}

impl Pace {
    pub(crate) fn new(timings: &Timings, patch_bytes: usize) -> Self {
        Self {
            interval: timings.report_interval,
            alarm_interval: timings.report_alarm_interval,
            backoff: timings.report_backoff,
            verify_after: timings.report_verify_after,
            verify_spacing: timings.report_verify_spacing,
            patch_bytes,
        }
    }
}

/// What an answer of the hub meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Acknowledged {
    /// Nothing to tell.
    Nothing,
    /// The hub has accepted all that is wanted.
    Settled,
    /// The hub refuses this section; it is left out until its value changes.
    Refused { section: String, status: u16 },
    /// What the hub accepted does not arrive in the cloud.
    Stuck,
    /// After having been stuck, the cloud has it.
    Recovered,
}

#[derive(Debug)]
struct InFlight {
    patch: Value,
    wanted: Value,
}

/// The reported section.
#[derive(Debug)]
pub(crate) struct Reported {
    pace: Pace,
    wanted: Option<Value>,
    urgency: Urgency,
    /// What the hub has, as far as we know.
    acked: Option<Value>,
    /// Whether `acked` rests on a GET of this connection; nothing is sent before.
    fresh: bool,
    /// A patch got no answer: the next GET may or may not show it, and proves nothing.
    uncertain: bool,
    in_flight: Option<InFlight>,
    pending: Option<Value>,
    last_sent: Option<Instant>,
    not_before: Option<Instant>,
    failures: u32,
    isolate: BTreeSet<String>,
    refused: BTreeMap<String, Option<Value>>,
    unverified_since: Option<Instant>,
    missing: u32,
}

impl Reported {
    pub(crate) fn new(pace: Pace) -> Self {
        Self {
            pace,
            wanted: None,
            urgency: Urgency::Routine,
            acked: None,
            fresh: false,
            uncertain: false,
            in_flight: None,
            pending: None,
            last_sent: None,
            not_before: None,
            failures: 0,
            isolate: BTreeSet::new(),
            refused: BTreeMap::new(),
            unverified_since: None,
            missing: 0,
        }
    }

    /// Changes the spacing of routine patches.
    pub(crate) fn set_interval(&mut self, interval: Duration) {
        self.pace.interval = interval;
    }

    /// A new connection: nothing is sent before a GET has told what the hub has.
    pub(crate) fn begin_epoch(&mut self) {
        self.uncertain |= self.in_flight.take().is_some();
        self.fresh = false;
        self.pending = None;
    }

    /// Sets the document that the hub shall have. It must have passed `check_document`.
    pub(crate) fn want(&mut self, document: Value, urgency: Urgency) {
        self.refused
            .retain(|section, value| value.as_ref() == document.get(section));
        self.wanted = Some(document);
        self.urgency = self.urgency.max(urgency);
        self.recompute();
    }

    /// Whether everything that is wanted and not refused has been accepted.
    pub(crate) fn is_settled(&self) -> bool {
        self.wanted.is_none() || (self.fresh && self.in_flight.is_none() && self.pending.is_none())
    }

    /// Whether a GET is needed before anything can be sent.
    #[cfg(test)]
    pub(crate) fn needs_get(&self) -> bool {
        !self.fresh && self.in_flight.is_none()
    }

    /// Whether accepted patches do not arrive in the cloud.
    pub(crate) fn is_stuck(&self) -> bool {
        self.missing >= STUCK_AFTER
    }

    /// When the next patch may go out. With `hurry` (the program ends) spacing does not count; what
    /// the hub asked for by refusing does.
    pub(crate) fn due_at(&self, now: Instant, hurry: bool) -> Option<Instant> {
        if !self.fresh || self.in_flight.is_some() || self.pending.is_none() {
            return None;
        }
        let quick = self.urgency == Urgency::Alarm || !self.isolate.is_empty();
        let spacing = if quick {
            self.pace.alarm_interval
        } else {
            self.pace.interval
        };
        let at = self
            .last_sent
            .filter(|_| !hurry)
            .map_or(now, |sent| sent + spacing);
        Some(self.not_before.map_or(at, |earliest| at.max(earliest)))
    }

    /// When a GET should look whether an accepted patch has arrived, given the last GET's time.
    pub(crate) fn verify_at(&self, last_get: Instant) -> Option<Instant> {
        let accepted = self.unverified_since?;
        Some((accepted + self.pace.verify_after).max(last_get + self.pace.verify_spacing))
    }

    /// Takes the next patch to send; the caller reports what became of it.
    pub(crate) fn take_patch(&mut self, now: Instant) -> Option<Value> {
        if !self.fresh || self.in_flight.is_some() {
            return None;
        }
        let patch = self.pending.take()?;
        self.last_sent = Some(now);
        self.urgency = Urgency::Routine;
        let wanted = self.wanted.clone().unwrap_or_default();
        self.in_flight = Some(InFlight {
            patch: patch.clone(),
            wanted,
        });
        Some(patch)
    }

    /// The hub answered the patch in flight.
    pub(crate) fn on_answer(&mut self, now: Instant, status: u16) -> Acknowledged {
        let Some(InFlight { patch, wanted }) = self.in_flight.take() else {
            return Acknowledged::Nothing;
        };
        match status {
            200..=299 => {
                if let Some(acked) = &mut self.acked {
                    merge(acked, &patch);
                }
                self.failures = 0;
                self.not_before = None;
                self.unverified_since = Some(now);
                for section in sections(&patch) {
                    self.isolate.remove(&section);
                }
                self.recompute();
                if self.pending.is_none() {
                    Acknowledged::Settled
                } else {
                    Acknowledged::Nothing
                }
            }
            400..=499 if !matches!(status, 401 | 403 | 408 | 429) => {
                self.refuse(&patch, &wanted, status)
            }
            _ => {
                self.back_off(now);
                self.recompute();
                Acknowledged::Nothing
            }
        }
    }

    /// The patch in flight got no answer in time.
    pub(crate) fn on_timeout(&mut self, now: Instant) {
        if self.in_flight.take().is_some() {
            self.uncertain = true;
            self.fresh = false;
            self.back_off(now);
        }
    }

    /// The reported section of a GET's answer (with its `desired` known to be good).
    pub(crate) fn on_get(&mut self, now: Instant, section: &Value) -> Acknowledged {
        if self.in_flight.is_some() {
            // It may or may not hold the patch that is under way.
            return Acknowledged::Nothing;
        }
        let mut seen = section.clone();
        strip_hub_keys(&mut seen);
        if !seen.is_object() {
            seen = Value::Object(Map::new());
        }
        let had_time = self
            .unverified_since
            .is_some_and(|since| now >= since + self.pace.verify_after);
        let was_stuck = self.is_stuck();
        let same = self.acked.as_ref() == Some(&seen);
        if same && had_time {
            self.unverified_since = None;
            self.missing = 0;
        } else if !same && had_time && !self.uncertain && self.acked.is_some() {
            self.unverified_since = None;
            self.missing = self.missing.saturating_add(1);
        }
        self.acked = Some(seen);
        self.fresh = true;
        self.uncertain = false;
        self.recompute();
        match (was_stuck, self.is_stuck()) {
            (false, true) => Acknowledged::Stuck,
            (true, false) => Acknowledged::Recovered,
            (false, false) | (true, true) => Acknowledged::Nothing,
        }
    }

    /// A patch with several sections is sent again section by section, to find the one at fault.
    fn refuse(&mut self, patch: &Value, wanted: &Value, status: u16) -> Acknowledged {
        let sections = sections(patch);
        let answer = match sections.as_slice() {
            [section] => {
                self.isolate.remove(section);
                self.refused
                    .insert(section.clone(), wanted.get(section).cloned());
                Acknowledged::Refused {
                    section: section.clone(),
                    status,
                }
            }
            _ => {
                self.isolate.extend(sections);
                Acknowledged::Nothing
            }
        };
        // The wish may have changed while the patch was under way.
        if let Some(now_wanted) = &self.wanted {
            self.refused
                .retain(|section, value| value.as_ref() == now_wanted.get(section));
        }
        self.recompute();
        answer
    }

    fn back_off(&mut self, now: Instant) {
        let (first, cap) = self.pace.backoff;
        let wait = first.saturating_mul(1 << self.failures.min(20)).min(cap);
        self.failures = self.failures.saturating_add(1);
        self.not_before = Some(now + wait);
    }

    fn recompute(&mut self) {
        self.pending = None;
        let (true, Some(acked), Some(wanted)) = (self.fresh, &self.acked, &self.wanted) else {
            return;
        };
        let mut target = wanted.clone();
        if let Value::Object(fields) = &mut target {
            for section in self.refused.keys() {
                match acked.get(section) {
                    Some(kept) => fields.insert(section.clone(), kept.clone()),
                    None => fields.remove(section),
                };
            }
        }
        let Some(Value::Object(changes)) = diff(acked, &target) else {
            self.isolate.clear();
            return;
        };
        self.isolate.retain(|section| changes.contains_key(section));
        let chosen = match self.isolate.first() {
            Some(section) => changes
                .into_iter()
                .filter(|(key, _)| key == section)
                .collect(),
            None => fit(changes, self.pace.patch_bytes),
        };
        self.pending = Some(Value::Object(chosen));
    }
}

fn sections(patch: &Value) -> Vec<String> {
    patch
        .as_object()
        .map(|fields| fields.keys().cloned().collect())
        .unwrap_or_default()
}

/// Takes what fits into one patch, removals first: they make room in the hub's copy.
fn fit(changes: Map<String, Value>, limit: usize) -> Map<String, Value> {
    let (removals, additions): (Vec<_>, Vec<_>) =
        changes.into_iter().partition(|(_, value)| value.is_null());
    let mut chosen = Map::new();
    let mut size = 2;
    for (key, value) in removals.into_iter().chain(additions) {
        // Quotes, colon and comma; a key that needs escapes in JSON counts double.
        let more = 2 * key.len() + 4 + value.to_string().len();
        if chosen.is_empty() || size + more <= limit {
            size += more;
            chosen.insert(key, value);
        }
    }
    chosen
}

#[cfg(test)]
#[path = "reported_tests.rs"]
mod tests;
