//! `doctor` against the real API server: under the product's account, under one without rights, and
//! on Deployments that make staleness likely.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};

use crate::support::controlplane::ControlPlane;
use crate::support::product;

/// A command of the product with a kubeconfig, and further settings by their names behind the prefix.
async fn product(
    arguments: &[&str],
    kubeconfig: &Path,
    state: &Path,
    more: &[(&str, &str)],
) -> Result<std::process::Output> {
    let more = more
        .iter()
        .map(|(key, value)| (format!("SLICE_HEALER__{key}"), value));
    Ok(
        tokio::process::Command::new(env!("CARGO_BIN_EXE_slice-healer"))
            .env_clear()
            .env("SLICE_HEALER__MODE", "heal")
            .env("SLICE_HEALER__CLUSTER__KUBECONFIG", kubeconfig)
            .env("SLICE_HEALER__STORE__DIRECTORY", state)
            .envs(more)
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .await?,
    )
}

/// The checks by id, as the product prints them.
async fn doctor(
    kubeconfig: &Path,
    state: &Path,
    more: &[(&str, &str)],
) -> Result<impl Fn(&str) -> Value> {
    let output = product(&["doctor", "-o", "json"], kubeconfig, state, more).await?;
    let text = String::from_utf8(output.stdout)?;
    let document: Value = serde_json::from_str(&text)
        .with_context(|| format!("{text}{}", String::from_utf8_lossy(&output.stderr)))?;
    Ok(move |id: &str| {
        let checks = document["checks"].as_array().into_iter().flatten();
        let found = checks.clone().find(|check| check["id"] == id).cloned();
        found.unwrap_or_else(|| json!({"id": id, "status": "absent"}))
    })
}

#[tokio::test]
async fn the_account_of_the_product_has_what_it_needs() -> Result<()> {
    let plane = ControlPlane::shared().await?;
    let kubeconfig = product::install(plane).await?;
    let state = tempfile::tempdir()?;
    let space = plane.namespace("doctor").await?;
    let client = plane.client().await?;
    let service: Service = serde_json::from_value(json!({
        "metadata": {"name": "model", "namespace": space},
        "spec": {"selector": {"app": "model", "version": "v2"}, "ports": [{"port": 80}]},
    }))?;
    Api::namespaced(client.clone(), &space)
        .create(&PostParams::default(), &service)
        .await?;
    let deployment: Deployment = serde_json::from_value(json!({
        "metadata": {"name": "model", "namespace": space},
        "spec": {
            "replicas": 3,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": {"app": "model"}},
            "template": {
                "metadata": {"labels": {"app": "model", "version": "v2"}},
                "spec": {"containers": [{"name": "model", "image": "model:v2"}]},
            },
        },
    }))?;
    Api::namespaced(client, &space)
        .create(&PostParams::default(), &deployment)
        .await?;

    let check = doctor(&kubeconfig, state.path(), &[]).await?;
    for id in [
        "kubeconfig",
        "api",
        "api-version",
        "rights",
        "admission-policy",
        "server-certificate",
    ] {
        ensure!(check(id)["status"] == "ok", "{}", check(id));
    }
    // The test's own token lives for hours, which is what the check is there for.
    let token = check("token");
    ensure!(token["status"] == "fail", "{token}");
    ensure!(
        token["fix"]
            .as_str()
            .is_some_and(|fix| fix.contains("Secret")),
        "{token}"
    );
    let object = format!("{space}/model");
    for id in [
        "rollout-strategy",
        "disruption-budgets",
        "version-selectors",
        "readiness-probes",
    ] {
        let one = check(id);
        ensure!(one["status"] == "warn", "{one}");
        ensure!(
            one["message"]
                .as_str()
                .is_some_and(|text| text.contains(&object)),
            "{one}"
        );
        ensure!(one["fix"] != "", "{one}");
    }
    Ok(())
}

#[tokio::test]
async fn an_account_without_rights_is_told_so() -> Result<()> {
    let plane = ControlPlane::shared().await?;
    let space = plane.namespace("doctor-none").await?;
    let kubeconfig = plane.service_account_kubeconfig(&space, "nobody").await?;
    let state = tempfile::tempdir()?;
    let check = doctor(&kubeconfig, state.path(), &[]).await?;
    let rights = check("rights");
    ensure!(rights["status"] == "fail", "{rights}");
    ensure!(
        rights["message"]
            .as_str()
            .is_some_and(|text| text.contains("list pods")),
        "{rights}"
    );
    ensure!(
        check("rollout-strategy")["status"] == "skipped",
        "{}",
        check("rollout-strategy")
    );
    Ok(())
}

/// As from inside a container: the kubeconfig's address is another machine there, and the address that
/// is right is not in the certificate.
#[tokio::test]
async fn the_address_and_the_name_of_the_api_server_can_be_set() -> Result<()> {
    let plane = ControlPlane::shared().await?;
    let kubeconfig = product::install(plane).await?;
    let state = tempfile::tempdir()?;
    let text = std::fs::read_to_string(&kubeconfig)?;
    // Nobody listens there.
    let text = text.replace(&plane.url(), "https://127.0.0.1:1");
    let kubeconfig = state.path().join("kubeconfig");
    std::fs::write(&kubeconfig, text)?;
    let port = plane
        .url()
        .rsplit(':')
        .next()
        .context("no port")?
        .to_owned();
    // ::ffff:127.0.0.1 is the same server, and in no certificate.
    let server = format!("https://[::ffff:127.0.0.1]:{port}");
    let server = ("CLUSTER__SERVER", server.as_str());
    let name = ("CLUSTER__TLS_SERVER_NAME", "localhost");

    let nobody = doctor(&kubeconfig, state.path(), &[]).await?("api");
    ensure!(nobody["status"] == "fail", "{nobody}");
    ensure!(
        nobody["fix"]
            .as_str()
            .is_some_and(|fix| fix.contains("cluster.server")),
        "{nobody}"
    );
    let unnamed = doctor(&kubeconfig, state.path(), &[server]).await?("api");
    ensure!(unnamed["status"] == "fail", "{unnamed}");
    ensure!(
        unnamed["fix"]
            .as_str()
            .is_some_and(|fix| fix.contains("cluster.tls_server_name")),
        "{unnamed}"
    );
    let right = doctor(&kubeconfig, state.path(), &[server, name]).await?("api");
    ensure!(right["status"] == "ok", "{right}");

    // The other commands go the same way.
    let looked = async |more: &[(&str, &str)]| {
        let output = product(&["inspect", "-o", "json"], &kubeconfig, state.path(), more).await?;
        Ok::<_, anyhow::Error>(output.status.code())
    };
    ensure!(looked(&[]).await? == Some(2));
    ensure!(looked(&[server]).await? == Some(2));
    ensure!(looked(&[server, name]).await?.is_some_and(|code| code < 2));
    Ok(())
}
