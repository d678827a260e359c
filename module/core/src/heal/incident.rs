//! A Service that is stale and can be healed, from the first sight to the proof.

use std::time::Duration;

use super::gate::HoldReason;
use super::policy::Grace;
use super::story::{IncidentRecord, Story, What};
use crate::event::{HealOutcome, Now};
use crate::judge::{Finding, RemedyAction};
use crate::model::ServiceKey;
use crate::signal::Signal;

/// One incident. There is at most one per Service.
#[derive(Clone, Debug)]
pub struct Incident {
    /// Unique across restarts; it is in every event of this incident.
    pub id: String,
    /// Whose.
    pub service: ServiceKey,
    /// When it was first seen.
    pub opened: Now,
    /// Since when nothing changed that the judgement depends on (monotonic).
    pub since: Duration,
    /// What was seen since then, as a number.
    pub fingerprint: u64,
    /// How often it was judged with this result since then.
    pub judgements: u32,
    /// The findings that can be healed, worst first.
    pub findings: Vec<Finding>,
    /// How many heals were begun.
    pub attempts: u32,
    /// Not before this moment (monotonic).
    pub not_before: Duration,
    /// Why nothing is done at the moment.
    pub held: Option<(HoldReason, String)>,
    /// The reason that was last told, so that each is told once.
    pub told: Option<HoldReason>,
    /// Whether `observe` has already counted what it would have done.
    pub shadowed: bool,
    /// Whether a person was already called.
    pub escalated: bool,
    /// The controller was found wedged on this Service: no more writes before it is known to be free.
    pub wedged: bool,
    /// Rules that matched while it was open.
    pub signals: Vec<String>,
    /// The last hold came on the way of a heal: it stands until a heal ends otherwise.
    pub held_on_the_way: bool,
    /// What the last heal was begun for; a delete changes what is wrong meanwhile.
    pub begun_for: Option<Finding>,
    /// The last step taken.
    pub action: RemedyAction,
    /// How the last heal ended, if one did.
    pub outcome: Option<HealOutcome>,
    /// What happened so far.
    pub story: Story,
    /// A heal of an earlier process was cut off here: no grace, its deleted slice may be missing.
    pub resumed: bool,
}

impl Incident {
    /// A new incident.
    pub fn open(
        id: String,
        service: ServiceKey,
        findings: Vec<Finding>,
        fp: u64,
        now: Now,
    ) -> Self {
        let mut story = Story::default();
        if let Some(first) = findings.first() {
            story.add(now.wall, What::Finding, first.message.as_str());
        }
        Self {
            held_on_the_way: false,
            begun_for: None,
            action: RemedyAction::None,
            outcome: None,
            story,
            id,
            service,
            opened: now,
            since: now.mono,
            fingerprint: fp,
            judgements: 1,
            findings,
            attempts: 0,
            not_before: Duration::ZERO,
            held: None,
            told: None,
            shadowed: false,
            escalated: false,
            wedged: false,
            signals: Vec::new(),
            resumed: false,
        }
    }

    /// Takes up another judgement; the clock of the grace starts anew if anything it depends on
    /// has changed, because a rollout in motion is not staleness.
    pub fn judged_again(&mut self, findings: Vec<Finding>, fingerprint: u64, now: Now) {
        if fingerprint == self.fingerprint {
            self.judgements = self.judgements.saturating_add(1);
        } else {
            self.fingerprint = fingerprint;
            self.since = now.mono;
            self.judgements = 1;
        }
        let message = |all: &[Finding]| all.first().map(|f| f.message.clone());
        if let Some(text) =
            message(&findings).filter(|_| message(&self.findings) != message(&findings))
        {
            self.story.add(now.wall, What::Finding, text);
        }
        self.findings = findings;
    }

    /// A journal rule matched.
    pub fn signalled(&mut self, signal: &Signal) {
        if self.signals.len() < 8 && !self.signals.contains(&signal.rule) {
            self.signals.push(signal.rule.clone());
            let text = format!("{}: {}", signal.rule, signal.message);
            self.story.add(signal.at, What::Signal, text);
        }
    }

    /// As it is kept and shown; `closed` says that it is over.
    pub fn record(&self, now: Now, closed: bool) -> Option<IncidentRecord> {
        let first = self.begun_for.as_ref().or(self.findings.first())?;
        Some(IncidentRecord {
            id: self.id.clone(),
            service: self.service.clone(),
            slice: first.slice.clone(),
            kind: first.kind,
            severity: first.severity,
            message: first.message.clone(),
            opened: self.opened.wall,
            closed: closed.then_some(now.wall),
            attempts: self.attempts,
            action: self.action,
            outcome: self.outcome,
            held: self.held.as_ref().filter(|_| !closed).map(|(r, _)| *r),
            seconds: now.mono.saturating_sub(self.opened.mono).as_secs_f64(),
            story: self.story.clone(),
        })
    }

    /// When a refresh may be made (monotonic).
    pub fn refresh_due(&self, grace: &Grace, under_signal: bool) -> Duration {
        self.grace_ends(grace, under_signal).max(self.not_before)
    }

    /// From when on this is staleness and no rollout (monotonic).
    pub fn grace_ends(&self, grace: &Grace, under_signal: bool) -> Duration {
        let wait = if self.resumed {
            Duration::ZERO
        } else if under_signal {
            grace.refresh_on_signal.min(grace.refresh)
        } else {
            grace.refresh
        };
        self.since + wait
    }

    /// How long the staleness must have stood before a delete.
    pub fn delete_grace(grace: &Grace, under_signal: bool) -> Duration {
        if under_signal {
            grace.delete_on_signal.min(grace.delete)
        } else {
            grace.delete
        }
    }
}
