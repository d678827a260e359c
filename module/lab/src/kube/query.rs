//! Query parameters of the API, and the continue token of chunked lists.

use std::collections::HashMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize};

use super::selector::Selector;
use super::status::ApiError;
use super::store::Key;

/// Decoded parameters.
#[derive(Debug, Default)]
pub(crate) struct Query(HashMap<String, String>);

impl Query {
    pub(crate) fn parse(query: &str) -> Self {
        let decode = |text: &str| {
            let spaced = text.replace('+', " ");
            percent_decode_str(&spaced).decode_utf8_lossy().into_owned()
        };
        Self(
            query
                .split('&')
                .filter_map(|pair| pair.split_once('=').or(Some((pair, ""))))
                .map(|(k, v)| (decode(k), decode(v)))
                .collect(),
        )
    }

    pub(crate) fn get(&self, key: &str) -> &str {
        self.0.get(key).map_or("", String::as_str)
    }

    pub(crate) fn flag(&self, key: &str) -> bool {
        matches!(self.get(key), "true" | "1")
    }

    pub(crate) fn number(&self, key: &str) -> Result<Option<u64>, ApiError> {
        let text = self.get(key);
        if text.is_empty() {
            return Ok(None);
        }
        text.parse()
            .map(Some)
            .map_err(|_| ApiError::bad_request(format!("Invalid value: \"{text}\": {key}")))
    }

    pub(crate) fn selector(&self) -> Result<Selector, ApiError> {
        Selector::parse(self.get("labelSelector"), self.get("fieldSelector"))
    }

    pub(crate) fn dry_run(&self) -> bool {
        self.get("dryRun") == "All"
    }

    /// `timeoutSeconds` of a watch; half an hour by default, as the real server's least.
    pub(crate) fn timeout(&self) -> Result<Duration, ApiError> {
        let seconds = self.number("timeoutSeconds")?;
        Ok(Duration::from_secs(seconds.unwrap_or(1800)))
    }
}

/// Where a chunked list goes on: the revision of its first chunk, and the last key sent.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Continue {
    pub(crate) revision: u64,
    pub(crate) after: Key,
}

impl Continue {
    pub(crate) fn encode(&self) -> String {
        // Numbers and strings always serialise.
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(self).unwrap_or_default())
    }

    pub(crate) fn decode(token: &str) -> Result<Self, ApiError> {
        URL_SAFE_NO_PAD
            .decode(token)
            .ok()
            .and_then(|json| serde_json::from_slice(&json).ok())
            .ok_or_else(|| ApiError::bad_request("continue key is not valid"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_and_token() {
        let query = Query::parse("labelSelector=a%3Db%2Cc&watch=1&limit=2&x");
        assert_eq!(query.get("labelSelector"), "a=b,c");
        assert!(query.flag("watch"));
        assert_eq!(query.number("limit").unwrap(), Some(2));
        assert_eq!(query.number("none").unwrap(), None);
        assert!(query.number("labelSelector").is_err());

        let token = Continue {
            revision: 7,
            after: ("x".into(), "y".into()),
        };
        assert_eq!(Continue::decode(&token.encode()).unwrap(), token);
        assert_eq!(Continue::decode("?").unwrap_err().code, 400);
    }
}
