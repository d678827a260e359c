//! slice-healer on the real kube-apiserver and kube-controller-manager: what really goes stale is
//! healed, and nothing is made worse. Runs under the product's own account and admission policy.

use std::io::Write as _;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::support::controlplane::{ControlPlane, Options};
use crate::support::module::Setup;
use crate::support::stale::{self, Change, PROMPT, Stale};
use crate::support::wait::{Look, throughout};
use crate::support::{objects, product};

/// How long a heal may take, with all of its waits and a slow machine.
const HEAL: Duration = Duration::from_secs(90);

/// Past the capture of the test harness: measured times belong in the log of a green run.
fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "real heal: {text}");
}

/// A module that looks at this state's namespace only: others share the control plane.
async fn setup(plane: &ControlPlane, state: &Stale) -> Result<Setup> {
    let kubeconfig = product::install(plane).await?;
    Ok(Setup::new(&kubeconfig)
        .set("SCOPE__NAMESPACES", &state.namespace)
        .set("SCOPE__LOCALITY", "cluster"))
}

#[tokio::test]
async fn a_controller_in_back_off_is_woken_and_the_slices_are_right_within_seconds() -> Result<()> {
    let plane = ControlPlane::start(Options::default()).await?;
    let left = Duration::from_secs(100);
    let (state, left) = stale::admission_backoff(&plane, Change::Redeployment, left).await?;
    let mut module = setup(&plane, &state).await?.start()?;
    let took = state
        .await_right(HEAL)
        .await
        .with_context(|| module.log())?;
    note(&format!(
        "redeployed under a denied controller: right {took:.1?} after slice-healer started; without \
         it the controller's back-off had {left:.0?} to go"
    ));
    ensure!(
        took < left,
        "the controller's own retry may have been faster"
    );
    let line = module
        .await_line(&["kind=heal", "outcome=healed"], HEAL)
        .await?;
    ensure!(line.contains("refresh-service"), "{line}");
    let (status, took) = module.terminate().await?;
    ensure!(
        status.success() && took < Duration::from_secs(8),
        "{status} after {took:?}"
    );
    Ok(())
}

#[tokio::test]
async fn a_slice_that_was_deleted_after_a_restart_of_the_controller_is_brought_back() -> Result<()>
{
    let plane = ControlPlane::start(Options::default()).await?;
    let state = stale::untracked_delete(&plane).await?;
    state.stays_without_slices(Duration::from_secs(10)).await?;
    let mut module = setup(&plane, &state).await?.start()?;
    let took = state
        .await_right(HEAL)
        .await
        .with_context(|| module.log())?;
    note(&format!(
        "untracked and deleted: back {took:.1?} after slice-healer started"
    ));
    module
        .await_line(&["kind=heal", "outcome=healed"], HEAL)
        .await?;
    Ok(())
}

/// `deleting_an_untracked_stale_slice_leaves_the_service_without_any` shows the trap that a plain
/// delete falls into; here the same delete is the ladder's.
#[tokio::test]
async fn the_ladders_delete_does_not_leave_the_service_without_a_slice() -> Result<()> {
    let plane = ControlPlane::start(Options::default()).await?;
    let mut state = stale::untracked_stale(&plane).await?;
    // Two of three are stale now: the delete mends more than it takes away.
    state.finish_pod(1).await?;
    let mut module = setup(&plane, &state)
        .await?
        .set("LADDER", "delete-slice")
        .set("GRACE__DELETE", "PT6S")
        .start()?;
    // On a machine that is busy the canary may be late; then the delete is held and comes later.
    module
        .await_line(&["kind=heal", "outcome=healed", "delete-slice"], HEAL * 2)
        .await?;
    let took = state.await_right(PROMPT).await?;
    note(&format!(
        "the trap: right {took:.1?} after the ladder's delete was verified"
    ));
    let slices = state.slices().await?;
    ensure!(slices.len() == 1, "{} slices", slices.len());
    Ok(())
}

#[tokio::test]
async fn a_right_service_is_never_written_to() -> Result<()> {
    let plane = ControlPlane::shared().await?;
    let state = stale::healthy(plane, "quiet").await?;
    let version = |s: &k8s_openapi::api::discovery::v1::EndpointSlice| {
        s.metadata.resource_version.clone().unwrap_or_default()
    };
    let before: Vec<String> = state.slices().await?.iter().map(version).collect();
    let mut module = setup(plane, &state).await?.start()?;
    module
        .await_line(&["[INF]", "following"], PROMPT)
        .await
        .ok();
    throughout(
        "the slices stay as they are",
        Duration::from_secs(12),
        async || {
            let now: Vec<String> = state.slices().await?.iter().map(version).collect();
            Ok(match now == before {
                true => Look::Done(()),
                false => Look::NotYet(format!("{before:?} became {now:?}")),
            })
        },
    )
    .await?;
    ensure!(!module.log().contains("kind=heal"), "{}", module.log());
    Ok(())
}

#[tokio::test]
async fn observe_says_what_it_would_do_and_leaves_it_stale() -> Result<()> {
    let plane = ControlPlane::shared().await?;
    let state = stale::phase_only(plane).await?;
    let mut module = setup(plane, &state).await?.set("MODE", "observe").start()?;
    let line = module
        .await_line(&["kind=heal", "outcome=held"], PROMPT)
        .await?;
    ensure!(line.contains("observe"), "{line}");
    state.stays_wrong(Duration::from_secs(8)).await?;
    let service = objects::service(&state.client, &state.namespace, stale::SERVICE).await?;
    let written = service.metadata.annotations.unwrap_or_default();
    ensure!(
        !written.contains_key("slice-healer.io/refresh"),
        "{written:?}"
    );
    Ok(())
}
