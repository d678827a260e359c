//! Labels, annotations and selectors: small sorted maps that are cheap to clone and can be shared
//! between objects. Never changed in place.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

type Entries = Arc<[(Box<str>, Box<str>)]>;

static EMPTY: LazyLock<Entries> = LazyLock::new(|| Arc::from(Vec::new()));

/// A sorted map of text to text, as labels, annotations and selectors are.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Labels(Entries);

impl Labels {
    /// The value under this key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0
            .binary_search_by(|(k, _)| k.as_ref().cmp(key))
            .ok()
            .and_then(|at| self.0.get(at))
            .map(|(_, v)| v.as_ref())
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// All entries, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> + Clone {
        self.0.iter().map(|(k, v)| (k.as_ref(), v.as_ref()))
    }

    /// Whether all entries of `selector` are among these. An empty selector matches everything.
    pub fn matches(&self, selector: &Labels) -> bool {
        selector.iter().all(|(k, v)| self.get(k) == Some(v))
    }

    /// Only the entries whose key passes.
    #[must_use]
    pub fn filtered(&self, keep: impl Fn(&str) -> bool) -> Self {
        if self.iter().all(|(k, _)| keep(k)) {
            return self.clone();
        }
        self.iter().filter(|(k, _)| keep(k)).collect()
    }

    /// How many holders share this map, this one included.
    pub(crate) fn holders(&self) -> usize {
        Arc::strong_count(&self.0)
    }
}

impl Default for Labels {
    fn default() -> Self {
        Self(Arc::clone(&EMPTY))
    }
}

impl<K: Borrow<str>, V: Borrow<str>> FromIterator<(K, V)> for Labels {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut all: Vec<(Box<str>, Box<str>)> = entries
            .into_iter()
            .map(|(k, v)| (k.borrow().into(), v.borrow().into()))
            .collect();
        if all.is_empty() {
            return Self::default();
        }
        // The last of equal keys wins, as in a map.
        all.reverse();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all.dedup_by(|b, a| a.0 == b.0);
        Self(all.into())
    }
}

impl From<BTreeMap<String, String>> for Labels {
    fn from(map: BTreeMap<String, String>) -> Self {
        map.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect()
    }
}

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Vec<(Box<str>, Box<str>)>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a map of text to text")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(
                self,
                mut map: A,
            ) -> Result<Self::Value, A::Error> {
                let mut all = Vec::with_capacity(map.size_hint().unwrap_or(4));
                while let Some((key, value)) = map.next_entry::<Box<str>, Option<Box<str>>>()? {
                    all.push((key, value.unwrap_or_default()));
                }
                Ok(all)
            }
        }
        Ok(from.deserialize_map(Visitor)?.into_iter().collect())
    }
}

impl Serialize for Labels {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(entries: &[(&str, &str)]) -> Labels {
        entries.iter().copied().collect()
    }

    #[test]
    fn finds_what_was_put_in_and_the_last_of_equal_keys_wins() {
        let map = labels(&[("b", "2"), ("a", "1"), ("b", "3")]);
        assert_eq!(map.get("a"), Some("1"));
        assert_eq!(map.get("b"), Some("3"));
        assert_eq!(map.get("c"), None);
        assert_eq!(map.len(), 2);
    }

    #[test]
    fn a_selector_matches_when_every_entry_is_there() {
        let pod = labels(&[("app", "web"), ("tier", "front")]);
        assert!(pod.matches(&labels(&[("app", "web")])));
        assert!(!pod.matches(&labels(&[("app", "web"), ("tier", "back")])));
        assert!(!pod.matches(&labels(&[("zone", "a")])));
    }

    #[test]
    fn null_values_decode_as_empty_text() {
        let map: Labels = serde_json::from_str(r#"{"b":null,"a":"x"}"#).unwrap();
        assert_eq!(map, labels(&[("a", "x"), ("b", "")]));
        assert_eq!(serde_json::to_string(&map).unwrap(), r#"{"a":"x","b":""}"#);
    }
}
