//! What a client needs to know before it starts: who it is, where the hub is, how it proves itself.
//!
//! Read once. Nothing below this file looks at the environment.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use thiserror::Error;

use crate::secret::Secret;
use crate::timings::Timings;
use crate::workload::{DEFAULT_API_VERSION, WorkloadUri};

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

    /// Reads what edgeAgent put into the environment. `Ok(None)` when none of the variables is
    /// there: the program runs outside IoT Edge.
    ///
    /// # Errors
    /// When some are there but not all, or one cannot be used; the message names them.
    pub fn from_edge_env() -> Result<Option<Self>, ConfigError> {
        Self::from_edge_vars(|name| std::env::var(name).ok())
    }

    /// As [`Self::from_edge_env`], with the variables from `get`.
    ///
    /// # Errors
    /// As [`Self::from_edge_env`].
    pub fn from_edge_vars(
        get: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, ConfigError> {
        let read = |name| {
            get(name)
                .map(|v| v.trim().to_owned())
                .filter(|v| !v.is_empty())
        };
        let required = [
            "IOTEDGE_WORKLOADURI",
            "IOTEDGE_DEVICEID",
            "IOTEDGE_MODULEID",
            "IOTEDGE_MODULEGENERATIONID",
            "IOTEDGE_IOTHUBHOSTNAME",
            "IOTEDGE_GATEWAYHOSTNAME",
        ];
        let values = required.map(read);
        let api_version = read("IOTEDGE_APIVERSION");
        let auth_scheme = read("IOTEDGE_AUTHSCHEME");
        if values.iter().all(Option::is_none) && api_version.is_none() && auth_scheme.is_none() {
            return Ok(None);
        }
        let missing: Vec<_> = required
            .iter()
            .zip(&values)
            .filter_map(|(name, value)| value.is_none().then_some(*name))
            .collect();
        let [
            Some(workload),
            Some(device),
            Some(module),
            Some(generation),
            Some(hub),
            Some(gateway),
        ] = values
        else {
            return Err(ConfigError::MissingVariables(missing));
        };
        if let Some(scheme) = auth_scheme
            && !scheme.eq_ignore_ascii_case("sasToken")
        {
            return Err(invalid("IOTEDGE_AUTHSCHEME", "only sasToken is known"));
        }
        let credentials = Credentials::Workload {
            uri: WorkloadUri::parse(&workload).map_err(|e| invalid("IOTEDGE_WORKLOADURI", e))?,
            generation_id: generation,
            api_version: api_version.unwrap_or_else(|| DEFAULT_API_VERSION.to_owned()),
        };
        let identity = Identity {
            hub_host: hub,
            device_id: device,
            module_id: module,
        };
        let gateway = Gateway {
            host: gateway,
            port: MQTT_TLS_PORT,
            connect_host: None,
        };
        Self::new(identity, gateway, credentials).map(Some)
    }

    /// Reads a module's connection string (`HostName=…;DeviceId=…;ModuleId=…;SharedAccessKey=…`,
    /// with `GatewayHostName` where there is one) and connects with it. Meant for development: the
    /// key lies in this process's memory. `trusted_roots` is a PEM file.
    ///
    /// # Errors
    /// When a part is missing or cannot be used. The key is never part of the message.
    pub fn from_connection_string(
        text: &Secret,
        trusted_roots: impl Into<PathBuf>,
    ) -> Result<Self, ConfigError> {
        let part = |wanted: &'static str| {
            text.expose()
                .split(';')
                .filter_map(|pair| pair.split_once('='))
                .find(|(key, _)| key.trim().eq_ignore_ascii_case(wanted))
                .map(|(_, value)| value.trim().to_owned())
                .filter(|value| !value.is_empty())
        };
        let need = |name| part(name).ok_or(ConfigError::MissingPart(name));
        let hub_host = need("HostName")?;
        let key = BASE64
            .decode(need("SharedAccessKey")?)
            .map_err(|_| invalid("SharedAccessKey", "is not base64"))?;
        let host = part("GatewayHostName").unwrap_or_else(|| hub_host.clone());
        Self::new(
            Identity {
                hub_host,
                device_id: need("DeviceId")?,
                module_id: need("ModuleId")?,
            },
            Gateway {
                host,
                port: MQTT_TLS_PORT,
                connect_host: None,
            },
            Credentials::SharedKey {
                key: SharedKey(key),
                trusted_roots: trusted_roots.into(),
            },
        )
    }
}

fn invalid(name: &'static str, reason: impl ToString) -> ConfigError {
    ConfigError::Invalid {
        name,
        reason: reason.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn edge_vars() -> HashMap<&'static str, &'static str> {
        HashMap::from([
            (
                "IOTEDGE_WORKLOADURI",
                "unix:///var/run/iotedge/workload.sock",
            ),
            ("IOTEDGE_DEVICEID", "edge1"),
            ("IOTEDGE_MODULEID", "lamp"),
            ("IOTEDGE_MODULEGENERATIONID", "637"),
            ("IOTEDGE_IOTHUBHOSTNAME", "h.azure-devices.net"),
            ("IOTEDGE_GATEWAYHOSTNAME", "edge-7"),
            ("IOTEDGE_APIVERSION", "2022-08-03"),
            ("IOTEDGE_AUTHSCHEME", "sasToken"),
        ])
    }

    fn read(vars: &HashMap<&str, &str>) -> Result<Option<Config>, ConfigError> {
        Config::from_edge_vars(|name| vars.get(name).map(|v| (*v).to_owned()))
    }

    #[test]
    fn reads_what_edge_agent_sets() {
        let config = read(&edge_vars()).unwrap().unwrap();
        assert_eq!(config.identity.client_id(), "edge1/lamp");
        assert_eq!(config.gateway.host, "edge-7");
        assert_eq!(config.gateway.port, 8883);
        let Credentials::Workload {
            generation_id,
            api_version,
            ..
        } = config.credentials
        else {
            panic!("workload credentials expected")
        };
        assert_eq!(
            (generation_id.as_str(), api_version.as_str()),
            ("637", "2022-08-03")
        );
    }

    #[test]
    fn no_variable_at_all_means_outside_iot_edge() {
        assert!(read(&HashMap::new()).unwrap().is_none());
    }

    #[test]
    fn names_every_variable_that_is_missing() {
        let mut vars = edge_vars();
        vars.remove("IOTEDGE_DEVICEID");
        vars.insert("IOTEDGE_GATEWAYHOSTNAME", " ");
        let error = read(&vars).unwrap_err();
        assert_eq!(
            error,
            ConfigError::MissingVariables(vec!["IOTEDGE_DEVICEID", "IOTEDGE_GATEWAYHOSTNAME"])
        );
        let only_version = HashMap::from([("IOTEDGE_APIVERSION", "2022-08-03")]);
        assert!(
            matches!(read(&only_version), Err(ConfigError::MissingVariables(m)) if m.len() == 6)
        );
    }

    #[test]
    fn refuses_what_it_cannot_use() {
        for (name, value) in [
            ("IOTEDGE_AUTHSCHEME", "x509"),
            ("IOTEDGE_WORKLOADURI", "ftp://x"),
            ("IOTEDGE_MODULEID", "a/b"),
            ("IOTEDGE_DEVICEID", "a#b"),
        ] {
            let mut vars = edge_vars();
            vars.insert(name, value);
            assert!(
                matches!(read(&vars), Err(ConfigError::Invalid { .. })),
                "{name}={value}"
            );
        }
    }

    #[test]
    fn connection_string_in_any_order_and_without_the_key_in_sight() {
        let text = "SharedAccessKey=a2tra2s=;ModuleId=m;DeviceId=d;HostName=h.net";
        let config = Config::from_connection_string(&Secret::new(text), "/ca.pem").unwrap();
        assert_eq!(config.gateway.host, "h.net");
        assert!(!format!("{config:?}").contains("a2tra2s"));
        assert!(!format!("{config:?}").contains("107, 107"));

        let broken = Secret::new("HostName=h;DeviceId=d;ModuleId=m;SharedAccessKey=s3cr!t");
        let error = Config::from_connection_string(&broken, "/ca.pem").unwrap_err();
        assert!(!error.to_string().contains("s3cr"), "{error}");
        let short = Secret::new("HostName=h;DeviceId=d;SharedAccessKey=a2tra2s=");
        assert_eq!(
            Config::from_connection_string(&short, "/ca.pem").unwrap_err(),
            ConfigError::MissingPart("ModuleId")
        );
    }
}
