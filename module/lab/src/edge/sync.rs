//! The background work of edgeHub: pushes reported properties to the cloud, notices when the cloud
//! comes back, and drops clients whose token has run out.

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;

use super::state::State;
use super::twin::Synced;
use super::world::World;

impl State {
    /// Pushes one module's confirmed properties. A push that the cloud refuses is not tried again
    /// before the module reports the next time or the cloud has been away.
    pub(crate) fn sync_reported(&mut self, module: &str) {
        let poison = self.faults.poison_reported;
        let Some(found) = self.modules.get_mut(module) else {
            return;
        };
        match found.twin.sync(poison) {
            Synced::Nothing => {}
            Synced::Taken => self.counters.reported_synced += 1,
            Synced::Refused(reason) => {
                tracing::debug!(module, reason, "the cloud refuses reported properties");
                self.counters.reported_refused += 1;
            }
        }
    }
}

/// Pushes at once after a quiet time, then at most once per interval.
pub(crate) async fn push_reported(world: Arc<World>) {
    let mut changes = world.changes();
    loop {
        if world.look(|state| !state.wanting_sync.is_empty()) {
            world.change(|state| {
                let wanting = std::mem::take(&mut state.wanting_sync);
                if !state.faults.cloud_offline {
                    wanting
                        .iter()
                        .for_each(|module| state.sync_reported(module));
                }
            });
            tokio::time::sleep(world.options.sync_interval).await;
        } else if changes.changed().await.is_err() {
            return;
        }
    }
}

/// Acts on the moment at which the cloud comes back.
pub(crate) async fn watch_cloud(world: Arc<World>) {
    let mut changes = world.changes();
    let mut was_offline = false;
    while changes.changed().await.is_ok() {
        let offline = world.look(|state| state.faults.cloud_offline);
        if was_offline && !offline {
            world.back_online();
        }
        was_offline = offline;
    }
}

/// Looks for expired tokens once per tick of the virtual clock.
pub(crate) async fn expire_tokens(world: Arc<World>) {
    let tick = SignedDuration::try_from(world.options.expiry_tick).unwrap_or(SignedDuration::MAX);
    let skew = SignedDuration::try_from(world.options.clock_skew).unwrap_or_default();
    let mut changes = world.changes();
    let mut last = world.clock.now();
    loop {
        // The clock may have been set back.
        last = last.min(world.clock.now());
        let left = tick - world.clock.now().duration_since(last);
        let Ok(left) = Duration::try_from(left) else {
            last = world.clock.now();
            let end = (last - skew).as_second();
            let expired =
                world.look(|state| state.live.values().any(|live| live.token_expires < end));
            if expired {
                world.change(|state| {
                    for live in state.live.values().filter(|live| live.token_expires < end) {
                        state.counters.token_expired += 1;
                        live.closer.close("the token has expired");
                    }
                });
            }
            continue;
        };
        tokio::select! {
            () = tokio::time::sleep(left) => {}
            changed = changes.changed() => {
                if changed.is_err() {
                    return;
                }
            }
        }
    }
}
