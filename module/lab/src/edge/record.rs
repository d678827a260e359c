//! The packet journal: every packet either way, and what happened to connections, in the order in
//! which it happened. Bounded; optionally also one JSON object a line in a file. Signatures of tokens
//! are cut out before anything is kept.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufWriter, Write as _};

use bytes::Bytes;
use jiff::Timestamp;

use super::mqtt::Packet;
use super::sas;

/// Which way a packet went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// From a module to edgeHub.
    In,
    /// From edgeHub to a module.
    Out,
    /// No packet: something happened to the connection.
    Event,
}

/// One packet or event.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PacketRecord {
    /// Wall clock.
    pub at: Timestamp,
    /// Number of the connection, from 1 in the order of TCP accepts.
    pub connection: u64,
    /// Client id, once CONNECT has told it.
    pub client: Option<String>,
    /// Which way.
    pub way: Way,
    /// Packet name in upper case as in the standard; for events `accepted`, `tls`, `closed`.
    pub kind: &'static str,
    /// Topic of a PUBLISH, filters of a SUBSCRIBE.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topic: Option<String>,
    /// Packet id, if the packet has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packet_id: Option<u16>,
    /// QoS of a PUBLISH.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qos: Option<u8>,
    /// DUP flag of a PUBLISH.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub dup: bool,
    /// Body of a PUBLISH.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "payload")]
    pub payload: Option<Bytes>,
    /// Return codes, user name, reason of a close: what else there is to say.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub detail: String,
}

impl PacketRecord {
    /// One line for a person.
    pub fn line(&self) -> String {
        let mut line = format!("#{} {:?} {}", self.connection, self.way, self.kind);
        if let Some(topic) = &self.topic {
            let _ = write!(line, " {topic}");
        }
        if let Some(payload) = &self.payload {
            let _ = write!(line, " ({} bytes)", payload.len());
        }
        if !self.detail.is_empty() {
            let _ = write!(line, " {}", self.detail);
        }
        line
    }
}

#[allow(clippy::ref_option, reason = "the shape that serde asks for")]
fn payload<S: serde::Serializer>(payload: &Option<Bytes>, out: S) -> Result<S::Ok, S::Error> {
    super::message::text_or_base64(payload.as_ref().unwrap_or(&Bytes::new()), out)
}

/// The journal.
#[derive(Debug)]
pub(crate) struct PacketLog {
    records: VecDeque<PacketRecord>,
    limit: usize,
    forgotten: u64,
    file: Option<BufWriter<File>>,
}

impl PacketLog {
    pub(crate) fn new(limit: usize, file: Option<File>) -> Self {
        let file = file.map(BufWriter::new);
        Self {
            records: VecDeque::new(),
            limit: limit.max(1),
            forgotten: 0,
            file,
        }
    }

    pub(crate) fn records(&self) -> impl DoubleEndedIterator<Item = &PacketRecord> {
        self.records.iter()
    }

    /// Records that were dropped from memory because of the limit.
    pub(crate) fn forgotten(&self) -> u64 {
        self.forgotten
    }

    pub(crate) fn event(
        &mut self,
        connection: u64,
        client: Option<&str>,
        kind: &'static str,
        detail: &str,
    ) {
        let mut record = blank(connection, client, Way::Event, kind);
        record.detail = detail.into();
        self.push(record);
    }

    pub(crate) fn packet(
        &mut self,
        connection: u64,
        client: Option<&str>,
        way: Way,
        packet: &Packet,
    ) {
        let mut record = blank(connection, client, way, name(packet));
        describe(packet, &mut record);
        self.push(record);
    }

    fn push(&mut self, record: PacketRecord) {
        tracing::trace!(target: "slice_lab::edge", "{}", record.line());
        if let Some(file) = &mut self.file {
            // A full disk must not change what the emulator does; the journal in memory is complete.
            let written = serde_json::to_writer(&mut *file, &record).map_err(std::io::Error::from);
            if written
                .and_then(|()| file.write_all(b"\n"))
                .and_then(|()| file.flush())
                .is_err()
            {
                tracing::warn!("the packet journal's file cannot be written; it ends here");
                self.file = None;
            }
        }
        if self.records.len() == self.limit {
            self.records.pop_front();
            self.forgotten += 1;
        }
        self.records.push_back(record);
    }
}

fn blank(connection: u64, client: Option<&str>, way: Way, kind: &'static str) -> PacketRecord {
    PacketRecord {
        at: Timestamp::now(),
        connection,
        client: client.map(str::to_owned),
        way,
        kind,
        topic: None,
        packet_id: None,
        qos: None,
        dup: false,
        payload: None,
        detail: String::new(),
    }
}

fn name(packet: &Packet) -> &'static str {
    match packet {
        Packet::Connect(_) => "CONNECT",
        Packet::ConnAck(..) => "CONNACK",
        Packet::Publish(_) => "PUBLISH",
        Packet::PubAck(_) => "PUBACK",
        Packet::PubRec(_) => "PUBREC",
        Packet::PubRel(_) => "PUBREL",
        Packet::PubComp(_) => "PUBCOMP",
        Packet::Subscribe(..) => "SUBSCRIBE",
        Packet::SubAck(..) => "SUBACK",
        Packet::Unsubscribe(..) => "UNSUBSCRIBE",
        Packet::UnsubAck(_) => "UNSUBACK",
        Packet::PingReq => "PINGREQ",
        Packet::PingResp => "PINGRESP",
        Packet::Disconnect => "DISCONNECT",
    }
}

fn describe(packet: &Packet, record: &mut PacketRecord) {
    match packet {
        Packet::Connect(connect) => {
            let password = connect.password.as_deref().map(String::from_utf8_lossy);
            let password = password.map_or_else(|| "no password".into(), |text| sas::redact(&text));
            record.detail = format!("{connect:?} {password}");
        }
        Packet::ConnAck(present, code) => {
            record.detail = format!("code {code}, session present {present}");
        }
        Packet::Publish(publish) => {
            record.topic = Some(publish.topic.clone());
            record.qos = Some(publish.qos);
            record.dup = publish.dup;
            record.packet_id = (publish.qos > 0).then_some(publish.packet_id);
            record.payload = Some(publish.payload.clone());
        }
        Packet::Subscribe(id, filters) => {
            record.packet_id = Some(*id);
            let filters: Vec<_> = filters
                .iter()
                .map(|(filter, qos)| format!("{filter}@{qos}"))
                .collect();
            record.topic = Some(filters.join(" "));
        }
        Packet::SubAck(id, codes) => {
            record.packet_id = Some(*id);
            record.detail = format!("granted {codes:?}");
        }
        Packet::Unsubscribe(id, filters) => {
            record.packet_id = Some(*id);
            record.topic = Some(filters.join(" "));
        }
        Packet::PubAck(id)
        | Packet::PubRec(id)
        | Packet::PubRel(id)
        | Packet::PubComp(id)
        | Packet::UnsubAck(id) => record.packet_id = Some(*id),
        Packet::PingReq | Packet::PingResp | Packet::Disconnect => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edge::mqtt::Connect;

    #[test]
    fn the_journal_is_bounded_and_counts_what_it_forgets() {
        let mut log = PacketLog::new(2, None);
        for packet in [Packet::PingReq, Packet::PubAck(3), Packet::Disconnect] {
            log.packet(1, None, Way::In, &packet);
        }
        let kinds: Vec<_> = log.records().map(|record| record.kind).collect();
        assert_eq!(kinds, ["PUBACK", "DISCONNECT"]);
        assert_eq!(log.forgotten(), 1);
    }

    #[test]
    fn a_password_is_kept_without_its_signature() {
        let password = Bytes::from_static(b"SharedAccessSignature sr=hub&sig=c2VjcmV0&se=17");
        let connect = Connect {
            level: 4,
            client_id: "d/m".into(),
            clean: true,
            keep_alive: 60,
            username: Some("hub/d/m/?api-version=1".into()),
            password: Some(password),
            will: None,
        };
        let mut log = PacketLog::new(10, None);
        log.packet(1, Some("d/m"), Way::In, &Packet::Connect(Box::new(connect)));
        let line = serde_json::to_string(log.records().next().unwrap()).unwrap();
        assert!(line.contains("sr=hub") && line.contains("se=17"), "{line}");
        assert!(!line.contains("c2VjcmV0"), "{line}");
    }
}
