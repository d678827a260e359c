//! Which files are known: read and closed, unreadable, or about to become readable.

use super::scan::{self, Listing};
use super::start::Position;
use super::{Follower, Reader};
use crate::Id128;
use crate::error::{Error, Fault};
use crate::file::JournalFile;
use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a file without a complete header is looked at more often than others.
const EXPECTED: Duration = Duration::from_secs(5);
/// Sequence number ids and directory names that are remembered.
const REMEMBERED: usize = 256;

/// Files that are not open, and names.
#[derive(Default)]
pub(crate) struct Files {
    last_number: u32,
    closed: HashMap<PathBuf, Closed>,
    seqnum_ids: VecDeque<Id128>,
    directories: VecDeque<(u32, OsString)>,
    last_directory: u32,
}

struct Closed {
    inode: (u64, u64),
    why: Why,
}

enum Why {
    /// Read to its end.
    Done {
        file_id: Id128,
        damaged: bool,
    },
    /// Its header is not complete (since then).
    Unready(Instant),
    /// No journal file, whatever its name says.
    Damaged,
    Unsupported,
}

impl Files {
    pub(crate) fn done(&mut self, file: &JournalFile, damaged: bool) {
        let file_id = file.header.file_id;
        self.closed.insert(
            file.path.clone(),
            Closed {
                inode: file.inode,
                why: Why::Done { file_id, damaged },
            },
        );
    }

    pub(crate) fn any_done(&self) -> bool {
        self.closed
            .values()
            .any(|closed| matches!(closed.why, Why::Done { .. }))
    }

    pub(crate) fn damaged(&self) -> usize {
        self.count(|why| match why {
            Why::Done { damaged, .. } => *damaged,
            Why::Unready(since) => since.elapsed() >= EXPECTED,
            Why::Damaged => true,
            Why::Unsupported => false,
        })
    }

    pub(crate) fn unsupported(&self) -> usize {
        self.count(|why| matches!(why, Why::Unsupported))
    }

    fn count(&self, of: impl Fn(&Why) -> bool) -> usize {
        self.closed
            .values()
            .filter(|closed| of(&closed.why))
            .count()
    }

    /// A file's header is about to be written.
    pub(crate) fn expecting(&self, now: Instant) -> bool {
        self.closed.values().any(|closed| {
            matches!(closed.why, Why::Unready(since) if now.duration_since(since) < EXPECTED)
        })
    }

    /// Remembers the id; true where it was known.
    pub(crate) fn knows_seqnum_id(&mut self, id: Id128) -> bool {
        if self.seqnum_ids.contains(&id) {
            return true;
        }
        self.seqnum_ids.push_back(id);
        if self.seqnum_ids.len() > REMEMBERED {
            self.seqnum_ids.pop_front();
        }
        false
    }

    /// A number for the name of the file's directory.
    pub(crate) fn source(&mut self, path: &Path) -> u32 {
        let name = path.parent().and_then(Path::file_name).unwrap_or_default();
        if let Some((number, _)) = self.directories.iter().find(|(_, known)| known == name) {
            return *number;
        }
        self.last_directory = self.last_directory.wrapping_add(1);
        self.directories
            .push_back((self.last_directory, name.to_owned()));
        if self.directories.len() > REMEMBERED {
            self.directories.pop_front();
        }
        self.last_directory
    }

    pub(crate) fn next_number(&mut self) -> u32 {
        self.last_number = self.last_number.wrapping_add(1).max(1);
        self.last_number
    }

    /// Read to its end before, under this or another name.
    fn is_done(&self, id: Id128) -> bool {
        self.closed
            .values()
            .any(|closed| matches!(closed.why, Why::Done { file_id, .. } if file_id == id))
    }
}

impl Follower {
    /// Named files must be there and be journal files.
    pub(super) fn check_named_files(&mut self) -> Result<(), Error> {
        for path in &self.options.files {
            match JournalFile::open(path, self.files.next_number()) {
                Ok(_) => {}
                Err(Fault::Io(source)) => {
                    return Err(Error::Open {
                        path: path.clone(),
                        source,
                    });
                }
                Err(fault) => {
                    return Err(Error::NotAJournal {
                        path: path.clone(),
                        why: fault.to_string(),
                    });
                }
            }
        }
        Ok(())
    }

    /// Lists the directories, opens what is new and notes what is gone.
    pub(super) fn rescan(&mut self, now: Instant) {
        let opened = self.scan(now);
        if self.floor.is_none() {
            return self.take_up_late(opened);
        }
        for file in opened {
            self.add(file, Position::Late);
        }
    }

    /// The journal files that are listed and not known yet, opened.
    pub(super) fn scan(&mut self, now: Instant) -> Vec<JournalFile> {
        self.scanned_at = Some(now);
        let mut listing = Listing::of(&self.options.roots);
        self.watch
            .directories(&listing.parents, &listing.directories);
        listing.add_named(&self.options.files);

        let mut names: HashMap<(u64, u64), &PathBuf> =
            listing.files.iter().map(|f| (f.inode, &f.path)).collect();
        let mut open: HashSet<Id128> = HashSet::new();
        for reader in &mut self.readers {
            open.insert(reader.file.header.file_id);
            let name = names.remove(&reader.file.inode);
            if let Some(name) = name.filter(|name| **name != reader.file.path) {
                reader.file.path.clone_from(name);
            }
            let is_final = name.map(|name| scan::is_final(name));
            reader.listed(is_final, self.tick, now);
        }
        // What is closed and still listed stays known; the rest is forgotten with its name.
        let closed = &mut self.files.closed;
        closed.retain(|path, closed| names.get(&closed.inode).is_some_and(|name| *name == path));
        let fresh: Vec<(PathBuf, (u64, u64))> = names
            .into_iter()
            .filter(|(_, path)| {
                self.files
                    .closed
                    .get(*path)
                    .is_none_or(|closed| matches!(closed.why, Why::Unready(_)))
            })
            .map(|(inode, path)| (path.clone(), inode))
            .collect();

        let mut opened: Vec<JournalFile> = Vec::new();
        for (path, inode) in fresh {
            match JournalFile::open(&path, self.files.next_number()) {
                Ok(file) => {
                    let id = file.header.file_id;
                    if self.files.is_done(id) || !open.insert(id) {
                        self.files.done(&file, false);
                    } else {
                        opened.push(file);
                    }
                }
                Err(Fault::Io(e)) => listing.failed(&path, &e),
                Err(fault) => self.unreadable(path, inode, &fault, now),
            }
        }
        self.status.denied = listing.denied;
        if listing.problem.is_some() {
            self.status.last_problem = listing.problem;
        }
        opened
    }

    fn unreadable(&mut self, path: PathBuf, inode: (u64, u64), fault: &Fault, now: Instant) {
        let why = match fault {
            Fault::Unsupported(_) => Why::Unsupported,
            Fault::NotAJournal => Why::Damaged,
            // The writer may be at work.
            _ => match self.files.closed.get(&path) {
                Some(Closed {
                    why: Why::Unready(since),
                    ..
                }) => Why::Unready(*since),
                _ => Why::Unready(now),
            },
        };
        self.status.last_problem = Some(format!("{}: {fault}", path.display()));
        self.files.closed.insert(path, Closed { inode, why });
    }

    /// Starts to read a file.
    pub(super) fn add(&mut self, file: JournalFile, position: Position) {
        let known = self.files.knows_seqnum_id(file.header.seqnum_id);
        let source = self.files.source(&file.path);
        let foreign = matches!(position, Position::Late) && !known;
        let final_name = scan::is_final(&file.path);
        let mut reader = Reader::new(file, &self.options.matches, source, foreign);
        reader.listed(Some(final_name), self.tick, Instant::now());
        let positioned = match (&position, &self.floor) {
            (Position::End, _) => reader.seek_end(&mut self.pages),
            (_, Some(floor)) => reader.seek(&mut self.pages, floor),
            (_, None) => Ok(()),
        };
        if let Err(fault) = positioned {
            return self.not_positioned(reader, &fault);
        }
        self.files.closed.remove(&reader.file.path);
        self.readers.push(reader);
    }

    /// The lists could not be walked: as if the header were incomplete, so that the file is tried
    /// again and counted as damaged when that does not help.
    fn not_positioned(&mut self, reader: Reader, fault: &Fault) {
        self.status.retries += 1;
        let (path, inode) = (reader.file.path.clone(), reader.file.inode);
        let fault = match fault {
            Fault::Corrupt { offset, what } => Fault::corrupt(*offset, what),
            _ => Fault::NotReady,
        };
        self.unreadable(path, inode, &fault, Instant::now());
    }
}
