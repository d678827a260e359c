//! A module at the level of packets, for tests of the emulator: it does what a test says and nothing
//! by itself. Uses the emulator's codec; that the codec is right is shown by the foreign SDKs.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::{Bytes, BytesMut};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use slice_lab::edge::Edge;
use slice_lab::edge::mqtt::{self, Connect, Packet, Publish};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Longest wait for anything that must come.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);
/// How long is waited for what must not come.
pub(crate) const QUIET: Duration = Duration::from_millis(150);

/// An HTTP answer of the workload API.
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) body: serde_json::Value,
}

/// One request over the unix socket. `head` holds the request line and headers without the end.
pub(crate) async fn http(edge: &Edge, head: &str, body: &str) -> std::io::Result<Reply> {
    let length = match body.len() {
        0 => String::new(),
        length => format!("Content-Length: {length}\r\n"),
    };
    let text = format!("{head}\r\nHost: workload\r\nConnection: close\r\n{length}\r\n{body}");
    http_text(edge, &text).await
}

/// One request as it goes over the socket; it must ask for the connection to be closed.
pub(crate) async fn http_text(edge: &Edge, text: &str) -> std::io::Result<Reply> {
    let mut stream = UnixStream::connect(edge.workload_socket()).await?;
    stream.write_all(text.as_bytes()).await?;
    let mut answer = Vec::new();
    tokio::time::timeout(DEADLINE, stream.read_to_end(&mut answer)).await??;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let bad = || std::io::Error::new(std::io::ErrorKind::UnexpectedEof, "no answer");
    let status = answer
        .split(' ')
        .nth(1)
        .and_then(|text| text.parse().ok())
        .ok_or_else(bad)?;
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    Ok(Reply {
        status,
        body: serde_json::from_str(body).unwrap_or(serde_json::Value::Null),
    })
}

pub(crate) async fn get(edge: &Edge, path: &str) -> Reply {
    http(edge, &format!("GET {path} HTTP/1.1"), "")
        .await
        .unwrap()
}

pub(crate) async fn post(edge: &Edge, path: &str, body: &str) -> Reply {
    http(edge, &format!("POST {path} HTTP/1.1"), body)
        .await
        .unwrap()
}

/// A token for a module that ends at `expires`.
pub(crate) async fn token(edge: &Edge, module: &str, expires: i64) -> String {
    let sr = format!("slice-lab.azure-devices.net%2Fdevices%2Fedge1%2Fmodules%2F{module}");
    let data = BASE64.encode(format!("{sr}\n{expires}"));
    let body =
        serde_json::json!({"keyId": "primary", "algo": "HMACSHA256", "data": data}).to_string();
    let reply = post(
        edge,
        &format!("/modules/{module}/genid/1/sign?api-version=2019-01-30"),
        &body,
    )
    .await;
    let digest = reply.body["digest"].as_str().unwrap_or_default().to_owned();
    let sig = digest
        .replace('+', "%2B")
        .replace('/', "%2F")
        .replace('=', "%3D");
    format!("SharedAccessSignature sr={sr}&sig={sig}&se={expires}")
}

pub(crate) fn now() -> i64 {
    jiff::Timestamp::now().as_second()
}

/// CONNECT of a module with a token for an hour.
pub(crate) async fn connect_packet(edge: &Edge, module: &str) -> Connect {
    Connect {
        level: 4,
        client_id: format!("edge1/{module}"),
        clean: true,
        keep_alive: 60,
        username: Some(format!(
            "slice-lab.azure-devices.net/edge1/{module}/?api-version=2021-04-12"
        )),
        password: Some(Bytes::from(token(edge, module, now() + 3600).await)),
        will: None,
    }
}

pub(crate) struct Raw {
    stream: TlsStream<TcpStream>,
    buffer: BytesMut,
}

impl Raw {
    /// TLS with the trust bundle in force.
    pub(crate) async fn tls(edge: &Edge) -> std::io::Result<Self> {
        Self::tls_with(edge, &edge.trust_bundle()).await
    }

    pub(crate) async fn tls_with(edge: &Edge, bundle: &str) -> std::io::Result<Self> {
        let mut roots = rustls::RootCertStore::empty();
        for root in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
            roots.add(root.unwrap()).unwrap();
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let tcp = TcpStream::connect(("127.0.0.1", edge.mqtt_port())).await?;
        let name = ServerName::try_from("localhost").unwrap();
        let stream = TlsConnector::from(Arc::new(config))
            .connect(name, tcp)
            .await?;
        Ok(Self {
            stream,
            buffer: BytesMut::new(),
        })
    }

    /// A connected module without subscriptions.
    pub(crate) async fn module(edge: &Edge, module: &str) -> Self {
        let mut raw = Self::tls(edge).await.unwrap();
        raw.send(&Packet::Connect(Box::new(
            connect_packet(edge, module).await,
        )))
        .await;
        assert_eq!(raw.next().await, Some(Packet::ConnAck(false, 0)));
        raw
    }

    /// A connected module with all subscriptions of an SDK.
    pub(crate) async fn subscribed(edge: &Edge, module: &str) -> Self {
        let mut raw = Self::module(edge, module).await;
        raw.subscribe(&[
            "$iothub/twin/res/#",
            "$iothub/twin/PATCH/properties/desired/#",
            "$iothub/methods/POST/#",
            &format!("devices/edge1/modules/{module}/inputs/#"),
        ])
        .await;
        raw
    }

    pub(crate) async fn subscribe(&mut self, filters: &[&str]) {
        let filters: Vec<_> = filters
            .iter()
            .map(|filter| ((*filter).to_owned(), 1))
            .collect();
        let granted = vec![1; filters.len()];
        self.send(&Packet::Subscribe(9, filters)).await;
        assert_eq!(self.next().await, Some(Packet::SubAck(9, granted)));
    }

    pub(crate) async fn send(&mut self, packet: &Packet) {
        self.send_bytes(&mqtt::encode(packet)).await;
    }

    pub(crate) async fn send_bytes(&mut self, bytes: &[u8]) {
        // The other side may have closed already; what was answered is read by `next`.
        let _ = self.stream.write_all(bytes).await;
        let _ = self.stream.flush().await;
    }

    pub(crate) async fn publish(&mut self, qos: u8, topic: &str, body: &[u8]) {
        self.send(&publish(qos, topic, body)).await;
    }

    /// The next packet; `None` when the connection has ended.
    pub(crate) async fn next(&mut self) -> Option<Packet> {
        tokio::time::timeout(DEADLINE, self.read())
            .await
            .expect("a packet or the end")
    }

    /// The next PUBLISH; acknowledges it. PUBACKs before it are skipped.
    pub(crate) async fn next_publish(&mut self) -> Publish {
        loop {
            match self.next().await {
                Some(Packet::Publish(publish)) => {
                    if publish.qos > 0 {
                        self.send(&Packet::PubAck(publish.packet_id)).await;
                    }
                    return publish;
                }
                Some(Packet::PubAck(_)) => {}
                other => panic!("a PUBLISH, not {other:?}"),
            }
        }
    }

    /// Fails if anything comes within a short time.
    pub(crate) async fn quiet(&mut self) {
        if let Ok(packet) = tokio::time::timeout(QUIET, self.read()).await {
            panic!("nothing was to come, but {packet:?}");
        }
    }

    async fn read(&mut self) -> Option<Packet> {
        loop {
            if let Some(packet) = mqtt::decode(&mut self.buffer, 1 << 20).unwrap() {
                return Some(packet);
            }
            match self.stream.read_buf(&mut self.buffer).await {
                Ok(0) | Err(_) => return None,
                Ok(_) => {}
            }
        }
    }

    /// Bytes of a packet that never became whole.
    pub(crate) fn leftover(&self) -> usize {
        self.buffer.len()
    }
}

pub(crate) fn publish(qos: u8, topic: &str, body: &[u8]) -> Packet {
    Packet::Publish(Publish {
        topic: topic.into(),
        qos,
        dup: false,
        retain: false,
        packet_id: if qos == 0 { 0 } else { 11 },
        payload: Bytes::copy_from_slice(body),
    })
}

pub(crate) const ACK: Packet = Packet::PubAck(11);
pub(crate) const EVENTS: &str = "devices/edge1/modules/slice-healer/messages/events/";
