//! A device, a client, and waiting for conditions.

use std::time::Duration;

use serde_json::{Value, json};
use slice_hub::{Client, Config, Event, State, Status, Telemetry, Timings};
use slice_lab::edge::{Edge, EdgeOptions, View};
use tokio::time::timeout;

/// Long enough for a busy machine; a test that needs it all has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) const MODULE: &str = "slice-healer";

/// Waits of a test, not of a device. Limits that no test waits for stay long.
pub(crate) fn timings() -> Timings {
    let ms = Duration::from_millis;
    Timings {
        backoff: (ms(20), ms(200)),
        workload_backoff: (ms(20), ms(200)),
        stable: ms(500),
        desired_spacing: ms(10),
        gap_get_spacing: ms(50),
        report_interval: ms(50),
        report_alarm_interval: ms(10),
        report_backoff: (ms(20), ms(200)),
        report_verify_after: ms(400),
        report_verify_spacing: ms(100),
        ..Timings::default()
    }
}

pub(crate) fn config(edge: &Edge) -> Config {
    let vars = edge.module_env(MODULE).unwrap();
    let get = |name: &str| vars.iter().find(|(n, _)| n == name).map(|(_, v)| v.clone());
    let mut config = Config::from_edge_vars(get).unwrap().unwrap();
    config.gateway.port = edge.mqtt_port();
    config.gateway.connect_host = Some("127.0.0.1".into());
    config.timings = timings();
    config
}

pub(crate) struct Rig {
    pub(crate) edge: Edge,
    pub(crate) client: Client,
}

impl Rig {
    /// A device that works and a client that is up.
    pub(crate) async fn up() -> Self {
        let mut rig = Self::start(|_| {}).await;
        rig.until_up().await;
        rig
    }

    /// A device and a client that has just been started, with `adjust`ed settings.
    pub(crate) async fn start(adjust: impl FnOnce(&mut Config)) -> Self {
        let edge = Edge::start(EdgeOptions::quick()).await.unwrap();
        Self::on(edge, adjust)
    }

    pub(crate) fn on(edge: Edge, adjust: impl FnOnce(&mut Config)) -> Self {
        let mut config = config(&edge);
        adjust(&mut config);
        Self {
            edge,
            client: Client::spawn(config),
        }
    }

    pub(crate) async fn until_up(&mut self) {
        self.status(|s| s.state == State::Up).await;
    }

    pub(crate) async fn status(&self, mut wanted: impl FnMut(&Status) -> bool) -> Status {
        let mut status = self.client.handle.watch_status();
        match timeout(PATIENCE, status.wait_for(|s| wanted(s))).await {
            Ok(found) => found.unwrap().clone(),
            Err(_) => panic!("the status stayed {:#?}", self.client.handle.status()),
        }
    }

    pub(crate) async fn device(&self, condition: impl FnMut(&View<'_>) -> bool) {
        self.edge.wait_for(condition, PATIENCE).await.unwrap();
    }

    /// The next event that `pick` takes; those before it are dropped.
    pub(crate) async fn event<T>(&mut self, mut pick: impl FnMut(Event) -> Option<T>) -> T {
        let search = async {
            loop {
                let event = self.client.events.recv().await.expect("the client ended");
                if let Some(found) = pick(event) {
                    return found;
                }
            }
        };
        timeout(PATIENCE, search).await.expect("no such event")
    }

    /// The next desired document with at least this version.
    pub(crate) async fn desired(&mut self, at_least: u64) -> (u64, Value) {
        self.event(|e| match e {
            Event::Desired {
                version, document, ..
            } if version >= at_least => Some((version, document)),
            _ => None,
        })
        .await
    }

    /// Sends a message and waits for its acknowledgement.
    pub(crate) async fn deliver(&self, id: &str) {
        let ack = self
            .client
            .handle
            .send_telemetry(message(id))
            .await
            .unwrap();
        timeout(PATIENCE, ack)
            .await
            .expect("not acknowledged")
            .unwrap();
    }
}

pub(crate) fn message(id: &str) -> Telemetry {
    Telemetry::json(id, "events", &json!({"id": id})).unwrap()
}

/// Message ids at the cloud, in order.
pub(crate) fn ids(view: &View<'_>) -> Vec<String> {
    view.telemetry()
        .iter()
        .filter_map(|t| t.message_id().map(str::to_owned))
        .collect()
}
