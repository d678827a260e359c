//! What can go wrong with the emulator itself. Faults that a test asks for are never errors here.

use std::time::Duration;

/// Why the emulated device could not be started or driven.
#[derive(Debug, thiserror::Error)]
pub enum EdgeError {
    /// A certificate or key could not be made.
    #[error("cannot make the certificates of the emulated device: {0}")]
    Pki(#[from] rcgen::Error),
    /// The TLS configuration was refused.
    #[error("cannot set up TLS for the emulated edgeHub: {0}")]
    Tls(#[from] rustls::Error),
    /// A port or a socket could not be bound; another emulator may hold it.
    #[error("cannot listen on {address}: {source}; is the address taken by another emulator?")]
    Listen {
        /// Address or path that was asked for.
        address: String,
        /// The system's answer.
        source: std::io::Error,
    },
    /// A file or folder of the emulator could not be written.
    #[error("cannot write {path}: {source}")]
    File {
        /// The path.
        path: String,
        /// The system's answer.
        source: std::io::Error,
    },
    /// A route does not parse.
    #[error("route `{route}`: {reason}")]
    Route {
        /// The route as given.
        route: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A module that the options do not name.
    #[error("no module `{0}` on the emulated device; name it in EdgeOptions::modules")]
    UnknownModule(String),
    /// A twin document that the cloud would refuse.
    #[error("the cloud refuses this twin document: {0}")]
    Twin(String),
    /// A condition did not come true in time.
    #[error("the condition did not hold within {waited:?}; last packets:\n{journal}")]
    Timeout {
        /// How long was waited.
        waited: Duration,
        /// The newest lines of the packet journal.
        journal: String,
    },
}
