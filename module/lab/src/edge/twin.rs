//! One module's twin in its two layers: what the cloud holds, and what edgeHub stored of it. Follows
//! edgeHub's StoringTwinManager, TwinStore and ReportedPropertiesStore (Azure/iotedge) step by step,
//! including what surprises: a read that reaches the cloud shows only what the cloud has taken, even
//! if edgeHub has already confirmed more, and overwrites the stored twin with it. No sockets, no time
//! but what is passed in.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::document::{self, Document, Nulls};

/// The cloud's copy.
#[derive(Debug, Clone, Default)]
pub(crate) struct CloudTwin {
    pub(crate) desired: Document,
    pub(crate) desired_version: u64,
    pub(crate) reported: Document,
    pub(crate) reported_version: u64,
}

/// edgeHub's copy. Versions are missing where it never saw the cloud's.
#[derive(Debug, Clone, Default)]
pub(crate) struct StoredTwin {
    desired: Document,
    desired_version: Option<u64>,
    reported: Document,
    reported_version: Option<u64>,
}

/// A desired change on its way to a module.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DesiredPatch {
    pub(crate) version: u64,
    pub(crate) body: Document,
}

/// What a push of reported properties to the cloud came to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Synced {
    /// There was nothing to push.
    Nothing,
    /// The cloud took it.
    Taken,
    /// The cloud refused it; the merged patch stays and every later one joins it.
    Refused(String),
}

/// Both layers and what lies between them.
#[derive(Debug, Clone, Default)]
pub(crate) struct ModuleTwin {
    pub(crate) cloud: CloudTwin,
    stored: Option<StoredTwin>,
    pending: Option<Document>,
    last_sync: Option<Timestamp>,
}

impl ModuleTwin {
    /// A twin whose desired section is empty at version 1, as the cloud makes it.
    pub(crate) fn new() -> Self {
        let cloud = CloudTwin {
            desired_version: 1,
            reported_version: 1,
            ..CloudTwin::default()
        };
        Self {
            cloud,
            ..Self::default()
        }
    }

    /// The operator replaces the desired section.
    ///
    /// # Errors
    /// The cloud's rule that is broken.
    pub(crate) fn set_desired(&mut self, desired: Document) -> Result<DesiredPatch, String> {
        document::check_section(&desired)?;
        let body = document::replacement(&self.cloud.desired, &desired);
        Ok(self.next_desired(desired, body))
    }

    /// The operator patches the desired section.
    ///
    /// # Errors
    /// The cloud's rule that is broken.
    pub(crate) fn patch_desired(&mut self, patch: &Document) -> Result<DesiredPatch, String> {
        let mut desired = self.cloud.desired.clone();
        document::merge(&mut desired, patch, Nulls::Delete);
        document::check_section(&desired)?;
        Ok(self.next_desired(desired, patch.clone()))
    }

    fn next_desired(&mut self, desired: Document, mut body: Document) -> DesiredPatch {
        self.cloud.desired = desired;
        self.cloud.desired_version += 1;
        let version = self.cloud.desired_version;
        body.insert("$version".into(), version.into());
        DesiredPatch { version, body }
    }

    /// A twin read that reaches the cloud. What comes back is the cloud's copy, and edgeHub stores it.
    pub(crate) fn read_from_cloud(&mut self, now: Timestamp) -> Value {
        self.store_cloud_twin(now);
        self.cloud.to_json()
    }

    /// A twin read while the cloud is away: the stored copy, or a twin without versions.
    pub(crate) fn read_from_store(&self) -> Value {
        self.stored
            .as_ref()
            .map_or_else(|| StoredTwin::default().to_json(), StoredTwin::to_json)
    }

    /// The module reports. edgeHub stores the patch and confirms it, whatever the cloud will say.
    ///
    /// # Errors
    /// edgeHub's rule that is broken; the module sees 400.
    pub(crate) fn report(&mut self, patch: &Document) -> Result<(), String> {
        document::check_patch(patch)?;
        let stored = self.stored.get_or_insert_default();
        document::merge(&mut stored.reported, patch, Nulls::Delete);
        document::merge(self.pending.get_or_insert_default(), patch, Nulls::Keep);
        Ok(())
    }

    /// The module reports to a hub without an edgeHub between.
    ///
    /// # Errors
    /// The cloud's rule that is broken.
    pub(crate) fn report_to_cloud(&mut self, patch: &Document) -> Result<u64, String> {
        let mut reported = self.cloud.reported.clone();
        document::merge(&mut reported, patch, Nulls::Delete);
        document::check_section(&reported)?;
        self.cloud.reported = reported;
        self.cloud.reported_version += 1;
        Ok(self.cloud.reported_version)
    }

    /// Pushes what is pending to the cloud. `poison` lets the cloud refuse everything.
    pub(crate) fn sync(&mut self, poison: bool) -> Synced {
        let Some(pending) = self.pending.clone() else {
            return Synced::Nothing;
        };
        if poison {
            return Synced::Refused("the test asked the cloud to refuse".into());
        }
        match self.report_to_cloud(&pending) {
            Ok(_) => {
                self.pending = None;
                Synced::Taken
            }
            Err(reason) => Synced::Refused(reason),
        }
    }

    /// Whether something confirmed has not reached the cloud.
    pub(crate) fn is_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// A desired change reaches edgeHub. The next version is stored and handed on; any other version
    /// makes edgeHub read the twin and hand on the difference; without a stored twin the change is
    /// handed on as it came.
    pub(crate) fn desired_at_edge(
        &mut self,
        patch: &DesiredPatch,
        now: Timestamp,
        metadata: bool,
    ) -> Option<DesiredPatch> {
        match &mut self.stored {
            Some(stored)
                if stored.desired_version.map(|version| version + 1) != Some(patch.version) =>
            {
                self.difference(now, metadata)
            }
            Some(stored) => {
                let mut body = patch.body.clone();
                body.remove("$version");
                document::merge(&mut stored.desired, &body, Nulls::Delete);
                stored.desired_version = Some(patch.version);
                Some(patch.clone())
            }
            None => Some(patch.clone()),
        }
    }

    /// The cloud is back: a twin that is stored and was not read within `min_age` is read again.
    pub(crate) fn resync(
        &mut self,
        now: Timestamp,
        min_age: jiff::SignedDuration,
        metadata: bool,
    ) -> Option<DesiredPatch> {
        self.stored.as_ref()?;
        if self
            .last_sync
            .is_some_and(|last| now.duration_since(last) <= min_age)
        {
            return None;
        }
        self.difference(now, metadata)
    }

    /// Forgets what edgeHub had stored.
    pub(crate) fn wipe_store(&mut self) {
        *self = Self {
            cloud: std::mem::take(&mut self.cloud),
            ..Self::default()
        };
    }

    fn store_cloud_twin(&mut self, now: Timestamp) {
        self.last_sync = Some(now);
        self.stored = Some(StoredTwin {
            desired: self.cloud.desired.clone(),
            desired_version: Some(self.cloud.desired_version),
            reported: self.cloud.reported.clone(),
            reported_version: Some(self.cloud.reported_version),
        });
    }

    /// Reads the twin and gives the difference to the stored desired section, version included.
    fn difference(&mut self, now: Timestamp, metadata: bool) -> Option<DesiredPatch> {
        let before = self.stored.take().unwrap_or_default();
        self.store_cloud_twin(now);
        let mut body = document::diff(&before.desired, &self.cloud.desired);
        let version = self.cloud.desired_version;
        if before.desired_version == Some(version) && body.is_empty() {
            return None;
        }
        if before.desired_version != Some(version) {
            body.insert("$version".into(), version.into());
        }
        if metadata {
            let stamp = json!({"$lastUpdated": now.to_string(), "$lastUpdatedVersion": version});
            body.insert("$metadata".into(), stamp);
        }
        Some(DesiredPatch { version, body })
    }
}

impl CloudTwin {
    fn to_json(&self) -> Value {
        json!({
            "desired": versioned(&self.desired, Some(self.desired_version)),
            "reported": versioned(&self.reported, Some(self.reported_version)),
        })
    }
}

impl StoredTwin {
    fn to_json(&self) -> Value {
        json!({
            "desired": versioned(&self.desired, self.desired_version),
            "reported": versioned(&self.reported, self.reported_version),
        })
    }
}

fn versioned(document: &Document, version: Option<u64>) -> Document {
    let mut document = document.clone();
    if let Some(version) = version {
        document.insert("$version".into(), version.into());
    }
    document
}

#[cfg(test)]
#[path = "twin_tests.rs"]
mod tests;
