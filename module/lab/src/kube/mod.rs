//! A Kubernetes API server in memory, and an endpoint controller that can misbehave.
//!
//! It stores any served resource as plain JSON and imitates what a reader and writer of Services,
//! Pods and EndpointSlices can tell apart: versions, watches, conflicts, preconditions, finalizers,
//! generation. It does not imitate admission, RBAC objects, server-side apply, TLS, tables or
//! schedulers; truth about the controller comes from the real one.

mod cluster;
mod collector;
pub mod controller;
mod discovery;
mod events;
mod form;
mod knobs;
mod listener;
pub mod object;
mod patch;
mod query;
pub mod resource;
mod respond;
mod route;
mod selector;
mod server;
mod shared;
mod status;
mod store;
mod strategy;
#[cfg(test)]
mod tests;
mod verbs;
mod watch;
mod workload;

pub use cluster::{Cluster, ClusterOptions, namespace};
pub use knobs::{Failure, Fault, Forbid, Request};
pub use resource::Resource;
pub use selector::Selector;
pub use shared::{ADMIN, Batch, Follower, USER};
pub use status::ApiError;
pub use store::{Change, ChangeKind};
pub use verbs::DeleteOptions;
pub use workload::{Deployment, Rollout};
