//! What the tests stand on: the real control plane, builders for objects, waiting for conditions.
//!
//! A library for the tests: not every piece is used by every revision of them. It never decides
//! whether a test passes.
#![allow(dead_code, unreachable_pub)]

pub mod backoff;
pub mod badway;
pub mod ban;
pub mod cgroup;
pub mod cluster;
pub mod controlplane;
pub mod dtdl;
pub mod ground;
pub mod journald;
pub mod lines;
pub mod link;
pub mod module;
pub mod netns;
pub mod objects;
pub mod peer;
pub mod product;
pub mod random;
pub mod scrape;
pub mod stale;
pub mod usage;
pub mod wait;
