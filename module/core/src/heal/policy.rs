//! The settings that decide: what may be done, where, how fast and how often. Pure values; the
//! agent fills them from its layers and from the twin.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::gate::HoldReason;

/// Whether slice-healer writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Judges, reports and counts what it would have done.
    #[default]
    Observe,
    /// Heals.
    Heal,
}

impl Mode {
    /// The name in settings and twin.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Observe => "observe",
            Self::Heal => "heal",
        }
    }
}

/// Which Services are judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Locality {
    /// Those with an endpoint on this node, and those with neither pod nor endpoint.
    #[default]
    Node,
    /// All.
    Cluster,
}

/// The scope of judging.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// By node or by cluster.
    pub locality: Locality,
    /// Only these namespaces; empty means all.
    pub namespaces: Vec<String>,
    /// Never these.
    pub exclude_namespaces: Vec<String>,
    /// Only Services that carry all these labels.
    pub service_selector: Vec<(String, String)>,
}

/// How long a difference must stand before something is done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grace {
    /// Before a refresh.
    pub refresh: Duration,
    /// Before a delete.
    pub delete: Duration,
    /// Before a refresh, when the journal spoke.
    pub refresh_on_signal: Duration,
    /// Before a delete, when the journal spoke.
    pub delete_on_signal: Duration,
}

impl Default for Grace {
    fn default() -> Self {
        Self {
            refresh: Duration::from_secs(5),
            delete: Duration::from_secs(30),
            refresh_on_signal: Duration::from_secs(3),
            delete_on_signal: Duration::from_secs(10),
        }
    }
}

/// A step of the ladder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// Patch the refresh annotation of the Service: the controller computes everything again.
    RefreshService,
    /// Delete the stale slice, then refresh until it is there again.
    DeleteSlice,
}

/// How often heals may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budgets {
    /// Heals of one Service an hour.
    pub per_service_per_hour: u32,
    /// Heals in one namespace an hour.
    pub per_namespace_per_hour: u32,
    /// Heals by this module an hour.
    pub per_node_per_hour: u32,
    /// Correct ready endpoints that one delete may take away for a moment.
    pub max_lost_endpoints: usize,
}

impl Default for Budgets {
    fn default() -> Self {
        Self {
            per_service_per_hour: 6,
            per_namespace_per_hour: 20,
            per_node_per_hour: 60,
            max_lost_endpoints: 10,
        }
    }
}

/// What is done about Services of type LoadBalancer, whose cloud controllers act on every
/// annotation change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LoadBalancers {
    /// Refreshed with ten times the cool-down.
    #[default]
    Slow,
    /// Never written to.
    Skip,
    /// Like any other.
    Heal,
}

/// The waits inside a heal. The defaults are the ones that suit a real controller; the lab shortens
/// them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pace {
    /// After each refresh, how long until the next step. Its length is how many refreshes there are.
    pub look_again: Vec<Duration>,
    /// After the DELETED event, before the next refresh: a refresh that comes before the
    /// controller's own cache has seen the deletion changes nothing.
    pub after_delete: Duration,
    /// When to refresh after that, until a new slice is there.
    pub recreate: Vec<Duration>,
    /// How long a deleted slice may stay away.
    pub recreate_deadline: Duration,
    /// Between the two reads that prove a heal.
    pub verify_gap: Duration,
    /// How long the API may have been back before anything is written.
    pub settle: Duration,
    /// Pause after a heal of a Service; doubles with each heal of it that did not help.
    pub cool_down: Duration,
    /// Deadline of one action.
    pub action_deadline: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        let s = Duration::from_secs;
        Self {
            look_again: vec![s(10), s(20)],
            after_delete: s(2),
            recreate: vec![s(0), s(5), s(15), s(45)],
            recreate_deadline: s(60),
            verify_gap: s(5),
            settle: s(60),
            cool_down: s(60),
            action_deadline: s(15),
        }
    }
}

/// Everything that the engine is told by settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Observe or heal.
    pub mode: Mode,
    /// What is judged.
    pub scope: Scope,
    /// How long to wait.
    pub grace: Grace,
    /// Which steps, in order.
    pub ladder: Vec<Step>,
    /// How often.
    pub budgets: Budgets,
    /// Whether slices of Services without a selector may be deleted.
    pub delete_leftover: bool,
    /// What to do with LoadBalancer Services.
    pub load_balancers: LoadBalancers,
    /// The waits inside a heal.
    pub pace: Pace,
    /// Whether a delete needs the canary's answer.
    pub canary: bool,
    /// Whether a heal takes the Lease.
    pub lease: bool,
    /// How long a signal shortens the graces.
    pub signal_window: Duration,
    /// Slice updates of one Service in a minute that count as churn.
    pub churn_per_minute: u32,
    /// Why windows or holds forbid writing at the moment, if they do.
    pub closed: Option<(HoldReason, String)>,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            mode: Mode::default(),
            scope: Scope {
                exclude_namespaces: vec!["kube-system".to_owned()],
                ..Scope::default()
            },
            grace: Grace::default(),
            ladder: vec![Step::RefreshService, Step::DeleteSlice],
            budgets: Budgets::default(),
            delete_leftover: false,
            load_balancers: LoadBalancers::default(),
            pace: Pace::default(),
            canary: true,
            lease: true,
            signal_window: Duration::from_secs(120),
            churn_per_minute: 30,
            closed: None,
        }
    }
}
