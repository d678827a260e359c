//! The emulated device as a test or the demo holds it: starting, ending, the environment of a
//! module, and looking at what came of it. What goes wrong on purpose is in `knobs.rs`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::Mutex;
use tokio_util::sync::DropGuard;

use super::cloud::Cloud;
use super::control;
use super::error::EdgeError;
use super::listener::Listener;
use super::message::TelemetryRecord;
use super::methods::{MethodCall, MethodResult};
use super::options::EdgeOptions;
use super::record::PacketRecord;
use super::state::Counters;
use super::sync;
use super::view::View;
use super::workload_server::{self, Place};
use super::world::World;

/// An emulated IoT Edge device. Clones are the same device; it ends when the last one is dropped.
#[derive(Clone)]
pub struct Edge {
    pub(crate) world: Arc<World>,
    pub(super) hub: Arc<Mutex<Option<Listener>>>,
    pub(super) mqtt: SocketAddr,
    socket: PathBuf,
    workload_http: Option<SocketAddr>,
    control: Option<SocketAddr>,
    /// Ends the device with the last clone; the control API holds none.
    _life: Option<Arc<Life>>,
}

/// Ends the tasks and removes the socket's folder.
struct Life {
    _stop: DropGuard,
    folder: Option<PathBuf>,
}

impl Drop for Life {
    fn drop(&mut self) {
        if let Some(folder) = &self.folder {
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

impl std::fmt::Debug for Edge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Edge({}, mqtt {})",
            self.world.options.device_id, self.mqtt
        )
    }
}

impl Edge {
    /// Starts a device: makes its certificates and keys, opens the workload socket and edgeHub's port.
    ///
    /// # Errors
    /// When an address is taken, a file cannot be written, or an option does not parse.
    pub async fn start(options: EdgeOptions) -> Result<Self, EdgeError> {
        let world = World::new(options)?;
        let stop = world.stop.clone().drop_guard();
        let (socket, folder) = match &world.options.workload_socket {
            Some(path) => (path.clone(), None),
            None => {
                let folder = new_folder()?;
                (folder.join("workload.sock"), Some(folder))
            }
        };
        let life = Arc::new(Life {
            _stop: stop,
            folder,
        });
        workload_server::start(&world, Place::Unix(socket.clone())).await?;
        let mut workload_http = None;
        if let Some(address) = world.options.workload_http
            && let Place::Tcp(bound) = workload_server::start(&world, Place::Tcp(address)).await?
        {
            workload_http = Some(bound);
        }
        let (listener, mqtt) = Listener::start(&world, world.options.mqtt).await?;
        world.spawn(sync::push_reported(Arc::clone(&world)));
        world.spawn(sync::watch_cloud(Arc::clone(&world)));
        world.spawn(sync::expire_tokens(Arc::clone(&world)));
        let hub = Arc::new(Mutex::new(Some(listener)));
        let mut edge = Self {
            world,
            hub,
            mqtt,
            socket,
            workload_http,
            control: None,
            _life: Some(life),
        };
        if let Some(address) = edge.world.options.control {
            let driven = Self {
                _life: None,
                ..edge.clone()
            };
            edge.control = Some(control::start(driven, address).await?);
        }
        Ok(edge)
    }

    /// Ends the device and waits until its ports are closed.
    pub async fn shut_down(self) {
        self.stop_hub().await;
        self.world.shut_down().await;
    }

    /// Port of edgeHub's MQTT over TLS.
    pub fn mqtt_port(&self) -> u16 {
        self.mqtt.port()
    }

    /// Path of the workload socket.
    pub fn workload_socket(&self) -> &std::path::Path {
        &self.socket
    }

    /// Address of the workload API over TCP, if the options asked for one.
    pub fn workload_http(&self) -> Option<SocketAddr> {
        self.workload_http
    }

    /// Address of the control API, if the options asked for one.
    pub fn control(&self) -> Option<SocketAddr> {
        self.control
    }

    /// The environment that edgeAgent gives a module, over the unix socket.
    ///
    /// # Errors
    /// When the device has no such module.
    pub fn module_env(&self, module: &str) -> Result<Vec<(String, String)>, EdgeError> {
        let generation = self
            .world
            .look(|state| state.modules.get(module).map(|m| m.generation.clone()));
        let generation = generation.ok_or_else(|| EdgeError::UnknownModule(module.to_owned()))?;
        let options = &self.world.options;
        let pairs = [
            (
                "IOTEDGE_WORKLOADURI",
                format!("unix://{}", self.socket.display()),
            ),
            ("IOTEDGE_DEVICEID", options.device_id.clone()),
            ("IOTEDGE_MODULEID", module.to_owned()),
            ("IOTEDGE_MODULEGENERATIONID", generation),
            ("IOTEDGE_IOTHUBHOSTNAME", options.hub_host.clone()),
            ("IOTEDGE_GATEWAYHOSTNAME", options.gateway_host.clone()),
            ("IOTEDGE_APIVERSION", options.api_version.clone()),
            ("IOTEDGE_AUTHSCHEME", "sasToken".to_owned()),
        ];
        Ok(pairs
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect())
    }

    /// A connection string with the module's key, as developers use against a hub directly.
    ///
    /// # Errors
    /// When the device has no such module.
    pub fn connection_string(&self, module: &str) -> Result<String, EdgeError> {
        let key = self
            .world
            .look(|state| state.modules.get(module).map(|m| m.primary_key()));
        let key = key.ok_or_else(|| EdgeError::UnknownModule(module.to_owned()))?;
        let options = &self.world.options;
        Ok(format!(
            "HostName={};DeviceId={};ModuleId={module};SharedAccessKey={key}",
            options.hub_host, options.device_id
        ))
    }

    /// The root certificate that modules should trust, PEM.
    pub fn trust_bundle(&self) -> String {
        self.world.pki().bundle_pem()
    }

    /// The first module's twin in the cloud.
    pub fn cloud(&self) -> Cloud<'_> {
        self.cloud_of(self.first_module())
    }

    /// A module's twin in the cloud. Of a module that does not exist, everything is empty.
    pub fn cloud_of(&self, module: &str) -> Cloud<'_> {
        Cloud::new(self, module)
    }

    /// Calls a method of the first module with a JSON payload, as the cloud does: no waiting for a
    /// module that is not there, `timeout` for the answer.
    pub async fn invoke_method(
        &self,
        name: &str,
        payload: Value,
        timeout: Duration,
    ) -> MethodResult {
        let mut call = MethodCall::new(name).json(&payload);
        call.response_timeout = timeout;
        self.invoke(call).await
    }

    /// Calls a method.
    pub async fn invoke(&self, call: MethodCall) -> MethodResult {
        let module = call
            .module
            .clone()
            .unwrap_or_else(|| self.first_module().to_owned());
        self.world.invoke(&module, call).await
    }

    /// Every message that reached the cloud, in order.
    pub fn telemetry(&self) -> Vec<TelemetryRecord> {
        self.world.look(|state| state.telemetry.clone())
    }

    /// The packet journal.
    pub fn journal(&self) -> Vec<PacketRecord> {
        self.world
            .look(|state| state.packets.records().cloned().collect())
    }

    /// What happened how often.
    pub fn counters(&self) -> Counters {
        self.world.look(|state| state.counters.clone())
    }

    /// Waits until a condition on the device and its cloud holds. It is looked at after every change.
    ///
    /// # Errors
    /// [`EdgeError::Timeout`] with the newest packets after `deadline`.
    pub async fn wait_for(
        &self,
        mut condition: impl FnMut(&View<'_>) -> bool,
        deadline: Duration,
    ) -> Result<(), EdgeError> {
        let mut changes = self.world.changes();
        let module = self.first_module().to_owned();
        let waiting = async {
            loop {
                changes.borrow_and_update();
                if self
                    .world
                    .look(|state| condition(&View::new(state, &module)))
                {
                    return;
                }
                if changes.changed().await.is_err() {
                    std::future::pending().await
                }
            }
        };
        if tokio::time::timeout(deadline, waiting).await.is_ok() {
            return Ok(());
        }
        let lines = self.world.look(|state| {
            state
                .packets
                .records()
                .rev()
                .take(30)
                .map(PacketRecord::line)
                .collect::<Vec<_>>()
        });
        let journal = lines.into_iter().rev().collect::<Vec<_>>().join("\n");
        Err(EdgeError::Timeout {
            waited: deadline,
            journal,
        })
    }

    /// Looks at the device once.
    pub fn look<R>(&self, look: impl FnOnce(&View<'_>) -> R) -> R {
        let module = self.first_module();
        self.world.look(|state| look(&View::new(state, module)))
    }

    pub(super) fn first_module(&self) -> &str {
        self.world
            .options
            .modules
            .first()
            .map_or("", String::as_str)
    }
}

fn new_folder() -> Result<PathBuf, EdgeError> {
    // Short, since the path of a unix socket may have about 100 bytes.
    let name = format!(
        "slice-lab-{}",
        &uuid::Uuid::new_v4().simple().to_string()[..12]
    );
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir(&folder).map_err(|source| EdgeError::File {
        path: folder.display().to_string(),
        source,
    })?;
    Ok(folder)
}
