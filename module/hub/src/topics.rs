//! Topic names of the IoT Hub MQTT dialect: building and parsing, both pure.
//!
//! Ids stand in topics as they are; every property name and value is percent-encoded. A system
//! property is one whose name starts with `$.`.

use thiserror::Error;

use crate::config::Identity;
use crate::encode::{percent_decode, percent_encode};

/// Filter for answers to twin requests.
pub const TWIN_RESPONSES: &str = "$iothub/twin/res/#";
/// Filter for changes of desired properties.
pub const DESIRED_PATCHES: &str = "$iothub/twin/PATCH/properties/desired/#";
/// Filter for direct method calls.
pub const METHOD_REQUESTS: &str = "$iothub/methods/POST/#";

/// Name and value pairs of a message, decoded, in the order of the topic.
pub type Properties = Vec<(String, String)>;

/// A topic name that the hub sent and this client cannot read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("topic {topic:?}: {reason}")]
pub struct TopicError {
    topic: String,
    reason: &'static str,
}

/// What a message from the hub is, by its topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Incoming {
    /// Answer to a twin GET or to a reported patch.
    TwinResponse {
        /// HTTP-like status.
        status: u16,
        /// The request id that we chose.
        request_id: String,
        /// Version of the reported section; IoT Hub sends it with patches, edgeHub never does.
        version: Option<u64>,
    },
    /// Desired properties changed.
    DesiredPatch {
        /// Version of the desired section after the change.
        version: Option<u64>,
    },
    /// Somebody calls a method.
    Method {
        /// Decoded name.
        name: String,
        /// Request id exactly as it stands in the topic: it goes back unchanged.
        request_id: String,
    },
    /// A message for one of the module's inputs.
    Input {
        /// Decoded input name.
        name: String,
        /// System and application properties.
        properties: Properties,
    },
}

/// Where telemetry goes: `devices/{d}/modules/{m}/messages/events/{properties}`.
pub fn telemetry<'a>(
    identity: &Identity,
    properties: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> String {
    let mut topic = format!(
        "devices/{}/modules/{}/messages/events/",
        identity.device_id, identity.module_id
    );
    for (index, (name, value)) in properties.into_iter().enumerate() {
        if index > 0 {
            topic.push('&');
        }
        topic.push_str(&percent_encode(name));
        topic.push('=');
        topic.push_str(&percent_encode(value));
    }
    topic
}

/// Asks for the whole twin.
pub fn twin_get(request_id: &str) -> String {
    format!("$iothub/twin/GET/?$rid={request_id}")
}

/// Sends a merge patch of reported properties.
pub fn reported_patch(request_id: &str) -> String {
    format!("$iothub/twin/PATCH/properties/reported/?$rid={request_id}")
}

/// Answers a method call.
pub fn method_response(status: i32, request_id: &str) -> String {
    format!("$iothub/methods/res/{status}/?$rid={request_id}")
}

/// Filter for all inputs of the module.
pub fn inputs_filter(identity: &Identity) -> String {
    format!(
        "devices/{}/modules/{}/inputs/#",
        identity.device_id, identity.module_id
    )
}

/// Reads the topic of a message from the hub.
///
/// # Errors
/// When it is none of the known forms; the message should then be skipped, not the connection.
pub fn parse(topic: &str, identity: &Identity) -> Result<Incoming, TopicError> {
    let error = |reason| TopicError {
        topic: topic.chars().take(200).collect(),
        reason,
    };
    if let Some(rest) = topic.strip_prefix("$iothub/twin/res/") {
        let (status, query) = rest.split_once('/').ok_or_else(|| error("no status"))?;
        let query = raw_query(query);
        return Ok(Incoming::TwinResponse {
            status: status
                .parse()
                .map_err(|_| error("the status is not a number"))?,
            request_id: query
                .get("$rid")
                .ok_or_else(|| error("no $rid"))?
                .to_owned(),
            version: query.get("$version").and_then(|v| v.parse().ok()),
        });
    }
    if let Some(rest) = topic.strip_prefix("$iothub/twin/PATCH/properties/desired/") {
        let version = raw_query(rest).get("$version").and_then(|v| v.parse().ok());
        return Ok(Incoming::DesiredPatch { version });
    }
    if let Some(rest) = topic.strip_prefix("$iothub/methods/POST/") {
        let (name, query) = rest
            .split_once('/')
            .ok_or_else(|| error("no method name"))?;
        let request_id = raw_query(query)
            .get("$rid")
            .ok_or_else(|| error("no $rid"))?
            .to_owned();
        return Ok(Incoming::Method {
            name: percent_decode(name),
            request_id,
        });
    }
    let own = format!(
        "devices/{}/modules/{}/inputs/",
        identity.device_id, identity.module_id
    );
    if let Some(rest) = topic.strip_prefix(&own) {
        let (name, bag) = rest.split_once('/').unwrap_or((rest, ""));
        if name.is_empty() {
            return Err(error("no input name"));
        }
        return Ok(Incoming::Input {
            name: percent_decode(name),
            properties: parse_bag(bag),
        });
    }
    Err(error("not one that this client subscribed to"))
}

/// Decodes a property bag. Some senders end it with a slash.
pub fn parse_bag(bag: &str) -> Properties {
    bag.trim_end_matches('/')
        .trim_start_matches('?')
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (percent_decode(name), percent_decode(value))
        })
        .collect()
}

/// The part after `?`, undecoded: a request id must go back as it came.
struct RawQuery<'a>(&'a str);

impl<'a> RawQuery<'a> {
    fn get(&self, wanted: &str) -> Option<&'a str> {
        self.0
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .find(|(name, _)| *name == wanted)
            .map(|(_, value)| value)
            .filter(|value| !value.is_empty())
    }
}

fn raw_query(text: &str) -> RawQuery<'_> {
    RawQuery(text.trim_start_matches('?'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn identity() -> Identity {
        Identity {
            hub_host: "h.azure-devices.net".into(),
            device_id: "edge1".into(),
            module_id: "lamp".into(),
        }
    }

    fn parsed(topic: &str) -> Incoming {
        parse(topic, &identity()).unwrap()
    }

    #[test]
    fn telemetry_topic_escapes_names_and_values() {
        let topic = telemetry(
            &identity(),
            [("$.on", "events"), ("site name", "Brno/1&2=3")],
        );
        assert_eq!(
            topic,
            "devices/edge1/modules/lamp/messages/events/%24.on=events&site%20name=Brno%2F1%262%3D3"
        );
        assert_eq!(
            telemetry(&identity(), []),
            "devices/edge1/modules/lamp/messages/events/"
        );
    }

    #[test]
    fn reads_answers_of_both_hubs() {
        let edge = Incoming::TwinResponse {
            status: 204,
            request_id: "a-1".into(),
            version: None,
        };
        assert_eq!(parsed("$iothub/twin/res/204/?$rid=a-1"), edge);
        let hub = Incoming::TwinResponse {
            status: 204,
            request_id: "1".into(),
            version: Some(7),
        };
        assert_eq!(parsed("$iothub/twin/res/204/?$rid=1&$version=7"), hub);
    }

    #[test]
    fn reads_patches_methods_and_inputs() {
        assert_eq!(
            parsed("$iothub/twin/PATCH/properties/desired/?$version=12"),
            Incoming::DesiredPatch { version: Some(12) }
        );
        assert_eq!(
            parsed("$iothub/twin/PATCH/properties/desired/"),
            Incoming::DesiredPatch { version: None }
        );
        assert_eq!(
            parsed("$iothub/methods/POST/c%2Aping/?$rid=0f%2f1"),
            Incoming::Method {
                name: "c*ping".into(),
                request_id: "0f%2f1".into()
            }
        );
        assert_eq!(
            parsed("devices/edge1/modules/lamp/inputs/in%201/%24.cdid=edge1&a=b%20c/"),
            Incoming::Input {
                name: "in 1".into(),
                properties: vec![
                    ("$.cdid".into(), "edge1".into()),
                    ("a".into(), "b c".into())
                ],
            }
        );
    }

    #[test]
    fn refuses_what_it_did_not_subscribe_to() {
        for topic in [
            "",
            "x",
            "$iothub/twin/res/204",
            "$iothub/twin/res/abc/?$rid=1",
            "$iothub/twin/res/204/?$version=1",
            "$iothub/methods/POST/ping",
            "$iothub/methods/POST/ping/?x=1",
            "devices/edge2/modules/lamp/inputs/a/",
            "devices/edge1/modules/lamp/inputs/",
        ] {
            assert!(parse(topic, &identity()).is_err(), "{topic}");
        }
    }

    proptest! {
        #[test]
        fn any_topic_is_read_or_refused(topic in ".*") {
            let _ = parse(&topic, &identity());
        }

        #[test]
        fn what_is_built_is_read_back(pairs in proptest::collection::vec((".+", ".*"), 0..6)) {
            let topic = telemetry(
                &identity(),
                pairs.iter().map(|(n, v)| (n.as_str(), v.as_str())),
            );
            prop_assert!(!topic.contains(['+', '#', ' ', '\0']));
            let (_, bag) = topic.split_once("/events/").unwrap();
            prop_assert_eq!(parse_bag(bag), pairs);
        }
    }
}
