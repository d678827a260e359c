//! One request to the API server, and what its answer means.
//!
//! Only a refusal by load (429) is repeated: the server has then done nothing. Nothing else is, so
//! that a write whose answer was lost is never sent twice.

use std::time::Duration;

use http::header::{CONTENT_TYPE, DATE, RETRY_AFTER};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use jiff::Timestamp;
use kube::Client;
use kube::client::Body;
use kube::core::Status;
use serde_json::Value;
use slice_core::event::Outcome;
use tokio::time::{Instant, sleep, timeout_at};

use crate::client::{explain, http_date};

/// The longest answer that is taken: a page of 500 large pods stays well below it.
const LONGEST_ANSWER: usize = 64 << 20;

/// What is done to which object, for errors and for people: `patch services line1/web`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    verb: &'static str,
    object: String,
}

impl Target {
    pub(crate) fn new(verb: &'static str, object: impl Into<String>) -> Self {
        Self {
            verb,
            object: object.into(),
        }
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.verb, self.object)
    }
}

/// How a request did not succeed. Each text names verb and object.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// 404.
    #[error("{0}: not found")]
    Missing(String),
    /// 409, or a uid that is not the object's.
    #[error("{0}")]
    Conflict(String),
    /// 410: the rest of a list is no longer kept.
    #[error("{0}")]
    Expired(String),
    /// 401, 403, or an admission rule.
    #[error("{0}")]
    Forbidden(String),
    /// The server answered that it did nothing, or the question was a read.
    #[error("{0}")]
    Failed(String),
    /// A write of which nobody knows whether it was done.
    #[error("{0}; whether it was written is not known")]
    Unknown(String),
}

impl Failure {
    /// As the end of an action.
    pub(crate) fn outcome(self) -> Outcome {
        match self {
            Self::Missing(_) => Outcome::Gone,
            Self::Conflict(text) => Outcome::Conflict(text),
            Self::Forbidden(text) => Outcome::Forbidden(text),
            failed @ (Self::Expired(_) | Self::Failed(_) | Self::Unknown(_)) => {
                Outcome::Failed(failed.to_string())
            }
        }
    }
}

/// A successful answer.
#[derive(Debug)]
pub(crate) struct Answer {
    /// Its JSON.
    pub(crate) body: Value,
    /// The server's own time.
    pub(crate) date: Option<Timestamp>,
}

/// What is sent beside method and path.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Payload<'a> {
    /// Nothing.
    None,
    /// JSON.
    Json(&'a Value),
    /// A merge patch (RFC 7386).
    Merge(&'a Value),
}

/// Sends requests until a deadline.
#[derive(Clone)]
pub(crate) struct Caller {
    client: Client,
    deadline: Instant,
}

impl Caller {
    pub(crate) fn new(client: Client, deadline: Instant) -> Self {
        Self { client, deadline }
    }

    /// The moment at which everything must be over.
    pub(crate) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// The same client with an earlier end.
    pub(crate) fn until(&self, deadline: Instant) -> Self {
        Self {
            client: self.client.clone(),
            deadline: deadline.min(self.deadline),
        }
    }

    /// One read; `None` when there is no such object.
    pub(crate) async fn get(&self, target: &Target, path: &str) -> Result<Option<Answer>, Failure> {
        match self.send(target, &Method::GET, path, Payload::None).await {
            Ok(answer) => Ok(Some(answer)),
            Err(Failure::Missing(_)) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// One request, repeated only while the server is too busy to take it.
    pub(crate) async fn send(
        &self,
        target: &Target,
        method: &Method,
        path: &str,
        payload: Payload<'_>,
    ) -> Result<Answer, Failure> {
        loop {
            let sent = self.attempt(target, method, path, payload);
            let (status, headers, body) = match timeout_at(self.deadline, sent).await {
                Ok(answer) => answer?,
                Err(_) => return Err(lost(target, method, "no answer in time")),
            };
            if status == StatusCode::TOO_MANY_REQUESTS {
                let pause = retry_after(&headers, &body);
                if Instant::now() + pause >= self.deadline {
                    let text =
                        format!("{target}: the API server is too busy (429) until the deadline");
                    return Err(Failure::Failed(text));
                }
                sleep(pause).await;
                continue;
            }
            if !status.is_success() {
                return Err(refused(target, method, status, &body));
            }
            let date = headers.get(DATE).and_then(|d| http_date(d.to_str().ok()?));
            let body = serde_json::from_slice(&body).map_err(|error| {
                // The write was accepted; only its echo cannot be read.
                lost(target, method, &format!("the answer is not JSON ({error})"))
            })?;
            return Ok(Answer { body, date });
        }
    }

    async fn attempt(
        &self,
        target: &Target,
        method: &Method,
        path: &str,
        payload: Payload<'_>,
    ) -> Result<(StatusCode, HeaderMap, Vec<u8>), Failure> {
        let (content_type, body) = match payload {
            Payload::None => (None, Vec::new()),
            Payload::Json(value) => (Some("application/json"), value.to_string().into_bytes()),
            Payload::Merge(value) => (
                Some("application/merge-patch+json"),
                value.to_string().into_bytes(),
            ),
        };
        let mut request = Request::builder().method(method).uri(path);
        if let Some(content_type) = content_type {
            request = request.header(CONTENT_TYPE, content_type);
        }
        let request = request
            .body(Body::from(body))
            .map_err(|error| Failure::Failed(format!("{target}: no request ({error})")))?;
        let answer = self.client.send(request).await;
        let answer = answer.map_err(|error| lost(target, method, &explain(&error)))?;
        let (parts, body) = answer.into_parts();
        let body = Limited::new(body, LONGEST_ANSWER).collect().await;
        let body = body.map_err(|error| lost(target, method, &error.to_string()))?;
        Ok((parts.status, parts.headers, body.to_bytes().to_vec()))
    }
}

fn lost(target: &Target, method: &Method, why: &str) -> Failure {
    let text = format!("{target}: {why}");
    if method == Method::GET {
        Failure::Failed(text)
    } else {
        Failure::Unknown(text)
    }
}

fn refused(target: &Target, method: &Method, status: StatusCode, body: &[u8]) -> Failure {
    let code = status.as_u16();
    let told: Option<Status> = serde_json::from_slice(body).ok();
    let message = told.as_ref().map_or_else(
        || {
            String::from_utf8_lossy(body)
                .trim()
                .chars()
                .take(300)
                .collect()
        },
        |s| s.message.clone(),
    );
    let text = format!("{target}: {message} ({code})");
    match code {
        401 => Failure::Forbidden(format!(
            "{text}: renew the token or certificate of the kubeconfig"
        )),
        403 => Failure::Forbidden(text),
        404 => Failure::Missing(target.to_string()),
        409 => Failure::Conflict(text),
        410 => Failure::Expired(text),
        // Admission policies refuse with 422 unless they say otherwise.
        422 if message.contains("denied request") || message.contains("denied the request") => {
            Failure::Forbidden(text)
        }
        // A uid in a patch that is not the object's is an invalid change of an immutable field.
        422 if told.as_ref().is_some_and(changes_uid) => Failure::Conflict(text),
        // The server may have given up while the write went on.
        500.. if method != Method::GET => Failure::Unknown(text),
        _ => Failure::Failed(text),
    }
}

fn changes_uid(status: &Status) -> bool {
    let causes = status.details.iter().flat_map(|d| &d.causes);
    causes.into_iter().any(|c| c.field == "metadata.uid")
}

/// How long the server asks to wait; between a second and a minute.
fn retry_after(headers: &HeaderMap, body: &[u8]) -> Duration {
    let header = headers
        .get(RETRY_AFTER)
        .and_then(|v| v.to_str().ok()?.parse().ok());
    let told = || {
        let status: Status = serde_json::from_slice(body).ok()?;
        Some(u64::from(status.details?.retry_after_seconds))
    };
    Duration::from_secs(header.or_else(told).unwrap_or(1).clamp(1, 60))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn answer(code: u16, body: &Value) -> Failure {
        let target = Target::new("patch", "services line1/web");
        let status = StatusCode::from_u16(code).unwrap();
        refused(&target, &Method::PATCH, status, body.to_string().as_bytes())
    }

    #[test]
    fn refusals_name_the_verb_and_the_object() {
        let body = json!({"message": "services \"web\" is forbidden", "code": 403});
        let text = answer(403, &body).to_string();
        assert_eq!(
            text,
            "patch services line1/web: services \"web\" is forbidden (403)"
        );
    }

    #[test]
    fn answers_mean_what_the_api_means_by_them() {
        let told = |message: &str| json!({"message": message});
        assert!(matches!(
            answer(401, &told("Unauthorized")),
            Failure::Forbidden(_)
        ));
        assert!(matches!(answer(404, &told("")), Failure::Missing(_)));
        assert!(matches!(
            answer(409, &told("the object has been modified")),
            Failure::Conflict(_)
        ));
        let policy = told(
            "services \"web\" is invalid: ValidatingAdmissionPolicy 'x' with binding \
                           'y' denied request: only the refresh key",
        );
        assert!(matches!(answer(422, &policy), Failure::Forbidden(_)));
        let uid = json!({"message": "invalid", "details": {"causes": [{"field": "metadata.uid"}]}});
        assert!(matches!(answer(422, &uid), Failure::Conflict(_)));
        assert!(matches!(
            answer(422, &told("spec.ports: required")),
            Failure::Failed(_)
        ));
        assert!(matches!(answer(504, &told("timeout")), Failure::Unknown(_)));
        assert!(matches!(
            refused(&Target::new("get", "x"), &Method::GET, StatusCode::BAD_GATEWAY, b"oh"),
            Failure::Failed(text) if text == "get x: oh (502)"
        ));
    }

    #[test]
    fn the_wait_is_the_servers_within_bounds() {
        let mut headers = HeaderMap::new();
        assert_eq!(retry_after(&headers, b""), Duration::from_secs(1));
        let body = json!({"details": {"retryAfterSeconds": 7}}).to_string();
        assert_eq!(
            retry_after(&headers, body.as_bytes()),
            Duration::from_secs(7)
        );
        headers.insert(RETRY_AFTER, "3600".parse().unwrap());
        assert_eq!(
            retry_after(&headers, body.as_bytes()),
            Duration::from_secs(60)
        );
    }

    #[test]
    fn the_servers_time_is_read() {
        let date = http_date("Tue, 01 Dec 2026 10:00:00 GMT").unwrap();
        assert_eq!(date.to_string(), "2026-12-01T10:00:00Z");
        assert_eq!(http_date("soon"), None);
    }
}
