//! The twin over a link: what is asked, sent and handed out when.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::peer::{Packet, Peer, Rig, config, publish};
use crate::{DisconnectReason, Event, State, Urgency};

fn desired_patch(version: u64, body: &Value) -> Vec<u8> {
    let topic = format!("$iothub/twin/PATCH/properties/desired/?$version={version}");
    publish(&topic, &body.to_string(), None)
}

async fn desired(rig: &mut Rig) -> (u64, Value, bool) {
    rig.event_of(|e| match e {
        Event::Desired {
            version,
            document,
            changed,
        } => Some((version, document, changed)),
        _ => None,
    })
    .await
}

async fn up(rig: &mut Rig, twin: Value) -> Peer {
    let mut peer = rig.peer().await;
    peer.accept().await;
    peer.answer("GET", 200, &twin).await;
    peer
}

#[tokio::test(start_paused = true)]
async fn a_storm_of_changes_comes_out_as_a_few_whole_documents() {
    let mut rig = Rig::new(config());
    let mut peer = up(
        &mut rig,
        json!({"desired": {"n": 0, "$version": 1}, "reported": {}}),
    )
    .await;
    assert_eq!(desired(&mut rig).await, (1, json!({"n": 0}), true));
    for version in 2..=1_001 {
        peer.send(&desired_patch(version, &json!({"n": version})))
            .await;
    }
    let began = Instant::now();
    let mut events = 0;
    loop {
        let (version, document, _) = desired(&mut rig).await;
        assert_eq!(
            document,
            json!({"n": version}),
            "version and document belong together"
        );
        events += 1;
        if version == 1_001 {
            break;
        }
    }
    assert!(events <= 3, "{events} events");
    assert!(began.elapsed() <= Duration::from_secs(3));
    // The same content under a new version: needed for acknowledgements, marked as no change.
    peer.send(&desired_patch(1_002, &json!({"n": 1_001}))).await;
    assert_eq!(desired(&mut rig).await, (1_002, json!({"n": 1_001}), false));
}

#[tokio::test(start_paused = true)]
async fn a_version_gap_asks_again_but_not_more_often_than_every_five_seconds() {
    let mut rig = Rig::new(config());
    let mut peer = up(
        &mut rig,
        json!({"desired": {"$version": 1}, "reported": {}}),
    )
    .await;
    let began = Instant::now();
    for version in [5, 7, 9] {
        peer.send(&desired_patch(version, &json!({"n": version})))
            .await;
    }
    let twin = json!({"desired": {"n": 9, "m": 1, "$version": 9}, "reported": {}});
    peer.answer("GET", 200, &twin).await;
    assert!(
        began.elapsed() >= Duration::from_secs(4),
        "{:?}",
        began.elapsed()
    );
    desired(&mut rig).await;
    assert_eq!(desired(&mut rig).await, (9, json!({"n": 9, "m": 1}), true));
    assert_eq!(
        peer.idle(Duration::from_secs(60)).await,
        None,
        "one GET for all gaps"
    );
}

#[tokio::test(start_paused = true)]
async fn an_empty_twin_changes_nothing_and_is_asked_for_again() {
    let mut rig = Rig::new(config());
    let mut peer = up(
        &mut rig,
        json!({"desired": {"a": 1, "$version": 4}, "reported": {}}),
    )
    .await;
    desired(&mut rig).await;
    rig.client
        .handle
        .report(json!({"x": 1}), Urgency::Routine)
        .unwrap();
    peer.answer("PATCH", 204, &Value::Null).await;
    drop(peer);
    // edgeHub is offline and knows nothing.
    let mut peer = up(&mut rig, json!({"desired": {}, "reported": {}})).await;
    rig.status(|s| s.state == State::Syncing).await;
    for _ in 0..3 {
        peer.answer("GET", 200, &json!({"desired": {}, "reported": {}}))
            .await;
    }
    let twin = json!({"desired": {"a": 2, "$version": 5}, "reported": {"x": 1, "$version": 2}});
    peer.answer("GET", 200, &twin).await;
    assert_eq!(
        desired(&mut rig).await,
        (5, json!({"a": 2}), true),
        "and nothing in between"
    );
    rig.status(|s| s.state == State::Up).await;
    assert_eq!(
        peer.idle(Duration::from_secs(120)).await,
        None,
        "the hub has all: no patch"
    );
}

#[tokio::test(start_paused = true)]
async fn the_twin_is_asked_for_from_time_to_time() {
    let mut rig = Rig::new(config());
    let twin = json!({"desired": {"$version": 1}, "reported": {}});
    let mut peer = up(&mut rig, twin).await;
    let mut last = Instant::now();
    for version in 2..6 {
        let twin = json!({"desired": {"n": version, "$version": version}, "reported": {}});
        peer.answer("GET", 200, &twin).await;
        let waited = last.elapsed().as_secs();
        assert!((1_800..=3_601).contains(&waited), "{waited}");
        last = Instant::now();
    }
}

#[tokio::test(start_paused = true)]
async fn patches_are_minimal_spaced_and_one_at_a_time() {
    let mut rig = Rig::new(config());
    let handle = rig.client.handle.clone();
    let twin = json!({"desired": {"$version": 1}, "reported": {"old": 1, "n": 0, "$version": 1}});
    handle
        .report(json!({"n": 0, "a.b": "x"}), Urgency::Routine)
        .unwrap();
    let mut peer = up(&mut rig, twin).await;
    let first = peer.answer("PATCH", 204, &Value::Null).await;
    assert_eq!(first, json!({"old": null, "a%2Eb": "x"}));
    let sent = Instant::now();
    for n in 1..50 {
        handle
            .report(json!({"n": n, "a.b": "x"}), Urgency::Routine)
            .unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(
        peer.answer("PATCH", 204, &Value::Null).await,
        json!({"n": 49})
    );
    assert!(
        sent.elapsed() >= Duration::from_secs(59),
        "{:?}",
        sent.elapsed()
    );
    let sent = Instant::now();
    handle
        .report(json!({"n": 50, "a.b": "x"}), Urgency::Alarm)
        .unwrap();
    assert_eq!(
        peer.answer("PATCH", 204, &Value::Null).await,
        json!({"n": 50})
    );
    assert!(
        sent.elapsed() <= Duration::from_secs(6),
        "{:?}",
        sent.elapsed()
    );
    // The alarm is served; the next routine change waits again.
    let sent = Instant::now();
    handle
        .report(json!({"n": 51, "a.b": "x"}), Urgency::Routine)
        .unwrap();
    handle.set_report_interval(Duration::from_secs(20)).await;
    assert_eq!(
        peer.answer("PATCH", 204, &Value::Null).await,
        json!({"n": 51})
    );
    assert_eq!(
        sent.elapsed().as_secs(),
        20,
        "the new interval holds at once"
    );
}

#[tokio::test(start_paused = true)]
async fn a_document_over_the_budget_is_refused_and_the_one_before_stays() {
    let rig = Rig::new(config());
    let handle = &rig.client.handle;
    handle.report(json!({"a": 1}), Urgency::Routine).unwrap();
    let big = json!({"a": "x".repeat(4_000), "b": "x".repeat(4_000), "c": "x".repeat(4_000)});
    assert!(matches!(
        handle.report(big, Urgency::Routine),
        Err(crate::ReportError::TooLarge { budget: 8_192, .. })
    ));
    let mut rig = rig;
    let mut peer = up(
        &mut rig,
        json!({"desired": {"$version": 1}, "reported": {}}),
    )
    .await;
    assert_eq!(
        peer.answer("PATCH", 204, &Value::Null).await,
        json!({"a": 1})
    );
}

#[tokio::test(start_paused = true)]
async fn a_refused_section_is_named_and_the_rest_gets_through() {
    let mut rig = Rig::new(config());
    rig.client
        .handle
        .report(json!({"bad": 1, "good": 2}), Urgency::Alarm)
        .unwrap();
    let mut peer = up(
        &mut rig,
        json!({"desired": {"$version": 1}, "reported": {}}),
    )
    .await;
    assert_eq!(
        peer.answer("PATCH", 400, &Value::Null).await,
        json!({"bad": 1, "good": 2})
    );
    assert_eq!(
        peer.answer("PATCH", 400, &Value::Null).await,
        json!({"bad": 1})
    );
    assert_eq!(
        peer.answer("PATCH", 204, &Value::Null).await,
        json!({"good": 2})
    );
    let (section, status) = rig
        .event_of(|e| match e {
            Event::ReportedRefused { section, status } => Some((section, status)),
            _ => None,
        })
        .await;
    assert_eq!((section.as_str(), status), ("bad", 400));
    rig.event_of(|e| matches!(e, Event::ReportedSettled).then_some(()))
        .await;
}

#[tokio::test(start_paused = true)]
async fn accepted_reports_that_never_reach_the_cloud_are_found() {
    let mut rig = Rig::new(config());
    rig.client
        .handle
        .report(json!({"a": 1}), Urgency::Routine)
        .unwrap();
    let twin = json!({"desired": {"$version": 1}, "reported": {"$version": 1}});
    let mut peer = up(&mut rig, twin.clone()).await;
    for _ in 0..2 {
        assert_eq!(
            peer.answer("PATCH", 204, &Value::Null).await,
            json!({"a": 1})
        );
        peer.answer("GET", 200, &twin).await;
    }
    rig.event_of(|e| matches!(e, Event::ReportedStuck).then_some(()))
        .await;
    rig.status(|s| s.reported_stuck).await;
    peer.answer("PATCH", 204, &Value::Null).await;
    let healed = json!({"desired": {"$version": 1}, "reported": {"a": 1, "$version": 2}});
    peer.answer("GET", 200, &healed).await;
    rig.event_of(|e| matches!(e, Event::ReportedRecovered).then_some(()))
        .await;
    rig.status(|s| !s.reported_stuck).await;
}

#[tokio::test(start_paused = true)]
async fn silence_to_twin_requests_does_not_stop_telemetry_and_ends_the_link_in_the_end() {
    let mut rig = Rig::new(config());
    let mut peer = rig.peer().await;
    peer.accept().await;
    let began = Instant::now();
    let (topic, ..) = peer.expect_publish("$iothub/twin/GET/", true).await;
    assert!(topic.contains("$rid="));
    let ack = rig
        .client
        .handle
        .send_telemetry(crate::Telemetry::json("m", "events", &1).unwrap())
        .await
        .unwrap();
    peer.expect_publish("devices/", true).await;
    ack.await.unwrap();
    let mut gets = 1;
    while let Some(packet) = peer.try_next().await {
        match packet {
            Packet::Publish { id, topic, .. } => {
                gets += usize::from(topic.starts_with("$iothub/twin/GET/"));
                peer.puback(id).await;
            }
            Packet::Ping => peer.send(&[0xd0, 0]).await,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(gets, 3);
    assert!(
        began.elapsed() <= Duration::from_secs(240),
        "{:?}",
        began.elapsed()
    );
    let reason = rig.disconnected().await;
    assert_eq!(reason, DisconnectReason::TwinSilent);
    // An answer to the old connection's request means nothing on the new one.
    let mut peer = rig.peer().await;
    peer.accept().await;
    let (_, old) = topic.split_once("$rid=").unwrap();
    let stale = json!({"desired": {"stale": 1, "$version": 9}, "reported": {}}).to_string();
    peer.send(&publish(
        &format!("$iothub/twin/res/200/?$rid={old}"),
        &stale,
        None,
    ))
    .await;
    peer.answer(
        "GET",
        200,
        &json!({"desired": {"$version": 2}, "reported": {}}),
    )
    .await;
    assert_eq!(desired(&mut rig).await, (2, json!({}), true));
}

#[tokio::test(start_paused = true)]
async fn errors_of_the_hub_are_asked_again_more_and_more_seldom() {
    let mut rig = Rig::new(config());
    let mut peer = rig.peer().await;
    peer.accept().await;
    let mut waits = Vec::new();
    for status in [500, 429, 503, 404, 500] {
        let asked = Instant::now();
        peer.answer("GET", status, &Value::Null).await;
        waits.push(asked.elapsed().as_secs());
    }
    assert_eq!(waits, [0, 5, 10, 20, 40]);
    peer.answer(
        "GET",
        200,
        &json!({"desired": {"$version": 1}, "reported": {}}),
    )
    .await;
    rig.status(|s| s.state == State::Up).await;
}

#[tokio::test(start_paused = true)]
async fn a_patch_without_answer_is_looked_for_and_sent_again_only_if_it_is_missing() {
    let mut rig = Rig::new(config());
    let twin = json!({"desired": {"$version": 1}, "reported": {"$version": 1}});
    rig.client
        .handle
        .report(json!({"a": 1}), Urgency::Routine)
        .unwrap();
    let mut peer = up(&mut rig, twin.clone()).await;
    peer.expect_publish("$iothub/twin/PATCH/", true).await;
    let sent = Instant::now();
    peer.answer("GET", 200, &twin).await;
    assert_eq!(
        sent.elapsed().as_secs(),
        60,
        "after the patch's time was up"
    );
    assert_eq!(
        peer.answer("PATCH", 204, &Value::Null).await,
        json!({"a": 1})
    );
    rig.event_of(|e| matches!(e, Event::ReportedSettled).then_some(()))
        .await;
}
