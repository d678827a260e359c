//! Finds the starting point.

use super::order::Floor;
use super::{Follower, StartedBy};
use crate::Id128;
use crate::cursor::Cursor;
use crate::file::{JournalFile, Place};
use crate::options::Start;
use crate::posting::Posting;
use std::time::{Instant, SystemTime};

/// Where a file is begun.
pub(crate) enum Position {
    /// It was there when the follower started, which starts at the tail.
    End,
    /// It was there when the follower started.
    Floor,
    /// It turned up later.
    Late,
}

/// Looks at the directories before the set of files counts as stable.
const LOOKS: u32 = 5;

impl Follower {
    /// The files that are there at the start.
    pub(super) fn take_up(&mut self) {
        let mut files = Vec::new();
        // A listing can miss a file that is renamed meanwhile; what it missed would count as new.
        for _ in 0..LOOKS {
            let now = Instant::now();
            let opened = self.scan(now);
            let none_new = opened.iter().all(|new: &JournalFile| {
                files
                    .iter()
                    .any(|old: &JournalFile| old.header.file_id == new.header.file_id)
            });
            for new in opened {
                let known = files
                    .iter()
                    .any(|old| old.header.file_id == new.header.file_id);
                if !known {
                    files.push(new);
                }
            }
            if none_new && !self.watch.drain() {
                break;
            }
        }
        self.take_up_late(files);
    }

    /// Finds the starting point in the first files that are there.
    pub(super) fn take_up_late(&mut self, files: Vec<JournalFile>) {
        let clock = realtime_now();
        let (floor, by, position) = match self.options.start {
            Start::Head => (Floor::default(), StartedBy::Head, Position::Floor),
            Start::Since(usec) => {
                let floor = Floor {
                    realtime: usec.saturating_sub(1),
                    ..Floor::default()
                };
                (floor, StartedBy::Time, Position::Floor)
            }
            Start::Tail => (self.tail(&files, clock), StartedBy::Tail, Position::End),
            // Without a file nothing can be said about the cursor yet.
            Start::After(_) if files.is_empty() => return,
            Start::After(cursor) => {
                let (floor, by) = self.after(&cursor, &files, clock);
                (floor, by, Position::Floor)
            }
        };
        self.floor = Some(floor);
        self.status.started_by = Some(by);
        for file in files {
            let position = match position {
                Position::End => Position::End,
                _ => Position::Floor,
            };
            self.add(file, position);
        }
    }

    /// Behind everything that is there. Also where there is nothing yet: what turns up later from
    /// this boot was written later.
    fn tail(&mut self, files: &[JournalFile], clock: u64) -> Floor {
        let mut floor = Floor {
            realtime: clock,
            ..Floor::default()
        };
        for file in files {
            if let Some(place) = self.last_place(file) {
                floor.raise(&place);
            }
        }
        if floor.boots.is_empty()
            && let Some(boot) = this_boot()
        {
            floor.boots.insert(boot, 0);
        }
        floor
    }

    fn last_place(&mut self, file: &JournalFile) -> Option<Place> {
        let mut posting = Posting::every();
        posting.seek_end(file, &mut self.pages).ok()?;
        let last = posting.last()?;
        file.place(&mut self.pages, last).ok()
    }

    /// Behind the cursor, by the best of its parts that the files know.
    fn after(&mut self, cursor: &Cursor, files: &[JournalFile], clock: u64) -> (Floor, StartedBy) {
        let mut floor = Floor {
            realtime: cursor.realtime.unwrap_or(0),
            ..Floor::default()
        };
        if let Some((boot, usec)) = cursor.monotonic {
            floor.boots.insert(boot, usec);
            floor.tie = Some((boot, usec, cursor.xor_hash));
        }
        if let Some((id, number)) = cursor.seqnum {
            floor.seqnums.insert(id, number);
            if files.iter().any(|file| file.header.seqnum_id == id) {
                return (floor, StartedBy::Cursor);
            }
        }
        if let Some((boot, _)) = cursor.monotonic
            && files.iter().any(|file| self.has_boot(file, boot))
        {
            return (floor, StartedBy::CursorBoot);
        }
        if cursor.realtime.is_some_and(|usec| usec <= clock) {
            return (floor, StartedBy::CursorTime);
        }
        // The clock was ahead when the cursor was made, or it is from a host whose clock is. Its
        // boot is in no file, so all of the newest boot is younger than it.
        let newest = files
            .iter()
            .filter_map(|file| self.last_place(file))
            .max_by_key(|place| place.realtime);
        let mut floor = Floor {
            realtime: clock,
            ..Floor::default()
        };
        if let Some(place) = newest {
            floor.boots.insert(place.boot_id, 0);
        }
        (floor, StartedBy::CursorAhead)
    }

    fn has_boot(&mut self, file: &JournalFile, boot: Id128) -> bool {
        let value = format!("_BOOT_ID={boot}");
        let mut search = file.search(value.as_bytes());
        matches!(
            file.find(&mut self.pages, &mut search, value.as_bytes()),
            Ok(Some(_))
        )
    }
}

fn realtime_now() -> u64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| since.as_micros() as u64)
}

/// The kernel's boot id: the host's, also inside a container.
fn this_boot() -> Option<Id128> {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .ok()?
        .trim()
        .parse()
        .ok()
}
