//! Merges the entries of all files into one order and follows as files come and go.
//!
//! What makes "every entry once" hold, and where:
//! - A file keeps its position and its descriptor through renames, until it is read to its end
//!   (`reader`). A file is known by device and inode, then by its own file id (here).
//! - An entry is handed out only when every list that had nothing more was looked at again after
//!   the entry was read: anything that journald wrote before it is then known too (`next_head`).
//! - Files that turn up later start behind the starting point; copies that journald makes are known
//!   by their content (`order`).
//!
//! One thread owns a follower; nothing here spawns, locks or blocks longer than asked for.

mod files;
mod order;
mod reader;
mod scan;
mod start;
mod status;
mod watch;

pub use status::{StartedBy, State, Status};

use crate::entry::{self, Entry};
use crate::error::{Error, Fault};
use crate::options::Options;
use crate::pages::Pages;
use files::Files;
use order::{Floor, Recent};
use reader::{Head, Reader, Verdict};
use std::cmp::Ordering;
use std::time::{Duration, Instant};
use watch::Watch;

/// Hands out journal entries in order, each once, as long as it lives.
///
/// ```no_run
/// # use slice_journal::{Follower, Options};
/// # use std::time::Duration;
/// let mut follower = Follower::open(Options::host())?;
/// while let Some(entry) = follower.next(Duration::ZERO) {
///     println!("{}", entry.cursor);
/// }
/// # Ok::<(), slice_journal::Error>(())
/// ```
pub struct Follower {
    options: Options,
    pages: Pages,
    watch: Watch,
    files: Files,
    readers: Vec<Reader>,
    floor: Option<Floor>,
    recent: Recent,
    /// Counts looks: what is found at one tick was there before the next.
    tick: u64,
    scanned_at: Option<Instant>,
    status: Status,
}

impl std::fmt::Debug for Follower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Follower")
            .field("options", &self.options)
            .field("status", &self.status)
            .finish_non_exhaustive()
    }
}

impl Follower {
    /// Takes up the starting point. Directories may be missing, empty or closed to us: that is a
    /// [`State`], and is looked at again. Single files that are named must be readable.
    pub fn open(options: Options) -> Result<Self, Error> {
        if options.roots.is_empty() && options.files.is_empty() {
            return Err(Error::NoSource);
        }
        let mut follower = Self {
            watch: Watch::new(options.inotify && !options.roots.is_empty()),
            options,
            pages: Pages::new(),
            files: Files::default(),
            readers: Vec::new(),
            floor: None,
            recent: Recent::default(),
            tick: 1,
            scanned_at: None,
            status: Status::default(),
        };
        follower.check_named_files()?;
        follower.take_up();
        Ok(follower)
    }

    /// The next entry. Waits for at most `timeout` when none is there; with a timeout of zero, None
    /// means that everything written so far has been handed out.
    pub fn next(&mut self, timeout: Duration) -> Option<Entry> {
        let deadline = Instant::now().checked_add(timeout);
        loop {
            if let Some(entry) = self.pull() {
                return Some(entry);
            }
            let left = deadline.map_or(self.options.poll, |at| {
                at.saturating_duration_since(Instant::now())
            });
            if left.is_zero() {
                return None;
            }
            self.watch.wait(left.min(self.options.poll));
        }
    }

    /// State and counters.
    pub fn status(&self) -> Status {
        let mut status = self.status.clone();
        status.files = self.readers.len();
        status.polling_fallback.clone_from(&self.watch.fallback);
        status.corrupt_files +=
            self.readers.iter().filter(|r| r.set_aside).count() + self.files.damaged();
        status.unsupported_files = self.files.unsupported();
        let any = !self.readers.is_empty() || self.files.any_done();
        status.state = match (any, &status.denied) {
            (true, _) => State::Following,
            (false, Some(_)) => State::Denied,
            (false, None) => State::Waiting,
        };
        status
    }

    /// A read has failed and will be tried again: what is behind it may still come.
    pub fn is_retrying(&self) -> bool {
        let now = Instant::now();
        self.readers.iter().any(|reader| reader.is_retrying(now))
    }

    /// The next entry of those that are there now.
    fn pull(&mut self) -> Option<Entry> {
        let mut fresh = false;
        loop {
            let now = Instant::now();
            let Some((index, head)) = self.next_head(now) else {
                if fresh {
                    return None;
                }
                // Everything known is handed out: look at each file once.
                fresh = true;
                self.look(now, u64::MAX);
                continue;
            };
            if self.unsettled(head.loaded, now) {
                self.look(now, head.loaded);
                continue;
            }
            if let Some(entry) = self.hand_out(index, &head, now) {
                return Some(entry);
            }
        }
    }

    /// The first of all heads.
    fn next_head(&mut self, now: Instant) -> Option<(usize, Head)> {
        let mut first: Option<(usize, Head)> = None;
        for index in 0..self.readers.len() {
            let reader = &mut self.readers[index];
            if !reader.head_available(now) {
                continue;
            }
            match reader.head(&mut self.pages) {
                Ok(None) => {}
                Ok(Some(head)) => {
                    let earlier = first.as_ref().is_none_or(|(_, other)| {
                        order::compare(&head.place, &other.place) == Ordering::Less
                    });
                    if earlier {
                        first = Some((index, head));
                    }
                }
                Err(fault) => self.entry_fault(index, &fault, now),
            }
        }
        first
    }

    /// Some list may hold entries that were written before what was loaded at `tick`.
    fn unsettled(&self, tick: u64, now: Instant) -> bool {
        self.readers
            .iter()
            .any(|reader| !reader.settled_since(tick) && reader.look_available(now))
    }

    /// Looks for new files and new entries, in the files that are not settled since `tick`.
    fn look(&mut self, now: Instant, tick: u64) {
        self.tick += 1;
        let changed = self.watch.drain();
        let overdue = self
            .scanned_at
            .is_none_or(|at| now.duration_since(at) >= self.options.rescan);
        if changed || overdue || self.files.expecting(now) {
            self.rescan(now);
        }
        for index in 0..self.readers.len() {
            let reader = &mut self.readers[index];
            if reader.settled_since(tick) || !reader.look_available(now) {
                continue;
            }
            if let Err(fault) = reader.look(&mut self.pages, self.tick, now) {
                let verdict = reader.look_failed(now);
                self.fault(index, &fault, verdict);
            }
        }
        self.close_finished();
    }

    /// Decodes the head and passes it; None where it is a copy or cannot be read.
    fn hand_out(&mut self, index: usize, head: &Head, now: Instant) -> Option<Entry> {
        let reader = &mut self.readers[index];
        let entry = entry::decode(
            &reader.file,
            &mut self.pages,
            head.offset,
            &head.place,
            &self.options.fields,
            &self.options.limits,
        );
        let entry = match entry {
            Ok(entry) => entry,
            Err(fault) => {
                self.entry_fault(index, &fault, now);
                return None;
            }
        };
        reader.pass();
        let outlived = reader.foreign && self.recent.outlived(reader.source, &head.place);
        if outlived || !self.recent.admit(reader.source, &head.place) {
            self.status.duplicates += 1;
            return None;
        }
        self.status.entries += 1;
        self.status.truncated += u64::from(entry.truncated);
        self.status.unreadable_fields += u64::from(entry.unreadable_fields);
        Some(entry)
    }

    fn entry_fault(&mut self, index: usize, fault: &Fault, now: Instant) {
        let verdict = self.readers[index].entry_failed(now);
        self.fault(index, fault, verdict);
    }

    fn fault(&mut self, index: usize, fault: &Fault, verdict: Verdict) {
        match verdict {
            Verdict::Retry => self.status.retries += 1,
            Verdict::SkippedEntry => self.status.corrupt_entries += 1,
            Verdict::SetAside => {}
        }
        let path = self.readers[index].file.path.display();
        self.status.last_problem = Some(format!("{path}: {fault}"));
    }

    /// Closes the files that have nothing left and get nothing more.
    fn close_finished(&mut self) {
        let mut index = 0;
        while index < self.readers.len() {
            if self.readers[index].finished() {
                let reader = self.readers.swap_remove(index);
                self.status.files_closed += 1;
                self.files.done(&reader.file, reader.set_aside);
            } else {
                index += 1;
            }
        }
    }
}
