//! What to read, from where, and within which limits.

use crate::cursor::Cursor;
use crate::error::Error;
use std::path::PathBuf;
use std::time::Duration;

/// One `FIELD=value`. Several matches of a follower are a union: an entry is handed out when any
/// of them is among its fields.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Match(Vec<u8>);

impl Match {
    /// Fails where `field` is not a name that journald accepts.
    pub fn new(field: &str, value: impl AsRef<[u8]>) -> Result<Self, Error> {
        let valid = (1..=64).contains(&field.len())
            && field
                .bytes()
                .all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
            && !field.starts_with(|c: char| c.is_ascii_digit());
        if !valid {
            return Err(Error::BadMatch(field.chars().take(128).collect()));
        }
        let mut bytes = field.as_bytes().to_vec();
        bytes.push(b'=');
        bytes.extend_from_slice(value.as_ref());
        Ok(Self(bytes))
    }

    /// Reads `FIELD=value`.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let (field, value) = text
            .split_once('=')
            .ok_or_else(|| Error::BadMatch(text.chars().take(128).collect()))?;
        Self::new(field, value)
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Where to begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// With the oldest entry that is there.
    Head,
    /// With the first entry written after `open`.
    Tail,
    /// With the first entry at or after this time (microseconds since 1970).
    Since(u64),
    /// With the entry after this one. Where the entry itself is gone, with the next one; where the
    /// cursor is from another journal, by boot and monotonic time or by realtime, and
    /// [`Status::started_by`](crate::Status::started_by) says so.
    After(Cursor),
}

/// Which fields of an entry to decode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fields {
    /// Each field.
    All,
    /// Only these names; the others are not even decompressed.
    Only(Vec<String>),
}

impl Fields {
    pub(crate) fn wants(&self, name: &[u8]) -> bool {
        match self {
            Self::All => true,
            Self::Only(names) => names.iter().any(|n| n.as_bytes() == name),
        }
    }
}

/// How much of an entry is kept. What is cut is marked in the entry and counted in the status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one field's value.
    pub value_bytes: usize,
    /// Bytes of all values of an entry together.
    pub entry_bytes: usize,
    /// Fields of an entry.
    pub fields: usize,
}

impl Default for Limits {
    /// 64 KiB a value, 1 MiB and 1024 fields an entry: what journald takes by default and more.
    fn default() -> Self {
        Self {
            value_bytes: 64 << 10,
            entry_bytes: 1 << 20,
            fields: 1024,
        }
    }
}

/// What a [`Follower`](crate::Follower) reads and how.
#[derive(Debug, Clone)]
pub struct Options {
    /// Directories: journal files directly in them, and in their subdirectories that are named
    /// after a machine id (with `.namespace` or without). They need not exist yet.
    pub roots: Vec<PathBuf>,
    /// Single files. They must exist and be journal files when the follower is opened.
    pub files: Vec<PathBuf>,
    /// Entries with any of these; each entry when empty.
    pub matches: Vec<Match>,
    /// Where to begin.
    pub start: Start,
    /// What to decode.
    pub fields: Fields,
    /// What to keep.
    pub limits: Limits,
    /// How often the tails of open files are looked at, with inotify as well: journald tells
    /// inotify of new entries only every 250 ms.
    pub poll: Duration,
    /// How often directories are listed although inotify reported nothing.
    pub rescan: Duration,
    /// Watch with inotify. Off for one look, and in tests of the fallback.
    pub inotify: bool,
}

impl Options {
    /// Everything in the given directories, from the head.
    pub fn directories(roots: impl IntoIterator<Item = impl Into<PathBuf>>) -> Self {
        Self {
            roots: roots.into_iter().map(Into::into).collect(),
            files: Vec::new(),
            matches: Vec::new(),
            start: Start::Head,
            fields: Fields::All,
            limits: Limits::default(),
            poll: Duration::from_millis(100),
            rescan: Duration::from_secs(1),
            inotify: true,
        }
    }

    /// The host's journal, persistent and volatile: `/var/log/journal` and `/run/log/journal`.
    pub fn host() -> Self {
        Self::directories(["/var/log/journal", "/run/log/journal"])
    }

    /// Everything in the given files, from the head.
    pub fn files(files: impl IntoIterator<Item = impl Into<PathBuf>>) -> Self {
        Self {
            files: files.into_iter().map(Into::into).collect(),
            ..Self::directories(Vec::<PathBuf>::new())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_match_needs_a_name_that_journald_takes() {
        assert_eq!(
            Match::parse("_SYSTEMD_UNIT=a=b.service")
                .unwrap()
                .as_bytes(),
            b"_SYSTEMD_UNIT=a=b.service"
        );
        for text in ["unit=x", "=x", "MESSAGE", "1A=x", "A B=x", &"A".repeat(65)] {
            assert!(Match::parse(text).is_err(), "{text}");
        }
    }
}
