//! The mass guard. When much is stale at once, the likeliest cause is that the slice controller
//! does not work, and then every write makes it worse: the canary decides.

use std::time::Duration;

use super::Engine;
use crate::event::{Act, ActionId, CanaryAnswer, Now, Outcome, Output};
use crate::heal::incident::Incident;
use crate::heal::policy::Mode;
use crate::judge::{self, Finding, FindingKind, Remedy, RemedyAction, Severity};

/// How long an answer counts.
const ANSWER_COUNTS: Duration = Duration::from_secs(60);
/// How long after an answer that is no proof the canary is asked again.
const ASK_AGAIN: Duration = Duration::from_secs(30);

/// What is known of the slice controller while the guard is up.
#[derive(Debug, Default)]
pub(super) struct Guard {
    pending: Option<ActionId>,
    last: Option<(Duration, CanaryAnswer)>,
    tripped: bool,
    /// The one finding that takes the place of all the others.
    down: Option<Finding>,
}

impl Guard {
    pub(super) fn is_pending(&self, id: ActionId) -> bool {
        self.pending == Some(id)
    }

    pub(super) fn next_due(&self) -> Option<Duration> {
        let (at, answer) = self.last.as_ref()?;
        let again = if *answer == CanaryAnswer::Answered {
            ANSWER_COUNTS
        } else {
            ASK_AGAIN
        };
        (self.tripped && self.pending.is_none()).then_some(*at + again)
    }

    pub(super) fn finding(&self) -> Option<Finding> {
        self.down.clone()
    }
}

impl Engine {
    /// Whether so much is stale that deletes are out of the question. What may still be a rollout
    /// does not count: asking the canary is a write as well.
    pub(super) fn guard_tripped(&self, now: Now) -> bool {
        judge::is_mass_drift(self.stale_for_long(now), self.world.counts().services)
    }

    fn stale_for_long(&self, now: Now) -> usize {
        let outlived = |i: &&Incident| {
            let grace = &self.policy.grace;
            now.mono >= i.grace_ends(grace, self.under_signal(&i.service, now))
        };
        self.incidents.values().filter(outlived).count()
    }

    /// Asks the canary while the guard is up and its last answer is old.
    pub(super) fn guard(&mut self, now: Now, out: &mut Vec<Output>) {
        let tripped = self.guard_tripped(now);
        if tripped != self.canary.tripped {
            self.canary.tripped = tripped;
            self.canary.last = None;
        }
        if !tripped {
            self.canary.down = None;
            return;
        }
        // Asking is a write: `observe`, a hold and a closed window make none.
        if self.policy.mode == Mode::Heal && self.policy.closed.is_none() {
            self.ask_canary(now, out);
        }
    }

    /// Asks the canary unless its last answer still counts.
    pub(super) fn ask_canary(&mut self, now: Now, out: &mut Vec<Output>) {
        let due = self.canary.next_due().is_none_or(|at| now.mono >= at);
        if due && self.canary.pending.is_none() && self.policy.canary && self.links.synced() {
            self.canary.pending = Some(self.act(Act::Canary, out));
        }
    }

    pub(super) fn canary_done(&mut self, outcome: Outcome, now: Now, _out: &mut Vec<Output>) {
        self.canary.pending = None;
        let answer = match outcome {
            Outcome::Canary(answer) => answer,
            Outcome::Forbidden(why) => CanaryAnswer::Absent(why),
            _ => CanaryAnswer::Unanswered,
        };
        self.canary.down = (answer == CanaryAnswer::Unanswered && self.canary.tripped)
            .then(|| controller_down(self.stale_for_long(now)));
        self.canary.last = Some((now.mono, answer));
    }

    /// Why the guard holds everything back, if it does.
    pub(super) fn guard_holds(&self, now: Now) -> Option<String> {
        if !self.guard_tripped(now) || !self.policy.canary {
            return None;
        }
        let stale = self.stale_for_long(now);
        match &self.canary.last {
            Some((at, CanaryAnswer::Answered)) if now.mono <= *at + ANSWER_COUNTS => None,
            // Nothing to ask: refreshes hurt nobody, and the ladder is cut down to them.
            Some((_, CanaryAnswer::Absent(_))) => None,
            Some((_, CanaryAnswer::Unanswered)) => Some(format!(
                "{stale} Services are stale at once and the slice controller does not answer"
            )),
            _ => Some(format!(
                "{stale} Services are stale at once; the slice controller is being asked"
            )),
        }
    }
}

fn controller_down(stale: usize) -> Finding {
    Finding {
        kind: FindingKind::ControllerDown,
        severity: Severity::Critical,
        namespace: None,
        service: None,
        slice: None,
        pod: None,
        addresses: Vec::new(),
        message: format!(
            "The slice controller does not work: {stale} Services are stale at once and the canary \
             was not answered. New pods get no traffic until kube-controller-manager (in k3s: k3s \
             itself) works again; restart it"
        ),
        evidence: crate::judge::Evidence {
            expected: serde_json::json!({"canary": "answered within 5 s"}),
            actual: serde_json::json!({"canary": "unanswered", "staleServices": stale}),
        },
        remedy: Remedy {
            action: RemedyAction::None,
            reason: "nobody would write the slices anew".to_owned(),
            hold: None,
        },
    }
}
