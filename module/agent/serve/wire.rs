//! The lines of the control socket: one JSON object each. A request is answered by any number of
//! events and then one reply. Types of their own, so that the core can change without the wire.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use slice_core::event::{HealEvent, HealOutcome, Reply, Request};
use slice_core::heal::gate::HoldReason;
use slice_core::judge::{Finding, RemedyAction};
use slice_core::model::ServiceKey;

/// What can be asked of the running module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub enum ControlRequest {
    /// Whether it is there.
    Ping,
    /// The findings as they stand.
    Inspect {
        /// Only this namespace.
        #[serde(default)]
        namespace: Option<String>,
        /// Only this Service name.
        #[serde(default)]
        service: Option<String>,
    },
    /// One heal by hand. Answered by [`ControlReply::Ended`] when it has ended, with events before.
    Heal {
        /// The Service, `namespace/name`.
        service: ServiceKey,
        /// Which step; none is the whole ladder.
        #[serde(default)]
        action: Option<RemedyAction>,
        /// Only say what would be done.
        #[serde(default)]
        dry_run: bool,
    },
    /// The latest incidents.
    Incidents {
        /// How many at most.
        limit: usize,
    },
    /// What happened, in order.
    Timeline {
        /// Only this namespace.
        #[serde(default)]
        namespace: Option<String>,
        /// Only what speaks of this pod.
        #[serde(default)]
        pod: Option<String>,
    },
    /// Nothing is written for so long.
    Hold {
        /// Its name.
        name: String,
        /// How long from now.
        minutes: u32,
    },
    /// Ends a hold before its time.
    Release {
        /// Its name.
        name: String,
    },
    /// A slice that was deleted, word for word.
    DeletedSlice {
        /// Its name.
        name: String,
    },
    /// The settings in force.
    Settings,
    /// The log level, or another one.
    LogLevel {
        /// The level to put in force.
        #[serde(default)]
        level: Option<String>,
    },
}

impl ControlRequest {
    /// The part of the requests that the core answers.
    pub fn to_core(&self) -> Option<Request> {
        match self {
            Self::Inspect { namespace, service } => Some(Request::Inspect {
                namespace: namespace.clone(),
                service: service.clone(),
            }),
            Self::Heal {
                service,
                action,
                dry_run,
            } => Some(Request::Heal {
                service: service.clone(),
                action: *action,
                dry_run: *dry_run,
            }),
            Self::Ping
            | Self::Incidents { .. }
            | Self::Timeline { .. }
            | Self::Hold { .. }
            | Self::Release { .. }
            | Self::DeletedSlice { .. }
            | Self::Settings
            | Self::LogLevel { .. } => None,
        }
    }
}

/// What is told before the reply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlEvent {
    /// One sentence for a person.
    pub message: String,
}

/// The end of a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "kebab-case")]
pub enum ControlReply {
    /// It is there.
    Pong {
        /// Its version.
        version: String,
    },
    /// For inspect.
    Findings {
        /// In the order of the contract.
        findings: Vec<Finding>,
    },
    /// A heal was taken up; events follow, then `ended`. Last only where nobody waits for the end.
    Accepted {
        /// The incident's id.
        incident: String,
    },
    /// A heal ended.
    Ended {
        /// The last step taken.
        action: RemedyAction,
        /// How.
        outcome: HealOutcome,
        /// After how many seconds.
        seconds: f64,
        /// In words.
        message: String,
    },
    /// There is nothing to heal.
    NothingToDo,
    /// What a heal would do first.
    WouldAct {
        /// The step.
        action: RemedyAction,
        /// In words.
        detail: String,
        /// Every write, in order.
        #[serde(default)]
        writes: Vec<String>,
    },
    /// Held back.
    Held {
        /// Why.
        reason: HoldReason,
        /// In words.
        detail: String,
    },
    /// There is no such thing.
    NotFound,
    /// Another heal is running.
    Busy,
    /// For incidents and deleted slices.
    Document {
        /// JSON.
        document: Value,
    },
    /// For settings: key, value, origin.
    Settings {
        /// Sorted by key.
        rows: Vec<crate::settings::Row>,
    },
    /// For the log level.
    LogLevel {
        /// The level in force.
        level: String,
    },
    /// The request was not understood, or something failed.
    Error {
        /// What, and what to do.
        message: String,
    },
}

impl ControlReply {
    /// How a heal ended, or why it was held back.
    pub fn of_heal(heal: &HealEvent, message: String) -> Self {
        match (heal.outcome, heal.held()) {
            (Some(outcome), _) => Self::Ended {
                action: heal.action,
                outcome,
                seconds: heal.seconds,
                message,
            },
            (None, Some(reason)) => Self::Held {
                reason,
                detail: message,
            },
            (None, None) => Self::Error { message },
        }
    }
}

impl From<Reply> for ControlReply {
    fn from(reply: Reply) -> Self {
        match reply {
            Reply::Findings(findings) => Self::Findings { findings },
            Reply::Accepted { incident } => Self::Accepted { incident },
            Reply::NothingToDo => Self::NothingToDo,
            Reply::WouldAct {
                action,
                detail,
                writes,
            } => Self::WouldAct {
                action,
                detail,
                writes,
            },
            Reply::Held { reason, detail } => Self::Held { reason, detail },
            Reply::NotFound => Self::NotFound,
            Reply::Busy => Self::Busy,
        }
    }
}

/// One line from the module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Line {
    /// The last one.
    Reply(ControlReply),
    /// Before it.
    Event(ControlEvent),
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn requests_read_what_a_person_would_write() {
        let heal: ControlRequest =
            serde_json::from_value(json!({"do": "heal", "service": "line1/model"})).unwrap();
        assert_eq!(
            heal,
            ControlRequest::Heal {
                service: ServiceKey::new("line1", "model"),
                action: None,
                dry_run: false
            }
        );
        assert!(matches!(
            heal.to_core(),
            Some(Request::Heal { dry_run: false, .. })
        ));
        for wrong in [
            json!({"do": "heal"}),
            json!({"do": "heal", "service": "model"}),
            json!({"do": "explode"}),
        ] {
            assert!(serde_json::from_value::<ControlRequest>(wrong).is_err());
        }
    }

    #[test]
    fn lines_read_what_they_write() {
        for line in [
            Line::Reply(ControlReply::Held {
                reason: HoldReason::BudgetNode,
                detail: "d".into(),
            }),
            Line::Reply(ControlReply::NothingToDo),
            Line::Event(ControlEvent {
                message: "refreshed".into(),
            }),
        ] {
            let text = serde_json::to_string(&line).unwrap();
            assert_eq!(serde_json::from_str::<Line>(&text).unwrap(), line, "{text}");
        }
        let text = serde_json::to_string(&ControlReply::Held {
            reason: HoldReason::Lease,
            detail: String::new(),
        });
        assert_eq!(
            text.unwrap(),
            r#"{"reply":"held","reason":"lease","detail":""}"#
        );
    }
}
