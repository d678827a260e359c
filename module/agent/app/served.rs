//! HTTP and the control socket of a running module. That one of them cannot be had is reported and
//! does not keep the module from healing.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::pump::Incoming;
use crate::observe::metrics::Metrics;
use crate::serve::{ControlServer, Health, Part, Server};
use crate::settings::Settings;

/// How many requests of the control socket may wait.
const CALLS: usize = 16;

/// Starts both.
pub(super) async fn start(
    settings: &Settings,
    metrics: &Arc<Metrics>,
    health: &Health,
    tx: &mpsc::Sender<Incoming>,
    stop: &CancellationToken,
    on_http: Option<oneshot::Sender<SocketAddr>>,
) {
    let address = SocketAddr::new(settings.serve.address, settings.serve.port);
    match Server::bind(address).await {
        Ok(server) => {
            info!(address = %server.address(), "serving metrics and health");
            health.report("http", Part::new("listening"));
            if let Some(on_http) = on_http {
                let _ = on_http.send(server.address());
            }
            tokio::spawn(server.run(Arc::clone(metrics), health.clone(), stop.clone()));
        }
        Err(why) => {
            warn!(error = %why, "no metrics and no health over HTTP");
            health.report("http", Part::because("failed", why.to_string()));
        }
    }
    match ControlServer::bind(&settings.store.directory).await {
        Ok(server) => {
            let (calls_tx, mut calls) = mpsc::channel(CALLS);
            tokio::spawn(server.run(calls_tx, health.clone(), stop.clone()));
            let tx = tx.clone();
            tokio::spawn(async move {
                while let Some(call) = calls.recv().await {
                    if tx.send(Incoming::Control(call)).await.is_err() {
                        return;
                    }
                }
            });
        }
        Err(why) => {
            warn!(error = %why, "the command line cannot reach this module");
            health.report("control", Part::because("failed", why.to_string()));
        }
    }
}
