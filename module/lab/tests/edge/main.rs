//! The emulated IoT Edge device at the level of bytes: what edgeHub, the workload API and the cloud
//! do with each packet and each request. The official SDKs are run by `tests/peers.rs`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod connect;
mod control;
mod faults;
mod methods;
mod raw;
mod readme;
mod telemetry;
mod twin;
mod workload;
