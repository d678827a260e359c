//! The operator's side: one module's twin as IoT Hub shows it, desired changes, and the oddities of
//! versions that a hub can produce.

use std::time::Duration;

use serde_json::Value;

use super::device::Edge;
use super::document::Document;
use super::error::EdgeError;
use super::hub::desired_message;
use super::twin::{DesiredPatch, ModuleTwin};

/// One module's twin in the cloud.
pub struct Cloud<'a> {
    edge: &'a Edge,
    module: String,
}

impl<'a> Cloud<'a> {
    pub(crate) fn new(edge: &'a Edge, module: &str) -> Self {
        Self {
            edge,
            module: module.to_owned(),
        }
    }

    /// The desired section without `$version`.
    pub fn desired(&self) -> Value {
        Value::Object(self.twin(|twin| twin.cloud.desired.clone()))
    }

    /// Version of the desired section.
    pub fn desired_version(&self) -> u64 {
        self.twin(|twin| twin.cloud.desired_version)
    }

    /// The reported section that the cloud has taken, without `$version`.
    pub fn reported(&self) -> Value {
        Value::Object(self.twin(|twin| twin.cloud.reported.clone()))
    }

    /// Version of the reported section; it grows by one with each patch taken.
    pub fn reported_version(&self) -> u64 {
        self.twin(|twin| twin.cloud.reported_version)
    }

    /// Whether edgeHub has confirmed reported properties that the cloud does not have.
    pub fn reported_pending(&self) -> bool {
        self.twin(|twin| twin.is_pending())
    }

    /// Replaces the desired section; the new version. A connected module gets a patch with nulls for
    /// what was removed.
    ///
    /// # Errors
    /// [`EdgeError::Twin`] when the cloud would refuse the document.
    pub fn set_desired(&self, desired: Value) -> Result<u64, EdgeError> {
        self.change_desired(|twin| twin.set_desired(object(desired)?))
    }

    /// Merges a patch into the desired section; the new version.
    ///
    /// # Errors
    /// [`EdgeError::Twin`] when the cloud would refuse the result.
    pub fn patch_desired(&self, patch: Value) -> Result<u64, EdgeError> {
        self.change_desired(|twin| twin.patch_desired(&object(patch)?))
    }

    /// Changes the desired section as [`Self::patch_desired`] does, but the notice of it is lost on
    /// the way to edgeHub: the next one makes a version gap.
    ///
    /// # Errors
    /// [`EdgeError::Twin`] when the cloud would refuse the result.
    pub fn patch_desired_unnoticed(&self, patch: Value) -> Result<u64, EdgeError> {
        let patch = object(patch).map_err(EdgeError::Twin)?;
        let changed = self.twin_mut(|twin| twin.patch_desired(&patch));
        changed.map(|patch| patch.version).map_err(EdgeError::Twin)
    }

    /// Sets the version counter, as a module identity that is made anew starts again from 1. The
    /// module is told nothing.
    pub fn reset_desired_version(&self, version: u64) {
        self.twin_mut(|twin| twin.cloud.desired_version = version);
    }

    /// Sends any body as a desired patch straight to the module, past both layers: a duplicate, a
    /// gap, an old version.
    pub fn send_desired(&self, version: u64, body: Value) -> Result<(), EdgeError> {
        let body = object(body).map_err(EdgeError::Twin)?;
        let world = &self.edge.world;
        let message = desired_message(&DesiredPatch { version, body });
        world.change(|state| state.send(&world.options.device_id, &self.module, message));
        Ok(())
    }

    /// Patches the desired section `count` times at the given rate; the last version.
    ///
    /// # Errors
    /// [`EdgeError::Twin`] when the cloud would refuse one of the results.
    pub async fn storm(
        &self,
        count: u32,
        per_second: u32,
        mut patch: impl FnMut(u32) -> Value,
    ) -> Result<u64, EdgeError> {
        let period = Duration::from_secs(1) / per_second.max(1);
        let mut ticks = tokio::time::interval(period);
        for number in 0..count {
            ticks.tick().await;
            self.patch_desired(patch(number))?;
        }
        Ok(self.desired_version())
    }

    fn change_desired(
        &self,
        change: impl FnOnce(&mut ModuleTwin) -> Result<DesiredPatch, String>,
    ) -> Result<u64, EdgeError> {
        let patch = self.twin_mut(change).map_err(EdgeError::Twin)?;
        self.edge.world.deliver_desired(&self.module, &patch);
        Ok(patch.version)
    }

    fn twin<R: Default>(&self, look: impl FnOnce(&ModuleTwin) -> R) -> R {
        self.edge.world.look(|state| {
            state
                .modules
                .get(&self.module)
                .map(|m| look(&m.twin))
                .unwrap_or_default()
        })
    }

    fn twin_mut<R: Missing>(&self, change: impl FnOnce(&mut ModuleTwin) -> R) -> R {
        self.edge.world.change(|state| {
            state
                .modules
                .get_mut(&self.module)
                .map_or_else(R::missing, |m| change(&mut m.twin))
        })
    }
}

/// What an operation on a module that does not exist comes to.
trait Missing {
    fn missing() -> Self;
}

impl Missing for () {
    fn missing() {}
}

impl<T> Missing for Result<T, String> {
    fn missing() -> Self {
        Err("no such module".into())
    }
}

fn object(value: Value) -> Result<Document, String> {
    match value {
        Value::Object(object) => Ok(object),
        _ => Err("a twin section is a JSON object".into()),
    }
}
