//! The module is killed at each write of the ladder, once before the API server has it and once
//! after it is done, and started anew on the state that it left.
//!
//! `FIRE_KILLS=all` goes through every step with Lease and canary, one heal after the other. CI
//! takes the steps that can hurt, all at once.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;

use super::note;
use super::scene::{LONG, Scene, end_lease, to_the_last_rung};
use crate::support::badway::{Fate, Step};
use crate::support::controlplane::{ControlPlane, Options};
use crate::support::module::Module;
use crate::support::stale::{self, Stale};

/// Kills the module at its `n`th write; none where the heal has fewer.
async fn killed_at(mut scene: Scene<'_>, n: usize, fate: Fate) -> Result<Option<Step>> {
    let mut rule = to_the_last_rung();
    let mut seen = 0;
    scene.way.rule(move |step| {
        let usual = rule(step);
        seen += 1;
        match (seen - 1 == n, usual) {
            (false, usual) => usual,
            // A write that gets lost is not done after all.
            (true, Fate::Swallow) => Fate::HoldBefore,
            (true, _) => fate,
        }
    });
    let mut module = scene.setup.start()?;
    let Some(step) = held(&mut scene, &module).await? else {
        return Ok(None);
    };
    module.kill()?;
    end_lease(scene.plane).await?;
    scene.way.rule(|_| Fate::Pass);
    let module = module.restart()?;
    let place = || format!("killed at write {n} ({}), {fate:?}", step.name);
    scene.ends_well(&module).await.with_context(place)?;
    Ok(Some(step))
}

/// The write that is held; none when the heal is over before.
async fn held(scene: &mut Scene<'_>, module: &Module) -> Result<Option<Step>> {
    let begun = Instant::now();
    while begun.elapsed() < LONG {
        if let Some(step) = scene.way.held(Duration::from_millis(200)).await {
            return Ok(Some(step));
        }
        let log = module.log();
        if log
            .lines()
            .any(|line| line.contains("kind=heal") && line.contains("outcome=healed"))
        {
            return Ok(None);
        }
    }
    anyhow::bail!("neither held nor healed:\n{}", module.log())
}

/// Services whose slices the controller does not have in mind; each stale when its turn comes.
async fn untracked(plane: &ControlPlane, n: usize) -> Result<Vec<Stale>> {
    let mut states = Vec::new();
    for _ in 0..n {
        states.push(stale::healthy(plane, "killed").await?);
    }
    plane.restart_manager().await?;
    Ok(states)
}

async fn make_stale(state: &mut Stale) -> Result<()> {
    state.finish_pod(0).await?;
    state.finish_pod(1).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_module_killed_at_any_step_leaves_a_slice_and_deletes_none_twice() -> Result<()> {
    let plane = ControlPlane::start(Options::default()).await?;
    match std::env::var("FIRE_KILLS").as_deref() {
        Ok("all") => all_steps(&plane).await,
        _ => the_steps_that_can_hurt(&plane).await,
    }
}

/// Without Lease and canary the writes are: two refreshes that get lost, the delete, a refresh.
async fn the_steps_that_can_hurt(plane: &ControlPlane) -> Result<()> {
    let cases = [
        (0, Fate::HoldBefore, "refresh"),
        (2, Fate::HoldBefore, "delete"),
        (2, Fate::HoldAfter, "delete"),
        (3, Fate::HoldBefore, "refresh"),
        (3, Fate::HoldAfter, "refresh"),
    ];
    let mut states = untracked(plane, cases.len()).await?;
    for state in &mut states {
        make_stale(state).await?;
    }
    let runs = states
        .into_iter()
        .zip(cases)
        .map(async |(state, (n, fate, name))| {
            let scene = Scene::new(plane, state, true).await?;
            let step = killed_at(scene, n, fate).await?;
            ensure!(
                step.as_ref().is_some_and(|s| s.name == name),
                "{n} {fate:?}: {step:?}"
            );
            anyhow::Ok(())
        });
    try_join_all(runs).await?;
    note(&format!(
        "killed at {} steps: each ended with its slice, none deleted twice",
        cases.len()
    ));
    Ok(())
}

async fn all_steps(plane: &ControlPlane) -> Result<()> {
    let mut states = untracked(plane, 40).await?.into_iter();
    let mut told = Vec::new();
    for n in 0.. {
        let mut name = None;
        for fate in [Fate::HoldBefore, Fate::HoldAfter] {
            let mut state = states.next().context("a heal has more writes than that")?;
            make_stale(&mut state).await?;
            let scene = Scene::new(plane, state, false).await?;
            name = killed_at(scene, n, fate).await?.map(|step| step.name);
        }
        let Some(name) = name else { break };
        note(&format!(
            "killed before and after write {n}, {name}: ended well"
        ));
        told.push(name);
    }
    ensure!(told.iter().any(|name| name == "delete"), "{told:?}");
    note(&format!(
        "killed twice at each of {} writes: {}",
        told.len(),
        told.join(", ")
    ));
    Ok(())
}

/// The charge is on disk before the write, so a crash loop cannot heal without limit.
#[tokio::test]
async fn a_crash_loop_does_not_exceed_the_budget() -> Result<()> {
    let plane = ControlPlane::shared().await?;
    let state = stale::phase_only(plane).await?;
    let mut scene = Scene::new(plane, state, true).await?;
    scene.way.rule(|step| match step.name.as_str() {
        "refresh" => Fate::HoldBefore,
        _ => Fate::Pass,
    });
    let setup = scene
        .setup
        .clone()
        .set("BUDGETS__PER_SERVICE_PER_HOUR", "2");
    let mut module = setup.start()?;
    for n in 0..2 {
        let step = scene.way.held(LONG).await;
        step.with_context(|| format!("heal {n} is not begun:\n{}", module.log()))?;
        module = module.restart()?;
    }
    module.await_spent_budget(LONG).await?;
    let begun = scene.way.steps().len();
    ensure!(begun == 2, "{begun} heals were begun\n{}", module.log());
    scene.deleted_nothing().await
}
