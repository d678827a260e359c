//! Twin documents: merge, difference, and the rules that edgeHub and the cloud check before they
//! take one. Pure functions over JSON objects.

use serde_json::{Map, Value};

/// A JSON object.
pub(crate) type Document = Map<String, Value>;

const MAX_DEPTH: usize = 10;
const MAX_KEY: usize = 1024;
const MAX_STRING: usize = 4096;
const MAX_DOCUMENT: usize = 32 * 1024;
/// Integers of a twin are limited to 2^52 either way.
const INTEGERS: std::ops::RangeInclusive<i64> = -4_503_599_627_370_496..=4_503_599_627_370_495;

/// What a null in a patch does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nulls {
    /// It deletes the key.
    Delete,
    /// It stays, so that it still deletes when the merged patch is applied later.
    Keep,
}

/// Merges `patch` into `target`, objects recursively.
pub(crate) fn merge(target: &mut Document, patch: &Document, nulls: Nulls) {
    for (key, value) in patch {
        match value {
            Value::Null if nulls == Nulls::Delete => {
                target.remove(key);
            }
            Value::Object(inner) => {
                if !matches!(target.get(key), Some(Value::Object(_))) {
                    target.insert(key.clone(), Value::Object(Document::new()));
                }
                if let Some(Value::Object(below)) = target.get_mut(key) {
                    merge(below, inner, nulls);
                }
            }
            _ => {
                target.insert(key.clone(), value.clone());
            }
        }
    }
}

/// The patch that turns `from` into `to`: nulls for what vanished.
pub(crate) fn diff(from: &Document, to: &Document) -> Document {
    let mut patch = Document::new();
    for key in from.keys().filter(|key| !to.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    for (key, new) in to {
        match (from.get(key), new) {
            (Some(old), new) if old == new => {}
            (Some(Value::Object(old)), Value::Object(new)) => {
                patch.insert(key.clone(), Value::Object(diff(old, new)));
            }
            (_, new) => {
                patch.insert(key.clone(), new.clone());
            }
        }
    }
    patch
}

/// The patch of a full replacement as the hub sends it: every new key, nulls for the ones removed.
pub(crate) fn replacement(from: &Document, to: &Document) -> Document {
    let mut patch = diff(from, to);
    for (key, value) in to {
        patch.entry(key.clone()).or_insert_with(|| value.clone());
    }
    patch
}

/// edgeHub's check of one reported patch: names, values, depth, and 32 KiB of JSON text.
///
/// # Errors
/// The rule that is broken; edgeHub then answers 400.
pub(crate) fn check_patch(patch: &Document) -> Result<(), String> {
    check_object(patch, 1, true)?;
    let size = Value::Object(patch.clone()).to_string().len();
    if size > MAX_DOCUMENT {
        return Err(format!("patch of {size} bytes is over {MAX_DOCUMENT}"));
    }
    Ok(())
}

/// The cloud's check of a whole section (desired or reported) after a merge.
///
/// # Errors
/// The rule that is broken.
pub(crate) fn check_section(document: &Document) -> Result<(), String> {
    check_object(document, 1, false)?;
    let size = hub_size(document);
    if size > MAX_DOCUMENT {
        return Err(format!(
            "twin section of {size} bytes is over {MAX_DOCUMENT}"
        ));
    }
    Ok(())
}

/// Size by the hub's rule: keys and strings by their UTF-8 length without control characters,
/// numbers 8 bytes, booleans 4.
pub(crate) fn hub_size(document: &Document) -> usize {
    fn text(text: &str) -> usize {
        text.chars()
            .filter(|c| !c.is_control())
            .map(char::len_utf8)
            .sum()
    }
    fn value(item: &Value) -> usize {
        match item {
            Value::Null => 0,
            Value::Bool(_) => 4,
            Value::Number(_) => 8,
            Value::String(string) => text(string),
            Value::Array(items) => items.iter().map(value).sum(),
            Value::Object(object) => hub_size(object),
        }
    }
    document
        .iter()
        .map(|(key, item)| text(key) + value(item))
        .sum()
}

fn check_object(object: &Document, depth: usize, edge_hub: bool) -> Result<(), String> {
    if depth > MAX_DEPTH {
        return Err(format!("nested deeper than {MAX_DEPTH}"));
    }
    for (key, value) in object {
        check_key(key, edge_hub)?;
        check_value(key, value, depth, edge_hub, false)?;
    }
    Ok(())
}

fn check_key(key: &str, edge_hub: bool) -> Result<(), String> {
    if key.len() > MAX_KEY {
        return Err(format!("key of {} bytes is over {MAX_KEY}", key.len()));
    }
    let bad = |c: char| {
        c.is_control() || c.is_whitespace() || c == '.' || c == '$' || (edge_hub && c == '#')
    };
    match key.chars().find(|c| bad(*c)) {
        Some(c) => Err(format!("key `{key}` has the character {c:?}")),
        None => Ok(()),
    }
}

fn check_value(
    key: &str,
    value: &Value,
    depth: usize,
    edge_hub: bool,
    in_array: bool,
) -> Result<(), String> {
    match value {
        Value::Null if in_array => Err(format!("`{key}` has a null inside an array")),
        Value::Null | Value::Bool(_) => Ok(()),
        Value::Number(number) => {
            let integer = number.is_i64() || number.is_u64();
            let fits = number
                .as_i64()
                .is_some_and(|value| INTEGERS.contains(&value));
            if integer && !fits {
                Err(format!("`{key}`: {number} is beyond 2^52"))
            } else {
                Ok(())
            }
        }
        Value::String(text) if text.len() > MAX_STRING => Err(format!(
            "`{key}`: text of {} bytes is over {MAX_STRING}",
            text.len()
        )),
        Value::String(_) => Ok(()),
        Value::Array(items) => items
            .iter()
            .try_for_each(|item| check_value(key, item, depth, edge_hub, true)),
        Value::Object(object) => {
            if in_array && object.values().any(Value::is_null) {
                return Err(format!("`{key}` has a null inside an array"));
            }
            check_object(object, depth + 1, edge_hub)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn doc(value: Value) -> Document {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn a_merge_deletes_or_keeps_nulls() {
        let patch = doc(json!({"a": null, "b": {"c": null, "d": 1}, "e": {"f": null}}));
        let mut stored = doc(json!({"a": 1, "b": {"c": 2}}));
        merge(&mut stored, &patch, Nulls::Delete);
        assert_eq!(Value::Object(stored), json!({"b": {"d": 1}, "e": {}}));
        let mut pending = doc(json!({"a": 1, "b": {"c": 2}}));
        merge(&mut pending, &patch, Nulls::Keep);
        assert_eq!(
            Value::Object(pending),
            json!({"a": null, "b": {"c": null, "d": 1}, "e": {"f": null}})
        );
    }

    #[test]
    fn a_difference_applied_gives_the_target() {
        let from = doc(json!({"same": 1, "gone": 1, "in": {"x": 1, "y": 2}, "kind": {"a": 1}}));
        let to = doc(json!({"same": 1, "new": [1], "in": {"x": 1, "y": 3}, "kind": 5}));
        let patch = diff(&from, &to);
        assert_eq!(
            Value::Object(patch.clone()),
            json!({"gone": null, "new": [1], "in": {"y": 3}, "kind": 5})
        );
        let mut applied = from.clone();
        merge(&mut applied, &patch, Nulls::Delete);
        assert_eq!(applied, to);
        assert_eq!(replacement(&from, &to)["same"], json!(1));
    }

    #[test]
    fn what_the_hub_refuses_is_refused() {
        let deep = (0..10).fold(json!(1), |inner, _| json!({"d": inner}));
        assert!(check_patch(&doc(deep.clone())).is_ok());
        let bad = [
            json!({"d": deep}),
            json!({"a.b": 1}),
            json!({"a$": 1}),
            json!({"a b": 1}),
            json!({"a#": 1}),
            json!({"a": [1, null]}),
            json!({"a": [{"b": null}]}),
            json!({"a": 4_503_599_627_370_496i64}),
            json!({"a": u64::MAX}),
            json!({"a": "x".repeat(4097)}),
            json!({"k".repeat(1025): 1}),
        ];
        for value in bad {
            assert!(check_patch(&doc(value.clone())).is_err(), "{value}");
        }
        assert!(
            check_patch(&doc(
                json!({"a": null, "b": -4_503_599_627_370_496i64, "c": 1.5, "d": [[1]]})
            ))
            .is_ok()
        );
        assert!(check_section(&doc(json!({"a#": 1}))).is_ok());
    }

    #[test]
    fn sizes_follow_the_hub_and_not_the_json_text() {
        assert_eq!(
            hub_size(&doc(
                json!({"key": "é\n", "n": 123_456_789_012i64, "b": true})
            )),
            3 + 2 + 1 + 8 + 1 + 4
        );
        let many: Document = (0..9)
            .map(|n| (format!("k{n}"), json!("x".repeat(4000))))
            .collect();
        assert!(check_section(&many).is_err());
    }
}
