//! Direct methods: from name and payload to a request, and from the core's reply to status and
//! body. Parses and renders; calls nobody.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use slice_core::event::{Reply, Request};
use slice_core::judge::RemedyAction;
use slice_core::model::ServiceKey;

/// The longest reply, in bytes (IoT Hub takes 128 KiB).
pub const LONGEST_REPLY: usize = 100 * 1024;

/// The names that [`parse`] knows.
pub const NAMES: [&str; 10] = [
    "getDeletedSlice",
    "getIncidents",
    "getLogLevel",
    "getTimeline",
    "heal",
    "hold",
    "inspect",
    "ping",
    "release",
    "setLogLevel",
];

/// What a method asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Something that the core answers.
    Core(Request),
    /// Whether we are there.
    Ping,
    /// The log level in force.
    GetLogLevel,
    /// Another log level.
    SetLogLevel(String),
    /// The evidence kept of a deleted slice.
    GetDeletedSlice(String),
    /// The latest incidents.
    GetIncidents(usize),
    /// What happened, in order: of a namespace, of a pod.
    GetTimeline(Option<String>, Option<String>),
    /// Nothing is written for so many minutes.
    Hold(String, u32),
    /// Ends a hold.
    Release(String),
}

/// An answer: HTTP-like status and JSON body.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// 200, 202, 400, 404, 409, 429 or 500.
    pub status: i32,
    /// JSON.
    pub body: Value,
}

impl Answer {
    /// An answer.
    pub fn new(status: i32, body: Value) -> Self {
        Self { status, body }
    }

    /// An error with a message.
    pub fn error(status: i32, message: impl Into<String>) -> Self {
        Self::new(status, json!({"error": message.into()}))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct InspectPayload {
    namespace: Option<String>,
    service: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct HealPayload {
    namespace: String,
    service: String,
    action: Option<String>,
    #[serde(default)]
    dry_run: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LevelPayload {
    level: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NamePayload {
    name: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HoldPayload {
    name: String,
    minutes: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TimelinePayload {
    namespace: Option<String>,
    pod: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LimitPayload {
    limit: Option<usize>,
}

/// Parses a call.
///
/// # Errors
/// The answer to give: 404 for an unknown method, 400 with the field for a payload that is wrong.
pub fn parse(name: &str, payload: &Value) -> Result<Asked, Answer> {
    match name {
        "ping" => {
            let _: Nothing = read(name, payload)?;
            Ok(Asked::Ping)
        }
        "inspect" => {
            let p: InspectPayload = read(name, payload)?;
            Ok(Asked::Core(Request::Inspect {
                namespace: p.namespace,
                service: p.service,
            }))
        }
        "heal" => {
            let p: HealPayload = read(name, payload)?;
            let action = match p.action.as_deref() {
                None | Some("auto") => None,
                Some("refresh-service") => Some(RemedyAction::RefreshService),
                Some("delete-slice") => Some(RemedyAction::DeleteSlice),
                Some(other) => {
                    let text = format!(
                        "heal: action {other:?} is not one of auto, refresh-service, delete-slice"
                    );
                    return Err(Answer::error(400, text));
                }
            };
            for (field, value) in [("namespace", &p.namespace), ("service", &p.service)] {
                if value.is_empty() {
                    return Err(Answer::error(400, format!("heal: {field} is empty")));
                }
            }
            let service = ServiceKey::new(p.namespace.as_str(), p.service.as_str());
            Ok(Asked::Core(Request::Heal {
                service,
                action,
                dry_run: p.dry_run,
            }))
        }
        "getLogLevel" => {
            let _: Nothing = read(name, payload)?;
            Ok(Asked::GetLogLevel)
        }
        "setLogLevel" => Ok(Asked::SetLogLevel(
            read::<LevelPayload>(name, payload)?.level,
        )),
        "getDeletedSlice" => Ok(Asked::GetDeletedSlice(
            read::<NamePayload>(name, payload)?.name,
        )),
        "getIncidents" => {
            let limit = read::<LimitPayload>(name, payload)?.limit.unwrap_or(20);
            Ok(Asked::GetIncidents(limit.min(100)))
        }
        "getTimeline" => {
            let p: TimelinePayload = read(name, payload)?;
            Ok(Asked::GetTimeline(p.namespace, p.pod))
        }
        "hold" => {
            let p: HoldPayload = read(name, payload)?;
            Ok(Asked::Hold(p.name, p.minutes))
        }
        "release" => Ok(Asked::Release(read::<NamePayload>(name, payload)?.name)),
        other => {
            let known = NAMES.join(", ");
            let text = format!("there is no method {other:?}; known are {known}");
            Err(Answer::error(404, text))
        }
    }
}

/// Renders the core's reply.
pub fn answer(reply: Reply) -> Answer {
    match reply {
        Reply::Findings(findings) => bounded(json!({ "findings": findings }), "/findings"),
        Reply::Accepted { incident } => Answer::new(202, json!({ "incident": incident })),
        Reply::NothingToDo => Answer::new(200, json!({"outcome": "nothing-to-do"})),
        Reply::WouldAct {
            action,
            detail,
            writes,
        } => Answer::new(
            200,
            json!({"wouldDo": action.as_str(), "detail": detail, "writes": writes}),
        ),
        Reply::Held { reason, detail } => {
            Answer::new(409, json!({"reason": reason.as_str(), "detail": detail}))
        }
        Reply::NotFound => Answer::error(404, "there is no such Service in what this module sees"),
        Reply::Busy => Answer::error(
            429,
            "another heal is under way; try again when it has ended",
        ),
    }
}

/// Cuts the list that the JSON pointer leads to until the reply fits, and says so.
pub fn bounded(mut body: Value, pointer: &str) -> Answer {
    let count = |body: &Value| {
        body.pointer(pointer)
            .and_then(Value::as_array)
            .map_or(0, Vec::len)
    };
    let total = count(&body);
    let mut size = body.to_string().len();
    while size > LONGEST_REPLY - 100 {
        let list = body.pointer_mut(pointer).and_then(Value::as_array_mut);
        let Some(list) = list.filter(|l| !l.is_empty()) else {
            break;
        };
        let keep = (list.len() * (LONGEST_REPLY - 100) / size).min(list.len() - 1);
        list.truncate(keep);
        size = body.to_string().len();
    }
    let shown = count(&body);
    if shown < total {
        body["truncated"] = json!({"shown": shown, "of": total});
    }
    Answer::new(200, body)
}

fn read<T: DeserializeOwned>(name: &str, payload: &Value) -> Result<T, Answer> {
    let payload = if payload.is_null() {
        json!({})
    } else {
        payload.clone()
    };
    serde_json::from_value(payload).map_err(|e| Answer::error(400, format!("{name}: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_that_is_wrong_is_answered_with_the_field() {
        let wrong = [
            ("heal", json!({"namespace": "line1"}), "service"),
            (
                "heal",
                json!({"namespace": "line1", "service": "m", "force": true}),
                "force",
            ),
            (
                "heal",
                json!({"namespace": "line1", "service": "m", "action": "kill"}),
                "action",
            ),
            ("inspect", json!({"namespace": 7}), "integer"),
            ("setLogLevel", json!({}), "level"),
            ("hold", json!({"name": "audit"}), "minutes"),
            ("hold", json!({"name": "audit", "minutes": -1}), "-1"),
            ("release", json!({}), "name"),
            ("getTimeline", json!({"service": "m"}), "service"),
            ("ping", json!({"x": 1}), "x"),
        ];
        for (name, payload, field) in wrong {
            let answer = parse(name, &payload).unwrap_err();
            assert_eq!(answer.status, 400, "{name} {payload}");
            let text = answer.body["error"].as_str().unwrap();
            assert!(text.contains(field), "{name} {payload}: {text}");
        }
        assert_eq!(parse("format", &json!(null)).unwrap_err().status, 404);
    }

    #[test]
    fn no_payload_is_an_empty_one() {
        assert_eq!(parse("ping", &Value::Null), Ok(Asked::Ping));
        let all = Request::Inspect {
            namespace: None,
            service: None,
        };
        assert_eq!(parse("inspect", &json!({})), Ok(Asked::Core(all)));
    }

    #[test]
    fn a_reply_that_is_too_long_is_cut_and_says_so() {
        let list: Vec<String> = (0..5000).map(|i| format!("{i:0>60}")).collect();
        let answer = bounded(json!({ "findings": list }), "/findings");
        assert!(answer.body.to_string().len() <= LONGEST_REPLY);
        assert_eq!(answer.body["truncated"]["of"], 5000);
    }
}
