//! An Azure IoT Edge device without the device: workload API, edgeHub and the cloud behind it, in
//! this process, for tests and for the demo. Built from the wire formats and from what edgeHub's
//! source does; official SDKs run against it unmodified (see `tests/peers`).
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use slice_lab::edge::{Edge, EdgeOptions};
//!
//! let edge = Edge::start(EdgeOptions::quick()).await?;
//! let env = edge.module_env("slice-healer")?; // IOTEDGE_WORKLOADURI and so on
//! let port = edge.mqtt_port();
//! edge.cloud().set_desired(serde_json::json!({"settings": {"mode": "heal"}}))?;
//! edge.wait_for(|view| !view.telemetry().is_empty(), Duration::from_secs(30)).await?;
//! # drop((env, port)); Ok(()) }
//! ```
//!
//! It is not a broker (there is no local pub/sub between clients), not a container runtime (anybody
//! who reaches the socket is any module), and knows no leaf devices and no nesting.

mod clock;
mod cloud;
mod connection;
mod control;
mod device;
mod document;
mod error;
mod faults;
mod hub;
mod inputs;
mod knobs;
mod listener;
mod message;
mod methods;
pub mod mqtt;
mod options;
mod pki;
mod record;
mod routes;
mod sas;
mod session;
mod state;
mod sync;
mod topics;
mod twin;
mod view;
mod workload;
mod workload_server;
mod world;

pub use cloud::Cloud;
pub use device::Edge;
pub use error::EdgeError;
pub use faults::{BundleFault, Faults, TwinFault, WorkloadFault};
pub use message::{InputMessage, TelemetryRecord};
pub use methods::{MethodCall, MethodResult};
pub use options::EdgeOptions;
pub use record::{PacketRecord, Way};
pub use sas::Username;
pub use state::Counters;
pub use view::View;
