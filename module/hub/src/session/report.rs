//! Keeps [`Status`] current. The only place that writes it.

use tokio::sync::watch;

use super::end::End;
use super::engine::Engine;
use crate::clock::now;
use crate::event::{State, Status};

pub(crate) struct Reporter {
    status: watch::Sender<Status>,
}

impl Reporter {
    pub(crate) fn new(status: watch::Sender<Status>) -> Self {
        Self { status }
    }

    /// A state that the session itself is in, outside of a link.
    pub(crate) fn state(&self, state: State) {
        self.change(|status| status.state = state);
    }

    /// What a link looks like now.
    pub(crate) fn update(&self, engine: &Engine) {
        self.change(|status| {
            status.state = engine.state();
            status.reported_stuck = engine.is_stuck();
            status.unacknowledged = engine.unacknowledged();
            status.counters = engine.counters;
            if status.state == State::Up {
                status.last_failure = None;
                status.failures = 0;
            }
        });
    }

    pub(crate) fn failures(&self, failures: u32, last: Option<&End>) {
        self.change(|status| {
            status.failures = failures;
            if let Some(end) = last {
                status.last_failure = Some((end.reason, end.detail.clone()));
            }
        });
    }

    /// The workload API was asked; whether its socket refused.
    pub(crate) fn workload_answered(&self, refused: bool) {
        self.change(|status| {
            status.workload_refused_since =
                refused.then(|| status.workload_refused_since.unwrap_or_else(now));
        });
    }

    /// Wakes those who follow the status only if something is different.
    fn change(&self, change: impl FnOnce(&mut Status)) {
        self.status.send_if_modified(|status| {
            let before = status.clone();
            change(status);
            if status.state != before.state {
                status.since = now();
            }
            *status != before
        });
    }
}
