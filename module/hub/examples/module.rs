//! A small IoT Edge module: a lamp that is switched by a direct method and whose brightness is a
//! desired property.
//!
//! In a container that edgeAgent started it connects to the device's edgeHub and runs until ctrl-c.
//! Anywhere else it starts an emulated device, plays the cloud's part, and ends by itself:
//! `cargo run -p slice-hub --example module`.

use std::error::Error;
use std::time::Duration;

use serde_json::{Value, json};
use slice_hub::{Client, Config, Event, Handle, Telemetry, Urgency};
use slice_lab::edge::{Edge, EdgeOptions};
use tokio::sync::mpsc;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// The whole state of the module; the reported document is made from it.
#[derive(Default)]
struct Lamp {
    on: bool,
    brightness: u64,
    switched: u64,
}

impl Lamp {
    /// All that we want the hub to know. The client sends only what changed.
    fn reported(&self, acknowledged: u64) -> Value {
        json!({
            "on": self.on,
            "switched": self.switched,
            "brightness": {"value": self.brightness, "ac": 200, "av": acknowledged, "ad": ""},
        })
    }
}

#[tokio::main]
async fn main() -> Outcome<()> {
    tracing_subscriber::fmt().with_target(false).init();
    if let Some(config) = Config::from_edge_env()? {
        let Client { handle, events, .. } = Client::spawn(config);
        tokio::select! {
            ended = run(handle.clone(), events) => return ended,
            pressed = tokio::signal::ctrl_c() => pressed?,
        }
        handle.drain(Duration::from_secs(8)).await;
        return Ok(());
    }
    tracing::info!("no IOTEDGE_ variables: starting an emulated device");
    demonstrate().await
}

/// The module itself.
async fn run(handle: Handle, mut events: mpsc::Receiver<Event>) -> Outcome<()> {
    let mut lamp = Lamp::default();
    let mut acknowledged = 0;
    while let Some(event) = events.recv().await {
        match event {
            Event::Desired {
                version, document, ..
            } => {
                acknowledged = version;
                if let Some(brightness) = document["brightness"].as_u64() {
                    lamp.brightness = brightness;
                }
                handle.report(lamp.reported(acknowledged), Urgency::Routine)?;
            }
            Event::Method(call) if call.name == "switch" => {
                let Some(on) = call.payload["on"].as_bool() else {
                    call.reply
                        .respond(400, json!({"message": "\"on\" must be true or false"}));
                    continue;
                };
                lamp.on = on;
                lamp.switched += 1;
                // Answer first; everything else can wait.
                call.reply.respond(200, json!({"on": on}));
                handle.report(lamp.reported(acknowledged), Urgency::Alarm)?;
                let id = format!("lamp-{}", lamp.switched);
                let message = Telemetry::json(id, "events", &json!({"on": on}))?;
                let ack = handle.send_telemetry(message).await?;
                // A module with an outbox on disk would take the message out of it here.
                tokio::spawn(async move {
                    if ack.await.is_ok() {
                        tracing::info!("the hub has the message");
                    }
                });
            }
            Event::Method(call) => call
                .reply
                .respond(404, json!({"message": "unknown method"})),
            other => tracing::info!(event = ?other, "from the hub"),
        }
    }
    Ok(())
}

/// The cloud's part, on an emulated device.
async fn demonstrate() -> Outcome<()> {
    const PATIENCE: Duration = Duration::from_secs(30);
    let edge = Edge::start(EdgeOptions {
        modules: vec!["lamp".into()],
        ..EdgeOptions::quick()
    })
    .await?;
    let vars = edge.module_env("lamp")?;
    let read = |name: &str| vars.iter().find(|(n, _)| n == name).map(|(_, v)| v.clone());
    let mut config = Config::from_edge_vars(read)?.ok_or("the device gave no variables")?;
    config.gateway.port = edge.mqtt_port();
    let Client { handle, events, .. } = Client::spawn(config);
    let module = tokio::spawn(run(handle.clone(), events));

    edge.wait_for(|device| device.connected(), PATIENCE).await?;
    let version = edge.cloud().set_desired(json!({"brightness": 70}))?;
    edge.wait_for(
        |device| device.reported()["brightness"]["av"] == version,
        PATIENCE,
    )
    .await?;
    let answer = edge
        .invoke_method("switch", json!({"on": true}), PATIENCE)
        .await;
    tracing::info!(status = answer.status, payload = %answer.payload, "the cloud called switch");
    edge.wait_for(|device| device.reported()["on"] == true, PATIENCE)
        .await?;
    edge.wait_for(|device| !device.telemetry().is_empty(), PATIENCE)
        .await?;
    tracing::info!(reported = %edge.cloud().reported(), "in the cloud");

    let report = handle.drain(Duration::from_secs(8)).await;
    tracing::info!(?report, "drained");
    module.await?
}
