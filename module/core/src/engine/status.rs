//! The engine's state as others may see it: twin, metrics, `/readyz`.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;

use super::Engine;
use crate::event::{HealOutcome, JournalState, Link, Now};
use crate::heal::gate::HoldReason;
use crate::heal::policy::Mode;
use crate::heal::story::IncidentRecord;
use crate::judge::{FindingKind, RemedyAction, Severity};
use crate::model::ServiceKey;

/// The health of what this module watches over, worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum HealthState {
    /// The cluster cannot be seen.
    Offline,
    /// Something is stale and held back.
    Blocked,
    /// Something is stale and being healed.
    Healing,
    /// Findings of severity warning or critical stand that no heal can mend.
    Degraded,
    /// All is right.
    Healthy,
}

/// A state, why, and since when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Health {
    /// The state.
    pub state: HealthState,
    /// One sentence.
    pub reason: String,
    /// Since when this state holds.
    pub since: Timestamp,
}

/// The state of the view on the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ClusterState {
    /// Everything needed is listed and followed.
    Synced,
    /// Not yet.
    Syncing,
    /// The API does not answer.
    Unreachable,
    /// The API refuses a needed verb.
    Forbidden,
}

/// The view on the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterStatus {
    /// Its state.
    pub state: ClusterState,
    /// What stands in the way, if something does.
    pub detail: Option<String>,
    /// The API server's version.
    pub server_version: Option<String>,
    /// The node this module runs on; `None` is unknown.
    pub node: Option<String>,
    /// Whether the search for the node has ended.
    pub node_known: bool,
    /// Services seen.
    pub services: usize,
    /// Slices seen.
    pub slices: usize,
    /// Endpoints in them.
    pub endpoints: usize,
    /// Pods seen.
    pub pods: usize,
}

/// The journal as signals see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalStatus {
    /// The follower's state.
    pub state: JournalState,
    /// Entries that matched a rule.
    pub signals: u64,
    /// When the last one was written.
    pub last_signal_at: Option<Timestamp>,
}

/// The findings that have stood for the grace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FindingCounts {
    /// Groups of findings of this severity.
    pub critical: usize,
    /// Likewise.
    pub warning: usize,
    /// Likewise.
    pub info: usize,
    /// By kind and severity, for metrics.
    pub by_kind: BTreeMap<(FindingKind, Severity), usize>,
    /// The worst Services, worst first; at most 8.
    pub worst: Vec<(ServiceKey, FindingKind)>,
    /// Slices with a warning or critical finding.
    pub stale_slices: usize,
}

/// The heals since the process started.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HealStatus {
    /// Proved.
    pub succeeded: u64,
    /// Ended otherwise after a write.
    pub failed: u64,
    /// Held back.
    pub held: u64,
    /// What `observe` would have done.
    pub shadow: u64,
    /// Of it, heals that would have begun with a refresh.
    pub shadow_refreshes: u64,
    /// Of it, heals that would have gone as far as to delete a slice, had the refresh not helped.
    pub shadow_deletes: u64,
    /// Held back, by reason.
    pub held_by_reason: BTreeMap<HoldReason, u64>,
    /// The last one that wrote.
    pub last: Option<LastHeal>,
}

/// A heal that wrote.
#[derive(Clone, Debug, PartialEq)]
pub struct LastHeal {
    /// Whose.
    pub service: ServiceKey,
    /// The last step.
    pub action: RemedyAction,
    /// How it ended.
    pub outcome: HealOutcome,
    /// When.
    pub at: Timestamp,
    /// From the first sight of the staleness.
    pub seconds: f64,
}

/// Everything at a glance.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    /// The mode in force.
    pub mode: Mode,
    /// Why windows or holds forbid writing at the moment, if they do.
    pub closed: Option<(HoldReason, String)>,
    /// The health.
    pub health: Health,
    /// The view on the cluster.
    pub cluster: ClusterStatus,
    /// The journal.
    pub journal: JournalStatus,
    /// What is wrong.
    pub findings: FindingCounts,
    /// What was done.
    pub heals: HealStatus,
}

impl Engine {
    /// Everything at a glance.
    pub fn status(&self, now: Now) -> Status {
        Status {
            mode: self.policy.mode,
            closed: self.policy.closed.clone(),
            health: self.health.clone().unwrap_or_else(|| self.assess(now)),
            cluster: self.cluster_status(),
            journal: JournalStatus {
                state: self.journal,
                signals: self.signals_seen,
                last_signal_at: self.last_signal,
            },
            findings: self.finding_counts(),
            heals: self.heals.clone(),
        }
    }

    pub(super) fn update_health(&mut self, now: Now) {
        let mut health = self.assess(now);
        if let Some(old) = &self.health
            && old.state == health.state
        {
            health.since = old.since;
        }
        self.health = Some(health);
    }

    fn assess(&self, now: Now) -> Health {
        let cluster = self.cluster_status();
        let held = self.incidents.values().find_map(|i| {
            i.held
                .as_ref()
                .map(|(reason, text)| (&i.service, reason, text))
        });
        let counts = self.finding_counts();
        let (state, reason) = if cluster.state != ClusterState::Synced {
            let why = cluster
                .detail
                .unwrap_or_else(|| "the first lists are not complete".into());
            (
                HealthState::Offline,
                format!("the cluster cannot be seen: {why}"),
            )
        } else if let Some((key, reason, text)) = held {
            (
                HealthState::Blocked,
                format!("{key} is stale and held back ({}): {text}", reason.as_str()),
            )
        } else if let Some(active) = &self.active {
            (
                HealthState::Healing,
                format!("{} is being healed", active.ladder.service()),
            )
        } else if let Some(i) = self.incidents.values().next() {
            (
                HealthState::Healing,
                format!("{} is stale; its grace is running", i.service),
            )
        } else if counts.critical + counts.warning > 0 {
            let worst = counts.worst.first();
            let what = worst.map_or_else(String::new, |(k, kind)| format!(": {kind} of {k}"));
            (
                HealthState::Degraded,
                format!("findings stand that no heal can mend{what}"),
            )
        } else {
            (
                HealthState::Healthy,
                "all slices say what they should".to_owned(),
            )
        };
        Health {
            state,
            reason,
            since: now.wall,
        }
    }

    fn cluster_status(&self) -> ClusterStatus {
        let (state, detail) = match self.links.worst() {
            _ if self.links.synced() => (ClusterState::Synced, None),
            Some((_, Link::Unreachable(why))) => (ClusterState::Unreachable, Some(why.clone())),
            Some((_, Link::Forbidden(why))) => (ClusterState::Forbidden, Some(why.clone())),
            _ => (ClusterState::Syncing, None),
        };
        let counts = self.world.counts();
        ClusterStatus {
            state,
            detail,
            server_version: self.server.as_ref().map(ToString::to_string),
            node: self.node.clone(),
            node_known: self.node_known,
            services: counts.services,
            slices: counts.slices,
            endpoints: counts.endpoints,
            pods: counts.pods,
        }
    }

    fn finding_counts(&self) -> FindingCounts {
        let mut counts = FindingCounts::default();
        let mut worst: BTreeMap<&ServiceKey, (Severity, FindingKind)> = BTreeMap::new();
        for (key, kind, severity) in self.standing.told() {
            match severity {
                Severity::Critical => counts.critical += 1,
                Severity::Warning => counts.warning += 1,
                Severity::Info => counts.info += 1,
            }
            *counts.by_kind.entry((kind, severity)).or_default() += 1;
            if severity < Severity::Info {
                let entry = worst.entry(key).or_insert((severity, kind));
                *entry = (*entry).min((severity, kind));
            }
        }
        if let Some(down) = self.canary.finding() {
            counts.critical += 1;
            *counts
                .by_kind
                .entry((down.kind, down.severity))
                .or_default() += 1;
        }
        counts.stale_slices = self.standing.stale_slices();
        let mut list: Vec<(Severity, &ServiceKey, FindingKind)> = worst
            .into_iter()
            .map(|(k, (s, kind))| (s, k, kind))
            .collect();
        list.sort();
        counts.worst = list
            .into_iter()
            .take(8)
            .map(|(_, k, kind)| (k.clone(), kind))
            .collect();
        counts
    }

    /// The incidents that stand, oldest first.
    pub fn incidents(&self, now: Now) -> Vec<IncidentRecord> {
        let mut all: Vec<IncidentRecord> = self
            .incidents
            .values()
            .filter_map(|i| i.record(now, false))
            .collect();
        all.sort_by_key(|i| i.opened);
        all
    }

    /// The health after the last step.
    pub fn health(&self) -> Option<&Health> {
        self.health.as_ref()
    }

    /// The node this module runs on, where it is known.
    pub fn node(&self) -> Option<&str> {
        self.node.as_deref()
    }

    /// The uid of a Service, as the watches know it.
    pub fn service_uid(&self, key: &ServiceKey) -> Option<String> {
        Some(self.world.view(key).service()?.meta.uid.to_string())
    }

    /// Whether the watch of a kind is synced, for the metric.
    pub fn is_synced(&self, kind: crate::model::Kind) -> bool {
        self.links.is_synced(kind)
    }
}
