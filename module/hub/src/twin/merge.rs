//! JSON merge patch (RFC 7396): applying one, and finding the smallest one between two documents.

use serde_json::{Map, Value};

/// Applies `patch` to `target`: null removes, objects merge, everything else replaces.
pub fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(changes) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(fields) = target else {
        return;
    };
    for (key, change) in changes {
        if change.is_null() {
            fields.remove(key);
        } else {
            merge(fields.entry(key.clone()).or_insert(Value::Null), change);
        }
    }
}

/// The smallest merge patch that turns `from` into `to`, or `None` when they are equal.
///
/// Arrays are replaced as a whole. Neither document may hold a null, which a merge patch cannot say.
pub fn diff(from: &Value, to: &Value) -> Option<Value> {
    let (Value::Object(old), Value::Object(new)) = (from, to) else {
        return (from != to).then(|| to.clone());
    };
    let mut patch = Map::new();
    for key in old.keys().filter(|key| !new.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    for (key, value) in new {
        let change = match old.get(key) {
            None => Some(value.clone()),
            // A merge into a value that is not an object starts from an empty one.
            Some(before) if before.is_object() == value.is_object() => diff(before, value),
            Some(_) => Some(value.clone()),
        };
        if let Some(change) = change {
            patch.insert(key.clone(), change);
        }
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

/// Takes out what the hub adds: keys that start with `$` (`$version`, `$metadata`), at every level.
pub fn strip_hub_keys(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|key, _| !key.starts_with('$'));
            fields.values_mut().for_each(strip_hub_keys);
        }
        Value::Array(items) => items.iter_mut().for_each(strip_hub_keys),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn merges_as_the_rfc_says() {
        for (target, patch, result) in [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b"}), json!({"a": null}), json!({})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (
                json!({"a": {"b": "c"}}),
                json!({"a": {"b": "d", "c": null}}),
                json!({"a": {"b": "d"}}),
            ),
            (
                json!({"a": "foo"}),
                json!({"a": {"bb": {"ccc": null}}}),
                json!({"a": {"bb": {}}}),
            ),
            (
                json!({"e": 1}),
                json!({"a": {"b": null}}),
                json!({"e": 1, "a": {}}),
            ),
        ] {
            let mut merged = target.clone();
            merge(&mut merged, &patch);
            assert_eq!(merged, result, "{target} + {patch}");
        }
    }

    #[test]
    fn a_patch_is_minimal_and_nulls_what_vanished() {
        let from = json!({"a": {"x": 1, "y": 2}, "gone": {"deep": true}, "same": "s"});
        let to = json!({"a": {"x": 1, "y": 3}, "same": "s", "new": {"k": "v"}});
        assert_eq!(
            diff(&from, &to),
            Some(json!({"a": {"y": 3}, "gone": null, "new": {"k": "v"}}))
        );
        assert_eq!(diff(&to, &to), None);
    }

    #[test]
    fn hub_keys_go_at_every_level() {
        let mut value = json!({"$version": 3, "a": {"$metadata": {}, "b": 1}, "l": [{"$x": 1}]});
        strip_hub_keys(&mut value);
        assert_eq!(value, json!({"a": {"b": 1}, "l": [{}]}));
    }

    /// A document without nulls, as a twin section is.
    pub(crate) fn document() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            "[a-z]{0,6}".prop_map(Value::from),
        ];
        let node = leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                proptest::collection::btree_map("[a-d]", inner, 0..4)
                    .prop_map(|m| Value::Object(m.into_iter().collect())),
            ]
        });
        proptest::collection::btree_map("[a-d]", node, 0..5)
            .prop_map(|m| Value::Object(m.into_iter().collect()))
    }

    proptest! {
        #[test]
        fn the_patch_leads_there(from in document(), to in document()) {
            let mut reached = from.clone();
            if let Some(patch) = diff(&from, &to) {
                merge(&mut reached, &patch);
            }
            prop_assert_eq!(reached, to);
        }
    }
}
