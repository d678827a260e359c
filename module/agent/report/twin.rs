//! The reported document of the module twin: schema `slice-healer/twin/v1`. Renders; sends nothing.
//!
//! At most 8 KiB, however many Services there are: every part of it is bounded by construction.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use slice_core::engine::Status;

use super::telemetry::cut;

/// The schema's name.
pub const SCHEMA: &str = "slice-healer/twin/v1";
/// The whole document's limit, in bytes of JSON.
pub const LIMIT: usize = 8 * 1024;
/// The longest text anywhere in it.
const LONGEST_TEXT: usize = 256;

/// What the document says of the module itself.
#[derive(Clone, Debug)]
pub struct ModuleInfo {
    /// Product version.
    pub version: &'static str,
    /// When the process started.
    pub started_at: Timestamp,
}

/// Renders the document. `settings` is the component `settings` with its acknowledgements.
pub fn document(
    module: &ModuleInfo,
    reported_at: Timestamp,
    status: &Status,
    labels: &[(String, String)],
    settings: &Value,
) -> Value {
    let cluster = &status.cluster;
    let worst: BTreeMap<String, &str> = status
        .findings
        .worst
        .iter()
        .map(|(key, kind)| (escape(&key.to_string()), kind.as_str()))
        .collect();
    let last = status.heals.last.as_ref().map(|l| {
        json!({
            "service": cut(&l.service.to_string(), LONGEST_TEXT),
            "action": l.action.as_str(),
            "outcome": l.outcome.as_str(),
            "at": l.at.to_string(),
            "seconds": (l.seconds * 1000.0).round() / 1000.0,
        })
    });
    let mut heals = json!({
        "succeeded": status.heals.succeeded,
        "failed": status.heals.failed,
        "held": status.heals.held,
        "shadow": status.heals.shadow,
    });
    if let Some(last) = last {
        heals["last"] = last;
    }
    let mut document = json!({
        "schema": SCHEMA,
        "module": {
            "version": module.version,
            "startedAt": module.started_at.to_string(),
            "reportedAt": reported_at.to_string(),
            "mode": status.mode.as_str(),
        },
        "labels": labels
            .iter()
            .map(|(k, v)| (escape(k), Value::String(v.clone())))
            .collect::<Map<_, _>>(),
        "health": {
            "state": status.health.state,
            "reason": cut(&status.health.reason, LONGEST_TEXT),
            "since": status.health.since.to_string(),
        },
        "journal": {
            "state": status.journal.state,
            "signals": status.journal.signals,
        },
        "cluster": {
            "state": cluster.state,
            "services": cluster.services,
            "slices": cluster.slices,
            "endpoints": cluster.endpoints,
        },
        "findings": {
            "critical": status.findings.critical,
            "warning": status.findings.warning,
            "info": status.findings.info,
            "worst": worst,
        },
        "heals": heals,
        "settings": settings,
    });
    if let Some(node) = &cluster.node {
        document["module"]["node"] = cut(node, LONGEST_TEXT).into();
    }
    if let Some(at) = status.journal.last_signal_at {
        document["journal"]["lastSignalAt"] = at.to_string().into();
    }
    if let Some(version) = &cluster.server_version {
        document["cluster"]["serverVersion"] = cut(version, LONGEST_TEXT).into();
    }
    document
}

/// Keys of a twin may hold no `.`, `$`, `#`, space or control character.
fn escape(key: &str) -> String {
    let mut out = String::with_capacity(key.len());
    for c in key.chars() {
        match c {
            '.' | '$' | '#' | ' ' | '%' => out.push_str(&format!("%{:02X}", c as u32)),
            c if c.is_control() => out.push('_'),
            c => out.push(c),
        }
    }
    out
}
