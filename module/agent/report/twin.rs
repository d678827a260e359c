//! The reported document of the module twin: schema `slice-healer/twin/v1`. Renders; sends nothing.
//!
//! At most 8 KiB, however many Services there are: every part of it is bounded by construction, and
//! the acknowledged settings, which echo what is in force, give way where the sum is too much.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use slice_core::engine::Status;

use super::telemetry::cut;
use crate::expiry::Ends;

/// The schema's name.
pub const SCHEMA: &str = "slice-healer/twin/v1";
/// The whole document's limit, in bytes of JSON.
pub const LIMIT: usize = 8 * 1024;
/// The longest text anywhere in it.
const LONGEST_TEXT: usize = 256;
/// The longest text of what forbids writing: the whole document has little room to spare.
const LONGEST_CLOSED: usize = 96;
/// Said of a setting whose value does not fit.
const NOT_SHOWN: &str = "too long to be shown here; `slice-healer config` does";

/// What the document says of the module itself.
#[derive(Clone, Debug)]
pub struct ModuleInfo {
    /// Product version.
    pub version: &'static str,
    /// When the process started.
    pub started_at: Timestamp,
}

/// Renders the part on what ends: its state, what ends first and when, and every known end.
pub fn credentials(ends: &Ends, now: Timestamp) -> Value {
    let all: Map<String, Value> = ends
        .at
        .iter()
        .map(|(credential, at)| (credential.as_str().to_owned(), at.to_string().into()))
        .collect();
    let mut part = json!({"state": ends.left(now).as_str(), "ends": all});
    if let Some((credential, at)) = ends.first() {
        part["first"] = credential.as_str().into();
        part["firstEnds"] = at.to_string().into();
    }
    part
}

/// Renders the document. `settings` is the component `settings` with its acknowledgements,
/// `credentials` what [`credentials`] made.
pub fn document(
    module: &ModuleInfo,
    reported_at: Timestamp,
    status: &Status,
    labels: &[(String, String)],
    settings: &Value,
    credentials: &Value,
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
        "shadowDeletes": status.heals.shadow_deletes,
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
        "credentials": credentials,
        "settings": settings,
    });
    if let Some((reason, detail)) = &status.closed {
        document["closed"] = json!({
            "reason": reason.as_str(),
            "detail": cut(detail, LONGEST_CLOSED),
        });
    }
    if let Some(node) = &cluster.node {
        document["module"]["node"] = cut(node, LONGEST_TEXT).into();
    }
    if let Some(at) = status.journal.last_signal_at {
        document["journal"]["lastSignalAt"] = at.to_string().into();
    }
    if let Some(version) = &cluster.server_version {
        document["cluster"]["serverVersion"] = cut(version, LONGEST_TEXT).into();
    }
    within_limit(document)
}

/// Shows fewer of the settings' values, the largest first, then no single ends and no detail of
/// what is closed, until the document fits. Its other parts fit by themselves: see the test.
fn within_limit(mut document: Value) -> Value {
    while document.to_string().len() > LIMIT {
        let Some(acks) = document["settings"].as_object_mut() else {
            return document;
        };
        let largest = acks
            .values_mut()
            .filter(|ack| ack["value"].as_object().is_some_and(|v| !v.is_empty()))
            .max_by_key(|ack| ack["value"].to_string().len());
        let Some(ack) = largest else {
            // The first end and the reason stay in any case.
            let less = [
                ("/credentials/ends", json!({})),
                ("/closed/detail", json!("")),
            ];
            let next = less.into_iter().find(|(pointer, least)| {
                document
                    .pointer(pointer)
                    .is_some_and(|there| there != least)
            });
            let Some((pointer, least)) = next else {
                return document;
            };
            if let Some(there) = document.pointer_mut(pointer) {
                *there = least;
            }
            continue;
        };
        ack["value"] = json!({});
        ack["ad"] = match ack["ad"].as_str().unwrap_or_default() {
            "" => NOT_SHOWN.into(),
            reason => format!("{reason}; {NOT_SHOWN}").into(),
        };
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

#[cfg(test)]
mod tests {
    use slice_core::engine::{
        ClusterState, ClusterStatus, FindingCounts, HealStatus, Health, HealthState, JournalStatus,
        LastHeal,
    };
    use slice_core::event::{HealOutcome, JournalState};
    use slice_core::heal::gate::HoldReason;
    use slice_core::heal::policy::Mode;
    use slice_core::judge::{FindingKind, RemedyAction};
    use slice_core::model::ServiceKey;

    use super::*;
    use crate::expiry::Credential;
    use crate::settings::{Loaded, MAX_DESIRED};

    const AT: Timestamp = Timestamp::UNIX_EPOCH;

    /// Every text as long as it may be, in characters that JSON writes twice as long.
    fn worst() -> Status {
        let long = "\"".repeat(1000);
        let key = |n: u8| ServiceKey::new("n".repeat(63), format!("{n}{}", "s".repeat(62)));
        Status {
            mode: Mode::Observe,
            closed: Some((HoldReason::OutsideWindow, long.clone())),
            health: Health {
                state: HealthState::Degraded,
                reason: long.clone(),
                since: AT,
            },
            cluster: ClusterStatus {
                state: ClusterState::Unreachable,
                detail: Some(long.clone()),
                server_version: Some(long.clone()),
                node: Some("n".repeat(253)),
                node_known: true,
                services: usize::MAX,
                slices: usize::MAX,
                endpoints: usize::MAX,
                pods: usize::MAX,
            },
            journal: JournalStatus {
                state: JournalState::Following,
                signals: u64::MAX,
                last_signal_at: Some(AT),
            },
            findings: FindingCounts {
                critical: usize::MAX,
                worst: (0..8)
                    .map(|n| (key(n), FindingKind::ControllerWedged))
                    .collect(),
                ..FindingCounts::default()
            },
            heals: HealStatus {
                last: Some(LastHeal {
                    service: key(9),
                    action: RemedyAction::RefreshService,
                    outcome: HealOutcome::HealedByItself,
                    at: AT,
                    seconds: 1e9 / 3.0,
                }),
                ..HealStatus::default()
            },
        }
    }

    fn labels() -> Vec<(String, String)> {
        (0..8)
            .map(|n| (format!("{n}{}", "l".repeat(63)), "\u{1F3ED}".repeat(64)))
            .collect()
    }

    fn render(settings: &Value) -> Value {
        let module = ModuleInfo {
            version: env!("CARGO_PKG_VERSION"),
            started_at: AT,
        };
        let ends = Ends {
            at: Credential::ALL.map(|credential| (credential, AT)).into(),
            looked: true,
        };
        let ends = credentials(&ends, AT);
        document(&module, AT, &worst(), &labels(), settings, &ends)
    }

    #[test]
    fn the_document_fits_without_any_setting_and_shows_all() {
        let document = render(&json!({"__t": "c"}));
        let size = document.to_string().len();
        assert!(size < LIMIT - 1024, "{size}");
        assert_eq!(document["findings"]["worst"].as_object().unwrap().len(), 8);
        assert_eq!(document["labels"].as_object().unwrap().len(), 8);
    }

    #[test]
    fn settings_give_way_where_the_sum_is_too_much() {
        // What is in force may be longer than what the twin may ask for.
        let names: Vec<String> = (0..400).map(|n| format!("\"namespace-{n}\"")).collect();
        let env = [(
            "SLICE_HEALER__SCOPE__NAMESPACES".to_owned(),
            names.join(",").replace('"', ""),
        )];
        let base = Loaded::load(None, env).unwrap().settings;
        let mut windows = Map::new();
        let mut desired = json!({});
        while desired.to_string().len() < MAX_DESIRED - 60 {
            windows.insert(format!("w{}", windows.len()), "Mon-Fri 22:00-05:00".into());
            desired = json!({"mode": "heal", "windows": windows.clone()});
        }
        for more in [
            json!({}),
            json!({"scope": {"namespaces": {"a": true}}, "ladder": "none"}),
            json!({"mode": "sleep", "scope": {"namespaces": {"a": true}}}),
        ] {
            let mut desired = desired.clone();
            desired
                .as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            let outcome = base.apply_twin(&base, &desired);
            let document = render(&outcome.reported(i64::MAX));
            let size = document.to_string().len();
            assert!(size <= LIMIT, "{size} with {more}");
            let gave_way = document["settings"].to_string().contains(NOT_SHOWN);
            assert_eq!(gave_way, !more["scope"].is_null(), "{more}");
            for key in desired.as_object().unwrap().keys() {
                assert!(document["settings"][key]["ac"].is_u64(), "{key}");
            }
        }
        // Unknown names, as many and as long as are answered.
        let unknown: Map<String, Value> =
            (0..30).map(|n| (format!("{n:0>64}"), json!(1))).collect();
        let outcome = base.apply_twin(&base, &Value::Object(unknown));
        let document = render(&outcome.reported(i64::MAX));
        let size = document.to_string().len();
        assert!(size <= LIMIT, "{size}");
        assert!(document["credentials"]["firstEnds"].is_string());
    }
}
