//! Twin requests over MQTT, and desired changes from the cloud.

use std::time::Duration;

use serde_json::{Value, json};
use slice_lab::edge::mqtt::Publish;
use slice_lab::edge::{Edge, EdgeOptions, TwinFault};

use crate::raw::{ACK, DEADLINE, Raw};

const GET: &str = "$iothub/twin/GET/?$rid=";
const REPORT: &str = "$iothub/twin/PATCH/properties/reported/?$rid=";

async fn start(options: EdgeOptions) -> (Edge, Raw) {
    let edge = Edge::start(options).await.unwrap();
    let raw = Raw::subscribed(&edge, "slice-healer").await;
    (edge, raw)
}

async fn get(raw: &mut Raw, rid: &str) -> Value {
    raw.publish(1, &format!("{GET}{rid}"), b" ").await;
    let answer = raw.next_publish().await;
    assert_eq!(answer.topic, format!("$iothub/twin/res/200/?$rid={rid}"));
    serde_json::from_slice(&answer.payload).unwrap()
}

async fn report(raw: &mut Raw, rid: &str, patch: &Value) -> Publish {
    raw.publish(1, &format!("{REPORT}{rid}"), patch.to_string().as_bytes())
        .await;
    raw.next_publish().await
}

fn body(message: &Publish) -> Value {
    serde_json::from_slice(&message.payload).unwrap()
}

#[tokio::test]
async fn a_report_is_confirmed_at_once_and_reaches_the_cloud_with_the_sync() {
    let (edge, mut raw) = start(EdgeOptions::quick()).await;
    let answer = report(&mut raw, "a-1", &json!({"health": {"state": "healthy"}})).await;
    assert_eq!(
        answer.topic, "$iothub/twin/res/204/?$rid=a-1",
        "edgeHub names no version"
    );
    assert!(answer.payload.is_empty());
    edge.wait_for(
        |view| view.reported()["health"]["state"] == "healthy",
        DEADLINE,
    )
    .await
    .unwrap();
    let twin = get(&mut raw, "2").await;
    assert_eq!(
        twin["reported"],
        json!({"health": {"state": "healthy"}, "$version": 2})
    );
    assert_eq!(twin["desired"]["$version"], json!(1));
}

#[tokio::test]
async fn what_breaks_the_rules_is_answered_with_400() {
    let (edge, mut raw) = start(EdgeOptions::quick()).await;
    for patch in [json!({"a.b": 1}), json!([1]), json!({"a": [null]})] {
        assert_eq!(
            report(&mut raw, "1", &patch).await.topic,
            "$iothub/twin/res/400/?$rid=1"
        );
    }
    raw.publish(1, &format!("{REPORT}2"), b"{no json").await;
    assert_eq!(
        raw.next_publish().await.topic,
        "$iothub/twin/res/400/?$rid=2"
    );
    assert_eq!(edge.cloud().reported(), json!({}));
}

#[tokio::test]
async fn a_twin_topic_that_cannot_be_read_ends_the_connection() {
    let edge = Edge::start(EdgeOptions::quick()).await.unwrap();
    for topic in ["$iothub/twin/GET/", "$iothub/twin/DELETE/?$rid=1"] {
        let mut raw = Raw::subscribed(&edge, "slice-healer").await;
        raw.publish(1, topic, b"").await;
        assert_eq!(raw.next().await, None, "{topic}");
    }
}

#[tokio::test]
async fn desired_changes_are_patches_with_their_version() {
    let (edge, mut raw) = start(EdgeOptions::quick()).await;
    edge.cloud()
        .set_desired(json!({"settings": {"mode": "heal"}, "old": 1}))
        .unwrap();
    let first = raw.next_publish().await;
    assert_eq!(
        first.topic,
        "$iothub/twin/PATCH/properties/desired/?$version=2"
    );
    assert_eq!(
        body(&first),
        json!({"settings": {"mode": "heal"}, "old": 1, "$version": 2})
    );
    get(&mut raw, "1").await;
    edge.cloud()
        .set_desired(json!({"settings": {"mode": "observe"}}))
        .unwrap();
    let second = body(&raw.next_publish().await);
    assert_eq!(
        second,
        json!({"settings": {"mode": "observe"}, "old": null, "$version": 3})
    );
}

#[tokio::test]
async fn a_missed_change_makes_the_next_one_a_difference() {
    let (edge, mut raw) = start(EdgeOptions::quick()).await;
    get(&mut raw, "1").await;
    edge.faults(|faults| faults.diff_metadata = true);
    edge.cloud()
        .patch_desired_unnoticed(json!({"missed": 1}))
        .unwrap();
    edge.cloud().patch_desired(json!({"seen": 2})).unwrap();
    let patch = body(&raw.next_publish().await);
    assert_eq!(
        (&patch["missed"], &patch["seen"], &patch["$version"]),
        (&json!(1), &json!(2), &json!(3))
    );
    assert!(patch["$metadata"].is_object());
}

#[tokio::test]
async fn versions_may_repeat_and_go_back() {
    let (edge, mut raw) = start(EdgeOptions::quick()).await;
    edge.cloud()
        .send_desired(7, json!({"a": 1, "$version": 7}))
        .unwrap();
    edge.cloud()
        .send_desired(7, json!({"a": 1, "$version": 7}))
        .unwrap();
    for _ in 0..2 {
        assert_eq!(
            raw.next_publish().await.topic,
            "$iothub/twin/PATCH/properties/desired/?$version=7"
        );
    }
    edge.cloud().set_desired(json!({"x": 1})).unwrap();
    raw.next_publish().await;
    edge.cloud().reset_desired_version(1);
    assert_eq!(
        get(&mut raw, "1").await["desired"],
        json!({"x": 1, "$version": 1})
    );
}

#[tokio::test]
async fn a_storm_arrives_in_order_and_in_full() {
    let (edge, mut raw) = start(EdgeOptions::quick()).await;
    let version = edge
        .cloud()
        .storm(500, 1000, |number| json!({"n": number}))
        .await
        .unwrap();
    assert_eq!(version, 501);
    for number in 0..500 {
        assert_eq!(body(&raw.next_publish().await)["n"], json!(number));
    }
}

#[tokio::test]
async fn while_the_cloud_is_away_the_store_answers_late_or_with_nothing() {
    let (edge, mut raw) = start(EdgeOptions::quick()).await;
    edge.faults(|faults| faults.cloud_offline = true);
    let begun = std::time::Instant::now();
    assert_eq!(
        get(&mut raw, "1").await,
        json!({"desired": {}, "reported": {}})
    );
    assert!(begun.elapsed() >= Duration::from_millis(200));
    assert_eq!(
        report(&mut raw, "2", &json!({"a": 1})).await.topic,
        "$iothub/twin/res/204/?$rid=2"
    );
    assert_eq!(
        get(&mut raw, "3").await,
        json!({"desired": {}, "reported": {"a": 1}})
    );
    assert!(edge.cloud().reported_pending());
    edge.faults(|faults| faults.cloud_offline = false);
    edge.wait_for(|view| view.reported()["a"] == 1, DEADLINE)
        .await
        .unwrap();
}

#[tokio::test]
async fn back_online_only_a_twin_read_long_ago_is_read_again() {
    let (edge, mut raw) = start(EdgeOptions::quick()).await;
    let offline = |on: bool| edge.faults(|faults| faults.cloud_offline = on);
    get(&mut raw, "1").await;
    offline(true);
    edge.cloud().patch_desired(json!({"a": 1})).unwrap();
    edge.wait_for(|view| view.faults().cloud_offline, DEADLINE)
        .await
        .unwrap();
    // Let the watcher see both edges: an answer from the store takes longer than it needs.
    get(&mut raw, "2").await;
    offline(false);
    raw.quiet().await;
    offline(true);
    get(&mut raw, "3").await;
    edge.advance_clock(Duration::from_secs(121));
    offline(false);
    assert_eq!(
        body(&raw.next_publish().await),
        json!({"a": 1, "$version": 2})
    );
}

#[tokio::test]
async fn poison_is_confirmed_and_never_reaches_the_cloud() {
    let (edge, mut raw) = start(EdgeOptions::quick()).await;
    edge.faults(|faults| faults.poison_reported = true);
    for rid in ["1", "2"] {
        assert!(
            report(&mut raw, rid, &json!({"a": rid}))
                .await
                .topic
                .contains("/204/")
        );
    }
    edge.wait_for(|view| view.counters().reported_refused >= 1, DEADLINE)
        .await
        .unwrap();
    assert_eq!(get(&mut raw, "3").await["reported"], json!({"$version": 1}));
    assert!(edge.cloud().reported_pending());
}

#[tokio::test]
async fn twin_requests_can_be_answered_with_any_status_or_not_at_all() {
    let (edge, mut raw) = start(EdgeOptions::quick()).await;
    edge.faults(|faults| {
        faults.twin_get = TwinFault::Status(429);
        faults.twin_report = TwinFault::Silent;
        faults.twin_times = Some(2);
    });
    raw.publish(1, &format!("{GET}1"), b"").await;
    let answer = raw.next_publish().await;
    assert_eq!(
        (answer.topic.as_str(), answer.payload.len()),
        ("$iothub/twin/res/429/?$rid=1", 0)
    );
    assert_eq!(raw.next().await, Some(ACK));
    raw.publish(1, &format!("{REPORT}2"), b"{}").await;
    assert_eq!(raw.next().await, Some(ACK));
    raw.quiet().await;
    edge.faults(|faults| faults.twin_get = TwinFault::Empty);
    assert_eq!(
        get(&mut raw, "3").await,
        json!({"desired": {}, "reported": {}})
    );
}

#[tokio::test]
async fn a_hub_without_an_edge_names_versions_and_judges_at_once() {
    let (edge, mut raw) = start(EdgeOptions {
        hub_direct: true,
        ..EdgeOptions::quick()
    })
    .await;
    let answer = report(&mut raw, "1", &json!({"a": 1})).await;
    assert_eq!(answer.topic, "$iothub/twin/res/204/?$rid=1&$version=2");
    assert_eq!(edge.cloud().reported(), json!({"a": 1}));
}
