//! Which twin requests wait for an answer, and when the next GET is due. Pure; request ids hold a
//! nonce of the connection, so that an answer to an older one is never taken for ours.

use std::time::{Duration, Instant};

/// What an answer belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Get,
    Patch,
}

#[derive(Debug)]
struct Waiting {
    kind: Kind,
    request_id: String,
    deadline: Instant,
}

/// At most one GET and one patch.
#[derive(Debug)]
pub(crate) struct TwinRequests {
    nonce: String,
    counter: u64,
    waiting: Vec<Waiting>,
    next_get: Option<Instant>,
    last_get: Instant,
    failed_gets: u32,
    silent: u32,
}

impl TwinRequests {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            nonce: String::new(),
            counter: 0,
            waiting: Vec::new(),
            next_get: None,
            last_get: now,
            failed_gets: 0,
            silent: 0,
        }
    }

    /// A new connection: a GET is due at once.
    pub(crate) fn begin_epoch(&mut self, now: Instant, nonce: String) {
        *self = Self {
            nonce,
            next_get: Some(now),
            ..Self::new(now)
        };
    }

    pub(crate) fn is_waiting(&self, kind: Kind) -> bool {
        self.waiting.iter().any(|w| w.kind == kind)
    }

    pub(crate) fn last_get(&self) -> Instant {
        self.last_get
    }

    /// Requests in a row that got no answer at all.
    pub(crate) fn silent(&self) -> u32 {
        self.silent
    }

    /// When the next GET is due, unless one is under way.
    pub(crate) fn get_due(&self) -> Option<Instant> {
        if self.is_waiting(Kind::Get) {
            None
        } else {
            self.next_get
        }
    }

    /// Has the next GET no later than `at`.
    pub(crate) fn get_by(&mut self, at: Instant) {
        self.next_get = Some(self.next_get.map_or(at, |planned| planned.min(at)));
    }

    /// A request goes out; returns its id.
    pub(crate) fn sent(&mut self, kind: Kind, now: Instant, limit: Duration) -> String {
        self.counter += 1;
        let request_id = format!("{}-{}", self.nonce, self.counter);
        self.waiting.push(Waiting {
            kind,
            request_id: request_id.clone(),
            deadline: now + limit,
        });
        if kind == Kind::Get {
            self.last_get = now;
            self.next_get = None;
        }
        request_id
    }

    /// An answer came: to what?
    pub(crate) fn answered(&mut self, request_id: &str) -> Option<Kind> {
        let index = self
            .waiting
            .iter()
            .position(|w| w.request_id == request_id)?;
        self.silent = 0;
        Some(self.waiting.swap_remove(index).kind)
    }

    /// Requests whose time is up.
    pub(crate) fn expire(&mut self, now: Instant) -> Vec<Kind> {
        let late: Vec<_> = self
            .waiting
            .iter()
            .filter(|w| w.deadline <= now)
            .map(|w| w.kind)
            .collect();
        self.waiting.retain(|w| w.deadline > now);
        self.silent = self
            .silent
            .saturating_add(u32::try_from(late.len()).unwrap_or(u32::MAX));
        late
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.waiting.iter().map(|w| w.deadline).min()
    }

    /// A GET brought a good twin; the next one is routine.
    pub(crate) fn get_succeeded(&mut self, now: Instant, refresh: Duration) {
        self.failed_gets = 0;
        self.get_by(now + refresh);
    }

    /// A GET failed or brought nothing useful: again, more and more seldom.
    pub(crate) fn get_failed(&mut self, now: Instant, (first, cap): (Duration, Duration)) {
        let wait = first.saturating_mul(1 << self.failed_gets.min(20)).min(cap);
        self.failed_gets = self.failed_gets.saturating_add(1);
        self.next_get = Some(now + wait);
    }
}
