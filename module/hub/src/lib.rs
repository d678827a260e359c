//! An Azure IoT Edge module client.
//!
//! One task owns the connection to edgeHub (or to IoT Hub): it gets a token and the certificates to
//! trust from the workload API, connects, subscribes, keeps the twin in step and reconnects for ever.
//! The program gets [`Event`]s and gives commands through a [`Handle`]. The crate stores nothing on
//! disk and decides nothing about the program's data: what must survive a crash stays in the
//! program's own outbox until [`Ack`] says that the hub has it.

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
