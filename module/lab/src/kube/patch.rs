//! The patch types of the API: JSON merge patch (RFC 7386), JSON patch (RFC 6902: add, remove,
//! replace, test) and the part of strategic merge patch that the built-in types of the lab need.

use serde_json::Value;

use super::object;
use super::status::ApiError;

/// How a patch body is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PatchKind {
    /// `application/merge-patch+json`.
    Merge,
    /// `application/strategic-merge-patch+json`.
    Strategic,
    /// `application/json-patch+json`.
    Json,
}

impl PatchKind {
    /// Reads the content type of a PATCH.
    ///
    /// # Errors
    /// 415 for what is not taken; server-side apply is one of these.
    pub(crate) fn of(content_type: &str) -> Result<Self, ApiError> {
        let mime = content_type.split(';').next().unwrap_or_default().trim();
        match mime {
            "application/merge-patch+json" => Ok(Self::Merge),
            "application/strategic-merge-patch+json" => Ok(Self::Strategic),
            "application/json-patch+json" => Ok(Self::Json),
            other => Err(ApiError::unsupported_media_type(other)),
        }
    }

    /// Applies the patch to a copy of `target`.
    ///
    /// # Errors
    /// 400 for a malformed JSON patch, 422-like text for a failed test or a missing path.
    pub(crate) fn apply(self, target: &Value, patch: &Value) -> Result<Value, ApiError> {
        let mut out = target.clone();
        match self {
            Self::Merge => merge(&mut out, patch),
            Self::Strategic => strategic(&mut out, patch),
            Self::Json => json_patch(&mut out, patch)?,
        }
        Ok(out)
    }
}

/// JSON merge patch: null removes, maps merge, everything else replaces.
pub(crate) fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    let target = object::map(target);
    for (key, value) in patch {
        if value.is_null() {
            target.remove(key);
        } else {
            merge(target.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

/// Lists that strategic merge joins by a key of their elements; other lists are replaced.
fn merge_key(field: &str) -> Option<&'static str> {
    match field {
        "ownerReferences" => Some("uid"),
        "conditions" => Some("type"),
        "containers" | "initContainers" | "volumes" | "env" => Some("name"),
        "podIPs" | "hostIPs" => Some("ip"),
        _ => None,
    }
}

fn strategic(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if patch.get("$patch").is_some_and(|d| d == "replace") {
        let mut whole = patch.clone();
        whole.remove("$patch");
        *target = Value::Object(whole);
        return;
    }
    let target = object::map(target);
    for (key, value) in patch {
        // Ordering and retention hints of kubectl apply say nothing about content.
        if key.starts_with('$') {
            continue;
        }
        match (value, merge_key(key)) {
            (Value::Null, _) => {
                target.remove(key);
            }
            (Value::Array(items), Some(by)) => {
                let list = target
                    .entry(key.clone())
                    .or_insert_with(|| Value::Array(Vec::new()));
                join(list, items, by);
            }
            _ => strategic(target.entry(key.clone()).or_insert(Value::Null), value),
        }
    }
}

fn join(list: &mut Value, items: &[Value], by: &str) {
    let mut joined = object::list(list).to_vec();
    for item in items {
        let known = joined.iter().position(|have| have[by] == item[by]);
        match (known, item["$patch"] == "delete") {
            (Some(at), true) => {
                joined.remove(at);
            }
            (None, true) => {}
            (Some(at), false) => strategic(&mut joined[at], item),
            (None, false) => joined.push(item.clone()),
        }
    }
    *list = Value::Array(joined);
}

fn json_patch(target: &mut Value, patch: &Value) -> Result<(), ApiError> {
    let Value::Array(steps) = patch else {
        return Err(ApiError::bad_request("a JSON patch is a list of steps"));
    };
    for step in steps {
        let path = step["path"].as_str().unwrap_or_default();
        let missing = || {
            ApiError::bad_request(format!(
                "the server rejected our request due to an error in our request: path {path}"
            ))
        };
        let (parent, last) = path.rsplit_once('/').ok_or_else(missing)?;
        let last = last.replace("~1", "/").replace("~0", "~");
        if step["op"] == "test" {
            if target.pointer(path) != Some(&step["value"]) {
                return Err(ApiError::bad_request(format!(
                    "testing value {path} failed"
                )));
            }
            continue;
        }
        let parent = target.pointer_mut(parent).ok_or_else(missing)?;
        match (step["op"].as_str(), parent) {
            (Some("add"), Value::Object(map)) => {
                map.insert(last, step["value"].clone());
            }
            (Some("replace"), Value::Object(map)) if map.contains_key(&last) => {
                map.insert(last, step["value"].clone());
            }
            (Some("remove"), Value::Object(map)) => {
                map.remove(&last).ok_or_else(missing)?;
            }
            (Some("add"), Value::Array(list)) if last == "-" => list.push(step["value"].clone()),
            (Some(op), Value::Array(list)) => {
                let at: usize = last.parse().map_err(|_| missing())?;
                match op {
                    "add" if at <= list.len() => list.insert(at, step["value"].clone()),
                    "replace" if at < list.len() => list[at] = step["value"].clone(),
                    "remove" if at < list.len() => {
                        list.remove(at);
                    }
                    _ => return Err(missing()),
                }
            }
            _ => return Err(missing()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn merge_patch_as_in_the_rfc() {
        let before = json!({"a": {"b": 1, "c": [1, 2]}, "d": "x"});
        let after = PatchKind::Merge
            .apply(&before, &json!({"a": {"b": null, "c": [3]}, "e": {"f": 1}}))
            .unwrap();
        assert_eq!(after, json!({"a": {"c": [3]}, "d": "x", "e": {"f": 1}}));
    }

    #[test]
    fn strategic_joins_conditions_by_type() {
        let before = json!({"status": {"conditions": [
            {"type": "Ready", "status": "True"}, {"type": "Initialized", "status": "True"}]}});
        let patch = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
        let after = PatchKind::Strategic.apply(&before, &patch).unwrap();
        assert_eq!(
            after,
            json!({"status": {"conditions": [
                {"type": "Ready", "status": "False"}, {"type": "Initialized", "status": "True"}]}})
        );
    }

    #[test]
    fn json_patch_steps() {
        let before = json!({"metadata": {"labels": {"a/b": "1"}}, "list": [1, 2]});
        let patch = json!([
            {"op": "test", "path": "/metadata/labels/a~1b", "value": "1"},
            {"op": "replace", "path": "/metadata/labels/a~1b", "value": "2"},
            {"op": "add", "path": "/list/-", "value": 3},
            {"op": "remove", "path": "/list/0"},
        ]);
        let after = PatchKind::Json.apply(&before, &patch).unwrap();
        assert_eq!(
            after,
            json!({"metadata": {"labels": {"a/b": "2"}}, "list": [2, 3]})
        );
        let failed = json!([{"op": "test", "path": "/list/0", "value": 9}]);
        assert!(PatchKind::Json.apply(&before, &failed).is_err());
    }
}
