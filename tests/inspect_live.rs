//! `inspect` on a real API server: what is right is clean, what is stale is found, nothing is
//! written, and what cannot be looked at is exit code 2.

use std::process::{Command, Output};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::support::controlplane::ControlPlane;
use crate::support::stale;

fn inspect(plane: &ControlPlane, args: &[&str]) -> Result<Output> {
    Command::new(env!("CARGO_BIN_EXE_slice-healer"))
        .arg("inspect")
        .args(args)
        .env(
            "SLICE_HEALER__CLUSTER__KUBECONFIG",
            plane.admin_kubeconfig(),
        )
        .output()
        .context("cannot run the binary")
}

fn look(output: &Output) -> Result<Value> {
    serde_json::from_slice(&output.stdout)
        .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())
}

#[tokio::test]
async fn a_healthy_service_is_clean_and_a_stale_one_is_found() -> Result<()> {
    let plane = ControlPlane::shared().await?;
    let state = stale::healthy(plane, "inspect").await?;
    let namespace = state.namespace.as_str();

    let clean = inspect(plane, &["-n", namespace, "-o", "json"])?;
    let seen = look(&clean)?;
    ensure!(clean.status.code() == Some(0), "{seen}");
    ensure!(seen["schema"] == "slice-healer/inspect/v1", "{seen}");
    ensure!(
        seen["cluster"]["serverVersion"] == plane.version(),
        "{seen}"
    );
    ensure!(
        seen["cluster"]["services"] == 1 && seen["cluster"]["pods"] == 3,
        "{seen}"
    );
    let versions = async || -> Result<Vec<_>> {
        let slices = state.slices().await?;
        Ok(slices
            .into_iter()
            .map(|s| s.metadata.resource_version)
            .collect())
    };
    let before = versions().await?;

    // Not tracked by a controller that found it right: the finished pod stays listed.
    let phase = stale::phase_only(plane).await?;
    let args = [
        "-n",
        phase.namespace.as_str(),
        "-s",
        stale::SERVICE,
        "-o",
        "json",
    ];
    let output = inspect(plane, &args)?;
    let seen = look(&output)?;
    let found = seen["findings"].as_array().context("no findings")?;
    ensure!(found.iter().any(|f| f["kind"] == "TerminalPod"), "{seen}");
    ensure!(
        found
            .iter()
            .any(|f| f["remedy"]["action"] == "refresh-service"),
        "{seen}"
    );
    ensure!(versions().await? == before, "something was written");
    Ok(())
}

#[tokio::test]
async fn what_cannot_be_looked_at_is_an_error_of_its_own() -> Result<()> {
    let plane = ControlPlane::shared().await?;
    let unknown = inspect(plane, &["-n", "default", "-s", "no-such-service"])?;
    ensure!(unknown.status.code() == Some(2), "{unknown:?}");
    ensure!(String::from_utf8_lossy(&unknown.stderr).contains("no-such-service"));
    let missing = inspect(plane, &["-f", "no-such-file.yaml"])?;
    ensure!(missing.status.code() == Some(2), "{missing:?}");
    ensure!(
        missing.stdout.is_empty(),
        "machine output is alone on stdout"
    );
    Ok(())
}
