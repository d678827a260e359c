//! What the real slice controller does when nobody helps it: the facts that the ladder rests on.
//!
//! No slice-healer here. If one of these fails on a new Kubernetes, the ladder has to be thought
//! through again.

use std::io::Write as _;
use std::time::Duration;

use anyhow::Result;

use crate::support::controlplane::{ControlPlane, Options};
use crate::support::stale::{self, Change, PROMPT};

/// Past the capture of the test harness: measured times belong in the log of a green run.
fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "real controller: {text}");
}

#[tokio::test]
async fn pods_replaced_under_a_healthy_controller_leave_right_slices() -> Result<()> {
    let plane = ControlPlane::shared().await?;
    let mut state = stale::healthy(plane, "healthy").await?;
    state.redeploy().await?;
    let took = state.await_right(PROMPT).await?;
    note(&format!("a redeployment is in the slices after {took:.1?}"));
    Ok(())
}

#[tokio::test]
async fn after_denied_writes_the_slices_stay_stale_until_the_service_is_refreshed() -> Result<()> {
    let plane = ControlPlane::shared().await?;
    let left = Duration::from_secs(60);
    let (state, left) = stale::admission_backoff(plane, Change::Redeployment, left).await?;
    note(&format!(
        "in back-off: stale for another {left:.0?} if nobody helps"
    ));
    state.stays_wrong(Duration::from_secs(20)).await?;
    state.touch("1").await?;
    let took = state.await_right(Duration::from_secs(5)).await?;
    note(&format!("in back-off: healed {took:.1?} after a refresh"));
    Ok(())
}

#[tokio::test]
async fn after_denied_writes_the_controller_comes_back_when_its_back_off_ends() -> Result<()> {
    let plane = ControlPlane::shared().await?;
    let left = Duration::from_secs(5);
    let (state, left) = stale::admission_backoff(plane, Change::PodLost, left).await?;
    let took = state.await_right(left + PROMPT).await?;
    note(&format!(
        "in back-off: healed by itself after {took:.1?}, {left:.1?} were foretold"
    ));
    Ok(())
}

#[tokio::test]
async fn a_slice_deleted_after_a_controller_restart_stays_gone() -> Result<()> {
    let plane = ControlPlane::start(Options::default()).await?;
    let state = stale::untracked_delete(&plane).await?;
    state.stays_without_slices(Duration::from_secs(20)).await?;
    state.touch("1").await?;
    let took = state.await_right(PROMPT).await?;
    note(&format!(
        "untracked and deleted: back {took:.1?} after a refresh"
    ));

    // Now that this process has made the slice it tracks it, and the same delete is harmless.
    state.delete_slices().await?;
    let took = state.await_right(PROMPT).await?;
    note(&format!("tracked and deleted: back after {took:.1?}"));
    Ok(())
}

#[tokio::test]
async fn deleting_an_untracked_stale_slice_leaves_the_service_without_any() -> Result<()> {
    let plane = ControlPlane::start(Options::default()).await?;
    let state = stale::untracked_stale(&plane).await?;
    state.stays_wrong(Duration::from_secs(10)).await?;
    state.delete_slices().await?;
    state.stays_without_slices(Duration::from_secs(20)).await?;
    state.touch("1").await?;
    let took = state.await_right(PROMPT).await?;
    note(&format!("the trap: back {took:.1?} after a refresh"));
    Ok(())
}

#[tokio::test]
async fn a_finished_pod_is_taken_out_by_a_refresh_alone() -> Result<()> {
    let plane = ControlPlane::start(Options::default()).await?;
    let state = stale::untracked_stale(&plane).await?;
    state.touch("1").await?;
    let took = state.await_right(PROMPT).await?;
    note(&format!(
        "phase without an event: healed {took:.1?} after a refresh"
    ));
    Ok(())
}
