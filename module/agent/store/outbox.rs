//! Telemetry on its way to the hub. Accepted means on disk; it leaves when the hub has it, or when
//! the outbox is full, in the order of the contract: the oldest `status`, the oldest `signal`, the
//! oldest; or when it has waited for longer than the settings allow.

use std::sync::atomic::{AtomicU64, Ordering};

use jiff::Timestamp;
use redb::{Database, ReadableDatabase, ReadableTable, Table, WriteTransaction};
use serde::{Deserialize, Serialize};
use slice_core::event::EventType;

use super::ledger::next;
use super::tables::{Fault, OUTBOX, existing};

/// How much may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of all messages together.
    pub bytes: u64,
    /// Messages.
    pub messages: u64,
}

/// A message for the hub, whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outgoing {
    /// Event id and message id: the same at every sending.
    pub id: String,
    /// The event's type, which says how soon it is given up.
    pub kind: EventType,
    /// The output it goes to.
    pub output: String,
    /// Application properties.
    pub properties: Vec<(String, String)>,
    /// The body, JSON text.
    pub body: String,
    /// When it was accepted, by the clock of then; absent in what earlier versions have left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted_at: Option<Timestamp>,
}

/// A message that waits.
#[derive(Clone, Debug, PartialEq)]
pub struct Waiting {
    /// Its number, for the ack. Numbers rise with time.
    pub number: u64,
    /// The message.
    pub message: Outgoing,
}

/// The counts of the tables on disk.
#[derive(Debug)]
pub(super) struct Outbox {
    limits: Limits,
    messages: AtomicU64,
    bytes: AtomicU64,
    dropped: AtomicU64,
}

/// What a transaction will have changed, once it is on disk.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Change {
    messages: u64,
    bytes: u64,
    gone: u64,
    gone_bytes: u64,
    dropped: u64,
}

impl Outbox {
    pub(super) fn open(database: &Database, limits: Limits) -> Result<Self, Fault> {
        let (messages, bytes) = Self::counted(database)?;
        Ok(Self {
            limits,
            messages: AtomicU64::new(messages),
            bytes: AtomicU64::new(bytes),
            dropped: AtomicU64::new(0),
        })
    }

    /// Takes the counts from the disk anew, after the file was opened anew.
    pub(super) fn recount(&self, database: &Database) -> Result<(), Fault> {
        let (messages, bytes) = Self::counted(database)?;
        self.messages.store(messages, Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Relaxed);
        Ok(())
    }

    fn counted(database: &Database) -> Result<(u64, u64), Fault> {
        let (mut messages, mut bytes) = (0, 0);
        let read = database.begin_read()?;
        for definition in OUTBOX {
            let Some(table) = existing(&read, definition)? else {
                continue;
            };
            for entry in table.iter()? {
                messages += 1;
                bytes += entry?.1.value().len() as u64;
            }
        }
        Ok((messages, bytes))
    }

    pub(super) fn count(&self) -> u64 {
        self.messages.load(Ordering::Relaxed)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Adds messages to a transaction and gives up others where there is no room. redb has one
    /// writer at a time, so the counts cannot move meanwhile.
    pub(super) fn add(
        &self,
        write: &WriteTransaction,
        events: &[Outgoing],
    ) -> Result<Change, Fault> {
        let mut change = Change::default();
        if events.is_empty() {
            return Ok(change);
        }
        for event in events {
            let value = serde_json::to_vec(event)?;
            let number = next(write)?;
            write
                .open_table(OUTBOX[class(event.kind)])?
                .insert(number, value.as_slice())?;
            change.messages += 1;
            change.bytes += value.len() as u64;
        }
        for definition in OUTBOX {
            let mut table = write.open_table(definition)?;
            while self.over(&change) {
                let Some(bytes) = pop(&mut table)? else { break };
                change.gone += 1;
                change.gone_bytes += bytes;
                change.dropped += 1;
            }
        }
        Ok(change)
    }

    fn over(&self, change: &Change) -> bool {
        self.count() + change.messages - change.gone > self.limits.messages
            || self.bytes() + change.bytes - change.gone_bytes > self.limits.bytes
    }

    /// Takes over what is on disk now.
    pub(super) fn settle(&self, change: Change) {
        self.messages.fetch_add(change.messages, Ordering::Relaxed);
        self.messages.fetch_sub(change.gone, Ordering::Relaxed);
        self.bytes.fetch_add(change.bytes, Ordering::Relaxed);
        self.bytes.fetch_sub(change.gone_bytes, Ordering::Relaxed);
        self.dropped.fetch_add(change.dropped, Ordering::Relaxed);
    }

    pub(super) fn peek(&self, database: &Database, count: usize) -> Result<Vec<Waiting>, Fault> {
        let read = database.begin_read()?;
        let mut waiting = Vec::new();
        for definition in OUTBOX {
            let Some(table) = existing(&read, definition)? else {
                continue;
            };
            for entry in table.iter()?.take(count) {
                let (number, value) = entry?;
                waiting.push(Waiting {
                    number: number.value(),
                    message: serde_json::from_slice(value.value())?,
                });
            }
        }
        waiting.sort_by_key(|waiting| waiting.number);
        waiting.truncate(count);
        Ok(waiting)
    }

    /// Looks at the oldest of each table first, so that nothing is written when nothing is old.
    pub(super) fn expire(&self, database: &Database, before: Timestamp) -> Result<u64, Fault> {
        let mut old = Vec::new();
        {
            let read = database.begin_read()?;
            for definition in OUTBOX {
                let Some(table) = existing(&read, definition)? else {
                    continue;
                };
                for entry in table.iter()? {
                    let (number, value) = entry?;
                    if !is_older(value.value(), before) {
                        break;
                    }
                    old.push(number.value());
                }
            }
        }
        if old.is_empty() {
            return Ok(0);
        }
        let change = self.remove(database, &old, true)?;
        Ok(change.dropped)
    }

    pub(super) fn ack(&self, database: &Database, numbers: &[u64]) -> Result<(), Fault> {
        self.remove(database, numbers, false).map(|_| ())
    }

    fn remove(&self, database: &Database, numbers: &[u64], dropped: bool) -> Result<Change, Fault> {
        let write = database.begin_write()?;
        let mut change = Change::default();
        for definition in OUTBOX {
            let mut table = write.open_table(definition)?;
            for number in numbers {
                if let Some(value) = table.remove(number)? {
                    change.gone += 1;
                    change.gone_bytes += value.value().len() as u64;
                }
            }
        }
        if change.gone == 0 {
            write.abort()?;
            return Ok(change);
        }
        if dropped {
            change.dropped = change.gone;
        }
        write.commit()?;
        self.settle(change);
        Ok(change)
    }
}

/// Before this the clock of a device without a battery had not been set (2025-01-01): such a message
/// may be a minute old.
const CLOCK_SET: Timestamp = Timestamp::constant(1_735_689_600, 0);

#[derive(Deserialize)]
struct Accepted {
    accepted_at: Option<Timestamp>,
}

fn is_older(value: &[u8], before: Timestamp) -> bool {
    // What cannot be read is for `peek` to tell.
    serde_json::from_slice::<Accepted>(value)
        .ok()
        .and_then(|message| message.accepted_at)
        .is_some_and(|at| at >= CLOCK_SET && at < before)
}

fn pop(table: &mut Table<'_, u64, &'static [u8]>) -> Result<Option<u64>, Fault> {
    Ok(table
        .pop_first()?
        .map(|(_, value)| value.value().len() as u64))
}

/// Which of the tables holds a type.
fn class(kind: EventType) -> usize {
    match kind {
        EventType::Status => 0,
        EventType::Signal => 1,
        EventType::Finding
        | EventType::Heal
        | EventType::Resolved
        | EventType::Escalated
        | EventType::Drain => 2,
    }
}
