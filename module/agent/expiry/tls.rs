//! Looks at the certificate that a server shows, without trusting it and without sending anything:
//! the connection ends with the handshake.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, Result};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme};

/// How long each read and write may take.
const STEP: Duration = Duration::from_secs(5);

/// The server's own certificate, in DER.
///
/// # Errors
/// Nobody listens, or it is no TLS.
pub(super) async fn server_certificate(address: SocketAddr, name: &str) -> Result<Vec<u8>> {
    let name =
        ServerName::try_from(name.to_owned()).context("not a name that a certificate can have")?;
    tokio::task::spawn_blocking(move || handshake(address, name)).await?
}

fn handshake(address: SocketAddr, name: ServerName<'static>) -> Result<Vec<u8>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let seen = Arc::new(Seen {
        certificate: Mutex::new(None),
        provider: Arc::clone(&provider),
    });
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::clone(&seen) as Arc<dyn ServerCertVerifier>)
        .with_no_client_auth();
    let mut connection = ClientConnection::new(Arc::new(config), name)?;
    let mut stream = std::net::TcpStream::connect_timeout(&address, STEP)?;
    stream.set_read_timeout(Some(STEP))?;
    stream.set_write_timeout(Some(STEP))?;
    let ended = connection.complete_io(&mut stream);
    let certificate = seen
        .certificate
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
        .take();
    match (certificate, ended) {
        // A server that wants a client certificate ends the handshake after it has shown its own.
        (Some(certificate), _) => Ok(certificate),
        (None, Err(error)) => Err(error.into()),
        (None, Ok(_)) => anyhow::bail!("it showed no certificate"),
    }
}

/// Accepts whatever is shown, and keeps it.
#[derive(Debug)]
struct Seen {
    certificate: Mutex<Option<Vec<u8>>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Seen {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        *self
            .certificate
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner) = Some(end_entity.to_vec());
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
