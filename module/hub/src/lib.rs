//! An Azure IoT Edge module client: a connection to edgeHub that heals itself, and typed events and commands.
//!
#![doc = include_str!("../README.md")]

mod backoff;
mod clock;
mod config;
mod encode;
mod event;
mod handle;
mod message;
mod methods;
mod sas;
mod secret;
mod session;
mod timings;
pub mod topics;
pub mod twin;
pub mod workload;

pub use config::{
    Config, ConfigError, Credentials, Gateway, Identity, Limits, MQTT_TLS_PORT, SharedKey,
    WallClock,
};
pub use event::{Counters, DisconnectReason, Event, State, Status};
pub use handle::{Ack, DrainReport, Handle, SendError, Unacknowledged};
pub use message::{Input, Telemetry, TelemetryError};
pub use methods::{MethodCall, MethodReply};
pub use secret::Secret;
pub use session::Client;
pub use timings::Timings;
pub use twin::{ReportError, Urgency};
