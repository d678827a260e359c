//! One list of entries in one file: all of them, or those that hold one `FIELD=value`.
//!
//! A list is a data object's first entry and a chain of arrays of entry offsets (the file's own
//! list has only the arrays). The writer fills arrays front to back, zero is "not written yet", and
//! raises the count last.

use crate::error::{Fault, Read};
use crate::file::{JournalFile, Place, Search};
use crate::format;
use crate::pages::Pages;
use std::collections::VecDeque;

pub(crate) struct Posting {
    list: List,
    /// Entries of the list already taken.
    taken: u64,
    /// The array that the next entry is in, and its index there. Zero: before the first array.
    array: u64,
    index: u64,
    /// The entry taken last: offsets rise, so one that does not is damage.
    last: u64,
}

enum List {
    /// Every entry of the file.
    Every,
    /// The data object is not there yet.
    Awaited { value: Vec<u8>, search: Search },
    /// The data object at this offset.
    Of(u64),
}

impl Posting {
    pub(crate) fn every() -> Self {
        Self::new(List::Every)
    }

    pub(crate) fn of(file: &JournalFile, value: &[u8]) -> Self {
        Self::new(List::Awaited {
            value: value.to_vec(),
            search: file.search(value),
        })
    }

    fn new(list: List) -> Self {
        Self {
            list,
            taken: 0,
            array: 0,
            index: 0,
            last: 0,
        }
    }

    /// Appends at most `limit` entry offsets to `out`. None appended: nothing new is linked.
    pub(crate) fn load(
        &mut self,
        file: &JournalFile,
        pages: &mut Pages,
        limit: usize,
        out: &mut VecDeque<u64>,
    ) -> Read<()> {
        let (first, array, count) = self.head(file, pages)?;
        let mut room = limit as u64;
        while self.taken < count && room > 0 {
            if first != 0 && self.taken == 0 {
                self.take(first, out)?;
                room -= 1;
                continue;
            }
            let Some(capacity) = self.enter(file, pages, array)? else {
                return Ok(());
            };
            let item = file.header.array_item();
            let wanted = room
                .min(count - self.taken)
                .min(capacity - self.index)
                .min(512);
            let at = self.array + format::ARRAY_HEADER + self.index * item;
            let bytes = file.bytes(pages, at, (wanted * item) as usize)?;
            for bytes in bytes.chunks_exact(item as usize) {
                let offset = file.offset(bytes);
                if offset == 0 {
                    return Ok(());
                }
                self.take(offset, out)?;
                self.index += 1;
                room -= 1;
            }
        }
        Ok(())
    }

    /// Moves to the end: what is linked later is new.
    pub(crate) fn seek_end(&mut self, file: &JournalFile, pages: &mut Pages) -> Read<()> {
        self.seek(file, pages, |_| true)
    }

    /// The entry right before the position.
    pub(crate) fn last(&self) -> Option<u64> {
        (self.last != 0).then_some(self.last)
    }

    /// Moves to the first entry for which `before` is false, by bisection: `before` must not turn
    /// true again later in the list. An entry that cannot be read counts as not before.
    pub(crate) fn seek(
        &mut self,
        file: &JournalFile,
        pages: &mut Pages,
        before: impl Fn(&Place) -> bool,
    ) -> Read<()> {
        let (first, array, count) = self.head(file, pages)?;
        let is_before = |pages: &mut Pages, offset: u64| -> bool {
            offset != 0 && file.place(pages, offset).is_ok_and(|place| before(&place))
        };
        if first != 0 && self.taken == 0 && count > 0 {
            if !is_before(pages, first) {
                return Ok(());
            }
            self.taken = 1;
            self.last = first;
        }
        while self.taken < count {
            let Some(capacity) = self.enter(file, pages, array)? else {
                return Ok(());
            };
            let item = file.header.array_item();
            let base = self.array + format::ARRAY_HEADER;
            let at = |pages: &mut Pages, index: u64| -> Read<u64> {
                Ok(file.offset(file.bytes(pages, base + index * item, item as usize)?))
            };
            let end = capacity.min(self.index + (count - self.taken));
            let (mut low, mut high) = (self.index, end);
            // Most arrays are passed whole: look at the last one first.
            let last = at(pages, end - 1)?;
            if is_before(pages, last) {
                low = end;
            }
            while low < high && low != end {
                let middle = low + (high - low) / 2;
                let offset = at(pages, middle)?;
                if is_before(pages, offset) {
                    low = middle + 1;
                } else {
                    high = middle;
                }
            }
            if low > self.index {
                self.last = at(pages, low - 1)?;
            }
            self.taken += low - self.index;
            self.index = low;
            if low < end {
                return Ok(());
            }
        }
        Ok(())
    }

    fn take(&mut self, offset: u64, out: &mut VecDeque<u64>) -> Read<()> {
        if offset <= self.last {
            return Err(Fault::corrupt(offset, "an entry list that leads back"));
        }
        self.last = offset;
        self.taken += 1;
        out.push_back(offset);
        Ok(())
    }

    /// First entry (zero where the list has none), first array and count, as they stand now.
    fn head(&mut self, file: &JournalFile, pages: &mut Pages) -> Read<(u64, u64, u64)> {
        if let List::Awaited { value, search } = &mut self.list {
            match file.find(pages, search, value)? {
                Some(offset) => self.list = List::Of(offset),
                None => return Ok((0, 0, 0)),
            }
        }
        match self.list {
            List::Of(offset) => {
                let (first, array, count) = file.posting_head(pages, offset)?;
                // The first entry is linked before it is counted.
                Ok((first, array, if first == 0 { 0 } else { count }))
            }
            _ => Ok((0, file.header.entry_array, file.header.n_entries)),
        }
    }

    /// Makes `array` and `index` point at the next entry's slot; gives the array's capacity, or
    /// None where the array is not linked yet.
    fn enter(&mut self, file: &JournalFile, pages: &mut Pages, first: u64) -> Read<Option<u64>> {
        loop {
            let next = if self.array == 0 {
                first
            } else {
                let (_, size) =
                    file.object(pages, self.array, format::ENTRY_ARRAY, format::ARRAY_HEADER)?;
                let capacity = (size - format::ARRAY_HEADER) / file.header.array_item();
                if self.index < capacity {
                    return Ok(Some(capacity));
                }
                format::le64(file.bytes(pages, self.array + 16, 8)?, 0)
            };
            if next == 0 {
                return Ok(None);
            }
            if next <= self.array {
                return Err(Fault::corrupt(next, "an array chain that leads back"));
            }
            file.object(pages, next, format::ENTRY_ARRAY, format::ARRAY_HEADER)?;
            self.array = next;
            self.index = 0;
        }
    }
}
