//! Follows the objects of the cluster that Services are judged on.
//!
//! One task a kind, so that a kind that is forbidden or not served leaves the others working. What
//! is seen goes on in the order in which the API told it; nothing is dropped: where the receiver is
//! slow, the watches wait.

mod follow;
mod link;
mod local;
mod version;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use slice_core::event::ClusterInput;
use slice_core::model::{Endpoints, Kind, Namespace, Node, Pod, Service, Slice};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::client::Supply;
use crate::client::objects::Slim;
use follow::Follower;
pub use local::LocalNode;

/// How the cluster is followed.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long one watch request lasts; a connection that died silently is noticed 5 s later.
    /// Below 120 s, so that what is judged is never based on an older view.
    pub watch_timeout: Duration,
    /// Objects a page of the first list.
    pub page_size: u32,
    /// How often everything is listed again although the watch is well: events that were lost
    /// without a trace must not stay lost.
    pub relist: Duration,
    /// How long one page of a list may take.
    pub list_timeout: Duration,
    /// The first pause after a failure; doubles up to `longest_pause`, with jitter.
    pub first_pause: Duration,
    /// The longest pause.
    pub longest_pause: Duration,
    /// How the node that this runs on is found.
    pub local: LocalNode,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            watch_timeout: Duration::from_secs(110),
            page_size: 500,
            relist: Duration::from_secs(3600),
            list_timeout: Duration::from_secs(60),
            first_pause: Duration::from_millis(500),
            longest_pause: Duration::from_secs(30),
            local: LocalNode {
                name: None,
                machine_id: PathBuf::from("/etc/machine-id"),
                gateway: None,
            },
        }
    }
}

/// What has been counted, by kind. Never goes down.
#[derive(Debug, Default)]
pub struct Counters([KindCounters; Kind::ALL.len()]);

/// What has been counted for one kind.
#[derive(Debug, Default)]
pub struct KindCounters {
    /// Objects that came in by watch.
    pub events: AtomicU64,
    /// Full lists that came through.
    pub lists: AtomicU64,
    /// Lists and watches that failed.
    pub failures: AtomicU64,
    /// Objects that could not be decoded and were left out.
    pub undecodable: AtomicU64,
    /// Times that the receiver's queue was full.
    pub waits: AtomicU64,
}

impl Counters {
    /// Those of one kind.
    pub fn of(&self, kind: Kind) -> &KindCounters {
        let at = Kind::ALL
            .iter()
            .position(|k| *k == kind)
            .unwrap_or_default();
        // `at` is a position in an array of the same length.
        self.0.get(at).unwrap_or(&self.0[0])
    }
}

pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Starts the watches of every kind, the look at the server's version and the search for the local
/// node. All end with `shutdown`; a task that ends before is a fault of the program.
pub fn spawn(
    supply: Supply,
    tx: mpsc::Sender<ClusterInput>,
    shutdown: &CancellationToken,
    options: Options,
) -> (JoinSet<()>, Arc<Counters>) {
    let counters = Arc::new(Counters::default());
    let options = Arc::new(options);
    let synced = Arc::new(Notify::new());
    let mut tasks = JoinSet::new();
    let mut start = Start {
        supply,
        tx,
        shutdown,
        options,
        synced,
        counters,
        tasks: &mut tasks,
    };
    start.kind::<Service>();
    start.kind::<Pod>();
    start.kind::<Slice>();
    start.kind::<Node>();
    start.kind::<Endpoints>();
    start.kind::<Namespace>();
    let counters = start.version();
    (tasks, counters)
}

struct Start<'a> {
    supply: Supply,
    tx: mpsc::Sender<ClusterInput>,
    shutdown: &'a CancellationToken,
    options: Arc<Options>,
    synced: Arc<Notify>,
    counters: Arc<Counters>,
    tasks: &'a mut JoinSet<()>,
}

impl Start<'_> {
    fn kind<T: Slim>(&mut self) {
        let follower = Follower::<T>::new(
            self.supply.clone(),
            self.tx.clone(),
            Arc::clone(&self.options),
            Arc::clone(&self.synced),
            Arc::clone(&self.counters),
        );
        let shutdown = self.shutdown.clone();
        self.tasks.spawn(async move {
            shutdown.run_until_cancelled(follower.run()).await;
        });
    }

    fn version(self) -> Arc<Counters> {
        let task = version::follow(self.supply, self.tx, self.synced, Arc::clone(&self.options));
        let shutdown = self.shutdown.clone();
        self.tasks.spawn(async move {
            shutdown.run_until_cancelled(task).await;
        });
        self.counters
    }
}

#[cfg(test)]
mod tests;
