//! The controller's task: events wake Services, Services are synced when they are due, failures
//! back off.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::super::resource::{ENDPOINT_SLICES, LEASES, PODS, SERVICES};
use super::super::verbs::suffix;
use super::super::{Batch, Change, ChangeKind, Cluster, Follower, object};
use super::behaviour::Control;
use super::desired;
use super::sync::SyncError;
use super::tracker::{ServiceKey, Tracker, service_of};
use super::trigger::Triggers;
use super::{ControllerOptions, LogSink, MANAGED_BY, MANAGER, SERVICE_NAME, lines};

/// How far the task is.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Progress {
    pub(super) revision: u64,
    pub(super) epoch: u64,
    pub(super) idle: bool,
    pub(super) syncs: u64,
    pub(super) writes: u64,
}

#[derive(Debug, Clone, Copy)]
struct Due {
    at: Instant,
    /// Only a failed sync waits for it.
    retry: bool,
}

pub(super) struct Runner {
    pub(super) cluster: Cluster,
    pub(super) options: ControllerOptions,
    pub(super) control: Arc<Control>,
    pub(super) log: Arc<dyn LogSink>,
    report: watch::Sender<Progress>,
    pub(super) progress: Progress,
    follower: Follower,
    pub(super) tracker: Tracker,
    pub(super) triggers: Triggers,
    queue: HashMap<ServiceKey, Due>,
    failures: HashMap<ServiceKey, u32>,
    identity: String,
}

impl Runner {
    pub(super) fn new(
        cluster: Cluster,
        options: ControllerOptions,
        control: Arc<Control>,
        log: Arc<dyn LogSink>,
        report: watch::Sender<Progress>,
    ) -> Self {
        let mut runner = Self {
            follower: cluster.follow(),
            cluster,
            options,
            control,
            log,
            report,
            progress: Progress::default(),
            tracker: Tracker::default(),
            triggers: Triggers::default(),
            queue: HashMap::new(),
            failures: HashMap::new(),
            identity: String::new(),
        };
        runner.begin();
        runner
    }

    /// What a new process does: it knows nothing and hears of every object once.
    fn begin(&mut self) {
        self.follower = self.cluster.follow();
        self.tracker = Tracker::default();
        self.triggers = Triggers::default();
        self.queue.clear();
        self.failures.clear();
        self.identity = format!("lab_{}", suffix());
        self.wake_all();
        for slice in self.cluster.list(&ENDPOINT_SLICES, None) {
            if object::label(&slice, MANAGED_BY) == Some(MANAGER) {
                self.wake(service_of(&slice), self.options.slice_delay);
            }
        }
    }

    pub(super) async fn run(mut self) {
        let mut lease = tokio::time::interval(
            self.options
                .lease_every
                .unwrap_or(Duration::from_secs(3600)),
        );
        lease.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let epoch = self.control.epoch.load(Ordering::Acquire);
            let (paused, restart) = {
                let mut behaviour = self.control.behaviour();
                (behaviour.paused, std::mem::take(&mut behaviour.restart))
            };
            if restart {
                self.begin();
            }
            self.progress.epoch = epoch;
            self.publish();
            let control = Arc::clone(&self.control);
            if paused {
                control.changed.notified().await;
                continue;
            }
            let next = self.queue.values().map(|due| due.at).min();
            let idle_until = next.unwrap_or_else(|| Instant::now() + Duration::from_secs(3600));
            tokio::select! {
                biased;
                () = control.changed.notified() => {}
                batch = self.follower.next() => self.note(batch),
                () = sleep_until(idle_until) => self.sync_due(),
                _ = lease.tick(), if self.options.lease_every.is_some() => self.renew_lease(),
            }
        }
    }

    fn publish(&mut self) {
        self.progress.revision = self.follower.cursor();
        self.progress.idle = self.queue.values().all(|due| due.retry);
        self.report.send_replace(self.progress);
    }

    pub(super) fn wake(&mut self, key: ServiceKey, delay: Duration) {
        let at = Instant::now() + delay;
        let due = self.queue.entry(key).or_insert(Due { at, retry: false });
        due.at = due.at.min(at);
        due.retry = false;
    }

    fn wake_all(&mut self) {
        for service in self.cluster.list(&SERVICES, None) {
            self.wake(key_of(&service), Duration::ZERO);
        }
    }

    fn note(&mut self, batch: Batch) {
        let changes = match batch {
            Batch::Relist => return self.wake_all(),
            Batch::Changes(changes) => changes,
        };
        for change in changes {
            let resource = change.resource;
            if resource == &SERVICES {
                // Nothing is compared: an annotation is as good as anything.
                self.wake(key_of(&change.object), Duration::ZERO);
            } else if resource == &PODS {
                self.note_pod(&change);
            } else if resource == &ENDPOINT_SLICES {
                self.note_slice(&change);
            }
        }
    }

    fn note_pod(&mut self, change: &Change) {
        let before = change.previous.as_deref();
        let now = (change.kind != ChangeKind::Deleted).then_some(&*change.object);
        if let (Some(before), Some(now)) = (before, now)
            && !pod_changed(before, now)
        {
            return;
        }
        let namespace = object::namespace(&change.object);
        for service in self.cluster.list(&SERVICES, Some(namespace)) {
            if !desired::in_scope(&service) {
                continue;
            }
            let selector = desired::selector(&service);
            let concerned = [before, now].into_iter().flatten();
            if concerned.into_iter().any(|pod| selector.matches(pod)) {
                self.wake(key_of(&service), self.options.batch_period);
            }
        }
    }

    fn note_slice(&mut self, change: &Change) {
        let slice = &*change.object;
        let delay = self.options.slice_delay.max(self.options.batch_period);
        let managed = |slice: &Value| object::label(slice, MANAGED_BY) == Some(MANAGER);
        match (change.kind, change.previous.as_deref()) {
            (ChangeKind::Deleted, _) => {
                if managed(slice) {
                    self.control
                        .behaviour()
                        .cache_hits
                        .remove(&service_of(slice));
                    if self.tracker.deleted(slice) {
                        self.wake(service_of(slice), delay);
                    }
                }
            }
            (_, Some(before)) => {
                let moved =
                    object::label(before, SERVICE_NAME) != object::label(slice, SERVICE_NAME);
                let changed_hands = object::label(before, MANAGED_BY)
                    != object::label(slice, MANAGED_BY)
                    && (managed(before) || managed(slice));
                if moved {
                    self.wake(service_of(before), delay);
                    self.wake(service_of(slice), delay);
                } else if changed_hands || (managed(slice) && self.tracker.should_sync(slice)) {
                    self.wake(service_of(slice), delay);
                }
            }
            (_, None) => {
                if managed(slice) && self.tracker.should_sync(slice) {
                    self.wake(service_of(slice), delay);
                }
            }
        }
    }

    fn sync_due(&mut self) {
        let now = Instant::now();
        let mut due: Vec<ServiceKey> = self
            .queue
            .iter()
            .filter(|(_, due)| due.at <= now)
            .map(|(key, _)| key.clone())
            .collect();
        due.sort_unstable();
        for key in due {
            self.queue.remove(&key);
            self.progress.syncs += 1;
            match self.sync(&key) {
                Ok(()) => {
                    self.failures.remove(&key);
                }
                Err(error) => self.failed(key, &error),
            }
        }
    }

    fn failed(&mut self, key: ServiceKey, error: &SyncError) {
        if matches!(error, SyncError::Write(..)) {
            self.warn(&key, error);
        }
        let failures = self.failures.entry(key.clone()).or_default();
        *failures += 1;
        if *failures > self.options.retries {
            self.failures.remove(&key);
            self.log.line(lines::dropped(&key.0, &key.1, error));
            return;
        }
        let factor = 1_u32 << (*failures - 1).min(10);
        let first = self.control.behaviour().backoff;
        let delay = first.unwrap_or(self.options.backoff) * factor.min(1000);
        self.log.line(lines::retrying(&key.0, &key.1, error));
        let at = Instant::now() + delay;
        self.queue.entry(key).or_insert(Due { at, retry: true });
    }

    fn renew_lease(&self) {
        let name = "kube-controller-manager";
        let now = object::micro_time(Timestamp::now());
        let spec = json!({"holderIdentity": self.identity, "leaseDurationSeconds": 15,
            "renewTime": now});
        let renewed = self
            .cluster
            .patch(&LEASES, "kube-system", name, &json!({"spec": spec}))
            .or_else(|_| {
                self.cluster
                    .create(json!({"apiVersion": "coordination.k8s.io/v1",
                    "kind": "Lease", "metadata": {"namespace": "kube-system", "name": name},
                    "spec": spec}))
            });
        if let Err(error) = renewed {
            tracing::debug!(%error, "the lab's controller could not renew its lease");
        }
    }
}

fn key_of(service: &Value) -> ServiceKey {
    let namespace = object::namespace(service).to_owned();
    (namespace, object::name(service).to_owned())
}

/// Whether a pod's update is one that the controller looks at; a phase alone is none.
fn pod_changed(before: &Value, now: &Value) -> bool {
    object::deleting(before) != object::deleting(now)
        || object::condition(before, "Ready") != object::condition(now, "Ready")
        || before["status"]["podIPs"] != now["status"]["podIPs"]
        || before["metadata"]["labels"] != now["metadata"]["labels"]
        || before["spec"]["hostname"] != now["spec"]["hostname"]
        || before["spec"]["subdomain"] != now["spec"]["subdomain"]
}
