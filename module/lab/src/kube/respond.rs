//! Answers as HTTP: JSON bodies, error bodies with their headers, the Status of a delete.

use axum::body::Body;
use axum::http::{HeaderMap, Response, header};
use serde_json::{Value, json};

use super::object;
use super::resource::Resource;
use super::status::ApiError;

pub(crate) fn deleted_status(resource: &Resource, object: &Value) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
        "details": {"name": object::name(object), "group": resource.group,
            "kind": resource.plural, "uid": object::uid(object)},
    })
}

pub(crate) fn header(headers: &HeaderMap, name: header::HeaderName) -> String {
    headers
        .get(name)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
        .to_owned()
}

pub(crate) fn respond(code: u16, body: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = axum::http::StatusCode::from_u16(code).unwrap_or_default();
    with_json(response)
}

pub(crate) fn respond_error(error: &ApiError) -> Response<Body> {
    let mut response = respond(error.code, &error.body());
    if let Some(seconds) = error.retry_after {
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, seconds.into());
    }
    response
}

pub(crate) fn with_json(mut response: Response<Body>) -> Response<Body> {
    let json = header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}
