//! What the watches say: the world, the state of each watch, and what is to be judged again.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Engine;
use crate::event::{ClusterInput, Link, Now, Output};
use crate::judge::{self, ControllerSign, JudgeContext};
use crate::model::{Kind, Object, ObjectRef, ServiceKey, Slice};

/// Without these kinds nothing can be judged. Endpoints and Namespaces only add to it.
const NEEDED: [Kind; 4] = [Kind::Service, Kind::Pod, Kind::EndpointSlice, Kind::Node];

/// The state of all watches.
#[derive(Debug, Default)]
pub(super) struct Links {
    by_kind: BTreeMap<Kind, Link>,
    /// Whether the API was away since the last time everything was synced.
    was_away: bool,
    /// When everything was synced again after that (monotonic).
    back_at: Option<Duration>,
}

impl Links {
    pub(super) fn synced(&self) -> bool {
        NEEDED
            .iter()
            .all(|k| self.by_kind.get(k) == Some(&Link::Synced))
    }

    pub(super) fn is_synced(&self, kind: Kind) -> bool {
        self.by_kind.get(&kind) == Some(&Link::Synced)
    }

    /// The worst link and its kind, for the status.
    pub(super) fn worst(&self) -> Option<(&Kind, &Link)> {
        let rank = |l: &Link| match l {
            Link::Unreachable(_) => 3,
            Link::Forbidden(_) => 2,
            Link::Syncing => 1,
            Link::Synced => 0,
        };
        self.by_kind
            .iter()
            .filter(|(k, l)| NEEDED.contains(k) && **l != Link::Synced)
            .max_by_key(|(_, l)| rank(l))
    }

    /// Until when nothing is written because the API has only just come back.
    pub(super) fn settling_until(&self, settle: Duration) -> Option<Duration> {
        self.back_at.map(|at| at + settle)
    }

    fn set(&mut self, kind: Kind, link: Link, now: Now) {
        if NEEDED.contains(&kind) && matches!(link, Link::Unreachable(_)) {
            self.was_away = true;
        }
        self.by_kind.insert(kind, link);
        if self.was_away && self.synced() {
            self.was_away = false;
            self.back_at = Some(now.mono);
        }
    }
}

impl Engine {
    pub(super) fn cluster(&mut self, change: ClusterInput, now: Now) {
        let touched = match change {
            ClusterInput::Apply(object) => {
                self.note_churn(&object, now);
                self.world.apply(object)
            }
            ClusterInput::Deleted(object) => {
                self.note_churn_of_gone(&object, now);
                self.world.delete(&object)
            }
            ClusterInput::Reset(kind, objects) => self.world.reset(kind, objects),
            ClusterInput::Link(kind, link) => {
                let was = self.links.synced();
                self.links.set(kind, link, now);
                if !was && self.links.synced() {
                    self.dirty.extend(self.world.services());
                }
                return;
            }
            ClusterInput::Version(version) => {
                if self.server.as_ref() != Some(&version) {
                    self.server = Some(version);
                    self.dirty.extend(self.world.services());
                }
                return;
            }
            ClusterInput::LocalNode(node) => {
                self.node_known = true;
                if self.node != node {
                    self.node = node;
                    self.dirty.extend(self.world.services());
                }
                return;
            }
        };
        self.dirty.extend(touched);
    }

    /// Counts what the watch tells. A list that comes anew says nothing of how often it changed.
    fn note_churn(&mut self, object: &Object, now: Now) {
        if let Object::Slice(slice) = object
            && !self.world.is_same(object)
            && let Some(service) = service_of(slice)
        {
            self.churn.note(&service, now.mono);
        }
    }

    fn note_churn_of_gone(&mut self, gone: &ObjectRef, now: Now) {
        let namespace = gone.namespace.as_deref().unwrap_or_default();
        if gone.kind == Kind::EndpointSlice
            && let Some(service) = self.world.slice(namespace, &gone.name).and_then(service_of)
        {
            self.churn.note(&service, now.mono);
        }
    }

    /// Time alone changes some judgements; and a lost event must not be lost for ever.
    pub(super) fn sweep(&mut self, now: Now) {
        let passed = now.mono.saturating_sub(self.swept);
        if passed < Duration::from_secs(1) || !self.links.synced() {
            return;
        }
        self.swept = now.mono;
        self.churn.expire(now.mono);
        let keys: Vec<ServiceKey> = self.world.services().collect();
        let share = passed.as_secs_f64() / super::FULL_SWEEP.as_secs_f64();
        let count = ((keys.len() as f64 * share).ceil() as usize).min(keys.len());
        let start = match &self.sweep_from {
            Some(from) => keys.partition_point(|k| k <= from),
            None => 0,
        };
        let picked: Vec<ServiceKey> = keys
            .iter()
            .cycle()
            .skip(start)
            .take(count)
            .cloned()
            .collect();
        self.sweep_from = picked.last().cloned();
        self.dirty.extend(picked);
    }

    pub(super) fn judge_dirty(&mut self, now: Now, out: &mut Vec<Output>) {
        if !self.links.synced() {
            return;
        }
        self.dirty.extend(self.churn.calmed(now.mono));
        let dirty = std::mem::take(&mut self.dirty);
        if dirty.is_empty() {
            return;
        }
        let ctx = self.judge_context(now);
        for key in dirty {
            let view = self.world.view(&key);
            let mut findings = Vec::new();
            if judge::is_in_scope(&view, &ctx) {
                findings = judge::judge_service(&view, &ctx);
                if self.churn.is_high(&key) {
                    findings.push(self.churn.finding(&key));
                    findings.sort_by(judge::Finding::order);
                }
            }
            let fingerprint = view.fingerprint();
            self.judged(key, findings, fingerprint, now, out);
        }
    }

    pub(super) fn judge_context(&self, now: Now) -> JudgeContext {
        JudgeContext {
            server: self.server.clone(),
            now: now.wall,
            node: self.node.clone(),
            scope: self.policy.scope.clone(),
            delete_leftover: self.policy.delete_leftover,
            load_balancers: self.policy.load_balancers,
            controller: ControllerSign::Unknown,
            mass_guard: false,
        }
    }
}

fn service_of(slice: &Slice) -> Option<ServiceKey> {
    let namespace = slice.meta.namespace.as_ref();
    Some(ServiceKey::new(namespace, slice.service_name()?))
}
