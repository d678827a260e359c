//! The heal under way: feeds the ladder, starts what it wants, tells how it ended.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use super::Engine;
use crate::event::{Event, EventType, HealEvent, HealOutcome, Now, Outcome, Output, Reason};
use crate::heal::gate::HoldReason;
use crate::heal::incident::Incident;
use crate::heal::judged::Judged;
use crate::heal::ladder::{Ctx, End, Happened};
use crate::heal::policy::Step;
use crate::heal::record::{Ended, Record};
use crate::heal::story::What;
use crate::judge::{FindingKind, RemedyAction, Severity};
use crate::model::ServiceKey;

use super::incidents::{HELD_AGAIN, keep};
use super::status::LastHeal;

/// How long at most until a heal that was held back on its way is tried again: whoever has mended what
/// held it should not have to wait for longer. The budgets hold all the same.
const HELD_LONGEST: Duration = Duration::from_secs(600);

impl Engine {
    /// Tells the ladder that time has passed or that its Service looks different now.
    pub(super) fn advance(&mut self, now: Now, out: &mut Vec<Output>) {
        let Some(active) = &self.active else { return };
        if active.action.is_some() {
            return;
        }
        let key = active.ladder.service();
        let clean = !self
            .findings
            .get(key)
            .is_some_and(|f| f.iter().any(|f| f.remedy.action != RemedyAction::None));
        let happened = if clean {
            Happened::Changed { clean: true }
        } else {
            Happened::Tick
        };
        self.climb(happened, now, out);
    }

    pub(super) fn ladder_done(&mut self, outcome: Outcome, now: Now, out: &mut Vec<Output>) {
        let judged = match &outcome {
            Outcome::Snapshot(snapshot) => self.active.as_ref().map(|active| {
                let key = active.ladder.service().clone();
                let ctx = self.judge_context(now);
                // A heal by hand looks at the whole scope, whatever the locality.
                Box::new(Judged::new(key, (**snapshot).clone(), &ctx))
            }),
            _ => None,
        };
        self.climb(Happened::Done(outcome, judged), now, out);
    }

    /// One step of the ladder, and what follows from it.
    pub(super) fn climb(&mut self, happened: Happened, now: Now, out: &mut Vec<Output>) {
        let Some(mut active) = self.active.take() else {
            return;
        };
        let key = active.ladder.service().clone();
        let whole = !self.findings.get(&key).is_some_and(|f| {
            f.iter().any(|f| {
                matches!(
                    f.kind,
                    FindingKind::MissingSlice | FindingKind::MissingEndpoint
                )
            })
        });
        let guarded = self.guard_tripped(now).then(|| {
            let mut policy = self.policy.clone();
            policy.ladder.retain(|s| *s == Step::RefreshService);
            policy
        });
        let ctx = Ctx {
            now,
            policy: guarded.as_ref().unwrap_or(&self.policy),
            world: &self.world,
            whole,
            stale_since: active.stale_since,
            delete_grace: Incident::delete_grace(&self.policy.grace, self.under_signal(&key, now)),
        };
        let next = active.ladder.step(happened, &ctx);
        for record in next.records {
            if let Record::Charge(charge) = &record {
                self.ledger.charge(charge.clone());
            }
            out.push(Output::Persist(record));
        }
        if let Some(incident) = self.incidents.get_mut(&key) {
            incident.action = match active.ladder.last_action() {
                RemedyAction::None => incident.action,
                action => action,
            };
            for line in &next.story {
                incident.story.add(now.wall, What::Action, line.as_str());
            }
        }
        let at = now.mono.saturating_sub(active.began.mono).as_secs_f64();
        active
            .story
            .extend(next.story.into_iter().map(|s| format!("{at:.1}s {s}")));
        if let Some(act) = next.act {
            active.action = Some(self.act(act, out));
        }
        match next.end {
            None => self.active = Some(active),
            Some(End::Held(reason, detail)) => {
                self.held_on_the_way(&active, reason, detail, now, out);
            }
            Some(End::Outcome(outcome, detail)) => {
                self.ended(&key, &active, outcome, detail, now, out);
            }
        }
    }

    /// A heal that begun and was held back. After writes that is no quick matter: the next try waits
    /// for the cool-down, twice as long each time.
    fn held_on_the_way(
        &mut self,
        active: &super::Active,
        reason: HoldReason,
        detail: String,
        now: Now,
        out: &mut Vec<Output>,
    ) {
        let key = active.ladder.service();
        let wedged = reason == HoldReason::Wedged;
        let Some(incident) = self.incidents.get_mut(key) else {
            return;
        };
        incident.wedged |= wedged;
        incident.held_on_the_way = true;
        let attempts = incident.attempts;
        let wait = if active.ladder.wrote() || wedged {
            let doublings = incident.attempts.saturating_sub(1).min(16);
            let wait = self.policy.pace.cool_down.saturating_mul(1 << doublings);
            wait.min(HELD_LONGEST)
        } else {
            // Several modules that wait for one Lease must not come back at the same moment.
            HELD_AGAIN + self.jitter(key, attempts)
        };
        let told = self.hold(key, reason, detail, now.mono + wait, now, out);
        // What only a person can free is told as such, once.
        if let Some(event) = told.filter(|_| wedged)
            && let Some(incident) = self.incidents.get_mut(key)
            && !std::mem::replace(&mut incident.escalated, true)
        {
            out.push(Output::Emit(escalation(event)));
        }
    }

    /// Up to four seconds, another for each process, Service and attempt.
    fn jitter(&self, key: &ServiceKey, attempt: u32) -> Duration {
        let mut hash = DefaultHasher::new();
        (&self.ids.prefix, key, attempt).hash(&mut hash);
        Duration::from_millis(hash.finish() % 4000)
    }

    fn ended(
        &mut self,
        key: &ServiceKey,
        active: &super::Active,
        outcome: HealOutcome,
        detail: Option<String>,
        now: Now,
        out: &mut Vec<Output>,
    ) {
        let Some(incident) = self.incidents.get_mut(key) else {
            return;
        };
        let text = match &detail {
            Some(detail) => format!("{}: {detail}", outcome.as_str()),
            None => outcome.as_str().to_owned(),
        };
        incident.story.add(now.wall, What::Outcome, text);
        incident.outcome = Some(outcome);
        incident.held = None;
        incident.held_on_the_way = false;
        let incident = incident.clone();
        keep(&incident, now, outcome.is_success(), out);
        let seconds = now.mono.saturating_sub(incident.opened.mono).as_secs_f64();
        let action = active.ladder.last_action();
        if incident.resumed && !active.ladder.wrote() {
            out.push(Output::Persist(Record::Intent(None)));
        }
        if active.ladder.wrote() {
            let ended = Ended {
                service: key.clone(),
                at: now.wall,
                action,
                outcome,
                seconds,
            };
            self.ledger.end(ended.clone());
            out.push(Output::Persist(Record::Ended(ended)));
            if outcome.is_success() {
                self.heals.succeeded += 1;
            } else {
                self.heals.failed += 1;
            }
            self.heals.last = Some(LastHeal {
                service: key.clone(),
                action,
                outcome,
                at: now.wall,
                seconds,
            });
        }
        let event = heal_event(&incident, active, outcome, detail.as_deref(), seconds, now);
        out.push(Output::Emit(event.clone()));
        if outcome.is_success() {
            self.incidents.remove(key);
            // The watch may lag behind the fresh reads; if it still disagrees, it is a new
            // incident with a grace of its own.
            self.dirty.insert(key.clone());
            self.judge_dirty(now, out);
            return;
        }
        if needs_a_person(outcome, incident.attempts) && !incident.escalated {
            out.push(Output::Emit(escalation(event)));
        }
        if let Some(incident) = self.incidents.get_mut(key) {
            incident.escalated |= needs_a_person(outcome, incident.attempts);
            incident.resumed = false;
            incident.wedged = false;
            incident.not_before = now.mono + self.policy.pace.cool_down;
        }
    }
}

fn escalation(event: Event) -> Event {
    Event {
        kind: EventType::Escalated,
        severity: Severity::Critical,
        message: format!("A person is needed: {}", event.message),
        ..event
    }
}

/// A conflict or an API that did not answer is tried again first; what was done in vain, or is not
/// allowed, is not.
fn needs_a_person(outcome: HealOutcome, attempts: u32) -> bool {
    match outcome {
        HealOutcome::StillStale
        | HealOutcome::NotRecreated
        | HealOutcome::NotVerified
        | HealOutcome::Forbidden => true,
        HealOutcome::Conflict | HealOutcome::Failed => attempts >= 3,
        HealOutcome::Healed | HealOutcome::HealedByItself => false,
    }
}

fn heal_event(
    incident: &Incident,
    active: &super::Active,
    outcome: HealOutcome,
    detail: Option<&str>,
    seconds: f64,
    now: Now,
) -> Event {
    let key = &incident.service;
    let first = &active.begun_for;
    let action = active.ladder.last_action();
    let message = match (outcome, detail) {
        (HealOutcome::Healed, _) => {
            format!(
                "{key} is right again: {} after {seconds:.1} s",
                action.as_str()
            )
        }
        (HealOutcome::HealedByItself, None) => {
            format!("{key} came right by itself before anything was written")
        }
        (outcome, Some(detail)) => format!("{key}: {}: {detail}", outcome.as_str()),
        (outcome, None) => format!("{key}: {}", outcome.as_str()),
    };
    let mut evidence = vec![
        ("finding".to_owned(), first.message.clone()),
        ("story".to_owned(), active.story.join("; ")),
    ];
    if !incident.signals.is_empty() {
        evidence.push(("signals".to_owned(), incident.signals.join(" ")));
    }
    Event {
        kind: EventType::Heal,
        at: now.wall,
        severity: if outcome.is_success() {
            Severity::Info
        } else {
            first.severity
        },
        message,
        service: Some(key.clone()),
        slice: first.slice.clone(),
        finding: Some(first.kind),
        evidence,
        heal: Some(HealEvent {
            action,
            outcome: Some(outcome),
            reason: detail.map(|d| Reason::Detail(d.to_owned())),
            attempt: incident.attempts,
            seconds,
        }),
        incident: Some(incident.id.clone()),
    }
}
