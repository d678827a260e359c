//! Which of two entries comes first, which are behind the starting point, which were handed out
//! already. Pure.
//!
//! Clocks jump, so the sequence number decides wherever it can; monotonic time decides within a
//! boot; the wall clock only between boots of different journals.

use crate::Id128;
use crate::file::Place;
use std::cmp::Ordering;
use std::collections::{HashMap, VecDeque};

/// The journal's order: by sequence number within one id, by monotonic time within one boot, else
/// by realtime.
pub(crate) fn compare(a: &Place, b: &Place) -> Ordering {
    if a.seqnum_id == b.seqnum_id {
        return a.seqnum.cmp(&b.seqnum);
    }
    let time = if a.boot_id == b.boot_id {
        a.monotonic.cmp(&b.monotonic)
    } else {
        a.realtime.cmp(&b.realtime)
    };
    time.then(a.realtime.cmp(&b.realtime))
        .then(a.xor_hash.cmp(&b.xor_hash))
}

/// The starting point: entries that pass it are to be handed out.
#[derive(Debug, Clone, Default)]
pub(crate) struct Floor {
    pub(crate) seqnums: HashMap<Id128, u64>,
    pub(crate) boots: HashMap<Id128, u64>,
    pub(crate) realtime: u64,
    /// Boot, monotonic time and checksum of the entry of a cursor. Entries of another journal with
    /// the very same time may be its neighbours or itself: journald stamps what it reads in one go
    /// with one time.
    pub(crate) tie: Option<(Id128, u64, Option<u64>)>,
}

impl Floor {
    pub(crate) fn passes(&self, place: &Place) -> bool {
        if let Some(seqnum) = self.seqnums.get(&place.seqnum_id) {
            return place.seqnum > *seqnum;
        }
        if let Some(monotonic) = self.boots.get(&place.boot_id) {
            return place.monotonic > *monotonic || self.ties(place);
        }
        place.realtime > self.realtime
    }

    fn ties(&self, place: &Place) -> bool {
        self.tie.is_some_and(|(boot, monotonic, _)| {
            boot == place.boot_id && monotonic == place.monotonic
        })
    }

    /// The entry is the cursor's own, copied into a journal with other sequence numbers.
    pub(crate) fn is_copy(&self, place: &Place) -> bool {
        !self.seqnums.contains_key(&place.seqnum_id)
            && self.ties(place)
            && self.tie.and_then(|tie| tie.2) == Some(place.xor_hash)
    }

    /// Raises the floor to `place`: it and what came before it are not wanted.
    pub(crate) fn raise(&mut self, place: &Place) {
        let seqnum = self.seqnums.entry(place.seqnum_id).or_default();
        *seqnum = (*seqnum).max(place.seqnum);
        let monotonic = self.boots.entry(place.boot_id).or_default();
        *monotonic = (*monotonic).max(place.monotonic);
    }
}

/// How many entries are remembered.
const REMEMBERED: usize = 4096;
/// How many (directory, boot) pairs of forgotten entries are remembered.
const FORGOTTEN: usize = 64;

type Identity = (Id128, u64, u64, u64);

/// The entries handed out last. When journald moves its journal from /run to /var it copies each
/// entry under a new sequence number, while the old files are still there.
#[derive(Default)]
pub(crate) struct Recent {
    queue: VecDeque<(u32, Place)>,
    seen: HashMap<Identity, Vec<(Id128, u64)>>,
    /// Per source directory and boot, the latest monotonic time that has left the queue.
    forgotten: VecDeque<(u32, Id128, u64)>,
}

impl Recent {
    /// False where the entry was handed out already. Remembers it either way.
    ///
    /// Identical lines that journald read in one go differ in nothing but their number, so copies
    /// are matched one by one: the n-th of one sequence id is the n-th of another.
    pub(crate) fn admit(&mut self, source: u32, place: &Place) -> bool {
        let seen = self.seen.entry(identity(place)).or_default();
        let number = (place.seqnum_id, place.seqnum);
        if seen.contains(&number) {
            return false;
        }
        let of = |id: Id128| seen.iter().filter(|(other, _)| *other == id).count();
        let elsewhere = seen
            .iter()
            .map(|(id, _)| *id)
            .filter(|id| *id != place.seqnum_id)
            .map(of)
            .max()
            .unwrap_or(0);
        let is_new = of(place.seqnum_id) >= elsewhere;
        seen.push(number);
        self.queue.push_back((source, *place));
        if self.queue.len() > REMEMBERED {
            self.forget_oldest();
        }
        is_new
    }

    /// The entry's time lies behind what has left the memory of its own directory: in a journal
    /// that turned up with new sequence numbers it is a copy of something handed out long ago.
    pub(crate) fn outlived(&self, source: u32, place: &Place) -> bool {
        self.forgotten
            .iter()
            .any(|(s, boot, at)| *s == source && *boot == place.boot_id && place.monotonic <= *at)
    }

    fn forget_oldest(&mut self) {
        let Some((source, place)) = self.queue.pop_front() else {
            return;
        };
        let key = identity(&place);
        if let Some(seen) = self.seen.get_mut(&key) {
            seen.retain(|number| *number != (place.seqnum_id, place.seqnum));
            if seen.is_empty() {
                self.seen.remove(&key);
            }
        }
        let known = self
            .forgotten
            .iter_mut()
            .find(|(s, boot, _)| *s == source && *boot == place.boot_id);
        match known {
            Some((_, _, at)) => *at = (*at).max(place.monotonic),
            None => {
                self.forgotten
                    .push_back((source, place.boot_id, place.monotonic));
                if self.forgotten.len() > FORGOTTEN {
                    self.forgotten.pop_front();
                }
            }
        }
    }
}

fn identity(place: &Place) -> Identity {
    (
        place.boot_id,
        place.monotonic,
        place.realtime,
        place.xor_hash,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(id: u8, seqnum: u64, boot: u8, monotonic: u64, realtime: u64) -> Place {
        Place {
            seqnum_id: Id128([id; 16]),
            seqnum,
            realtime,
            monotonic,
            boot_id: Id128([boot; 16]),
            xor_hash: monotonic ^ 7,
        }
    }

    #[test]
    fn numbers_come_before_clocks() {
        // The wall clock jumped back between the two.
        let (a, b) = (place(1, 5, 1, 50, 900), place(1, 6, 1, 60, 100));
        assert_eq!(compare(&a, &b), Ordering::Less);
        let other = place(2, 1, 1, 55, 0);
        assert_eq!(compare(&a, &other), Ordering::Less);
        assert_eq!(compare(&other, &b), Ordering::Less);
        let boot = place(2, 1, 2, 1, 500);
        assert_eq!(compare(&boot, &a), Ordering::Less);
    }

    #[test]
    fn the_floor_uses_the_best_clock_it_has() {
        let mut floor = Floor {
            realtime: 1000,
            ..Floor::default()
        };
        floor.raise(&place(1, 10, 1, 100, 1000));
        assert!(floor.passes(&place(1, 11, 1, 90, 1)));
        assert!(!floor.passes(&place(1, 10, 1, 200, 2000)));
        assert!(floor.passes(&place(2, 1, 1, 101, 1)));
        assert!(!floor.passes(&place(2, 1, 1, 100, 2000)));
        assert!(floor.passes(&place(2, 1, 2, 1, 1001)));
        assert!(!floor.passes(&place(2, 1, 2, 1, 1000)));
    }

    #[test]
    fn copies_under_other_numbers_are_known_one_by_one() {
        let mut recent = Recent::default();
        // Three identical lines of one moment, then their copies, then a fourth that is new.
        for n in 1..=3 {
            assert!(recent.admit(0, &place(1, n, 1, 50, 50)));
        }
        assert!(!recent.admit(0, &place(1, 3, 1, 50, 50)));
        for n in 11..=13 {
            assert!(!recent.admit(0, &place(2, n, 1, 50, 50)), "{n}");
        }
        assert!(recent.admit(0, &place(2, 14, 1, 50, 50)));
    }

    #[test]
    fn memory_is_bounded_and_its_edge_is_known() {
        let mut recent = Recent::default();
        for n in 1..=(REMEMBERED as u64 + 10) {
            assert!(recent.admit(3, &place(1, n, 1, n, n)));
        }
        assert_eq!(recent.queue.len(), REMEMBERED);
        assert_eq!(recent.seen.len(), REMEMBERED);
        assert!(recent.outlived(3, &place(2, 1, 1, 10, 10)));
        assert!(!recent.outlived(3, &place(2, 1, 1, 11, 11)));
        assert!(!recent.outlived(4, &place(2, 1, 1, 10, 10)));
    }
}
