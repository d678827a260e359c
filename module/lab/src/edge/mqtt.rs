//! MQTT 3.1.1 packets, written for the emulator alone: the client under test uses another codec, so
//! that a misreading of the standard is not shared. Strict where edgeHub's decoder is strict. Knows
//! bytes only: no sockets, no sessions.

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// One MQTT control packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Packet {
    /// Client asks for a session.
    Connect(Box<Connect>),
    /// Server's answer: session present, return code.
    ConnAck(bool, u8),
    /// A message, either way.
    Publish(Publish),
    /// Receipt of a QoS 1 message.
    PubAck(u16),
    /// Second step of QoS 2; edgeHub never uses it.
    PubRec(u16),
    /// Third step of QoS 2.
    PubRel(u16),
    /// Last step of QoS 2.
    PubComp(u16),
    /// Packet id and filters with the QoS asked for.
    Subscribe(u16, Vec<(String, u8)>),
    /// Packet id and granted QoS per filter.
    SubAck(u16, Vec<u8>),
    /// Packet id and filters.
    Unsubscribe(u16, Vec<String>),
    /// Packet id.
    UnsubAck(u16),
    /// Client is alive.
    PingReq,
    /// So is the server.
    PingResp,
    /// Client leaves on purpose.
    Disconnect,
}

/// Fields of CONNECT.
#[derive(Clone, PartialEq, Eq)]
pub struct Connect {
    /// Protocol level; 4 is MQTT 3.1.1.
    pub level: u8,
    /// Client id.
    pub client_id: String,
    /// Clean session flag.
    pub clean: bool,
    /// Keep-alive in seconds.
    pub keep_alive: u16,
    /// User name.
    pub username: Option<String>,
    /// Password.
    pub password: Option<Bytes>,
    /// Will topic, QoS, retain flag and payload.
    pub will: Option<Publish>,
}

impl std::fmt::Debug for Connect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            level,
            client_id,
            clean,
            keep_alive,
            username,
            ..
        } = self;
        write!(
            f,
            "Connect({client_id}, level {level}, clean {clean}, {keep_alive} s, {username:?})"
        )
    }
}

/// Fields of PUBLISH.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Publish {
    /// Topic name.
    pub topic: String,
    /// 0, 1 or 2.
    pub qos: u8,
    /// Sent before.
    pub dup: bool,
    /// Retain flag.
    pub retain: bool,
    /// Packet id; 0 for QoS 0.
    pub packet_id: u16,
    /// Body.
    pub payload: Bytes,
}

/// Why bytes are no packet. Every one of them makes edgeHub close the connection without an answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not an MQTT packet: {0}")]
pub struct Malformed(pub &'static str);

/// Takes one packet off the front of `buf`; `None` means that more bytes are needed.
///
/// # Errors
/// When the bytes can never become a packet, or the whole packet is longer than `limit` bytes.
pub fn decode(buf: &mut BytesMut, limit: usize) -> Result<Option<Packet>, Malformed> {
    let Some((header_len, remaining)) = fixed_header(buf)? else {
        return Ok(None);
    };
    let total = header_len + remaining;
    if total > limit {
        return Err(Malformed("longer than the largest packet accepted"));
    }
    if buf.len() < total {
        return Ok(None);
    }
    let mut packet = buf.split_to(total).freeze();
    let first = packet[0];
    packet.advance(header_len);
    body(first >> 4, first & 0x0f, Reader(packet)).map(Some)
}

/// The bytes of a packet.
pub fn encode(packet: &Packet) -> Bytes {
    let mut body = BytesMut::new();
    let first = match packet {
        Packet::Connect(connect) => put_connect(&mut body, connect),
        Packet::ConnAck(present, code) => {
            body.put_slice(&[u8::from(*present), *code]);
            0x20
        }
        Packet::Publish(publish) => put_publish(&mut body, publish),
        Packet::PubAck(id) => put_id(&mut body, 0x40, *id),
        Packet::PubRec(id) => put_id(&mut body, 0x50, *id),
        Packet::PubRel(id) => put_id(&mut body, 0x62, *id),
        Packet::PubComp(id) => put_id(&mut body, 0x70, *id),
        Packet::Subscribe(id, filters) => {
            let first = put_id(&mut body, 0x82, *id);
            for (filter, qos) in filters {
                put_text(&mut body, filter.as_bytes());
                body.put_u8(*qos);
            }
            first
        }
        Packet::SubAck(id, codes) => {
            let first = put_id(&mut body, 0x90, *id);
            body.put_slice(codes);
            first
        }
        Packet::Unsubscribe(id, filters) => {
            let first = put_id(&mut body, 0xa2, *id);
            filters
                .iter()
                .for_each(|filter| put_text(&mut body, filter.as_bytes()));
            first
        }
        Packet::UnsubAck(id) => put_id(&mut body, 0xb0, *id),
        Packet::PingReq => 0xc0,
        Packet::PingResp => 0xd0,
        Packet::Disconnect => 0xe0,
    };
    let mut out = BytesMut::with_capacity(body.len() + 5);
    out.put_u8(first);
    let mut rest = body.len();
    loop {
        let low = (rest % 128) as u8;
        rest /= 128;
        out.put_u8(if rest > 0 { low | 0x80 } else { low });
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(&body);
    out.freeze()
}

/// Length of the fixed header and the remaining length, once both are there.
fn fixed_header(buf: &[u8]) -> Result<Option<(usize, usize)>, Malformed> {
    let mut value = 0usize;
    for index in 0..4 {
        let Some(byte) = buf.get(1 + index) else {
            return Ok(None);
        };
        value |= usize::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Ok(Some((2 + index, value)));
        }
    }
    Err(Malformed("remaining length of more than four bytes"))
}

fn body(kind: u8, flags: u8, mut reader: Reader) -> Result<Packet, Malformed> {
    let expected = match kind {
        3 => flags,
        6 | 8 | 10 => 2,
        _ => 0,
    };
    if flags != expected {
        return Err(Malformed("reserved flags are set"));
    }
    let packet = match kind {
        1 => Packet::Connect(Box::new(connect(&mut reader)?)),
        2 => Packet::ConnAck(reader.u8()? & 1 == 1, reader.u8()?),
        3 => return publish(flags, reader).map(Packet::Publish),
        4 => Packet::PubAck(reader.id()?),
        5 => Packet::PubRec(reader.id()?),
        6 => Packet::PubRel(reader.id()?),
        7 => Packet::PubComp(reader.id()?),
        8 => Packet::Subscribe(
            reader.id()?,
            reader.list(|r| {
                let filter = r.text()?;
                let qos = r.u8()?;
                if qos > 2 {
                    Err(Malformed("QoS above 2"))
                } else {
                    Ok((filter, qos))
                }
            })?,
        ),
        9 => Packet::SubAck(reader.id()?, reader.list(Reader::u8)?),
        10 => Packet::Unsubscribe(reader.id()?, reader.list(Reader::text)?),
        11 => Packet::UnsubAck(reader.id()?),
        12 => Packet::PingReq,
        13 => Packet::PingResp,
        14 => Packet::Disconnect,
        _ => return Err(Malformed("unknown packet type")),
    };
    if reader.0.has_remaining() {
        Err(Malformed("bytes left over"))
    } else {
        Ok(packet)
    }
}

fn connect(reader: &mut Reader) -> Result<Connect, Malformed> {
    if reader.text()? != "MQTT" {
        return Err(Malformed("another protocol"));
    }
    let level = reader.u8()?;
    let flags = reader.u8()?;
    let keep_alive = reader.u16()?;
    if level != 4 {
        // The rest may be laid out otherwise; the level alone decides the answer.
        reader.0.clear();
        return Ok(Connect {
            level,
            client_id: String::new(),
            clean: true,
            keep_alive,
            username: None,
            password: None,
            will: None,
        });
    }
    let (has_will, will_qos) = (flags & 0x04 != 0, (flags >> 3) & 3);
    if flags & 1 != 0 || will_qos == 3 || (!has_will && flags & 0x38 != 0) || flags & 0xc0 == 0x40 {
        return Err(Malformed("connect flags contradict each other"));
    }
    let client_id = reader.text()?;
    let will = if has_will {
        let topic = topic_name(reader)?;
        let payload = reader.binary()?;
        Some(Publish {
            topic,
            qos: will_qos,
            dup: false,
            retain: flags & 0x20 != 0,
            packet_id: 0,
            payload,
        })
    } else {
        None
    };
    let username = if flags & 0x80 != 0 {
        Some(reader.text()?)
    } else {
        None
    };
    let password = if flags & 0x40 != 0 {
        Some(reader.binary()?)
    } else {
        None
    };
    let clean = flags & 2 != 0;
    Ok(Connect {
        level,
        client_id,
        clean,
        keep_alive,
        username,
        password,
        will,
    })
}

fn publish(flags: u8, mut reader: Reader) -> Result<Publish, Malformed> {
    let qos = (flags >> 1) & 3;
    if qos == 3 {
        return Err(Malformed("QoS 3"));
    }
    let topic = topic_name(&mut reader)?;
    let packet_id = if qos > 0 { reader.id()? } else { 0 };
    Ok(Publish {
        topic,
        qos,
        dup: flags & 8 != 0,
        retain: flags & 1 != 0,
        packet_id,
        payload: reader.0,
    })
}

fn topic_name(reader: &mut Reader) -> Result<String, Malformed> {
    let topic = reader.text()?;
    if topic.is_empty() || topic.contains(['#', '+', '\0']) {
        return Err(Malformed("topic name is empty or has a wildcard"));
    }
    Ok(topic)
}

struct Reader(Bytes);

impl Reader {
    fn u8(&mut self) -> Result<u8, Malformed> {
        self.0.try_get_u8().map_err(|_| Malformed("cut short"))
    }

    fn u16(&mut self) -> Result<u16, Malformed> {
        self.0.try_get_u16().map_err(|_| Malformed("cut short"))
    }

    fn id(&mut self) -> Result<u16, Malformed> {
        match self.u16()? {
            0 => Err(Malformed("packet id 0")),
            id => Ok(id),
        }
    }

    fn binary(&mut self) -> Result<Bytes, Malformed> {
        let length = usize::from(self.u16()?);
        if self.0.len() < length {
            Err(Malformed("cut short"))
        } else {
            Ok(self.0.split_to(length))
        }
    }

    fn text(&mut self) -> Result<String, Malformed> {
        String::from_utf8(self.binary()?.to_vec()).map_err(|_| Malformed("text is not UTF-8"))
    }

    fn list<T>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let mut items = Vec::new();
        while self.0.has_remaining() {
            items.push(item(self)?);
        }
        if items.is_empty() {
            Err(Malformed("empty list"))
        } else {
            Ok(items)
        }
    }
}

fn put_id(body: &mut BytesMut, first: u8, id: u16) -> u8 {
    body.put_u16(id);
    first
}

/// Text and binary fields carry a length of 16 bits; the emulator never makes longer ones.
fn put_text(body: &mut BytesMut, text: &[u8]) {
    let length = u16::try_from(text.len()).unwrap_or(u16::MAX);
    body.put_u16(length);
    body.put_slice(&text[..usize::from(length)]);
}

fn put_publish(body: &mut BytesMut, publish: &Publish) -> u8 {
    put_text(body, publish.topic.as_bytes());
    if publish.qos > 0 {
        body.put_u16(publish.packet_id);
    }
    body.put_slice(&publish.payload);
    0x30 | (u8::from(publish.dup) << 3) | (publish.qos << 1) | u8::from(publish.retain)
}

fn put_connect(body: &mut BytesMut, connect: &Connect) -> u8 {
    put_text(body, b"MQTT");
    body.put_u8(connect.level);
    let mut flags = u8::from(connect.clean) << 1;
    if let Some(will) = &connect.will {
        flags |= 0x04 | (will.qos << 3) | (u8::from(will.retain) << 5);
    }
    flags |= u8::from(connect.username.is_some()) << 7 | u8::from(connect.password.is_some()) << 6;
    body.put_u8(flags);
    body.put_u16(connect.keep_alive);
    put_text(body, connect.client_id.as_bytes());
    if let Some(will) = &connect.will {
        put_text(body, will.topic.as_bytes());
        put_text(body, &will.payload);
    }
    if let Some(username) = &connect.username {
        put_text(body, username.as_bytes());
    }
    if let Some(password) = &connect.password {
        put_text(body, password);
    }
    0x10
}

#[cfg(test)]
#[path = "mqtt_tests.rs"]
mod tests;
