//! The hub's side as a script, and a client on a stopped clock. The MQTT codec here is written by
//! hand, byte by byte, so that a fault of the client's codec is not repeated.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use crate::config::{Credentials, Gateway, SharedKey};
use crate::event::DisconnectReason;
use crate::secret::Secret;
use crate::session::credentials::{NoCredentials, Prepared};
use crate::session::end::End;
use crate::session::outside::Outside;
use crate::{Client, Config, Event, Identity};

/// Virtual time; a test that waits longer than this for anything has failed.
const PATIENCE: Duration = Duration::from_secs(3_600);

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Packet {
    Connect {
        client_id: String,
        user: String,
        password: String,
        clean: bool,
        keep_alive: u16,
    },
    Subscribe {
        id: u16,
        filters: Vec<(String, u8)>,
    },
    Publish {
        topic: String,
        body: String,
        id: u16,
        dup: bool,
    },
    Puback {
        id: u16,
    },
    Ping,
    Disconnect,
}

/// One accepted connection.
pub(super) struct Peer {
    stream: DuplexStream,
    pub(super) accepted_at: Instant,
}

fn text(bytes: &mut &[u8]) -> String {
    let length = usize::from(number(bytes));
    let (head, tail) = bytes.split_at(length);
    *bytes = tail;
    String::from_utf8(head.to_vec()).unwrap()
}

fn number(bytes: &mut &[u8]) -> u16 {
    let value = u16::from_be_bytes([bytes[0], bytes[1]]);
    *bytes = &bytes[2..];
    value
}

pub(super) fn publish(topic: &str, body: &str, id: Option<u16>) -> Vec<u8> {
    let mut rest = (topic.len() as u16).to_be_bytes().to_vec();
    rest.extend(topic.as_bytes());
    if let Some(id) = id {
        rest.extend(id.to_be_bytes());
    }
    rest.extend(body.as_bytes());
    let mut packet = vec![if id.is_some() { 0x32 } else { 0x30 }];
    let mut length = rest.len();
    loop {
        let more = length / 128 > 0;
        packet.push((length % 128) as u8 | if more { 0x80 } else { 0 });
        length /= 128;
        if !more {
            break;
        }
    }
    packet.extend(rest);
    packet
}

impl Peer {
    pub(super) async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    /// The next packet, or `None` when the client has closed the connection.
    pub(super) async fn try_next(&mut self) -> Option<Packet> {
        timeout(PATIENCE, self.read_packet())
            .await
            .expect("nothing came from the client")
    }

    async fn read_packet(&mut self) -> Option<Packet> {
        let first = self.stream.read_u8().await.ok()?;
        let (mut length, mut shift) = (0_usize, 0);
        loop {
            let byte = self.stream.read_u8().await.ok()?;
            length |= usize::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                break;
            }
        }
        let mut rest = vec![0; length];
        self.stream.read_exact(&mut rest).await.ok()?;
        let mut bytes = rest.as_slice();
        Some(match first >> 4 {
            1 => {
                assert_eq!(text(&mut bytes), "MQTT");
                assert_eq!(bytes[0], 4, "protocol level");
                let flags = bytes[1];
                assert_eq!(
                    flags & 0b1111_1101,
                    0b1100_0000,
                    "user name and password, no will"
                );
                bytes = &bytes[2..];
                let keep_alive = number(&mut bytes);
                Packet::Connect {
                    client_id: text(&mut bytes),
                    user: text(&mut bytes),
                    password: text(&mut bytes),
                    clean: flags & 2 != 0,
                    keep_alive,
                }
            }
            3 => {
                assert_eq!(first >> 1 & 3, 1, "everything goes out at QoS 1");
                let topic = text(&mut bytes);
                let id = number(&mut bytes);
                let body = String::from_utf8(bytes.to_vec()).unwrap();
                Packet::Publish {
                    topic,
                    body,
                    id,
                    dup: first & 8 != 0,
                }
            }
            4 => Packet::Puback {
                id: number(&mut bytes),
            },
            8 => {
                let id = number(&mut bytes);
                let mut filters = Vec::new();
                while !bytes.is_empty() {
                    let filter = text(&mut bytes);
                    filters.push((filter, bytes[0]));
                    bytes = &bytes[1..];
                }
                Packet::Subscribe { id, filters }
            }
            12 => Packet::Ping,
            14 => Packet::Disconnect,
            other => panic!("the client sent a packet of type {other}"),
        })
    }

    pub(super) async fn next(&mut self) -> Packet {
        self.try_next()
            .await
            .expect("the client closed the connection")
    }

    /// Accepts CONNECT and SUBSCRIBE; returns both.
    pub(super) async fn accept(&mut self) -> (Packet, Packet) {
        let connect = self.next().await;
        assert!(matches!(connect, Packet::Connect { .. }), "{connect:?}");
        self.send(&[0x20, 2, 0, 0]).await;
        let subscribe = self.next().await;
        let Packet::Subscribe { id, filters } = &subscribe else {
            panic!("{subscribe:?}")
        };
        let [high, low] = id.to_be_bytes();
        let mut suback = vec![0x90, 2 + filters.len() as u8, high, low];
        suback.extend(filters.iter().map(|(_, qos)| *qos));
        self.send(&suback).await;
        (connect, subscribe)
    }

    pub(super) async fn puback(&mut self, id: u16) {
        let [high, low] = id.to_be_bytes();
        self.send(&[0x40, 2, high, low]).await;
    }

    /// The next publish whose topic starts with `prefix`; it is acknowledged if `ack`. Pings are
    /// answered and other publishes acknowledged on the way.
    pub(super) async fn expect_publish(
        &mut self,
        prefix: &str,
        ack: bool,
    ) -> (String, String, bool) {
        loop {
            match self.next().await {
                Packet::Publish {
                    topic,
                    body,
                    id,
                    dup,
                } => {
                    let wanted = topic.starts_with(prefix);
                    if !wanted || ack {
                        self.puback(id).await;
                    }
                    if wanted {
                        return (topic, body, dup);
                    }
                }
                Packet::Ping => self.send(&[0xd0, 0]).await,
                other => panic!("a publish to {prefix} was expected, not {other:?}"),
            }
        }
    }

    /// Answers the next twin request of a kind (`GET` or `PATCH`); returns its body.
    pub(super) async fn answer(&mut self, verb: &str, status: u16, body: &Value) -> Value {
        let (topic, sent, _) = self
            .expect_publish(&format!("$iothub/twin/{verb}/"), true)
            .await;
        let (_, id) = topic.split_once("$rid=").unwrap();
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        self.send(&publish(
            &format!("$iothub/twin/res/{status}/?$rid={id}"),
            &body,
            None,
        ))
        .await;
        serde_json::from_str(&sent).unwrap_or(Value::Null)
    }

    /// A link that is up: accepted, and its GET answered.
    pub(super) async fn bring_up(&mut self, desired: Value, reported: Value) {
        self.accept().await;
        self.answer(
            "GET",
            200,
            &json!({"desired": desired, "reported": reported}),
        )
        .await;
    }

    /// Serves pings for a while; any other packet ends it.
    pub(super) async fn idle(&mut self, for_how_long: Duration) -> Option<Packet> {
        let until = Instant::now() + for_how_long;
        loop {
            match tokio::time::timeout_at(until, self.read_packet()).await {
                Err(_) => return None,
                Ok(Some(Packet::Ping)) => self.send(&[0xd0, 0]).await,
                Ok(other) => return other,
            }
        }
    }
}

/// The world of a client in a test.
pub(super) struct Script {
    dials: mpsc::UnboundedSender<Peer>,
    pub(super) state: Arc<ScriptState>,
}

#[derive(Default)]
pub(super) struct ScriptState {
    /// Tokens handed out so far.
    pub(super) signed: AtomicU64,
    /// When set, there are no credentials; true: because the workload socket refuses.
    pub(super) no_credentials: Mutex<Option<bool>>,
    /// When set, nobody listens.
    pub(super) refuse: Mutex<bool>,
    pub(super) attempts: Mutex<Vec<Instant>>,
    pub(super) renew_after: Mutex<Option<Duration>>,
}

impl Outside for Script {
    type Stream = DuplexStream;

    async fn prepare(&self) -> Result<Prepared, NoCredentials> {
        if let Some(refusal) = *self.state.no_credentials.lock().unwrap() {
            let end = End::new(DisconnectReason::Workload, "no workload API");
            return Err(NoCredentials { end, refusal });
        }
        let number = self.state.signed.fetch_add(1, Ordering::Relaxed);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth();
        let after = self
            .state
            .renew_after
            .lock()
            .unwrap()
            .unwrap_or(PATIENCE * 24);
        Ok(Prepared {
            password: Secret::new(format!("token {number}")),
            tls: Arc::new(tls),
            renew_at: (Instant::now() + after).into_std(),
        })
    }

    async fn dial(&self, _: &Prepared) -> Result<DuplexStream, End> {
        self.state.attempts.lock().unwrap().push(Instant::now());
        if *self.state.refuse.lock().unwrap() {
            return Err(End::new(DisconnectReason::Network, "connection refused"));
        }
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let peer = Peer {
            stream: theirs,
            accepted_at: Instant::now(),
        };
        self.dials
            .send(peer)
            .map_err(|_| End::new(DisconnectReason::Network, "test over"))?;
        Ok(ours)
    }
}

/// A client with a scripted world.
pub(super) struct Rig {
    pub(super) client: Client,
    pub(super) peers: mpsc::UnboundedReceiver<Peer>,
    pub(super) state: Arc<ScriptState>,
}

/// As [`config`], with no ping for the sake of an outstanding answer.
pub(super) fn unsuspicious() -> Config {
    let mut config = config();
    config.timings.ping_when_waiting = Duration::from_secs(3600);
    config
}

pub(super) fn config() -> Config {
    Config::new(
        Identity {
            hub_host: "h.net".into(),
            device_id: "edge1".into(),
            module_id: "lamp".into(),
        },
        Gateway {
            host: "edge-7".into(),
            port: 1,
            connect_host: None,
        },
        Credentials::SharedKey {
            key: SharedKey(b"k".to_vec()),
            trusted_roots: "/none".into(),
        },
    )
    .unwrap()
}

impl Rig {
    pub(super) fn new(config: Config) -> Self {
        let (dials, peers) = mpsc::unbounded_channel();
        let state = Arc::new(ScriptState::default());
        let script = Script {
            dials,
            state: Arc::clone(&state),
        };
        Self {
            client: Client::spawn_in(script, config),
            peers,
            state,
        }
    }

    pub(super) async fn peer(&mut self) -> Peer {
        timeout(PATIENCE, self.peers.recv())
            .await
            .expect("no connection came")
            .unwrap()
    }

    pub(super) async fn event(&mut self) -> Event {
        timeout(PATIENCE, self.client.events.recv())
            .await
            .expect("no event came")
            .unwrap()
    }

    /// The next event that `pick` takes; those before it are dropped.
    pub(super) async fn event_of<T>(&mut self, mut pick: impl FnMut(Event) -> Option<T>) -> T {
        loop {
            if let Some(found) = pick(self.event().await) {
                return found;
            }
        }
    }

    /// Why the connection ended that is the next to end.
    pub(super) async fn disconnected(&mut self) -> DisconnectReason {
        self.event_of(|e| match e {
            Event::Disconnected { reason, .. } => Some(reason),
            _ => None,
        })
        .await
    }

    pub(super) async fn status(&mut self, mut wanted: impl FnMut(&crate::Status) -> bool) {
        let mut status = self.client.handle.watch_status();
        timeout(PATIENCE, status.wait_for(|s| wanted(s)))
            .await
            .expect("no such status")
            .unwrap();
    }
}
