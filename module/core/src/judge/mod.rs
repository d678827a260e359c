//! Judges slices: what they should say, what they say, what the difference does to traffic.
//! Pure functions of the objects and a [`JudgeContext`]; no clock, no IO.

mod balance;
mod bench;
mod causes;
pub mod churn;
mod classify;
mod cluster;
mod context;
mod diff;
mod expect;
mod finding;
mod foreign;
mod hints;
mod legacy;
mod mirror;
mod notes;
mod owners;
mod readiness;
mod service;
mod words;

pub use balance::{Balance, balance};
pub use cluster::{is_in_scope, is_mass_drift, judge_world, weigh};
pub use context::{ControllerSign, JudgeContext};
pub use finding::{Evidence, Finding, FindingId, FindingKind, Remedy, RemedyAction, Severity};
pub use service::judge_service;
