//! TCP and TLS to the hub, each step with its own time limit. No MQTT here.

use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::end::End;
use crate::config::Gateway;
use crate::event::DisconnectReason;

/// Connects and checks that the certificate is the gateway's.
pub(crate) async fn connect(
    gateway: &Gateway,
    tls: Arc<ClientConfig>,
    tcp_limit: Duration,
    tls_limit: Duration,
) -> Result<TlsStream<TcpStream>, End> {
    let host = gateway.connect_host.as_deref().unwrap_or(&gateway.host);
    let place = format!("{host}:{}", gateway.port);
    let network = |text: String| End::new(DisconnectReason::Network, text);
    let tcp = timeout(tcp_limit, TcpStream::connect((host, gateway.port)))
        .await
        .map_err(|_| network(format!("no TCP connection to {place} within {tcp_limit:?}")))?
        .map_err(|e| network(format!("cannot connect to {place}: {e}")))?;
    // Small packets, each waited for.
    tcp.set_nodelay(true)
        .map_err(|e| network(format!("cannot set up the socket: {e}")))?;

    let trouble = |text: String| End::new(DisconnectReason::Tls, text);
    let name = ServerName::try_from(gateway.host.clone()).map_err(|_| {
        trouble(format!(
            "{:?} is no name that a certificate can have",
            gateway.host
        ))
    })?;
    timeout(tls_limit, TlsConnector::from(tls).connect(name, tcp))
        .await
        .map_err(|_| {
            trouble(format!(
                "no TLS handshake with {place} within {tls_limit:?}"
            ))
        })?
        .map_err(|e| trouble(format!("TLS with {place} (as {}): {e}", gateway.host)))
}
