//! The metrics of what is not done: by time, and in mode `observe`. Counts nothing itself.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use slice_core::heal::gate::HoldReason;
use slice_core::judge::RemedyAction;

use super::metrics::{ReasonLabel, raise};

/// What can forbid writing by time.
const CLOSED: [HoldReason; 2] = [HoldReason::OutsideWindow, HoldReason::Hold];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ActionLabel {
    action: &'static str,
}

/// Both families.
#[derive(Debug, Default)]
pub(super) struct HeldMetrics {
    closed: Family<ReasonLabel, Gauge>,
    shadow: Family<ActionLabel, Counter>,
}

impl HeldMetrics {
    /// Makes them known, with their help texts, each series at zero.
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "slice_healer_closed",
            "1 while nothing is written, by what forbids it: a hold, or no open window",
            self.closed.clone(),
        );
        registry.register(
            "slice_healer_shadow",
            "Steps that mode observe would have taken, by action",
            self.shadow.clone(),
        );
        self.set_closed(None);
        self.set_shadow(0, 0);
    }

    /// What forbids writing at the moment.
    pub(super) fn set_closed(&self, closed: Option<HoldReason>) {
        for reason in CLOSED {
            let labels = ReasonLabel {
                reason: reason.as_str(),
            };
            let gauge = self.closed.get_or_create(&labels);
            gauge.set(i64::from(closed == Some(reason)));
        }
    }

    /// All steps that `observe` would have taken so far.
    pub(super) fn set_shadow(&self, refreshes: u64, deletes: u64) {
        for (action, total) in [
            (RemedyAction::RefreshService, refreshes),
            (RemedyAction::DeleteSlice, deletes),
        ] {
            let labels = ActionLabel {
                action: action.as_str(),
            };
            raise(&self.shadow.get_or_create(&labels), total);
        }
    }
}
