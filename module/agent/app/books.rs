//! What the pump keeps on disk, or nothing at all for a single command beside no running module.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};
use slice_core::heal::record::{DeletedSlice, History, Record};
use slice_core::heal::story::IncidentRecord;

use crate::report::telemetry::Message;
use crate::store::{Batch as StoreBatch, Outgoing, Store, StoreError, Waiting};

/// One transaction.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// What the core wants to be on disk before it acts.
    pub records: Vec<Record>,
    /// For the outbox.
    pub messages: Vec<Message>,
    /// How far the journal has been read.
    pub cursor: Option<String>,
}

impl Batch {
    /// Whether there is nothing that must be written now; a cursor alone can wait.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty() && self.messages.is_empty()
    }
}

/// The store, if there is one.
#[derive(Clone)]
pub struct Books(Option<Arc<Store>>);

impl Books {
    /// On disk.
    pub fn kept(store: Store) -> Self {
        Self(Some(Arc::new(store)))
    }

    /// Nowhere: for one heal by hand beside no running module.
    pub fn none() -> Self {
        Self(None)
    }

    /// Writes one transaction.
    ///
    /// # Errors
    /// As the store.
    pub async fn commit(&self, batch: Batch) -> Result<(), StoreError> {
        let Some(store) = &self.0 else { return Ok(()) };
        let now = Timestamp::now();
        let events = batch
            .messages
            .into_iter()
            .map(|m| Outgoing {
                id: m.id,
                kind: m.kind,
                output: m.output.to_owned(),
                properties: m.properties,
                body: m.body,
                accepted_at: Some(now),
            })
            .collect();
        let batch = StoreBatch {
            records: batch.records,
            events,
            cursor: batch.cursor,
            ..StoreBatch::default()
        };
        store.commit(batch).await
    }

    /// Keeps the last desired section, for a start without a hub.
    ///
    /// # Errors
    /// As the store.
    pub async fn keep_desired(&self, version: u64, document: &Value) -> Result<(), StoreError> {
        let Some(store) = &self.0 else { return Ok(()) };
        let kept = json!({"version": version, "document": document});
        if store.desired().await?.as_ref() == Some(&kept) {
            return Ok(());
        }
        store
            .commit(StoreBatch {
                desired: Some(kept),
                ..StoreBatch::default()
            })
            .await
    }

    /// The last desired section, with its version.
    ///
    /// # Errors
    /// As the store.
    pub async fn desired(&self) -> Result<Option<(u64, Value)>, StoreError> {
        let Some(store) = &self.0 else {
            return Ok(None);
        };
        let kept = store.desired().await?;
        Ok(kept.and_then(|k| Some((k["version"].as_u64()?, k["document"].clone()))))
    }

    /// What earlier processes left.
    ///
    /// # Errors
    /// As the store.
    pub async fn history(&self) -> Result<History, StoreError> {
        match &self.0 {
            Some(store) => store.history().await,
            None => Ok(History::default()),
        }
    }

    /// How far the journal was read.
    ///
    /// # Errors
    /// As the store.
    pub async fn cursor(&self) -> Result<Option<String>, StoreError> {
        match &self.0 {
            Some(store) => store.cursor().await,
            None => Ok(None),
        }
    }

    /// The oldest messages of the outbox.
    ///
    /// # Errors
    /// As the store.
    pub async fn outbox_peek(&self, count: usize) -> Result<Vec<Waiting>, StoreError> {
        match &self.0 {
            Some(store) => store.outbox_peek(count).await,
            None => Ok(Vec::new()),
        }
    }

    /// Takes messages out of the outbox.
    ///
    /// # Errors
    /// As the store.
    pub async fn outbox_ack(&self, numbers: Vec<u64>) -> Result<(), StoreError> {
        match &self.0 {
            Some(store) => store.outbox_ack(numbers).await,
            None => Ok(()),
        }
    }

    /// Gives up the messages that were accepted before a moment; how many.
    ///
    /// # Errors
    /// As the store.
    pub async fn outbox_expire(&self, before: Timestamp) -> Result<u64, StoreError> {
        match &self.0 {
            Some(store) => store.outbox_expire(before).await,
            None => Ok(0),
        }
    }

    /// A deleted slice by its name, `namespace/name` or `name`.
    ///
    /// # Errors
    /// As the store.
    pub async fn deleted_slice(&self, name: &str) -> Result<Option<DeletedSlice>, StoreError> {
        let Some(store) = &self.0 else {
            return Ok(None);
        };
        let kept = store.deleted_slices().await?;
        Ok(kept
            .into_iter()
            .rev()
            .find(|d| d.slice == name || format!("{}/{}", d.service.namespace, d.slice) == name))
    }

    /// The incidents as they were last kept, the latest first.
    ///
    /// # Errors
    /// As the store.
    pub async fn incidents(&self) -> Result<Vec<IncidentRecord>, StoreError> {
        match &self.0 {
            Some(store) => store.incidents().await,
            None => Ok(Vec::new()),
        }
    }

    /// Keeps the holds that were set at run time.
    ///
    /// # Errors
    /// As the store.
    pub async fn keep_holds(&self, holds: &BTreeMap<String, Timestamp>) -> Result<(), StoreError> {
        let Some(store) = &self.0 else { return Ok(()) };
        let batch = StoreBatch {
            holds: Some(json!(holds)),
            ..StoreBatch::default()
        };
        store.commit(batch).await
    }

    /// The holds that an earlier process kept; what cannot be understood is none.
    ///
    /// # Errors
    /// As the store.
    pub async fn holds(&self) -> Result<BTreeMap<String, Timestamp>, StoreError> {
        let Some(store) = &self.0 else {
            return Ok(BTreeMap::new());
        };
        let kept = store.holds().await?;
        Ok(kept
            .and_then(|k| serde_json::from_value(k).ok())
            .unwrap_or_default())
    }

    /// Messages that wait, messages dropped, bytes written.
    pub fn counters(&self) -> (u64, u64, u64) {
        self.0.as_ref().map_or((0, 0, 0), |store| {
            let stats = store.stats();
            (
                stats.outbox_messages,
                stats.outbox_dropped,
                stats.written_bytes,
            )
        })
    }
}
