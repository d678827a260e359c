//! One heal of one Service, as a state machine: lease, confirm, refresh, look again, delete, bring
//! back, verify, release.
//!
//! The ladder never acts. It is told what happened ([`Happened`]), may look at the world, and says
//! what comes next ([`Next`]). Exactly one action is under way at a time. Whatever happens, a slice
//! that it deleted is refreshed for until a new one is there.

use std::time::Duration;

use super::gate::HoldReason;
use super::judged::Judged;
use super::plan::{self, Plan};
use super::policy::{Pace, Policy, Step};
use super::record::{DeletedSlice, Intent, Record};
use crate::event::{Act, CanaryAnswer, HealOutcome, LeaseAnswer, Now, Outcome};
use crate::judge::RemedyAction;
use crate::model::{ServiceKey, World};

/// What the ladder is told.
#[derive(Debug)]
pub enum Happened {
    /// The action under way ended. A [`Outcome::Snapshot`] comes judged.
    Done(Outcome, Option<Box<Judged>>),
    /// The watched objects of this Service changed; says whether they look right now.
    Changed {
        /// Nothing that can be healed is left, as far as the watch knows.
        clean: bool,
    },
    /// Time has passed.
    Tick,
}

/// What comes next.
#[derive(Debug, Default)]
pub struct Next {
    /// To be on disk before the action.
    pub records: Vec<Record>,
    /// To be started; at most one is under way.
    pub act: Option<Act>,
    /// The heal is over.
    pub end: Option<End>,
    /// A step worth a line in the incident's story.
    pub story: Vec<String>,
}

/// How the heal ended.
#[derive(Clone, Debug, PartialEq)]
pub enum End {
    /// With an outcome.
    Outcome(HealOutcome, Option<String>),
    /// It was held back on the way.
    Held(HoldReason, String),
}

/// The moment and the surroundings of a step.
#[derive(Clone, Copy, Debug)]
pub struct Ctx<'a> {
    /// Now.
    pub now: Now,
    /// The settings.
    pub policy: &'a Policy,
    /// What the watches know.
    pub world: &'a World,
    /// Whether the watches see every slice and endpoint that this Service should have.
    pub whole: bool,
    /// Since when the staleness has been seen, for the delete's grace.
    pub stale_since: Duration,
    /// The grace before a delete, as signals have shortened it.
    pub delete_grace: Duration,
}

#[derive(Debug)]
enum Phase {
    Start,
    Lease,
    /// The Lease is renewed right before a write; then comes the write.
    LeaseAgain {
        phase: Box<Phase>,
        act: Act,
    },
    Confirm,
    Refreshing {
        n: usize,
    },
    LookAgain {
        n: usize,
        until: Duration,
    },
    Reread,
    GraceForDelete {
        until: Duration,
    },
    Canary,
    Deleting {
        uid: String,
    },
    AwaitGone {
        uid: String,
        until: Duration,
    },
    Settle {
        until: Duration,
    },
    Recreating {
        i: usize,
        since: Duration,
    },
    RecreateWait {
        i: usize,
        since: Duration,
    },
    RereadAfterDelete,
    Verify,
    VerifyGap {
        until: Duration,
        fingerprint: u64,
    },
    VerifyAgain {
        fingerprint: u64,
    },
    Release {
        end: End,
    },
    Over,
}

/// A slice is deleted at most this often in one heal; more means that deleting does not help.
const MAX_DELETES: u32 = 5;
/// How often a Service that is right but keeps changing is looked at again.
const MAX_LOOKS: u32 = 5;

/// One heal.
#[derive(Debug)]
pub struct Ladder {
    service: ServiceKey,
    incident: String,
    manual: Option<Option<RemedyAction>>,
    phase: Phase,
    uid: String,
    refreshes: usize,
    deletes: u32,
    looks: u32,
    canary_ok: bool,
    wrote: bool,
    last_action: RemedyAction,
    lease_held: bool,
}

impl Ladder {
    /// A heal of this Service. `manual` is the step that a person asked for, if one did.
    pub fn new(
        service: ServiceKey,
        incident: String,
        manual: Option<Option<RemedyAction>>,
    ) -> Self {
        Self {
            service,
            incident,
            manual,
            phase: Phase::Start,
            uid: String::new(),
            refreshes: 0,
            deletes: 0,
            looks: 0,
            canary_ok: false,
            wrote: false,
            last_action: RemedyAction::None,
            lease_held: false,
        }
    }

    /// Whose heal.
    pub fn service(&self) -> &ServiceKey {
        &self.service
    }

    /// The incident's id.
    pub fn incident(&self) -> &str {
        &self.incident
    }

    /// Whether a person asked for it.
    pub fn is_manual(&self) -> bool {
        self.manual.is_some()
    }

    /// Whether anything was written.
    pub fn wrote(&self) -> bool {
        self.wrote
    }

    /// The last step taken.
    pub fn last_action(&self) -> RemedyAction {
        self.last_action
    }

    /// Whether a slice was deleted whose successor has not been seen yet.
    pub fn owes_a_slice(&self) -> bool {
        matches!(
            self.phase,
            Phase::Deleting { .. }
                | Phase::AwaitGone { .. }
                | Phase::Settle { .. }
                | Phase::Recreating { .. }
                | Phase::RecreateWait { .. }
        )
    }

    /// When the ladder wants a [`Happened::Tick`], on the monotonic clock.
    pub fn wake_at(&self, pace: &Pace) -> Option<Duration> {
        match &self.phase {
            Phase::LookAgain { until, .. }
            | Phase::GraceForDelete { until }
            | Phase::AwaitGone { until, .. }
            | Phase::Settle { until }
            | Phase::VerifyGap { until, .. } => Some(*until),
            Phase::RecreateWait { i, since } => Some(
                *since
                    + pace
                        .recreate
                        .get(*i)
                        .copied()
                        .unwrap_or(pace.recreate_deadline),
            ),
            _ => None,
        }
    }

    /// One step.
    pub fn step(&mut self, happened: Happened, ctx: &Ctx<'_>) -> Next {
        let mut next = Next::default();
        match std::mem::replace(&mut self.phase, Phase::Over) {
            Phase::Start => self.start(ctx, &mut next),
            Phase::Over => {}
            phase => match happened {
                Happened::Done(outcome, judged) => {
                    self.done(phase, outcome, judged, ctx, &mut next);
                }
                Happened::Changed { clean } => self.waited(phase, clean, ctx, &mut next),
                Happened::Tick => self.waited(phase, false, ctx, &mut next),
            },
        }
        next
    }

    /// Ends the heal as soon as nothing is owed: for shutdown and for a view that is lost.
    pub fn abandon(&mut self, why: &str, next: &mut Next) {
        if self.owes_a_slice() {
            return;
        }
        self.finish(
            End::Outcome(HealOutcome::Failed, Some(why.to_owned())),
            next,
        );
    }

    fn start(&mut self, ctx: &Ctx<'_>, next: &mut Next) {
        if ctx.policy.lease {
            self.go(Phase::Lease, Act::TakeLease, next);
        } else {
            self.read(Phase::Confirm, next);
        }
    }

    fn done(
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
            (Phase::Canary, Outcome::Canary(CanaryAnswer::Answered)) => {
                next.story
                    .push("the slice controller answered the canary".to_owned());
                self.canary_ok = true;
                self.read(Phase::Reread, next);
            }
            (Phase::Canary, Outcome::Canary(answer)) => {
                let text = match answer {
                    CanaryAnswer::Absent(what) => format!(
                        "a delete needs proof that the slice controller works, and there is no \
                         canary to ask: {what}; apply config/kubernetes, or set heal.canary = false"
                    ),
                    _ => "the slice controller did not answer the canary: a deleted slice might \
                          not come back"
                        .to_owned(),
                };
                self.finish(End::Held(HoldReason::CanaryFailed, text), next);
            }
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
                Some(j) if j.is_clean() => {
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

    fn waited(&mut self, phase: Phase, clean: bool, ctx: &Ctx<'_>, next: &mut Next) {
        let now = ctx.now.mono;
        match phase {
            Phase::LookAgain { n, until } if !clean && now < until => {
                self.phase = Phase::LookAgain { n, until };
            }
            Phase::LookAgain { .. } if clean => self.read(Phase::Verify, next),
            Phase::LookAgain { .. } => self.read(Phase::Reread, next),
            Phase::GraceForDelete { until } if !clean && now < until => {
                self.phase = Phase::GraceForDelete { until };
            }
            Phase::GraceForDelete { .. } => self.read(Phase::Reread, next),
            Phase::AwaitGone { uid, until } if now < until && self.is_there(&uid, ctx) => {
                self.phase = Phase::AwaitGone { uid, until };
            }
            Phase::AwaitGone { .. } => {
                self.phase = Phase::Settle {
                    until: now + ctx.policy.pace.after_delete,
                };
            }
            Phase::Settle { until } if now < until => self.phase = Phase::Settle { until },
            Phase::Settle { .. } => self.recreate(0, now, ctx, next),
            Phase::RecreateWait { i, since } => self.recreate(i, since, ctx, next),
            Phase::VerifyGap { until, fingerprint } if now < until => {
                self.phase = Phase::VerifyGap { until, fingerprint };
            }
            Phase::VerifyGap { fingerprint, .. } => {
                self.read(Phase::VerifyAgain { fingerprint }, next);
            }
            // An action is under way: its outcome decides, not the clock.
            phase => self.phase = phase,
        }
    }

    fn is_there(&self, uid: &str, ctx: &Ctx<'_>) -> bool {
        ctx.world
            .view(&self.service)
            .slices()
            .any(|s| &*s.meta.uid == uid)
    }

    fn waited_quietly(&mut self, ctx: &Ctx<'_>, next: &mut Next) {
        let phase = std::mem::replace(&mut self.phase, Phase::Over);
        self.waited(phase, false, ctx, next);
    }

    /// After a confirming read: what is the next rung?
    fn decide(&mut self, judged: Option<Box<Judged>>, ctx: &Ctx<'_>, next: &mut Next) {
        let Some(judged) = judged else {
            let text = "the fresh reads came back without a judgement".to_owned();
            return self.finish(End::Outcome(HealOutcome::Failed, Some(text)), next);
        };
        if judged.is_clean() {
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
                self.finish(End::Outcome(HealOutcome::StillStale, Some(text)), next);
            }
        }
    }

    /// Refreshes until the Service has what it should have, at the times of the policy.
    fn recreate(&mut self, i: usize, since: Duration, ctx: &Ctx<'_>, next: &mut Next) {
        let pace = &ctx.policy.pace;
        let now = ctx.now.mono;
        if i > 0 && ctx.whole {
            next.story.push("a new slice is there".to_owned());
            return self.read(Phase::RereadAfterDelete, next);
        }
        match pace.recreate.get(i) {
            Some(at) if now >= since + *at => {
                next.story
                    .push(format!("refresh {} after the delete", i + 1));
                let act = self.refresh(ctx);
                self.write(Phase::Recreating { i, since }, act, next);
            }
            _ if now >= since + pace.recreate_deadline
                && ctx.world.view(&self.service).slices().next().is_some() =>
            {
                self.read(Phase::RereadAfterDelete, next);
            }
            _ if now >= since + pace.recreate_deadline => {
                let text = "the controller has not made a new slice; the deleted one is kept as \
                            evidence (getDeletedSlice)"
                    .to_owned();
                self.finish(End::Outcome(HealOutcome::NotRecreated, Some(text)), next);
            }
            _ => self.phase = Phase::RecreateWait { i, since },
        }
    }

    fn verified(
        &mut self,
        judged: Option<Box<Judged>>,
        fingerprint: u64,
        ctx: &Ctx<'_>,
        next: &mut Next,
    ) {
        match judged {
            Some(j) if j.is_clean() && j.fingerprint() == fingerprint => {
                self.finish(End::Outcome(HealOutcome::Healed, None), next);
            }
            // Right, but in motion: look once more from here.
            Some(j) if j.is_clean() && self.looks < MAX_LOOKS => {
                self.looks += 1;
                let until = ctx.now.mono + ctx.policy.pace.verify_gap;
                self.phase = Phase::VerifyGap {
                    until,
                    fingerprint: j.fingerprint(),
                };
            }
            Some(j) if j.is_clean() => {
                let text = "the slices look right but keep changing".to_owned();
                self.finish(End::Outcome(HealOutcome::NotVerified, Some(text)), next);
            }
            _ => {
                let text = "it was right, and is stale again".to_owned();
                self.finish(End::Outcome(HealOutcome::NotVerified, Some(text)), next);
            }
        }
    }

    fn refresh(&mut self, ctx: &Ctx<'_>) -> Act {
        self.wrote = true;
        Act::Refresh {
            service: self.service.clone(),
            uid: self.uid.clone(),
            value: format!("{} {}", ctx.now.wall, self.incident),
        }
    }

    fn record(&mut self, step: Step, slice: Option<String>, ctx: &Ctx<'_>, next: &mut Next) {
        if !self.wrote {
            next.records.push(Record::Charge(super::record::Charge {
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

    fn read(&mut self, phase: Phase, next: &mut Next) {
        let act = Act::Read {
            service: self.service.clone(),
        };
        self.go(phase, act, next);
    }

    /// Starts a write; the Lease is checked again right before it.
    fn write(&mut self, phase: Phase, act: Act, next: &mut Next) {
        if self.lease_held {
            let phase = Box::new(phase);
            self.go(Phase::LeaseAgain { phase, act }, Act::TakeLease, next);
        } else {
            self.go(phase, act, next);
        }
    }

    fn go(&mut self, phase: Phase, act: Act, next: &mut Next) {
        self.phase = phase;
        next.act = Some(act);
    }

    fn finish(&mut self, end: End, next: &mut Next) {
        if self.lease_held {
            self.lease_held = false;
            self.go(Phase::Release { end }, Act::ReleaseLease, next);
        } else {
            self.over(end, next);
        }
    }

    fn over(&mut self, end: End, next: &mut Next) {
        self.phase = Phase::Over;
        if self.wrote {
            next.records.push(Record::Intent(None));
        }
        next.end = Some(end);
    }
}
