//! Direct methods: the caller's side in the cloud and edgeHub's side towards the module. A call to a
//! module that does not listen is held for the caller's connect time-out, as edgeHub's
//! InvokeMethodHandler does; nothing is kept longer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::Value;
use tokio::sync::oneshot;

use super::message::escape;
use super::state::ToModule;
use super::topics::Subject;
use super::world::World;

/// A call of a direct method.
#[derive(Debug, Clone)]
pub struct MethodCall {
    /// Module id; the first module by default.
    pub module: Option<String>,
    /// Method name.
    pub name: String,
    /// Body as it goes over the wire; may be empty.
    pub body: Bytes,
    /// How long the caller waits for the answer. IoT Hub allows 5 to 300 s.
    pub response_timeout: Duration,
    /// How long the caller waits for a module that is not there. IoT Hub's default is 0.
    pub connect_timeout: Duration,
    /// Percent-encode the name in the topic.
    pub encode_name: bool,
}

impl MethodCall {
    /// A call with an empty body, 30 s for the answer and none for the connection.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            module: None,
            name: name.into(),
            body: Bytes::new(),
            response_timeout: Duration::from_secs(30),
            connect_timeout: Duration::ZERO,
            encode_name: false,
        }
    }

    /// The same call with a JSON body.
    #[must_use]
    pub fn json(mut self, payload: &Value) -> Self {
        self.body = Bytes::from(payload.to_string());
        self
    }
}

/// What the caller in the cloud gets.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MethodResult {
    /// The module's status; 404, 504 or 400 when it is the hub's own.
    pub status: i32,
    /// The answer's body; null when it is empty.
    pub payload: Value,
    /// The hub's error code (404103 not connected, 504101 no answer in time, 400000 status is no
    /// number), when the module did not answer.
    pub error_code: Option<u32>,
    /// From the call to the answer.
    #[serde(skip)]
    pub latency: Duration,
}

/// A module's answer: status if it is a number, body.
pub(crate) type Answer = (Option<i32>, Bytes);

/// A call that waits for its module to listen.
pub(crate) struct HeldCall {
    call: MethodCall,
    /// Where the answer's receiver goes once the call is under way.
    started: oneshot::Sender<oneshot::Receiver<Answer>>,
}

impl World {
    /// Calls a method as the cloud does.
    pub(crate) async fn invoke(self: &Arc<Self>, module: &str, call: MethodCall) -> MethodResult {
        let begun = Instant::now();
        let (response, connect) = (call.response_timeout, call.connect_timeout);
        let mut result = match self.reach(module, call, connect).await {
            Some(answer) => match tokio::time::timeout(response, answer).await {
                Ok(Ok(answer)) => answered(answer),
                // The connection is gone or the module is silent: the caller cannot tell them apart.
                Ok(Err(_)) => {
                    tokio::time::sleep(response.saturating_sub(begun.elapsed())).await;
                    failed(504, 504_101, "the module did not answer in time")
                }
                Err(_) => failed(504, 504_101, "the module did not answer in time"),
            },
            None => failed(
                404,
                404_103,
                "the module is not connected or does not take methods",
            ),
        };
        result.latency = begun.elapsed();
        result
    }

    /// Sends the call now, or once the module listens.
    async fn reach(
        self: &Arc<Self>,
        module: &str,
        call: MethodCall,
        connect: Duration,
    ) -> Option<oneshot::Receiver<Answer>> {
        if self.look(|state| state.faults.cloud_offline) {
            return None;
        }
        let device = &self.options.device_id;
        if self.look(|state| state.listens(device, module, Subject::Methods)) {
            return self.start_call(module, &call);
        }
        if connect.is_zero() {
            return None;
        }
        let (started, start) = oneshot::channel();
        self.change(|state| {
            let found = state.modules.get_mut(module);
            found
                .into_iter()
                .for_each(|m| m.held.retain(|held| !held.started.is_closed()));
            if let Some(found) = state.modules.get_mut(module) {
                found.held.push(HeldCall { call, started });
            }
        });
        tokio::time::timeout(connect, start).await.ok()?.ok()
    }

    fn start_call(&self, module: &str, call: &MethodCall) -> Option<oneshot::Receiver<Answer>> {
        let rid = uuid::Uuid::new_v4().to_string();
        let name = if call.encode_name {
            escape(&call.name)
        } else {
            call.name.clone()
        };
        let (sender, receiver) = oneshot::channel();
        let message = ToModule {
            subject: Subject::Methods,
            topic: format!("$iothub/methods/POST/{name}/?$rid={rid}"),
            payload: call.body.clone(),
            input: None,
        };
        self.change(|state| {
            state.send(&self.options.device_id, module, message)?;
            let live = state.live.values_mut().find(|live| live.module == module)?;
            live.calls.retain(|_, waiting| !waiting.is_closed());
            live.calls.insert(rid, sender);
            Some(receiver)
        })
    }

    /// A module has subscribed to methods (or come back to a session that had): what is held goes
    /// out a moment later.
    pub(crate) fn replay_calls(self: &Arc<Self>, module: &str) {
        let (world, module) = (Arc::clone(self), module.to_owned());
        self.spawn(async move {
            tokio::time::sleep(world.options.method_replay_delay).await;
            let device = &world.options.device_id;
            if !world.look(|state| state.listens(device, &module, Subject::Methods)) {
                return;
            }
            let held = world.change(|state| {
                state
                    .modules
                    .get_mut(&module)
                    .map(|m| std::mem::take(&mut m.held))
                    .unwrap_or_default()
            });
            for HeldCall { call, started } in held {
                if started.is_closed() {
                    continue;
                }
                if let Some(answer) = world.start_call(&module, &call) {
                    let _ = started.send(answer);
                }
            }
        });
    }

    /// A module answers.
    pub(crate) fn method_answer(&self, client: &str, status: Option<i32>, rid: &str, body: Bytes) {
        self.change(|state| {
            let call = state
                .live
                .get_mut(client)
                .and_then(|l| l.calls.remove(&rid.to_lowercase()));
            let taken = call.is_some_and(|call| call.send((status, body)).is_ok());
            state.counters.late_answers += u64::from(!taken);
        });
    }
}

fn answered((status, body): Answer) -> MethodResult {
    let payload = serde_json::from_slice(&body).unwrap_or(Value::Null);
    match status {
        Some(status) => MethodResult {
            status,
            payload,
            error_code: None,
            latency: Duration::ZERO,
        },
        None => failed(400, 400_000, "the status of the answer is no number"),
    }
}

fn failed(status: i32, code: u32, message: &str) -> MethodResult {
    MethodResult {
        status,
        payload: serde_json::json!({"message": message, "errorCode": code}),
        error_code: Some(code),
        latency: Duration::ZERO,
    }
}
