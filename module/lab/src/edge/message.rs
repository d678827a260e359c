//! Messages between modules and the cloud: property bags in topics, system properties, what the
//! cloud keeps of a message. Pure text work.

use std::collections::BTreeMap;

use bytes::Bytes;
use jiff::Timestamp;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// Unreserved characters of RFC 3986 stay as they are.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// A message as it lies at the cloud.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct TelemetryRecord {
    /// Module that sent it (the authenticated one, whatever the topic said).
    pub module: String,
    /// Output name (`$.on`); without one no `outputs/*` route matches.
    pub output: Option<String>,
    /// Application properties, decoded.
    pub properties: BTreeMap<String, String>,
    /// System properties by their short names without `$.`: `mid`, `ct`, `ce`, `ctime`, `sub`, …
    pub system: BTreeMap<String, String>,
    /// Body.
    #[serde(serialize_with = "text_or_base64")]
    pub body: Bytes,
    /// When it reached the cloud, by the virtual clock.
    pub at: Timestamp,
    /// When edgeHub took it, by the virtual clock.
    pub received_at: Timestamp,
    /// Whether the hub's routing could look into the body: content type JSON and a UTF encoding.
    pub body_readable: bool,
    /// `model-id` of the connection.
    pub model_id: Option<String>,
}

impl TelemetryRecord {
    /// `$.mid`.
    pub fn message_id(&self) -> Option<&str> {
        self.system.get("mid").map(String::as_str)
    }

    /// `$.ct`.
    pub fn content_type(&self) -> Option<&str> {
        self.system.get("ct").map(String::as_str)
    }

    /// The body as JSON, if it is.
    pub fn json(&self) -> Option<serde_json::Value> {
        serde_json::from_slice(&self.body).ok()
    }
}

/// A property bag: application properties and system properties apart.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Bag {
    pub(crate) properties: BTreeMap<String, String>,
    pub(crate) system: BTreeMap<String, String>,
}

impl Bag {
    /// Decodes `k=v&k=v`. Only percent-encoding counts: a `+` is a plus.
    pub(crate) fn parse(text: &str) -> Self {
        let mut bag = Self::default();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let decode = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
            let (key, value) = (decode(key), decode(value));
            match key.strip_prefix("$.") {
                Some(name) => bag.system.insert(name.to_owned(), value),
                None => bag.properties.insert(key, value),
            };
        }
        bag
    }

    /// The bag as topic text.
    pub(crate) fn encode(&self) -> String {
        let system = self
            .system
            .iter()
            .map(|(key, value)| (format!("$.{key}"), value));
        let own = self
            .properties
            .iter()
            .map(|(key, value)| (key.clone(), value));
        own.chain(system)
            .map(|(key, value)| format!("{}={}", escape(&key), escape(value)))
            .collect::<Vec<_>>()
            .join("&")
    }

    /// Whether IoT Hub's routing can read the body.
    pub(crate) fn body_readable(&self) -> bool {
        let is = |key: &str, wanted: &[&str]| {
            self.system
                .get(key)
                .is_some_and(|value| wanted.iter().any(|text| value.eq_ignore_ascii_case(text)))
        };
        is("ct", &["application/json"]) && is("ce", &["utf-8", "utf-16", "utf-32"])
    }
}

/// Percent-encodes everything but unreserved characters.
pub(crate) fn escape(text: &str) -> String {
    utf8_percent_encode(text, ESCAPED).to_string()
}

/// A message waiting in edgeHub for a local module's input.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct InputMessage {
    /// Number of the message in edgeHub's store.
    pub id: u64,
    /// Input name.
    pub input: String,
    /// Application properties.
    pub properties: BTreeMap<String, String>,
    /// System properties; `cdid` and `cmid` name the sender.
    pub system: BTreeMap<String, String>,
    /// Body.
    #[serde(serialize_with = "text_or_base64")]
    pub body: Bytes,
}

/// Serializes bytes as text where they are text, else as `base64:…`.
pub(crate) fn text_or_base64<S: serde::Serializer>(
    body: &Bytes,
    out: S,
) -> Result<S::Ok, S::Error> {
    use base64::Engine as _;
    match std::str::from_utf8(body) {
        Ok(text) => out.serialize_str(text),
        Err(_) => {
            let text = base64::engine::general_purpose::STANDARD.encode(body);
            out.serialize_str(&format!("base64:{text}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bag_is_taken_apart_by_percent_decoding_only() {
        let bag =
            Bag::parse("%24.on=events&%24.ct=application%2Fjson&%24.ce=utf-8&a%20b=1%2B1+1&empty=");
        assert_eq!(bag.system["on"], "events");
        assert_eq!(bag.properties["a b"], "1+1+1");
        assert_eq!(bag.properties["empty"], "");
        assert!(bag.body_readable());
        assert_eq!(Bag::parse(&bag.encode()), bag);
    }

    #[test]
    fn the_body_is_opaque_without_type_and_encoding() {
        assert!(!Bag::parse("%24.ct=application%2Fjson").body_readable());
        assert!(!Bag::parse("%24.ce=utf-8&%24.ct=text%2Fplain").body_readable());
        assert!(Bag::parse("$.ce=UTF-8&$.ct=Application%2FJSON").body_readable());
    }
}
