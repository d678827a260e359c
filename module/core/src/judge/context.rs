//! What a judgement depends on beside the objects themselves.

use jiff::Timestamp;

use crate::heal::policy::{LoadBalancers, Scope};
use crate::model::ServerVersion;

/// What a judgement depends on beside the objects: pure values, filled by the caller.
#[derive(Clone, Debug)]
pub struct JudgeContext {
    /// The API server's version; rules that changed accept both forms while it is unknown.
    pub server: Option<ServerVersion>,
    /// The moment of judging.
    pub now: Timestamp,
    /// The node that the judge runs on, where it is known.
    pub node: Option<String>,
    /// What is judged and what is left alone.
    pub scope: Scope,
    /// Whether slices of Services that the controller does not look at may be deleted.
    pub delete_leftover: bool,
    /// What is done about Services of type LoadBalancer.
    pub load_balancers: LoadBalancers,
    /// What is known of the slice controller beside its work.
    pub controller: ControllerSign,
    /// Whether much drift at once counts as a dead controller. In a dump nothing else can tell;
    /// beside a running canary it is left to the canary.
    pub mass_guard: bool,
}

impl JudgeContext {
    /// Judges everything as of `now`, knowing nothing else.
    pub fn at(now: Timestamp) -> Self {
        Self {
            server: None,
            now,
            node: None,
            scope: Scope {
                locality: crate::heal::policy::Locality::Cluster,
                ..Scope::default()
            },
            delete_leftover: false,
            load_balancers: LoadBalancers::default(),
            controller: ControllerSign::Unknown,
            mass_guard: true,
        }
    }

    /// Whether the server is known to be at least this new. Unknown counts as new.
    pub(crate) fn is_at_least(&self, minor: u32) -> bool {
        self.server.as_ref().is_none_or(|v| v.is_at_least(1, minor))
    }

    /// Whether the server is known to be older than this.
    pub(crate) fn is_older_than(&self, minor: u32) -> bool {
        !self.is_at_least(minor)
    }
}

/// What is known of the slice controller beside its work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ControllerSign {
    /// Nothing.
    #[default]
    Unknown,
    /// It works: the canary answered.
    Works,
    /// It does not; the text says how that is known and ends no sentence.
    Down(String),
}
