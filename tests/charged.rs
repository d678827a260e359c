//! A module that is killed in the middle of its write has the heal on its books: after the restart the
//! budget is used, whether the write was done or not. A real process, a real SIGKILL.

use std::time::Duration;

use anyhow::{Result, ensure};
use slice_lab::kube::{Failure, Fault, USER};

use crate::support::ground::Ground;
use crate::support::module::Setup;
use crate::support::stale::healthy_in;

/// How long anything may take on a slow machine.
const LONG: Duration = Duration::from_secs(90);

#[tokio::test]
async fn a_heal_is_charged_before_its_write_and_a_kill_does_not_take_it_back() -> Result<()> {
    let ground = Ground::lab().await?;
    let Ground::Lab { cluster, .. } = &ground else {
        anyhow::bail!("this is the lab");
    };
    let mut state = healthy_in(ground.client().await?, ground.namespace("charged").await?).await?;
    ground.settle().await?;
    // The first write is neither done nor answered before the module is gone.
    cluster.fail_next(Fault {
        verb: "patch",
        resource: None,
        times: 1,
        failure: Failure::Hang(Duration::from_secs(600)),
    });
    state.finish_pod(0).await?;
    let mut module = Setup::new(&ground.kubeconfig().await?)
        .set("SCOPE__LOCALITY", "cluster")
        .set("BUDGETS__PER_SERVICE_PER_HOUR", "1")
        .set("LOG_LEVEL", "debug")
        .start()?;
    module.await_line(&["begins", "Refresh"], LONG).await?;
    module.kill()?;

    let mut module = module.restart()?;
    module.await_spent_budget(LONG).await?;
    state.stays_wrong(Duration::from_secs(3)).await?;
    let patches = cluster.requests();
    let patches = patches
        .iter()
        .filter(|r| r.user == USER && r.verb == "patch")
        .filter(|r| r.status == 200);
    ensure!(patches.count() == 0, "{}", module.log());

    // With books of its own another one heals at once: nothing but the budget held this one back.
    drop(module);
    let mut module = Setup::new(&ground.kubeconfig().await?)
        .set("SCOPE__LOCALITY", "cluster")
        .set("BUDGETS__PER_SERVICE_PER_HOUR", "1")
        // The Lease of the one that was killed is still held.
        .set("HEAL__LEASE", "false")
        .start()?;
    module
        .await_line(&["kind=heal", "outcome=healed"], LONG)
        .await?;
    state.await_right(LONG).await?;
    Ok(())
}
