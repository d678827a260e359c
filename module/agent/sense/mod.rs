//! What comes in from the world: the cluster's objects, the host's units, the journal.
//!
//! Each sense turns what it sees into the core's vocabulary and sends it on; none decides.

pub mod cluster;
pub mod journal;
pub mod rules;
pub mod stream;
pub mod units;
