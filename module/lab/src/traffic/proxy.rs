//! The backends of a Service as kube-proxy reads them from slices.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use crate::kube::object;

/// One place to send to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Backend {
    /// Address of the endpoint.
    pub ip: String,
    /// Port of the endpoint.
    pub port: u16,
}

/// Backends of the first port: the ready endpoints, or where there are none, those that still serve
/// while they terminate. One address and port counts once, in however many slices it is.
#[must_use]
pub fn backends(slices: &[Arc<Value>]) -> Vec<Backend> {
    let usable = |pick: fn(&Value) -> bool| -> BTreeSet<Backend> {
        slices
            .iter()
            .filter(|slice| slice["addressType"] == "IPv4")
            .filter_map(|slice| {
                let port = slice["ports"][0]["port"].as_u64()?;
                Some((slice, u16::try_from(port).ok()?))
            })
            .flat_map(|(slice, port)| {
                object::list(&slice["endpoints"])
                    .iter()
                    .filter(|endpoint| pick(&endpoint["conditions"]))
                    .filter_map(move |endpoint| {
                        let ip = endpoint["addresses"][0].as_str()?.to_owned();
                        Some(Backend { ip, port })
                    })
            })
            .collect()
    };
    // A condition that is not said counts as ready and serving.
    let ready = usable(|conditions| conditions["ready"] != false);
    let chosen = if ready.is_empty() {
        usable(|c| c["serving"] != false && c["terminating"] == true)
    } else {
        ready
    };
    chosen.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn slice(endpoints: Value) -> Arc<Value> {
        Arc::new(json!({"addressType": "IPv4", "ports": [{"port": 80}], "endpoints": endpoints}))
    }

    fn ips(slices: &[Arc<Value>]) -> Vec<String> {
        backends(slices).into_iter().map(|b| b.ip).collect()
    }

    #[test]
    fn ready_ones_once_else_the_terminating() {
        let ready = json!({"addresses": ["10.0.0.1"], "conditions": {"ready": true}});
        let silent = json!({"addresses": ["10.0.0.2"]});
        let ending = json!({"addresses": ["10.0.0.3"],
            "conditions": {"ready": false, "serving": true, "terminating": true}});
        let down = json!({"addresses": ["10.0.0.4"],
            "conditions": {"ready": false, "serving": false, "terminating": false}});
        let all = [
            slice(json!([ready, silent, ending, down])),
            slice(json!([ready])),
        ];
        assert_eq!(ips(&all), ["10.0.0.1", "10.0.0.2"]);
        assert_eq!(ips(&[slice(json!([ending, down]))]), ["10.0.0.3"]);
        assert!(ips(&[slice(json!([down]))]).is_empty());
        let portless = Arc::new(json!({"addressType": "IPv4", "ports": [], "endpoints": [ready]}));
        assert!(ips(&[portless]).is_empty());
    }
}
