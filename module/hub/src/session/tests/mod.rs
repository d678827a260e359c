//! The session against a scripted hub on a stopped clock: an hour passes in milliseconds, and every
//! time limit is the real one.

mod link;
mod loss;
mod peer;
mod twin;
mod wire;
