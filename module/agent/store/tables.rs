//! The tables of the state file and what can go wrong with them. Names and types here are the
//! file's format; a change to one is a new [`FORMAT`].

use redb::{
    Database, Key, ReadOnlyTable, ReadTransaction, ReadableDatabase, TableDefinition, TableError,
};

use super::StoreError;

/// The format of the file.
pub(super) const FORMAT: u64 = 1;

/// Numbers by name.
pub(super) const NUMBERS: TableDefinition<'_, &str, u64> = TableDefinition::new("numbers");

/// Texts by name.
pub(super) const TEXTS: TableDefinition<'_, &str, &str> = TableDefinition::new("texts");

/// In [`NUMBERS`]: the format.
pub(super) const FORMAT_KEY: &str = "format";

/// In [`NUMBERS`]: the next number, for all that is numbered.
pub(super) const NEXT: &str = "next";

/// In [`TEXTS`]: how far the journal was read.
pub(super) const CURSOR: &str = "cursor";

/// In [`TEXTS`]: the last good desired twin.
pub(super) const DESIRED: &str = "desired";

/// In [`TEXTS`]: the holds that were set at run time.
pub(super) const HOLDS: &str = "holds";
/// In [`TEXTS`]: the write that was decided and has not ended.
pub(super) const INTENT: &str = "intent";

/// Charges of heals, by number, as JSON.
pub(super) const CHARGES: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("charges");

/// Ends of heals, by number, as JSON.
pub(super) const ENDED: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("ended");

/// Incidents with their stories, by number, as JSON.
pub(super) const INCIDENTS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("incidents");
/// Deleted slices, by number, as JSON.
pub(super) const DELETED: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("deleted");

/// The outbox in three, by number: in the order in which a full outbox gives them up.
pub(super) const OUTBOX: [TableDefinition<'_, u64, &[u8]>; 3] = [
    TableDefinition::new("outbox-status"),
    TableDefinition::new("outbox-signal"),
    TableDefinition::new("outbox"),
];

/// Whatever redb or serde said.
#[derive(Debug)]
pub(super) struct Fault {
    text: String,
    /// The disk failed. redb refuses everything from then on until the file is opened anew.
    disk: bool,
}

impl Fault {
    pub(super) fn into_error(self, what: &'static str) -> StoreError {
        StoreError::Io {
            what,
            reason: self.text,
        }
    }

    /// Whether the file has to be opened anew.
    pub(super) fn is_of_the_disk(&self) -> bool {
        self.disk
    }
}

/// The file could not be opened anew.
impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        Self {
            text: error.to_string(),
            disk: true,
        }
    }
}

impl From<serde_json::Error> for Fault {
    fn from(error: serde_json::Error) -> Self {
        Self {
            text: error.to_string(),
            disk: false,
        }
    }
}

macro_rules! faults {
    ($($kind:ty),*) => {
        $(impl From<$kind> for Fault {
            fn from(error: $kind) -> Self {
                let error = redb::Error::from(error);
                Self {
                    disk: matches!(error, redb::Error::Io(_) | redb::Error::PreviousIo),
                    text: error.to_string(),
                }
            }
        })*
    };
}

faults!(
    redb::TransactionError,
    redb::TableError,
    redb::StorageError,
    redb::CommitError
);

/// A table as it is read; none where nothing was ever written to it.
pub(super) fn existing<K: Key, V: redb::Value>(
    read: &ReadTransaction,
    table: TableDefinition<'_, K, V>,
) -> Result<Option<ReadOnlyTable<K, V>>, Fault> {
    match read.open_table(table) {
        Ok(table) => Ok(Some(table)),
        Err(TableError::TableDoesNotExist(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// A text by name.
pub(super) fn text(database: &Database, key: &str) -> Result<Option<String>, Fault> {
    let Some(table) = existing(&database.begin_read()?, TEXTS)? else {
        return Ok(None);
    };
    Ok(table.get(key)?.map(|value| value.value().to_owned()))
}
