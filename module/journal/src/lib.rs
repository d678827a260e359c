//! Reads and follows systemd journal files: every entry once, at the cost of what matches.
//!
//! Does: opens journal directories and files read-only, finds the entries of several `FIELD=value`
//! matches by the files' own posting lists, hands them out in order, goes on from a cursor, and
//! survives rotation, vacuum, a crash of journald, truncation and damage.
//! Never does: write to a journal, map one into memory (a truncated file would be a SIGBUS), link
//! libsystemd, or know what an entry means to its caller.
//!
//! ```no_run
//! use slice_journal::{Follower, Match, Options, Start};
//! use std::time::Duration;
//!
//! let mut options = Options::host();
//! options.matches = vec![Match::new("_SYSTEMD_UNIT", "aziot-edged.service")?];
//! options.start = Start::Tail;
//! let mut follower = Follower::open(options)?;
//! while let Some(entry) = follower.next(Duration::from_secs(1)) {
//!     for message in entry.get_all("MESSAGE") {
//!         let _ = (message, entry.cursor.to_string());
//!     }
//! }
//! # Ok::<(), slice_journal::Error>(())
//! ```
//!
//! From the bottom up: `format` and `hash` are the file's vocabulary, `pages` and `file` read one
//! file, `posting` walks one list of entries in it, `entry` decodes one entry; `follow` merges the
//! lists of all files and minds their comings and goings.

mod cursor;
mod decompress;
mod entry;
mod error;
mod file;
mod follow;
mod format;
mod hash;
mod id;
mod lz4;
mod options;
mod pages;
mod posting;

pub use cursor::Cursor;
pub use entry::{Entry, Field};
pub use error::Error;
pub use follow::{Follower, StartedBy, State, Status};
pub use id::Id128;
pub use options::{Fields, Limits, Match, Options, Start};
