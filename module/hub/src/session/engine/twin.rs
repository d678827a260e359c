//! The twin on the wire: which request goes out when, and what its answer means.

use std::time::Instant;

use super::{Engine, LEAST_SPACING, SILENT_LIMIT};
use crate::event::{DisconnectReason, Event};
use crate::session::end::End;
use crate::session::twin_requests::Kind;
use crate::topics;
use crate::twin::{Acknowledged, DesiredChange};

impl Engine {
    pub(super) fn on_twin_answer(
        &mut self,
        now: Instant,
        status: u16,
        request_id: &str,
        body: &[u8],
    ) {
        match self.twin.answered(request_id) {
            Some(Kind::Patch) => {
                if (200..300).contains(&status) {
                    self.counters.patches_accepted += 1;
                }
                let outcome = self.reported.on_answer(now, status);
                self.tell(outcome);
            }
            Some(Kind::Get) => self.on_twin(now, status, body),
            // Of an older connection, or too late.
            None => {}
        }
    }

    fn on_twin(&mut self, now: Instant, status: u16, body: &[u8]) {
        let twin: Option<serde_json::Value> = if status == 200 {
            serde_json::from_slice(body).ok()
        } else {
            None
        };
        let Some(twin) = twin else {
            tracing::debug!(status, "the hub has no twin for us now");
            self.desired.get_failed();
            self.twin
                .get_failed(now, self.config.timings.report_backoff);
            return;
        };
        let change = self.desired.on_get(&twin["desired"]);
        if !self.desired.is_synced() {
            self.twin
                .get_failed(now, self.config.timings.report_backoff);
            return;
        }
        let (from, to) = self.config.timings.twin_refresh;
        let spread = to.saturating_sub(from).mul_f64(rand::random::<f64>());
        self.twin.get_succeeded(now, from + spread);
        self.on_desired(now, change);
        let outcome = self.reported.on_get(now, &twin["reported"]);
        self.tell(outcome);
    }

    pub(super) fn on_desired(&mut self, now: Instant, change: DesiredChange) {
        match change {
            DesiredChange::Updated => self.emit_desired(now),
            DesiredChange::Nothing => {}
            DesiredChange::AskAgain => {
                let at = self.twin.last_get() + self.config.timings.gap_get_spacing;
                self.twin.get_by(at.max(now));
            }
        }
    }

    fn tell(&mut self, outcome: Acknowledged) {
        match outcome {
            Acknowledged::Nothing => {}
            Acknowledged::Settled => self.inform(Event::ReportedSettled),
            Acknowledged::Refused { section, status } => {
                self.inform(Event::ReportedRefused { section, status });
            }
            Acknowledged::Stuck => self.inform(Event::ReportedStuck),
            Acknowledged::Recovered => self.inform(Event::ReportedRecovered),
        }
    }

    pub(super) fn tick_twin(&mut self, now: Instant) -> Result<(), End> {
        for kind in self.twin.expire(now) {
            match kind {
                Kind::Get => {
                    self.desired.get_failed();
                    self.twin
                        .get_failed(now, self.config.timings.report_backoff);
                }
                Kind::Patch => {
                    self.reported.on_timeout(now);
                    // Only a GET can tell whether it arrived.
                    self.on_desired(now, DesiredChange::AskAgain);
                }
            }
        }
        if self.twin.silent() >= SILENT_LIMIT {
            return Err(End::new(
                DisconnectReason::TwinSilent,
                "no answer to twin requests",
            ));
        }
        if self.get_at().is_some_and(|at| now >= at) {
            let id = self
                .twin
                .sent(Kind::Get, now, self.config.timings.twin_answer);
            self.codec.publish(&topics::twin_get(&id), b"", false)?;
            self.desired.get_sent();
            self.counters.twin_gets += 1;
            self.last_sent = now;
        }
        if self.patch_at(now).is_some_and(|at| now >= at)
            && let Some(patch) = self.reported.take_patch(now)
        {
            let id = self
                .twin
                .sent(Kind::Patch, now, self.config.timings.twin_answer);
            let body = patch.to_string();
            self.codec
                .publish(&topics::reported_patch(&id), body.as_bytes(), false)?;
            self.last_sent = now;
        }
        Ok(())
    }

    pub(super) fn get_at(&self) -> Option<Instant> {
        if self.twin.is_waiting(Kind::Get) || self.paused {
            return None;
        }
        let verify = self.reported.verify_at(self.twin.last_get());
        [self.twin.get_due(), verify].into_iter().flatten().min()
    }

    pub(super) fn patch_at(&self, now: Instant) -> Option<Instant> {
        if self.paused || self.twin.is_waiting(Kind::Patch) {
            return None;
        }
        self.reported.due_at(now, self.hurry)
    }

    pub(super) fn emit_at(&self, now: Instant) -> Option<Instant> {
        let (version, document) = self.desired.known()?;
        if self
            .emitted
            .as_ref()
            .is_some_and(|(v, d)| *v == version && d == document)
        {
            return None;
        }
        Some(self.emitted_at.map_or(now, |at| {
            at + self.config.timings.desired_spacing.max(LEAST_SPACING)
        }))
    }

    /// Hands the desired document out, the newest only and not too often. If the queue is full it
    /// stays due, with the same spacing.
    pub(super) fn emit_desired(&mut self, now: Instant) {
        if self.emit_at(now).is_none_or(|at| now < at) {
            return;
        }
        let Some((version, document)) = self.desired.known() else {
            return;
        };
        let changed = self
            .emitted
            .as_ref()
            .is_none_or(|(_, before)| before != document);
        let event = Event::Desired {
            version,
            document: document.clone(),
            changed,
        };
        self.emitted_at = Some(now);
        if self.events.try_send(event).is_ok() || self.events.is_closed() {
            self.emitted = Some((version, document.clone()));
        }
    }
}
