//! What edgeHub does with a module's packets: telemetry into routes, twin requests into the two
//! layers, method answers to their callers, subscriptions into the session. Speaks to sockets only
//! through the session's outbox.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use super::document::Document;
use super::faults::TwinFault;
use super::message::{Bag, InputMessage, TelemetryRecord};
use super::mqtt::Publish;
use super::routes::Sink;
use super::state::ToModule;
use super::topics::{self, Intent, Subject};
use super::twin::DesiredPatch;
use super::world::World;

/// A routed message may be this large after decoding.
const MAX_MESSAGE: usize = 256 * 1024;

/// Who is at the other end of a connection.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    pub(crate) connection: u64,
    pub(crate) client: String,
    pub(crate) module: String,
    pub(crate) model_id: Option<String>,
}

impl World {
    /// Works one publish off. `Err` closes the connection without a PUBACK.
    pub(crate) fn publish(
        self: &Arc<Self>,
        peer: &Peer,
        publish: Publish,
    ) -> Result<(), &'static str> {
        match topics::intent(&publish.topic) {
            Intent::Telemetry(bag) => self.telemetry(peer, bag, &publish),
            Intent::TwinGet(rid) => {
                self.twin_get(peer, rid);
                Ok(())
            }
            Intent::TwinReport(rid) => {
                self.twin_report(peer, &rid, &publish.payload);
                Ok(())
            }
            Intent::MethodAnswer(status, rid) => {
                self.method_answer(&peer.client, status, &rid, publish.payload);
                Ok(())
            }
            Intent::Fatal(reason) => Err(reason),
            Intent::Unknown => {
                self.change(|state| state.counters.unknown_topics += 1);
                Ok(())
            }
        }
    }

    fn telemetry(
        self: &Arc<Self>,
        peer: &Peer,
        mut bag: Bag,
        publish: &Publish,
    ) -> Result<(), &'static str> {
        for (flag, name) in [(publish.retain, "mqtt-retain"), (publish.dup, "mqtt-dup")] {
            if flag {
                bag.properties.insert(name.into(), "true".into());
            }
        }
        let body = &publish.payload;
        let size = |map: &std::collections::BTreeMap<String, String>| {
            map.iter()
                .map(|(key, value)| key.len() + value.len())
                .sum::<usize>()
        };
        let too_large = body.len() + size(&bag.properties) + size(&bag.system) > MAX_MESSAGE;
        let mut sinks: Vec<&Sink> = Vec::new();
        for route in self
            .routes
            .iter()
            .filter(|route| route.takes(&peer.module, &bag, body))
        {
            // Two routes to one endpoint deliver once.
            if !sinks.contains(&&route.sink) {
                sinks.push(&route.sink);
            }
        }
        if sinks.is_empty() || too_large {
            self.change(|state| state.counters.unrouted += 1);
            return Ok(());
        }
        let now = self.clock.now();
        let stored = self.change(|state| {
            if state.faults.disk_full {
                return false;
            }
            for sink in &sinks {
                state.messages += 1;
                match sink {
                    Sink::Upstream => state.upstream.push_back(TelemetryRecord {
                        module: peer.module.clone(),
                        output: bag.system.get("on").cloned(),
                        properties: bag.properties.clone(),
                        system: bag.system.clone(),
                        body: body.clone(),
                        at: now,
                        received_at: now,
                        body_readable: bag.body_readable(),
                        model_id: peer.model_id.clone(),
                    }),
                    Sink::Input(module, input) => {
                        let mut system = bag.system.clone();
                        system.remove("on");
                        system.insert("cdid".into(), self.options.device_id.clone());
                        system.insert("cmid".into(), peer.module.clone());
                        let message = InputMessage {
                            id: state.messages,
                            input: input.clone(),
                            properties: bag.properties.clone(),
                            system,
                            body: body.clone(),
                        };
                        state
                            .modules
                            .get_mut(module)
                            .into_iter()
                            .for_each(|found| found.inputs.push(message.clone()));
                    }
                }
            }
            state.flush_upstream(now);
            true
        });
        if !stored {
            return Err("the message store is full");
        }
        for sink in sinks {
            if let Sink::Input(module, _) = sink {
                self.pump_inputs(module);
            }
        }
        Ok(())
    }

    fn twin_get(self: &Arc<Self>, peer: &Peer, rid: String) {
        let (fault, offline) =
            self.change(|state| (state.faults.take_twin(false), state.faults.cloud_offline));
        let empty = json!({"desired": {}, "reported": {}});
        match fault {
            TwinFault::Silent => {}
            TwinFault::Status(status) => self.twin_answer(peer, &rid, status, None, None),
            TwinFault::Empty => self.twin_answer(peer, &rid, 200, None, Some(empty)),
            TwinFault::None if offline => {
                // The read fails only after edgeHub has given up on the cloud.
                let (world, peer) = (Arc::clone(self), peer.clone());
                self.spawn(async move {
                    tokio::time::sleep(world.options.offline_get_delay).await;
                    let module = &peer.module;
                    let twin = world
                        .look(|state| state.modules.get(module).map(|m| m.twin.read_from_store()));
                    world.twin_answer(&peer, &rid, 200, None, twin);
                });
            }
            TwinFault::None => {
                let now = self.clock.now();
                let twin = self.change(|state| {
                    state
                        .modules
                        .get_mut(&peer.module)
                        .map(|m| m.twin.read_from_cloud(now))
                });
                self.twin_answer(peer, &rid, 200, None, twin);
            }
        }
    }

    fn twin_report(self: &Arc<Self>, peer: &Peer, rid: &str, body: &Bytes) {
        match self.change(|state| state.faults.take_twin(true)) {
            TwinFault::Silent => return,
            TwinFault::Status(status) => return self.twin_answer(peer, rid, status, None, None),
            TwinFault::Empty | TwinFault::None => {}
        }
        let Ok(patch) = serde_json::from_slice::<Document>(body) else {
            return self.twin_answer(peer, rid, 400, None, None);
        };
        let direct = self.options.hub_direct;
        let done = self.change(|state| {
            let Some(module) = state.modules.get_mut(&peer.module) else {
                return Err("no such module".to_owned());
            };
            let version = if direct {
                Some(module.twin.report_to_cloud(&patch)?)
            } else {
                module.twin.report(&patch)?;
                state.wanting_sync.insert(peer.module.clone());
                None
            };
            state.counters.reported_confirmed += 1;
            Ok(version)
        });
        match done {
            Ok(version) => self.twin_answer(peer, rid, 204, version, None),
            Err(reason) => {
                tracing::debug!(module = peer.module, reason, "reported patch refused");
                self.twin_answer(peer, rid, 400, None, None);
            }
        }
    }

    /// Only the hub itself names a version in an answer; edgeHub never does.
    fn twin_answer(
        &self,
        peer: &Peer,
        rid: &str,
        status: u16,
        version: Option<u64>,
        body: Option<Value>,
    ) {
        let version = version
            .map(|version| format!("&$version={version}"))
            .unwrap_or_default();
        let message = ToModule {
            subject: Subject::TwinAnswers,
            topic: format!("$iothub/twin/res/{status}/?$rid={rid}{version}"),
            payload: body
                .map(|body| Bytes::from(body.to_string()))
                .unwrap_or_default(),
            input: None,
        };
        self.change(|state| {
            // An answer belongs to the connection that asked.
            if state
                .live
                .get(&peer.client)
                .is_some_and(|live| live.connection == peer.connection)
            {
                state.send(&self.options.device_id, &peer.module, message);
            }
        });
    }

    /// A desired change leaves the cloud. It gets as far as edgeHub only while the module is
    /// connected and subscribed.
    pub(crate) fn deliver_desired(&self, module: &str, patch: &DesiredPatch) {
        let now = self.clock.now();
        self.change(|state| {
            let offline = state.faults.cloud_offline;
            if offline || !state.listens(&self.options.device_id, module, Subject::Desired) {
                return;
            }
            let metadata = state.faults.diff_metadata;
            let Some(found) = state.modules.get_mut(module) else {
                return;
            };
            let handed_on = if self.options.hub_direct {
                Some(patch.clone())
            } else {
                found.twin.desired_at_edge(patch, now, metadata)
            };
            if let Some(patch) = handed_on {
                state.send(&self.options.device_id, module, desired_message(&patch));
            }
        });
    }

    /// The cloud is back: messages flow, reported properties are pushed and twins read again, for
    /// the modules that are connected.
    pub(crate) fn back_online(&self) {
        let now = self.clock.now();
        let age = jiff::SignedDuration::try_from(self.options.min_twin_sync).unwrap_or_default();
        self.change(|state| {
            state.flush_upstream(now);
            let connected: Vec<String> = state
                .live
                .values()
                .map(|live| live.module.clone())
                .collect();
            for module in connected {
                state.sync_reported(&module);
                let metadata = state.faults.diff_metadata;
                let twin = state.modules.get_mut(&module).map(|found| &mut found.twin);
                if let Some(patch) = twin.and_then(|twin| twin.resync(now, age, metadata)) {
                    state.send(&self.options.device_id, &module, desired_message(&patch));
                }
            }
        });
    }
}

pub(crate) fn desired_message(patch: &DesiredPatch) -> ToModule {
    ToModule {
        subject: Subject::Desired,
        topic: format!(
            "$iothub/twin/PATCH/properties/desired/?$version={}",
            patch.version
        ),
        payload: Bytes::from(Value::Object(patch.body.clone()).to_string()),
        input: None,
    }
}
