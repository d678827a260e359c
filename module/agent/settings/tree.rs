//! Settings as a tree of JSON values, whatever they were written in: paths, leaves, one value set.
//! Knows which tables have keys of the user's own, and nothing else about any setting.

use std::fmt;

use serde_json::{Map, Value};

/// Tables whose keys are names that the user chooses; each of their entries is one setting.
const NAMED: [&[&str]; 5] = [
    &["labels"],
    &["windows"],
    &["holds"],
    &["probes"],
    &["journal", "rules"],
];

/// Tables that are one setting as a whole.
const WHOLE: [&[&str]; 1] = [&["scope", "service_selector"]];

/// Where a setting is: `scope.exclude_namespaces`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Path(pub Vec<String>);

impl Path {
    /// The path of these segments.
    pub fn new<S: Into<String>>(segments: impl IntoIterator<Item = S>) -> Self {
        Self(segments.into_iter().map(Into::into).collect())
    }

    /// Whether this setting is the given one or lies below it, both in dotted form.
    pub fn is_under(&self, dotted: &str) -> bool {
        let mut mine = self.0.iter();
        dotted
            .split('.')
            .all(|segment| mine.next().is_some_and(|own| own == segment))
    }

    fn child(&self, name: &str) -> Self {
        let mut segments = self.0.clone();
        segments.push(name.to_owned());
        Self(segments)
    }

    fn is_one_setting(&self) -> bool {
        let whole = WHOLE.iter().any(|table| self.0.iter().eq(table.iter()));
        let named = self
            .0
            .split_last()
            .is_some_and(|(_, above)| NAMED.iter().any(|table| above.iter().eq(table.iter())));
        whole || named
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, segment) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_str(".")?;
            }
            if segment.contains(['.', '"', ' ']) || segment.is_empty() {
                write!(f, "{segment:?}")?;
            } else {
                f.write_str(segment)?;
            }
        }
        Ok(())
    }
}

/// Every setting of a tree with its value.
pub(super) fn leaves(tree: &Value) -> Vec<(Path, &Value)> {
    leaves_like(&Value::Null, tree)
}

/// The same; what is no table in `shape` is one setting here as well, even if it is an object: that
/// is how the twin writes lists.
pub(super) fn leaves_like<'a>(shape: &Value, tree: &'a Value) -> Vec<(Path, &'a Value)> {
    let mut all = Vec::new();
    collect(tree, Path(Vec::new()), shape, &mut all);
    all
}

fn collect<'a>(value: &'a Value, path: Path, shape: &Value, all: &mut Vec<(Path, &'a Value)>) {
    let is_value = get(shape, &path).is_some_and(|own| !own.is_object() && !own.is_null());
    match value {
        Value::Object(table) if !is_value && !path.is_one_setting() => {
            for (key, value) in table {
                collect(value, path.child(key), shape, all);
            }
        }
        _ => all.push((path, value)),
    }
}

/// What is at a path.
pub(super) fn get<'a>(tree: &'a Value, path: &Path) -> Option<&'a Value> {
    path.0
        .iter()
        .try_fold(tree, |value, segment| value.get(segment))
}

/// Puts a value at a path, over whatever is in its way.
pub(super) fn set(tree: &mut Value, path: &Path, value: Value) {
    let mut at = tree;
    for segment in &path.0 {
        if !at.is_object() {
            *at = Value::Object(Map::new());
        }
        let Value::Object(table) = at else { return };
        at = table.entry(segment.clone()).or_insert(Value::Null);
    }
    *at = value;
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn entries_of_named_tables_are_leaves() {
        let tree = json!({
            "mode": "heal",
            "labels": {"a.b": "x"},
            "journal": {"units": ["k3s"], "rules": {"r": {"pattern": "p"}}},
            "scope": {"service_selector": {"app": "m"}},
        });
        let paths: Vec<String> = leaves(&tree)
            .iter()
            .map(|(path, _)| path.to_string())
            .collect();
        assert_eq!(
            paths,
            [
                "journal.rules.r",
                "journal.units",
                "labels.\"a.b\"",
                "mode",
                "scope.service_selector"
            ]
        );
    }

    #[test]
    fn set_makes_the_tables_it_needs() {
        let mut tree = json!({"a": 1});
        let path = Path::new(["a", "b", "c"]);
        set(&mut tree, &path, json!(2));
        assert_eq!(tree, json!({"a": {"b": {"c": 2}}}));
        assert_eq!(get(&tree, &path), Some(&json!(2)));
        assert!(path.is_under("a.b") && path.is_under("a.b.c") && !path.is_under("a.c"));
    }
}
