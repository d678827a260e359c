//! Tests of method calls: each gets exactly one answer.

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
    let again =
        |methods: &mut Methods| methods.on_request(Instant::now(), "m".into(), "r1".into(), b"");
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
