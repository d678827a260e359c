//! What the hub brings: desired settings, direct methods, and news of the connection.

use jiff::Timestamp;
use serde_json::json;
use slice_core::event::Output;
use slice_core::heal::story::IncidentRecord;
use slice_hub::{Event, MethodCall};
use tracing::{info, warn};

use super::alarm;
use super::pump::{Pump, Waiting};
use crate::report::methods::{self, Answer, Asked};
use crate::serve::{ControlCall, ControlReply, ControlRequest};
use crate::settings::LogLevel;
use crate::store::StoreError;

impl Pump {
    pub(super) async fn hub_event(&mut self, event: Event, outputs: &mut Vec<Output>) {
        outputs.extend(alarm::of(&event, Timestamp::now()).map(Output::Emit));
        match event {
            Event::Desired {
                version, document, ..
            } => {
                self.desired(version, &document, outputs);
                if let Err(why) = self.books.keep_desired(version, &document).await {
                    warn!(error = %why, "the desired twin could not be kept for the next start");
                }
            }
            Event::Method(call) => self.method(call, outputs).await,
            Event::Connected { session_present } => {
                info!(session_present, "connected to the hub");
                self.outbox_filled.notify_one();
            }
            Event::Disconnected { reason, detail } if reason.is_planned() => {
                info!(
                    reason = reason.as_str(),
                    detail, "disconnected from the hub as planned"
                );
            }
            Event::Disconnected { reason, detail } => {
                warn!(
                    reason = reason.as_str(),
                    detail, "the hub is away; events wait in the outbox"
                );
            }
            Event::ConnackRefused { code } => {
                warn!(code, "the hub refuses this module for now; trying again");
            }
            // Telling them as telemetry logs them as well.
            Event::ReportedRefused { .. } | Event::ReportedStuck | Event::ReportedRecovered => {}
            Event::Renewed | Event::ReportedSettled | Event::Input(_) => {}
            _ => {}
        }
    }

    /// Takes up a desired section, from the hub or from the disk at the start.
    pub(super) fn desired(
        &mut self,
        version: u64,
        document: &serde_json::Value,
        outputs: &mut Vec<Output>,
    ) {
        if !self.desired.apply(version, document) {
            return;
        }
        self.set_log_level(self.desired.in_force().log_level);
        let closed = self.engine.policy().closed.clone();
        self.put_policy(closed, outputs);
    }

    async fn method(&mut self, call: MethodCall, outputs: &mut Vec<Output>) {
        info!(method = call.name, id = call.request_id, "direct method");
        match methods::parse(&call.name, &call.payload) {
            Err(answer) => call.reply.respond(answer.status, answer.body),
            Ok(Asked::Core(request)) => {
                self.ask(request, Waiting::Method(call.reply), outputs);
            }
            Ok(other) => {
                let answer = self.answer(other).await;
                // A hold that was set or released is in force from here on.
                self.open_or_close(outputs);
                call.reply.respond(answer.status, answer.body);
            }
        }
    }

    pub(super) async fn control(&mut self, call: ControlCall, outputs: &mut Vec<Output>) {
        let ControlCall {
            request, responder, ..
        } = call;
        if let Some(core) = request.to_core() {
            self.ask(core, Waiting::Control(responder), outputs);
            return;
        }
        let reply = match request {
            ControlRequest::Ping => ControlReply::Pong {
                version: env!("CARGO_PKG_VERSION").to_owned(),
            },
            ControlRequest::Settings => ControlReply::Settings {
                rows: self.desired.loaded().rows(self.desired.in_force()),
            },
            ControlRequest::LogLevel { level: None } => ControlReply::LogLevel {
                level: self.log_level().as_str().to_owned(),
            },
            ControlRequest::LogLevel { level: Some(level) } => {
                document(self.answer(Asked::SetLogLevel(level)).await)
            }
            ControlRequest::Incidents { limit } => {
                document(self.answer(Asked::GetIncidents(limit)).await)
            }
            ControlRequest::Timeline { namespace, pod } => {
                document(self.answer(Asked::GetTimeline(namespace, pod)).await)
            }
            ControlRequest::Hold { name, minutes } => {
                document(self.answer(Asked::Hold(name, minutes)).await)
            }
            ControlRequest::Release { name } => document(self.answer(Asked::Release(name)).await),
            // Whole, however long: it is what a person restores from.
            ControlRequest::DeletedSlice { name } => document(self.deleted_slice(&name).await),
            ControlRequest::Inspect { .. } | ControlRequest::Heal { .. } => ControlReply::Error {
                message: "the core did not take the request".to_owned(),
            },
        };
        self.open_or_close(outputs);
        self.tasks.spawn(responder.reply(reply));
    }

    async fn answer(&mut self, asked: Asked) -> Answer {
        match asked {
            Asked::Ping => {
                let health = self.engine.health();
                Answer::new(
                    200,
                    json!({
                        "version": env!("CARGO_PKG_VERSION"),
                        "health": health.map(|h| h.state),
                        "reason": health.map(|h| h.reason.clone()),
                    }),
                )
            }
            Asked::GetLogLevel => Answer::new(200, json!({"level": self.log_level().as_str()})),
            Asked::SetLogLevel(name) => match LogLevel::parse(&name) {
                Some(level) => {
                    self.set_log_level(level);
                    Answer::new(200, json!({"level": level.as_str()}))
                }
                None => {
                    let known: Vec<&str> = LogLevel::ALL.iter().map(|l| l.as_str()).collect();
                    let text = format!("level: {name:?} is not one of {}", known.join(", "));
                    Answer::error(400, text)
                }
            },
            Asked::GetDeletedSlice(name) => {
                let answer = self.deleted_slice(&name).await;
                match answer.status {
                    200 => methods::bounded(answer.body, "/object/endpoints"),
                    _ => answer,
                }
            }
            Asked::GetIncidents(limit) => match self.incidents().await {
                Ok(mut incidents) => {
                    incidents.truncate(limit);
                    methods::bounded(json!({"incidents": incidents}), "/incidents")
                }
                Err(why) => Answer::error(500, why.to_string()),
            },
            Asked::GetTimeline(namespace, pod) => match self.incidents().await {
                Ok(incidents) => {
                    let (namespace, pod) = (namespace.as_deref(), pod.as_deref());
                    let mut all = self.timeline.select(&incidents, namespace, pod);
                    // Where not all of it fits, the latest does.
                    if let Some(list) = all.as_array_mut() {
                        list.reverse();
                    }
                    let mut answer = methods::bounded(json!({"timeline": all}), "/timeline");
                    if let Some(list) = answer.body["timeline"].as_array_mut() {
                        list.reverse();
                    }
                    answer
                }
                Err(why) => Answer::error(500, why.to_string()),
            },
            Asked::Hold(name, minutes) => self.hold(&name, minutes).await,
            Asked::Release(name) => self.release(&name).await,
            Asked::Core(_) => Answer::error(500, "not for here"),
        }
    }

    async fn deleted_slice(&self, name: &str) -> Answer {
        match self.books.deleted_slice(name).await {
            Ok(Some(slice)) => Answer::new(200, json!(slice)),
            Ok(None) => Answer::error(404, format!("no deleted slice {name:?} is kept")),
            Err(why) => Answer::error(500, why.to_string()),
        }
    }

    /// Those that stand as they are now, and those that were kept; the latest first.
    async fn incidents(&self) -> Result<Vec<IncidentRecord>, StoreError> {
        let mut all = self.engine.incidents(self.now());
        all.reverse();
        let kept = self.books.incidents().await?;
        let known = |all: &[IncidentRecord], id: &str| all.iter().any(|i| i.id == id);
        for incident in kept {
            if !known(&all, &incident.id) {
                all.push(incident);
            }
        }
        Ok(all)
    }
}

/// A method's answer on the control socket.
fn document(answer: Answer) -> ControlReply {
    match answer.status {
        200 => ControlReply::Document {
            document: answer.body,
        },
        404 => ControlReply::NotFound,
        _ => ControlReply::Error {
            message: answer.body["error"]
                .as_str()
                .or(answer.body["detail"].as_str())
                .unwrap_or("it failed")
                .to_owned(),
        },
    }
}
