//! The hub's side: how it is reached, starting the module client, and handing its events to the pump.
//! What is sent to it is in `outbox.rs` and `twin.rs`.

use std::path::Path;
use std::sync::Arc;

use slice_hub::{Client, Config, Credentials, Handle, Timings};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::Incoming;
use crate::report::model;
use crate::settings::{Enabled, Settings};

/// Variables as the process environment has them.
pub type Vars = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// What is known of the hub before anything is started.
pub enum Plan {
    /// There is a hub to connect to.
    Connect(Box<Config>),
    /// There is none; the text says why.
    None(String),
}

impl Plan {
    /// Name and port of edgeHub, or of the hub itself.
    pub fn gateway(&self) -> Option<(String, u16)> {
        match self {
            Self::Connect(config) => Some((config.gateway.host.clone(), config.gateway.port)),
            Self::None(_) => None,
        }
    }

    /// URI and version of the workload API, where it is what signs.
    pub fn workload(&self, vars: &Vars) -> Option<(String, String)> {
        let Self::Connect(config) = self else {
            return None;
        };
        let Credentials::Workload { api_version, .. } = &config.credentials else {
            return None;
        };
        Some((vars("IOTEDGE_WORKLOADURI")?, api_version.clone()))
    }
}

/// Works out how to reach the hub. `timings` replaces the client's own in the lab.
///
/// # Errors
/// The variables of IoT Edge are there and wrong, or the connection string is.
pub fn plan(settings: &Settings, vars: &Vars, timings: Option<Timings>) -> anyhow::Result<Plan> {
    if settings.hub.enabled == Enabled::Never {
        return Ok(Plan::None("hub.enabled = never".to_owned()));
    }
    let file = settings.hub.connection_string_file.get();
    let config = match file {
        Some(path) => Some(from_file(path, &settings.hub.trusted_roots)?),
        None => Config::from_edge_vars(|name| vars(name))?,
    };
    let Some(mut config) = config else {
        let text = "no IOTEDGE_ variable is set and there is no hub.connection_string_file";
        if settings.hub.enabled == Enabled::Always {
            anyhow::bail!("hub.enabled = always, but {text}");
        }
        return Ok(Plan::None(text.to_owned()));
    };
    config.gateway.port = settings.hub.gateway_port;
    config.product = concat!("slice-healer/", env!("CARGO_PKG_VERSION")).to_owned();
    config.model_id = Some(model::MODEL_ID.to_owned());
    config.inputs = false;
    if let Some(timings) = timings {
        config.timings = timings;
    }
    config.timings.report_interval = settings.report.min_interval.0;
    Ok(Plan::Connect(Box::new(config)))
}

/// A module connection string. The certificates are looked at now: a file that is missing would only
/// show as a connection that never comes.
fn from_file(path: &str, roots: &Path) -> anyhow::Result<Config> {
    use anyhow::Context;
    let shown = roots.display();
    let pem = std::fs::read_to_string(roots).with_context(|| {
        format!("hub.trusted_roots {shown} cannot be read; name a PEM file with the roots to trust")
    })?;
    if !pem.contains("-----BEGIN CERTIFICATE-----") {
        anyhow::bail!("hub.trusted_roots {shown} holds no certificate in PEM form");
    }
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("hub.connection_string_file {path} cannot be read"))?;
    let secret = slice_hub::Secret::new(text.trim());
    let config = Config::from_connection_string(&secret, roots)
        .with_context(|| format!("hub.connection_string_file {path}"))?;
    Ok(config)
}

/// A running client.
pub struct Hub {
    /// Gives commands to the client.
    pub handle: Handle,
    /// Whether the workload API of IoT Edge is used, whose socket can go stale.
    pub workload: bool,
}

/// Starts the client and the task that hands on its events.
pub fn start(config: Config, tx: mpsc::Sender<Incoming>, stop: &CancellationToken) -> Hub {
    let workload = matches!(config.credentials, Credentials::Workload { .. });
    info!(device = %config.identity.device_id, module = %config.identity.module_id,
        gateway = %config.gateway.host, "module client starts");
    let Client {
        handle, mut events, ..
    } = Client::spawn(config);
    let stop = stop.clone();
    tokio::spawn(async move {
        loop {
            let event = tokio::select! {
                () = stop.cancelled() => return,
                event = events.recv() => event,
            };
            // The pump owns what follows; when it is gone, the process is ending.
            let Some(event) = event else { return };
            if tx.send(Incoming::Hub(event)).await.is_err() {
                return;
            }
        }
    });
    Hub { handle, workload }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Loaded;

    const STRING: &str = "HostName=h.net;DeviceId=d;ModuleId=m;SharedAccessKey=a2tra2s=";

    /// What comes of a connection string with these roots.
    fn planned(roots: &str) -> anyhow::Result<Plan> {
        let folder = tempfile::tempdir()?;
        let path = |name: &str| folder.path().join(name).display().to_string();
        std::fs::write(path("string"), STRING)?;
        std::fs::write(path("empty.pem"), "no certificate\n")?;
        std::fs::write(
            path("roots.pem"),
            rcgen::generate_simple_self_signed(vec!["root".to_owned()])?
                .cert
                .pem(),
        )?;
        let env = [
            ("SLICE_HEALER__HUB__CONNECTION_STRING_FILE", path("string")),
            ("SLICE_HEALER__HUB__TRUSTED_ROOTS", path(roots)),
        ];
        let env = env.map(|(key, value)| (key.to_owned(), value));
        let vars: Vars = Arc::new(|_| None);
        plan(&Loaded::load(None, env)?.settings, &vars, None)
    }

    #[test]
    fn the_roots_of_a_connection_string_are_a_setting_and_looked_at() {
        let Ok(Plan::Connect(config)) = planned("roots.pem") else {
            panic!("a connection was expected")
        };
        let Credentials::SharedKey { trusted_roots, .. } = &config.credentials else {
            panic!("a key was expected")
        };
        assert!(trusted_roots.ends_with("roots.pem"));
        for (roots, why) in [
            ("nowhere.pem", "cannot be read"),
            ("empty.pem", "no certificate"),
        ] {
            let Err(error) = planned(roots) else {
                panic!("{roots} was taken")
            };
            let text = format!("{error:#}");
            assert!(
                text.contains("hub.trusted_roots") && text.contains(why),
                "{text}"
            );
            assert!(!text.contains("a2tra2s"), "{text}");
        }
    }
}
