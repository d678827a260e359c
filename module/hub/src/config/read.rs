//! Configurations from the environment that edgeAgent sets, and from a connection string.

use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::{
    Config, ConfigError, Credentials, Gateway, Identity, MQTT_TLS_PORT, SharedKey, invalid,
};
use crate::secret::Secret;
use crate::workload::{DEFAULT_API_VERSION, WorkloadUri};

impl Config {
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
