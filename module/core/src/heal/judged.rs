//! A fresh judgement of one Service: what was read, and what it means.

use std::collections::BTreeMap;

use super::gate::GateInput;
use super::policy::Policy;
use crate::event::Snapshot;
use crate::judge::{self, Balance, Finding, FindingKind, JudgeContext, RemedyAction};
use crate::model::{Kind, Object, ServiceKey, ServiceType, World};

/// Fresh objects and the findings on them.
#[derive(Debug)]
pub struct Judged {
    key: ServiceKey,
    ctx: JudgeContext,
    world: World,
    findings: Vec<Finding>,
    fingerprint: u64,
    raw: BTreeMap<String, serde_json::Value>,
}

impl Judged {
    /// Judges a snapshot. It is a small world of its own: nothing of the watches' view gets in.
    pub fn new(key: ServiceKey, snapshot: Snapshot, ctx: &JudgeContext) -> Self {
        fn list<T>(items: impl IntoIterator<Item = T>, wrap: fn(T) -> Object) -> Vec<Object> {
            items.into_iter().map(wrap).collect()
        }
        let mut world = World::default();
        for (kind, objects) in [
            (Kind::Node, list(snapshot.nodes, Object::Node)),
            (Kind::Namespace, list(snapshot.namespace, Object::Namespace)),
            (Kind::Pod, list(snapshot.pods, Object::Pod)),
            (Kind::Service, list(snapshot.service, Object::Service)),
            (Kind::Endpoints, list(snapshot.endpoints, Object::Endpoints)),
            (Kind::EndpointSlice, list(snapshot.slices, Object::Slice)),
        ] {
            world.reset(kind, objects);
        }
        let view = world.view(&key);
        let findings = judge::judge_service(&view, ctx);
        let fingerprint = view.fingerprint();
        Self {
            key,
            ctx: ctx.clone(),
            world,
            findings,
            fingerprint,
            raw: snapshot.raw_slices,
        }
    }

    /// Nothing is left that a heal could mend.
    pub fn is_clean(&self) -> bool {
        self.actionable().next().is_none()
    }

    /// The slices are right; at most the legacy Endpoints object is a moment behind them. Its own
    /// controller follows the same pods.
    pub fn slices_are_right(&self) -> bool {
        self.actionable()
            .all(|f| f.kind == FindingKind::EndpointsDrift)
    }

    /// The findings that have a remedy, worst first.
    pub fn actionable(&self) -> impl Iterator<Item = &Finding> {
        self.findings
            .iter()
            .filter(|f| f.remedy.action != RemedyAction::None)
    }

    /// Changes whenever anything changes that the judgement depends on.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// The Service's uid, if it exists.
    pub fn service_uid(&self) -> Option<String> {
        Some(self.world.view(&self.key).service()?.meta.uid.to_string())
    }

    /// Whether the Service is of type LoadBalancer.
    pub fn is_load_balancer(&self) -> bool {
        let view = self.world.view(&self.key);
        view.service()
            .is_some_and(|s| s.spec.service_type == ServiceType::LoadBalancer)
    }

    /// uid and resourceVersion of a slice.
    pub fn slice_version(&self, name: &str) -> Option<(String, String)> {
        let slice = self.world.view(&self.key).slice(name)?;
        Some((
            slice.meta.uid.to_string(),
            slice.meta.resource_version.to_string(),
        ))
    }

    /// The slice word for word, or null where the read did not keep it.
    pub fn raw_slice(&self, name: &str) -> serde_json::Value {
        self.raw.get(name).cloned().unwrap_or_default()
    }

    /// What a delete of this slice would take away.
    pub fn balance(&self, slice: &str) -> Balance {
        judge::balance(&self.world.view(&self.key), slice, &self.ctx)
    }

    /// What the gate looks at.
    pub fn gate_input<'a>(&'a self, policy: &'a Policy, slice: Option<&str>) -> GateInput<'a> {
        let view = self.world.view(&self.key);
        GateInput {
            key: &self.key,
            service: view.service(),
            namespace: view.namespace(),
            slice: slice.and_then(|name| view.slice(name)),
            scope: &policy.scope,
            delete_leftover: policy.delete_leftover,
            load_balancers: policy.load_balancers,
        }
    }
}
