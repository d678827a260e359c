//! The entries of one file that are still to be handed out, as the union of its lists.

use crate::error::Read;
use crate::file::{JournalFile, Place};
use crate::follow::order::Floor;
use crate::options::Match;
use crate::pages::Pages;
use crate::posting::Posting;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Entries taken from a list in one go.
const BATCH: usize = 512;
/// Failed attempts before damage counts as lasting; with the pauses below about two seconds.
const ATTEMPTS: u32 = 8;
/// When a file that was set aside is tried again, in case its writer still lives.
const SECOND_CHANCE: Duration = Duration::from_secs(30);
/// How long a nameless file is kept although its writer never closed it.
const LINGER: Duration = Duration::from_secs(10);

pub(crate) struct Reader {
    pub(crate) file: JournalFile,
    /// Number of the directory name that it is in (`/run/…/M` and `/var/…/M` are one).
    pub(crate) source: u32,
    /// Turned up while following, with sequence numbers of an id not seen before.
    pub(crate) foreign: bool,
    lists: Vec<List>,
    /// The entry handed out last. The writer links an entry into one list after the other.
    passed: u64,
    head: Option<Head>,
    /// With the entry at the head, and with the lists.
    entry_trouble: Trouble,
    list_trouble: Trouble,
    pub(crate) set_aside: bool,
    /// The tick at which it was known that nothing will be appended any more.
    finished_at: Option<u64>,
    missing_since: Option<Instant>,
    /// The entry count, and when it was first seen to be that.
    last_count: Option<(u64, Instant)>,
    /// When the lists were last asked.
    asked_at: Option<Instant>,
}

struct List {
    posting: Posting,
    waiting: VecDeque<u64>,
    /// When `waiting` was loaded, and when the list was last found to have nothing more.
    loaded: u64,
    empty_at: u64,
    /// Asked last, it had nothing more: an unread rest must not pass for quiet.
    dry: bool,
}

#[derive(Clone, Copy)]
pub(crate) struct Head {
    pub(crate) offset: u64,
    pub(crate) place: Place,
    pub(crate) loaded: u64,
}

/// Failed reads in a row.
#[derive(Default)]
struct Trouble {
    attempts: u32,
    retry_at: Option<Instant>,
}

impl Trouble {
    fn pausing(&self, now: Instant) -> bool {
        self.retry_at.is_some_and(|at| at > now)
    }

    /// Counts a failure; false when it is one too many.
    fn worth_a_retry(&mut self, now: Instant) -> bool {
        self.attempts += 1;
        let pause = Duration::from_millis(4 << self.attempts.min(8));
        self.retry_at = Some(now + pause);
        self.attempts <= ATTEMPTS
    }
}

/// What became of a failed read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Retry,
    SkippedEntry,
    SetAside,
}

impl Reader {
    pub(crate) fn new(file: JournalFile, matches: &[Match], source: u32, foreign: bool) -> Self {
        let postings: Vec<Posting> = if matches.is_empty() {
            vec![Posting::every()]
        } else {
            matches
                .iter()
                .map(|m| Posting::of(&file, m.as_bytes()))
                .collect()
        };
        Self {
            file,
            source,
            foreign,
            lists: postings
                .into_iter()
                .map(|posting| List {
                    posting,
                    waiting: VecDeque::new(),
                    loaded: 0,
                    empty_at: 0,
                    dry: false,
                })
                .collect(),
            passed: 0,
            head: None,
            entry_trouble: Trouble::default(),
            list_trouble: Trouble::default(),
            set_aside: false,
            finished_at: None,
            missing_since: None,
            last_count: None,
            asked_at: None,
        }
    }

    pub(crate) fn seek_end(&mut self, pages: &mut Pages) -> Read<()> {
        self.lists
            .iter_mut()
            .try_for_each(|list| list.posting.seek_end(&self.file, pages))
    }

    /// Moves behind the starting point.
    pub(crate) fn seek(&mut self, pages: &mut Pages, floor: &Floor) -> Read<()> {
        for list in &mut self.lists {
            list.posting
                .seek(&self.file, pages, |place| !floor.passes(place))?;
        }
        if floor.tie.is_none() {
            return Ok(());
        }
        // The cursor's own entry may be here as a copy: go behind its first likeness, so that a
        // look-alike is rather repeated than lost.
        let mut copy: Option<u64> = None;
        for list in &mut self.lists {
            list.posting
                .load(&self.file, pages, BATCH, &mut list.waiting)?;
            for offset in &list.waiting {
                let place = self.file.place(pages, *offset)?;
                if floor.is_copy(&place) {
                    copy = Some(copy.map_or(*offset, |c| c.min(*offset)));
                    break;
                }
            }
        }
        self.passed = copy.unwrap_or(0);
        Ok(())
    }

    /// Looks for new entries in each list that has none waiting.
    pub(crate) fn look(&mut self, pages: &mut Pages, tick: u64, now: Instant) -> Read<()> {
        if self
            .lists
            .iter()
            .all(|list| !list.waiting.is_empty() || list.empty_at == u64::MAX)
        {
            return Ok(());
        }
        self.file.refresh()?;
        let archived = self.file.header.archived;
        let quiet = self.quiet(now);
        for list in &mut self.lists {
            if !list.waiting.is_empty() || list.empty_at == u64::MAX {
                continue;
            }
            if !quiet || !list.dry {
                list.posting
                    .load(&self.file, pages, BATCH, &mut list.waiting)?;
                list.dry = list.waiting.is_empty();
            }
            if list.waiting.is_empty() {
                list.empty_at = if archived { u64::MAX } else { tick };
            } else {
                list.loaded = tick;
                // What was just linked may come before the head that is known.
                self.head = None;
            }
        }
        self.list_trouble = Trouble::default();
        self.set_aside = false;
        Ok(())
    }

    /// Nothing was written for a while, so the lists need not be asked. An entry is counted first
    /// and linked into the lists of its fields next, hence the pause, and a look each second
    /// whatever the count says.
    fn quiet(&mut self, now: Instant) -> bool {
        let count = self.file.header.n_entries;
        let (_, since) = *match &mut self.last_count {
            Some(last) if last.0 == count => last,
            last => last.insert((count, now)),
        };
        let overdue = self
            .asked_at
            .is_none_or(|at| now.duration_since(at) >= Duration::from_secs(1));
        let quiet = !overdue
            && !self.file.header.archived
            && now.duration_since(since) >= Duration::from_millis(500);
        if !quiet {
            self.asked_at = Some(now);
        }
        quiet
    }

    /// The next entry, if one is waiting.
    pub(crate) fn head(&mut self, pages: &mut Pages) -> Read<Option<Head>> {
        if self.head.is_none() {
            let mut first: Option<(u64, u64)> = None;
            for list in &mut self.lists {
                while list.waiting.front().is_some_and(|o| *o <= self.passed) {
                    list.waiting.pop_front();
                }
                if let Some(offset) = list.waiting.front()
                    && first.is_none_or(|(least, _)| *offset < least)
                {
                    first = Some((*offset, list.loaded));
                }
            }
            if let Some((offset, loaded)) = first {
                self.head = Some(Head {
                    offset,
                    place: self.file.place(pages, offset)?,
                    loaded,
                });
            }
        }
        Ok(self.head)
    }

    /// The head has been dealt with.
    pub(crate) fn pass(&mut self) {
        if let Some(head) = self.head.take() {
            self.passed = head.offset;
            self.entry_trouble = Trouble::default();
        }
    }

    /// Each list that has nothing waiting was found empty after `tick`: no entry that was written
    /// before it is missing.
    pub(crate) fn settled_since(&self, tick: u64) -> bool {
        self.lists
            .iter()
            .all(|list| !list.waiting.is_empty() || list.empty_at > tick)
    }

    /// The head may be asked for: no pause after a failed read of it.
    pub(crate) fn head_available(&self, now: Instant) -> bool {
        !self.entry_trouble.pausing(now)
    }

    /// The lists may be looked at: no pause after a failed look.
    pub(crate) fn look_available(&self, now: Instant) -> bool {
        !self.list_trouble.pausing(now)
    }

    /// In a pause between two attempts, and not given up.
    pub(crate) fn is_retrying(&self, now: Instant) -> bool {
        !self.set_aside && (self.entry_trouble.pausing(now) || self.list_trouble.pausing(now))
    }

    /// A look at the lists failed.
    pub(crate) fn look_failed(&mut self, now: Instant) -> Verdict {
        self.file.forget();
        if self.list_trouble.worth_a_retry(now) {
            return Verdict::Retry;
        }
        self.list_trouble = Trouble {
            attempts: ATTEMPTS,
            retry_at: Some(now + SECOND_CHANCE),
        };
        self.set_aside = true;
        Verdict::SetAside
    }

    /// The entry at the head could not be read.
    pub(crate) fn entry_failed(&mut self, now: Instant) -> Verdict {
        self.file.forget();
        if self.entry_trouble.worth_a_retry(now) {
            return Verdict::Retry;
        }
        let next = self
            .lists
            .iter()
            .filter_map(|list| list.waiting.iter().find(|o| **o > self.passed))
            .min()
            .copied();
        self.passed = next.unwrap_or(self.passed);
        self.head = None;
        self.entry_trouble = Trouble::default();
        Verdict::SkippedEntry
    }

    /// Tells under which name the file was listed at `tick`, or that it was not.
    pub(crate) fn listed(&mut self, is_final: Option<bool>, tick: u64, now: Instant) {
        let over = match is_final {
            Some(is_final) => {
                self.missing_since = None;
                is_final
            }
            None => {
                let since = *self.missing_since.get_or_insert(now);
                // A listing can miss a file that is being renamed, so not at the first look.
                let lingered = now.duration_since(since) >= LINGER;
                lingered
                    || (self.file.header.archived && self.file.unlinked().is_ok_and(|gone| gone))
            }
        };
        if over {
            self.finished_at.get_or_insert(tick);
        }
    }

    /// Nothing is left and nothing will come: the descriptor can be closed.
    pub(crate) fn finished(&self) -> bool {
        self.finished_at.is_some_and(|tick| {
            self.head.is_none()
                && self
                    .lists
                    .iter()
                    .all(|list| list.waiting.is_empty() && (self.set_aside || list.empty_at > tick))
        })
    }
}
