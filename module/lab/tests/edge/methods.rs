//! Direct methods: calls from the cloud, answers, and the hub's own errors.

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use slice_lab::edge::{Edge, EdgeOptions, MethodCall, MethodResult};

use crate::raw::{ACK, DEADLINE, Raw};

/// The request id of a method topic.
fn rid(topic: &str) -> &str {
    topic.split_once("?$rid=").unwrap().1
}

fn call(edge: &Edge, call: MethodCall) -> tokio::task::JoinHandle<MethodResult> {
    let edge = edge.clone();
    tokio::spawn(async move { edge.invoke(call).await })
}

#[tokio::test]
async fn a_call_is_answered_with_status_and_payload() {
    let edge = Edge::start(EdgeOptions::quick()).await.unwrap();
    let mut raw = Raw::subscribed(&edge, "slice-healer").await;
    let pending = call(
        &edge,
        MethodCall::new("inspect").json(&json!({"namespace": "line1"})),
    );
    let request = raw.next_publish().await;
    assert!(
        request
            .topic
            .starts_with("$iothub/methods/POST/inspect/?$rid="),
        "{}",
        request.topic
    );
    assert_eq!(request.payload, r#"{"namespace":"line1"}"#);
    // The id is compared without regard to case.
    let answer = format!(
        "$iothub/methods/res/409/?$rid={}",
        rid(&request.topic).to_uppercase()
    );
    raw.publish(1, &answer, br#"{"held":"budget"}"#).await;
    assert_eq!(raw.next().await, Some(ACK));
    let result = pending.await.unwrap();
    assert_eq!(
        (result.status, &result.payload),
        (409, &json!({"held": "budget"}))
    );
    assert_eq!(result.error_code, None);
}

#[tokio::test]
async fn empty_bodies_and_encoded_names_go_through() {
    let edge = Edge::start(EdgeOptions::quick()).await.unwrap();
    let mut raw = Raw::subscribed(&edge, "slice-healer").await;
    let mut odd = MethodCall::new("a b/ü");
    odd.encode_name = true;
    let pending = call(&edge, odd);
    let request = raw.next_publish().await;
    assert!(
        request
            .topic
            .starts_with("$iothub/methods/POST/a%20b%2F%C3%BC/?$rid="),
        "{}",
        request.topic
    );
    assert!(request.payload.is_empty());
    raw.publish(
        1,
        &format!("$iothub/methods/res/200/?$rid={}", rid(&request.topic)),
        b"",
    )
    .await;
    let result = pending.await.unwrap();
    assert_eq!((result.status, result.payload), (200, Value::Null));
}

#[tokio::test]
async fn the_hub_answers_for_a_module_that_is_away_silent_or_wrong() {
    let edge = Edge::start(EdgeOptions::quick()).await.unwrap();
    let away = edge.invoke_method("ping", json!(null), DEADLINE).await;
    assert_eq!((away.status, away.error_code), (404, Some(404_103)));

    let mut raw = Raw::module(&edge, "slice-healer").await;
    let deaf = edge.invoke_method("ping", json!(null), DEADLINE).await;
    assert_eq!(deaf.status, 404, "connected but not subscribed");

    raw.subscribe(&["$iothub/methods/POST/#"]).await;
    let mut silent = MethodCall::new("ping");
    silent.response_timeout = Duration::from_millis(100);
    let result = edge.invoke(silent).await;
    assert_eq!((result.status, result.error_code), (504, Some(504_101)));
    let late = raw.next_publish().await;
    raw.publish(
        1,
        &format!("$iothub/methods/res/200/?$rid={}", rid(&late.topic)),
        b"",
    )
    .await;
    assert_eq!(raw.next().await, Some(ACK));
    assert_eq!(edge.counters().late_answers, 1);

    let pending = call(&edge, MethodCall::new("ping"));
    let request = raw.next_publish().await;
    raw.publish(
        1,
        &format!("$iothub/methods/res/fine/?$rid={}", rid(&request.topic)),
        b"{}",
    )
    .await;
    assert_eq!(pending.await.unwrap().error_code, Some(400_000));
}

#[tokio::test]
async fn a_call_is_held_until_the_module_subscribes() {
    let edge = Edge::start(EdgeOptions::quick()).await.unwrap();
    let mut held = MethodCall::new("ping");
    held.connect_timeout = DEADLINE;
    let pending = call(&edge, held);
    let mut raw = Raw::subscribed(&edge, "slice-healer").await;
    let request = raw.next_publish().await;
    raw.publish(
        1,
        &format!("$iothub/methods/res/200/?$rid={}", rid(&request.topic)),
        b"\"pong\"",
    )
    .await;
    assert_eq!(pending.await.unwrap().payload, json!("pong"));

    let mut short = MethodCall::new("ping");
    short.connect_timeout = Duration::from_millis(50);
    edge.drop_connections();
    edge.wait_for(|view| !view.connected(), DEADLINE)
        .await
        .unwrap();
    assert_eq!(edge.invoke(short).await.status, 404);
}

#[tokio::test]
async fn an_answer_on_a_later_connection_is_too_late() {
    let edge = Edge::start(EdgeOptions::quick()).await.unwrap();
    let mut raw = Raw::subscribed(&edge, "slice-healer").await;
    let mut first = MethodCall::new("ping");
    first.response_timeout = Duration::from_millis(500);
    let pending = call(&edge, first);
    let request = raw.next_publish().await;
    let mut again = Raw::subscribed(&edge, "slice-healer").await;
    again
        .publish(
            1,
            &format!("$iothub/methods/res/200/?$rid={}", rid(&request.topic)),
            b"",
        )
        .await;
    assert_eq!(again.next().await, Some(ACK));
    assert_eq!(pending.await.unwrap().status, 504);
}

#[tokio::test]
async fn a_burst_of_calls_gets_each_its_own_answer() {
    let edge = Edge::start(EdgeOptions::quick()).await.unwrap();
    let mut raw = Raw::subscribed(&edge, "slice-healer").await;
    let calls: Vec<_> = (0..50)
        .map(|number| {
            let mut one = MethodCall::new("echo");
            one.body = Bytes::from(number.to_string());
            call(&edge, one)
        })
        .collect();
    for _ in 0..50 {
        let request = raw.next_publish().await;
        let topic = format!("$iothub/methods/res/200/?$rid={}", rid(&request.topic));
        raw.publish(0, &topic, &request.payload).await;
    }
    for (number, pending) in calls.into_iter().enumerate() {
        assert_eq!(pending.await.unwrap().payload, json!(number));
    }
}
