//! What the hub accepts in reported properties, checked before anything is sent.
//!
//! edgeHub acknowledges a patch before the cloud has seen it; one that the cloud refuses blocks all
//! later ones. So a document that could be refused must not leave this process. The numbers are
//! IoT Hub's limits for module twins.

use serde_json::{Map, Number, Value};
use thiserror::Error;

const KEY_BYTES: usize = 1_024;
const STRING_BYTES: usize = 4_096;
const DEPTH: usize = 10;
const INTEGER_MAX: i64 = 4_503_599_627_370_495;
const INTEGER_MIN: i64 = -4_503_599_627_370_496;

/// A reported document that must not be sent. The document before it stays in force.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ReportError {
    /// The top level is not an object.
    #[error("reported properties are a JSON object, this is not one")]
    NotAnObject,
    /// The document is larger than the budget.
    #[error("the reported document has {size} bytes, the budget is {budget}: report less")]
    TooLarge {
        /// Bytes as [`document_size`] counts them.
        size: usize,
        /// The limit.
        budget: usize,
    },
    /// One value breaks a rule of the hub.
    #[error("reported property {path}: {reason}")]
    Value {
        /// Keys down to the value, joined with `/`.
        path: String,
        /// The rule.
        reason: &'static str,
    },
    /// The client has stopped.
    #[error("the client has stopped")]
    Stopped,
}

/// Writes `key` so that the hub accepts it: `.`, `$`, `#`, space and control characters become
/// `%2E` and so on. A key without them stays as it is, so escaping twice does no harm.
pub fn escape_key(key: &str) -> String {
    let mut escaped = String::with_capacity(key.len());
    for c in key.chars() {
        if matches!(c, '.' | '$' | '#' | ' ') || c.is_control() {
            let mut bytes = [0; 4];
            for byte in c.encode_utf8(&mut bytes).bytes() {
                escaped.push_str(&format!("%{byte:02X}"));
            }
        } else {
            escaped.push(c);
        }
    }
    escaped
}

/// [`escape_key`] for every key of a document.
pub fn escape_document(value: Value) -> Value {
    match value {
        Value::Object(fields) => Value::Object(
            fields
                .into_iter()
                .map(|(k, v)| (escape_key(&k), escape_document(v)))
                .collect(),
        ),
        Value::Array(items) => Value::Array(items.into_iter().map(escape_document).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value,
    }
}

/// Size of a document in bytes: the larger of its JSON text and of the hub's own count (strings
/// and keys by length, 8 for a number, 4 for a boolean).
pub fn document_size(document: &Value) -> usize {
    document.to_string().len().max(hub_count(document))
}

fn hub_count(value: &Value) -> usize {
    match value {
        Value::Null => 0,
        Value::Bool(_) => 4,
        Value::Number(_) => 8,
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(hub_count).sum(),
        Value::Object(fields) => fields.iter().map(|(k, v)| k.len() + hub_count(v)).sum(),
    }
}

/// Checks a whole reported document against the hub's rules and `budget` bytes.
///
/// # Errors
/// The first rule that is broken, with the place.
pub fn check_document(document: &Value, budget: usize) -> Result<(), ReportError> {
    let Value::Object(fields) = document else {
        return Err(ReportError::NotAnObject);
    };
    check_fields(fields, &mut Vec::new())?;
    let size = document_size(document);
    if size > budget {
        return Err(ReportError::TooLarge { size, budget });
    }
    Ok(())
}

fn check_fields(fields: &Map<String, Value>, path: &mut Vec<String>) -> Result<(), ReportError> {
    for (key, value) in fields {
        path.push(key.clone());
        if path.len() > DEPTH {
            return broken(path, "is nested deeper than 10 levels");
        }
        if key.is_empty() {
            return broken(path, "has an empty key");
        }
        if key.len() > KEY_BYTES {
            return broken(path, "has a key of more than 1024 bytes");
        }
        if key
            .chars()
            .any(|c| matches!(c, '.' | '$' | '#' | ' ') || c.is_control())
        {
            return broken(path, "has . $ # space or a control character in its key");
        }
        check_value(value, path)?;
        path.pop();
    }
    Ok(())
}

fn check_value(value: &Value, path: &mut Vec<String>) -> Result<(), ReportError> {
    match value {
        Value::Null => broken(path, "is null, which means removal: leave the key out"),
        Value::Number(number) if !number_fits(number) => {
            broken(path, "is an integer outside of -2^52 to 2^52-1")
        }
        Value::String(text) if text.len() > STRING_BYTES => {
            broken(path, "is a text of more than 4096 bytes")
        }
        Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
        Value::Object(fields) => check_fields(fields, path),
        Value::Array(items) => {
            path.push("[]".to_owned());
            if path.len() > DEPTH {
                return broken(path, "is nested deeper than 10 levels");
            }
            items.iter().try_for_each(|item| check_value(item, path))?;
            path.pop();
            Ok(())
        }
    }
}

fn number_fits(number: &Number) -> bool {
    match (number.as_i64(), number.is_f64()) {
        (Some(integer), _) => (INTEGER_MIN..=INTEGER_MAX).contains(&integer),
        (None, is_float) => is_float,
    }
}

fn broken(path: &[String], reason: &'static str) -> Result<(), ReportError> {
    let path = path.join("/").chars().take(200).collect();
    Err(ReportError::Value { path, reason })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn reason(document: &Value) -> String {
        check_document(document, 1 << 20).unwrap_err().to_string()
    }

    #[test]
    fn escaping_makes_any_key_acceptable_and_is_idempotent() {
        let key = "line 1/model.v2#$\u{7}";
        let escaped = escape_key(key);
        assert_eq!(escaped, "line%201/model%2Ev2%23%24%07");
        assert_eq!(escape_key(&escaped), escaped);
        let document = escape_document(json!({"a.b": [{"c d": 1}], "e": {"$f": true}}));
        assert_eq!(
            document,
            json!({"a%2Eb": [{"c%20d": 1}], "e": {"%24f": true}})
        );
        assert_eq!(check_document(&document, 1_000), Ok(()));
    }

    #[test]
    fn every_rule_of_the_hub_is_checked() {
        let mut deep = json!(1);
        for _ in 0..10 {
            deep = json!({"k": deep});
        }
        assert_eq!(check_document(&deep, 1_000), Ok(()));
        assert!(reason(&json!({"k": deep})).contains("10 levels"));
        assert!(reason(&json!({"a.b": 1})).contains("a.b"));
        assert!(reason(&json!({"": 1})).contains("empty"));
        assert!(reason(&json!({"k".repeat(1_025): 1})).contains("1024"));
        assert!(reason(&json!({"k": "x".repeat(4_097)})).contains("4096"));
        assert!(reason(&json!({"k": 4_503_599_627_370_496_i64})).contains("2^52"));
        assert!(reason(&json!({"k": -4_503_599_627_370_497_i64})).contains("2^52"));
        assert!(reason(&json!({"k": u64::MAX})).contains("2^52"));
        assert!(reason(&json!({"k": {"l": null}})).contains("k/l"));
        assert!(reason(&json!({"k": [1, null]})).contains("null"));
        assert_eq!(check_document(&json!([]), 9), Err(ReportError::NotAnObject));
        let edge = json!({"k": "x".repeat(4_096), "i": 4_503_599_627_370_495_i64, "f": 1e300});
        assert_eq!(check_document(&edge, 10_000), Ok(()));
    }

    #[test]
    fn the_budget_counts_like_the_stricter_of_text_and_hub() {
        // JSON text 7, hub 9.
        assert_eq!(document_size(&json!({"a": 1})), 9);
        // JSON text 9, hub 2.
        assert_eq!(document_size(&json!({"a": "b"})), 9);
        let document = json!({"k": "x".repeat(100)});
        assert!(check_document(&document, 108).is_ok());
        assert_eq!(
            check_document(&document, 107),
            Err(ReportError::TooLarge {
                size: 108,
                budget: 107
            })
        );
    }
}
