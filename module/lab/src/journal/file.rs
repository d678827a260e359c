//! Appends objects to one journal file, as systemd's JOURNAL_FILE_FORMAT document describes it.
//!
//! Order of writing: an object first, then what links to it, then the header's counts, so that a
//! reader beside us never meets a link to what is not there.

use super::{Format, hash, pack};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

const HEADER_SIZE: u64 = 256;
const DATA_BUCKETS: u64 = 2047;
const FIELD_BUCKETS: u64 = 333;
/// Shorter payloads are stored plain, as journald does by default.
const COMPRESS_FROM: usize = 512;

const DATA: u8 = 1;
const FIELD: u8 = 2;
const ENTRY: u8 = 3;
const DATA_HASH_TABLE: u8 = 4;
const FIELD_HASH_TABLE: u8 = 5;
const ENTRY_ARRAY: u8 = 6;

/// The states that a file's header names.
#[derive(Clone, Copy)]
pub(super) enum State {
    Offline = 0,
    Online = 1,
    Archived = 2,
}

/// What a file is for ever.
pub(super) struct Ids {
    pub(super) file: [u8; 16],
    pub(super) machine: [u8; 16],
    pub(super) boot: [u8; 16],
    pub(super) seqnum: [u8; 16],
}

/// One entry's stamps.
#[derive(Clone, Copy)]
pub(super) struct Stamp {
    pub(super) seqnum: u64,
    pub(super) realtime: u64,
    pub(super) monotonic: u64,
}

/// Where the next entry of a list goes.
#[derive(Default)]
struct List {
    count: u64,
    array: u64,
    used: u64,
    capacity: u64,
}

struct Data {
    offset: u64,
    hash: u64,
    list: List,
}

pub(super) struct Writer {
    file: File,
    format: Format,
    file_id: [u8; 16],
    end: u64,
    data_table: u64,
    field_table: u64,
    data: HashMap<Vec<u8>, Data>,
    fields: HashMap<Vec<u8>, u64>,
    /// Last object of each hash bucket.
    tails: HashMap<u64, u64>,
    list: List,
    tail_object: u64,
    objects: [u64; 8],
    head: Option<Stamp>,
}

impl Writer {
    pub(super) fn create(file: File, format: Format, ids: &Ids) -> io::Result<Self> {
        let mut writer = Self {
            file,
            format,
            file_id: ids.file,
            end: HEADER_SIZE,
            data_table: 0,
            field_table: 0,
            data: HashMap::new(),
            fields: HashMap::new(),
            tails: HashMap::new(),
            list: List::default(),
            tail_object: 0,
            objects: [0; 8],
            head: None,
        };
        let mut header = vec![0u8; HEADER_SIZE as usize];
        header[..8].copy_from_slice(b"LPKSHHRH");
        header[12..16].copy_from_slice(&format.flags().to_le_bytes());
        header[16] = State::Online as u8;
        header[24..40].copy_from_slice(&ids.file);
        header[40..56].copy_from_slice(&ids.machine);
        header[56..72].copy_from_slice(&ids.boot);
        header[72..88].copy_from_slice(&ids.seqnum);
        header[88..96].copy_from_slice(&HEADER_SIZE.to_le_bytes());
        writer.file.write_all_at(&header, 0)?;
        let table = writer.object(FIELD_HASH_TABLE, 0, &vec![0; FIELD_BUCKETS as usize * 16])?;
        writer.field_table = table + 16;
        let table = writer.object(DATA_HASH_TABLE, 0, &vec![0; DATA_BUCKETS as usize * 16])?;
        writer.data_table = table + 16;
        writer.put(120, writer.field_table)?;
        writer.put(128, FIELD_BUCKETS * 16)?;
        writer.put(112, DATA_BUCKETS * 16)?;
        writer.put(104, writer.data_table)?;
        writer.counts()?;
        Ok(writer)
    }

    pub(super) fn state(&self, state: State) -> io::Result<()> {
        self.file.write_all_at(&[state as u8], 16)
    }

    pub(super) fn head(&self) -> Option<Stamp> {
        self.head
    }

    /// Appends an entry of these payloads (`FIELD=value`); gives its checksum.
    pub(super) fn append(
        &mut self,
        payloads: &[Vec<u8>],
        stamp: Stamp,
        boot: &[u8; 16],
    ) -> io::Result<u64> {
        let mut items: Vec<(u64, u64, &Vec<u8>)> = Vec::new();
        let mut checksum = 0u64;
        for payload in payloads {
            let (offset, hash) = self.data(payload)?;
            // In the same way in all files, so that copies of an entry can be told.
            checksum ^= if self.format.keyed {
                hash::jenkins(payload)
            } else {
                hash
            };
            items.push((offset, hash, payload));
        }
        items.sort_unstable_by_key(|item| item.0);
        items.dedup_by_key(|item| item.0);

        let mut body = Vec::new();
        for number in [stamp.seqnum, stamp.realtime, stamp.monotonic] {
            body.extend(number.to_le_bytes());
        }
        body.extend(boot);
        body.extend(checksum.to_le_bytes());
        for (offset, hash, _) in &items {
            if self.format.compact {
                body.extend(self.short(*offset)?);
            } else {
                body.extend(offset.to_le_bytes());
                body.extend(hash.to_le_bytes());
            }
        }
        let entry = self.object(ENTRY, 0, &body)?;

        let mut list = std::mem::take(&mut self.list);
        self.link(&mut list, entry, 176)?;
        self.list = list;
        self.put(152, self.list.count)?;
        self.put(160, stamp.seqnum)?;
        self.put(192, stamp.realtime)?;
        self.put(200, stamp.monotonic)?;
        self.file.write_all_at(boot, 56)?;
        if self.head.is_none() {
            self.head = Some(stamp);
            self.put(168, stamp.seqnum)?;
            self.put(184, stamp.realtime)?;
        }
        for (_, _, payload) in items {
            self.link_data(payload, entry)?;
        }
        self.counts()?;
        Ok(checksum)
    }

    /// The data object that holds `payload`, made where there is none.
    fn data(&mut self, payload: &[u8]) -> io::Result<(u64, u64)> {
        if let Some(data) = self.data.get(payload) {
            return Ok((data.offset, data.hash));
        }
        let hash = self.hash(payload);
        let name = payload.split(|b| *b == b'=').next().unwrap_or_default();
        let field = self.field(name)?;
        let (stored, flags) = match payload.len() >= COMPRESS_FROM {
            true => pack::pack(self.format.compression, payload)?,
            false => None,
        }
        .unwrap_or_else(|| (payload.to_vec(), 0));
        let next_of_field = self.get(field + 32)?;
        let mut body = Vec::new();
        for number in [hash, 0, next_of_field, 0, 0, 0] {
            body.extend(number.to_le_bytes());
        }
        if self.format.compact {
            body.extend([0; 8]);
        }
        body.extend(stored);
        let offset = self.object(DATA, flags, &body)?;
        self.chain(self.data_table, DATA_BUCKETS, hash, offset)?;
        self.put(field + 32, offset)?;
        self.data.insert(
            payload.to_vec(),
            Data {
                offset,
                hash,
                list: List::default(),
            },
        );
        Ok((offset, hash))
    }

    fn field(&mut self, name: &[u8]) -> io::Result<u64> {
        if let Some(offset) = self.fields.get(name) {
            return Ok(*offset);
        }
        let hash = self.hash(name);
        let mut body = Vec::new();
        for number in [hash, 0, 0] {
            body.extend(number.to_le_bytes());
        }
        body.extend(name);
        let offset = self.object(FIELD, 0, &body)?;
        self.chain(self.field_table, FIELD_BUCKETS, hash, offset)?;
        self.fields.insert(name.to_vec(), offset);
        Ok(offset)
    }

    fn hash(&self, data: &[u8]) -> u64 {
        if self.format.keyed {
            hash::keyed(&self.file_id, data)
        } else {
            hash::jenkins(data)
        }
    }

    /// Puts an object at the end of its hash bucket's chain.
    fn chain(&mut self, table: u64, buckets: u64, hash: u64, object: u64) -> io::Result<()> {
        let bucket = table + hash % buckets * 16;
        match self.tails.insert(bucket, object) {
            Some(tail) => self.put(tail + 24, object)?,
            None => self.put(bucket, object)?,
        }
        self.put(bucket + 8, object)
    }

    fn link_data(&mut self, payload: &[u8], entry: u64) -> io::Result<()> {
        let Some(mut data) = self.data.remove(payload) else {
            return Ok(());
        };
        if data.list.count == 0 {
            self.put(data.offset + 40, entry)?;
            data.list.count = 1;
        } else {
            self.link(&mut data.list, entry, data.offset + 48)?;
            if self.format.compact {
                let mut tail = self.short(data.list.array)?.to_vec();
                tail.extend(self.short(data.list.used)?);
                self.file.write_all_at(&tail, data.offset + 64)?;
            }
        }
        self.put(data.offset + 56, data.list.count)?;
        self.data.insert(payload.to_vec(), data);
        Ok(())
    }

    /// Puts an entry into a list whose first array is named at `anchor`.
    fn link(&mut self, list: &mut List, entry: u64, anchor: u64) -> io::Result<()> {
        let item = if self.format.compact { 4 } else { 8 };
        if list.used == list.capacity {
            let capacity = (list.capacity * 2).max(4);
            let mut body = vec![0u8; 8];
            body.resize(8 + (capacity * item) as usize, 0);
            let array = self.object(ENTRY_ARRAY, 0, &body)?;
            self.put_item(array, 0, entry)?;
            match list.array {
                0 => self.put(anchor, array)?,
                previous => self.put(previous + 16, array)?,
            }
            list.array = array;
            list.capacity = capacity;
            list.used = 1;
        } else {
            self.put_item(list.array, list.used, entry)?;
            list.used += 1;
        }
        list.count += 1;
        Ok(())
    }

    fn put_item(&self, array: u64, index: u64, entry: u64) -> io::Result<()> {
        if self.format.compact {
            self.file
                .write_all_at(&self.short(entry)?, array + 24 + index * 4)
        } else {
            self.put(array + 24 + index * 8, entry)
        }
    }

    fn short(&self, number: u64) -> io::Result<[u8; 4]> {
        u32::try_from(number)
            .map(u32::to_le_bytes)
            .map_err(|_| io::Error::other("a compact journal file ends at 4 GiB"))
    }

    fn object(&mut self, kind: u8, flags: u8, body: &[u8]) -> io::Result<u64> {
        let offset = self.end;
        let size = 16 + body.len() as u64;
        let mut object = vec![kind, flags, 0, 0, 0, 0, 0, 0];
        object.extend(size.to_le_bytes());
        object.extend(body);
        object.resize(object.len().next_multiple_of(8), 0);
        self.file.write_all_at(&object, offset)?;
        self.end += object.len() as u64;
        self.tail_object = offset;
        self.objects[usize::from(kind)] += 1;
        self.put(96, self.end - HEADER_SIZE)?;
        Ok(offset)
    }

    /// Objects by kind, as the header counts them.
    fn counts(&self) -> io::Result<()> {
        self.put(136, self.tail_object)?;
        self.put(144, self.objects.iter().sum())?;
        self.put(208, self.objects[usize::from(DATA)])?;
        self.put(216, self.objects[usize::from(FIELD)])?;
        self.put(232, self.objects[usize::from(ENTRY_ARRAY)])
    }

    fn put(&self, offset: u64, number: u64) -> io::Result<()> {
        self.file.write_all_at(&number.to_le_bytes(), offset)
    }

    fn get(&self, offset: u64) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, offset)?;
        Ok(u64::from_le_bytes(bytes))
    }
}
