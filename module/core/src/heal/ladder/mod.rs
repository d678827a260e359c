//! One heal of one Service, as a state machine: lease, confirm, refresh, look again, diagnose, delete,
//! bring back, verify, release.
//!
//! The ladder never acts. It is told what happened ([`Happened`]), may look at the world, and says
//! what comes next ([`Next`]). Exactly one action is under way at a time. Whatever happens, a slice
//! that it deleted is refreshed for until a new one is there.

mod diagnosed;
mod done;
mod rung;
mod wait;

use std::time::Duration;

use super::gate::HoldReason;
use super::judged::Judged;
use super::policy::{Pace, Policy};
use super::record::Record;
use crate::event::{Act, HealOutcome, Now, Outcome};
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
    Diagnose,
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
    diagnosed: bool,
    diagnose_first: bool,
    /// Why the slice controller seems not to run, if it does.
    no_leader: Option<String>,
    /// What the diagnosis found beside its verdict.
    notes: Vec<String>,
    wrote: bool,
    /// Whether it was begun for more than a legacy Endpoints object.
    for_slices: bool,
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
            diagnosed: false,
            diagnose_first: false,
            no_leader: None,
            notes: Vec::new(),
            wrote: false,
            for_slices: false,
            last_action: RemedyAction::None,
            lease_held: false,
        }
    }

    /// Finds out before the first write whether the controller is still wedged on this Service.
    #[must_use]
    pub fn diagnosing_first(mut self, wedged: bool) -> Self {
        self.diagnose_first = wedged;
        self
    }

    /// Whose heal.
    pub fn service(&self) -> &ServiceKey {
        &self.service
    }

    /// The incident's id.
    pub fn incident(&self) -> &str {
        &self.incident
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

    fn start(&mut self, ctx: &Ctx<'_>, next: &mut Next) {
        if ctx.policy.lease {
            self.go(Phase::Lease, Act::TakeLease, next);
        } else {
            self.read(Phase::Confirm, next);
        }
    }
}
