//! From findings to heals: which incident is due, what holds it back, which one is next.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::time::Duration;

use jiff::Timestamp;

use super::{Active, Engine};
use crate::event::{Event, EventType, HealEvent, Now, Output};
use crate::heal::explain::explain;
use crate::heal::gate::HoldReason;
use crate::heal::incident::Incident;
use crate::heal::ladder::Ladder;
use crate::heal::policy::{LoadBalancers, Mode};
use crate::judge::{Finding, RemedyAction, Severity};
use crate::model::{ServiceKey, ServiceType};

/// How long until something that is held back is looked at again, if nothing says when.
pub(super) const HELD_AGAIN: Duration = Duration::from_secs(10);

impl Engine {
    pub(super) fn update_incident(
        &mut self,
        key: &ServiceKey,
        findings: &[Finding],
        fingerprint: u64,
        now: Now,
    ) {
        let actionable: Vec<Finding> = findings
            .iter()
            .filter(|f| f.remedy.action != RemedyAction::None)
            .cloned()
            .collect();
        let healing = self
            .active
            .as_ref()
            .is_some_and(|a| a.ladder.service() == key);
        if actionable.is_empty() {
            if !healing {
                self.incidents.remove(key);
            }
            return;
        }
        let fingerprint = mix(fingerprint, &actionable);
        if let Some(incident) = self.incidents.get_mut(key) {
            incident.judged_again(actionable, fingerprint, now);
            return;
        }
        let mut incident = Incident::open(
            self.ids.incident(),
            key.clone(),
            actionable,
            fingerprint,
            now,
        );
        if self.interrupted.as_ref().is_some_and(|i| i.service == *key) {
            incident.resumed = true;
            if let Some(intent) = self.interrupted.take() {
                incident.id = intent.incident;
            }
        }
        self.incidents.insert(key.clone(), incident);
    }

    /// When the next incident wants attention (monotonic).
    pub(super) fn next_incident_due(&self, now: Now) -> Option<Duration> {
        let active = self.active.as_ref().map(|a| a.ladder.service().clone());
        let settle = self.links.settling_until(self.policy.pace.settle);
        self.incidents
            .values()
            .filter(|i| Some(&i.service) != active.as_ref())
            .filter(|_| self.active.is_none() && self.links.synced())
            .map(|i| {
                let due = i.refresh_due(&self.policy.grace, self.under_signal(&i.service, now));
                due.max(settle.unwrap_or_default())
            })
            .min()
    }

    pub(super) fn under_signal(&self, key: &ServiceKey, now: Now) -> bool {
        self.window.covers(key, now.mono)
    }

    /// Starts the worst, then oldest, incident that is due and that nothing holds back.
    pub(super) fn start_due(&mut self, now: Now, out: &mut Vec<Output>) {
        if self.active.is_some() || !self.links.synced() {
            return;
        }
        let mut due: Vec<(Severity, Duration, ServiceKey)> = self
            .incidents
            .values()
            .filter(|i| {
                let under_signal = self.under_signal(&i.service, now);
                now.mono >= i.refresh_due(&self.policy.grace, under_signal)
            })
            .map(|i| (i.findings[0].severity, i.opened.mono, i.service.clone()))
            .collect();
        due.sort();
        for (_, _, key) in due {
            // The grace ends with a second look: what is gone by now, or has changed, is no
            // staleness.
            if !self.look_twice(&key, now, out) {
                continue;
            }
            match self.may_start(&key, now) {
                Ok(()) => return self.start(&key, None, now, out),
                Err((reason, detail, again)) => {
                    self.hold(&key, reason, detail, again, now, out);
                }
            }
        }
    }

    fn look_twice(&mut self, key: &ServiceKey, now: Now, out: &mut Vec<Output>) -> bool {
        let Some(before) = self.incidents.get(key).map(|i| i.since) else {
            return false;
        };
        self.dirty.insert(key.clone());
        self.judge_dirty(now, out);
        self.incidents
            .get(key)
            .is_some_and(|i| i.since == before && (i.judgements >= 2 || i.resumed))
    }

    fn may_start(&self, key: &ServiceKey, now: Now) -> Result<(), (HoldReason, String, Duration)> {
        let again = now.mono + HELD_AGAIN;
        if self.policy.mode == Mode::Observe {
            let reason = HoldReason::ObserveMode;
            return Err((reason, explain(reason).to_owned(), again));
        }
        if let Some((reason, text)) = &self.policy.closed {
            return Err((*reason, text.clone(), again));
        }
        if let Some(until) = self.links.settling_until(self.policy.pace.settle)
            && now.mono < until
        {
            let reason = HoldReason::Reconnected;
            return Err((reason, explain(reason).to_owned(), until));
        }
        if let Some(text) = self.guard_holds(now) {
            return Err((HoldReason::CanaryFailed, text, again));
        }
        self.budget(key, now.wall).map_err(|(reason, until)| {
            let wait = Duration::try_from(until.duration_since(now.wall)).unwrap_or_default();
            let text = format!("{} until {until}", explain(reason));
            (reason, text, now.mono + wait)
        })
    }

    pub(super) fn budget(
        &self,
        key: &ServiceKey,
        wall: Timestamp,
    ) -> Result<(), (HoldReason, Timestamp)> {
        let view = self.world.view(key);
        let balancer = view
            .service()
            .is_some_and(|s| s.spec.service_type == ServiceType::LoadBalancer);
        let slow = if balancer && self.policy.load_balancers == LoadBalancers::Slow {
            10
        } else {
            1
        };
        self.ledger
            .check(key, &self.policy.budgets, &self.policy.pace, slow, wall)
    }

    pub(super) fn start(
        &mut self,
        key: &ServiceKey,
        manual: Option<Option<RemedyAction>>,
        now: Now,
        out: &mut Vec<Output>,
    ) {
        let Some(incident) = self.incidents.get_mut(key) else {
            return;
        };
        incident.attempts += 1;
        incident.held = None;
        let Some(begun_for) = incident.findings.first().cloned() else {
            return;
        };
        let ladder =
            Ladder::new(key.clone(), incident.id.clone(), manual).diagnosing_first(incident.wedged);
        self.active = Some(Active {
            ladder,
            action: None,
            began: now,
            stale_since: incident.since,
            begun_for,
            story: Vec::new(),
        });
        self.climb(crate::heal::ladder::Happened::Tick, now, out);
    }

    /// Writes down that an incident is held back; tells it once for each reason, and returns what it
    /// told.
    pub(super) fn hold(
        &mut self,
        key: &ServiceKey,
        reason: HoldReason,
        detail: String,
        again: Duration,
        now: Now,
        out: &mut Vec<Output>,
    ) -> Option<Event> {
        let incident = self.incidents.get_mut(key)?;
        incident.not_before = again;
        incident.held = Some((reason, detail.clone()));
        if incident.told.replace(reason) == Some(reason) {
            return None;
        }
        let shadow = reason == HoldReason::ObserveMode;
        if shadow && !std::mem::replace(&mut incident.shadowed, true) {
            self.heals.shadow += 1;
        }
        if !shadow {
            self.heals.held += 1;
        }
        *self.heals.held_by_reason.entry(reason).or_default() += 1;
        let incident = self.incidents.get(key)?;
        let first = incident.findings.first()?;
        let event = Event {
            kind: EventType::Heal,
            at: now.wall,
            severity: first.severity,
            message: format!("Not healing {key}: {detail}"),
            service: Some(key.clone()),
            slice: first.slice.clone(),
            finding: Some(first.kind),
            evidence: vec![("finding".to_owned(), first.message.clone())],
            heal: Some(HealEvent {
                action: first.remedy.action,
                outcome: None,
                reason: Some(reason.as_str().to_owned()),
                attempt: incident.attempts.max(1),
                seconds: now.mono.saturating_sub(incident.opened.mono).as_secs_f64(),
            }),
            incident: Some(incident.id.clone()),
        };
        out.push(Output::Emit(event.clone()));
        Some(event)
    }
}

/// The fingerprint of an incident: what the judgement depends on, and what it said.
fn mix(fingerprint: u64, findings: &[Finding]) -> u64 {
    let mut hash = DefaultHasher::new();
    fingerprint.hash(&mut hash);
    for f in findings {
        (f.kind, &f.slice, &f.pod, &f.addresses).hash(&mut hash);
    }
    hash.finish()
}
