//! Errors of the API server and their `Status` bodies, worded as the real server words them, since
//! clients branch on `code` and `reason` and people read `message`.

use serde_json::{Value, json};

use super::resource::Resource;

/// A refusal of the API server.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{message} ({reason}, {code})")]
pub struct ApiError {
    /// HTTP status.
    pub code: u16,
    /// Machine-readable reason, such as `NotFound`.
    pub reason: &'static str,
    /// What was refused, in words.
    pub message: String,
    /// `details` of the Status body: name, group, kind, causes.
    pub details: Value,
    /// Seconds for the `Retry-After` header.
    pub retry_after: Option<u32>,
}

impl ApiError {
    fn new(code: u16, reason: &'static str, message: impl Into<String>, details: Value) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            details,
            retry_after: None,
        }
    }

    fn about(resource: &Resource, name: &str) -> Value {
        Self::details(resource, name, resource.plural)
    }

    /// The core group has no name, and then none is sent.
    fn details(resource: &Resource, name: &str, kind: &str) -> Value {
        let mut details = json!({"name": name, "kind": kind});
        if !resource.group.is_empty() {
            details["group"] = json!(resource.group);
        }
        details
    }

    /// 404: no such object.
    #[must_use]
    pub fn not_found(resource: &Resource, name: &str) -> Self {
        let message = format!("{} \"{name}\" not found", resource.qualified);
        Self::new(404, "NotFound", message, Self::about(resource, name))
    }

    /// 404: no such path.
    #[must_use]
    pub fn no_route() -> Self {
        let message = "the server could not find the requested resource";
        Self::new(404, "NotFound", message, json!({}))
    }

    /// 409: the name is taken.
    #[must_use]
    pub fn already_exists(resource: &Resource, name: &str) -> Self {
        let message = format!("{} \"{name}\" already exists", resource.qualified);
        Self::new(409, "AlreadyExists", message, Self::about(resource, name))
    }

    /// 409: another version of the object was there.
    #[must_use]
    pub fn conflict(resource: &Resource, name: &str, why: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} \"{name}\": {why}",
            resource.qualified
        );
        Self::new(409, "Conflict", message, Self::about(resource, name))
    }

    /// 409 of a delete whose preconditions do not hold. The real server names the kind here, where
    /// it names the resource elsewhere.
    #[must_use]
    pub fn precondition(resource: &Resource, name: &str, why: &str) -> Self {
        Self {
            details: Self::details(resource, name, resource.kind),
            ..Self::conflict(resource, name, why)
        }
    }

    /// 409 of an update that carries an old resourceVersion.
    #[must_use]
    pub fn modified(resource: &Resource, name: &str) -> Self {
        let why = "the object has been modified; please apply your changes to the latest version \
                   and try again";
        Self::conflict(resource, name, why)
    }

    /// 422: the object breaks a rule at `field`.
    #[must_use]
    pub fn invalid(resource: &Resource, name: &str, field: &str, why: &str) -> Self {
        let message = format!("{} \"{name}\" is invalid: {field}: {why}", resource.kind);
        let mut details = Self::details(resource, name, resource.kind);
        details["causes"] =
            json!([{"reason": "FieldValueInvalid", "message": why, "field": field}]);
        Self::new(422, "Invalid", message, details)
    }

    /// 400: the request cannot be understood.
    #[must_use]
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message, json!({}))
    }

    /// 401: no token, or a wrong one.
    #[must_use]
    pub fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized", json!({}))
    }

    /// 403: a rule forbids this user the verb.
    #[must_use]
    pub fn forbidden(
        resource: &Resource,
        verb: &str,
        namespace: Option<&str>,
        name: &str,
        user: &str,
    ) -> Self {
        let scope = namespace.map_or_else(
            || "at the cluster scope".to_owned(),
            |ns| format!("in the namespace \"{ns}\""),
        );
        let object = if name.is_empty() {
            String::new()
        } else {
            format!(" \"{name}\"")
        };
        let message = format!(
            "{}{object} is forbidden: User \"{user}\" cannot {verb} resource \"{}\" in API group \
             \"{}\" {scope}",
            resource.qualified, resource.plural, resource.group
        );
        Self::new(403, "Forbidden", message, Self::about(resource, name))
    }

    /// 405: the path does not take that method.
    #[must_use]
    pub fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(405, "MethodNotAllowed", message, json!({}))
    }

    /// 415: a patch or body type that is not taken.
    #[must_use]
    pub fn unsupported_media_type(got: &str) -> Self {
        let message = format!(
            "the body of the request was in an unknown format: {got}; accepted media types \
             include: application/json, application/json-patch+json, \
             application/merge-patch+json, application/strategic-merge-patch+json"
        );
        Self::new(415, "UnsupportedMediaType", message, json!({}))
    }

    /// 410: the version asked for was compacted away.
    #[must_use]
    pub fn expired(wanted: u64, oldest: u64) -> Self {
        let message = format!("too old resource version: {wanted} ({oldest})");
        Self::new(410, "Expired", message, json!({}))
    }

    /// 429 with a time to wait, in seconds.
    #[must_use]
    pub fn too_many_requests(retry_after: u32) -> Self {
        let message = "the server has received too many requests and has asked us to try again \
                       later";
        let details = json!({"retryAfterSeconds": retry_after});
        Self {
            retry_after: Some(retry_after),
            ..Self::new(429, "TooManyRequests", message, details)
        }
    }

    /// 500 with a text.
    #[must_use]
    pub fn internal(message: &str) -> Self {
        let message = format!("Internal error occurred: {message}");
        Self::new(500, "InternalError", message, json!({}))
    }

    /// 503.
    #[must_use]
    pub fn unavailable() -> Self {
        let message = "the server is currently unable to handle the request";
        Self::new(503, "ServiceUnavailable", message, json!({}))
    }

    /// The Status object of the body.
    #[must_use]
    pub fn body(&self) -> Value {
        let mut body = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        });
        if self.details != json!({}) {
            body["details"] = self.details.clone();
        }
        body
    }
}
