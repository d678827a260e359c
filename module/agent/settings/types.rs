//! The value types of settings. Each reads what a file, an environment variable and the twin can
//! write (a list is an array, a comma-separated text, or an object of `true` values) and writes one
//! form. They never look at the clock or the environment.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use jiff::SignedDuration;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use slice_core::heal::policy::Step;

/// The longest wait that a setting may ask for: 31 days.
const LONGEST: Duration = Duration::from_secs(31 * 24 * 3600);

/// A length of time: written as ISO 8601 (`PT5S`), read as that or as `5s`, `1m 30s`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match SignedDuration::try_from(self.0) {
            Ok(duration) => duration.fmt(f),
            Err(_) => write!(f, "PT{}S", self.0.as_secs()),
        }
    }
}

impl std::str::FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!("`{text}` is not a duration such as `PT5S`, `PT1M30S` or `5s`, at most 31 days")
        };
        let signed: SignedDuration = text.trim().parse().map_err(|_| wrong())?;
        let duration = Duration::try_from(signed).map_err(|_| wrong())?;
        if duration > LONGEST {
            return Err(wrong());
        }
        Ok(Self(duration))
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Span;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration such as `PT5S` or `5s`")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Span, E> {
                text.parse().map_err(E::custom)
            }
        }
        from.deserialize_any(Text)
    }
}

impl JsonSchema for Span {
    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "ISO 8601 duration such as PT5S; `5s` is read as well",
            "examples": ["PT5S", "PT1M30S"],
        })
    }
}

/// A list of texts, in the order in which it was written; no empty items, no doubles.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Names(pub Vec<String>);

impl Names {
    /// As a slice.
    pub fn as_slice(&self) -> &[String] {
        &self.0
    }

    fn collect<E: serde::de::Error>(items: impl IntoIterator<Item = String>) -> Result<Self, E> {
        let mut names: Vec<String> = Vec::new();
        for item in items {
            let item = item.trim();
            if item.is_empty() {
                return Err(E::custom("an item of the list is empty"));
            }
            if !names.iter().any(|known| known == item) {
                names.push(item.to_owned());
            }
        }
        Ok(Self(names))
    }
}

impl<'de> Deserialize<'de> for Names {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct List;
        impl<'de> Visitor<'de> for List {
            type Value = Names;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "a list of texts, a comma-separated text, or an object whose values are `true`",
                )
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Names, E> {
                if text.trim().is_empty() {
                    return Ok(Names::default());
                }
                Names::collect(text.split(',').map(str::to_owned))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Names, A::Error> {
                let mut all = Vec::new();
                while let Some(item) = items.next_element::<String>()? {
                    all.push(item);
                }
                Names::collect(all)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut items: A) -> Result<Names, A::Error> {
                let mut all = Vec::new();
                while let Some((name, value)) = items.next_entry::<String, serde_json::Value>()? {
                    if value != serde_json::Value::Bool(true) {
                        return Err(A::Error::custom(format!(
                            "the value of `{name}` must be `true`; leave the name out to take it off the list"
                        )));
                    }
                    all.push(name);
                }
                Names::collect(all)
            }
        }
        from.deserialize_any(List)
    }
}

impl JsonSchema for Names {
    fn schema_name() -> Cow<'static, str> {
        "Names".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "a list, a comma-separated text, or an object whose values are true",
            "anyOf": [
                {"type": "array", "items": {"type": "string", "minLength": 1}},
                {"type": "string"},
                {"type": "object", "additionalProperties": {"const": true}},
            ],
        })
    }
}

/// Labels that must all be carried: `key=value,key=value`, a list of such texts, or an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Selector(pub BTreeMap<String, String>);

impl<'de> Deserialize<'de> for Selector {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        fn pair<E: serde::de::Error>(text: &str) -> Result<(String, String), E> {
            match text.split_once('=') {
                Some((key, value)) if !key.trim().is_empty() => {
                    Ok((key.trim().to_owned(), value.trim().to_owned()))
                }
                _ => Err(E::custom(format!("`{text}` is not `label=value`"))),
            }
        }

        struct Labels;
        impl<'de> Visitor<'de> for Labels {
            type Value = Selector;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`label=value,label=value`, a list of such texts, or an object")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Selector, E> {
                if text.trim().is_empty() {
                    return Ok(Selector::default());
                }
                text.split(',')
                    .map(pair)
                    .collect::<Result<_, E>>()
                    .map(Selector)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Selector, A::Error> {
                let mut all = BTreeMap::new();
                while let Some(item) = items.next_element::<String>()? {
                    let (key, value) = pair(&item)?;
                    all.insert(key, value);
                }
                Ok(Selector(all))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut items: A) -> Result<Selector, A::Error> {
                let mut all = BTreeMap::new();
                while let Some((key, value)) = items.next_entry::<String, String>()? {
                    all.insert(key, value);
                }
                Ok(Selector(all))
            }
        }
        from.deserialize_any(Labels)
    }
}

impl JsonSchema for Selector {
    fn schema_name() -> Cow<'static, str> {
        "Selector".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "label=value pairs, comma-separated, or an object",
            "anyOf": [
                {"type": "string"},
                {"type": "array", "items": {"type": "string", "pattern": "^[^=]+=.*$"}},
                {"type": "object", "additionalProperties": {"type": "string"}},
            ],
        })
    }
}

/// The steps of the ladder, first one first; written comma-separated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ladder(pub Vec<Step>);

impl Serialize for Ladder {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let names: Vec<&str> = self.0.iter().map(|step| step_name(*step)).collect();
        to.serialize_str(&names.join(","))
    }
}

impl<'de> Deserialize<'de> for Ladder {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let names = Names::deserialize(from)?;
        let steps = names
            .0
            .iter()
            .map(|name| match name.as_str() {
                "refresh-service" => Ok(Step::RefreshService),
                "delete-slice" => Ok(Step::DeleteSlice),
                other => Err(D::Error::custom(format!(
                    "unknown step `{other}`, expected `refresh-service` or `delete-slice`"
                ))),
            })
            .collect::<Result<Vec<_>, _>>()?;
        if steps.is_empty() {
            return Err(D::Error::custom(
                "at least one step is needed; mode `observe` is how nothing gets written",
            ));
        }
        Ok(Self(steps))
    }
}

impl JsonSchema for Ladder {
    fn schema_name() -> Cow<'static, str> {
        "Ladder".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "steps in order, comma-separated: refresh-service, delete-slice",
            "anyOf": [
                {"type": "string"},
                {"type": "array", "items": {"enum": ["refresh-service", "delete-slice"]}},
            ],
        })
    }
}

fn step_name(step: Step) -> &'static str {
    match step {
        Step::RefreshService => "refresh-service",
        Step::DeleteSlice => "delete-slice",
    }
}

/// A text whose empty form means that it is not set: TOML and the environment know no null.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Unset(pub String);

impl Unset {
    /// The text, if there is one.
    pub fn get(&self) -> Option<&str> {
        (!self.0.is_empty()).then_some(self.0.as_str())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_span_reads_both_forms_and_writes_one() {
        for (text, seconds, written) in [
            ("PT5S", 5.0, "PT5S"),
            ("5s", 5.0, "PT5S"),
            ("1m 30s", 90.0, "PT1M30S"),
            ("PT0.25S", 0.25, "PT0.25S"),
            ("250ms", 0.25, "PT0.25S"),
            ("PT168H", 604_800.0, "PT168H"),
        ] {
            let span: Span = text.parse().unwrap();
            assert_eq!(span.0.as_secs_f64(), seconds, "{text}");
            assert_eq!(span.to_string(), written, "{text}");
            assert_eq!(written.parse::<Span>().unwrap(), span);
        }
        for text in ["", "5", "-PT5S", "PT-5S", "soon", "PT1000H"] {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
        assert!(serde_json::from_value::<Span>(json!(5)).is_err());
    }

    #[test]
    fn a_list_reads_array_text_and_object() {
        let wanted = Names(vec!["a".into(), "b.c".into()]);
        for value in [
            json!(["a", "b.c"]),
            json!("a, b.c"),
            json!({"a": true, "b.c": true}),
        ] {
            assert_eq!(serde_json::from_value::<Names>(value).unwrap(), wanted);
        }
        assert_eq!(
            serde_json::from_value::<Names>(json!("")).unwrap(),
            Names::default()
        );
        for value in [
            json!({"a": false}),
            json!(["a", 1]),
            json!(1),
            json!("a,,b"),
        ] {
            assert!(
                serde_json::from_value::<Names>(value.clone()).is_err(),
                "{value}"
            );
        }
    }

    #[test]
    fn a_ladder_keeps_its_order_and_refuses_what_is_no_step() {
        let ladder: Ladder =
            serde_json::from_value(json!("delete-slice, refresh-service")).unwrap();
        assert_eq!(ladder.0, [Step::DeleteSlice, Step::RefreshService]);
        assert_eq!(
            serde_json::to_value(&ladder).unwrap(),
            json!("delete-slice,refresh-service")
        );
        assert!(serde_json::from_value::<Ladder>(json!("")).is_err());
        let error = serde_json::from_value::<Ladder>(json!("restart"))
            .unwrap_err()
            .to_string();
        assert!(error.contains("refresh-service"), "{error}");
    }

    #[test]
    fn a_selector_reads_its_three_forms() {
        for value in [
            json!("app=m,tier="),
            json!(["app=m", "tier="]),
            json!({"app": "m", "tier": ""}),
        ] {
            let selector: Selector = serde_json::from_value(value).unwrap();
            assert_eq!(selector.0.get("app").map(String::as_str), Some("m"));
            assert_eq!(selector.0.len(), 2);
        }
        assert!(serde_json::from_value::<Selector>(json!("app")).is_err());
    }
}
