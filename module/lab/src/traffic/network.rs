//! The pod network of the lab: who answers at an address, and with which version.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::proxy::{Backend, backends};
use crate::kube::{Cluster, object, resource};

/// An answer of a model server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The version it runs.
    pub version: String,
    /// Its pod, or the address of a container that outlived its pod.
    pub from: String,
}

/// Answers for the pods of a cluster. Clones are the same network.
#[derive(Debug, Clone)]
pub struct PodNetwork {
    cluster: Cluster,
    lingering: Arc<Mutex<BTreeMap<String, String>>>,
}

impl PodNetwork {
    /// The network of this cluster's pods.
    #[must_use]
    pub fn new(cluster: &Cluster) -> Self {
        Self {
            cluster: cluster.clone(),
            lingering: Arc::default(),
        }
    }

    /// A container that still answers at an address after its pod object is gone, as happens while a
    /// node is slow to stop it.
    pub fn linger(&self, ip: &str, version: &str) {
        let mut lingering = self
            .lingering
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        lingering.insert(ip.to_owned(), version.to_owned());
    }

    /// Sends one request to a Service; `turn` chooses among the backends, round robin.
    /// `None`: there is no backend, or nobody answers there.
    #[must_use]
    pub fn request(&self, namespace: &str, service: &str, turn: usize) -> Option<Reply> {
        let backends = self.backends(namespace, service);
        let count = backends.len();
        self.reach(backends.get(turn.checked_rem(count)?)?)
    }

    /// Where requests to a Service go at this moment.
    #[must_use]
    pub fn backends(&self, namespace: &str, service: &str) -> Vec<Backend> {
        backends(&self.cluster.slices_of(namespace, service))
    }

    /// Who answers at an address: a pod that runs, else a container that lingers.
    #[must_use]
    pub fn reach(&self, backend: &Backend) -> Option<Reply> {
        let pods = self.cluster.list(&resource::PODS, None);
        let pod = pods.iter().find(|pod| {
            pod["status"]["podIP"] == backend.ip.as_str() && pod["status"]["phase"] == "Running"
        });
        match pod {
            Some(pod) => {
                let listens = object::list(&pod["spec"]["containers"])
                    .iter()
                    .flat_map(|container| object::list(&container["ports"]))
                    .any(|port| port["containerPort"] == backend.port);
                listens.then(|| Reply {
                    version: object::label(pod, "version").unwrap_or_default().to_owned(),
                    from: object::name(pod).to_owned(),
                })
            }
            None => {
                let lingering = self
                    .lingering
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
                lingering.get(&backend.ip).map(|version| Reply {
                    version: version.clone(),
                    from: backend.ip.clone(),
                })
            }
        }
    }
}
