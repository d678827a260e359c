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
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(4);

    fn methods(places: usize) -> (Methods, mpsc::Receiver<Answer>) {
        let (sender, receiver) = mpsc::channel(places);
        (Methods::new(sender, LIMIT, 1_000), receiver)
    }

    fn call(methods: &mut Methods, id: &str, payload: &[u8]) -> MethodCall {
        match methods.on_request(Instant::now(), "m".into(), id.into(), payload) {
            Request::Call(call) => call,
            other => panic!("a call was expected, not {other:?}"),
        }
    }

    fn text(body: &[u8]) -> &str {
        std::str::from_utf8(body).unwrap()
    }

    #[test]
    fn an_answer_reaches_the_caller_once() {
        let (mut methods, mut answers) = methods(4);
        let call = call(&mut methods, "r1", br#"{"a":1}"#);
        assert_eq!(call.payload, json!({"a": 1}));
        call.reply.respond(202, json!({"ok": true}));
        let sent = methods.on_answer(answers.try_recv().unwrap()).unwrap();
        assert_eq!(
            (sent.0.as_str(), sent.1, text(&sent.2)),
            ("r1", 202, r#"{"ok":true}"#)
        );
        assert!(
            answers.try_recv().is_err(),
            "dropping after an answer says nothing"
        );
        assert_eq!(methods.pending(), 0);
    }

    #[test]
    fn a_dropped_call_answers_500() {
        let (mut methods, mut answers) = methods(4);
        drop(call(&mut methods, "r1", b""));
        let (_, status, _) = methods.on_answer(answers.try_recv().unwrap()).unwrap();
        assert_eq!(status, 500);
    }

    #[test]
    fn empty_null_and_broken_payloads() {
        let (mut methods, _answers) = methods(4);
        for (id, payload) in [("a", &b""[..]), ("b", b" "), ("c", b"null")] {
            assert_eq!(call(&mut methods, id, payload).payload, Value::Null);
        }
        let answer = methods.on_request(Instant::now(), "m".into(), "d".into(), b"{");
        assert!(matches!(&answer, Request::Answer(400, body) if text(body).contains("not JSON")));
    }

    #[test]
    fn a_repeated_request_is_not_handed_out_again() {
        let (mut methods, mut answers) = methods(4);
        let first = call(&mut methods, "r1", b"");
        let again = |methods: &mut Methods| {
            methods.on_request(Instant::now(), "m".into(), "r1".into(), b"")
        };
        assert!(matches!(again(&mut methods), Request::AlreadyUnderWay));
        // Repeated over a new connection while it is being worked on: answered there.
        methods.begin_epoch();
        assert!(matches!(again(&mut methods), Request::AlreadyUnderWay));
        first.reply.respond(200, json!(7));
        assert!(methods.on_answer(answers.try_recv().unwrap()).is_some());
        // Repeated after the answer: the same answer.
        methods.begin_epoch();
        assert!(matches!(again(&mut methods), Request::Answer(200, body) if text(&body) == "7"));
    }

    #[test]
    fn an_answer_for_a_connection_that_is_gone_is_dropped() {
        let (mut methods, mut answers) = methods(4);
        let old = call(&mut methods, "r1", b"");
        methods.begin_epoch();
        old.reply.respond(200, Value::Null);
        assert!(methods.on_answer(answers.try_recv().unwrap()).is_none());
    }

    #[test]
    fn too_many_at_once_answer_429_and_may_come_again() {
        let (mut methods, mut answers) = methods(1);
        let held = call(&mut methods, "r1", b"");
        let busy = methods.on_request(Instant::now(), "m".into(), "r2".into(), b"");
        assert!(matches!(busy, Request::Answer(429, _)));
        drop(held);
        methods.on_answer(answers.try_recv().unwrap());
        call(&mut methods, "r2", b"");
    }

    #[test]
    fn the_client_answers_504_when_the_program_is_late() {
        let (mut methods, mut answers) = methods(4);
        let call = call(&mut methods, "r1", b"");
        assert_eq!(methods.next_deadline(), Some(call.deadline));
        assert!(
            methods
                .expire(call.deadline - Duration::from_millis(1))
                .is_empty()
        );
        let late = methods.expire(call.deadline);
        assert_eq!((late[0].0.as_str(), late[0].1), ("r1", 504));
        call.reply.respond(200, Value::Null);
        assert!(
            methods.on_answer(answers.try_recv().unwrap()).is_none(),
            "too late"
        );
    }

    #[test]
    fn an_answer_that_the_hub_would_refuse_becomes_500() {
        let (mut methods, mut answers) = methods(4);
        call(&mut methods, "r1", b"")
            .reply
            .respond(200, json!("x".repeat(2_000)));
        let (_, status, body) = methods.on_answer(answers.try_recv().unwrap()).unwrap();
        assert_eq!(status, 500);
        assert!(body.len() < 1_000);
    }

    #[test]
    fn memory_for_answers_is_bounded() {
        let (sender, mut answers) = mpsc::channel(1);
        let mut methods = Methods::new(sender, LIMIT, 128 * 1024);
        for i in 0..200 {
            call(&mut methods, &i.to_string(), b"")
                .reply
                .respond(200, json!("x".repeat(100_000)));
            methods.on_answer(answers.try_recv().unwrap());
        }
        assert!(methods.remembered_bytes <= REMEMBERED_BYTES);
        assert!(methods.remembered.len() <= REMEMBERED_CALLS);
    }
}
