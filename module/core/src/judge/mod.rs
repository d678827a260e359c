//! Judges slices: what they should say, what they say, what the difference does to traffic.
//! Pure functions of the objects and a [`JudgeContext`]; no clock, no IO.

mod context;
mod finding;

pub use context::{ControllerSign, JudgeContext};
pub use finding::{Evidence, Finding, FindingId, FindingKind, Remedy, RemedyAction, Severity};
