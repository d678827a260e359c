//! The EndpointSlice controller of the embedded cluster: builds slices the way the real one does in
//! the common case, remembers and forgets like it, and misbehaves on demand.
//!
//! It stands in for kube-controller-manager where a test needs speed or a fault that a real
//! controller cannot be told to have. It does not mirror Endpoints, write Endpoints, or allocate
//! hints in annotation mode, and its view of the cluster has no delay of its own.

mod behaviour;
mod desired;
mod lines;
mod reconcile;
mod run;
mod sync;
#[cfg(test)]
mod tests;
mod tracker;
mod trigger;

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::Cluster;
pub use behaviour::Refusal;
use behaviour::{Behaviour, Control};
pub use lines::{CACHE_HIT, LogLine, LogSink, NoLog};
use run::{Progress, Runner};

/// Label by which a slice names its Service.
pub const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Label by which a slice names who writes it.
pub const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
/// Value of [`MANAGED_BY`] on this controller's slices.
pub const MANAGER: &str = "endpointslice-controller.k8s.io";
/// Label of the slices of headless Services.
pub const HEADLESS: &str = "service.kubernetes.io/headless";
/// Annotation with the earliest change that a slice answers.
pub const TRIGGER_TIME: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// Times and limits; the defaults are the real controller's.
#[derive(Debug, Clone)]
pub struct ControllerOptions {
    /// Least time between a slice's event and the sync that answers it.
    pub slice_delay: Duration,
    /// Time between a pod's event and the sync that answers it.
    pub batch_period: Duration,
    /// First retry of a failed sync; doubles each time, up to a thousandfold.
    pub backoff: Duration,
    /// Retries until a Service is given up.
    pub retries: u32,
    /// Endpoints per slice.
    pub max_endpoints: usize,
    /// How often the Lease kube-system/kube-controller-manager is renewed; `None`: never, as on a
    /// k3s without leader election.
    pub lease_every: Option<Duration>,
}

impl Default for ControllerOptions {
    fn default() -> Self {
        Self {
            slice_delay: Duration::from_secs(1),
            batch_period: Duration::ZERO,
            backoff: Duration::from_secs(1),
            retries: 15,
            max_endpoints: 100,
            lease_every: Some(Duration::from_secs(2)),
        }
    }
}

impl ControllerOptions {
    /// A controller whose waits are a twentieth of the real one's, for tests in a hurry.
    #[must_use]
    pub fn quick() -> Self {
        Self {
            slice_delay: Duration::from_millis(50),
            backoff: Duration::from_millis(50),
            lease_every: Some(Duration::from_millis(500)),
            ..Self::default()
        }
    }
}

/// A running controller; it ends with the last handle.
#[derive(Clone)]
pub struct Controller {
    cluster: Cluster,
    control: Arc<Control>,
    progress: watch::Receiver<Progress>,
    _stop: Arc<DropGuard>,
}

impl std::fmt::Debug for Controller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Controller")
            .field("progress", &*self.progress.borrow())
            .finish_non_exhaustive()
    }
}

impl Controller {
    /// Starts a controller on the cluster.
    #[must_use]
    pub fn start(cluster: &Cluster, options: ControllerOptions, log: Arc<dyn LogSink>) -> Self {
        let control = Arc::new(Control::default());
        let (report, progress) = watch::channel(Progress::default());
        let runner = Runner::new(cluster.clone(), options, Arc::clone(&control), log, report);
        let stop = CancellationToken::new();
        tokio::spawn(stop.clone().run_until_cancelled_owned(runner.run()));
        Self {
            cluster: cluster.clone(),
            control,
            progress,
            _stop: Arc::new(stop.drop_guard()),
        }
    }

    /// Stands still, as a stopped process does: events pile up, the lease grows old.
    pub fn pause(&self) {
        self.change(|behaviour| behaviour.paused = true);
    }

    /// Goes on where [`Self::pause`] stopped.
    pub fn resume(&self) {
        self.change(|behaviour| behaviour.paused = false);
    }

    /// A new process: no slice is tracked any more, every Service is looked at once.
    pub fn restart(&self) {
        self.change(|behaviour| behaviour.restart = true);
    }

    /// From now on a sync of this Service logs [`CACHE_HIT`] and changes nothing, until one of the
    /// Service's slices has been deleted.
    pub fn cache_hits(&self, namespace: &str, service: &str) {
        let key = (namespace.to_owned(), service.to_owned());
        self.change(|behaviour| {
            behaviour.cache_hits.insert(key);
        });
    }

    /// Every write is refused, until `None`. The sync fails and backs off; taking the refusal back
    /// does not shorten the wait.
    pub fn refuse_writes(&self, refusal: Option<Refusal>) {
        self.change(|behaviour| behaviour.refusal = refusal);
    }

    /// From now on the first retry of a failed sync comes after this time, as it does for a Service
    /// that has failed for long.
    pub fn back_off_by(&self, first: Duration) {
        self.change(|behaviour| behaviour.backoff = Some(first));
    }

    /// No slice is created for this time; Services that lack one are looked at when it is over.
    pub fn withhold_creates(&self, time: Duration) {
        let until = Instant::now() + time;
        self.change(|behaviour| behaviour.no_creates_until = Some(until));
    }

    /// Takes back every misbehaviour. Forgotten slices stay forgotten.
    pub fn behave(&self) {
        self.change(|behaviour| {
            *behaviour = Behaviour {
                restart: behaviour.restart,
                ..Behaviour::default()
            };
        });
    }

    /// Waits until every change made so far was looked at and nothing but retries is left to do.
    /// Whether that was reached before the deadline.
    pub async fn settle(&self, deadline: Duration) -> bool {
        let revision = self.cluster.revision();
        let epoch = self.control.epoch.load(Ordering::Acquire);
        let mut progress = self.progress.clone();
        let settled = progress.wait_for(|progress| {
            progress.idle && progress.revision >= revision && progress.epoch >= epoch
        });
        matches!(tokio::time::timeout(deadline, settled).await, Ok(Ok(_)))
    }

    /// Syncs so far, of all Services.
    #[must_use]
    pub fn syncs(&self) -> u64 {
        self.progress.borrow().syncs
    }

    /// Slices created, updated and deleted so far.
    #[must_use]
    pub fn writes(&self) -> u64 {
        self.progress.borrow().writes
    }

    fn change(&self, change: impl FnOnce(&mut Behaviour)) {
        let mut behaviour: MutexGuard<'_, Behaviour> = self.control.behaviour();
        change(&mut behaviour);
        drop(behaviour);
        self.control.epoch.fetch_add(1, Ordering::AcqRel);
        self.control.changed.notify_one();
    }
}
