//! One entry, decoded and within limits.

use crate::Id128;
use crate::cursor::Cursor;
use crate::error::Read;
use crate::file::{JournalFile, Place};
use crate::options::{Fields, Limits};
use crate::pages::Pages;

/// Longest field name that journald stores.
const NAME_MAX: usize = 64;

/// One field of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    data: Vec<u8>,
    equals: usize,
    /// The value was longer than the limits allow and ends early here.
    pub truncated: bool,
}

impl Field {
    /// The name before the `=`.
    pub fn name(&self) -> &[u8] {
        &self.data[..self.equals]
    }

    /// The bytes behind the `=`; often but not always text.
    pub fn value(&self) -> &[u8] {
        self.data.get(self.equals + 1..).unwrap_or_default()
    }
}

/// One journal entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its place, in journalctl's terms.
    pub cursor: Cursor,
    /// Wall-clock time at which journald took it, in microseconds since 1970.
    pub realtime_usec: u64,
    /// Time since `boot_id`'s boot, in microseconds.
    pub monotonic_usec: u64,
    /// The boot that it was written in.
    pub boot_id: Id128,
    /// Its number within its sequence number id.
    pub seqnum: u64,
    /// The fields, in the file's order. A name may come several times.
    pub fields: Vec<Field>,
    /// A value was cut or a field left out because of the limits.
    pub truncated: bool,
    /// Fields that could not be read (damage in the file).
    pub unreadable_fields: u32,
}

impl Entry {
    /// The first value of `name`.
    pub fn get(&self, name: impl AsRef<[u8]>) -> Option<&[u8]> {
        let name = name.as_ref();
        self.fields
            .iter()
            .find(|field| field.name() == name)
            .map(Field::value)
    }

    /// Each value of `name`.
    pub fn get_all(&self, name: impl AsRef<[u8]>) -> impl Iterator<Item = &[u8]> {
        self.fields
            .iter()
            .filter(move |field| field.name() == name.as_ref())
            .map(Field::value)
    }
}

impl Place {
    pub(crate) fn cursor(&self) -> Cursor {
        Cursor {
            seqnum: Some((self.seqnum_id, self.seqnum)),
            monotonic: Some((self.boot_id, self.monotonic)),
            realtime: Some(self.realtime),
            xor_hash: Some(self.xor_hash),
        }
    }
}

/// Decodes the entry at `offset`. Fails only where the entry itself cannot be read; a field that
/// cannot be is counted.
pub(crate) fn decode(
    file: &JournalFile,
    pages: &mut Pages,
    offset: u64,
    place: &Place,
    fields: &Fields,
    limits: &Limits,
) -> Read<Entry> {
    let (items, count) = file.items(pages, offset, limits.fields)?;
    let mut entry = Entry {
        cursor: place.cursor(),
        realtime_usec: place.realtime,
        monotonic_usec: place.monotonic,
        boot_id: place.boot_id,
        seqnum: place.seqnum,
        fields: Vec::new(),
        truncated: count > items.len() as u64,
        unreadable_fields: 0,
    };
    let mut room = limits.entry_bytes;
    for item in items {
        match field(file, pages, item, fields, limits.value_bytes.min(room)) {
            Ok(None) => {}
            Ok(Some(field)) => {
                room = room.saturating_sub(field.data.len());
                entry.truncated |= field.truncated;
                entry.fields.push(field);
            }
            Err(_) => entry.unreadable_fields += 1,
        }
    }
    Ok(entry)
}

fn field(
    file: &JournalFile,
    pages: &mut Pages,
    offset: u64,
    fields: &Fields,
    value_bytes: usize,
) -> Read<Option<Field>> {
    if let Fields::Only(_) = fields {
        let packed;
        let start = match file.plain_start(pages, offset, NAME_MAX + 1)? {
            Some(start) => start,
            None => {
                packed = file.payload(pages, offset, NAME_MAX + 1)?.0;
                &packed
            }
        };
        let name = start.split(|b| *b == b'=').next().unwrap_or_default();
        if !fields.wants(name) {
            return Ok(None);
        }
    }
    let most = value_bytes.saturating_add(NAME_MAX + 1);
    let (mut data, complete) = file.payload(pages, offset, most)?;
    let Some(equals) = data.iter().position(|b| *b == b'=') else {
        return Err(crate::error::Fault::corrupt(offset, "a field without `=`"));
    };
    let end = equals.saturating_add(1).saturating_add(value_bytes);
    let truncated = !complete || data.len() > end;
    data.truncate(end);
    Ok(Some(Field {
        data,
        equals,
        truncated,
    }))
}
