//! What a client needs to know before it starts: who it is, where the hub is, how it proves itself.
//!
//! Read once. Nothing below this file looks at the environment.

mod read;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use thiserror::Error;

use crate::timings::Timings;
use crate::workload::WorkloadUri;

/// The port that edgeHub and IoT Hub listen on for MQTT over TLS.
pub const MQTT_TLS_PORT: u16 = 8883;

/// A configuration that cannot work, with what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// Some of the variables that edgeAgent sets are there, others are not.
    #[error(
        "these IoT Edge variables are missing: {}. edgeAgent sets them for every module; outside \
         IoT Edge unset all IOTEDGE_ variables or use a connection string", .0.join(", ")
    )]
    MissingVariables(Vec<&'static str>),
    /// A variable or part of a connection string has a value that this client cannot use.
    #[error("{name}: {reason}")]
    Invalid {
        /// Which setting.
        name: &'static str,
        /// What is wrong with it; never the value of a secret.
        reason: String,
    },
    /// A connection string lacks a part.
    #[error(
        "the connection string has no {0}=; a module's has HostName, DeviceId, ModuleId and SharedAccessKey"
    )]
    MissingPart(&'static str),
}

/// Who the module is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Full host name of the IoT Hub, as in the token's audience.
    pub hub_host: String,
    /// Id of the edge device.
    pub device_id: String,
    /// Id of this module.
    pub module_id: String,
}

impl Identity {
    /// The MQTT client id, `{device}/{module}`; edgeHub compares it byte for byte.
    pub fn client_id(&self) -> String {
        format!("{}/{}", self.device_id, self.module_id)
    }

    fn check(&self) -> Result<(), ConfigError> {
        let parts = [
            ("hub host name", &self.hub_host),
            ("device id", &self.device_id),
            ("module id", &self.module_id),
        ];
        for (name, value) in parts {
            if value.is_empty() {
                return Err(invalid(name, "is empty"));
            }
            // They stand unencoded in topic names and between the slashes of the user name.
            if value.contains(['/', '+', '#', '?', '\0']) || value.chars().any(char::is_control) {
                return Err(invalid(
                    name,
                    "holds a character that MQTT topics cannot: / + # ?",
                ));
            }
        }
        Ok(())
    }
}

/// Where the hub listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gateway {
    /// Host name (or address) that the server's certificate must carry; also the TCP target.
    pub host: String,
    /// TCP port, normally [`MQTT_TLS_PORT`].
    pub port: u16,
    /// TCP target where it is not `host`, for a name that only the certificate knows.
    pub connect_host: Option<String>,
}

/// How the module proves who it is, and whom it trusts.
#[derive(Debug, Clone)]
pub enum Credentials {
    /// IoT Edge: the workload API signs and hands out the trust bundle.
    Workload {
        /// Where the workload API listens.
        uri: WorkloadUri,
        /// Generation of the module identity, part of the path to sign.
        generation_id: String,
        /// Version to ask for; see [`crate::workload`].
        api_version: String,
    },
    /// A key of the module's own, for development against a hub without IoT Edge.
    SharedKey {
        /// Decoded key.
        key: SharedKey,
        /// PEM file with the certificates to trust, for instance `/etc/ssl/certs/ca-certificates.crt`.
        trusted_roots: PathBuf,
    },
}

/// A decoded shared access key. `Debug` shows nothing of it.
#[derive(Clone, PartialEq, Eq)]
pub struct SharedKey(pub(crate) Vec<u8>);

impl std::fmt::Debug for SharedKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SharedKey(redacted)")
    }
}

/// Bounds that keep the client inside what edgeHub and IoT Hub accept, and its memory small.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Topic plus body of one publish, bytes. edgeHub closes the connection at 262,144 for the packet.
    pub publish_bytes: usize,
    /// Largest packet taken from the hub, bytes.
    pub receive_bytes: u32,
    /// Publishes without PUBACK at one time. edgeHub stops reading at 16.
    pub in_flight: usize,
    /// Whole reported document, bytes.
    pub reported_bytes: usize,
    /// One reported patch, bytes. The hub takes 32 KiB.
    pub patch_bytes: usize,
    /// Body of a method answer, bytes. The hub takes 128 KiB.
    pub method_answer_bytes: usize,
    /// Method calls being worked on at one time; more are answered with 429.
    pub methods: usize,
    /// Events that wait for the program.
    pub events: usize,
    /// Telemetry that waits for a place in flight.
    pub telemetry: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            publish_bytes: 250_000,
            receive_bytes: 512 * 1024,
            in_flight: 10,
            reported_bytes: 8 * 1024,
            patch_bytes: 30 * 1024,
            method_answer_bytes: 127 * 1024,
            methods: 16,
            events: 256,
            telemetry: 16,
        }
    }
}

/// Source of the wall clock, used for a token's expiry only. Tests can set it.
#[derive(Clone)]
pub struct WallClock(Arc<dyn Fn() -> SystemTime + Send + Sync>);

impl WallClock {
    /// A clock that answers with what `now` returns.
    pub fn new(now: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    pub(crate) fn epoch_secs(&self) -> u64 {
        (self.0)()
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |d| d.as_secs())
    }
}

impl Default for WallClock {
    fn default() -> Self {
        Self::new(SystemTime::now)
    }
}

impl std::fmt::Debug for WallClock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WallClock")
    }
}

/// All settings of a client.
#[derive(Debug, Clone)]
pub struct Config {
    /// Who the module is.
    pub identity: Identity,
    /// Where the hub listens.
    pub gateway: Gateway,
    /// How the module proves who it is.
    pub credentials: Credentials,
    /// Product name and version, shown in the hub as the client type.
    pub product: String,
    /// Digital twin model id (`dtmi:…;n`) to announce, for Plug and Play.
    pub model_id: Option<String>,
    /// MQTT clean session. Off by default: edgeHub then keeps input messages while we are away.
    pub clean_session: bool,
    /// Whether to subscribe to the module's inputs.
    pub inputs: bool,
    /// Bounds.
    pub limits: Limits,
    /// Durations.
    pub timings: Timings,
    /// Wall clock for token expiry.
    pub wall_clock: WallClock,
}

impl Config {
    /// A configuration from its parts, with defaults for the rest.
    ///
    /// # Errors
    /// When an id cannot stand in a topic, or the gateway's name is empty.
    pub fn new(
        identity: Identity,
        gateway: Gateway,
        credentials: Credentials,
    ) -> Result<Self, ConfigError> {
        identity.check()?;
        if gateway.host.is_empty() {
            return Err(invalid("gateway host name", "is empty"));
        }
        Ok(Self {
            identity,
            gateway,
            credentials,
            product: concat!("slice-hub/", env!("CARGO_PKG_VERSION")).to_owned(),
            model_id: None,
            clean_session: false,
            inputs: true,
            limits: Limits::default(),
            timings: Timings::default(),
            wall_clock: WallClock::default(),
        })
    }
}

fn invalid(name: &'static str, reason: impl ToString) -> ConfigError {
    ConfigError::Invalid {
        name,
        reason: reason.to_string(),
    }
}
