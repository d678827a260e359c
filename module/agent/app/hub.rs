//! The hub's side: starts the module client, hands its events to the pump, and empties the outbox
//! into it. A message leaves the outbox only when the hub has acknowledged it.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures::FutureExt as _;
use futures::stream::{FuturesUnordered, StreamExt};
use slice_hub::{Client, Config, Credentials, Handle, SendError, Telemetry, Timings};
use tokio::sync::{Notify, mpsc};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use super::Incoming;
use super::books::Books;
use crate::report::model;
use crate::settings::{Enabled, Settings};
use crate::store::Outgoing;

/// Messages handed to the client at one time.
const IN_FLIGHT: usize = 8;
/// How long one message may wait for a place in the client before the outbox is looked at anew.
const PLACE: Duration = Duration::from_secs(5);

/// How long until the outbox is looked at anew although nothing was told.
const AGAIN: Duration = Duration::from_secs(30);

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

/// Empties the outbox into the client for as long as the process lives. `wake` is notified when
/// something was put in.
pub async fn send_outbox(handle: Handle, books: Books, wake: Arc<Notify>) {
    // Handed to the client, and not taken out of the outbox yet.
    let mut flying: HashSet<u64> = HashSet::new();
    // Of them, those that the hub has: where the disk does not take that, they must not be sent again
    // and again meanwhile.
    let mut delivered: Vec<u64> = Vec::new();
    let mut acks = FuturesUnordered::new();
    loop {
        if flying.len() < IN_FLIGHT {
            match books.outbox_peek(IN_FLIGHT * 2).await {
                Ok(messages) => {
                    for message in messages {
                        let number = message.number;
                        if flying.len() >= IN_FLIGHT || flying.contains(&number) {
                            continue;
                        }
                        let id = message.message.id.clone();
                        let place = handle.send_telemetry(telemetry(message.message));
                        match timeout(PLACE, place).await {
                            Ok(Ok(ack)) => {
                                flying.insert(number);
                                acks.push(async move { (number, id, ack.await.is_ok()) });
                            }
                            Ok(Err(SendError::Stopped)) => return,
                            Ok(Err(cannot)) => {
                                // It can never be sent; keeping it would block what follows.
                                error!(id, error = %cannot, "event dropped from the outbox");
                                let _ = books.outbox_ack(vec![number]).await;
                            }
                            Err(_) => break,
                        }
                    }
                }
                Err(failed) => {
                    warn!(error = %failed, "the outbox cannot be read; trying again");
                    sleep(PLACE).await;
                }
            }
        }
        tokio::select! {
            Some(first) = acks.next(), if !acks.is_empty() => {
                let mut ended = vec![first];
                // Those that came together are one write.
                while let Some(Some(more)) = acks.next().now_or_never() {
                    ended.push(more);
                }
                for (number, id, acked) in ended {
                    if acked {
                        debug!(id, "acknowledged by the hub");
                        delivered.push(number);
                    } else {
                        flying.remove(&number);
                    }
                }
            }
            () = wake.notified() => {}
            () = sleep(AGAIN) => {}
        }
        if delivered.is_empty() {
            continue;
        }
        match books.outbox_ack(delivered.clone()).await {
            Ok(()) => {
                for number in delivered.drain(..) {
                    flying.remove(&number);
                }
            }
            Err(failed) => {
                warn!(error = %failed, "acknowledged events stay in the outbox; the next start may send them again");
            }
        }
    }
}

fn telemetry(message: Outgoing) -> Telemetry {
    Telemetry {
        id: message.id,
        output: Some(message.output),
        content_type: Some("application/json".to_owned()),
        content_encoding: Some("utf-8".to_owned()),
        component: Some(model::EVENTS.to_owned()),
        created_at: happened_at(&message.body),
        properties: message.properties,
        body: message.body.into(),
    }
}

/// The hub may see a message days after it happened.
fn happened_at(body: &str) -> Option<SystemTime> {
    let body: serde_json::Value = serde_json::from_str(body).ok()?;
    let at: jiff::Timestamp = body.get("at")?.as_str()?.parse().ok()?;
    Some(at.into())
}
