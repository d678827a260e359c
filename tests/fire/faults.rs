//! What may go wrong around a heal: the API server dies in the middle of it, the controller hangs or
//! may not write, the API server answers with conflicts or asks for patience.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use http::StatusCode;

use super::note;
use super::scene::{LONG, Scene};
use crate::support::badway::Fate;
use crate::support::ban::WriteBan;
use crate::support::controlplane::{ControlPlane, Options};
use crate::support::stale::{self, Stale};
use crate::support::wait::{Look, eventually, throughout};

async fn untracked(plane: &ControlPlane) -> Result<Stale> {
    let mut state = stale::untracked_stale(plane).await?;
    state.finish_pod(1).await?;
    Ok(state)
}

/// The worst moment: the slice is deleted, and nobody can be asked for a new one.
#[tokio::test]
async fn an_api_server_that_dies_after_a_delete_is_waited_for() -> Result<()> {
    let plane = ControlPlane::start(Options::default()).await?;
    let mut scene = Scene::new(&plane, untracked(&plane).await?, false).await?;
    let module = scene.start_to_a_delete().await?;
    plane.apiserver.stop();
    scene.way.rule(|_| Fate::Pass);
    // It knows by itself that it cannot reach the API, and goes on trying.
    eventually("a refresh is tried", LONG, async || {
        Ok(match scene.tried_since_the_delete().is_empty() {
            false => Look::Done(()),
            true => Look::NotYet(module.log()),
        })
    })
    .await?;
    plane.apiserver.start()?;
    plane.await_apiserver().await?;
    scene.ends_well(&module).await?;
    ensure!(scene.deletes()? == 1, "{:?}", scene.done()?);
    note("the API server was killed right after a delete and came back: the slice is back");
    Ok(())
}

#[tokio::test]
async fn a_controller_that_hangs_costs_no_slice() -> Result<()> {
    let plane = ControlPlane::start(Options::default()).await?;
    let before = Scene::new(&plane, untracked(&plane).await?, false).await?;
    plane.manager.pause()?;
    let mut module = before.setup.start()?;
    // It has refreshed in vain and would delete next.
    module
        .await_line(
            &["kind=heal", "outcome=held", "did not answer the canary"],
            LONG,
        )
        .await?;
    before.deleted_nothing().await?;
    plane.manager.resume()?;
    before.ends_well(&module).await?;
    ensure!(
        before.deletes()? == 0,
        "the refresh was enough: {:?}",
        before.done()?
    );
    drop(module);
    note("the controller hung before a delete: none was made, and it was right once it went on");

    // Now it hangs once the slice is gone.
    let mut after = Scene::new(&plane, untracked(&plane).await?, false).await?;
    let module = after.start_to_a_delete().await?;
    plane.manager.pause()?;
    after.way.rule(|_| Fate::Pass);
    eventually("it refreshes twice in vain", LONG, async || {
        let tried = after.tried_since_the_delete();
        Ok(
            if tried.iter().filter(|name| *name == "refresh").count() >= 2 {
                Look::Done(())
            } else {
                Look::NotYet(module.log())
            },
        )
    })
    .await?;
    plane.manager.resume()?;
    after.ends_well(&module).await?;
    ensure!(after.deletes()? == 1, "{:?}", after.done()?);
    note("the controller hung after a delete and went on: the slice is back");
    Ok(())
}

/// The canary answers, as it is elsewhere; but here the controller may not write, and a slice that
/// was deleted would not come back.
#[tokio::test]
async fn where_the_controller_may_not_write_nothing_is_deleted() -> Result<()> {
    let plane = ControlPlane::start(Options::default()).await?;
    for ladder in ["refresh-service,delete-slice", "delete-slice"] {
        let mut state = stale::healthy(&plane, "banned").await?;
        plane.await_manager().await?;
        let ban = WriteBan::impose(&plane, &state.namespace).await?;
        state.redeploy().await?;
        let scene = Scene::new(&plane, state, false).await?;
        let mut module = scene.setup.clone().set("LADDER", ladder).start()?;
        let held = module
            .await_line(&["kind=heal", "outcome=held"], LONG)
            .await;
        held.with_context(|| format!("ladder {ladder}"))?;
        scene
            .deleted_nothing()
            .await
            .with_context(|| module.log())?;
        ban.lift().await?;
        if ladder == "delete-slice" {
            // Without a refresh it cannot find out that it may.
            scene.state.touch("1").await?;
        }
        scene.ends_well(&module).await?;
        scene.deleted_nothing().await?;
    }
    note("the controller's writes were refused all the time: nothing was deleted");
    Ok(())
}

#[tokio::test]
async fn storms_of_conflicts_and_of_patience_do_no_harm() -> Result<()> {
    let plane = ControlPlane::shared().await?;
    // Whatever is asked for is asked for again a second later, and then it is done once.
    let patient = Scene::new(plane, stale::phase_only(plane).await?, true).await?;
    let mut asked = 0;
    patient.way.rule(move |_| {
        asked += 1;
        match asked % 3 {
            0 => Fate::Pass,
            _ => Fate::Refuse(StatusCode::TOO_MANY_REQUESTS),
        }
    });
    let mut module = patient.setup.start()?;
    module
        .await_line(&["kind=heal", "outcome=healed"], LONG)
        .await?;
    patient.ends_well(&module).await?;
    ensure!(
        patient.done()?.len() == 1,
        "one refresh: {:?}",
        patient.done()?
    );
    drop(module);

    // Each conflict ends a heal, each heal is charged, and the budget ends it.
    let conflicts = Scene::new(plane, stale::phase_only(plane).await?, true).await?;
    conflicts.way.rule(|_| Fate::Refuse(StatusCode::CONFLICT));
    let setup = conflicts
        .setup
        .clone()
        .set("BUDGETS__PER_SERVICE_PER_HOUR", "3");
    let mut module = setup.start()?;
    module.await_spent_budget(LONG).await?;
    let tried = conflicts.way.steps().len();
    ensure!(tried == 3, "{tried} tries\n{}", module.log());
    conflicts.deleted_nothing().await?;
    throughout("no further try", Duration::from_secs(2), async || {
        Ok(match conflicts.way.steps().len() {
            3 => Look::Done(()),
            more => Look::NotYet(format!("{more} tries\n{}", module.log())),
        })
    })
    .await?;
    note(
        "429 at two of three writes: healed by one refresh; 409 at all: 3 tries, then the budget holds",
    );
    Ok(())
}
