//! The module twin as pure state: what is desired, what is reported, what may be sent when.
//!
//! No I/O and no clock; the time is an argument. The session asks what to do and tells what happened.

mod desired;
mod limits;
mod merge;
mod reported;

pub(crate) use desired::{Desired, DesiredChange};
pub use limits::{ReportError, check_document, document_size, escape_document, escape_key};
pub use merge::{diff, merge, strip_hub_keys};
pub(crate) use reported::{Acknowledged, Pace, Reported};

/// How soon a reported document should reach the hub.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Urgency {
    /// With the normal spacing between patches.
    #[default]
    Routine,
    /// With the shorter spacing, for what a person should see now.
    Alarm,
}
