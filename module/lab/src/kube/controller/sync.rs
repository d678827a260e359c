//! One sync of one Service: look, compare, write; and the Warning event of a write that failed.

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::super::object;
use super::super::resource::{ENDPOINT_SLICES, EVENTS, NODES, PODS, SERVICES};
use super::super::status::ApiError;
use super::super::verbs::DeleteOptions;
use super::desired;
use super::reconcile::{Context, Plan};
use super::run::Runner;
use super::tracker::ServiceKey;
use super::{MANAGED_BY, MANAGER, lines};

#[derive(Debug, thiserror::Error)]
pub(super) enum SyncError {
    #[error("EndpointSlice informer cache is out of date")]
    Stale,
    #[error("skipping Pod for Service {1}/{2}: Node {0} Not Found")]
    MissingNode(String, String, String),
    #[error("failed to {1} {2} EndpointSlice for Service {3}/{4}: {0}")]
    Write(String, &'static str, String, String, String),
}

impl Runner {
    pub(super) fn sync(&mut self, key: &ServiceKey) -> Result<(), SyncError> {
        let (namespace, name) = (key.0.as_str(), key.1.as_str());
        let Some(service) = self.cluster.get(&SERVICES, namespace, name) else {
            self.tracker.forget(key);
            self.triggers.forget(key);
            return Ok(());
        };
        if !desired::in_scope(&service) {
            return Ok(());
        }
        if self.control.behaviour().cache_hits.contains(key) {
            self.log.line(lines::cache_hit());
            return Ok(());
        }
        let selector = desired::selector(&service);
        let pods = self.cluster.select(&PODS, namespace, &selector);
        let mut slices = self.cluster.slices_of(namespace, name);
        slices.retain(|slice| {
            object::label(slice, MANAGED_BY) == Some(MANAGER) && !object::deleting(slice)
        });
        let seen: Vec<&Value> = slices.iter().map(AsRef::as_ref).collect();
        if self.tracker.stale(key, &seen) {
            return Err(SyncError::Stale);
        }
        let nodes = self.cluster.list(&NODES, None);
        let desired = desired::desired(&service, pods.iter().map(AsRef::as_ref), |wanted| {
            let node = nodes.iter().find(|node| object::name(node) == wanted);
            node.map(AsRef::as_ref)
        });
        let trigger = self
            .triggers
            .earliest(key, &service, pods.iter().map(AsRef::as_ref));
        let context = Context {
            service: &service,
            trigger,
            max_endpoints: self.options.max_endpoints,
        };
        let plan = context.plan(&desired, &slices);
        self.write(key, plan)?;
        match desired.missing_nodes.into_iter().next() {
            Some(node) => Err(SyncError::MissingNode(node, key.0.clone(), key.1.clone())),
            None => Ok(()),
        }
    }

    fn write(&mut self, key: &ServiceKey, plan: Plan) -> Result<(), SyncError> {
        let (refusal, no_creates_until) = {
            let behaviour = self.control.behaviour();
            (behaviour.refusal, behaviour.no_creates_until)
        };
        let failure = |verb: &'static str, slice: &Value, error: ApiError| {
            let name = object::name(slice).to_owned();
            SyncError::Write(error.message, verb, name, key.0.clone(), key.1.clone())
        };
        let refused = |slice: &Value| match refusal {
            Some(refusal) => Err(refusal.error(object::name(slice))),
            None => Ok(()),
        };
        if let Some(until) = no_creates_until
            && until > Instant::now()
            && !plan.create.is_empty()
        {
            // What it would create it leaves alone, and looks again when it may.
            self.wake(key.clone(), until - Instant::now());
        } else {
            for slice in plan.create {
                let made = refused(&slice).and_then(|()| self.cluster.create(slice.clone()));
                let made = made.map_err(|error| failure("create", &slice, error))?;
                self.tracker.update(&made);
                self.progress.writes += 1;
            }
        }
        for slice in plan.update {
            let made = refused(&slice).and_then(|()| self.cluster.update(slice.clone()));
            let made = made.map_err(|error| failure("update", &slice, error))?;
            self.tracker.update(&made);
            self.progress.writes += 1;
        }
        for slice in plan.delete {
            refused(&slice)
                .and_then(|()| {
                    let name = object::name(&slice);
                    let options = DeleteOptions::default();
                    self.cluster
                        .delete(&ENDPOINT_SLICES, &key.0, name, &options)
                })
                .map_err(|error| failure("delete", &slice, error))?;
            self.tracker.expect_deletion(&slice);
            self.progress.writes += 1;
        }
        Ok(())
    }

    /// The Warning event that goes with a failed write; repeated ones are counted in one.
    pub(super) fn warn(&self, key: &ServiceKey, error: &SyncError) {
        let name = format!("{}.lab", key.1);
        let now = object::time(Timestamp::now());
        let count = self
            .cluster
            .get(&EVENTS, &key.0, &name)
            .map_or(0, |event| event["count"].as_u64().unwrap_or(0));
        let (namespace, service) = key;
        let message =
            format!("Error updating Endpoint Slices for Service {namespace}/{service}: {error}");
        let repeated = json!({"count": count + 1, "lastTimestamp": now, "message": message});
        let written = if count > 0 {
            self.cluster.patch(&EVENTS, namespace, &name, &repeated)
        } else {
            self.cluster
                .create(json!({"apiVersion": "v1", "kind": "Event",
                "metadata": {"namespace": namespace, "name": name},
                "involvedObject": {"kind": "Service", "namespace": namespace, "name": service,
                    "apiVersion": "v1"},
                "reason": "FailedToUpdateEndpointSlices", "message": message, "type": "Warning",
                "source": {"component": "endpoint-slice-controller"},
                "count": 1, "firstTimestamp": now, "lastTimestamp": now}))
        };
        if let Err(error) = written {
            tracing::debug!(%error, "the lab's controller could not write an event");
        }
    }
}
