//! What time and the watches mean for the heal while no action is under way.

use std::time::Duration;

use super::{Ctx, End, Ladder, Next, Phase};
use crate::event::HealOutcome;

impl Ladder {
    pub(super) fn waited(&mut self, phase: Phase, clean: bool, ctx: &Ctx<'_>, next: &mut Next) {
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

    pub(super) fn waited_quietly(&mut self, ctx: &Ctx<'_>, next: &mut Next) {
        let phase = std::mem::replace(&mut self.phase, Phase::Over);
        self.waited(phase, false, ctx, next);
    }

    pub(super) fn is_there(&self, uid: &str, ctx: &Ctx<'_>) -> bool {
        ctx.world
            .view(&self.service)
            .slices()
            .any(|s| &*s.meta.uid == uid)
    }

    /// Refreshes until the Service has what it should have, at the times of the policy.
    pub(super) fn recreate(&mut self, i: usize, since: Duration, ctx: &Ctx<'_>, next: &mut Next) {
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
}
