//! The protocol of one module, without I/O: bytes and commands in, bytes and events out, the time as
//! an argument. It outlives connections: what must be sent again, the twin and open calls stay.

mod inbound;
mod twin;

use std::time::{Duration, Instant};

use bytes::BytesMut;
use tokio::sync::mpsc;

use super::codec::{Codec, CodecError, ConnectData};
use super::end::End;
use super::outbox::Outbox;
use super::twin_requests::{Kind, TwinRequests};
use crate::config::Config;
use crate::encode::percent_encode;
use crate::event::{Counters, DisconnectReason, Event, State};
use crate::handle::Outgoing;
use crate::methods::{Answer, Methods};
use crate::secret::Secret;
use crate::twin::{Desired, Pace, Reported, Urgency};

/// The api-version in the user name. Any is accepted by edgeHub; this one has Plug and Play at the hub.
const HUB_API_VERSION: &str = "2021-04-12";
/// Twin requests in a row without any answer before the link counts as broken.
const SILENT_LIMIT: u32 = 3;
/// Floor of the spacing of desired events, so that a full queue is not asked in a loop.
const LEAST_SPACING: Duration = Duration::from_millis(10);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Offline,
    Connack {
        until: Instant,
    },
    Suback {
        until: Instant,
        session_present: bool,
    },
    Open,
}

pub(crate) struct Engine {
    config: Config,
    events: mpsc::Sender<Event>,
    codec: Codec,
    phase: Phase,
    outbox: Outbox,
    desired: Desired,
    reported: Reported,
    methods: Methods,
    twin: TwinRequests,
    /// Desired document last handed out, and when.
    emitted: Option<(u64, serde_json::Value)>,
    emitted_at: Option<Instant>,
    last_sent: Instant,
    last_received: Instant,
    pong_due: Option<Instant>,
    paused: bool,
    renewing: bool,
    opened_at: Option<Instant>,
    hurry: bool,
    pub(crate) counters: Counters,
}

impl Engine {
    pub(crate) fn new(
        config: Config,
        events: mpsc::Sender<Event>,
        answers: mpsc::Sender<Answer>,
        now: Instant,
    ) -> Self {
        let pace = Pace::new(&config.timings, config.limits.patch_bytes);
        Self {
            codec: Codec::new(config.limits.receive_bytes),
            phase: Phase::Offline,
            outbox: Outbox::default(),
            desired: Desired::default(),
            reported: Reported::new(pace),
            methods: Methods::new(
                answers,
                config.timings.method_answer,
                config.limits.method_answer_bytes,
            ),
            twin: TwinRequests::new(now),
            emitted: None,
            emitted_at: None,
            last_sent: now,
            last_received: now,
            pong_due: None,
            paused: false,
            renewing: false,
            opened_at: None,
            hurry: false,
            counters: Counters::default(),
            events,
            config,
        }
    }

    /// Starts the protocol on a fresh connection.
    pub(crate) fn begin(
        &mut self,
        now: Instant,
        password: &Secret,
        nonce: String,
        renewing: bool,
    ) -> Result<(), End> {
        self.codec = Codec::new(self.config.limits.receive_bytes);
        self.phase = Phase::Connack {
            until: now + self.config.timings.connack,
        };
        self.desired.begin_epoch();
        self.reported.begin_epoch();
        self.methods.begin_epoch();
        self.outbox.link_lost();
        self.twin.begin_epoch(now, nonce);
        self.last_sent = now;
        self.last_received = now;
        self.pong_due = None;
        self.paused = false;
        self.renewing = renewing;
        self.opened_at = None;
        let client_id = self.config.identity.client_id();
        let user_name = user_name(&self.config);
        let keep_alive = self.config.timings.keep_alive.as_secs().max(1);
        self.codec.connect(&ConnectData {
            client_id: &client_id,
            user_name: &user_name,
            password: password.expose(),
            clean_session: self.config.clean_session,
            keep_alive_secs: u16::try_from(keep_alive).unwrap_or(u16::MAX),
        })?;
        Ok(())
    }

    /// The connection is gone.
    pub(crate) fn end(&mut self) {
        self.phase = Phase::Offline;
        self.outbox.link_lost();
        self.codec = Codec::new(self.config.limits.receive_bytes);
    }

    pub(crate) fn state(&self) -> State {
        match self.phase {
            Phase::Offline => State::Init,
            Phase::Connack { .. } => State::Connack,
            Phase::Suback { .. } => State::Subscribing,
            Phase::Open if self.hurry => State::Draining,
            Phase::Open if self.desired.is_synced() => State::Up,
            Phase::Open => State::Syncing,
        }
    }

    /// Since when the subscriptions have stood.
    pub(crate) fn opened_at(&self) -> Option<Instant> {
        self.opened_at
    }

    /// Whether the subscriptions stand.
    pub(crate) fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    pub(crate) fn is_stuck(&self) -> bool {
        self.reported.is_stuck()
    }

    pub(crate) fn unacknowledged(&self) -> usize {
        self.outbox.len()
    }

    pub(crate) fn reported_settled(&self) -> bool {
        self.reported.is_settled()
    }

    /// Bytes to be written to the connection.
    pub(crate) fn output(&mut self) -> &mut BytesMut {
        self.codec.output()
    }

    /// Whether there is room for one more telemetry message.
    pub(crate) fn can_take(&self) -> bool {
        self.is_open() && !self.paused && self.outbox.len() < self.config.limits.in_flight
    }

    pub(crate) fn send_telemetry(&mut self, now: Instant, outgoing: Outgoing) -> Result<(), End> {
        self.outbox.push(outgoing);
        self.flush_outbox(now)
    }

    pub(crate) fn want(&mut self, document: serde_json::Value, urgency: Urgency) {
        self.reported.want(document, urgency);
    }

    pub(crate) fn set_report_interval(&mut self, interval: Duration) {
        self.reported.set_interval(interval);
    }

    pub(crate) fn ask_twin(&mut self, now: Instant) {
        self.twin.get_by(now);
    }

    pub(crate) fn method_answered(&mut self, now: Instant, answer: Answer) -> Result<(), End> {
        match self.methods.on_answer(answer) {
            Some((id, status, body)) if self.is_open() => self.respond(now, &id, status, &body),
            _ => Ok(()),
        }
    }

    /// Takes nothing new, so that the link can be replaced without a loss.
    pub(crate) fn pause(&mut self) {
        self.paused = true;
    }

    /// The program ends: send what is left without spacing.
    pub(crate) fn hurry(&mut self) {
        self.hurry = true;
        self.paused = false;
    }

    /// Whether nothing is under way that a planned end of the link would cut off.
    pub(crate) fn is_quiet(&self) -> bool {
        self.outbox.len() == 0 && self.methods.pending() == 0 && !self.twin.is_waiting(Kind::Patch)
    }

    pub(crate) fn disconnect(&mut self) -> Result<(), End> {
        if self.is_open() {
            Ok(self.codec.disconnect()?)
        } else {
            Ok(())
        }
    }

    /// Takes bytes from the connection.
    pub(crate) fn feed(&mut self, now: Instant, bytes: &[u8]) -> Result<(), End> {
        self.last_received = now;
        for packet in self.codec.feed(bytes)? {
            self.on_packet(now, packet)?;
        }
        Ok(())
    }

    /// Does what has become due.
    pub(crate) fn tick(&mut self, now: Instant) -> Result<(), End> {
        match self.phase {
            Phase::Offline => return Ok(()),
            Phase::Connack { until } if now >= until => {
                let limit = self.config.timings.connack;
                let text = format!("no CONNACK within {limit:?}");
                return Err(End::new(DisconnectReason::ConnackTimeout, text));
            }
            Phase::Suback { until, .. } if now >= until => {
                return Err(End::new(DisconnectReason::Subscribe, "no SUBACK in time"));
            }
            Phase::Connack { .. } | Phase::Suback { .. } => return Ok(()),
            Phase::Open => {}
        }
        if self.pong_due.is_some_and(|due| now >= due) {
            return Err(End::new(
                DisconnectReason::PingTimeout,
                "the hub did not answer a ping",
            ));
        }
        if self
            .outbox
            .oldest_sent()
            .is_some_and(|at| now >= at + self.config.timings.puback)
        {
            let text = "the hub did not acknowledge a message in time";
            return Err(End::new(DisconnectReason::PubackTimeout, text));
        }
        if self.ping_at().is_some_and(|at| now >= at) {
            self.codec.ping()?;
            self.last_sent = now;
            self.pong_due = Some(now + self.config.timings.pingresp);
        }
        for (id, status, body) in self.methods.expire(now) {
            self.counters.methods_late += 1;
            self.respond(now, &id, status, &body)?;
        }
        self.tick_twin(now)?;
        self.emit_desired(now);
        Ok(())
    }

    /// When [`Self::tick`] has something to do next.
    pub(crate) fn next_tick(&self, now: Instant) -> Option<Instant> {
        match self.phase {
            Phase::Offline => None,
            Phase::Connack { until } | Phase::Suback { until, .. } => Some(until),
            Phase::Open => [
                self.pong_due,
                self.ping_at(),
                self.outbox
                    .oldest_sent()
                    .map(|at| at + self.config.timings.puback),
                self.methods.next_deadline(),
                self.twin.next_deadline(),
                self.get_at(),
                self.patch_at(now),
                self.emit_at(now),
            ]
            .into_iter()
            .flatten()
            .min(),
        }
    }

    fn ping_at(&self) -> Option<Instant> {
        let timings = &self.config.timings;
        let idle = self.last_sent.min(self.last_received) + timings.keep_alive / 2;
        let waiting = match self.outbox.oldest_sent() {
            Some(sent) => Some(sent),
            None => self.twin.is_waiting(Kind::Patch).then_some(self.last_sent),
        };
        let suspicious =
            waiting.map(|since| since.max(self.last_received) + timings.ping_when_waiting);
        self.pong_due
            .is_none()
            .then(|| suspicious.map_or(idle, |at| at.min(idle)))
    }

    pub(crate) fn inform(&mut self, event: Event) {
        if self.events.try_send(event).is_err() {
            self.counters.events_dropped += 1;
        }
    }

    fn flush_outbox(&mut self, now: Instant) -> Result<(), End> {
        if !self.is_open() {
            return Ok(());
        }
        let codec = &mut self.codec;
        let resent = self
            .outbox
            .flush(now, |topic, body, dup| codec.publish(topic, body, dup))?;
        self.counters.telemetry_resent += resent;
        self.last_sent = now;
        Ok(())
    }
}

/// `{hub}/{device}/{module}/?api-version=…`: edgeHub refuses a name with more than four segments, so
/// product and model id must not bring a raw slash.
fn user_name(config: &Config) -> String {
    let identity = &config.identity;
    let mut name = format!(
        "{}/{}/{}/?api-version={HUB_API_VERSION}&DeviceClientType={}",
        identity.hub_host,
        identity.device_id,
        identity.module_id,
        percent_encode(&config.product)
    );
    if let Some(model) = &config.model_id {
        name.push_str("&model-id=");
        name.push_str(&percent_encode(model));
    }
    name
}

impl From<CodecError> for End {
    fn from(error: CodecError) -> Self {
        Self::new(DisconnectReason::Protocol, error.to_string())
    }
}
