//! What happened, in order, for those who watch while it does and for the summary.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::broadcast;
use tokio::time::Instant;

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Happening {
    /// Milliseconds since the world began.
    pub at_ms: u64,
    /// A short name, such as `stale`, `journal`, `refresh`, `slice-deleted`, `healed`.
    pub event: String,
    /// A sentence.
    pub detail: String,
}

/// Happenings that are kept; later ones are dropped and counted.
const LIMIT: usize = 5_000;
/// Happenings that a slow watcher may be behind.
const BEHIND: usize = 1_024;

#[derive(Debug, Default)]
struct Book {
    happenings: Vec<Happening>,
    dropped: u64,
}

/// The list of happenings. Clones are the same list.
#[derive(Debug, Clone)]
pub struct Timeline {
    began: Instant,
    book: Arc<Mutex<Book>>,
    live: broadcast::Sender<Happening>,
}

impl Timeline {
    pub(crate) fn new() -> Self {
        Self {
            began: Instant::now(),
            book: Arc::default(),
            live: broadcast::Sender::new(BEHIND),
        }
    }

    /// Milliseconds since the world began.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Adds a happening at this moment.
    pub fn add(&self, event: &str, detail: impl Into<String>) {
        let happening = Happening {
            at_ms: self.now_ms(),
            event: event.to_owned(),
            detail: detail.into(),
        };
        let mut book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
        if book.happenings.len() < LIMIT {
            book.happenings.push(happening.clone());
        } else {
            book.dropped += 1;
        }
        // Sent with the lock held, so that watchers see the order of the list. Nobody may watch.
        let _ = self.live.send(happening);
    }

    /// Everything so far.
    #[must_use]
    pub fn all(&self) -> Vec<Happening> {
        let book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
        book.happenings.clone()
    }

    /// The last `count` happenings.
    #[must_use]
    pub fn tail(&self, count: usize) -> Vec<Happening> {
        let book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
        let skip = book.happenings.len().saturating_sub(count);
        book.happenings[skip..].to_vec()
    }

    /// How many did not fit.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        let book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
        book.dropped
    }

    /// Everything from now on; a watcher that falls far behind misses the oldest.
    #[must_use]
    pub fn watch(&self) -> broadcast::Receiver<Happening> {
        self.live.subscribe()
    }
}
