//! One MQTT connection from the TLS handshake to its end: reads packets, hands them to the hub, and
//! writes what the session queues. Decides nothing about twins, methods or messages.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::hub::Peer;
use super::mqtt::{self, Connect, Packet, Publish};
use super::record::Way;
use super::session::Admitted;
use super::state::{Closer, OUTBOX, Outgoing};
use super::world::World;

/// Largest packet that edgeHub reads.
const MAX_PACKET: usize = 262_144;
/// Unacknowledged publishes after which edgeHub stops reading.
const MAX_UNACKED: usize = 16;
/// Longest time without a packet, whatever the keep-alive says.
const MAX_IDLE: Duration = Duration::from_secs(600);
/// How long a refused client may take to close its side.
const LINGER: Duration = Duration::from_secs(1);

type Stream = TlsStream<TcpStream>;

/// Serves a connection until it ends.
pub(crate) async fn serve(world: Arc<World>, tcp: TcpStream, number: u64) {
    let limit = world.options.connect_timeout;
    let stream = match accept_tls(&world, tcp, limit).await {
        Ok(stream) => stream,
        Err(reason) => {
            world.change(|state| {
                state.counters.tls_failed += 1;
                state
                    .packets
                    .event(number, None, "closed", &format!("TLS: {reason}"));
            });
            return;
        }
    };
    let handshake = Instant::now();
    let version = stream.get_ref().1.protocol_version();
    world.change(|state| {
        state
            .packets
            .event(number, None, "tls", &format!("{version:?}"))
    });
    let mut reader = Reader {
        half: stream,
        buffer: BytesMut::new(),
    };
    let first = tokio::time::timeout(limit, reader.next()).await;
    let connect = match first {
        Err(_) => return note(&world, number, "no CONNECT in time"),
        Ok(Err(reason)) => return note(&world, number, &reason),
        Ok(Ok(Packet::Connect(connect))) => *connect,
        Ok(Ok(_)) => return note(&world, number, "the first packet is not CONNECT"),
    };
    let client = connect.client_id.clone();
    let packet = Packet::Connect(Box::new(connect.clone()));
    world.change(|state| {
        state
            .packets
            .packet(number, Some(&client), Way::In, &packet)
    });
    if let Some((admitted, reader)) = answer(&world, number, &connect, reader, handshake).await {
        run(world, admitted, connect, reader).await;
    }
}

async fn accept_tls(world: &World, tcp: TcpStream, limit: Duration) -> Result<Stream, String> {
    let fault = world.look(|state| state.faults.certificate);
    let config = world
        .pki()
        .server_config(fault)
        .map_err(|error| error.to_string())?;
    let accept = TlsAcceptor::from(config).accept(tcp);
    match tokio::time::timeout(limit, accept).await {
        Err(_) => Err("no handshake in time".into()),
        Ok(result) => result.map_err(|error| error.to_string()),
    }
}

fn note(world: &World, number: u64, reason: &str) {
    world.change(|state| state.packets.event(number, None, "closed", reason));
}

/// Applies the CONNACK faults and judges the client. `None`: the connection has ended.
async fn answer(
    world: &Arc<World>,
    number: u64,
    connect: &Connect,
    mut reader: Reader<Stream>,
    handshake: Instant,
) -> Option<(Admitted, Reader<Stream>)> {
    let lost = world.look(|state| state.faults.lose_connect_within);
    if lost.is_some_and(|within| handshake.elapsed() < within) {
        world.change(|state| {
            state.packets.event(
                number,
                Some(&connect.client_id),
                "lost",
                "CONNECT came too early",
            );
        });
        wait_for_end(world, number, &mut reader).await;
        return None;
    }
    let fault = world.change(|state| state.faults.take_connack());
    if let Some(delay) = fault.delay {
        tokio::time::sleep(delay).await;
    }
    if fault.never {
        wait_for_end(world, number, &mut reader).await;
        return None;
    }
    let verdict = match fault.code.filter(|code| *code != 0) {
        Some(code) => Err((code, "the test asked for it".to_owned())),
        None => world.admit(number, connect),
    };
    let (code, reason) = match verdict {
        Ok(admitted) => return Some((admitted, reader)),
        Err(refusal) => refusal,
    };
    let packet = Packet::ConnAck(false, code);
    world.change(|state| {
        state.counters.refused += 1;
        state
            .packets
            .packet(number, Some(&connect.client_id), Way::Out, &packet);
        state
            .packets
            .event(number, Some(&connect.client_id), "closed", &reason);
    });
    // Shut down in order, so that the answer is not lost in a reset.
    let stream = &mut reader.half;
    if stream.write_all(&mqtt::encode(&packet)).await.is_ok() && stream.shutdown().await.is_ok() {
        let _ = tokio::time::timeout(LINGER, async { while reader.next().await.is_ok() {} }).await;
    }
    None
}

/// Keeps a connection open without a word until the client leaves.
async fn wait_for_end(world: &World, number: u64, reader: &mut Reader<Stream>) {
    let reason = loop {
        if let Err(reason) = reader.next().await {
            break reason;
        }
    };
    note(world, number, &reason);
}

async fn run(world: Arc<World>, admitted: Admitted, connect: Connect, reader: Reader<Stream>) {
    let (outbox, queue) = mpsc::channel(OUTBOX);
    let closer = Closer::default();
    let peer = admitted.peer.clone();
    let (read, write) = tokio::io::split(reader.half);
    world.open_session(&admitted, connect.clean, &outbox, &closer);
    let reader = Reader {
        half: read,
        buffer: reader.buffer,
    };
    let link = Link {
        peer: peer.clone(),
        keep_alive: connect.keep_alive,
        outbox,
        closer: closer.clone(),
    };
    let writer = write_all(
        Arc::clone(&world),
        peer.clone(),
        write,
        queue,
        closer.clone(),
    );
    let (reason, by_client) = tokio::select! {
        end = link.read_all(&world, reader) => end,
        // The writer ends only through the closer, so the reader above ends as well.
        reason = async { writer.await; closer.closed().await } => (reason, false),
    };
    if let (false, Some(will)) = (by_client, connect.will) {
        leave_will(&world, &peer, will);
    }
    world.close_session(&peer, &reason);
}

/// edgeHub sends the will of a client that left without DISCONNECT as a message of its own type.
fn leave_will(world: &Arc<World>, peer: &Peer, mut will: Publish) {
    will.topic = will.topic.trim_end_matches('/').to_owned();
    let bag_follows = !will.topic.ends_with("/messages/events");
    will.topic.push_str(if bag_follows { "&" } else { "/" });
    will.topic.push_str("messageType=Will");
    let _ = world.publish(peer, will);
}

struct Link {
    peer: Peer,
    keep_alive: u16,
    outbox: mpsc::Sender<Outgoing>,
    closer: Closer,
}

impl Link {
    /// Reads until the end; the reason, and whether the client said goodbye.
    async fn read_all(
        self,
        world: &Arc<World>,
        mut reader: Reader<ReadHalf<Stream>>,
    ) -> (String, bool) {
        let mut changes = world.changes();
        let mut unacked: Vec<u16> = Vec::new();
        let idle = match self.keep_alive {
            0 => MAX_IDLE,
            seconds => (Duration::from_secs(u64::from(seconds)) * 3 / 2).min(MAX_IDLE),
        };
        let drop_after = world.look(|state| state.faults.drop_after);
        let end = tokio::time::sleep(drop_after.unwrap_or(Duration::MAX / 4));
        tokio::pin!(end);
        let mut last = tokio::time::Instant::now();
        loop {
            changes.borrow_and_update();
            let (frozen, withhold) = world.look(|s| (s.faults.frozen, s.faults.withhold_puback));
            if !withhold && !frozen {
                for id in unacked.drain(..) {
                    self.send(Packet::PubAck(id));
                }
            }
            let stopped = frozen || unacked.len() >= MAX_UNACKED;
            if frozen {
                last = tokio::time::Instant::now();
            }
            tokio::select! {
                biased;
                reason = self.closer.closed() => return (reason, false),
                () = &mut end, if drop_after.is_some() => {
                    return ("the test asked for a drop".into(), false);
                }
                () = tokio::time::sleep_until(last + idle), if !frozen => {
                    return (format!("no packet for {idle:?}"), false);
                }
                packet = reader.next(), if !stopped => {
                    last = tokio::time::Instant::now();
                    let packet = match packet {
                        Ok(packet) => packet,
                        Err(reason) => return (reason, false),
                    };
                    world.change(|state| {
                        let peer = &self.peer;
                        state.packets.packet(peer.connection, Some(&peer.client), Way::In, &packet);
                    });
                    if packet == Packet::Disconnect {
                        return ("the client said goodbye".into(), true);
                    }
                    match self.handle(world, packet) {
                        Ok(id) => unacked.extend(id),
                        Err(reason) => return (reason.into(), false),
                    }
                }
                _ = changes.changed() => {}
            }
        }
    }

    /// Works one packet off; the packet id of a publish that is to be acknowledged.
    fn handle(&self, world: &Arc<World>, packet: Packet) -> Result<Option<u16>, &'static str> {
        match packet {
            Packet::Publish(publish) => {
                let (qos, id) = (publish.qos, publish.packet_id);
                world.publish(&self.peer, publish)?;
                match qos {
                    0 => Ok(None),
                    1 => Ok(Some(id)),
                    _ => Err("QoS 2 is not supported"),
                }
            }
            Packet::PubAck(_) => {
                world.acknowledged(&self.peer);
                Ok(None)
            }
            Packet::Subscribe(id, filters) => {
                world.subscribe(&self.peer, id, filters);
                Ok(None)
            }
            Packet::Unsubscribe(id, filters) => {
                world.unsubscribe(&self.peer, id, &filters);
                Ok(None)
            }
            Packet::PingReq => {
                self.send(Packet::PingResp);
                Ok(None)
            }
            Packet::Connect(_) => Err("a second CONNECT"),
            _ => Err("a packet that only a server sends, or QoS 2"),
        }
    }

    fn send(&self, packet: Packet) {
        // The outbox holds far more than a client can have outstanding; should it be full, the
        // client reads nothing and its keep-alive ends the connection.
        let _ = self.outbox.try_send(Outgoing::Packet(packet));
    }
}

/// Writes what is queued until the connection ends.
async fn write_all(
    world: Arc<World>,
    peer: Peer,
    mut half: WriteHalf<Stream>,
    mut queue: mpsc::Receiver<Outgoing>,
    closer: Closer,
) {
    let mut changes = world.changes();
    while let Some(outgoing) = queue.recv().await {
        while world.look(|state| state.faults.frozen) {
            if changes.changed().await.is_err() {
                return;
            }
        }
        let (packet, whole) = match &outgoing {
            Outgoing::Packet(packet) => (packet, true),
            Outgoing::Cut(packet) => (packet, false),
        };
        world.change(|state| {
            state
                .packets
                .packet(peer.connection, Some(&peer.client), Way::Out, packet);
        });
        let bytes = mqtt::encode(packet);
        let length = if whole { bytes.len() } else { bytes.len() / 2 };
        let written = async {
            half.write_all(&bytes[..length]).await?;
            half.flush().await
        };
        if let Err(error) = written.await {
            closer.close(&format!("cannot write: {error}"));
            return;
        }
        if !whole {
            closer.close("cut in the middle of a packet");
            return;
        }
    }
    closer.close("the outbox is gone");
}

/// Takes packets off a stream. Safe to cancel: bytes read so far stay in the buffer.
struct Reader<S> {
    half: S,
    buffer: BytesMut,
}

impl<S: tokio::io::AsyncRead + Unpin> Reader<S> {
    async fn next(&mut self) -> Result<Packet, String> {
        loop {
            match mqtt::decode(&mut self.buffer, MAX_PACKET) {
                Ok(Some(packet)) => return Ok(packet),
                Ok(None) => {}
                Err(malformed) => return Err(malformed.to_string()),
            }
            match self.half.read_buf(&mut self.buffer).await {
                Ok(0) => return Err("the client closed the connection".into()),
                Ok(_) => {}
                Err(error) => return Err(format!("cannot read: {error}")),
            }
        }
    }
}
