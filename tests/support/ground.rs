//! A cluster with a slice controller, real or the lab's, that one test has for itself: the same
//! behaviour must come out on both.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::json;
use slice_lab::kube::controller::{Controller, ControllerOptions, NoLog};
use slice_lab::kube::{Cluster, ClusterOptions, namespace};
use tempfile::TempDir;

use super::controlplane::{ControlPlane, Options};
use super::product;

/// The cluster.
pub enum Ground {
    /// kube-apiserver, kube-controller-manager and etcd.
    Real(Box<ControlPlane>),
    /// The lab's API server and controller, in this process.
    Lab {
        /// The API server.
        cluster: Cluster,
        /// The controller.
        controller: Controller,
        /// Where the kubeconfig lies.
        folder: TempDir,
    },
}

impl Ground {
    /// A real one.
    ///
    /// # Errors
    /// As [`ControlPlane::start`].
    pub async fn real() -> Result<Self> {
        Ok(Self::Real(Box::new(
            ControlPlane::start(Options::default()).await?,
        )))
    }

    /// The lab's, with the real controller's times.
    ///
    /// # Errors
    /// When no port can be bound.
    pub async fn lab() -> Result<Self> {
        let cluster = Cluster::start(ClusterOptions::default()).await?;
        let controller = Controller::start(&cluster, ControllerOptions::default(), Arc::new(NoLog));
        cluster.create(namespace(product::NAME))?;
        cluster.create(json!({"apiVersion": "v1", "kind": "Service",
            "metadata": {"name": product::NAME, "namespace": product::NAME},
            "spec": {"clusterIP": "None", "selector": {"slice-healer.io/canary": "nobody"},
                "ports": [{"name": "canary", "port": 1, "protocol": "TCP"}]}}))?;
        let folder = TempDir::new()?;
        Ok(Self::Lab {
            cluster,
            controller,
            folder,
        })
    }

    /// A client that may do everything.
    ///
    /// # Errors
    /// When the kubeconfig cannot be used.
    pub async fn client(&self) -> Result<Client> {
        match self {
            Self::Real(plane) => plane.client().await,
            Self::Lab { cluster, .. } => {
                let file = Kubeconfig::from_yaml(&cluster.admin_kubeconfig_yaml())?;
                let options = KubeConfigOptions::default();
                Ok(Client::try_from(
                    Config::from_custom_kubeconfig(file, &options).await?,
                )?)
            }
        }
    }

    /// A kubeconfig for the product; on the real one of its own account.
    ///
    /// # Errors
    /// When it cannot be made.
    pub async fn kubeconfig(&self) -> Result<PathBuf> {
        match self {
            Self::Real(plane) => product::install(plane).await,
            Self::Lab {
                cluster, folder, ..
            } => {
                let path = folder.path().join("kubeconfig");
                std::fs::write(&path, cluster.kubeconfig_yaml())?;
                Ok(path)
            }
        }
    }

    /// A namespace of the state's own.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn namespace(&self, stem: &str) -> Result<String> {
        match self {
            Self::Real(plane) => plane.namespace(stem).await,
            Self::Lab { cluster, .. } => {
                cluster.create(namespace(stem))?;
                Ok(stem.to_owned())
            }
        }
    }

    /// Waits until the controller has nothing put off: it syncs once more a second after its own
    /// writes, and would notice what a test does meanwhile.
    ///
    /// # Errors
    /// When it does not come to rest.
    pub async fn settle(&self) -> Result<()> {
        match self {
            Self::Real(plane) => plane.await_manager().await,
            Self::Lab { controller, .. } => {
                let settled = controller.settle(super::stale::PROMPT).await;
                anyhow::ensure!(settled, "the lab's controller does not settle");
                Ok(())
            }
        }
    }

    /// Restarts the slice controller: it forgets what it has written.
    ///
    /// # Errors
    /// When it does not come back.
    pub async fn restart_controller(&self) -> Result<()> {
        match self {
            Self::Real(plane) => plane.restart_manager().await,
            Self::Lab { controller, .. } => {
                controller.restart();
                self.settle().await
            }
        }
    }
}
