//! From findings to heals: which incident is due, what holds it back, which one is next.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::time::Duration;

use jiff::Timestamp;

use super::{Active, Engine};
use crate::event::{Event, EventType, HealEvent, HealOutcome, Now, Output, Reason};
use crate::heal::explain::explain;
use crate::heal::gate::HoldReason;
use crate::heal::incident::Incident;
use crate::heal::ladder::Ladder;
use crate::heal::policy::{LoadBalancers, Mode};
use crate::heal::record::Record;
use crate::heal::story::What;
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
        out: &mut Vec<Output>,
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
            if !healing && let Some(incident) = self.incidents.remove(key) {
                came_right(incident, now, out);
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
        for (at, named, signal) in &self.recent_signals {
            let counts = *at + self.policy.signal_window > now.mono;
            if counts && named.as_ref().is_none_or(|n| n == key) {
                incident.signalled(signal);
            }
        }
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
            // What is acted on, or held back, has stood for long enough to be told.
            self.announce_of(&key, now, out);
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
        self.may_write(key, now)
    }

    /// Whether a heal may be begun now, in mode `heal` or by hand: windows and holds, an API that
    /// has only just come back, the mass guard, budgets.
    pub(super) fn may_write(
        &self,
        key: &ServiceKey,
        now: Now,
    ) -> Result<(), (HoldReason, String, Duration)> {
        let again = now.mono + HELD_AGAIN;
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
        // A hold that the last heal ended in stands until a heal ends otherwise: a person is not told
        // "healing" and "blocked" by turns.
        if !incident.held_on_the_way {
            incident.held = None;
        }
        let Some(begun_for) = incident.findings.first().cloned() else {
            return;
        };
        let why = match manual {
            Some(_) => "heal, asked for by hand".to_owned(),
            None => format!("heal: {}", begun_for.remedy.reason),
        };
        incident.story.add(now.wall, What::Decision, why);
        incident.begun_for = Some(begun_for.clone());
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

    /// The same decisions as in mode `heal`: what would be written, and how much of the traffic is at
    /// stake. Counted once for each incident.
    fn shadow(&mut self, incident: &Incident, count: bool, now: Now) -> Vec<(String, String)> {
        self.heals.shadow += u64::from(count);
        let would = match self.would_write(incident, None, now) {
            Ok(would) => would,
            Err((reason, text)) => {
                let text = format!("held back ({}): {text}", reason.as_str());
                return vec![("would".to_owned(), text)];
            }
        };
        let refreshes = would.action == RemedyAction::RefreshService;
        self.heals.shadow_refreshes += u64::from(count && refreshes);
        self.heals.shadow_deletes += u64::from(count && would.deletes);
        let (stale, all) = would.at_risk;
        vec![
            ("would".to_owned(), would.writes.join("; ")),
            (
                "atRisk".to_owned(),
                format!("{stale} of {all} endpoints that traffic reaches are stale"),
            ),
        ]
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
        let text = format!("held back ({}): {detail}", reason.as_str());
        incident.story.add(now.wall, What::Decision, text);
        let shadow = reason == HoldReason::ObserveMode;
        let counted = shadow && !std::mem::replace(&mut incident.shadowed, true);
        let mut evidence = Vec::new();
        if shadow && let Some(incident) = self.incidents.get(key) {
            evidence = self.shadow(&incident.clone(), counted, now);
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
            evidence: std::iter::once(("finding".to_owned(), first.message.clone()))
                .chain(evidence)
                .collect(),
            heal: Some(HealEvent {
                action: first.remedy.action,
                outcome: None,
                reason: Some(Reason::Hold(reason)),
                attempt: incident.attempts.max(1),
                seconds: now.mono.saturating_sub(incident.opened.mono).as_secs_f64(),
            }),
            incident: Some(incident.id.clone()),
        };
        keep(incident, now, false, out);
        out.push(Output::Emit(event.clone()));
        Some(event)
    }
}

/// Keeps an incident with its story.
pub(super) fn keep(incident: &Incident, now: Now, closed: bool, out: &mut Vec<Output>) {
    if let Some(record) = incident.record(now, closed) {
        out.push(Output::Persist(Record::Incident(Box::new(record))));
    }
}

/// The end of an incident that no heal was needed for. What was never told was a rollout, and is not
/// worth a write.
fn came_right(mut incident: Incident, now: Now, out: &mut Vec<Output>) {
    if incident.told.is_none() && incident.attempts == 0 {
        return;
    }
    incident.outcome = Some(HealOutcome::HealedByItself);
    let text = "right again without us";
    incident.story.add(now.wall, What::Outcome, text);
    keep(&incident, now, true, out);
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
