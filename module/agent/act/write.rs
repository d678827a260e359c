//! The two writes that heal: the refresh of a Service and the deletion of a slice.

use http::Method;
use serde_json::json;
use slice_core::event::Outcome;
use slice_core::model::{Service, ServiceKey, Slice};

use super::call::{Caller, Failure, Payload, Target};
use super::{FIELD_MANAGER, REFRESH};
use crate::client::objects::collection;

/// What a slice must still be for its deletion to go through.
pub(super) struct Version<'a> {
    pub(super) uid: &'a str,
    pub(super) resource_version: &'a str,
}

/// Sets the refresh annotation, and nothing else. The uid goes with the patch: the API server
/// refuses to change it, so that a Service recreated under the name stays untouched.
pub(super) async fn refresh(
    caller: &Caller,
    service: &ServiceKey,
    uid: &str,
    value: &str,
) -> Outcome {
    let target = Target::new("patch", format!("services {service}"));
    let services = collection::<Service>(Some(&service.namespace));
    let path = format!("{services}/{}?fieldManager={FIELD_MANAGER}", service.name);
    let patch = json!({"metadata": {"uid": uid, "annotations": {REFRESH: value}}});
    written(
        caller
            .send(&target, &Method::PATCH, &path, Payload::Merge(&patch))
            .await,
    )
}

/// Deletes the slice, if it is still exactly the one that was judged.
pub(super) async fn delete(
    caller: &Caller,
    namespace: &str,
    name: &str,
    version: Version<'_>,
) -> Outcome {
    let target = Target::new("delete", format!("endpointslices {namespace}/{name}"));
    let path = format!("{}/{name}", collection::<Slice>(Some(namespace)));
    let options = json!({
        "kind": "DeleteOptions",
        "apiVersion": "v1",
        "preconditions": {"uid": version.uid, "resourceVersion": version.resource_version},
    });
    written(
        caller
            .send(&target, &Method::DELETE, &path, Payload::Json(&options))
            .await,
    )
}

fn written<T>(result: Result<T, Failure>) -> Outcome {
    match result {
        Ok(_) => Outcome::Written,
        Err(failure) => failure.outcome(),
    }
}
