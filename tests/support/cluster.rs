//! The two clusters that a behaviour can be run on: the lab's and the real control plane.

use std::time::Duration;

use anyhow::{Context as _, Result};
use http::{Method, Request, StatusCode, header};
use http_body_util::BodyExt as _;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, ObjectMeta, PostParams};
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};
use slice_lab::kube::{Cluster, ClusterOptions};

use super::controlplane::ControlPlane;

/// A cluster and its name for messages.
pub enum TestCluster {
    /// kube-apiserver, kube-controller-manager and etcd.
    Real(&'static ControlPlane),
    /// The API server in memory.
    Lab(Cluster),
}

impl TestCluster {
    /// The real one that the tests share.
    ///
    /// # Errors
    /// As [`ControlPlane::shared`].
    pub async fn real() -> Result<Self> {
        Ok(Self::Real(ControlPlane::shared().await?))
    }

    /// A lab cluster of the test's own.
    ///
    /// # Errors
    /// When no port can be bound.
    pub async fn lab() -> Result<Self> {
        Ok(Self::Lab(Cluster::start(ClusterOptions::default()).await?))
    }

    /// `real` or `lab`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Real(_) => "real",
            Self::Lab(_) => "lab",
        }
    }

    /// A client that may do everything.
    ///
    /// # Errors
    /// When the kubeconfig cannot be used.
    pub async fn client(&self) -> Result<Client> {
        match self {
            Self::Real(plane) => plane.client().await,
            Self::Lab(cluster) => {
                let file = Kubeconfig::from_yaml(&cluster.admin_kubeconfig_yaml())?;
                let options = KubeConfigOptions::default();
                let config = Config::from_custom_kubeconfig(file, &options).await?;
                Ok(Client::try_from(config)?)
            }
        }
    }

    /// A namespace that no other test has.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn namespace(&self, stem: &str) -> Result<String> {
        let api: Api<Namespace> = Api::all(self.client().await?);
        let metadata = ObjectMeta {
            generate_name: Some(format!("{stem}-")),
            ..ObjectMeta::default()
        };
        let namespace = Namespace {
            metadata,
            ..Namespace::default()
        };
        let made = api.create(&PostParams::default(), &namespace).await?;
        made.metadata.name.context("a namespace without a name")
    }
}

/// One request as it goes over the wire, for what typed clients hide.
///
/// # Errors
/// When there is no answer within a minute, or it is not JSON.
pub async fn call(
    client: &Client,
    method: Method,
    path: &str,
    body: Option<&Value>,
) -> Result<(StatusCode, Value)> {
    let kind = match method {
        Method::PATCH => "application/merge-patch+json",
        _ => "application/json",
    };
    let bytes = body
        .map(serde_json::to_vec)
        .transpose()?
        .unwrap_or_default();
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::CONTENT_TYPE, kind)
        .header(header::ACCEPT, "application/json")
        .body(Body::from(bytes))?;
    let answer = async {
        let response = client.send(request).await?;
        let status = response.status();
        let bytes = response.into_body().collect().await?.to_bytes();
        anyhow::Ok((status, bytes))
    };
    let (status, bytes) = tokio::time::timeout(Duration::from_secs(60), answer)
        .await
        .with_context(|| format!("no answer to {path}"))??;
    let value = match bytes.is_empty() {
        true => json!(null),
        false => serde_json::from_slice(&bytes).with_context(|| path.to_owned())?,
    };
    Ok((status, value))
}
