//! Which rung comes next, given a fresh judgement: pure, and the only place that chooses.

use std::time::Duration;

use super::explain::explain;
use super::gate::{self, HoldReason};
use super::judged::Judged;
use super::ladder::Ctx;
use super::policy::Step;
use crate::judge::{Finding, FindingKind, RemedyAction};

/// What the heal has done so far.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Refreshes done.
    pub refreshes: usize,
    /// Deletes still allowed in this heal.
    pub deletes_left: u32,
    /// The one step that a person asked for.
    pub manual: Option<RemedyAction>,
    /// Whether the slice controller has just answered the canary.
    pub canary_ok: bool,
    /// Whether it is known why refreshes do not help, or that nothing speaks against the next rung.
    pub diagnosed: bool,
    /// An earlier heal found the controller wedged on this Service: nothing is written before that
    /// is known to be over.
    pub diagnose_first: bool,
}

/// The next rung.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Patch the Service's annotation.
    Refresh {
        /// The Service's uid.
        uid: String,
    },
    /// Refreshes did not help, or did not the last time: find out why before anything else.
    Diagnose,
    /// A delete would be next, and the staleness is too young for it.
    WaitForDelete {
        /// Until this moment of the monotonic clock.
        until: Duration,
    },
    /// A delete would be next; the slice controller must prove that it works.
    AskCanary,
    /// Delete this slice, in this version.
    Delete {
        /// Its name.
        slice: String,
        /// Its uid.
        uid: String,
        /// Its resourceVersion.
        resource_version: String,
        /// The Service's uid, for the refreshes that follow.
        service_uid: String,
    },
    /// Something forbids the next rung.
    Hold(HoldReason, String),
    /// No rung is left.
    Exhausted(String),
}

/// Kinds whose slice may be deleted, after appendix C of the field's facts: the slice itself says
/// something that is not so. Everything else is only ever refreshed.
pub fn may_delete_for(kind: FindingKind, delete_leftover: bool) -> bool {
    match kind {
        FindingKind::GhostEndpoint
        | FindingKind::WrongAddress
        | FindingKind::TerminalPod
        | FindingKind::DuplicateEndpoint
        | FindingKind::OrphanSlice => true,
        FindingKind::LeftoverSlice => delete_leftover,
        _ => false,
    }
}

/// Chooses the next rung.
pub fn next_step(judged: &Judged, progress: &Progress, ctx: &Ctx<'_>) -> Plan {
    let policy = ctx.policy;
    let wants = |step: Step| match progress.manual {
        None => policy.ladder.contains(&step),
        Some(RemedyAction::RefreshService) => step == Step::RefreshService,
        Some(RemedyAction::DeleteSlice) => step == Step::DeleteSlice,
        Some(RemedyAction::None) => false,
    };
    let Some(service_uid) = judged.service_uid() else {
        return Plan::Exhausted(
            "the Service is gone; its slices are the garbage collector's".to_owned(),
        );
    };
    if progress.diagnose_first && !progress.diagnosed {
        return Plan::Diagnose;
    }
    let rungs = policy.pace.look_again.len();
    if wants(Step::RefreshService) && progress.refreshes < rungs {
        return match gate::refresh(&judged.gate_input(policy, None)) {
            Ok(()) => Plan::Refresh { uid: service_uid },
            Err(reason) => Plan::Hold(reason, held_text(reason)),
        };
    }
    if !progress.diagnosed {
        return Plan::Diagnose;
    }
    if !wants(Step::DeleteSlice) {
        return Plan::Exhausted(still_stale(
            judged,
            progress,
            "the ladder has no further step",
        ));
    }
    plan_delete(judged, progress, ctx, service_uid)
}

fn plan_delete(judged: &Judged, progress: &Progress, ctx: &Ctx<'_>, service_uid: String) -> Plan {
    let policy = ctx.policy;
    let mut slices: Vec<&str> = judged
        .actionable()
        .filter(|f| may_delete_for(f.kind, policy.delete_leftover))
        .filter_map(|f| f.slice.as_deref())
        .collect();
    slices.sort_unstable();
    slices.dedup();
    if slices.is_empty() {
        let why = "a delete would not help: the controller leaves something out rather than keeping \
                   something old";
        return Plan::Exhausted(still_stale(judged, progress, why));
    }
    if progress.deletes_left == 0 {
        return Plan::Exhausted(still_stale(
            judged,
            progress,
            "deleting again would not help",
        ));
    }
    let mut first_hold = None;
    for name in slices {
        let (uid, resource_version) = match judged.slice_version(name) {
            Some(v) => v,
            None => continue,
        };
        if let Err(reason) = gate::delete(&judged.gate_input(policy, Some(name))) {
            first_hold.get_or_insert(Plan::Hold(reason, held_text(reason)));
            continue;
        }
        let b = judged.balance(name);
        let max = policy.budgets.max_lost_endpoints;
        if b.correct_ready > b.stale_routed || b.correct_ready > max {
            first_hold.get_or_insert(Plan::Hold(
                HoldReason::LostEndpoints,
                format!(
                    "deleting {name} would take away {} right endpoints for {} stale ones (at most \
                     as many, and at most {max})",
                    b.correct_ready, b.stale_routed
                ),
            ));
            continue;
        }
        let until = ctx.stale_since + ctx.delete_grace;
        if progress.manual.is_none() && ctx.now.mono < until {
            return Plan::WaitForDelete { until };
        }
        if policy.canary && !progress.canary_ok {
            return Plan::AskCanary;
        }
        return Plan::Delete {
            slice: name.to_owned(),
            uid,
            resource_version,
            service_uid,
        };
    }
    first_hold.unwrap_or_else(|| {
        Plan::Exhausted(still_stale(
            judged,
            progress,
            "the stale slice is not there any more",
        ))
    })
}

fn still_stale(judged: &Judged, progress: &Progress, why: &str) -> String {
    let worst = judged
        .actionable()
        .next()
        .map_or("", |f: &Finding| f.message.as_str());
    format!("after {} refreshes: {worst} ({why})", progress.refreshes)
}

fn held_text(reason: HoldReason) -> String {
    explain(reason).to_owned()
}
