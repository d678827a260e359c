//! The workload API of IoT Edge: signs for the module and hands out the certificates to trust.
//!
//! One call is one try with a deadline; when to try again is the caller's business and
//! [`WorkloadError::is_refusal`] helps it to tell a dead socket from a busy daemon. Connections are
//! not kept: the daemon allows ten at a time for all modules of a user. It never sees a key.

mod http;
mod uri;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::encode::percent_encode;
pub use uri::WorkloadUri;

/// Asked for when edgeAgent does not say otherwise.
pub const DEFAULT_API_VERSION: &str = "2019-01-30";
/// The first version with all calls used here; any daemon that refuses a newer one knows it.
pub const OLDEST_API_VERSION: &str = "2018-06-28";

/// Largest answer that is read, bytes.
const BODY_LIMIT: usize = 1024 * 1024;

/// Why a call failed.
#[derive(Debug, Error)]
pub enum WorkloadError {
    /// The socket is missing, dead or not allowed.
    #[error(
        "cannot connect to the workload API at {uri}: {source}; if this lasts, the daemon made a new socket and the module's container must be created again"
    )]
    Connect {
        /// Where.
        uri: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// No complete answer within the time limit.
    #[error("the workload API at {uri} did not answer {what} within {after:?}")]
    Timeout {
        /// Where.
        uri: String,
        /// Which call.
        what: &'static str,
        /// The limit.
        after: Duration,
    },
    /// The connection broke or the answer was not HTTP.
    #[error("talking to the workload API at {uri} failed during {what}: {reason}")]
    Transport {
        /// Where.
        uri: String,
        /// Which call.
        what: &'static str,
        /// What happened.
        reason: String,
    },
    /// The daemon said no.
    #[error("the workload API answered {what} with {status}: {message}")]
    Status {
        /// Which call.
        what: &'static str,
        /// HTTP status.
        status: u16,
        /// The daemon's own words, shortened.
        message: String,
    },
    /// An answer with status 200 that makes no sense.
    #[error("the workload API answered {what} with something unusable: {reason}")]
    Unusable {
        /// Which call.
        what: &'static str,
        /// What is wrong with it; never its content.
        reason: &'static str,
    },
}

impl WorkloadError {
    /// Whether the socket itself refuses us: it is missing, nobody listens, or we are not allowed.
    /// When this lasts, only a new container helps: the daemon binds a new socket on restart, and a
    /// running container keeps the old one.
    pub fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::Connect { .. } | Self::Status { status: 403, .. }
        )
    }

    /// Whether the same call may succeed later without anybody changing our settings.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Status { status, .. } => matches!(status, 403 | 404 | 408 | 429 | 500..),
            Self::Connect { .. }
            | Self::Timeout { .. }
            | Self::Transport { .. }
            | Self::Unusable { .. } => true,
        }
    }
}

/// Client of the workload API for one module.
#[derive(Debug)]
pub struct WorkloadClient {
    uri: WorkloadUri,
    module_id: String,
    generation_id: String,
    api_version: String,
    use_oldest: AtomicBool,
    call_limit: Duration,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SignRequest<'a> {
    key_id: &'a str,
    algo: &'a str,
    data: String,
}

#[derive(Deserialize)]
struct SignResponse {
    digest: String,
}

#[derive(Deserialize)]
struct TrustBundle {
    certificate: String,
}

#[derive(Deserialize)]
struct Failure {
    message: String,
}

impl WorkloadClient {
    /// A client for `module_id`; nothing is contacted yet.
    pub fn new(
        uri: WorkloadUri,
        module_id: impl Into<String>,
        generation_id: impl Into<String>,
        api_version: impl Into<String>,
        call_limit: Duration,
    ) -> Self {
        Self {
            uri,
            module_id: module_id.into(),
            generation_id: generation_id.into(),
            api_version: api_version.into(),
            use_oldest: AtomicBool::new(false),
            call_limit,
        }
    }

    /// HMAC-SHA256 of `data` with the module's primary key, in base64.
    ///
    /// # Errors
    /// See [`WorkloadError`].
    pub async fn sign(&self, data: &[u8]) -> Result<String, WorkloadError> {
        // Newer daemons read `data` only; older ones insist on all three.
        let request = SignRequest {
            key_id: "primary",
            algo: "HMACSHA256",
            data: BASE64.encode(data),
        };
        let path = format!(
            "/modules/{}/genid/{}/sign",
            percent_encode(&self.module_id),
            percent_encode(&self.generation_id)
        );
        let body = serde_json::to_vec(&request).map_err(|_| WorkloadError::Unusable {
            what: "sign",
            reason: "request not JSON",
        })?;
        let answer: SignResponse = self.call("sign", hyper::Method::POST, &path, body).await?;
        match BASE64.decode(&answer.digest) {
            Ok(digest) if digest.len() == 32 => Ok(answer.digest),
            Ok(_) => Err(WorkloadError::Unusable {
                what: "sign",
                reason: "digest is not 32 bytes",
            }),
            Err(_) => Err(WorkloadError::Unusable {
                what: "sign",
                reason: "digest is not base64",
            }),
        }
    }

    /// The certificates to trust, as PEM text.
    ///
    /// # Errors
    /// See [`WorkloadError`]; status 404 means that the daemon has none configured.
    pub async fn trust_bundle(&self) -> Result<String, WorkloadError> {
        let answer: TrustBundle = self
            .call(
                "trust-bundle",
                hyper::Method::GET,
                "/trust-bundle",
                Vec::new(),
            )
            .await?;
        Ok(answer.certificate)
    }

    async fn call<T: serde::de::DeserializeOwned>(
        &self,
        what: &'static str,
        method: hyper::Method,
        path: &str,
        body: Vec<u8>,
    ) -> Result<T, WorkloadError> {
        let version = self.version();
        let (status, bytes) = self
            .try_once(what, &method, path, version, body.clone())
            .await?;
        let (status, bytes) = if self.is_version_refusal(version, status, &bytes) {
            tracing::info!(
                refused = version,
                using = OLDEST_API_VERSION,
                "workload API version"
            );
            self.use_oldest.store(true, Ordering::Relaxed);
            self.try_once(what, &method, path, OLDEST_API_VERSION, body)
                .await?
        } else {
            (status, bytes)
        };
        if !(200..300).contains(&status) {
            return Err(WorkloadError::Status {
                what,
                status,
                message: message_of(&bytes),
            });
        }
        serde_json::from_slice(&bytes).map_err(|_| WorkloadError::Unusable {
            what,
            reason: "the body is not the JSON that was expected",
        })
    }

    fn version(&self) -> &str {
        if self.use_oldest.load(Ordering::Relaxed) {
            OLDEST_API_VERSION
        } else {
            &self.api_version
        }
    }

    fn is_version_refusal(&self, asked: &str, status: u16, body: &[u8]) -> bool {
        status == 400
            && asked != OLDEST_API_VERSION
            && message_of(body)
                .to_ascii_lowercase()
                .replace('-', " ")
                .contains("api version")
    }

    async fn try_once(
        &self,
        what: &'static str,
        method: &hyper::Method,
        path: &str,
        version: &str,
        body: Vec<u8>,
    ) -> Result<(u16, Vec<u8>), WorkloadError> {
        let target = format!("{path}?api-version={}", percent_encode(version));
        let exchange = http::exchange(&self.uri, method.clone(), &target, body, BODY_LIMIT);
        match tokio::time::timeout(self.call_limit, exchange).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(http::Failed::Connect(source))) => Err(WorkloadError::Connect {
                uri: self.uri.to_string(),
                source,
            }),
            Ok(Err(http::Failed::Exchange(reason))) => Err(WorkloadError::Transport {
                uri: self.uri.to_string(),
                what,
                reason,
            }),
            Err(_) => Err(WorkloadError::Timeout {
                uri: self.uri.to_string(),
                what,
                after: self.call_limit,
            }),
        }
    }
}

/// The daemon's message, at most 200 characters of it: it may be repeated in logs for hours.
fn message_of(body: &[u8]) -> String {
    let text = serde_json::from_slice::<Failure>(body).map_or_else(
        |_| String::from_utf8_lossy(body).into_owned(),
        |f| f.message,
    );
    text.chars().take(200).collect()
}
