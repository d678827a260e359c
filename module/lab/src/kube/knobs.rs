//! What a test can make go wrong in the API server, and what it can read back about requests.
//!
//! Knobs act on requests that come over HTTP with the ordinary token. The admin token and the
//! calls inside the process go past them, so that a test can look while the product suffers.

use std::collections::VecDeque;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::resource::Resource;
use super::status::ApiError;

/// What a failing request is answered with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// 409 Conflict, as after a concurrent write.
    Conflict,
    /// 429 with `Retry-After` in seconds.
    TooManyRequests {
        /// Seconds of the header.
        retry_after: u32,
    },
    /// 500.
    Internal,
    /// 503.
    Unavailable,
    /// No answer until the time is over, then 503.
    Hang(Duration),
}

/// The next `times` matching requests fail.
#[derive(Debug, Clone)]
pub struct Fault {
    /// Verb such as `get`, `list`, `watch`, `patch`; any if empty.
    pub verb: &'static str,
    /// The resource; any if none.
    pub resource: Option<&'static Resource>,
    /// How many requests fail.
    pub times: u32,
    /// With what.
    pub failure: Failure,
}

/// Verbs that the ordinary user may not use.
#[derive(Debug, Clone)]
pub struct Forbid {
    /// Verb such as `delete`; every verb if empty.
    pub verb: &'static str,
    /// The resource; every one if none.
    pub resource: Option<&'static Resource>,
    /// Namespace; every one if none.
    pub namespace: Option<String>,
}

impl Forbid {
    fn covers(&self, verb: &str, resource: &Resource, namespace: Option<&str>) -> bool {
        (self.verb.is_empty() || self.verb == verb)
            && self
                .resource
                .is_none_or(|r| r.qualified == resource.qualified)
            && self
                .namespace
                .as_deref()
                .is_none_or(|ns| namespace == Some(ns))
    }
}

/// One request, as asserts want to see it.
#[derive(Debug, Clone)]
pub struct Request {
    /// When it came.
    pub at: Timestamp,
    /// Whose token it carried; empty for none or an unknown one.
    pub user: &'static str,
    /// HTTP method.
    pub method: String,
    /// Path with query.
    pub path: String,
    /// Kubernetes verb; empty for discovery and the like.
    pub verb: &'static str,
    /// The resource; none for discovery and the like.
    pub resource: Option<&'static Resource>,
    /// Namespace, empty for all or none.
    pub namespace: String,
    /// Object name, empty for collections.
    pub name: String,
    /// `User-Agent` header.
    pub user_agent: String,
    /// Body, where there was one and it was JSON.
    pub body: Option<Value>,
    /// HTTP status of the answer.
    pub status: u16,
}

impl Request {
    /// Whether it asks for a change; reviews of one's own rights change nothing.
    #[must_use]
    pub fn is_write(&self) -> bool {
        matches!(
            self.verb,
            "create" | "update" | "patch" | "delete" | "deletecollection"
        ) && self.resource != Some(&super::resource::ACCESS_REVIEWS)
    }
}

const LOG_LIMIT: usize = 50_000;

#[derive(Debug, Default)]
pub(crate) struct Knobs {
    pub(crate) faults: Vec<Fault>,
    pub(crate) forbids: Vec<Forbid>,
    pub(crate) latency: Duration,
    pub(crate) hold_watches: bool,
    log: VecDeque<Request>,
    /// Requests that the bounded log had to forget.
    log_dropped: u64,
}

impl Knobs {
    pub(crate) fn record(&mut self, request: Request) {
        if self.log.len() >= LOG_LIMIT {
            self.log.pop_front();
            self.log_dropped += 1;
        }
        self.log.push_back(request);
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.log.iter().cloned().collect()
    }

    pub(crate) fn requests_dropped(&self) -> u64 {
        self.log_dropped
    }

    pub(crate) fn clear_log(&mut self) {
        self.log.clear();
        self.log_dropped = 0;
    }

    pub(crate) fn allowed(&self, verb: &str, resource: &Resource, namespace: Option<&str>) -> bool {
        !self
            .forbids
            .iter()
            .any(|rule| rule.covers(verb, resource, namespace))
    }

    /// Uses up one fault that matches.
    pub(crate) fn take_failure(&mut self, verb: &str, resource: &Resource) -> Option<Failure> {
        let fault = self.faults.iter_mut().find(|fault| {
            fault.times > 0
                && (fault.verb.is_empty() || fault.verb == verb)
                && fault
                    .resource
                    .is_none_or(|r| r.qualified == resource.qualified)
        })?;
        fault.times -= 1;
        let failure = fault.failure;
        self.faults.retain(|fault| fault.times > 0);
        Some(failure)
    }
}

impl Failure {
    pub(crate) fn error(self, resource: &Resource, name: &str) -> ApiError {
        match self {
            Self::Conflict => ApiError::modified(resource, name),
            Self::TooManyRequests { retry_after } => ApiError::too_many_requests(retry_after),
            Self::Internal => ApiError::internal("asked for by the lab"),
            Self::Unavailable | Self::Hang(_) => ApiError::unavailable(),
        }
    }
}
