//! Label and field selectors, as lists, watches and collection deletes take them.

use serde_json::Value;

use super::object;
use super::status::ApiError;

/// One requirement on a label.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Requirement {
    Equals(String, String),
    NotEquals(String, String),
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    Absent(String),
}

/// A conjunction of label and field requirements; the empty one matches everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selector {
    labels: Vec<Requirement>,
    /// Dotted path, wanted text, whether equality is wanted.
    fields: Vec<(String, String, bool)>,
}

impl Selector {
    /// Parses the two query parameters.
    ///
    /// # Errors
    /// 400 where a selector cannot be parsed.
    pub fn parse(labels: &str, fields: &str) -> Result<Self, ApiError> {
        Ok(Self {
            labels: split_terms(labels)
                .into_iter()
                .map(|term| parse_label(&term))
                .collect::<Result<_, _>>()?,
            fields: fields
                .split(',')
                .map(str::trim)
                .filter(|term| !term.is_empty())
                .map(parse_field)
                .collect::<Result<_, _>>()?,
        })
    }

    /// A selector of equal labels, as a Service's `spec.selector` is.
    #[must_use]
    pub fn labels<K: Into<String>, V: Into<String>>(
        pairs: impl IntoIterator<Item = (K, V)>,
    ) -> Self {
        Self {
            labels: pairs
                .into_iter()
                .map(|(k, v)| Requirement::Equals(k.into(), v.into()))
                .collect(),
            fields: Vec::new(),
        }
    }

    /// The same, for one object name only.
    #[must_use]
    pub fn with_name(mut self, name: &str) -> Self {
        self.fields
            .push(("metadata.name".to_owned(), name.to_owned(), true));
        self
    }

    /// Whether the object meets every requirement.
    #[must_use]
    pub fn matches(&self, candidate: &Value) -> bool {
        self.labels.iter().all(|req| {
            let label = |key: &str| object::label(candidate, key);
            match req {
                Requirement::Equals(k, v) => label(k) == Some(v),
                Requirement::NotEquals(k, v) => label(k) != Some(v),
                Requirement::In(k, vs) => label(k).is_some_and(|l| vs.iter().any(|v| v == l)),
                Requirement::NotIn(k, vs) => label(k).is_none_or(|l| vs.iter().all(|v| v != l)),
                Requirement::Exists(k) => label(k).is_some(),
                Requirement::Absent(k) => label(k).is_none(),
            }
        }) && self.fields.iter().all(|(path, want, equal)| {
            let pointer = format!("/{}", path.replace('.', "/"));
            let got = candidate.pointer(&pointer).and_then(Value::as_str);
            (got.unwrap_or_default() == want) == *equal
        })
    }
}

/// Splits at commas that are outside of parentheses.
fn split_terms(text: &str) -> Vec<String> {
    let mut terms = vec![String::new()];
    let mut depth = 0_u32;
    for c in text.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                terms.push(String::new());
                continue;
            }
            _ => {}
        }
        if let Some(term) = terms.last_mut() {
            term.push(c);
        }
    }
    terms.retain(|term| !term.trim().is_empty());
    terms
}

fn parse_label(term: &str) -> Result<Requirement, ApiError> {
    let term = term.trim();
    let bad = || ApiError::bad_request(format!("unable to parse requirement: {term}"));
    let own = |text: &str| text.trim().to_owned();
    // The key comes first in every form but one; what begins with an operator has none.
    let key = term.strip_prefix('!').unwrap_or(term).trim_start();
    if !key.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return Err(bad());
    }
    if let Some((k, v)) = term.split_once("!=") {
        return Ok(Requirement::NotEquals(own(k), own(v)));
    }
    if let Some((k, v)) = term.split_once("==").or_else(|| term.split_once('=')) {
        return Ok(Requirement::Equals(own(k), own(v)));
    }
    if let Some((head, list)) = term.split_once('(') {
        let list = list.strip_suffix(')').ok_or_else(bad)?;
        let values = list.split(',').map(own).collect();
        let mut words = head.split_whitespace();
        return match (words.next(), words.next(), words.next()) {
            (Some(k), Some("in"), None) => Ok(Requirement::In(own(k), values)),
            (Some(k), Some("notin"), None) => Ok(Requirement::NotIn(own(k), values)),
            _ => Err(bad()),
        };
    }
    if term.contains(char::is_whitespace) {
        return Err(bad());
    }
    Ok(match term.strip_prefix('!') {
        Some(k) => Requirement::Absent(own(k)),
        None => Requirement::Exists(own(term)),
    })
}

fn parse_field(term: &str) -> Result<(String, String, bool), ApiError> {
    let (path, want, equal) = if let Some((k, v)) = term.split_once("!=") {
        (k, v, false)
    } else if let Some((k, v)) = term.split_once("==").or_else(|| term.split_once('=')) {
        (k, v, true)
    } else {
        return Err(ApiError::bad_request(format!(
            "invalid field selector: {term}"
        )));
    };
    Ok((path.trim().to_owned(), want.trim().to_owned(), equal))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn matches(labels: &str, fields: &str) -> bool {
        let pod = json!({
            "metadata": {"name": "a", "namespace": "x", "labels": {"app": "web", "tier": "1"}},
            "spec": {"nodeName": "n1"},
        });
        Selector::parse(labels, fields).unwrap().matches(&pod)
    }

    #[test]
    fn label_requirements() {
        assert!(matches("", ""));
        assert!(matches("app=web,tier==1", ""));
        assert!(!matches("app=web,tier=2", ""));
        assert!(matches("app in (db, web),tier notin (2)", ""));
        assert!(!matches("app in (db)", ""));
        assert!(matches("app,!gone", ""));
        assert!(!matches("!app", ""));
        assert!(matches("app!=db,gone!=x", ""));
        assert!(matches("gone notin (a)", ""));
        assert!(Selector::parse("app in web", "").is_err());
        assert!(Selector::parse("===", "").is_err());
    }

    #[test]
    fn field_requirements() {
        assert!(matches("", "metadata.name=a,spec.nodeName=n1"));
        assert!(!matches("", "metadata.name!=a"));
        assert!(matches("", "status.phase!=Failed"));
        assert!(Selector::parse("", "metadata.name").is_err());
    }
}
