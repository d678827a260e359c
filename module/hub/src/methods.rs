//! Direct methods: a call carries its own answer, and every call gets exactly one.
//!
//! The place in the answer queue is reserved before the call is handed out, so answering can neither
//! fail nor wait. A handler that panics or forgets answers 500 through `Drop`.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::sync::mpsc;

/// Answers that are remembered for a call that the hub repeats, in bytes.
const REMEMBERED_BYTES: usize = 256 * 1024;
/// The same in calls.
const REMEMBERED_CALLS: usize = 64;

/// Somebody calls a method of this module.
#[derive(Debug)]
pub struct MethodCall {
    /// Method name; a command of a Plug and Play component reads `component*command`.
    pub name: String,
    /// The hub's id of this call. A repeated call is not handed out again.
    pub request_id: String,
    /// Parsed payload; null when the caller sent none.
    pub payload: Value,
    /// After this moment the client answers 504 by itself.
    pub deadline: Instant,
    /// The way back.
    pub reply: MethodReply,
}

/// The way back to the caller. Dropping it answers 500.
#[derive(Debug)]
pub struct MethodReply {
    request_id: String,
    place: Option<mpsc::OwnedPermit<Answer>>,
}

/// An answer on its way to the session.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) request_id: String,
    pub(crate) status: i32,
    pub(crate) body: Value,
}

impl MethodReply {
    /// Answers the call. Never waits.
    pub fn respond(mut self, status: i32, body: Value) {
        self.send(status, body);
    }

    fn send(&mut self, status: i32, body: Value) {
        if let Some(place) = self.place.take() {
            let request_id = std::mem::take(&mut self.request_id);
            place.send(Answer {
                request_id,
                status,
                body,
            });
        }
    }
}

impl Drop for MethodReply {
    fn drop(&mut self) {
        self.send(
            500,
            json!({"message": "the handler ended without an answer"}),
        );
    }
}

/// What to do with a request from the hub.
#[derive(Debug)]
pub(crate) enum Request {
    /// Hand it out.
    Call(MethodCall),
    /// Answer at once.
    Answer(i32, Vec<u8>),
    /// It is being worked on; the answer will come.
    AlreadyUnderWay,
}

#[derive(Debug)]
struct Pending {
    request_id: String,
    deadline: Instant,
}

#[derive(Debug)]
struct Remembered {
    request_id: String,
    status: i32,
    body: Vec<u8>,
}

/// Calls that are being worked on, and the answers given lately.
///
/// A call that came over one connection is answered over another one only if the hub asked again
/// there: the caller of a call that nobody repeats is gone.
#[derive(Debug)]
pub(crate) struct Methods {
    answers: mpsc::Sender<Answer>,
    limit: Duration,
    answer_bytes: usize,
    pending: Vec<Pending>,
    /// Handed out over an earlier connection and not answered yet.
    orphaned: Vec<Pending>,
    remembered: VecDeque<Remembered>,
    remembered_bytes: usize,
}

impl Methods {
    pub(crate) fn new(answers: mpsc::Sender<Answer>, limit: Duration, answer_bytes: usize) -> Self {
        Self {
            answers,
            limit,
            answer_bytes,
            pending: Vec::new(),
            orphaned: Vec::new(),
            remembered: VecDeque::new(),
            remembered_bytes: 0,
        }
    }

    /// A new connection: nobody waits here for the answers to what came over the old one.
    pub(crate) fn begin_epoch(&mut self) {
        self.orphaned.append(&mut self.pending);
    }

    /// Calls of this connection that wait for an answer.
    pub(crate) fn pending(&self) -> usize {
        self.pending.len()
    }

    /// When the first call runs out of time.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.pending
            .iter()
            .chain(&self.orphaned)
            .map(|p| p.deadline)
            .min()
    }

    /// A request arrived.
    pub(crate) fn on_request(
        &mut self,
        now: Instant,
        name: String,
        request_id: String,
        payload: &[u8],
    ) -> Request {
        if let Some(known) = self.remembered.iter().find(|r| r.request_id == request_id) {
            return Request::Answer(known.status, known.body.clone());
        }
        if let Some(index) = self
            .orphaned
            .iter()
            .position(|p| p.request_id == request_id)
        {
            let call = self.orphaned.swap_remove(index);
            self.pending.push(call);
            return Request::AlreadyUnderWay;
        }
        if self.pending.iter().any(|p| p.request_id == request_id) {
            return Request::AlreadyUnderWay;
        }
        let payload = if payload.iter().all(u8::is_ascii_whitespace) {
            Value::Null
        } else {
            match serde_json::from_slice(payload) {
                Ok(payload) => payload,
                Err(e) => {
                    let message = format!("the payload is not JSON: {e}");
                    return self.answer_now(request_id, 400, &json!({"message": message}));
                }
            }
        };
        let Ok(place) = self.answers.clone().try_reserve_owned() else {
            let message = "too many method calls at one time, try again later";
            return self.answer_now(request_id, 429, &json!({"message": message}));
        };
        let deadline = now + self.limit;
        self.pending.push(Pending {
            request_id: request_id.clone(),
            deadline,
        });
        let reply = MethodReply {
            request_id: request_id.clone(),
            place: Some(place),
        };
        Request::Call(MethodCall {
            name,
            request_id,
            payload,
            deadline,
            reply,
        })
    }

    /// The program answered. Gives back what to send, if anybody still waits for it here.
    pub(crate) fn on_answer(&mut self, answer: Answer) -> Option<(String, i32, Vec<u8>)> {
        let Answer {
            request_id,
            status,
            body,
        } = answer;
        let (status, body) = self.encode(status, &body);
        let here = take(&mut self.pending, &request_id);
        if !here && !take(&mut self.orphaned, &request_id) {
            // The time was up and the caller has been told so.
            return None;
        }
        self.remember(&request_id, status, &body);
        here.then_some((request_id, status, body))
    }

    /// Answers for the program where the time is up.
    pub(crate) fn expire(&mut self, now: Instant) -> Vec<(String, i32, Vec<u8>)> {
        self.orphaned.retain(|p| p.deadline > now);
        let late: Vec<_> = self
            .pending
            .iter()
            .filter(|p| p.deadline <= now)
            .map(|p| p.request_id.clone())
            .collect();
        self.pending.retain(|p| p.deadline > now);
        late.into_iter()
            .map(|request_id| {
                let message = "no answer in time; the work may still be going on";
                let (status, body) = self.encode(504, &json!({"message": message}));
                self.remember(&request_id, status, &body);
                (request_id, status, body)
            })
            .collect()
    }

    fn answer_now(&mut self, request_id: String, status: i32, body: &Value) -> Request {
        let (status, body) = self.encode(status, body);
        // A busy answer is not remembered: the same call may be taken up when it is repeated.
        if status != 429 {
            self.remember(&request_id, status, &body);
        }
        Request::Answer(status, body)
    }

    fn encode(&self, status: i32, body: &Value) -> (i32, Vec<u8>) {
        let bytes = body.to_string().into_bytes();
        if bytes.len() <= self.answer_bytes {
            return (status, bytes);
        }
        let message = format!(
            "the answer has {} bytes, more than {}; ask for less",
            bytes.len(),
            self.answer_bytes
        );
        (500, json!({"message": message}).to_string().into_bytes())
    }

    fn remember(&mut self, request_id: &str, status: i32, body: &[u8]) {
        self.remembered_bytes += body.len();
        self.remembered.push_back(Remembered {
            request_id: request_id.to_owned(),
            status,
            body: body.to_vec(),
        });
        while self.remembered.len() > 1
            && (self.remembered.len() > REMEMBERED_CALLS
                || self.remembered_bytes > REMEMBERED_BYTES)
        {
            if let Some(oldest) = self.remembered.pop_front() {
                self.remembered_bytes -= oldest.body.len();
            }
        }
    }
}

fn take(calls: &mut Vec<Pending>, request_id: &str) -> bool {
    let before = calls.len();
    calls.retain(|p| p.request_id != request_id);
    calls.len() < before
}

#[cfg(test)]
#[path = "methods_tests.rs"]
mod tests;
