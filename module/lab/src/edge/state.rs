//! What the emulated device and its cloud know, in one place behind one lock. Changes happen here
//! without waiting for anything; tasks that must wait live in the other files and watch for changes.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::faults::Faults;
use super::inputs::InputStore;
use super::message::TelemetryRecord;
use super::methods::{Answer, HeldCall};
use super::mqtt::{Packet, Publish};
use super::record::PacketLog;
use super::topics::{self, Subject};
use super::twin::ModuleTwin;

/// Packets that may wait for one module's socket; what comes on top is dropped and counted.
pub(crate) const OUTBOX: usize = 20_000;

/// Everything that can change.
pub(crate) struct State {
    /// Modules by id.
    pub(crate) modules: BTreeMap<String, Module>,
    /// Connected clients by client id.
    pub(crate) live: BTreeMap<String, Live>,
    /// Subscriptions of sessions that are not clean, by client id.
    pub(crate) sessions: BTreeMap<String, Filters>,
    /// Messages that edgeHub has stored for the cloud.
    pub(crate) upstream: VecDeque<TelemetryRecord>,
    /// Messages that the cloud has.
    pub(crate) telemetry: Vec<TelemetryRecord>,
    /// Modules whose reported properties wait for the next push.
    pub(crate) wanting_sync: BTreeSet<String>,
    /// The packet journal.
    pub(crate) packets: PacketLog,
    /// Faults in force.
    pub(crate) faults: Faults,
    /// What happened how often.
    pub(crate) counters: Counters,
    /// Last connection number.
    pub(crate) connections: u64,
    /// Last number of a stored message.
    pub(crate) messages: u64,
}

/// A module's identity and what edgeHub and the cloud keep for it.
pub(crate) struct Module {
    /// Primary and secondary key.
    pub(crate) keys: [Vec<u8>; 2],
    /// Generation id.
    pub(crate) generation: String,
    /// The twin.
    pub(crate) twin: ModuleTwin,
    /// Messages for its inputs.
    pub(crate) inputs: InputStore,
    /// Method calls that wait for it to subscribe.
    pub(crate) held: Vec<HeldCall>,
}

/// Filters with granted QoS.
pub(crate) type Filters = BTreeMap<String, u8>;

/// A connected client.
pub(crate) struct Live {
    /// Number of the connection.
    pub(crate) connection: u64,
    /// Module id.
    pub(crate) module: String,
    /// Subscriptions.
    pub(crate) filters: Filters,
    /// Session is not kept.
    pub(crate) clean: bool,
    /// End of the token, seconds since the epoch.
    pub(crate) token_expires: i64,
    /// To the socket.
    pub(crate) outbox: mpsc::Sender<Outgoing>,
    /// Ends the connection.
    pub(crate) closer: Closer,
    /// Method calls without an answer, by request id in lower case.
    pub(crate) calls: HashMap<String, oneshot::Sender<Answer>>,
    /// QoS 1 messages without PUBACK in the order sent; the number of the input message, if it is one.
    pub(crate) unacked: VecDeque<Option<u64>>,
}

/// What a connection's writer is given.
pub(crate) enum Outgoing {
    /// A packet.
    Packet(Packet),
    /// Half of this packet, then the end.
    Cut(Packet),
}

/// Ends a connection and says why; the first reason counts.
#[derive(Clone, Default)]
pub(crate) struct Closer {
    token: CancellationToken,
    reason: Arc<OnceLock<String>>,
}

impl Closer {
    pub(crate) fn close(&self, reason: &str) {
        let _ = self.reason.set(reason.to_owned());
        self.token.cancel();
    }

    pub(crate) async fn closed(&self) -> String {
        self.token.cancelled().await;
        self.reason.get().cloned().unwrap_or_default()
    }
}

/// How often something happened since start.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Counters {
    /// CONNACKs with code 0.
    pub connected: u64,
    /// CONNACKs with another code.
    pub refused: u64,
    /// TLS handshakes that failed.
    pub tls_failed: u64,
    /// Connections ended because the same client id came again.
    pub taken_over: u64,
    /// Connections ended because the token had expired.
    pub token_expired: u64,
    /// Telemetry without a route: dropped and acknowledged.
    pub unrouted: u64,
    /// Publishes on topics that nobody knows: dropped and acknowledged.
    pub unknown_topics: u64,
    /// Messages to a client without a matching subscription: lost.
    pub unsubscribed: u64,
    /// Messages to a client whose outbox was full: lost.
    pub overflowed: u64,
    /// Method answers with an unknown request id.
    pub late_answers: u64,
    /// Input messages delivered again.
    pub redelivered: u64,
    /// Reported patches confirmed by edgeHub.
    pub reported_confirmed: u64,
    /// Pushes of reported properties that the cloud took.
    pub reported_synced: u64,
    /// Pushes of reported properties that the cloud refused.
    pub reported_refused: u64,
    /// Sign requests answered.
    pub signed: u64,
    /// Trust bundles handed out.
    pub bundles: u64,
    /// Workload requests refused or left unanswered.
    pub workload_failed: u64,
}

/// A message to a module.
pub(crate) struct ToModule {
    pub(crate) subject: Subject,
    pub(crate) topic: String,
    pub(crate) payload: Bytes,
    /// Number of the input message, if it is one.
    pub(crate) input: Option<u64>,
}

impl State {
    /// The live connection of a module.
    pub(crate) fn live_of(&self, module: &str) -> Option<&Live> {
        self.live.values().find(|live| live.module == module)
    }

    /// Whether a module is connected and subscribed to a subject.
    pub(crate) fn listens(&self, device: &str, module: &str, subject: Subject) -> bool {
        self.live_of(module).is_some_and(|live| {
            live.filters
                .keys()
                .any(|filter| Subject::of(filter, device, module) == Some(subject))
        })
    }

    /// Queues a message for a module; QoS is the lower of 1 and what was granted. Returns the QoS,
    /// or `None` when the message is lost: edgeHub keeps nothing for a client that is away or does not
    /// listen.
    pub(crate) fn send(&mut self, device: &str, module: &str, message: ToModule) -> Option<u8> {
        let cut = self.faults.cut_next_publish;
        let Some(live) = self.live.values_mut().find(|live| live.module == module) else {
            self.counters.unsubscribed += 1;
            return None;
        };
        let granted = live
            .filters
            .iter()
            .filter(|(filter, _)| Subject::of(filter, device, module) == Some(message.subject))
            .filter(|(filter, _)| topics::matches(filter, &message.topic))
            .map(|(_, qos)| (*qos).min(1))
            .max();
        let Some(qos) = granted else {
            self.counters.unsubscribed += 1;
            return None;
        };
        // edgeHub's packet ids towards a client are practically always 1, even while several
        // messages are unacknowledged.
        let packet = Packet::Publish(Publish {
            topic: message.topic,
            qos,
            dup: false,
            retain: false,
            packet_id: u16::from(qos),
            payload: message.payload,
        });
        let outgoing = if cut {
            Outgoing::Cut(packet)
        } else {
            Outgoing::Packet(packet)
        };
        if live.outbox.try_send(outgoing).is_err() {
            self.counters.overflowed += 1;
            return None;
        }
        if qos > 0 {
            live.unacked.push_back(message.input);
        }
        self.faults.cut_next_publish = false;
        Some(qos)
    }

    /// Moves stored messages to the cloud, if it can be reached.
    pub(crate) fn flush_upstream(&mut self, now: Timestamp) {
        if self.faults.cloud_offline {
            return;
        }
        for mut record in self.upstream.drain(..) {
            record.at = now;
            self.telemetry.push(record);
        }
    }

    /// Ends every connection.
    pub(crate) fn close_all(&self, reason: &str) {
        self.live
            .values()
            .for_each(|live| live.closer.close(reason));
    }

    /// What a restart without persistent storage loses.
    pub(crate) fn wipe_store(&mut self) {
        self.sessions.clear();
        self.upstream.clear();
        self.wanting_sync.clear();
        for module in self.modules.values_mut() {
            module.twin.wipe_store();
            module.inputs = InputStore::default();
        }
    }
}
