//! What the real slice controller does when nobody helps it: the facts that the ladder rests on.
//!
//! No slice-healer here. If one of these fails on a new Kubernetes, the ladder has to be thought
//! through again.

use std::io::Write as _;
use std::time::Duration;

use anyhow::{Result, ensure};
use jiff::Timestamp;

use crate::support::backoff::{GIVEN_UP, RETRYING};
use crate::support::ban::WriteBan;
use crate::support::controlplane::{ControlPlane, Options, SLICE_CONTROLLER};
use crate::support::stale::{self, Change, PROMPT};
use crate::support::wait::{Look, eventually};

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
    // Mostly 1000 s are left. Where so many events came that the controller gave up in between, it
    // counts anew, and waiting for more would only take longer.
    let left = Duration::from_secs(15);
    let (state, left) = stale::admission_backoff(plane, Change::Redeployment, left).await?;
    note(&format!(
        "in back-off: stale for another {left:.0?} if nobody helps"
    ));
    state.stays_wrong(Duration::from_secs(10)).await?;
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
async fn a_pod_that_fails_without_an_event_stays_listed_until_a_refresh() -> Result<()> {
    let plane = ControlPlane::shared().await?;
    let state = stale::phase_only(plane).await?;
    state.stays_wrong(Duration::from_secs(10)).await?;
    state.touch("1").await?;
    let took = state.await_right(PROMPT).await?;
    note(&format!(
        "phase without an event: healed {took:.1?} after a refresh"
    ));
    Ok(())
}

/// What makes the first rung safe: where nothing is stale it changes nothing, and nothing is lost.
#[tokio::test]
async fn a_refresh_of_a_right_service_changes_no_slice() -> Result<()> {
    let plane = ControlPlane::shared().await?;
    let state = stale::healthy(plane, "needless").await?;
    // What the controller has put off after its own writes is not to be mistaken for an answer.
    plane.await_manager().await?;
    let versions = async || -> Result<Vec<_>> {
        let slices = state.slices().await?.into_iter();
        Ok(slices
            .map(|s| (s.metadata.uid, s.metadata.resource_version))
            .collect())
    };
    let (before, since) = (versions().await?, Timestamp::now());
    for n in 0..5 {
        state.touch(&n.to_string()).await?;
    }
    // By then it has dealt with the refreshes: it writes a slice that came later, and again after
    // the second that it waits after a slice's events.
    plane.await_manager().await?;
    ensure!(versions().await? == before, "{before:?}");
    let writes = plane.writes_of(SLICE_CONTROLLER, &state.namespace, since)?;
    ensure!(writes.is_empty(), "{writes:?}");
    let refreshes = plane.writes_of("admin", &state.namespace, since)?;
    ensure!(
        refreshes.len() == 5,
        "the log tells of writes: {refreshes:?}"
    );
    Ok(())
}

/// The other nudge: a label on the slice itself. It heals as well, but not before a second has
/// passed, and it needs the right to patch slices; so the ladder refreshes the Service.
#[tokio::test]
async fn a_label_on_a_stale_slice_heals_it_a_second_later() -> Result<()> {
    let plane = ControlPlane::start(Options::default()).await?;
    let state = stale::untracked_stale(&plane).await?;
    state.label_slices("nudge", Some("1")).await?;
    let took = state.await_right(PROMPT).await?;
    note(&format!("label nudge: healed after {took:.1?}, untracked"));
    let labels = state
        .slices()
        .await?
        .into_iter()
        .flat_map(|s| s.metadata.labels)
        .flatten();
    ensure!(
        labels.into_iter().all(|(key, _)| key != "nudge"),
        "the label is still there"
    );
    Ok(())
}

/// What the rules for the journal look for is what this version of the controller says.
#[tokio::test]
async fn the_controller_says_that_it_retries_and_that_it_gives_up() -> Result<()> {
    let plane = ControlPlane::shared().await?;
    let mut state = stale::healthy(plane, "lines").await?;
    let ban = WriteBan::impose(plane, &state.namespace).await?;
    state.lose_pod().await?;
    let key = format!("key=\"{}/{}\"", state.namespace, stale::SERVICE);
    // The captured lines are what the rules are written and tested against.
    let captured = include_str!("fixtures/kcm-log-lines.txt");
    ensure!(
        [RETRYING, GIVEN_UP]
            .iter()
            .all(|text| captured.contains(text))
    );
    // Each refresh makes it try once more, and the sixteenth failure is one too many.
    let mut refresh = 0;
    eventually("the controller gives up", PROMPT, async || {
        refresh += 1;
        state.touch(&refresh.to_string()).await?;
        let log = plane.manager.log();
        let says = |text: &str| {
            log.lines()
                .any(|line| line.contains(text) && line.contains(&key))
        };
        Ok(match says(RETRYING) && says(GIVEN_UP) {
            true => Look::Done(()),
            false => Look::NotYet(format!("{refresh} refreshes")),
        })
    })
    .await?;
    ban.lift().await
}
