//! What a heal of a Service would write, and why, without writing it: the same plan that the ladder
//! follows, on what the watches know.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Engine;
use crate::event::{Now, Snapshot};
use crate::heal::gate::{HoldReason, REFRESH};
use crate::heal::incident::Incident;
use crate::heal::judged::Judged;
use crate::heal::ladder::Ctx;
use crate::heal::plan::{self, Plan, Progress};
use crate::judge::RemedyAction;
use crate::model::{Pod, ServiceView};

/// What a heal would do.
#[derive(Debug)]
pub(super) struct Would {
    /// Its first step.
    pub(super) action: RemedyAction,
    /// Its writes, in order, each with its condition.
    pub(super) writes: Vec<String>,
    /// Whether it would go as far as to delete a slice.
    pub(super) deletes: bool,
    /// Of the endpoints that traffic reaches, how many are stale, and how many there are.
    pub(super) at_risk: (usize, usize),
}

impl Engine {
    /// The writes of a heal, in order, each with its condition.
    ///
    /// # Errors
    /// Why the first of them would be held back.
    pub(super) fn would_write(
        &self,
        incident: &Incident,
        manual: Option<RemedyAction>,
        now: Now,
    ) -> Result<Would, (HoldReason, String)> {
        let key = &incident.service;
        let view = self.world.view(key);
        let judged = Judged::new(key.clone(), snapshot(&view), &self.judge_context(now));
        let ctx = Ctx {
            now,
            policy: &self.policy,
            world: &self.world,
            whole: false,
            // The delete's grace is said in words.
            stale_since: Duration::ZERO,
            delete_grace: Duration::ZERO,
        };
        let mut progress = Progress {
            refreshes: 0,
            deletes_left: 1,
            manual,
            canary_ok: true,
            diagnosed: true,
            diagnose_first: false,
        };
        let at_risk = view.slices().fold((0, 0), |(stale, all), slice| {
            let b = judged.balance(&slice.meta.name);
            (
                stale + b.stale_routed,
                all + b.stale_routed + b.correct_ready,
            )
        });
        let mut deletes = false;
        let mut writes = Vec::new();
        let mut first = RemedyAction::None;
        let mut plan = plan::next_step(&judged, &progress, &ctx);
        if let Plan::Refresh { uid } = &plan {
            first = RemedyAction::RefreshService;
            writes.push(format!(
                "patch services {key} (uid {uid}): annotation {REFRESH} = \"{} {}\"",
                now.wall, incident.id
            ));
            let waits: Vec<String> = (self.policy.pace.look_again.iter())
                .map(|w| format!("{} s", w.as_secs_f64()))
                .collect();
            if let [first @ .., _] = waits.as_slice()
                && !first.is_empty()
            {
                writes.push(format!(
                    "if it is still stale after {}: the same patch again",
                    first.join(", then ")
                ));
            }
            progress.refreshes = waits.len();
            plan = plan::next_step(&judged, &progress, &ctx);
        }
        match plan {
            Plan::Delete {
                slice,
                uid,
                resource_version,
                ..
            } => {
                deletes = true;
                let grace = self.policy.grace.delete.as_secs_f64();
                let after = if first == RemedyAction::None {
                    first = RemedyAction::DeleteSlice;
                    String::new()
                } else {
                    format!("if it is still stale after that, and {grace} s old: ")
                };
                let canary = if self.policy.canary {
                    ", once nothing speaks against it and the slice controller has answered the \
                     canary"
                } else {
                    ", once nothing speaks against it"
                };
                writes.push(format!(
                    "{after}delete endpointslices {}/{slice} (uid {uid}, resourceVersion \
                     {resource_version}){canary}; then patch {REFRESH} of services {key} until a \
                     new slice is there",
                    key.namespace
                ));
            }
            Plan::Hold(reason, text) if first == RemedyAction::None => return Err((reason, text)),
            Plan::Hold(_, text) | Plan::Exhausted(text) if first != RemedyAction::None => {
                writes.push(format!("no delete after that: {text}"));
            }
            _ => {}
        }
        Ok(Would {
            action: first,
            writes,
            deletes,
            at_risk,
        })
    }
}

fn snapshot(view: &ServiceView<'_>) -> Snapshot {
    let slices: Vec<_> = view.slices().cloned().collect();
    let named = slices
        .iter()
        .flat_map(|s| &s.endpoints)
        .filter_map(|e| view.target_pod(e.pod()?));
    let pods: BTreeMap<_, &Pod> = view
        .pods()
        .into_iter()
        .chain(named)
        .map(|p| (p.meta.name.clone(), p))
        .collect();
    Snapshot {
        service: view.service().cloned(),
        namespace: view.namespace().cloned(),
        pods: pods.into_values().cloned().collect(),
        nodes: view.nodes().cloned().collect(),
        endpoints: view.endpoints().cloned(),
        slices,
        raw_slices: BTreeMap::new(),
    }
}
