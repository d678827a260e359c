//! What the watches say when the way to the real API server is wrong: each time what to do.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kube::config::Kubeconfig;
use slice_core::event::{ClusterInput, Link};
use slice_core::model::Kind;
use slice_healer::client::{Access, Supply, connect};
use slice_healer::sense::cluster::{Options, spawn};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::support::controlplane::ControlPlane;
use crate::support::product;

const DEADLINE: Duration = Duration::from_secs(60);

/// The first trouble that the watch of pods tells.
async fn trouble(access: Access) -> Result<Link> {
    let supply = Supply::fixed(connect(&access).await?);
    let (tx, mut rx) = mpsc::channel(64);
    let stop = CancellationToken::new();
    let (_tasks, _) = spawn(supply, tx, &stop, Options::default());
    let told = async {
        loop {
            match rx.recv().await.context("the watches go on")? {
                ClusterInput::Link(Kind::Pod, Link::Syncing) => {}
                ClusterInput::Link(Kind::Pod, link) => return Ok(link),
                _ => {}
            }
        }
    };
    let told = timeout(DEADLINE, told).await.context("something is told")?;
    stop.cancel();
    told
}

/// The product's own kubeconfig with one thing changed in it.
async fn changed(
    plane: &ControlPlane,
    folder: &tempfile::TempDir,
    change: impl FnOnce(&mut serde_json::Value),
) -> Result<Access> {
    let mut config = serde_json::to_value(Kubeconfig::read_from(product::install(plane).await?)?)?;
    change(&mut config);
    let path: PathBuf = folder.path().join("config");
    std::fs::write(&path, config.to_string())?;
    Ok(Access {
        kubeconfig: Some(path),
        ..Access::default()
    })
}

#[tokio::test]
async fn a_certificate_with_another_name() -> Result<()> {
    let plane = ControlPlane::shared().await?;
    let folder = tempfile::tempdir()?;
    let mut access = changed(plane, &folder, |_| ()).await?;
    access.tls_server_name = Some("elsewhere.example".to_owned());
    let told = trouble(access).await?;
    let right = |text: &str| text.contains("set cluster.tls_server_name");
    ensure!(
        matches!(&told, Link::Unreachable(text) if right(text)),
        "{told:?}"
    );
    Ok(())
}

#[tokio::test]
async fn a_certificate_of_another_authority() -> Result<()> {
    let plane = ControlPlane::shared().await?;
    let folder = tempfile::tempdir()?;
    let other = rcgen::generate_simple_self_signed(vec!["other".to_owned()])?;
    let ca = folder.path().join("ca.crt");
    std::fs::write(&ca, other.cert.pem())?;
    let access = changed(plane, &folder, |config| {
        let cluster = &mut config["clusters"][0]["cluster"];
        cluster["certificate-authority-data"] = serde_json::Value::Null;
        cluster["certificate-authority"] = ca.display().to_string().into();
    })
    .await?;
    let told = trouble(access).await?;
    let right = |text: &str| text.contains("take a fresh kubeconfig");
    ensure!(
        matches!(&told, Link::Unreachable(text) if right(text)),
        "{told:?}"
    );
    Ok(())
}

#[tokio::test]
async fn a_token_that_is_not_accepted() -> Result<()> {
    let plane = ControlPlane::shared().await?;
    let folder = tempfile::tempdir()?;
    let access = changed(plane, &folder, |config| {
        config["users"][0]["user"]["token"] = "ended-long-ago".into();
    })
    .await?;
    let told = trouble(access).await?;
    let right = |text: &str| text.contains("401") && text.contains("renew the token");
    ensure!(
        matches!(&told, Link::Forbidden(text) if right(text)),
        "{told:?}"
    );
    Ok(())
}

#[tokio::test]
async fn an_account_without_rights() -> Result<()> {
    let plane = ControlPlane::shared().await?;
    let space = plane.namespace("trouble").await?;
    let kubeconfig = Some(plane.service_account_kubeconfig(&space, "nobody").await?);
    let told = trouble(Access {
        kubeconfig,
        ..Access::default()
    })
    .await?;
    let right = |text: &str| text.starts_with("list pods: ") && text.contains("(403)");
    ensure!(
        matches!(&told, Link::Forbidden(text) if right(text)),
        "{told:?}"
    );
    Ok(())
}
