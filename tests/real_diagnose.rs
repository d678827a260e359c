//! A real slice controller that is stuck on a Service: slice-healer finds out from the history that
//! the API server keeps, says how to free it, and writes no more.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::support::controlplane::ControlPlane;
use crate::support::module::Setup;
use crate::support::objects::REFRESH;
use crate::support::stale::{self, PROMPT};
use crate::support::{objects, product};

const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const CONTROLLER: &str = "endpointslice-controller.k8s.io";
/// How long a ladder may take, with all of its waits and a slow machine.
const LADDER: Duration = Duration::from_secs(90);

/// A label that names another manager is nothing that the judge could tell from a slice of that
/// manager's own; only `managedFields` know who made it.
#[tokio::test]
async fn a_wedge_that_only_the_history_shows_is_told_with_what_frees_it() -> Result<()> {
    let plane = ControlPlane::shared().await?;
    let mut state = stale::healthy(plane, "history").await?;
    let names = state.label_slices(MANAGED_BY, Some("acme.example")).await?;
    state.lose_pod().await?;
    let kubeconfig = product::install(plane).await?;
    let mut module = Setup::new(&kubeconfig)
        .set("SCOPE__NAMESPACES", &state.namespace)
        .set("SCOPE__LOCALITY", "cluster")
        // Its one Lease is for others that share the control plane as well.
        .set("HEAL__LEASE", "false")
        .set("HEAL__PACE__LOOK_AGAIN", "PT2S,PT2S")
        .set("HEAL__PACE__COOL_DOWN", "PT2S")
        .start()?;
    let line = module
        .await_line(&["kind=escalated", "kubectl label"], LADDER)
        .await?;
    let fix = format!("endpointslice {} {MANAGED_BY}={CONTROLLER}", names[0]);
    ensure!(line.contains(&fix), "{fix} is not in {line}");
    let refreshed = async || {
        let service = objects::service(&state.client, &state.namespace, stale::SERVICE).await?;
        let annotations = service.metadata.annotations.unwrap_or_default();
        anyhow::Ok(annotations.get(REFRESH).cloned())
    };
    let written = refreshed().await?;
    ensure!(written.is_some(), "the refreshes came first");

    // It looks again and again, and does not write before the label is back.
    state.stays_wrong(Duration::from_secs(8)).await?;
    ensure!(refreshed().await? == written, "{}", module.log());

    for name in &names {
        let (client, namespace) = (&state.client, &state.namespace);
        objects::label_slice(client, namespace, name, MANAGED_BY, Some(CONTROLLER)).await?;
    }
    state
        .await_right(PROMPT)
        .await
        .with_context(|| module.log())?;
    Ok(())
}
