//! How the controller is told to misbehave.

use std::collections::HashSet;
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::super::resource::ENDPOINT_SLICES;
use super::super::status::ApiError;
use super::tracker::ServiceKey;

/// Why a write of the controller fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// An admission policy denies it.
    Denied,
    /// Somebody else writes the slices all the time.
    Conflict,
}

impl Refusal {
    pub(super) fn error(self, slice: &str) -> ApiError {
        match self {
            Self::Conflict => ApiError::modified(&ENDPOINT_SLICES, slice),
            Self::Denied => {
                let user = "system:kube-controller-manager";
                let mut denied = ApiError::forbidden(&ENDPOINT_SLICES, "update", None, slice, user);
                denied.message = format!(
                    "{} \"{slice}\" is forbidden: ValidatingAdmissionPolicy 'lab' with binding \
                     'lab' denied request: slices are frozen",
                    ENDPOINT_SLICES.qualified
                );
                denied
            }
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Behaviour {
    pub(super) paused: bool,
    /// Taken by the task when it has restarted.
    pub(super) restart: bool,
    pub(super) cache_hits: HashSet<ServiceKey>,
    pub(super) refusal: Option<Refusal>,
    pub(super) no_creates_until: Option<Instant>,
    /// In place of the option's.
    pub(super) backoff: Option<Duration>,
}

/// Shared by the handle, which writes, and the task, which reads.
#[derive(Debug, Default)]
pub(super) struct Control {
    behaviour: Mutex<Behaviour>,
    pub(super) changed: Notify,
    /// Counts changes of the behaviour, so that a handle can wait until the task knows them.
    pub(super) epoch: AtomicU64,
}

impl Control {
    pub(super) fn behaviour(&self) -> MutexGuard<'_, Behaviour> {
        self.behaviour
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
