//! Token and trust for one connection, made fresh each time: a bundle or a key may have changed, and
//! the token's expiry must come from the clock as it is now.

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use super::end::End;
use crate::clock::now;
use crate::config::{Config, Credentials, SharedKey, WallClock};
use crate::event::DisconnectReason;
use crate::sas;
use crate::secret::Secret;
use crate::workload::{WorkloadClient, WorkloadError};

/// What a connection needs to prove itself and to check the hub.
pub(crate) struct Prepared {
    pub(crate) password: Secret,
    pub(crate) tls: Arc<ClientConfig>,
    /// When to replace the connection, well before the token ends. Monotonic: the wall clock may
    /// jump.
    pub(crate) renew_at: Instant,
}

/// Why there are no credentials.
pub(crate) struct NoCredentials {
    pub(crate) end: End,
    /// Whether the workload socket itself refused.
    pub(crate) refusal: bool,
}

pub(crate) type Preparing =
    Pin<Box<dyn Future<Output = Result<Prepared, NoCredentials>> + Send + 'static>>;

enum Signer {
    Workload(WorkloadClient),
    Key {
        key: SharedKey,
        trusted_roots: PathBuf,
    },
}

/// Makes [`Prepared`]s.
pub(crate) struct Source {
    signer: Signer,
    audience: String,
    ttl: Duration,
    renewal_permille: (u32, u32),
    wall_clock: WallClock,
}

impl Source {
    pub(crate) fn new(config: &Config) -> Self {
        let identity = &config.identity;
        let signer = match &config.credentials {
            Credentials::Workload {
                uri,
                generation_id,
                api_version,
            } => Signer::Workload(WorkloadClient::new(
                uri.clone(),
                &identity.module_id,
                generation_id,
                api_version,
                config.timings.workload_call,
            )),
            Credentials::SharedKey { key, trusted_roots } => Signer::Key {
                key: key.clone(),
                trusted_roots: trusted_roots.clone(),
            },
        };
        Self {
            signer,
            audience: sas::audience(&identity.hub_host, &identity.device_id, &identity.module_id),
            ttl: config.timings.token_ttl,
            renewal_permille: config.timings.renewal_permille,
            wall_clock: config.wall_clock.clone(),
        }
    }

    /// One try.
    pub(crate) async fn prepare(&self) -> Result<Prepared, NoCredentials> {
        let bundle = match &self.signer {
            Signer::Workload(client) => client.trust_bundle().await.map_err(no_workload)?,
            Signer::Key { trusted_roots, .. } => tokio::fs::read_to_string(trusted_roots)
                .await
                .map_err(|e| {
                    let text = format!("cannot read {}: {e}", trusted_roots.display());
                    no_trust(text)
                })?,
        };
        let tls = tls_config(&bundle)?;
        let expiry = self
            .wall_clock
            .epoch_secs()
            .saturating_add(self.ttl.as_secs());
        let text = sas::text_to_sign(&self.audience, expiry);
        let signature = match &self.signer {
            Signer::Workload(client) => client.sign(text.as_bytes()).await.map_err(no_workload)?,
            Signer::Key { key, .. } => sas::sign_locally(&key.0, &text),
        };
        let (from, to) = self.renewal_permille;
        let permille = rand::random_range(from..=to.max(from));
        Ok(Prepared {
            password: sas::token(&self.audience, &signature, expiry),
            tls,
            renew_at: now() + self.ttl.mul_f64(f64::from(permille) / 1_000.0),
        })
    }
}

/// Trusts the certificates of `pem` and nothing else. The crypto provider is named, so that another
/// crate's choice of a process-wide one cannot matter.
fn tls_config(pem: &str) -> Result<Arc<ClientConfig>, NoCredentials> {
    let mut roots = RootCertStore::empty();
    let certificates = CertificateDer::pem_slice_iter(pem.as_bytes()).filter_map(Result::ok);
    let (usable, _) = roots.add_parsable_certificates(certificates);
    if usable == 0 {
        return Err(no_trust(
            "the trust bundle holds no usable certificate".to_owned(),
        ));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| no_trust(format!("TLS cannot be set up: {e}")))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

fn no_trust(detail: String) -> NoCredentials {
    NoCredentials {
        end: End::new(DisconnectReason::Trust, detail),
        refusal: false,
    }
}

fn no_workload(error: WorkloadError) -> NoCredentials {
    NoCredentials {
        refusal: error.is_refusal(),
        end: End::new(DisconnectReason::Workload, error.to_string()),
    }
}
