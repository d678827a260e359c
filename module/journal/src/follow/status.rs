//! How the follower fares.

use std::path::PathBuf;

/// What the follower is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum State {
    /// There is no journal file yet.
    #[default]
    Waiting,
    /// At least one journal file is there and read.
    Following,
    /// Journal files or directories are there and none may be read:
    /// [`Status::denied`] names the first.
    Denied,
}

/// How the starting point was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartedBy {
    /// The oldest entry.
    Head,
    /// The end.
    Tail,
    /// A time that was given.
    Time,
    /// The cursor's own sequence numbers: nothing lost, nothing twice.
    Cursor,
    /// The cursor's sequence numbers are in no file, its boot is: by monotonic time.
    CursorBoot,
    /// Nothing of the cursor's journal is there: by its realtime.
    CursorTime,
    /// The same, and its realtime lies in the future: from the start of the newest boot.
    CursorAhead,
}

/// State and counters since [`Follower::open`](crate::Follower::open).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Status {
    /// What the follower is doing.
    pub state: State,
    /// How the starting point was found; None while there is no file to find it in.
    pub started_by: Option<StartedBy>,
    /// The first place that may not be read, also while other files are followed.
    pub denied: Option<PathBuf>,
    /// Why inotify does not wake the follower, where it does not: new entries then wait for the
    /// next poll.
    pub polling_fallback: Option<String>,
    /// Files open now.
    pub files: usize,
    /// Files read to their end and closed.
    pub files_closed: u64,
    /// Files that cannot be read on, now: damaged, or not journal files despite their name.
    pub corrupt_files: usize,
    /// Files of a newer systemd with a feature that this crate does not know, now. Their entries
    /// are not seen.
    pub unsupported_files: usize,
    /// Entries handed out.
    pub entries: u64,
    /// Copies that were left out.
    pub duplicates: u64,
    /// Entries handed out with something cut because of the limits.
    pub truncated: u64,
    /// Entries that could not be read and were skipped.
    pub corrupt_entries: u64,
    /// Fields that could not be read, of entries handed out.
    pub unreadable_fields: u64,
    /// Reads that failed and were tried again.
    pub retries: u64,
    /// The last failure, with the file that it happened in.
    pub last_problem: Option<String>,
}
