//! Telemetry out, input messages in.

use std::time::SystemTime;

use bytes::Bytes;
use serde::Serialize;
use thiserror::Error;

use crate::config::Identity;
use crate::topics::{self, Properties};

/// A message to the hub. Its `id` stays the same over re-sends, so that receivers can drop
/// duplicates: delivery is at least once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Telemetry {
    /// Message id, unique per message (`mid`).
    pub id: String,
    /// Output name that routes match; without one, routes on `outputs/*` do not see the message.
    pub output: Option<String>,
    /// Media type of the body (`ct`).
    pub content_type: Option<String>,
    /// Character set of the body (`ce`). Hub routes can read the body only if this is set.
    pub content_encoding: Option<String>,
    /// Plug and Play component (`sub`).
    pub component: Option<String>,
    /// When the content came to be (`ctime`); the hub may see the message days later.
    pub created_at: Option<SystemTime>,
    /// Application properties.
    pub properties: Properties,
    /// The body.
    pub body: Bytes,
}

impl Telemetry {
    /// A JSON message, created now, with no properties.
    ///
    /// # Errors
    /// When `body` cannot be written as JSON.
    pub fn json<T: Serialize>(
        id: impl Into<String>,
        output: impl Into<String>,
        body: &T,
    ) -> Result<Self, serde_json::Error> {
        Ok(Self {
            id: id.into(),
            output: Some(output.into()),
            content_type: Some("application/json".into()),
            content_encoding: Some("utf-8".into()),
            component: None,
            created_at: Some(SystemTime::now()),
            properties: Vec::new(),
            body: serde_json::to_vec(body)?.into(),
        })
    }

    /// Adds an application property.
    #[must_use]
    pub fn property(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.properties.push((name.into(), value.into()));
        self
    }

    /// The topic that carries the message, after all checks.
    ///
    /// # Errors
    /// When the message cannot be sent, now or later: see [`TelemetryError`].
    pub fn topic(&self, identity: &Identity, limit: usize) -> Result<String, TelemetryError> {
        if self.id.is_empty() {
            return Err(TelemetryError::NoId);
        }
        for (name, _) in &self.properties {
            // `$.` would turn into a system property at the hub.
            if name.is_empty() || name.starts_with('$') {
                return Err(TelemetryError::PropertyName(name.clone()));
            }
        }
        let created = self
            .created_at
            .and_then(|t| jiff::Timestamp::try_from(t).ok());
        let created = created.map(|t| format!("{t:.3}"));
        let system = [
            ("$.on", self.output.as_deref()),
            ("$.mid", Some(self.id.as_str())),
            ("$.ct", self.content_type.as_deref()),
            ("$.ce", self.content_encoding.as_deref()),
            ("$.sub", self.component.as_deref()),
            ("$.ctime", created.as_deref()),
        ];
        let system = system.into_iter().filter_map(|(n, v)| v.map(|v| (n, v)));
        let own = self
            .properties
            .iter()
            .map(|(n, v)| (n.as_str(), v.as_str()));
        let topic = topics::telemetry(identity, system.chain(own));
        // 65,535 is the longest text that MQTT can carry.
        let size = topic.len() + self.body.len();
        if size > limit || topic.len() > usize::from(u16::MAX) {
            return Err(TelemetryError::TooLarge {
                id: self.id.clone(),
                size,
                limit,
            });
        }
        Ok(topic)
    }
}

/// A message that will never be sent; the caller must drop or split it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TelemetryError {
    /// The hub closes the connection on a packet that is too large, so it is refused here.
    #[error("message {id} has {size} bytes with its properties, more than {limit}: split it")]
    TooLarge {
        /// Id of the message.
        id: String,
        /// Topic and body, bytes.
        size: usize,
        /// The limit, bytes.
        limit: usize,
    },
    /// An application property that the hub would take for one of its own.
    #[error("property name {0:?} is empty or starts with $, which is the hub's")]
    PropertyName(String),
    /// Without an id a receiver cannot drop duplicates.
    #[error("the message has no id")]
    NoId,
}

/// A message that another module or a route sent to one of our inputs. May come more than once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Input {
    /// Name of the input.
    pub name: String,
    /// System properties (their names start with `$.`, such as `$.cdid`) and application properties.
    pub properties: Properties,
    /// The body.
    pub body: Bytes,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn identity() -> Identity {
        Identity {
            hub_host: "h".into(),
            device_id: "d".into(),
            module_id: "m".into(),
        }
    }

    #[test]
    fn carries_all_system_properties() {
        let mut message = Telemetry::json("id 1", "events", &serde_json::json!({"a": 1}))
            .unwrap()
            .property("line", "l 1");
        message.created_at = Some(SystemTime::UNIX_EPOCH + Duration::from_millis(1_500));
        let topic = message.topic(&identity(), 1_000).unwrap();
        assert_eq!(
            topic,
            "devices/d/modules/m/messages/events/%24.on=events&%24.mid=id%201&%24.ct=application%2Fjson\
             &%24.ce=utf-8&%24.ctime=1970-01-01T00%3A00%3A01.500Z&line=l%201"
        );
    }

    #[test]
    fn refuses_what_the_hub_would_punish() {
        let message = Telemetry::json("i", "o", &"x".repeat(1_000)).unwrap();
        assert!(matches!(
            message.topic(&identity(), 1_000),
            Err(TelemetryError::TooLarge { limit: 1_000, .. })
        ));
        let forged = Telemetry::json("i", "o", &1)
            .unwrap()
            .property("$.mid", "other");
        assert_eq!(
            forged.topic(&identity(), 1_000),
            Err(TelemetryError::PropertyName("$.mid".into()))
        );
        let long = Telemetry::json("i", "o", &1)
            .unwrap()
            .property("p", "x".repeat(70_000));
        assert!(long.topic(&identity(), 250_000).is_err());
        assert_eq!(
            Telemetry::json("", "o", &1)
                .unwrap()
                .topic(&identity(), 9_999),
            Err(TelemetryError::NoId)
        );
    }
}
