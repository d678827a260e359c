//! What must outlive the process, in one redb file in the state directory: the journal cursor, the
//! outbox, the ledger of heals, deleted slices, the last desired twin. Decides nothing; one process
//! at a time has it open.

mod backend;
mod file;
mod ledger;
mod outbox;
mod tables;

#[cfg(test)]
mod age_tests;
#[cfg(test)]
mod power_tests;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use redb::Database;
use serde_json::Value;
use slice_core::heal::record::{DeletedSlice, History, Record};
use slice_core::heal::story::IncidentRecord;

use backend::Written;
use outbox::Outbox;
pub use outbox::{Limits, Outgoing, Waiting};
use tables::Fault;

/// The file's name in the state directory.
pub const FILE: &str = "state.redb";

/// How long one commit may take. A worn SD card takes seconds to flush; beyond this it is a fault.
const COMMIT_DEADLINE: Duration = Duration::from_secs(30);

/// Why the store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The state directory cannot be made or written.
    #[error("the state directory {path} is not usable: {source}; bind a writable directory there, or set store.directory", path = path.display())]
    Directory {
        /// Which directory.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Another process has it open.
    #[error("{path} is in use by another slice-healer; stop it, or let the command go through its control socket", path = path.display())]
    InUse {
        /// Which file.
        path: PathBuf,
    },
    /// The file cannot be opened, and is not damaged.
    #[error("cannot open {path}: {reason}", path = path.display())]
    Open {
        /// Which file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A read or a write failed: the disk is full, gone or worn out.
    #[error("cannot {what} in the state file: {reason}; check the disk")]
    Io {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        reason: String,
    },
    /// The disk does not answer.
    #[error("the state file did not answer within {} s; check the disk", .0.as_secs())]
    Slow(Duration),
}

/// What opening found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// A damaged file was moved here, and an empty one took its place: the path and what was wrong.
    pub set_aside: Option<(PathBuf, String)>,
    /// An older set-aside file was removed to keep the disk from filling.
    pub removed: Option<PathBuf>,
}

/// What one step of the engine leaves behind; all of it is written in one transaction, or none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    /// Records, in order.
    pub records: Vec<Record>,
    /// Telemetry for the outbox, in order.
    pub events: Vec<Outgoing>,
    /// How far the journal was read.
    pub cursor: Option<String>,
    /// The last good desired twin, as the hub sent it.
    pub desired: Option<Value>,
    /// The holds that were set at run time.
    pub holds: Option<Value>,
}

impl Batch {
    /// Whether there is anything in it.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
            && self.events.is_empty()
            && self.cursor.is_none()
            && self.desired.is_none()
            && self.holds.is_none()
    }
}

/// Sizes and counts, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Messages that wait.
    pub outbox_messages: u64,
    /// Their bytes.
    pub outbox_bytes: u64,
    /// Messages dropped by this process because the outbox was full or they had waited too long.
    pub outbox_dropped: u64,
    /// Bytes that this process wrote to the file.
    pub written_bytes: u64,
}

/// The open store. Clones share it; calls that touch the disk run on the blocking pool.
#[derive(Clone, Debug)]
pub struct Store {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// None after the disk has failed, until the next use opens it anew. Only the blocking pool ever
    /// waits here.
    database: Mutex<Option<Database>>,
    written: Written,
    outbox: Outbox,
    directory: PathBuf,
    path: PathBuf,
}

impl Store {
    /// Opens the store in `directory`, which is made if need be. A damaged file is moved aside under
    /// a name that says so, and an empty one made: [`Found`] tells.
    ///
    /// # Errors
    /// The directory is not writable, another process has the file, or the disk fails.
    pub fn open(directory: &Path, limits: Limits) -> Result<(Self, Found), StoreError> {
        let written = Written::default();
        let (database, found) = file::open(directory, &written)?;
        let outbox =
            Outbox::open(&database, limits).map_err(|fault| fault.into_error("read the outbox"))?;
        let path = directory.join(FILE);
        Ok((
            Self {
                shared: Arc::new(Shared {
                    database: Mutex::new(Some(database)),
                    written,
                    outbox,
                    directory: directory.to_owned(),
                    path,
                }),
            },
            found,
        ))
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    /// Writes a batch and waits until it is on the disk. What is already there (the same cursor, the
    /// same twin) is not written again; a batch with nothing new touches no disk.
    ///
    /// # Errors
    /// Nothing of the batch is there, except for [`StoreError::Slow`], where it is not known.
    pub async fn commit(&self, batch: Batch) -> Result<(), StoreError> {
        if batch.is_empty() {
            return Ok(());
        }
        self.run(move |shared| shared.commit(&batch)).await
    }

    /// The messages that have waited longest, at most `count`.
    ///
    /// # Errors
    /// The disk fails.
    pub async fn outbox_peek(&self, count: usize) -> Result<Vec<Waiting>, StoreError> {
        if self.shared.outbox.count() == 0 {
            return Ok(Vec::new());
        }
        self.run(move |shared| {
            shared
                .with(|database| shared.outbox.peek(database, count))
                .map_err(|fault| fault.into_error("read the outbox"))
        })
        .await
    }

    /// Takes delivered messages out. Numbers that are not there any more are ignored.
    ///
    /// # Errors
    /// The disk fails; the messages will be sent again, under the same ids.
    pub async fn outbox_ack(&self, numbers: Vec<u64>) -> Result<(), StoreError> {
        if numbers.is_empty() {
            return Ok(());
        }
        self.run(move |shared| {
            shared
                .with(|database| shared.outbox.ack(database, &numbers))
                .map_err(|fault| fault.into_error("shorten the outbox"))
        })
        .await
    }

    /// Gives up the messages that were accepted before a moment, counted as dropped; how many.
    ///
    /// # Errors
    /// The disk fails; they are still there.
    pub async fn outbox_expire(&self, before: Timestamp) -> Result<u64, StoreError> {
        if self.shared.outbox.count() == 0 {
            return Ok(0);
        }
        self.run(move |shared| {
            shared
                .with(|database| shared.outbox.expire(database, before))
                .map_err(|fault| fault.into_error("shorten the outbox"))
        })
        .await
    }

    /// What an earlier process left behind.
    ///
    /// # Errors
    /// The disk fails.
    pub async fn history(&self) -> Result<History, StoreError> {
        self.run(|shared| {
            shared
                .with(ledger::history)
                .map_err(|fault| fault.into_error("read the ledger"))
        })
        .await
    }

    /// How far the journal was read.
    ///
    /// # Errors
    /// The disk fails.
    pub async fn cursor(&self) -> Result<Option<String>, StoreError> {
        self.run(|shared| shared.text(tables::CURSOR, "read the cursor"))
            .await
    }

    /// The last good desired twin.
    ///
    /// # Errors
    /// The disk fails.
    pub async fn desired(&self) -> Result<Option<Value>, StoreError> {
        self.run(|shared| {
            let text = shared.text(tables::DESIRED, "read the desired twin")?;
            Ok(text.and_then(|text| serde_json::from_str(&text).ok()))
        })
        .await
    }

    /// The holds that were set at run time, as they were kept.
    ///
    /// # Errors
    /// The disk fails.
    pub async fn holds(&self) -> Result<Option<Value>, StoreError> {
        self.run(|shared| {
            let text = shared.text(tables::HOLDS, "read the holds")?;
            Ok(text.and_then(|text| serde_json::from_str(&text).ok()))
        })
        .await
    }

    /// The incidents as they were last kept, the latest first, at most 100.
    ///
    /// # Errors
    /// The disk fails.
    pub async fn incidents(&self) -> Result<Vec<IncidentRecord>, StoreError> {
        self.run(|shared| {
            shared
                .with(ledger::incidents)
                .map_err(|fault| fault.into_error("read the incidents"))
        })
        .await
    }

    /// The slices that were deleted, the latest first, at most 50.
    ///
    /// # Errors
    /// The disk fails.
    pub async fn deleted_slices(&self) -> Result<Vec<DeletedSlice>, StoreError> {
        self.run(|shared| {
            shared
                .with(ledger::deleted)
                .map_err(|fault| fault.into_error("read the deleted slices"))
        })
        .await
    }

    /// Sizes and counts; touches no disk.
    pub fn stats(&self) -> Stats {
        Stats {
            outbox_messages: self.shared.outbox.count(),
            outbox_bytes: self.shared.outbox.bytes(),
            outbox_dropped: self.shared.outbox.dropped(),
            written_bytes: self.shared.written.total(),
        }
    }

    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Shared) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let shared = Arc::clone(&self.shared);
        let task = tokio::task::spawn_blocking(move || work(&shared));
        match tokio::time::timeout(COMMIT_DEADLINE, task).await {
            Ok(Ok(result)) => result,
            Ok(Err(error)) => Err(StoreError::Io {
                what: "work",
                reason: error.to_string(),
            }),
            Err(_) => Err(StoreError::Slow(COMMIT_DEADLINE)),
        }
    }
}

impl Shared {
    /// Works on the open file; opens it anew where the disk had failed before.
    fn with<T>(&self, work: impl FnOnce(&Database) -> Result<T, Fault>) -> Result<T, Fault> {
        // Whoever panicked here has left a database behind that redb keeps sound.
        let mut slot = self.database.lock().unwrap_or_else(PoisonError::into_inner);
        let database = match slot.take() {
            Some(database) => database,
            None => {
                let (database, found) = file::open(&self.directory, &self.written)?;
                if let Some((aside, why)) = found.set_aside {
                    tracing::error!(aside = %aside.display(), why, "the state file was damaged and is set aside; going on with an empty one");
                }
                self.outbox.recount(&database)?;
                database
            }
        };
        let result = work(&database);
        if !result.as_ref().is_err_and(Fault::is_of_the_disk) {
            *slot = Some(database);
        }
        result
    }

    fn commit(&self, batch: &Batch) -> Result<(), StoreError> {
        self.with(|database| self.try_commit(database, batch))
            .map_err(|fault| fault.into_error("write"))
    }

    fn try_commit(&self, database: &Database, batch: &Batch) -> Result<(), Fault> {
        let desired = batch.desired.as_ref().map(Value::to_string);
        let holds = batch.holds.as_ref().map(Value::to_string);
        let values = [
            (tables::CURSOR, batch.cursor.as_deref()),
            (tables::DESIRED, desired.as_deref()),
            (tables::HOLDS, holds.as_deref()),
        ];
        let mut changed = Vec::new();
        for (key, value) in values {
            if let Some(value) = value
                && tables::text(database, key)?.as_deref() != Some(value)
            {
                changed.push((key, value));
            }
        }
        if changed.is_empty() && batch.records.is_empty() && batch.events.is_empty() {
            return Ok(());
        }
        let write = database.begin_write()?;
        for (key, value) in changed {
            write.open_table(tables::TEXTS)?.insert(key, value)?;
        }
        ledger::add(&write, &batch.records)?;
        let added = self.outbox.add(&write, &batch.events)?;
        write.commit()?;
        // The counts follow the disk, never the other way round.
        self.outbox.settle(added);
        Ok(())
    }

    fn text(&self, key: &'static str, what: &'static str) -> Result<Option<String>, StoreError> {
        self.with(|database| tables::text(database, key))
            .map_err(|fault| fault.into_error(what))
    }
}
