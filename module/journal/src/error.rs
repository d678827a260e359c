//! What can go wrong: for callers (`Error`) and between the layers of this crate (`Fault`).

use std::io;
use std::path::PathBuf;

/// What a caller did that cannot work. Everything that the host does is a
/// [`State`](crate::State) or a counter of [`Status`](crate::Status) instead.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Neither a directory nor a file was given.
    #[error("no journal directory and no journal file was given")]
    NoSource,
    /// A match is not `FIELD=value` with a field name that journald would accept.
    #[error(
        "`{0}` is not a journal match: expected FIELD=value, the name in A-Z, 0-9 and _, at most 64 characters"
    )]
    BadMatch(String),
    /// A cursor that cannot be read.
    #[error("`{text}` is not a journal cursor: {why}")]
    BadCursor {
        /// The text given.
        text: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A file that was named by the caller cannot be opened.
    #[error("cannot open {path}: {source}")]
    Open {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A file that was named by the caller is not a journal file, or one that this crate cannot read.
    #[error("{path} cannot be read as a journal file: {why}")]
    NotAJournal {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
}

/// A failed read inside one file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    #[error("{0}")]
    Io(#[from] io::Error),
    /// Not (yet) what the format says. Under a live writer this is often gone a moment later.
    #[error("{what} at offset {offset}")]
    Corrupt { offset: u64, what: &'static str },
    /// The header is not written yet.
    #[error("its header is not complete")]
    NotReady,
    /// A feature flag of a newer systemd: reading on would look like an empty journal.
    #[error("unknown incompatible feature flags {0:#x}: written by a newer systemd")]
    Unsupported(u32),
    #[error("its signature is not that of a journal file")]
    NotAJournal,
}

impl Fault {
    pub(crate) fn corrupt(offset: u64, what: &'static str) -> Self {
        Self::Corrupt { offset, what }
    }
}

pub(crate) type Read<T> = Result<T, Fault>;
