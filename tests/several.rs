//! Several modules and the command line against one cluster: the Lease makes their heals follow one
//! another, each stale Service is healed once, and nobody waits for the dead for ever.
//!
//! CI runs two modules; `just several` runs five and waits out the Lease of one that was killed.

use std::io::Write as _;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;

use crate::fire::scene::{LONG, end_lease, healer};
use crate::support::badway::{BadWay, Fate};
use crate::support::controlplane::{ControlPlane, Options};
use crate::support::module::{Module, Setup};
use crate::support::product;
use crate::support::stale::{self, SERVICE, Stale};
use crate::support::wait::{Look, eventually, throughout};

/// How long it is watched that nobody writes once more: past what a held module waits.
const REST: Duration = Duration::from_secs(12);

fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "several modules: {text}");
}

fn modules() -> Result<usize> {
    match std::env::var("SEVERAL_MODULES") {
        Ok(text) => text.parse().context("SEVERAL_MODULES"),
        Err(_) => Ok(2),
    }
}

/// Writes to the Service and its slices that were done, by whichever module.
fn heals(plane: &ControlPlane, state: &Stale, since: Timestamp) -> Result<Vec<String>> {
    let all = plane.writes_of(&healer(), &state.namespace, since)?;
    let done = all.iter().filter(|write| write.is_heal() && write.done());
    Ok(done
        .map(|write| format!("{} {}", write.verb, write.resource))
        .collect())
}

/// Services in each of which a pod has finished without the controller's notice.
async fn stale_services(plane: &ControlPlane, n: usize) -> Result<Vec<Stale>> {
    let mut states = Vec::new();
    for _ in 0..n {
        states.push(stale::healthy(plane, "several").await?);
    }
    plane.await_manager().await?;
    for state in &mut states {
        state.finish_pod(0).await?;
    }
    Ok(states)
}

fn scope(states: &[Stale]) -> String {
    let names: Vec<&str> = states
        .iter()
        .map(|state| state.namespace.as_str())
        .collect();
    names.join(",")
}

async fn setup(plane: &ControlPlane, states: &[Stale]) -> Result<Setup> {
    let kubeconfig = product::install(plane).await?;
    Ok(Setup::new(&kubeconfig)
        .set("SCOPE__NAMESPACES", &scope(states))
        .set("SCOPE__LOCALITY", "cluster"))
}

async fn once_each(plane: &ControlPlane, states: &[Stale], since: Timestamp) -> Result<()> {
    throughout("each Service was written to once", REST, async || {
        for state in states {
            let heals = heals(plane, state, since)?;
            if heals != ["patch services"] {
                return Ok(Look::NotYet(format!("{}: {heals:?}", state.namespace)));
            }
        }
        Ok(Look::Done(()))
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_stale_service_is_healed_once_whoever_does_it() -> Result<()> {
    let plane = ControlPlane::start(Options::default()).await?;
    all_at_once(&plane).await?;
    by_hand(&plane).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_is_killed_between_intent_and_write_is_succeeded() -> Result<()> {
    let plane = ControlPlane::start(Options::default()).await?;
    a_holder_that_is_killed(&plane, Fate::HoldBefore).await?;
    a_holder_that_is_killed(&plane, Fate::HoldAfter).await
}

async fn all_at_once(plane: &ControlPlane) -> Result<()> {
    let (modules, since) = (modules()?, Timestamp::now());
    let states = stale_services(plane, modules.max(3)).await?;
    let setup = setup(plane, &states).await?;
    let begun = Instant::now();
    let running: Vec<Module> = (0..modules).map(|_| setup.start()).collect::<Result<_>>()?;
    let logs = || {
        running
            .iter()
            .map(Module::log)
            .collect::<Vec<_>>()
            .join("\n---\n")
    };
    for state in &states {
        state.await_right(LONG).await.with_context(logs)?;
    }
    let took = begun.elapsed();
    once_each(plane, &states, since).await.with_context(logs)?;
    note(&format!(
        "{modules} modules, {} stale Services: each healed once, in {took:.0?}",
        states.len()
    ));
    Ok(())
}

/// It has the Lease, its intent is on disk, and the write is just about to go out, or is just done.
async fn a_holder_that_is_killed(plane: &ControlPlane, fate: Fate) -> Result<()> {
    let since = Timestamp::now();
    let states = stale_services(plane, 1).await?;
    let setup = setup(plane, &states).await?;
    let mut way = BadWay::open(&product::install(plane).await?).await?;
    way.rule(move |step| match step.name.as_str() {
        "refresh" => fate,
        _ => Fate::Pass,
    });
    let kubeconfig = way.kubeconfig().display().to_string();
    let mut holder = setup
        .clone()
        .set("CLUSTER__KUBECONFIG", &kubeconfig)
        .start()?;
    way.held(LONG).await.with_context(|| holder.log())?;
    let mut other = setup.start()?;
    if fate == Fate::HoldBefore {
        other
            .await_line(
                &["kind=heal", "outcome=held", "is healing in this cluster"],
                LONG,
            )
            .await?;
        // So does a command that comes without a module of its own.
        let folder = tempfile::TempDir::new()?;
        let told = heal(&product::install(plane).await?, folder.path(), &states[0]).await?;
        let text = String::from_utf8_lossy(&told.stdout).into_owned();
        ensure!(
            told.status.code() == Some(1) && text.contains("is healing in this cluster"),
            "{told:?}"
        );
    }
    holder.kill()?;
    way.rule(|_| Fate::Pass);
    if std::env::var_os("SEVERAL_MODULES").is_none() {
        end_lease(plane).await?;
    }
    let begun = Instant::now();
    states[0]
        .await_right(LONG)
        .await
        .with_context(|| other.log())?;
    note(&format!(
        "holder killed, {fate:?}: right {:.0?} later",
        begun.elapsed()
    ));
    // Back again, it finds its intent, and that there is nothing left to do.
    let back = holder.restart()?;
    once_each(plane, &states, since)
        .await
        .with_context(|| format!("{}\n---\n{}", other.log(), back.log()))
}

async fn heal(
    kubeconfig: &std::path::Path,
    state_dir: &std::path::Path,
    state: &Stale,
) -> Result<Output> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_slice-healer"));
    command
        .args(["heal", SERVICE, "-n", &state.namespace, "--yes"])
        .env("SLICE_HEALER__CLUSTER__KUBECONFIG", kubeconfig)
        .env("SLICE_HEALER__SCOPE__NAMESPACES", &state.namespace)
        .env("SLICE_HEALER__STORE__DIRECTORY", state_dir);
    Ok(tokio::task::spawn_blocking(move || command.output()).await??)
}

/// Beside a running module the command goes through it: its gate, its budgets, its books.
async fn by_hand(plane: &ControlPlane) -> Result<()> {
    let since = Timestamp::now();
    let states = stale_services(plane, 1).await?;
    let mut module = setup(plane, &states)
        .await?
        .set("MODE", "observe")
        .set("BUDGETS__PER_SERVICE_PER_HOUR", "1")
        .start()?;
    module
        .await_line(&["kind=heal", "outcome=held", "observe"], LONG)
        .await?;
    // A kubeconfig that leads nowhere: the command must not need one.
    let nowhere = std::path::Path::new("/nonexistent/kubeconfig");
    let told = heal(nowhere, module.directory(), &states[0]).await?;
    let said = String::from_utf8_lossy(&told.stderr).into_owned();
    ensure!(
        told.status.success() && !said.contains("No module runs"),
        "{told:?}"
    );
    module
        .await_line(&["kind=heal", "outcome=healed"], LONG)
        .await?;
    ensure!(heals(plane, &states[0], since)? == ["patch services"]);

    // The module's budget holds for the command as well.
    let mut state = states.into_iter().next().context("a state")?;
    state.finish_pod(1).await?;
    let (told, _) = eventually("the budget holds", LONG, async || {
        let told = heal(nowhere, module.directory(), &state).await?;
        let text = String::from_utf8_lossy(&told.stdout).into_owned();
        // Until the module has seen the pod, there is nothing to do.
        Ok(match text.contains("nothing to do") {
            true => Look::NotYet(text),
            false => Look::Done(told),
        })
    })
    .await?;
    let text = String::from_utf8_lossy(&told.stdout).into_owned();
    ensure!(
        told.status.code() == Some(1) && text.contains("as often as an hour allows"),
        "{told:?}"
    );
    ensure!(heals(plane, &state, since)? == ["patch services"]);
    note("the command went through the module: healed once, then held by its budget");
    Ok(())
}
