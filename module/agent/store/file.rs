//! Opening the state file: making it, finding it in use, moving a damaged one aside. Nothing that
//! was in a file is ever thrown away unsaid.

use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use redb::backends::FileBackend;
use redb::{Builder, Database, DatabaseError, ReadableDatabase, StorageBackend, StorageError};

use super::backend::{Counting, Written};
use super::tables::{FORMAT, FORMAT_KEY, Fault, NUMBERS, existing};
use super::{FILE, Found, StoreError};

/// Memory for pages, in bytes: the whole file is small, and memory on an edge device as well.
const CACHE: usize = 512 * 1024;

/// Damaged files that are kept.
const KEPT: usize = 3;

/// Why a file is of no use.
#[derive(Debug)]
pub(super) enum Refused {
    Damaged(String),
    Error(StoreError),
}

/// Opens or makes it; what is written from then on is added to `written`.
pub(super) fn open(directory: &Path, written: &Written) -> Result<(Database, Found), StoreError> {
    let unusable = |source| StoreError::Directory {
        path: directory.to_owned(),
        source,
    };
    fs::create_dir_all(directory).map_err(unusable)?;
    let path = directory.join(FILE);
    let mut found = Found::default();
    let opened = match try_open(&path, written) {
        Err(Refused::Damaged(reason)) => {
            let aside = aside(directory);
            found.removed = make_room(directory).map_err(unusable)?;
            fs::rename(&path, &aside).map_err(unusable)?;
            found.set_aside = Some((aside, reason));
            try_open(&path, written)
        }
        other => other,
    };
    match opened {
        Ok(database) => Ok((database, found)),
        Err(Refused::Error(error)) => Err(error),
        Err(Refused::Damaged(reason)) => Err(StoreError::Open { path, reason }),
    }
}

fn try_open(path: &Path, written: &Written) -> Result<Database, Refused> {
    let file = open_file(path)?;
    let backend = FileBackend::new(file)
        .map_err(|error| sort(path, error))
        .map(|file| Counting::new(file, written.clone()))?;
    on_backend(path, backend)
}

/// The database on what is under it; made and stamped where there is none.
pub(super) fn on_backend(path: &Path, backend: impl StorageBackend) -> Result<Database, Refused> {
    let mut builder = Builder::new();
    builder
        .set_cache_size(CACHE)
        .set_check_integrity_on_open(true);
    // redb promises errors for damaged files where integrity is checked; a panic would end the
    // module for a file that it could do without.
    let database = catch_unwind(AssertUnwindSafe(|| builder.create_with_backend(backend)))
        .map_err(|_| Refused::Damaged("its structure makes no sense".to_owned()))?
        .map_err(|error| sort(path, error))?;
    match format(&database) {
        Ok(None) => {
            stamp(&database)
                .map_err(|fault| Refused::Error(fault.into_error("write the format")))?;
        }
        Ok(Some(FORMAT)) => {}
        Ok(Some(other)) => {
            return Err(Refused::Damaged(format!(
                "it has format {other}, this version reads format {FORMAT}"
            )));
        }
        Err(fault) => return Err(Refused::Error(fault.into_error("read the format"))),
    }
    Ok(database)
}

fn open_file(path: &Path) -> Result<File, Refused> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .map_err(|source| {
            Refused::Error(StoreError::Directory {
                path: path.parent().unwrap_or(path).to_owned(),
                source,
            })
        })
}

/// Damage is what the file says; a disk that fails or a lock that is taken is none.
fn sort(path: &Path, error: DatabaseError) -> Refused {
    match error {
        DatabaseError::DatabaseAlreadyOpen | DatabaseError::LockProtocolMismatch => {
            Refused::Error(StoreError::InUse {
                path: path.to_owned(),
            })
        }
        DatabaseError::Storage(StorageError::Corrupted(reason)) => Refused::Damaged(reason),
        DatabaseError::Storage(StorageError::Io(error))
            if matches!(
                error.kind(),
                ErrorKind::InvalidData | ErrorKind::UnexpectedEof
            ) =>
        {
            Refused::Damaged(error.to_string())
        }
        DatabaseError::UpgradeRequired(_) | DatabaseError::RepairAborted => {
            Refused::Damaged(error.to_string())
        }
        other => Refused::Error(StoreError::Open {
            path: path.to_owned(),
            reason: other.to_string(),
        }),
    }
}

fn format(database: &Database) -> Result<Option<u64>, Fault> {
    let Some(table) = existing(&database.begin_read()?, NUMBERS)? else {
        return Ok(None);
    };
    Ok(table.get(FORMAT_KEY)?.map(|value| value.value()))
}

fn stamp(database: &Database) -> Result<(), Fault> {
    let write = database.begin_write()?;
    write.open_table(NUMBERS)?.insert(FORMAT_KEY, FORMAT)?;
    write.commit()?;
    Ok(())
}

const ASIDE: &str = "state.damaged-";

/// A name that sorts by time, and that no kept file has.
fn aside(directory: &Path) -> PathBuf {
    let stem = format!("{ASIDE}{}", Timestamp::now().strftime("%Y%m%dT%H%M%SZ"));
    (1..)
        .map(|n| directory.join(format!("{stem}-{n:03}.redb")))
        .find(|path| !path.exists())
        .unwrap_or_else(|| directory.join(stem.clone()))
}

/// Removes the oldest damaged file when there are as many as are kept.
fn make_room(directory: &Path) -> std::io::Result<Option<PathBuf>> {
    let mut old: Vec<PathBuf> = fs::read_dir(directory)?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| {
            path.file_name()
                .and_then(|name| name.to_str())
                .is_some_and(|name| name.starts_with(ASIDE))
        })
        .collect();
    old.sort();
    if old.len() < KEPT {
        return Ok(None);
    }
    let oldest = old.remove(0);
    fs::remove_file(&oldest)?;
    Ok(Some(oldest))
}
