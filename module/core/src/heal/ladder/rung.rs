//! The next rung after a fresh judgement, and the bookkeeping around each write.

use super::{Ctx, End, Ladder, MAX_DELETES, Next, Phase};
use crate::event::{Act, HealOutcome};
use crate::heal::judged::Judged;
use crate::heal::plan::{self, Plan};
use crate::heal::policy::Step;
use crate::heal::record::{Charge, DeletedSlice, Intent, Record};
use crate::judge::RemedyAction;

impl Ladder {
    /// After a confirming read: what is the next rung?
    pub(super) fn decide(&mut self, judged: Option<Box<Judged>>, ctx: &Ctx<'_>, next: &mut Next) {
        let Some(judged) = judged else {
            let text = "the fresh reads came back without a judgement".to_owned();
            return self.finish(End::Outcome(HealOutcome::Failed, Some(text)), next);
        };
        if !self.wrote {
            self.for_slices = !judged.slices_are_right();
        }
        if self.is_done(&judged) {
            if self.wrote {
                let until = ctx.now.mono + ctx.policy.pace.verify_gap;
                self.phase = Phase::VerifyGap {
                    until,
                    fingerprint: judged.fingerprint(),
                };
            } else {
                self.finish(End::Outcome(HealOutcome::HealedByItself, None), next);
            }
            return;
        }
        let progress = plan::Progress {
            refreshes: self.refreshes,
            deletes_left: MAX_DELETES.saturating_sub(self.deletes),
            manual: self.manual.flatten(),
            canary_ok: self.canary_ok,
            diagnosed: self.diagnosed,
            diagnose_first: self.diagnose_first,
        };
        match plan::next_step(&judged, &progress, ctx) {
            Plan::Refresh { uid } => {
                self.uid = uid;
                let n = self.refreshes;
                self.refreshes += 1;
                self.record(Step::RefreshService, None, ctx, next);
                next.story.push(format!("refresh {}", n + 1));
                self.last_action = RemedyAction::RefreshService;
                let act = self.refresh(ctx);
                self.write(Phase::Refreshing { n }, act, next);
            }
            Plan::Diagnose => {
                self.uid = judged.service_uid().unwrap_or_default();
                let service = self.service.clone();
                self.go(Phase::Diagnose, Act::Diagnose { service }, next);
            }
            Plan::WaitForDelete { until } => self.phase = Phase::GraceForDelete { until },
            Plan::AskCanary => self.go(Phase::Canary, Act::Canary, next),
            Plan::Delete {
                slice,
                uid,
                resource_version,
                service_uid,
            } => {
                self.uid = service_uid;
                self.deletes += 1;
                self.canary_ok = false;
                next.records.push(Record::Evidence(DeletedSlice {
                    service: self.service.clone(),
                    slice: slice.clone(),
                    at: ctx.now.wall,
                    incident: self.incident.clone(),
                    object: judged.raw_slice(&slice),
                }));
                self.record(Step::DeleteSlice, Some(slice.clone()), ctx, next);
                next.story.push(format!("delete slice {slice}"));
                self.last_action = RemedyAction::DeleteSlice;
                let act = Act::Delete {
                    service: self.service.clone(),
                    slice,
                    uid: uid.clone(),
                    resource_version,
                };
                self.write(Phase::Deleting { uid }, act, next);
            }
            Plan::Hold(reason, text) => self.finish(End::Held(reason, text), next),
            Plan::Exhausted(text) => {
                let mut text = self.with_notes(text);
                if self.refreshes > 0 {
                    text.push_str(&format!(
                        "; if kube-controller-manager logs \"cache is out of date\" for {}, restart \
                         it",
                        self.service
                    ));
                }
                self.finish(End::Outcome(HealOutcome::StillStale, Some(text)), next);
            }
        }
    }

    /// What the heal was begun for is right.
    pub(super) fn is_done(&self, judged: &Judged) -> bool {
        judged.is_clean() || (self.for_slices && judged.slices_are_right())
    }

    pub(super) fn refresh(&mut self, ctx: &Ctx<'_>) -> Act {
        self.wrote = true;
        Act::Refresh {
            service: self.service.clone(),
            uid: self.uid.clone(),
            value: format!("{} {}", ctx.now.wall, self.incident),
        }
    }

    pub(super) fn record(
        &mut self,
        step: Step,
        slice: Option<String>,
        ctx: &Ctx<'_>,
        next: &mut Next,
    ) {
        if !self.wrote {
            next.records.push(Record::Charge(Charge {
                service: self.service.clone(),
                at: ctx.now.wall,
            }));
        }
        self.wrote = true;
        next.records.push(Record::Intent(Some(Intent {
            incident: self.incident.clone(),
            service: self.service.clone(),
            step,
            slice,
            at: ctx.now.wall,
        })));
    }

    pub(super) fn read(&mut self, phase: Phase, next: &mut Next) {
        let act = Act::Read {
            service: self.service.clone(),
        };
        self.go(phase, act, next);
    }

    /// Starts a write; the Lease is checked again right before it.
    pub(super) fn write(&mut self, phase: Phase, act: Act, next: &mut Next) {
        if self.lease_held {
            let phase = Box::new(phase);
            self.go(Phase::LeaseAgain { phase, act }, Act::TakeLease, next);
        } else {
            self.go(phase, act, next);
        }
    }

    pub(super) fn go(&mut self, phase: Phase, act: Act, next: &mut Next) {
        self.phase = phase;
        next.act = Some(act);
    }

    pub(super) fn finish(&mut self, end: End, next: &mut Next) {
        if self.lease_held {
            self.lease_held = false;
            self.go(Phase::Release { end }, Act::ReleaseLease, next);
        } else {
            self.over(end, next);
        }
    }

    pub(super) fn over(&mut self, end: End, next: &mut Next) {
        self.phase = Phase::Over;
        if self.wrote {
            next.records.push(Record::Intent(None));
        }
        next.end = Some(end);
    }
}
