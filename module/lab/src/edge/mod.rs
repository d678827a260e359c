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
//! What it does not imitate: it is no broker (no local pub/sub between clients) and no container
//! runtime (anybody who reaches the socket is any module); it knows no leaf devices and no nesting.
//! Its keys are ECDSA where the real ones are RSA, its cloud takes everything at once and has no
//! quotas, and messages in it have no priority and no time to live. What it keeps it keeps in memory,
//! so that a restart of edgeHub is a restart of the port, not of the process.

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
pub use faults::{BundleFault, CertificateFault, Faults, TwinFault, WorkloadFault};
pub use message::{InputMessage, TelemetryRecord};
pub use methods::{MethodCall, MethodResult};
pub use options::EdgeOptions;
pub use record::{PacketRecord, Way};
pub use sas::Username;
pub use state::Counters;
pub use view::View;
