//! What a condition may look at while the state stands still.

use serde_json::Value;

use super::faults::Faults;
use super::message::{InputMessage, TelemetryRecord};
use super::record::{PacketRecord, Way};
use super::state::{Counters, State};

/// The device and its cloud at one moment.
pub struct View<'a> {
    state: &'a State,
    module: &'a str,
}

impl<'a> View<'a> {
    pub(crate) fn new(state: &'a State, module: &'a str) -> Self {
        Self { state, module }
    }

    /// Messages at the cloud, in order.
    pub fn telemetry(&self) -> &'a [TelemetryRecord] {
        &self.state.telemetry
    }

    /// Messages that edgeHub keeps for the cloud.
    pub fn stored_messages(&self) -> usize {
        self.state.upstream.len()
    }

    /// The first module's reported section in the cloud, without `$version`.
    pub fn reported(&self) -> Value {
        self.reported_of(self.module)
    }

    /// A module's reported section in the cloud, without `$version`.
    pub fn reported_of(&self, module: &str) -> Value {
        let found = self.state.modules.get(module);
        found.map_or(Value::Null, |m| {
            Value::Object(m.twin.cloud.reported.clone())
        })
    }

    /// Version of the first module's desired section in the cloud.
    pub fn desired_version(&self) -> u64 {
        self.state
            .modules
            .get(self.module)
            .map_or(0, |m| m.twin.cloud.desired_version)
    }

    /// Whether the first module is connected.
    pub fn connected(&self) -> bool {
        self.connected_module(self.module)
    }

    /// Whether a module is connected.
    pub fn connected_module(&self, module: &str) -> bool {
        self.state.live_of(module).is_some()
    }

    /// The subscriptions of the first module's connection with the QoS granted.
    pub fn subscriptions(&self) -> Vec<(String, u8)> {
        let live = self.state.live_of(self.module);
        live.map(|live| live.filters.clone().into_iter().collect())
            .unwrap_or_default()
    }

    /// Messages for a module's inputs that it has not acknowledged.
    pub fn pending_inputs(&self, module: &str) -> Vec<&'a InputMessage> {
        self.state
            .modules
            .get(module)
            .map(|m| m.inputs.messages().collect())
            .unwrap_or_default()
    }

    /// What happened how often.
    pub fn counters(&self) -> &'a Counters {
        &self.state.counters
    }

    /// Faults in force.
    pub fn faults(&self) -> &'a Faults {
        &self.state.faults
    }

    /// The packet journal, oldest first.
    pub fn journal(&self) -> impl DoubleEndedIterator<Item = &'a PacketRecord> + use<'a> {
        self.state.packets.records()
    }

    /// Records of the packet journal that were forgotten because of its limit.
    pub fn journal_forgotten(&self) -> u64 {
        self.state.packets.forgotten()
    }

    /// How many packets of a kind (`"SUBSCRIBE"`, …) went one way.
    pub fn count(&self, way: Way, kind: &str) -> usize {
        self.journal()
            .filter(|record| record.way == way && record.kind == kind)
            .count()
    }

    /// Connections accepted since start.
    pub fn connections(&self) -> u64 {
        self.state.connections
    }
}
