//! Small accessors for objects that are plain JSON, and the time formats of the API.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

/// `metadata.name`, empty where there is none.
#[must_use]
pub fn name(object: &Value) -> &str {
    meta(object, "name")
}

/// `metadata.namespace`, empty where there is none.
#[must_use]
pub fn namespace(object: &Value) -> &str {
    meta(object, "namespace")
}

/// `metadata.uid`.
#[must_use]
pub fn uid(object: &Value) -> &str {
    meta(object, "uid")
}

/// `metadata.resourceVersion`.
#[must_use]
pub fn resource_version(object: &Value) -> &str {
    meta(object, "resourceVersion")
}

/// `metadata.generation`, 0 where there is none.
#[must_use]
pub fn generation(object: &Value) -> i64 {
    object["metadata"]["generation"].as_i64().unwrap_or(0)
}

/// The value of a label.
#[must_use]
pub fn label<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object["metadata"]["labels"][key].as_str()
}

/// The value of an annotation.
#[must_use]
pub fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object["metadata"]["annotations"][key].as_str()
}

/// Whether deletion was asked for.
#[must_use]
pub fn deleting(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// The ownerReferences, possibly none.
pub fn owners(object: &Value) -> impl Iterator<Item = &Value> {
    list(&object["metadata"]["ownerReferences"]).iter()
}

/// Whether finalizers hold the object back from removal.
#[must_use]
pub fn has_finalizers(object: &Value) -> bool {
    !list(&object["metadata"]["finalizers"]).is_empty()
}

/// A JSON array as a slice; anything else is the empty slice.
#[must_use]
pub fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The status (`True`, `False`, `Unknown`) of a condition in `status.conditions`.
#[must_use]
pub fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a str> {
    list(&object["status"]["conditions"])
        .iter()
        .find(|c| c["type"] == kind)
        .and_then(|c| c["status"].as_str())
}

/// Sets a field of `metadata`, making the parents where they are missing.
pub fn set_meta(object: &mut Value, key: &str, value: impl Into<Value>) {
    map(map_entry(object, "metadata")).insert(key.to_owned(), value.into());
}

/// Sets a label.
pub fn set_label(object: &mut Value, key: &str, value: &str) {
    let meta = map_entry(object, "metadata");
    map(map_entry(meta, "labels")).insert(key.to_owned(), json!(value));
}

/// Sets an annotation.
pub fn set_annotation(object: &mut Value, key: &str, value: &str) {
    let meta = map_entry(object, "metadata");
    map(map_entry(meta, "annotations")).insert(key.to_owned(), json!(value));
}

/// The value as a map; anything else is replaced by an empty one first.
pub(crate) fn map(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(map) => map,
        _ => unreachable!("made an object just above"),
    }
}

/// The value below `key`, a map afterwards.
pub(crate) fn map_entry<'a>(value: &'a mut Value, key: &str) -> &'a mut Value {
    let entry = map(value).entry(key.to_owned()).or_insert(Value::Null);
    map(entry);
    entry
}

fn meta<'a>(object: &'a Value, key: &str) -> &'a str {
    object["metadata"][key].as_str().unwrap_or_default()
}

/// `metav1.Time`: RFC 3339 with whole seconds.
#[must_use]
pub fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// `metav1.MicroTime`: RFC 3339 with microseconds, as in leases and events.
#[must_use]
pub fn micro_time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}
