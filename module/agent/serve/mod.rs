//! What others may ask of the running module: health and metrics over HTTP, requests of the command
//! line over the control socket. HTTP only reads; neither decides anything.

pub mod control;
mod health;
mod http;
mod wire;

pub use control::{ControlCall, ControlClient, ControlError, ControlServer, Responder};
pub use health::{Beat, Health, Part};
pub use http::{ServeError, Server};
pub use wire::{ControlEvent, ControlReply, ControlRequest};
