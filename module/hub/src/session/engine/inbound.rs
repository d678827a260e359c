//! Packets from the hub, and what each does.

use std::time::Instant;

use bytes::Bytes;
use tokio::sync::mpsc;

use super::{Engine, Phase};
use crate::event::{DisconnectReason, Event};
use crate::message::Input;
use crate::methods::Request;
use crate::session::codec::Received;
use crate::session::end::End;
use crate::topics::{self, Incoming};

impl Engine {
    pub(super) fn on_packet(&mut self, now: Instant, packet: Received) -> Result<(), End> {
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
                self.opened_at = Some(now);
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

    pub(super) fn respond(
        &mut self,
        now: Instant,
        id: &str,
        status: i32,
        body: &[u8],
    ) -> Result<(), End> {
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
}
