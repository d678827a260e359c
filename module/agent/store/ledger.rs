//! Charges, ends, the intent and deleted slices. Old entries leave as new ones come, by the times
//! that the records carry: no clock is asked.

use jiff::{SignedDuration, Timestamp};
use redb::{
    Database, ReadableDatabase, ReadableTable, ReadableTableMetadata, Table, TableDefinition,
    WriteTransaction,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use slice_core::heal::record::{Charge, DeletedSlice, Ended, History, Intent, Record};
use slice_core::heal::story::IncidentRecord;

use super::tables::{
    CHARGES, DELETED, ENDED, Fault, INCIDENTS, INTENT, NEXT, NUMBERS, TEXTS, existing,
};

/// How long charges and ends are kept behind the latest one: budgets look back an hour, cool-downs
/// and a person a little longer.
const KEPT: SignedDuration = SignedDuration::from_hours(24);

/// And how many at most, so that a clock that runs backwards cannot fill the disk.
const MOST: u64 = 2000;

/// How many deleted slices are kept (contract: evidence).
const DELETED_KEPT: u64 = 50;
/// How many incidents are kept with their stories.
const INCIDENTS_KEPT: u64 = 100;

/// Adds records to a transaction.
pub(super) fn add(write: &WriteTransaction, records: &[Record]) -> Result<(), Fault> {
    for record in records {
        match record {
            Record::Charge(charge) => {
                push(write, CHARGES, charge)?;
                prune(&mut write.open_table(CHARGES)?, charge.at, |c: &Charge| {
                    c.at
                })?;
            }
            Record::Ended(ended) => {
                push(write, ENDED, ended)?;
                prune(&mut write.open_table(ENDED)?, ended.at, |e: &Ended| e.at)?;
            }
            Record::Incident(incident) => {
                forget(&mut write.open_table(INCIDENTS)?, &incident.id)?;
                push(write, INCIDENTS, incident)?;
                keep(&mut write.open_table(INCIDENTS)?, INCIDENTS_KEPT)?;
            }
            Record::Evidence(slice) => {
                push(write, DELETED, slice)?;
                keep(&mut write.open_table(DELETED)?, DELETED_KEPT)?;
            }
            Record::Intent(intent) => {
                let mut texts = write.open_table(TEXTS)?;
                match intent {
                    Some(intent) => {
                        texts.insert(INTENT, serde_json::to_string(intent)?.as_str())?;
                    }
                    None => {
                        texts.remove(INTENT)?;
                    }
                }
            }
        }
    }
    Ok(())
}

/// The next number; every numbered thing of the file shares the count.
pub(super) fn next(write: &WriteTransaction) -> Result<u64, Fault> {
    let mut numbers = write.open_table(NUMBERS)?;
    let number = numbers.get(NEXT)?.map_or(1, |value| value.value());
    numbers.insert(NEXT, number + 1)?;
    Ok(number)
}

/// What an earlier process left behind.
pub(super) fn history(database: &Database) -> Result<History, Fault> {
    let intent: Option<Intent> = super::tables::text(database, INTENT)?
        .map(|text| serde_json::from_str(&text))
        .transpose()?;
    Ok(History {
        charges: all(database, CHARGES)?,
        ended: all(database, ENDED)?,
        intent,
    })
}

/// The deleted slices, the latest first.
pub(super) fn deleted(database: &Database) -> Result<Vec<DeletedSlice>, Fault> {
    let mut slices: Vec<DeletedSlice> = all(database, DELETED)?;
    slices.reverse();
    Ok(slices)
}

/// The incidents as they were last kept, the latest first.
pub(super) fn incidents(database: &Database) -> Result<Vec<IncidentRecord>, Fault> {
    let mut incidents: Vec<IncidentRecord> = all(database, INCIDENTS)?;
    incidents.reverse();
    Ok(incidents)
}

type Definition = TableDefinition<'static, u64, &'static [u8]>;

fn all<T: DeserializeOwned>(database: &Database, table: Definition) -> Result<Vec<T>, Fault> {
    let Some(table) = existing(&database.begin_read()?, table)? else {
        return Ok(Vec::new());
    };
    table
        .iter()?
        .map(|entry| Ok(serde_json::from_slice(entry?.1.value())?))
        .collect()
}

fn push<T: Serialize>(write: &WriteTransaction, table: Definition, item: &T) -> Result<(), Fault> {
    let number = next(write)?;
    write
        .open_table(table)?
        .insert(number, serde_json::to_vec(item)?.as_slice())?;
    Ok(())
}

fn prune<T: DeserializeOwned>(
    table: &mut Table<'_, u64, &'static [u8]>,
    latest: Timestamp,
    at: impl Fn(&T) -> Timestamp,
) -> Result<(), Fault> {
    keep(table, MOST)?;
    loop {
        let old = match table.first()? {
            Some((_, value)) => {
                let item: T = serde_json::from_slice(value.value())?;
                latest.duration_since(at(&item)) > KEPT
            }
            None => false,
        };
        if !old {
            return Ok(());
        }
        table.pop_first()?;
    }
}

/// Takes an earlier state of an incident out.
fn forget(table: &mut Table<'_, u64, &'static [u8]>, id: &str) -> Result<(), Fault> {
    let mut earlier = None;
    for entry in table.iter()?.rev() {
        let (number, value) = entry?;
        let known: IncidentRecord = serde_json::from_slice(value.value())?;
        if known.id == id {
            earlier = Some(number.value());
            break;
        }
    }
    if let Some(number) = earlier {
        table.remove(number)?;
    }
    Ok(())
}

fn keep(table: &mut Table<'_, u64, &'static [u8]>, most: u64) -> Result<(), Fault> {
    while table.len()? > most {
        table.pop_first()?;
    }
    Ok(())
}
