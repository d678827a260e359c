//! Numbers of the journal file format: systemd's JOURNAL_FILE_FORMAT document and `journal-def.h`.

use crate::Id128;
use crate::error::{Fault, Read};

pub(crate) const SIGNATURE: &[u8; 8] = b"LPKSHHRH";
/// Bytes of the header that every systemd since 187 writes.
pub(crate) const HEADER_MIN: usize = 208;

const COMPRESSED_XZ: u32 = 1;
const COMPRESSED_LZ4: u32 = 2;
const KEYED_HASH: u32 = 4;
const COMPRESSED_ZSTD: u32 = 8;
const COMPACT: u32 = 16;
const KNOWN: u32 = COMPRESSED_XZ | COMPRESSED_LZ4 | KEYED_HASH | COMPRESSED_ZSTD | COMPACT;

pub(crate) const STATE_ARCHIVED: u8 = 2;

pub(crate) const DATA: u8 = 1;
pub(crate) const ENTRY: u8 = 3;
pub(crate) const DATA_HASH_TABLE: u8 = 4;
pub(crate) const ENTRY_ARRAY: u8 = 6;

pub(crate) const OBJECT_HEADER: u64 = 16;
pub(crate) const DATA_HEADER: u64 = 64;
pub(crate) const ENTRY_HEADER: u64 = 64;
pub(crate) const ARRAY_HEADER: u64 = 24;

pub(crate) fn le32(bytes: &[u8], at: usize) -> u32 {
    bytes
        .get(at..at + 4)
        .and_then(|b| b.try_into().ok())
        .map_or(0, u32::from_le_bytes)
}

pub(crate) fn le64(bytes: &[u8], at: usize) -> u64 {
    bytes
        .get(at..at + 8)
        .and_then(|b| b.try_into().ok())
        .map_or(0, u64::from_le_bytes)
}

pub(crate) fn id128(bytes: &[u8], at: usize) -> Id128 {
    Id128(
        bytes
            .get(at..at + 16)
            .and_then(|b| b.try_into().ok())
            .unwrap_or_default(),
    )
}

/// The header as it stands at one moment; a live writer changes most of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Header {
    pub(crate) compact: bool,
    pub(crate) keyed: bool,
    pub(crate) archived: bool,
    pub(crate) file_id: Id128,
    pub(crate) seqnum_id: Id128,
    pub(crate) size: u64,
    pub(crate) data_hash_table: u64,
    pub(crate) data_hash_buckets: u64,
    pub(crate) n_entries: u64,
    pub(crate) entry_array: u64,
}

impl Header {
    /// `bytes` is the start of the file, possibly shorter than a header.
    pub(crate) fn parse(bytes: &[u8]) -> Read<Self> {
        if bytes.len() < HEADER_MIN || bytes[..8] == [0; 8] {
            return Err(Fault::NotReady);
        }
        if &bytes[..8] != SIGNATURE {
            return Err(Fault::NotAJournal);
        }
        let flags = le32(bytes, 12);
        if flags & !KNOWN != 0 {
            return Err(Fault::Unsupported(flags & !KNOWN));
        }
        let header = Self {
            compact: flags & COMPACT != 0,
            keyed: flags & KEYED_HASH != 0,
            archived: bytes[16] == STATE_ARCHIVED,
            file_id: id128(bytes, 24),
            seqnum_id: id128(bytes, 72),
            size: le64(bytes, 88),
            data_hash_table: le64(bytes, 104),
            data_hash_buckets: le64(bytes, 112) / 16,
            n_entries: le64(bytes, 152),
            entry_array: le64(bytes, 176),
        };
        if header.size < HEADER_MIN as u64 {
            return Err(Fault::corrupt(88, "a header size that is too small"));
        }
        // The writer sets the tables up after the header.
        if header.data_hash_table == 0 || header.data_hash_buckets == 0 {
            return Err(Fault::NotReady);
        }
        Ok(header)
    }

    /// Bytes of one offset in an entry array.
    pub(crate) fn array_item(&self) -> u64 {
        if self.compact { 4 } else { 8 }
    }

    /// Bytes of one item of an entry: offset and hash, or the offset alone.
    pub(crate) fn entry_item(&self) -> u64 {
        if self.compact { 4 } else { 16 }
    }

    /// Where a data object's payload starts, from the object's start.
    pub(crate) fn payload_start(&self) -> u64 {
        if self.compact { 72 } else { DATA_HEADER }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Vec<u8> {
        let mut bytes = vec![0u8; 272];
        bytes[..8].copy_from_slice(SIGNATURE);
        bytes[12] = 4 | 8 | 16;
        bytes[88] = 16;
        bytes[89] = 1;
        bytes[105] = 2;
        bytes[113] = 1;
        bytes
    }

    #[test]
    fn what_is_not_written_yet_is_not_a_damage() {
        assert!(matches!(Header::parse(&[]), Err(Fault::NotReady)));
        assert!(matches!(Header::parse(&[0; 272]), Err(Fault::NotReady)));
        let mut no_tables = header();
        no_tables[105] = 0;
        assert!(matches!(Header::parse(&no_tables), Err(Fault::NotReady)));
        assert!(Header::parse(&header()).unwrap().compact);
    }

    #[test]
    fn a_newer_format_is_said_not_read_as_empty() {
        let mut newer = header();
        newer[12] |= 32;
        assert!(matches!(Header::parse(&newer), Err(Fault::Unsupported(32))));
    }

    #[test]
    fn another_signature_is_not_a_journal() {
        let mut other = header();
        other[0] = b'X';
        assert!(matches!(Header::parse(&other), Err(Fault::NotAJournal)));
    }
}
