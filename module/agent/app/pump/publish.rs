//! Shows the engine's state after a step: metrics, `/readyz`, the reported twin.

use std::sync::atomic::{AtomicU64, Ordering};

use slice_core::engine::Status;
use slice_core::model::Kind;

use super::Pump;
use crate::observe::metrics::Watched;
use crate::sense::units::BusState;
use crate::serve::Part;

impl Pump {
    /// Shows the state after a step.
    pub(super) fn publish(&mut self) {
        let status = self.engine.status(self.now());
        let of_kind = |(kind, severity): &(_, _), count: &usize| {
            std::iter::repeat_n((*kind, *severity), *count)
        };
        self.metrics.set_findings(
            status
                .findings
                .by_kind
                .iter()
                .flat_map(|(k, n)| of_kind(k, n)),
            status.findings.stale_slices,
        );
        for kind in Kind::ALL {
            self.metrics.set_synced(kind, self.engine.is_synced(kind));
            if let Some(counters) = &self.watched {
                let of = counters.of(kind);
                let total = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
                let watched = Watched {
                    events: total(&of.events),
                    lists: total(&of.lists),
                    failures: total(&of.failures),
                    undecodable: total(&of.undecodable),
                    waits: total(&of.waits),
                };
                self.metrics.set_watched(kind, &watched);
            }
        }
        self.metrics
            .set_shadow(status.heals.shadow_refreshes, status.heals.shadow_deletes);
        self.metrics
            .set_closed(status.closed.as_ref().map(|(reason, _)| *reason));
        if let Some(bus) = &self.bus {
            self.metrics
                .set_units_followed(*bus.borrow() == BusState::Following);
        }
        if let Some(hub) = &self.hub {
            self.metrics
                .set_hub_connected(hub.status().state.is_connected());
            self.reported.update(hub, &status, &self.desired);
        }
        self.report_parts(&status);
        let (waiting, dropped, written) = self.books.counters();
        self.metrics
            .set_outbox(waiting, dropped + self.unsaved.dropped());
        self.metrics.set_store_written(written);
        self.status.send_replace(Some(status));
    }

    /// What `/readyz` shows. Every state is a state: a missing cluster is still ready.
    fn report_parts(&self, status: &Status) {
        let text = |value: serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        let cluster = text(serde_json::json!(status.cluster.state));
        self.health.report(
            "cluster",
            match &status.cluster.detail {
                Some(why) => Part::because(cluster, why.clone()),
                None => Part::new(cluster),
            },
        );
        self.health.report(
            "journal",
            Part::new(text(serde_json::json!(status.journal.state))),
        );
        let hub = match &self.hub {
            None => Part::new("none"),
            Some(hub) => {
                let hub = hub.status();
                match hub.last_failure {
                    _ if hub.state.is_connected() => Part::new("connected"),
                    Some((_, why)) => Part::because("away", why),
                    None => Part::new("connecting"),
                }
            }
        };
        self.health.report("hub", hub);
        if let Some(bus) = &self.bus {
            let units = match &*bus.borrow() {
                BusState::Connecting => Part::new("connecting"),
                BusState::Following => Part::new("following"),
                BusState::Absent(why) => Part::because("absent", why.clone()),
            };
            self.health.report("units", units);
        }
    }
}
