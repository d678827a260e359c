//! The outside world of one edge device: a folder, a cluster with its controller, an edgeHub, a
//! journal, a model server that is asked all the time.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde_json::{Value, json};

use super::Outcome;
use super::connections::Connections;
use super::journal::Journal;
use super::look::{self, Endpoint};
use super::observe::Notes;
use super::timeline::Timeline;
use crate::edge::{Edge, EdgeError, EdgeOptions};
use crate::kube::controller::{Controller, ControllerOptions};
use crate::kube::{ApiError, Cluster, ClusterOptions, Deployment, namespace, resource};
use crate::traffic::{PodNetwork, Traffic, TrafficOptions};

/// Namespace of the model server.
pub const NAMESPACE: &str = "line1";
/// The model server's Service and Deployment.
pub const SERVICE: &str = "model-endpoint";
/// The Node that this device is.
pub const NODE: &str = "edge-7";
/// The module's id, and the name of its own objects in the cluster.
const MODULE: &str = "slice-healer";

/// How a world is made.
#[derive(Debug, Clone)]
pub struct WorldOptions {
    /// Where its files go; by default a folder of its own that is removed at the end.
    pub directory: Option<PathBuf>,
    /// Time between two requests to the model server.
    pub request_every: Duration,
    /// Whether kubectl, which sends no token over plain HTTP, may look in.
    pub kubectl: bool,
}

impl Default for WorldOptions {
    fn default() -> Self {
        Self {
            directory: None,
            request_every: Duration::from_millis(20),
            kubectl: true,
        }
    }
}

/// Why a world could not be made.
#[derive(Debug, thiserror::Error)]
pub enum WorldError {
    /// A file or a port.
    #[error("the lab cannot set up its files and ports: {0}")]
    Io(#[from] io::Error),
    /// The device.
    #[error("the lab cannot start its edgeHub: {0}")]
    Edge(#[from] EdgeError),
    /// An object of the cluster.
    #[error("the lab's cluster refuses an object: {0}")]
    Api(#[from] ApiError),
    /// The slices.
    #[error("the lab's controller did not finish the first slices in time")]
    Unsettled,
}

struct Folder {
    path: PathBuf,
    remove: bool,
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.remove {
            // Left over files in a temporary folder harm nobody.
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

/// The world. Clones are the same one, which ends with the last of them.
#[derive(Clone)]
pub struct World {
    cluster: Cluster,
    controller: Controller,
    edge: Edge,
    journal: Journal,
    traffic: Traffic,
    timeline: Timeline,
    notes: Notes,
    outcome: Arc<OnceLock<Outcome>>,
    folder: Arc<Folder>,
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World")
            .field("cluster", &self.cluster)
            .field("edge", &self.edge)
            .finish_non_exhaustive()
    }
}

impl World {
    /// Makes a world in which all is well: three pods of model v2.0 behind the Service
    /// `model-endpoint`, requests that are answered, a desired twin that says heal.
    ///
    /// # Errors
    /// When a part cannot be set up; says which.
    pub async fn start(options: WorldOptions) -> Result<Self, WorldError> {
        let folder = folder(options.directory)?;
        let timeline = Timeline::new();
        let machine = uuid::Uuid::new_v4().simple().to_string();
        let path = &folder.path;
        std::fs::create_dir_all(path.join("state"))?;
        std::fs::write(path.join("machine-id"), format!("{machine}\n"))?;
        let journal = Journal::create(&path.join("journal").join(&machine), &timeline)?;
        journal.quietly("iotedge.service", "iotedge", "IoT Edge runtime is running")?;

        let cluster = Cluster::start(ClusterOptions {
            anonymous_admin: options.kubectl,
            ..ClusterOptions::default()
        })
        .await?;
        write_private(&path.join("kubeconfig.yaml"), &cluster.kubeconfig_yaml())?;
        let log = Arc::new(journal.clone());
        let controller = Controller::start(&cluster, ControllerOptions::default(), log);
        furnish(&cluster, &machine)?;
        if !controller.settle(Duration::from_secs(30)).await {
            return Err(WorldError::Unsettled);
        }
        let edge = Edge::start(EdgeOptions::quick()).await?;
        edge.cloud()
            .set_desired(json!({"settings": {"__t": "c", "mode": "heal",
            "labels": {"site": "lab", "line": NAMESPACE}}}))?;
        let network = PodNetwork::new(&cluster);
        let mut requests = TrafficOptions::new(NAMESPACE, SERVICE);
        requests.every = options.request_every;
        let traffic = Traffic::start(&network, requests);
        traffic.expect("v2.0");
        Ok(Self {
            cluster,
            controller,
            edge,
            journal,
            traffic,
            timeline,
            notes: Notes::default(),
            outcome: Arc::default(),
            folder: Arc::new(folder),
        })
    }

    /// What a product is started with.
    ///
    /// # Errors
    /// When the device has no such module.
    pub fn connections(&self) -> Result<Connections, WorldError> {
        let path = &self.folder.path;
        Ok(Connections {
            kubeconfig: path.join("kubeconfig.yaml"),
            journal: path.join("journal"),
            machine_id: path.join("machine-id"),
            state: path.join("state"),
            module: self.edge.module_env(MODULE)?,
            mqtt_port: self.edge.mqtt_port(),
        })
    }

    /// The embedded cluster.
    #[must_use]
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Its endpoint controller.
    #[must_use]
    pub fn controller(&self) -> &Controller {
        &self.controller
    }

    /// The emulated device.
    #[must_use]
    pub fn edge(&self) -> &Edge {
        &self.edge
    }

    /// The host's journal.
    #[must_use]
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// The requests.
    #[must_use]
    pub fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// What happened so far.
    #[must_use]
    pub fn timeline(&self) -> &Timeline {
        &self.timeline
    }

    /// Where its files are.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.folder.path
    }

    /// The endpoints of the model server's slices, each with how it stands.
    #[must_use]
    pub fn endpoints(&self) -> Vec<Endpoint> {
        look::endpoints(self)
    }

    /// The endpoints as they were when the Service had just become stale; none before.
    #[must_use]
    pub fn endpoints_before(&self) -> Vec<Endpoint> {
        self.notes.lock().before.clone()
    }

    /// How the scenario ended, once it has.
    #[must_use]
    pub fn outcome(&self) -> Option<Outcome> {
        self.outcome.get().copied()
    }

    pub(super) fn notes(&self) -> &Notes {
        &self.notes
    }

    pub(super) fn conclude(&self, outcome: Outcome) {
        // A world plays one scenario; a second one keeps the first outcome in the view.
        let _ = self.outcome.set(outcome);
    }

    /// The module twin as the cloud has it.
    #[must_use]
    pub fn twin(&self) -> Value {
        self.edge.cloud().reported()
    }
}

fn furnish(cluster: &Cluster, machine: &str) -> Result<(), ApiError> {
    cluster.add_node(NODE, "")?;
    let identity = json!({"status": {"nodeInfo": {"machineID": machine}}});
    cluster.patch(&resource::NODES, "", NODE, &identity)?;
    cluster.create(namespace(NAMESPACE))?;
    cluster.add_service(NAMESPACE, SERVICE)?;
    cluster.deploy(&Deployment::new(NAMESPACE, SERVICE, "v2.0", 3, NODE))?;
    // The module's own namespace with its canary, as config/kubernetes applies them.
    cluster.create(namespace(MODULE))?;
    cluster.create(json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"namespace": MODULE, "name": MODULE},
        "spec": {"clusterIP": "None", "selector": {"slice-healer.io/canary": "nobody"}}}))?;
    Ok(())
}

fn folder(given: Option<PathBuf>) -> io::Result<Folder> {
    let remove = given.is_none();
    let path = given.unwrap_or_else(|| {
        let unique = uuid::Uuid::new_v4().simple().to_string();
        std::env::temp_dir().join(format!("slice-lab-{unique}"))
    });
    std::fs::create_dir_all(&path)?;
    Ok(Folder { path, remove })
}

/// The kubeconfig holds a token: for its owner only.
fn write_private(path: &Path, text: &str) -> io::Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(text.as_bytes())
}
