//! What an action that has ended means for the heal.

use super::{Ctx, End, Ladder, MAX_LOOKS, Next, Phase};
use crate::event::{HealOutcome, LeaseAnswer, Outcome};
use crate::heal::gate::HoldReason;
use crate::heal::judged::Judged;

impl Ladder {
    pub(super) fn done(
        &mut self,
        phase: Phase,
        outcome: Outcome,
        judged: Option<Box<Judged>>,
        ctx: &Ctx<'_>,
        next: &mut Next,
    ) {
        match (phase, outcome) {
            (Phase::Lease, Outcome::Lease(LeaseAnswer::Taken)) => {
                self.lease_held = true;
                self.read(Phase::Confirm, next);
            }
            (Phase::Lease, Outcome::Lease(LeaseAnswer::HeldBy(who))) => {
                let text = format!("another slice-healer ({who}) is healing in this cluster");
                self.finish(End::Held(HoldReason::Lease, text), next);
            }
            (Phase::Lease, Outcome::Lease(LeaseAnswer::Absent(what))) => {
                // A cluster without our namespace has no second healer that was set up by the book.
                next.story.push(format!("no Lease is used: {what}"));
                self.read(Phase::Confirm, next);
            }
            (Phase::LeaseAgain { phase, act }, Outcome::Lease(LeaseAnswer::Taken)) => {
                self.go(*phase, act, next);
            }
            (Phase::LeaseAgain { phase, act }, outcome) => {
                if matches!(*phase, Phase::Recreating { .. }) {
                    // A refresh hurts nobody, and the slice that we deleted must come back.
                    return self.go(*phase, act, next);
                }
                self.lease_held = false;
                let text = format!("the Lease was lost before a write: {outcome:?}");
                self.finish(End::Held(HoldReason::Lease, text), next);
            }
            (Phase::Confirm | Phase::Reread | Phase::RereadAfterDelete, Outcome::Snapshot(_)) => {
                self.decide(judged, ctx, next);
            }
            (Phase::Refreshing { n }, Outcome::Written) => {
                let wait = ctx
                    .policy
                    .pace
                    .look_again
                    .get(n)
                    .copied()
                    .unwrap_or_default();
                self.phase = Phase::LookAgain {
                    n,
                    until: ctx.now.mono + wait,
                };
            }
            (Phase::Refreshing { .. } | Phase::Deleting { .. }, Outcome::Conflict(why)) => {
                let text = format!("what was judged is not what is there any more: {why}");
                self.finish(End::Outcome(HealOutcome::Conflict, Some(text)), next);
            }
            (Phase::Refreshing { .. }, Outcome::Gone) => {
                let text = "the Service is gone".to_owned();
                self.finish(End::Outcome(HealOutcome::HealedByItself, Some(text)), next);
            }
            (Phase::Diagnose, Outcome::Clues(clues)) => self.diagnosed(&clues, ctx, next),
            (Phase::Canary, Outcome::Canary(answer)) => self.canary_answered(answer, next),
            // 404 is a delete that somebody else did: the slice must come back all the same.
            (Phase::Deleting { uid }, Outcome::Written | Outcome::Gone) => {
                let until = ctx.now.mono + ctx.policy.pace.action_deadline;
                self.phase = Phase::AwaitGone { uid, until };
                self.waited_quietly(ctx, next);
            }
            // Nobody knows whether this delete happened: go on as if it had.
            (Phase::Deleting { uid }, Outcome::Failed(why)) => {
                next.story
                    .push(format!("the delete may or may not have happened: {why}"));
                let until = ctx.now.mono + ctx.policy.pace.action_deadline;
                self.phase = Phase::AwaitGone { uid, until };
            }
            (Phase::Recreating { i, since }, outcome) => {
                if let Outcome::Forbidden(why) | Outcome::Failed(why) = outcome {
                    next.story
                        .push(format!("refresh {} after the delete failed: {why}", i + 1));
                }
                self.phase = Phase::RecreateWait { i: i + 1, since };
                self.waited_quietly(ctx, next);
            }
            (Phase::Verify, Outcome::Snapshot(_)) => match judged {
                Some(j) if self.is_done(&j) => {
                    let until = ctx.now.mono + ctx.policy.pace.verify_gap;
                    self.phase = Phase::VerifyGap {
                        until,
                        fingerprint: j.fingerprint(),
                    };
                }
                judged => self.decide(judged, ctx, next),
            },
            (Phase::VerifyAgain { fingerprint }, Outcome::Snapshot(_)) => {
                self.verified(judged, fingerprint, ctx, next);
            }
            (Phase::Release { end }, _) => self.over(end, next),
            (_, Outcome::Forbidden(why)) => {
                self.finish(End::Outcome(HealOutcome::Forbidden, Some(why)), next);
            }
            (_, Outcome::Failed(why) | Outcome::Conflict(why)) => {
                self.finish(End::Outcome(HealOutcome::Failed, Some(why)), next);
            }
            (phase, outcome) => {
                let text = format!("{outcome:?} is no answer in {phase:?}");
                self.finish(End::Outcome(HealOutcome::Failed, Some(text)), next);
            }
        }
    }

    pub(super) fn verified(
        &mut self,
        judged: Option<Box<Judged>>,
        fingerprint: u64,
        ctx: &Ctx<'_>,
        next: &mut Next,
    ) {
        match judged {
            Some(j) if self.is_done(&j) && j.fingerprint() == fingerprint => {
                self.finish(End::Outcome(HealOutcome::Healed, None), next);
            }
            // Right, but in motion: look once more from here.
            Some(j) if self.is_done(&j) && self.looks < MAX_LOOKS => {
                self.looks += 1;
                let until = ctx.now.mono + ctx.policy.pace.verify_gap;
                self.phase = Phase::VerifyGap {
                    until,
                    fingerprint: j.fingerprint(),
                };
            }
            Some(j) if self.is_done(&j) => {
                let text = "the slices look right but keep changing".to_owned();
                self.finish(End::Outcome(HealOutcome::NotVerified, Some(text)), next);
            }
            _ => {
                let text = "it was right, and is stale again".to_owned();
                self.finish(End::Outcome(HealOutcome::NotVerified, Some(text)), next);
            }
        }
    }
}
