//! Carries out what the core decided: the only code that writes to the cluster.
//!
//! Decides nothing, repeats nothing on its own, and writes only to what was judged: every write is
//! bound to a uid or a version.

mod call;
mod canary;
mod diagnose;
mod lease;
pub mod permissions;
mod read;
pub mod recorder;
mod write;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use slice_core::event::{Act, Action, Outcome};
use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

use crate::client::Supply;
use call::Caller;

pub use slice_core::heal::gate::REFRESH;

/// Namespace, canary Service and Lease.
pub const OWN_NAME: &str = "slice-healer";
/// Named in `managedFields` as the writer.
pub(crate) const FIELD_MANAGER: &str = "slice-healer";

/// What the actor needs to know beside the action.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whose actions these are, as a person would name it: the device, or `cli@host`.
    pub identity: String,
    /// The namespace of canary and Lease.
    pub namespace: String,
    /// How long the Lease is held without being taken again.
    pub lease: Duration,
    /// How long the slice controller may take to strip the canary's label.
    pub canary: Duration,
}

impl Options {
    /// The contract's names and times.
    pub fn new(identity: impl Into<String>) -> Self {
        Self {
            identity: identity.into(),
            namespace: OWN_NAME.to_owned(),
            lease: Duration::from_secs(60),
            canary: Duration::from_secs(5),
        }
    }
}

/// Carries out actions. Cheap to clone; clones are the same holder of the Lease.
#[derive(Clone)]
pub struct Actor {
    supply: Supply,
    options: Arc<Options>,
    holder: Arc<str>,
    canaries: Arc<AtomicU64>,
}

impl Actor {
    /// Makes an actor with a holder identity of its own.
    pub fn new(supply: Supply, options: Options) -> Self {
        let holder = format!("{}_{}", options.identity, Uuid::new_v4()).into();
        let canaries = Arc::new(AtomicU64::new(0));
        Self {
            supply,
            options: Arc::new(options),
            holder,
            canaries,
        }
    }

    /// What this actor is called in the Lease.
    pub fn holder(&self) -> &str {
        &self.holder
    }

    /// Carries out one action; ends within its deadline, whatever the API does.
    pub async fn run(&self, action: Action) -> Outcome {
        let client = match self.supply.current() {
            Ok(client) => client,
            Err(reason) => return Outcome::Failed(reason.to_string()),
        };
        let deadline = Instant::now() + action.deadline;
        let caller = Caller::new(client, deadline);
        // Every request ends at the deadline by itself and says what is known about it; this only
        // makes sure.
        let margin = deadline + Duration::from_secs(1);
        match timeout_at(margin, self.act(&caller, action.act)).await {
            Ok(outcome) => outcome,
            Err(_) => Outcome::Failed(format!("not done within {:?}", action.deadline)),
        }
    }

    async fn act(&self, caller: &Caller, act: Act) -> Outcome {
        match act {
            Act::Read { service } => match read::snapshot(caller, &service).await {
                Ok(snapshot) => Outcome::Snapshot(Box::new(snapshot)),
                Err(failure) => failure.outcome(),
            },
            Act::Refresh {
                service,
                uid,
                value,
            } => write::refresh(caller, &service, &uid, &value).await,
            Act::Delete {
                service,
                slice,
                uid,
                resource_version,
            } => {
                let version = write::Version {
                    uid: &uid,
                    resource_version: &resource_version,
                };
                write::delete(caller, &service.namespace, &slice, version).await
            }
            Act::Diagnose { service } => match diagnose::clues(caller, &service).await {
                Ok(clues) => Outcome::Clues(Box::new(clues)),
                Err(failure) => failure.outcome(),
            },
            Act::Canary => {
                let number = self.canaries.fetch_add(1, Ordering::Relaxed);
                canary::ask(caller, &self.options, &self.holder, number).await
            }
            Act::TakeLease => lease::take(caller, &self.options, &self.holder).await,
            Act::ReleaseLease => lease::release(caller, &self.options, &self.holder).await,
        }
    }
}

#[cfg(test)]
mod tests;
