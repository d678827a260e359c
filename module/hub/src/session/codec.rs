//! MQTT 3.1.1 for one connection: `mqtt-protocol-core` behind the few packets that a module needs.
//!
//! A fresh one for each attempt, so that nothing of an old connection leaks into a new one. It never
//! logs a packet: CONNECT holds the token.

use mqtt_protocol_core::mqtt;
use mqtt_protocol_core::mqtt::common::Cursor;
use mqtt_protocol_core::mqtt::connection::{ConnectionOptions, Event};
use mqtt_protocol_core::mqtt::packet::v3_1_1 as packet;
use mqtt_protocol_core::mqtt::packet::{GenericPacketTrait, Packet, Qos, SubEntry, SubOpts};
use mqtt_protocol_core::mqtt::result_code::{ConnectReturnCode, MqttError};

use bytes::{Bytes, BytesMut};
use thiserror::Error;

/// The peer broke the protocol, or a packet cannot be built.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("MQTT: {0}")]
pub(crate) struct CodecError(String);

/// A packet from the hub.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// Return code 0 is "accepted".
    Connack {
        code: u8,
        session_present: bool,
    },
    /// Whether every filter was granted.
    Suback {
        granted: bool,
    },
    Puback {
        id: u16,
    },
    Publish {
        topic: String,
        body: Bytes,
        ack: Option<u16>,
    },
    Pong,
}

impl Received {
    /// The packet's name in the standard.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Connack { .. } => "CONNACK",
            Self::Suback { .. } => "SUBACK",
            Self::Puback { .. } => "PUBACK",
            Self::Publish { .. } => "PUBLISH",
            Self::Pong => "PINGRESP",
        }
    }
}

/// What goes into CONNECT.
pub(crate) struct ConnectData<'a> {
    pub(crate) client_id: &'a str,
    pub(crate) user_name: &'a str,
    pub(crate) password: &'a str,
    pub(crate) clean_session: bool,
    pub(crate) keep_alive_secs: u16,
}

pub(crate) struct Codec {
    connection: mqtt::Connection<mqtt::role::Client>,
    output: BytesMut,
}

impl Codec {
    pub(crate) fn new(receive_bytes: u32) -> Self {
        let options = ConnectionOptions::new().maximum_packet_size_recv(receive_bytes);
        Self {
            connection: mqtt::Connection::with_options(mqtt::Version::V3_1_1, options),
            output: BytesMut::new(),
        }
    }

    /// Bytes to be written; the writer removes what it has written.
    pub(crate) fn output(&mut self) -> &mut BytesMut {
        &mut self.output
    }

    pub(crate) fn connect(&mut self, data: &ConnectData<'_>) -> Result<(), CodecError> {
        let connect = packet::Connect::builder()
            .client_id(data.client_id)
            .and_then(|b| b.user_name(data.user_name))
            .and_then(|b| b.password(data.password))
            .map_err(|e| build_error("CONNECT", e))?
            .clean_session(data.clean_session)
            .keep_alive(data.keep_alive_secs)
            .build()
            .map_err(|e| build_error("CONNECT", e))?;
        self.send(connect.into())
    }

    pub(crate) fn subscribe(&mut self, filters: &[&str]) -> Result<(), CodecError> {
        let id = self.packet_id()?;
        let options = SubOpts::new().set_qos(Qos::AtLeastOnce);
        let entries = filters
            .iter()
            .map(|filter| SubEntry::new(*filter, options))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|e| build_error("SUBSCRIBE", e))?;
        let subscribe = packet::Subscribe::builder()
            .packet_id(id)
            .entries(entries)
            .build()
            .map_err(|e| build_error("SUBSCRIBE", e))?;
        self.send(subscribe.into())
    }

    /// Publishes at QoS 1 and returns the packet id that the PUBACK will carry.
    pub(crate) fn publish(
        &mut self,
        topic: &str,
        body: &[u8],
        dup: bool,
    ) -> Result<u16, CodecError> {
        // Built before an id is taken: a topic that cannot be sent must not use one up.
        let builder = packet::Publish::builder()
            .topic_name(topic)
            .map_err(|e| build_error("PUBLISH", e))?
            .payload(body)
            .qos(Qos::AtLeastOnce)
            .dup(dup);
        let id = self.packet_id()?;
        let publish = builder
            .packet_id(id)
            .build()
            .map_err(|e| build_error("PUBLISH", e))?;
        self.send(publish.into())?;
        Ok(id)
    }

    pub(crate) fn puback(&mut self, id: u16) -> Result<(), CodecError> {
        let puback = packet::Puback::builder()
            .packet_id(id)
            .build()
            .map_err(|e| build_error("PUBACK", e))?;
        self.send(puback.into())
    }

    pub(crate) fn ping(&mut self) -> Result<(), CodecError> {
        let ping = packet::Pingreq::builder()
            .build()
            .map_err(|e| build_error("PINGREQ", e))?;
        self.send(ping.into())
    }

    pub(crate) fn disconnect(&mut self) -> Result<(), CodecError> {
        let disconnect = packet::Disconnect::builder()
            .build()
            .map_err(|e| build_error("DISCONNECT", e))?;
        self.send(disconnect.into())
    }

    /// Takes bytes from the hub. On an error the connection is unusable.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Result<Vec<Received>, CodecError> {
        let mut received = Vec::new();
        let mut cursor = Cursor::new(bytes);
        while (cursor.position() as usize) < bytes.len() {
            let events = self.connection.recv(&mut cursor);
            self.handle(events, Some(&mut received))?;
        }
        Ok(received)
    }

    fn packet_id(&mut self) -> Result<u16, CodecError> {
        self.connection
            .acquire_packet_id()
            .map_err(|e| build_error("packet id", e))
    }

    fn send(&mut self, packet: Packet) -> Result<(), CodecError> {
        let events = self.connection.send(packet);
        self.handle(events, None)
    }

    fn handle(
        &mut self,
        events: Vec<Event>,
        mut received: Option<&mut Vec<Received>>,
    ) -> Result<(), CodecError> {
        let mut failure = None;
        for event in events {
            match event {
                Event::RequestSendPacket { packet, .. } => {
                    self.output
                        .extend_from_slice(&packet.to_continuous_buffer());
                }
                Event::NotifyPacketReceived(packet) => {
                    if let Some(received) = received.as_deref_mut() {
                        received.push(translate(packet)?);
                    }
                }
                Event::NotifyError(error) => {
                    failure = Some(CodecError(format!(
                        "the hub broke the protocol ({error:?})"
                    )));
                }
                // Timers are the session's; a close is asked for by errors and by our DISCONNECT.
                Event::RequestClose
                | Event::NotifyPacketIdReleased(_)
                | Event::RequestTimerReset { .. }
                | Event::RequestTimerCancel(_) => {}
            }
        }
        failure.map_or(Ok(()), Err)
    }
}

fn translate(packet: Packet) -> Result<Received, CodecError> {
    Ok(match packet {
        Packet::V3_1_1Connack(p) => Received::Connack {
            code: match p.return_code() {
                ConnectReturnCode::Accepted => 0,
                ConnectReturnCode::UnacceptableProtocolVersion => 1,
                ConnectReturnCode::IdentifierRejected => 2,
                ConnectReturnCode::ServerUnavailable => 3,
                ConnectReturnCode::BadUserNameOrPassword => 4,
                ConnectReturnCode::NotAuthorized => 5,
            },
            session_present: p.session_present(),
        },
        Packet::V3_1_1Suback(p) => Received::Suback {
            granted: p.return_codes().iter().all(|code| code.is_success()),
        },
        Packet::V3_1_1Puback(p) => Received::Puback { id: p.packet_id() },
        Packet::V3_1_1Publish(p) => {
            if p.qos() == Qos::ExactlyOnce {
                return Err(CodecError(
                    "the hub sent QoS 2, which was not subscribed to".into(),
                ));
            }
            Received::Publish {
                topic: p.topic_name().to_owned(),
                body: Bytes::copy_from_slice(p.payload().as_slice()),
                ack: p.packet_id(),
            }
        }
        Packet::V3_1_1Pingresp(_) => Received::Pong,
        other => {
            let kind = other
                .to_continuous_buffer()
                .first()
                .map_or(0, |byte| byte >> 4);
            return Err(CodecError(format!("the hub sent a packet of type {kind}")));
        }
    })
}

fn build_error(what: &str, error: MqttError) -> CodecError {
    CodecError(format!("{what} cannot be built ({error:?})"))
}
