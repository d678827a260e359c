//! Asks the API server for its version after each connection: expectations depend on it, and an
//! upgrade looks like any other reconnection.

use std::sync::Arc;
use std::time::Duration;

use slice_core::event::ClusterInput;
use slice_core::model::ServerVersion;
use tokio::sync::{Notify, mpsc};
use tokio::time::{sleep, timeout};
use tracing::{debug, info, warn};

use super::Options;
use super::follow::jittered;
use crate::client::{Supply, explain};

/// How long the server may take to tell its version.
const DEADLINE: Duration = Duration::from_secs(10);

/// Asks whenever a kind was listed, and tells what is new.
pub(super) async fn follow(
    supply: Supply,
    tx: mpsc::Sender<ClusterInput>,
    synced: Arc<Notify>,
    options: Arc<Options>,
) {
    let mut known: Option<ServerVersion> = None;
    loop {
        synced.notified().await;
        let mut pause = options.first_pause;
        let version = loop {
            match ask(&supply).await {
                Ok(version) => break version,
                Err(reason) => debug!(%reason, "the server's version is not known yet"),
            }
            sleep(jittered(pause)).await;
            pause = (pause * 2).min(options.longest_pause);
        };
        if known.as_ref() == Some(&version) {
            continue;
        }
        info!(%version, "API server");
        known = Some(version.clone());
        if tx.send(ClusterInput::Version(version)).await.is_err() {
            return;
        }
    }
}

async fn ask(supply: &Supply) -> Result<ServerVersion, String> {
    let client = supply.current().map_err(|reason| reason.to_string())?;
    let answer = timeout(DEADLINE, client.apiserver_version()).await;
    let info = answer.map_err(|_| format!("no answer within {DEADLINE:?}"))?;
    let text = info.map_err(|error| explain(&error))?.git_version;
    ServerVersion::parse(&text).ok_or_else(|| {
        warn!(text, "the server's version cannot be read");
        format!("`{text}` is no version")
    })
}
