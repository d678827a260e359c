//! The hub's side: how it is reached, starting the module client, and handing its events to the pump.
//! What is sent to it is in `outbox.rs` and `twin.rs`.

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
        Some(path) => Some(from_file(path)?),
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

fn from_file(path: &str) -> anyhow::Result<Config> {
    use anyhow::Context;
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("hub.connection_string_file {path} cannot be read"))?;
    let secret = slice_hub::Secret::new(text.trim());
    let config = Config::from_connection_string(&secret, "/etc/ssl/certs/ca-certificates.crt")
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
