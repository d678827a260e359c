//! Direct methods against the hub's own view of status and time.

use std::time::Duration;

use serde_json::{Value, json};
use slice_hub::Event;
use slice_lab::edge::MethodCall;

use crate::harness::Rig;

/// Answers methods in a task of its own; other events are dropped.
fn serve(rig: &mut Rig) -> tokio::task::JoinHandle<()> {
    let (_, empty) = tokio::sync::mpsc::channel(1);
    let mut events = std::mem::replace(&mut rig.client.events, empty);
    tokio::spawn(async move {
        while let Some(event) = events.recv().await {
            let Event::Method(call) = event else { continue };
            match call.name.as_str() {
                "echo" => call.reply.respond(200, call.payload),
                "c*odd name" => call.reply.respond(202, json!({"taken": "up"})),
                "forget" => drop(call),
                "large" => call.reply.respond(200, json!("x".repeat(200_000))),
                "never" => std::mem::forget(call),
                _ => call
                    .reply
                    .respond(404, json!({"message": "unknown method"})),
            }
        }
    })
}

#[tokio::test]
async fn kind_17_methods_are_answered_quickly_whatever_happens() {
    let mut rig = Rig::start(|c| c.timings.method_answer = Duration::from_millis(1_500)).await;
    rig.until_up().await;
    let _server = serve(&mut rig);
    let limit = Duration::from_secs(30);
    let answer = rig
        .edge
        .invoke_method("echo", json!({"a": [1, "ž"]}), limit)
        .await;
    assert_eq!(
        (answer.status, answer.payload),
        (200, json!({"a": [1, "ž"]}))
    );
    for (name, status) in [
        ("nope", 404),
        ("forget", 500),
        ("large", 500),
        ("never", 504),
    ] {
        let answer = rig.edge.invoke_method(name, Value::Null, limit).await;
        assert_eq!(answer.status, status, "{name}: {answer:?}");
        assert!(answer.latency < Duration::from_secs(20), "{answer:?}");
    }
    let mut odd = MethodCall::new("c*odd name");
    odd.encode_name = true;
    assert_eq!(rig.edge.invoke(odd).await.status, 202);
    let mut broken = MethodCall::new("echo");
    broken.body = "{".into();
    assert_eq!(rig.edge.invoke(broken).await.status, 400);
    let empty = MethodCall::new("echo");
    assert_eq!(rig.edge.invoke(empty).await.payload, Value::Null);
    assert_eq!(rig.client.handle.status().counters.methods_late, 1);
}

#[tokio::test]
async fn a_burst_is_answered_with_an_answer_or_with_429() {
    let mut rig = Rig::up().await;
    let _server = serve(&mut rig);
    let calls = (0..100).map(|n| {
        let edge = rig.edge.clone();
        tokio::spawn(async move {
            edge.invoke_method("echo", json!(n), Duration::from_secs(30))
                .await
        })
    });
    let mut answered = 0;
    for (n, call) in calls.collect::<Vec<_>>().into_iter().enumerate() {
        let answer = call.await.unwrap();
        match answer.status {
            200 => {
                assert_eq!(answer.payload, json!(n));
                answered += 1;
            }
            429 => {}
            other => panic!("{other}: {answer:?}"),
        }
    }
    assert!(answered >= 16, "{answered}");
}

#[tokio::test]
async fn a_call_during_a_reconnect_is_held_by_the_hub_and_answered() {
    let mut rig = Rig::up().await;
    let _server = serve(&mut rig);
    rig.edge.stop_hub().await;
    rig.edge.start_hub().await.unwrap();
    let mut call = MethodCall::new("echo").json(&json!(1));
    call.connect_timeout = Duration::from_secs(30);
    call.response_timeout = Duration::from_secs(30);
    let answer = rig.edge.invoke(call).await;
    assert_eq!(
        (answer.status, answer.payload),
        (200, json!(1)),
        "{:?}",
        answer.error_code
    );
}
