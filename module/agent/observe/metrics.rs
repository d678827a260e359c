//! Every metric, with its help text and its closed label sets (contract: metrics). Labels never hold
//! the name of an object. Text format 0.0.4, because promtool refuses the OpenMetrics form.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::encoding::{EncodeLabelSet, prometheus_text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use slice_core::event::HealOutcome;
use slice_core::heal::gate::HoldReason;
use slice_core::judge::{FindingKind, RemedyAction, Severity};
use slice_core::model::Kind;

use crate::expiry::{Credential, Ends};

use super::held::HeldMetrics;
pub use super::queue::Queue;
use super::watches::WatchMetrics;
pub use super::watches::Watched;

/// The content type of [`Metrics::render`].
pub const CONTENT_TYPE: &str = prometheus_text::CONTENT_TYPE;

/// The rule label of signals whose rule is not built in.
const CUSTOM: &str = "custom";

const OUTCOMES: [HealOutcome; 8] = [
    HealOutcome::Healed,
    HealOutcome::HealedByItself,
    HealOutcome::NotVerified,
    HealOutcome::StillStale,
    HealOutcome::NotRecreated,
    HealOutcome::Conflict,
    HealOutcome::Forbidden,
    HealOutcome::Failed,
];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FindingLabels {
    kind: &'static str,
    severity: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HealLabels {
    action: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ReasonLabel {
    pub(super) reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RuleLabel {
    rule: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ResourceLabel {
    pub(super) resource: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QueueLabel {
    queue: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CredentialLabel {
    credential: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VersionLabel {
    version: String,
}

/// All metrics of the process. Shared behind an `Arc`; every method may be called from any task.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    rules: Vec<String>,
    findings: Family<FindingLabels, Gauge>,
    stale_slices: Gauge,
    heals: Family<HealLabels, Counter>,
    held: Family<ReasonLabel, Counter>,
    heal_seconds: Histogram,
    detection_seconds: Histogram,
    journal_entries: Counter,
    signals: Family<RuleLabel, Counter>,
    hub_connected: Gauge,
    outbox_messages: Gauge<u64, AtomicU64>,
    outbox_dropped: Counter,
    cluster_synced: Family<ResourceLabel, Gauge>,
    store_written: Counter,
    store_set_aside: Counter,
    not_done: HeldMetrics,
    watches: WatchMetrics,
    units_followed: Gauge,
    queue_dropped: Family<QueueLabel, Counter>,
    credential_ends: Family<CredentialLabel, Gauge>,
}

impl Metrics {
    /// All metrics at zero. `rules` are the ids of the built-in journal rules; signals of any other
    /// rule count as `custom`.
    pub fn new(version: &str, rules: impl IntoIterator<Item = String>) -> Self {
        let mut registry = Registry::default();
        let metrics = Self {
            rules: rules.into_iter().collect(),
            findings: Family::default(),
            stale_slices: Gauge::default(),
            heals: Family::default(),
            held: Family::default(),
            heal_seconds: Histogram::new([
                0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0,
            ]),
            detection_seconds: Histogram::new([0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0]),
            journal_entries: Counter::default(),
            signals: Family::default(),
            hub_connected: Gauge::default(),
            outbox_messages: Gauge::default(),
            outbox_dropped: Counter::default(),
            cluster_synced: Family::default(),
            store_written: Counter::default(),
            store_set_aside: Counter::default(),
            not_done: HeldMetrics::default(),
            watches: WatchMetrics::default(),
            units_followed: Gauge::default(),
            queue_dropped: Family::default(),
            credential_ends: Family::default(),
            registry: Registry::default(),
        };
        let build: Family<VersionLabel, Gauge> = Family::default();
        build
            .get_or_create(&VersionLabel {
                version: version.to_owned(),
            })
            .set(1);

        // The encoder ends each help text with a full stop and each counter with `_total`.
        registry.register(
            "slice_healer_findings",
            "Findings by kind and severity",
            metrics.findings.clone(),
        );
        registry.register(
            "endpoint_slice_stale",
            "EndpointSlices with a warning or critical finding",
            metrics.stale_slices.clone(),
        );
        registry.register(
            "slice_healer_heals",
            "Heals that ended, by last action and outcome",
            metrics.heals.clone(),
        );
        registry.register(
            "slice_healer_heals_held",
            "Heals that were held back, by reason",
            metrics.held.clone(),
        );
        registry.register(
            "slice_healer_heal_duration_seconds",
            "Time from the first sight of a staleness to its proved end, in seconds",
            metrics.heal_seconds.clone(),
        );
        registry.register(
            "slice_healer_detection_seconds",
            "Time from a change in the cluster to the finding about it, in seconds",
            metrics.detection_seconds.clone(),
        );
        registry.register(
            "slice_healer_journal_entries",
            "Journal entries read",
            metrics.journal_entries.clone(),
        );
        registry.register(
            "slice_healer_signals",
            "Journal signals, by rule",
            metrics.signals.clone(),
        );
        registry.register(
            "slice_healer_hub_connected",
            "1 while the module client is connected",
            metrics.hub_connected.clone(),
        );
        registry.register(
            "slice_healer_outbox_messages",
            "Telemetry messages that wait for the hub",
            metrics.outbox_messages.clone(),
        );
        registry.register(
            "slice_healer_outbox_dropped",
            "Telemetry messages dropped because the outbox was full or they had waited too long",
            metrics.outbox_dropped.clone(),
        );
        registry.register(
            "slice_healer_cluster_synced",
            "1 while the watch of the resource is listed and followed",
            metrics.cluster_synced.clone(),
        );
        registry.register(
            "slice_healer_store_written_bytes",
            "Bytes handed to the state file",
            metrics.store_written.clone(),
        );
        registry.register(
            "slice_healer_store_set_aside",
            "State files that were damaged and moved aside",
            metrics.store_set_aside.clone(),
        );
        metrics.not_done.register(&mut registry);
        metrics.watches.register(&mut registry);
        registry.register(
            "slice_healer_units_followed",
            "1 while the states of the host's units are seen over D-Bus",
            metrics.units_followed.clone(),
        );
        registry.register(
            "slice_healer_queue_dropped",
            "Items that a full queue refused, by queue",
            metrics.queue_dropped.clone(),
        );
        registry.register(
            "slice_healer_credential_end_timestamp_seconds",
            "When the certificate or token ends, in seconds since 1970; what does not end has no line",
            metrics.credential_ends.clone(),
        );
        registry.register(
            "slice_healer_build_info",
            "1, with the version of this process",
            build,
        );

        metrics.start_at_zero();
        Self {
            registry,
            ..metrics
        }
    }

    /// A series that appears only with its first event cannot be seen to rise by it.
    fn start_at_zero(&self) {
        for action in [
            RemedyAction::RefreshService,
            RemedyAction::DeleteSlice,
            RemedyAction::None,
        ] {
            for outcome in OUTCOMES {
                self.heals.get_or_create_owned(&HealLabels {
                    action: action.as_str(),
                    outcome: outcome.as_str(),
                });
            }
        }
        for reason in HoldReason::ALL {
            self.held.get_or_create_owned(&ReasonLabel {
                reason: reason.as_str(),
            });
        }
        for rule in self.rules.iter().map(String::as_str).chain([CUSTOM]) {
            self.signals.get_or_create_owned(&RuleLabel {
                rule: rule.to_owned(),
            });
        }
        for kind in Kind::ALL {
            self.set_watched(kind, &Watched::default());
            self.cluster_synced.get_or_create_owned(&ResourceLabel {
                resource: resource(kind),
            });
        }
        for queue in Queue::ALL {
            self.queue_dropped.get_or_create_owned(&QueueLabel {
                queue: queue.as_str(),
            });
        }
    }

    /// The findings as they stand, and how many slices are stale.
    pub fn set_findings(
        &self,
        findings: impl IntoIterator<Item = (FindingKind, Severity)>,
        stale_slices: usize,
    ) {
        let mut counts: BTreeMap<(FindingKind, Severity), i64> = BTreeMap::new();
        for finding in findings {
            *counts.entry(finding).or_default() += 1;
        }
        for kind in FindingKind::ALL {
            for severity in Severity::ALL {
                let labels = FindingLabels {
                    kind: kind.as_str(),
                    severity: severity.as_str(),
                };
                match counts.get(&(kind, severity)) {
                    Some(count) => {
                        self.findings.get_or_create(&labels).set(*count);
                    }
                    // A series that was seen goes to zero; the others need no line.
                    None => {
                        if let Some(gauge) = self.findings.get(&labels) {
                            gauge.set(0);
                        }
                    }
                }
            }
        }
        self.stale_slices
            .set(i64::try_from(stale_slices).unwrap_or(i64::MAX));
    }

    /// A heal ended after so many seconds.
    pub fn heal_ended(&self, action: RemedyAction, outcome: HealOutcome, seconds: f64) {
        let labels = HealLabels {
            action: action.as_str(),
            outcome: outcome.as_str(),
        };
        self.heals.get_or_create(&labels).inc();
        if outcome.is_success() {
            self.heal_seconds.observe(seconds);
        }
    }

    /// A heal was held back.
    pub fn heal_held(&self, reason: HoldReason) {
        self.held
            .get_or_create(&ReasonLabel {
                reason: reason.as_str(),
            })
            .inc();
    }

    /// A finding opened so many seconds after the change that it is about.
    pub fn detected(&self, seconds: f64) {
        self.detection_seconds.observe(seconds);
    }

    /// Journal entries were read.
    pub fn journal_read(&self, entries: u64) {
        self.journal_entries.inc_by(entries);
    }

    /// A rule matched so often.
    pub fn signalled(&self, rule: &str, count: u64) {
        let rule = if self.rules.iter().any(|known| known == rule) {
            rule
        } else {
            CUSTOM
        };
        self.signals
            .get_or_create(&RuleLabel {
                rule: rule.to_owned(),
            })
            .inc_by(count);
    }

    /// Whether the module client is connected.
    pub fn set_hub_connected(&self, connected: bool) {
        self.hub_connected.set(i64::from(connected));
    }

    /// How the outbox stands: messages that wait, and all that were ever dropped by this process.
    pub fn set_outbox(&self, waiting: u64, dropped: u64) {
        self.outbox_messages.set(waiting);
        raise(&self.outbox_dropped, dropped);
    }

    /// Whether the watch of a kind is synced.
    pub fn set_synced(&self, kind: Kind, synced: bool) {
        self.cluster_synced
            .get_or_create(&ResourceLabel {
                resource: resource(kind),
            })
            .set(i64::from(synced));
    }

    /// All steps that `observe` would have taken so far.
    pub fn set_shadow(&self, refreshes: u64, deletes: u64) {
        self.not_done.set_shadow(refreshes, deletes);
    }

    /// What forbids writing at the moment, if windows or holds do.
    pub fn set_closed(&self, closed: Option<HoldReason>) {
        self.not_done.set_closed(closed);
    }

    /// All that the watch of a kind has counted.
    pub fn set_watched(&self, kind: Kind, watched: &Watched) {
        self.watches.set(kind, watched);
    }

    /// Whether units are seen.
    pub fn set_units_followed(&self, followed: bool) {
        self.units_followed.set(i64::from(followed));
    }

    /// All bytes that this process handed to the state file.
    pub fn set_store_written(&self, bytes: u64) {
        raise(&self.store_written, bytes);
    }

    /// When the credentials end.
    pub fn set_ends(&self, ends: &Ends) {
        for credential in Credential::ALL {
            let labels = CredentialLabel {
                credential: credential.as_str(),
            };
            match ends.at.get(&credential) {
                Some(at) => {
                    let gauge = self.credential_ends.get_or_create(&labels);
                    gauge.set(at.as_second());
                }
                // A token that does not end any more is no alarm any more.
                None => {
                    self.credential_ends.remove(&labels);
                }
            }
        }
    }

    /// A damaged state file was moved aside.
    pub fn store_set_aside(&self) {
        self.store_set_aside.inc();
    }

    /// A full queue refused an item.
    pub fn dropped(&self, queue: Queue) {
        self.queue_dropped
            .get_or_create(&QueueLabel {
                queue: queue.as_str(),
            })
            .inc();
    }

    /// All that a full queue refused so far, where somebody else counts.
    pub fn set_dropped(&self, queue: Queue, total: u64) {
        raise(
            &self.queue_dropped.get_or_create(&QueueLabel {
                queue: queue.as_str(),
            }),
            total,
        );
    }

    /// The text for a scrape.
    pub fn render(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = prometheus_text::encode(&mut text, &self.registry);
        text
    }
}

/// A counter never goes down, also when two tasks tell their totals out of order.
pub(super) fn raise(counter: &Counter, total: u64) {
    counter.inner().fetch_max(total, Ordering::Relaxed);
}

/// The resource names of the API.
pub(super) fn resource(kind: Kind) -> &'static str {
    match kind {
        Kind::Service => "services",
        Kind::Pod => "pods",
        Kind::Node => "nodes",
        Kind::EndpointSlice => "endpointslices",
        Kind::Endpoints => "endpoints",
        Kind::Namespace => "namespaces",
    }
}

#[cfg(test)]
#[path = "metrics_tests.rs"]
mod tests;
