//! The metrics of the watches: what came in, what failed, what had to be left out. Counts nothing
//! itself.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use slice_core::model::Kind;

use super::metrics::{ResourceLabel, raise, resource};

/// All that one watch has counted so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watched {
    /// Objects that came in by watch.
    pub events: u64,
    /// Full lists.
    pub lists: u64,
    /// Lists and watches that failed.
    pub failures: u64,
    /// Objects that could not be decoded.
    pub undecodable: u64,
    /// Times that the engine's queue was full.
    pub waits: u64,
}

/// The counters, by resource.
#[derive(Debug, Default)]
pub(super) struct WatchMetrics {
    events: Family<ResourceLabel, Counter>,
    lists: Family<ResourceLabel, Counter>,
    failures: Family<ResourceLabel, Counter>,
    undecodable: Family<ResourceLabel, Counter>,
    waits: Family<ResourceLabel, Counter>,
}

impl WatchMetrics {
    /// Makes them known, with their help texts.
    pub(super) fn register(&self, registry: &mut Registry) {
        for (name, help, family) in [
            (
                "slice_healer_watch_events",
                "Objects that came in by watch, by resource",
                &self.events,
            ),
            (
                "slice_healer_watch_lists",
                "Full lists that came through, by resource",
                &self.lists,
            ),
            (
                "slice_healer_watch_failures",
                "Lists and watches that failed, by resource",
                &self.failures,
            ),
            (
                "slice_healer_watch_undecodable",
                "Objects that could not be decoded and were left out, by resource",
                &self.undecodable,
            ),
            (
                "slice_healer_watch_waits",
                "Times that a watch had to wait for the engine, by resource",
                &self.waits,
            ),
        ] {
            registry.register(name, help, family.clone());
        }
    }

    /// Takes over the totals of one watch.
    pub(super) fn set(&self, kind: Kind, watched: &Watched) {
        let labels = ResourceLabel {
            resource: resource(kind),
        };
        for (family, total) in [
            (&self.events, watched.events),
            (&self.lists, watched.lists),
            (&self.failures, watched.failures),
            (&self.undecodable, watched.undecodable),
            (&self.waits, watched.waits),
        ] {
            raise(&family.get_or_create(&labels), total);
        }
    }
}
