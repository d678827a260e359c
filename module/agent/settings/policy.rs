//! What the core is told of the settings. Pure: nothing is decided here.

use std::collections::BTreeMap;

use jiff::Timestamp;
use slice_core::heal::policy::{Budgets, Grace, Pace, Policy, Scope};

use super::model::Settings;

/// Why the settings forbid writing at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Closed {
    /// No opening time covers it.
    OutsideWindow,
    /// A named hold.
    Hold {
        /// Its name.
        name: String,
        /// When it ends.
        until: Timestamp,
    },
}

impl Settings {
    /// The policy of the core.
    pub fn to_policy(&self) -> Policy {
        let pace = &self.heal.pace;
        Policy {
            mode: self.mode,
            scope: Scope {
                locality: self.scope.locality,
                namespaces: self.scope.namespaces.0.clone(),
                exclude_namespaces: self.scope.exclude_namespaces.0.clone(),
                service_selector: self.scope.service_selector.0.clone().into_iter().collect(),
            },
            grace: Grace {
                refresh: self.grace.refresh.0,
                delete: self.grace.delete.0,
                refresh_on_signal: self.grace.refresh_on_signal.0,
                delete_on_signal: self.grace.delete_on_signal.0,
            },
            ladder: self.ladder.0.clone(),
            budgets: Budgets {
                per_service_per_hour: self.budgets.per_service_per_hour,
                per_namespace_per_hour: self.budgets.per_namespace_per_hour,
                per_node_per_hour: self.budgets.per_node_per_hour,
                max_lost_endpoints: usize::try_from(self.budgets.max_lost_endpoints)
                    .unwrap_or(usize::MAX),
            },
            delete_leftover: self.heal.delete_leftover,
            load_balancers: self.heal.load_balancers,
            pace: Pace {
                look_again: pace.look_again.0.iter().map(|span| span.0).collect(),
                after_delete: pace.after_delete.0,
                recreate: pace.recreate.0.iter().map(|span| span.0).collect(),
                recreate_deadline: pace.recreate_deadline.0,
                verify_gap: pace.verify_gap.0,
                settle: pace.settle.0,
                cool_down: pace.cool_down.0,
                action_deadline: pace.action_deadline.0,
            },
            canary: self.heal.canary,
            lease: self.heal.lease,
            signal_window: self.grace.signal_window.0,
            churn_per_minute: self.findings.churn_per_minute,
            // Windows and holds depend on the time: see `closed_at`.
            closed: None,
        }
    }

    /// Whether windows and holds forbid writing now; `more` are holds that were set at run time. A
    /// hold wins: it has a name to release.
    pub fn closed_at(&self, now: Timestamp, more: &BTreeMap<String, Timestamp>) -> Option<Closed> {
        let hold = self
            .holds
            .iter()
            .chain(more)
            .filter(|(_, until)| now < **until)
            .max_by_key(|(_, until)| **until);
        if let Some((name, until)) = hold {
            return Some(Closed::Hold {
                name: name.clone(),
                until: *until,
            });
        }
        let shut =
            !self.windows.is_empty() && !self.windows.values().any(|window| window.is_open(now));
        shut.then_some(Closed::OutsideWindow)
    }
}
