//! edgeHub's routes: `FROM source [WHERE condition] INTO sink`. The part of the language that
//! deployments use is read, anything else is refused at start rather than ignored.

use serde_json::Value;

use super::error::EdgeError;
use super::message::Bag;

/// Where a route leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Sink {
    /// `$upstream`: the cloud.
    Upstream,
    /// `BrokeredEndpoint("/modules/m/inputs/i")`: module and input.
    Input(String, String),
}

/// One route.
#[derive(Debug, Clone)]
pub(crate) struct Route {
    /// Lower-case prefix of the message source.
    source: String,
    terms: Vec<Term>,
    pub(crate) sink: Sink,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Term {
    field: Field,
    equal: bool,
    value: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Field {
    Property(String),
    Body(Vec<String>),
}

impl Route {
    /// Reads a route.
    ///
    /// # Errors
    /// [`EdgeError::Route`] with the part that is not understood.
    pub(crate) fn parse(text: &str) -> Result<Self, EdgeError> {
        let fail = |reason: &str| EdgeError::Route {
            route: text.into(),
            reason: reason.into(),
        };
        let upper = text.to_ascii_uppercase();
        let rest = upper.starts_with("FROM ").then(|| &text[5..]);
        let rest = rest.ok_or_else(|| fail("does not start with FROM"))?;
        let into = upper[5..]
            .rfind(" INTO ")
            .ok_or_else(|| fail("has no INTO"))?;
        let (left, sink) = (&rest[..into], rest[into + 6..].trim());
        let (source, condition) = match left.to_ascii_uppercase().find(" WHERE ") {
            Some(at) => (&left[..at], Some(&left[at + 7..])),
            None => (left, None),
        };
        let terms = condition
            .map_or(Ok(Vec::new()), terms)
            .map_err(|reason| fail(&reason))?;
        let source = source.trim();
        if !source.starts_with('/') {
            return Err(fail("the source does not start with /"));
        }
        let sink = sink_of(sink)
            .ok_or_else(|| fail("the sink is neither $upstream nor BrokeredEndpoint"))?;
        Ok(Self {
            source: source.trim_end_matches('*').to_ascii_lowercase(),
            terms,
            sink,
        })
    }

    /// Whether a message of `module` takes this route.
    pub(crate) fn takes(&self, module: &str, bag: &Bag, body: &[u8]) -> bool {
        let source = match bag.system.get("on") {
            Some(output) => format!("/messages/modules/{module}/outputs/{output}"),
            None => format!("/messages/modules/{module}"),
        };
        source.to_ascii_lowercase().starts_with(&self.source)
            && self.terms.iter().all(|term| term.holds(bag, body))
    }
}

impl Term {
    fn holds(&self, bag: &Bag, body: &[u8]) -> bool {
        let actual = match &self.field {
            Field::Property(name) => bag.properties.get(name).cloned(),
            Field::Body(path) if bag.body_readable() => body_field(body, path),
            Field::Body(_) => None,
        };
        // A missing field is undefined: neither equal nor unequal.
        actual.is_some_and(|actual| (actual == self.value) == self.equal)
    }
}

fn body_field(body: &[u8], path: &[String]) -> Option<String> {
    let document: Value = serde_json::from_slice(body).ok()?;
    let found = path
        .iter()
        .try_fold(&document, |value, key| value.get(key))?;
    Some(
        found
            .as_str()
            .map_or_else(|| found.to_string(), str::to_owned),
    )
}

fn sink_of(text: &str) -> Option<Sink> {
    if text.eq_ignore_ascii_case("$upstream") {
        return Some(Sink::Upstream);
    }
    let argument = text
        .strip_prefix("BrokeredEndpoint(")?
        .strip_suffix(')')?
        .trim();
    let path = argument
        .trim_matches(['"', '\''])
        .strip_prefix("/modules/")?;
    let (module, input) = path.split_once("/inputs/")?;
    (!module.is_empty() && !input.is_empty()).then(|| Sink::Input(module.into(), input.into()))
}

fn terms(text: &str) -> Result<Vec<Term>, String> {
    let mut terms = Vec::new();
    for part in split_and(text) {
        let part = part.trim();
        if part.eq_ignore_ascii_case("true") {
            continue;
        }
        let (left, equal, right) = [("<>", false), ("!=", false), ("=", true)]
            .into_iter()
            .find_map(|(sign, equal)| {
                part.split_once(sign)
                    .map(|(left, right)| (left.trim(), equal, right.trim()))
            })
            .ok_or_else(|| format!("condition `{part}` is not understood"))?;
        let name = |c: char| c.is_ascii_alphanumeric() || "_.-$".contains(c);
        if left.is_empty() || !left.chars().all(name) {
            return Err(format!("field `{left}` is not understood"));
        }
        let quoted =
            right.len() >= 2 && right.starts_with(['\'', '"']) && right.ends_with(['\'', '"']);
        let value = if quoted {
            &right[1..right.len() - 1]
        } else {
            right
        };
        let field = match left.strip_prefix("$body.") {
            Some(path) => Field::Body(path.split('.').map(str::to_owned).collect()),
            None if left.starts_with('$') => return Err(format!("field `{left}` is not known")),
            None => Field::Property(left.to_owned()),
        };
        terms.push(Term {
            field,
            equal,
            value: value.to_owned(),
        });
    }
    Ok(terms)
}

fn split_and(text: &str) -> Vec<&str> {
    let upper = text.to_ascii_uppercase();
    let mut parts = Vec::new();
    let mut start = 0;
    while let Some(at) = upper[start..].find(" AND ") {
        parts.push(&text[start..start + at]);
        start += at + 5;
    }
    parts.push(&text[start..]);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bag(text: &str) -> Bag {
        Bag::parse(text)
    }

    #[test]
    fn the_source_is_a_prefix_whatever_its_case() {
        let route =
            Route::parse("FROM /messages/modules/Slice-Healer/outputs/* INTO $upstream").unwrap();
        assert!(route.takes("slice-healer", &bag("$.on=events"), b""));
        assert!(
            !route.takes("slice-healer", &bag(""), b""),
            "no output name, no outputs route"
        );
        assert!(!route.takes("other", &bag("$.on=events"), b""));
        assert!(
            Route::parse("FROM /messages/* INTO $upstream")
                .unwrap()
                .takes("x", &bag(""), b"")
        );
    }

    #[test]
    fn conditions_look_at_properties_and_readable_bodies() {
        let route = Route::parse(
            "FROM /messages/* WHERE severity = 'critical' AND $body.heal.outcome <> \"healed\" INTO BrokeredEndpoint(\"/modules/lamp/inputs/alarm\")",
        )
        .unwrap();
        assert_eq!(route.sink, Sink::Input("lamp".into(), "alarm".into()));
        let json = "severity=critical&$.ct=application%2Fjson&$.ce=utf-8";
        assert!(route.takes("m", &bag(json), br#"{"heal":{"outcome":"failed"}}"#));
        assert!(!route.takes("m", &bag(json), br#"{"heal":{"outcome":"healed"}}"#));
        assert!(
            !route.takes("m", &bag(json), b"{}"),
            "undefined is not unequal"
        );
        assert!(!route.takes(
            "m",
            &bag("severity=critical"),
            br#"{"heal":{"outcome":"failed"}}"#
        ));
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for text in [
            "INTO $upstream",
            "FROM /messages/*",
            "FROM messages INTO $upstream",
            "FROM /messages/* INTO nowhere",
            "FROM /messages/* WHERE as_number(x) > 3 INTO $upstream",
            "FROM /messages/* WHERE x >= 3 INTO $upstream",
            "FROM /messages/* WHERE $connectionDeviceId = 'x' INTO $upstream",
        ] {
            assert!(Route::parse(text).is_err(), "{text}");
        }
    }
}
