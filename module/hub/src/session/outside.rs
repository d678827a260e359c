//! What a session needs from the world: credentials and a byte stream to the hub. One trait of two
//! calls, so that tests can put a script and a stopped clock in its place.

use std::future::Future;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::credentials::{NoCredentials, Prepared, Source};
use super::end::End;
use super::transport;
use crate::config::{Config, Gateway};
use crate::timings::Timings;

/// Each call is one try with its own time limit; the session does the waiting in between.
pub(crate) trait Outside: Send + Sync + 'static {
    /// An encrypted stream to the hub.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send;

    /// A fresh token and the certificates to trust.
    fn prepare(&self) -> impl Future<Output = Result<Prepared, NoCredentials>> + Send;

    /// A connection to the hub, up to the point where MQTT begins.
    fn dial(&self, prepared: &Prepared) -> impl Future<Output = Result<Self::Stream, End>> + Send;
}

/// The real one.
pub(crate) struct EdgeDevice {
    source: Source,
    gateway: Gateway,
    timings: Timings,
}

impl EdgeDevice {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            source: Source::new(config),
            gateway: config.gateway.clone(),
            timings: config.timings.clone(),
        }
    }
}

impl Outside for EdgeDevice {
    type Stream = TlsStream<TcpStream>;

    async fn prepare(&self) -> Result<Prepared, NoCredentials> {
        self.source.prepare().await
    }

    async fn dial(&self, prepared: &Prepared) -> Result<Self::Stream, End> {
        let tls = prepared.tls.clone();
        let Timings {
            tcp_connect,
            tls_handshake,
            ..
        } = self.timings;
        transport::connect(&self.gateway, tls, tcp_connect, tls_handshake).await
    }
}
