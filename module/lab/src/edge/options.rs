//! How an emulated device is set up. Every duration is real time unless it says otherwise.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// Settings of an emulated IoT Edge device. `EdgeOptions::default()` listens on free ports of the
/// loopback and behaves like edgeHub 1.5 and later with its default settings.
#[derive(Debug, Clone)]
pub struct EdgeOptions {
    /// Device id.
    pub device_id: String,
    /// Host name of the IoT Hub (audience of tokens, first segment of user names).
    pub hub_host: String,
    /// Name under which modules reach edgeHub; it is a SAN of the server certificate.
    pub gateway_host: String,
    /// Ids of the modules on this device. The first is the one that calls without a module mean.
    pub modules: Vec<String>,
    /// Where edgeHub's MQTT over TLS listens; port 0 takes a free one.
    pub mqtt: SocketAddr,
    /// Path of the workload socket; by default one in a folder of its own that is removed at the end.
    pub workload_socket: Option<PathBuf>,
    /// Also serve the workload API over plain HTTP, as debug daemons do.
    pub workload_http: Option<SocketAddr>,
    /// Serve the control API (knobs for a test in another process).
    pub control: Option<SocketAddr>,
    /// Value of `IOTEDGE_APIVERSION`.
    pub api_version: String,
    /// Routes in edgeHub's own language.
    pub routes: Vec<String>,
    /// Pause between two pushes of reported properties to the cloud (edgeHub: 5 s).
    pub sync_interval: Duration,
    /// Time between a module's subscription to methods and the replay of held calls (edgeHub: 3 s).
    pub method_replay_delay: Duration,
    /// An input message without PUBACK is delivered again after this (edgeHub: 30 s).
    pub message_ack_timeout: Duration,
    /// How long a twin GET blocks while the cloud cannot be reached (edgeHub: about 20 s).
    pub offline_get_delay: Duration,
    /// After the cloud is back, a twin read more recently than this is not read again
    /// (edgeHub: 120 s). By the virtual clock.
    pub min_twin_sync: Duration,
    /// How often expired tokens are looked for (edgeHub: 300 s). By the virtual clock.
    pub expiry_tick: Duration,
    /// Tolerance for expired tokens (edgeHub: 300 s). By the virtual clock.
    pub clock_skew: Duration,
    /// A connection must send CONNECT within this (edgeHub: 60 s).
    pub connect_timeout: Duration,
    /// Connections at once (edgeHub: 100).
    pub max_clients: usize,
    /// `usePersistentStorage` of edgeHub: false loses undelivered messages, twins and sessions at a restart.
    pub persistent_storage: bool,
    /// Behave like IoT Hub itself: no local store, patch answers carry `$version`.
    pub hub_direct: bool,
    /// Append every packet to this file, one JSON object a line.
    pub journal_file: Option<PathBuf>,
    /// Packets kept in memory; older ones are counted and forgotten.
    pub journal_limit: usize,
}

impl Default for EdgeOptions {
    fn default() -> Self {
        Self {
            device_id: "edge1".into(),
            hub_host: "slice-lab.azure-devices.net".into(),
            gateway_host: "localhost".into(),
            modules: vec!["slice-healer".into()],
            mqtt: loopback(0),
            workload_socket: None,
            workload_http: None,
            control: None,
            api_version: "2022-08-03".into(),
            routes: vec!["FROM /messages/* INTO $upstream".into()],
            sync_interval: Duration::from_secs(5),
            method_replay_delay: Duration::from_secs(3),
            message_ack_timeout: Duration::from_secs(30),
            offline_get_delay: Duration::from_secs(20),
            min_twin_sync: Duration::from_secs(120),
            expiry_tick: Duration::from_secs(300),
            clock_skew: Duration::from_secs(300),
            connect_timeout: Duration::from_secs(60),
            max_clients: 100,
            persistent_storage: true,
            hub_direct: false,
            journal_file: None,
            journal_limit: 200_000,
        }
    }
}

impl EdgeOptions {
    /// The default device with edgeHub's slow timers shortened, for tests that wait for them.
    pub fn quick() -> Self {
        Self {
            sync_interval: Duration::from_millis(50),
            method_replay_delay: Duration::from_millis(50),
            message_ack_timeout: Duration::from_millis(500),
            offline_get_delay: Duration::from_millis(200),
            ..Self::default()
        }
    }
}

/// A loopback address with the given port.
pub(crate) fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}
