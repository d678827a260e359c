//! The protocol of one module, without I/O: bytes and commands in, bytes and events out, the time as
//! an argument. It outlives connections: what must be sent again, the twin and open calls stay.

use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use tokio::sync::mpsc;

use super::codec::{Codec, CodecError, ConnectData, Received};
use super::end::End;
use super::outbox::Outbox;
use super::twin_requests::{Kind, TwinRequests};
use crate::config::Config;
use crate::encode::percent_encode;
use crate::event::{Counters, DisconnectReason, Event, State};
use crate::handle::Outgoing;
use crate::message::Input;
use crate::methods::{Answer, Methods, Request};
use crate::secret::Secret;
use crate::topics::{self, Incoming};
use crate::twin::{Acknowledged, Desired, DesiredChange, Pace, Reported, Urgency};

/// The api-version in the user name. Any is accepted by edgeHub; this one has Plug and Play at the hub.
const HUB_API_VERSION: &str = "2021-04-12";
/// Twin requests in a row without any answer before the link counts as broken.
const SILENT_LIMIT: u32 = 3;

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
                self.get_at(now),
                self.patch_at(now),
                self.emit_at(now),
            ]
            .into_iter()
            .flatten()
            .min(),
        }
    }

    fn on_packet(&mut self, now: Instant, packet: Received) -> Result<(), End> {
        match (packet, self.phase) {
            (
                Received::Connack {
                    code: 0,
                    session_present,
                },
                Phase::Connack { .. },
            ) => {
                self.counters.connects += 1;
                let inputs = topics::inputs_filter(&self.config.identity);
                let mut filters = vec![
                    topics::TWIN_RESPONSES,
                    topics::DESIRED_PATCHES,
                    topics::METHOD_REQUESTS,
                ];
                if self.config.inputs {
                    filters.push(&inputs);
                }
                self.codec.subscribe(&filters)?;
                self.last_sent = now;
                let until = now + self.config.timings.suback;
                self.phase = Phase::Suback {
                    until,
                    session_present,
                };
                Ok(())
            }
            (Received::Connack { code, .. }, Phase::Connack { .. }) => {
                self.inform(Event::ConnackRefused { code });
                Err(End::refused(code))
            }
            (
                Received::Suback { granted: true },
                Phase::Suback {
                    session_present, ..
                },
            ) => {
                self.phase = Phase::Open;
                self.inform(Event::Connected { session_present });
                if std::mem::take(&mut self.renewing) {
                    self.counters.renewals += 1;
                    self.inform(Event::Renewed);
                }
                self.flush_outbox(now)?;
                self.tick(now)
            }
            (Received::Suback { granted: false }, Phase::Suback { .. }) => Err(End::new(
                DisconnectReason::Subscribe,
                "the hub refused a subscription",
            )),
            (Received::Puback { id }, _) => {
                if self.outbox.on_puback(id) {
                    self.counters.telemetry_acked += 1;
                }
                Ok(())
            }
            (Received::Pong, _) => {
                self.pong_due = None;
                Ok(())
            }
            // A stored session may deliver before SUBACK.
            (Received::Publish { topic, body, ack }, Phase::Suback { .. } | Phase::Open) => {
                if self.on_publish(now, &topic, body)?
                    && let Some(id) = ack
                {
                    self.codec.puback(id)?;
                    self.last_sent = now;
                }
                Ok(())
            }
            (other, phase) => Err(End::new(
                DisconnectReason::Protocol,
                format!("unexpected {} while in phase {phase:?}", other.name()),
            )),
        }
    }

    /// Returns whether the message is to be acknowledged.
    fn on_publish(&mut self, now: Instant, topic: &str, body: Bytes) -> Result<bool, End> {
        match topics::parse(topic, &self.config.identity) {
            Ok(Incoming::TwinResponse {
                status, request_id, ..
            }) => {
                self.on_twin_answer(now, status, &request_id, &body);
            }
            Ok(Incoming::DesiredPatch { version }) => {
                let patch = serde_json::from_slice(&body).unwrap_or(serde_json::Value::Null);
                let change = self.desired.on_patch(version, &patch);
                self.on_desired(now, change);
            }
            Ok(Incoming::Method { name, request_id }) => {
                self.on_method(now, name, request_id, &body)?;
            }
            Ok(Incoming::Input { name, properties }) => {
                return Ok(self.on_input(Input {
                    name,
                    properties,
                    body,
                }));
            }
            Err(error) => {
                self.counters.unknown_topics += 1;
                tracing::warn!(%error, "skipping a message from the hub");
            }
        }
        Ok(true)
    }

    /// An input that finds the queue full is not acknowledged: the hub keeps it and brings it again.
    fn on_input(&mut self, input: Input) -> bool {
        match self.events.try_send(Event::Input(input)) {
            Ok(()) => {
                self.counters.inputs += 1;
                true
            }
            Err(mpsc::error::TrySendError::Full(_)) => {
                self.counters.inputs_deferred += 1;
                false
            }
            // Nobody will ever take it, and unacknowledged ones would block the others.
            Err(mpsc::error::TrySendError::Closed(_)) => true,
        }
    }

    fn on_method(
        &mut self,
        now: Instant,
        name: String,
        request_id: String,
        payload: &[u8],
    ) -> Result<(), End> {
        match self
            .methods
            .on_request(now, name, request_id.clone(), payload)
        {
            Request::Call(call) => match self.events.try_send(Event::Method(call)) {
                Ok(()) => self.counters.methods += 1,
                Err(mpsc::error::TrySendError::Full(Event::Method(call))) => {
                    self.counters.methods_refused += 1;
                    let message = "the module is busy, try again later";
                    call.reply
                        .respond(429, serde_json::json!({"message": message}));
                }
                // Dropping the call answers it.
                Err(_) => {}
            },
            Request::Answer(status, body) => {
                if status == 429 {
                    self.counters.methods_refused += 1;
                }
                self.respond(now, &request_id, status, &body)?;
            }
            Request::AlreadyUnderWay => {}
        }
        Ok(())
    }

    fn respond(&mut self, now: Instant, id: &str, status: i32, body: &[u8]) -> Result<(), End> {
        self.last_sent = now;
        match self
            .codec
            .publish(&topics::method_response(status, id), body, false)
        {
            Ok(_) => Ok(()),
            // A request id that cannot stand in a topic: nobody can answer this call.
            Err(error) => {
                tracing::warn!(%error, "a method answer cannot be sent");
                Ok(())
            }
        }
    }

    fn on_twin_answer(&mut self, now: Instant, status: u16, request_id: &str, body: &[u8]) {
        match self.twin.answered(request_id) {
            Some(Kind::Patch) => {
                if (200..300).contains(&status) {
                    self.counters.patches_accepted += 1;
                }
                let outcome = self.reported.on_answer(now, status);
                self.tell(outcome);
            }
            Some(Kind::Get) => self.on_twin(now, status, body),
            // Of an older connection, or too late.
            None => {}
        }
    }

    fn on_twin(&mut self, now: Instant, status: u16, body: &[u8]) {
        let twin: Option<serde_json::Value> = if status == 200 {
            serde_json::from_slice(body).ok()
        } else {
            None
        };
        let Some(twin) = twin else {
            tracing::debug!(status, "the hub has no twin for us now");
            self.desired.get_failed();
            self.twin
                .get_failed(now, self.config.timings.report_backoff);
            return;
        };
        let change = self.desired.on_get(&twin["desired"]);
        if !self.desired.is_synced() {
            self.twin
                .get_failed(now, self.config.timings.report_backoff);
            return;
        }
        let (from, to) = self.config.timings.twin_refresh;
        let spread = to.saturating_sub(from).mul_f64(rand::random::<f64>());
        self.twin.get_succeeded(now, from + spread);
        self.on_desired(now, change);
        let outcome = self.reported.on_get(now, &twin["reported"]);
        self.tell(outcome);
    }

    fn on_desired(&mut self, now: Instant, change: DesiredChange) {
        match change {
            DesiredChange::Updated => self.emit_desired(now),
            DesiredChange::Nothing => {}
            DesiredChange::AskAgain => {
                let at = self.twin.last_get() + self.config.timings.gap_get_spacing;
                self.twin.get_by(at.max(now));
            }
        }
    }

    fn tell(&mut self, outcome: Acknowledged) {
        match outcome {
            Acknowledged::Nothing => {}
            Acknowledged::Settled => self.inform(Event::ReportedSettled),
            Acknowledged::Refused { section, status } => {
                self.inform(Event::ReportedRefused { section, status });
            }
            Acknowledged::Stuck => self.inform(Event::ReportedStuck),
            Acknowledged::Recovered => self.inform(Event::ReportedRecovered),
        }
    }

    fn tick_twin(&mut self, now: Instant) -> Result<(), End> {
        for kind in self.twin.expire(now) {
            match kind {
                Kind::Get => {
                    self.desired.get_failed();
                    self.twin
                        .get_failed(now, self.config.timings.report_backoff);
                }
                Kind::Patch => self.reported.on_timeout(now),
            }
        }
        if self.twin.silent() >= SILENT_LIMIT {
            return Err(End::new(
                DisconnectReason::TwinSilent,
                "no answer to twin requests",
            ));
        }
        if self.get_at(now).is_some_and(|at| now >= at) {
            let id = self
                .twin
                .sent(Kind::Get, now, self.config.timings.twin_answer);
            self.codec.publish(&topics::twin_get(&id), b"", false)?;
            self.desired.get_sent();
            self.counters.twin_gets += 1;
            self.last_sent = now;
        }
        if self.patch_at(now).is_some_and(|at| now >= at)
            && let Some(patch) = self.reported.take_patch(now)
        {
            let id = self
                .twin
                .sent(Kind::Patch, now, self.config.timings.twin_answer);
            let body = patch.to_string();
            self.codec
                .publish(&topics::reported_patch(&id), body.as_bytes(), false)?;
            self.last_sent = now;
        }
        Ok(())
    }

    fn get_at(&self, now: Instant) -> Option<Instant> {
        if self.twin.is_waiting(Kind::Get) || self.paused {
            return None;
        }
        let verify = self.reported.verify_at(self.twin.last_get());
        let unknown = (self.reported.needs_get() && self.twin.planned_get().is_none())
            .then(|| now.max(self.twin.last_get() + self.config.timings.gap_get_spacing));
        [self.twin.get_due(), verify, unknown]
            .into_iter()
            .flatten()
            .min()
    }

    fn patch_at(&self, now: Instant) -> Option<Instant> {
        if self.paused || self.twin.is_waiting(Kind::Patch) {
            return None;
        }
        self.reported.due_at(now, self.hurry)
    }

    fn ping_at(&self) -> Option<Instant> {
        let idle = self.config.timings.keep_alive / 2;
        self.pong_due
            .is_none()
            .then(|| self.last_sent.min(self.last_received) + idle)
    }

    fn emit_at(&self, now: Instant) -> Option<Instant> {
        let (version, document) = self.desired.known()?;
        if self
            .emitted
            .as_ref()
            .is_some_and(|(v, d)| *v == version && d == document)
        {
            return None;
        }
        Some(
            self.emitted_at
                .map_or(now, |at| at + self.config.timings.desired_spacing),
        )
    }

    /// Hands the desired document out, the newest only and not too often. If the queue is full it
    /// stays due, with the same spacing.
    fn emit_desired(&mut self, now: Instant) {
        if self.emit_at(now).is_none_or(|at| now < at) {
            return;
        }
        let Some((version, document)) = self.desired.known() else {
            return;
        };
        let changed = self
            .emitted
            .as_ref()
            .is_none_or(|(_, before)| before != document);
        let event = Event::Desired {
            version,
            document: document.clone(),
            changed,
        };
        self.emitted_at = Some(now);
        if self.events.try_send(event).is_ok() || self.events.is_closed() {
            self.emitted = Some((version, document.clone()));
        }
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
