//! Looks every few hours at when the credentials end, and tells the pump and the log. Renews nothing,
//! and keeps nobody from healing.

use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::Incoming;
use crate::client::Supply;
use crate::expiry::{self, Ends, Left, Places};

/// Between two looks. What ends within days is seen days before it does.
const AGAIN: Duration = Duration::from_secs(6 * 3600);
/// Between two looks while something has never been seen, such as edgeHub that starts after us.
const SOONER: Duration = Duration::from_secs(600);
/// All steps of one look, with room.
const LOOK: Duration = Duration::from_secs(60);

/// Starts the task. Credentials are no heal: the task may end without taking the module along.
pub(super) fn watch(
    places: Places,
    mut supply: Supply,
    tx: mpsc::Sender<Incoming>,
    stop: CancellationToken,
) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut ends = Ends::default();
        let mut told = Left::Unknown;
        loop {
            let client = supply.take().ok();
            let seen = tokio::select! {
                () = stop.cancelled() => return,
                seen = timeout(LOOK, expiry::look(&places, client.as_ref(), &ends)) => seen,
            };
            if let Ok(seen) = seen {
                ends = seen;
                told = tell(&ends, told);
                if tx.send(Incoming::Ends(ends.clone())).await.is_err() {
                    return;
                }
            }
            let pause = if ends.covers(&places) { AGAIN } else { SOONER };
            tokio::select! {
                () = stop.cancelled() => return,
                () = sleep(pause) => {}
                // Another kubeconfig, another token.
                () = supply.changed() => {}
            }
        }
    })
}

/// One line each time that it gets worse.
fn tell(ends: &Ends, before: Left) -> Left {
    let left = ends.left(Timestamp::now());
    if left < Left::Long
        && left < before
        && let Some((credential, at)) = ends.first()
    {
        warn!(
            credential = credential.as_str(),
            ends = %at,
            "{}: {}; {}",
            credential.what(),
            left.as_str(),
            credential.fix()
        );
    }
    left
}
