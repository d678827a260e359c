//! What the listener, the watches and the in-process handle share: the store, the knobs, and the
//! signals that something changed.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::cluster::ClusterOptions;
use super::knobs::Knobs;
use super::status::ApiError;
use super::store::{Change, Store};

/// User behind the ordinary token.
pub const USER: &str = "system:serviceaccount:slice-healer:slice-healer";
/// User behind the admin token.
pub const ADMIN: &str = "system:admin";

#[derive(Debug)]
pub(crate) struct Shared {
    store: Mutex<Store>,
    knobs: Mutex<Knobs>,
    changed: watch::Sender<u64>,
    watch_drops: watch::Sender<u64>,
    pub(crate) bookmark_every: Duration,
    pub(crate) anonymous_admin: bool,
    pub(crate) token: String,
    pub(crate) admin_token: String,
    pub(crate) server_version: String,
    next_pod_ip: AtomicU32,
}

impl Shared {
    pub(crate) fn new(options: &ClusterOptions) -> Arc<Self> {
        Arc::new(Self {
            store: Mutex::new(Store::new(options.history)),
            knobs: Mutex::new(Knobs::default()),
            changed: watch::Sender::new(0),
            watch_drops: watch::Sender::new(0),
            bookmark_every: options.bookmark_every,
            anonymous_admin: options.anonymous_admin,
            token: uuid::Uuid::new_v4().to_string(),
            admin_token: uuid::Uuid::new_v4().to_string(),
            server_version: options.server_version.clone(),
            next_pod_ip: AtomicU32::new(2),
        })
    }

    /// The store, to read. Writes go through [`Shared::write`], so that watches hear of them.
    pub(crate) fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn knobs(&self) -> MutexGuard<'_, Knobs> {
        self.knobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a write and wakes the watches when it made a new revision.
    pub(crate) fn write<T>(&self, write: impl FnOnce(&mut Store) -> T) -> T {
        let (result, before, after) = {
            let mut store = self.store();
            let before = store.revision();
            let result = write(&mut store);
            (result, before, store.revision())
        };
        if before != after {
            self.changed.send_replace(after);
        }
        result
    }

    /// An address of the pod network that nobody has had yet.
    pub(crate) fn pod_ip(&self) -> String {
        let number = self.next_pod_ip.fetch_add(1, Ordering::Relaxed);
        let [_, _, high, low] = number.to_be_bytes();
        format!("10.244.{high}.{low}")
    }

    /// Wakes the watches without a change, to look at the knobs again.
    pub(crate) fn wake(&self) {
        self.changed.send_modify(|_| {});
    }

    pub(crate) fn drop_watches(&self) {
        self.watch_drops.send_modify(|n| *n += 1);
    }

    pub(crate) fn changed(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    pub(crate) fn watch_drops(&self) -> watch::Receiver<u64> {
        self.watch_drops.subscribe()
    }
}

/// What a [`Follower`] has to catch up with.
#[derive(Debug)]
pub enum Batch {
    /// Writes since the last batch, oldest first.
    Changes(Vec<Arc<Change>>),
    /// The history is gone: look at everything again.
    Relist,
}

/// Follows all writes from inside the process, as an informer would, but without its delay.
#[derive(Debug)]
pub struct Follower {
    shared: Arc<Shared>,
    changed: watch::Receiver<u64>,
    cursor: u64,
}

impl Follower {
    /// Begins after the present revision.
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        let changed = shared.changed();
        let cursor = shared.store().revision();
        Self {
            shared: Arc::clone(shared),
            changed,
            cursor,
        }
    }

    /// The revision up to which batches were returned.
    pub(crate) fn cursor(&self) -> u64 {
        self.cursor
    }

    /// Waits for writes. Cancel-safe: what was not returned comes with the next call.
    pub async fn next(&mut self) -> Batch {
        loop {
            self.changed.borrow_and_update();
            let (batch, revision) = {
                let store = self.shared.store();
                let batch: Result<Vec<_>, ApiError> = store
                    .since(self.cursor)
                    .map(|changes| changes.cloned().collect());
                (batch, store.revision())
            };
            self.cursor = revision;
            match batch {
                Ok(changes) if changes.is_empty() => {}
                Ok(changes) => return Batch::Changes(changes),
                Err(_) => return Batch::Relist,
            }
            if self.changed.changed().await.is_err() {
                // The cluster is gone; nothing will ever change again.
                std::future::pending::<()>().await;
            }
        }
    }
}
