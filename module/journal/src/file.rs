//! One journal file: its header, its objects, and the search for a data object by value.
//!
//! Every offset that comes from the file is checked before it is used; what does not fit is a
//! [`Fault`], never a panic, an endless loop or an allocation of the file's choosing.

use crate::Id128;
use crate::decompress::{self, Method};
use crate::error::{Fault, Read};
use crate::format::{self, Header, id128, le32, le64};
use crate::hash;
use crate::pages::{Pages, pread};
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The head of an entry object: its place in every order that entries have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) seqnum_id: Id128,
    pub(crate) seqnum: u64,
    pub(crate) realtime: u64,
    pub(crate) monotonic: u64,
    pub(crate) boot_id: Id128,
    pub(crate) xor_hash: u64,
}

pub(crate) struct JournalFile {
    file: File,
    pub(crate) path: PathBuf,
    pub(crate) inode: (u64, u64),
    pub(crate) header: Header,
    number: u32,
    generation: u32,
}

impl JournalFile {
    /// Opens `path`; `number` is the follower's own, unique one (from 1).
    pub(crate) fn open(path: &Path, number: u32) -> Read<Self> {
        let file = File::open(path)?;
        let meta = file.metadata()?;
        if !meta.is_file() {
            return Err(Fault::NotAJournal);
        }
        let header = read_header(&file)?;
        Ok(Self {
            file,
            path: path.to_owned(),
            inode: (meta.dev(), meta.ino()),
            header,
            number,
            generation: 0,
        })
    }

    /// Reads the header again and, unless the file can no longer change, forgets cached bytes.
    pub(crate) fn refresh(&mut self) -> Read<()> {
        if self.header.archived {
            return Ok(());
        }
        // Wraps after years of polling; a block that old has long been replaced.
        self.generation = self.generation.wrapping_add(1);
        let header = read_header(&self.file)?;
        if header.file_id != self.header.file_id {
            return Err(Fault::corrupt(24, "another file id than before"));
        }
        self.header = header;
        Ok(())
    }

    /// No name leads to the file any more.
    pub(crate) fn unlinked(&self) -> io::Result<bool> {
        Ok(self.file.metadata()?.nlink() == 0)
    }

    /// Forgets cached bytes, so that a retry sees what is there now.
    pub(crate) fn forget(&mut self) {
        self.generation = self.generation.wrapping_add(1);
    }

    /// Exactly `len` bytes at `offset`.
    pub(crate) fn bytes<'p>(
        &self,
        pages: &'p mut Pages,
        offset: u64,
        len: usize,
    ) -> Read<&'p [u8]> {
        let bytes = pages.read(&self.file, (self.number, self.generation), offset, len)?;
        if bytes.len() < len {
            return Err(Fault::corrupt(
                offset,
                "an object behind the end of the file",
            ));
        }
        Ok(bytes)
    }

    /// Checks an object's head and gives its flags and size.
    pub(crate) fn object(
        &self,
        pages: &mut Pages,
        offset: u64,
        kind: u8,
        least: u64,
    ) -> Read<(u8, u64)> {
        if !offset.is_multiple_of(8) || offset < self.header.size || offset > 1 << 56 {
            return Err(Fault::corrupt(offset, "an offset outside the objects"));
        }
        let head = self.bytes(pages, offset, format::OBJECT_HEADER as usize)?;
        let (found, flags, size) = (head[0], head[1], le64(head, 8));
        if found != kind {
            return Err(Fault::corrupt(offset, "an object of another type"));
        }
        if size < least || size > 1 << 40 {
            return Err(Fault::corrupt(offset, "an object of an impossible size"));
        }
        Ok((flags, size))
    }

    pub(crate) fn place(&self, pages: &mut Pages, offset: u64) -> Read<Place> {
        self.object(pages, offset, format::ENTRY, format::ENTRY_HEADER)?;
        let head = self.bytes(pages, offset, format::ENTRY_HEADER as usize)?;
        let place = Place {
            seqnum_id: self.header.seqnum_id,
            seqnum: le64(head, 16),
            realtime: le64(head, 24),
            monotonic: le64(head, 32),
            boot_id: id128(head, 40),
            xor_hash: le64(head, 56),
        };
        if place.seqnum == 0 || place.realtime == 0 {
            return Err(Fault::corrupt(offset, "an entry without number or time"));
        }
        Ok(place)
    }

    /// Offsets of the entry's data objects, at most `limit`; and how many there are.
    pub(crate) fn items(
        &self,
        pages: &mut Pages,
        offset: u64,
        limit: usize,
    ) -> Read<(Vec<u64>, u64)> {
        let (_, size) = self.object(pages, offset, format::ENTRY, format::ENTRY_HEADER)?;
        let item = self.header.entry_item();
        let count = (size - format::ENTRY_HEADER) / item;
        let kept = count.min(limit as u64);
        let bytes = self.bytes(pages, offset + format::ENTRY_HEADER, (kept * item) as usize)?;
        let offsets = bytes
            .chunks_exact(item as usize)
            .map(|item| self.offset(item))
            .collect();
        Ok((offsets, count))
    }

    /// An offset as arrays store it.
    pub(crate) fn offset(&self, bytes: &[u8]) -> u64 {
        if self.header.compact {
            u64::from(le32(bytes, 0))
        } else {
            le64(bytes, 0)
        }
    }

    /// The beginning of a data object's payload, at most `limit` bytes, and whether that is all.
    pub(crate) fn payload(
        &self,
        pages: &mut Pages,
        offset: u64,
        limit: usize,
    ) -> Read<(Vec<u8>, bool)> {
        let start = self.header.payload_start();
        let (flags, size) = self.object(pages, offset, format::DATA, start)?;
        let stored = size - start;
        let method = Method::of_flags(flags)
            .map_err(|()| Fault::corrupt(offset, "several compressions at once"))?;
        let Some(method) = method else {
            let len = stored.min(limit as u64) as usize;
            let bytes = self.long_bytes(pages, offset + start, len)?;
            return Ok((bytes, len as u64 == stored));
        };
        // A packed payload is needed whole unless only its beginning is: both methods that cut
        // early need at most what they give, plus a block.
        let len = stored.min((limit as u64).saturating_mul(2).saturating_add(1 << 20)) as usize;
        let packed = self.long_bytes(pages, offset + start, len)?;
        let out = decompress::prefix(method, &packed, limit.saturating_add(1))
            .ok_or(Fault::corrupt(offset, "a payload that does not unpack"))?;
        let complete = out.len() <= limit;
        let mut out = out;
        out.truncate(limit);
        Ok((out, complete))
    }

    /// The first bytes of a payload that is stored plain, without copying; None when it is packed.
    pub(crate) fn plain_start<'p>(
        &self,
        pages: &'p mut Pages,
        offset: u64,
        len: usize,
    ) -> Read<Option<&'p [u8]>> {
        let start = self.header.payload_start();
        let (flags, size) = self.object(pages, offset, format::DATA, start)?;
        if flags & 7 != 0 {
            return Ok(None);
        }
        let len = (size - start).min(len as u64) as usize;
        self.bytes(pages, offset + start, len).map(Some)
    }

    /// Large pieces go around the cache.
    fn long_bytes(&self, pages: &mut Pages, offset: u64, len: usize) -> Read<Vec<u8>> {
        if len <= 8192 {
            return Ok(self.bytes(pages, offset, len)?.to_vec());
        }
        // A size from a damaged file must not decide how much is allocated.
        if offset.saturating_add(len as u64) > self.file.metadata()?.len() {
            return Err(Fault::corrupt(
                offset,
                "a payload behind the end of the file",
            ));
        }
        let mut bytes = vec![0; len];
        if pread(&self.file, &mut bytes, offset)? < len {
            return Err(Fault::corrupt(
                offset,
                "a payload behind the end of the file",
            ));
        }
        Ok(bytes)
    }

    /// First entry, entry array and entry count of a data object, read past the cache.
    pub(crate) fn posting_head(&self, pages: &mut Pages, offset: u64) -> Read<(u64, u64, u64)> {
        self.object(pages, offset, format::DATA, format::DATA_HEADER)?;
        let bytes = self.bytes(pages, offset + 40, 24)?;
        Ok((le64(bytes, 0), le64(bytes, 8), le64(bytes, 16)))
    }

    pub(crate) fn search(&self, value: &[u8]) -> Search {
        let hash = if self.header.keyed {
            hash::keyed(&self.header.file_id.0, value)
        } else {
            hash::jenkins(value)
        };
        Search { hash, last: None }
    }

    /// Looks for the data object that holds exactly `value`. A search that has not found it goes on
    /// from the end of the hash chain next time: new objects are put there.
    pub(crate) fn find(
        &self,
        pages: &mut Pages,
        search: &mut Search,
        value: &[u8],
    ) -> Read<Option<u64>> {
        loop {
            let next = match search.last {
                Some(last) => le64(self.bytes(pages, last + 24, 8)?, 0),
                None => {
                    let bucket = search.hash % self.header.data_hash_buckets;
                    let at = self.header.data_hash_table + bucket * 16;
                    le64(self.bytes(pages, at, 8)?, 0)
                }
            };
            if next == 0 {
                return Ok(None);
            }
            // Chains lead forward; anything else could be a loop.
            if search.last.is_some_and(|last| next <= last) {
                return Err(Fault::corrupt(next, "a hash chain that leads back"));
            }
            self.object(pages, next, format::DATA, self.header.payload_start())?;
            search.last = Some(next);
            if le64(self.bytes(pages, next + 16, 8)?, 0) == search.hash {
                let (payload, complete) = self.payload(pages, next, value.len())?;
                if complete && payload == value {
                    return Ok(Some(next));
                }
            }
        }
    }
}

/// How far the search for a data object has come.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Search {
    hash: u64,
    last: Option<u64>,
}

fn read_header(file: &File) -> Read<Header> {
    let mut bytes = [0u8; 272];
    let read = pread(file, &mut bytes, 0)?;
    let header = Header::parse(&bytes[..read])?;
    // The table's own object head stands right before it.
    let table = header.data_hash_table;
    let mut head = [0u8; 16];
    let at = table.saturating_sub(format::OBJECT_HEADER);
    if pread(file, &mut head, at)? < 16 || head[0] != format::DATA_HASH_TABLE {
        return Err(Fault::corrupt(at, "no data hash table"));
    }
    if le64(&head, 8).saturating_sub(16) / 16 < header.data_hash_buckets {
        return Err(Fault::corrupt(at, "a data hash table that is too short"));
    }
    Ok(header)
}
