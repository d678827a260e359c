//! Objects of the rig as Kubernetes has them.

use serde_json::{Value, json};
use slice_core::model::{Kind, Object};

use super::NS;

pub(crate) fn slice_name(service: &str) -> String {
    format!("{service}-abc12")
}

pub(super) fn endpoint(pod: &Value) -> Value {
    let meta = &pod["metadata"];
    json!({"addresses": [pod["status"]["podIP"]], "nodeName": pod["spec"]["nodeName"],
        "conditions": {"ready": true, "serving": true, "terminating": false},
        "targetRef": {"kind": "Pod", "namespace": NS, "name": meta["name"], "uid": meta["uid"]}})
}

pub(super) fn decode(kind: Kind, object: Value) -> Object {
    let fits = "a fixture decodes";
    match kind {
        Kind::Service => Object::Service(serde_json::from_value(object).expect(fits)),
        Kind::Pod => Object::Pod(serde_json::from_value(object).expect(fits)),
        Kind::Node => Object::Node(serde_json::from_value(object).expect(fits)),
        Kind::EndpointSlice => Object::Slice(serde_json::from_value(object).expect(fits)),
        Kind::Endpoints => Object::Endpoints(serde_json::from_value(object).expect(fits)),
        Kind::Namespace => Object::Namespace(serde_json::from_value(object).expect(fits)),
    }
}
