//! Coming up, staying up, renewing, ending.

use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::peer::{Packet, Rig, config, publish, unsuspicious};
use crate::{DisconnectReason, Event, State, Telemetry, Urgency};

fn message(id: &str) -> Telemetry {
    Telemetry::json(id, "events", &json!({"id": id})).unwrap()
}

#[tokio::test(start_paused = true)]
async fn connects_subscribes_and_asks_for_the_twin() {
    let mut settings = config();
    settings.product = "lamp/1.0 (x)".into();
    settings.model_id = Some("dtmi:org:lamp;1".into());
    let mut rig = Rig::new(settings);
    let mut peer = rig.peer().await;
    let (connect, subscribe) = peer.accept().await;
    assert_eq!(
        connect,
        Packet::Connect {
            client_id: "edge1/lamp".into(),
            user: "h.net/edge1/lamp/?api-version=2021-04-12&DeviceClientType=lamp%2F1.0%20%28x%29\
                   &model-id=dtmi%3Aorg%3Alamp%3B1"
                .into(),
            password: "token 0".into(),
            clean: false,
            keep_alive: 60,
        }
    );
    let Packet::Subscribe { filters, .. } = subscribe else {
        panic!()
    };
    let expected = [
        "$iothub/twin/res/#",
        "$iothub/twin/PATCH/properties/desired/#",
        "$iothub/methods/POST/#",
        "devices/edge1/modules/lamp/inputs/#",
    ];
    assert_eq!(filters, expected.map(|f| (f.to_owned(), 1)));
    assert!(matches!(
        rig.event().await,
        Event::Connected {
            session_present: false
        }
    ));
    peer.answer(
        "GET",
        200,
        &json!({"desired": {"a": 1, "$version": 3}, "reported": {}}),
    )
    .await;
    let Event::Desired {
        version: 3,
        document,
        changed: true,
    } = rig.event().await
    else {
        panic!("desired properties were expected")
    };
    assert_eq!(document, json!({"a": 1}));
    rig.status(|s| s.state == State::Up).await;
}

#[tokio::test(start_paused = true)]
async fn a_dead_peer_is_noticed_within_a_minute() {
    let mut rig = Rig::new(config());
    let mut peer = rig.peer().await;
    peer.bring_up(json!({"$version": 1}), json!({})).await;
    // An hour of silence is fine as long as pings are answered.
    assert_eq!(peer.idle(Duration::from_secs(1_700)).await, None);
    let silent_since = Instant::now();
    let _kept_open = peer;
    let reason = rig.disconnected().await;
    assert_eq!(reason, DisconnectReason::PingTimeout);
    assert!(
        silent_since.elapsed() <= Duration::from_secs(60),
        "{:?}",
        silent_since.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn silence_while_an_answer_is_due_is_asked_about_soon() {
    let mut rig = Rig::new(config());
    let mut peer = rig.peer().await;
    peer.bring_up(json!({"$version": 1}), json!({})).await;
    assert_eq!(peer.idle(Duration::from_secs(60)).await, None);
    let _ack = rig
        .client
        .handle
        .send_telemetry(message("m"))
        .await
        .unwrap();
    let since = Instant::now();
    let _kept_open = peer;
    let reason = rig.disconnected().await;
    assert_eq!(reason, DisconnectReason::PingTimeout);
    assert!(
        since.elapsed() <= Duration::from_secs(21),
        "{:?}",
        since.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_takes_no_bytes_is_given_up() {
    let mut rig = Rig::new(unsuspicious());
    let mut peer = rig.peer().await;
    peer.bring_up(json!({"$version": 1}), json!({})).await;
    let big = Telemetry::json("big", "events", &"x".repeat(200_000)).unwrap();
    let _ack = rig.client.handle.send_telemetry(big).await.unwrap();
    let since = Instant::now();
    let reason = rig.disconnected().await;
    assert_eq!(reason, DisconnectReason::WriteStall);
    assert!(since.elapsed() < Duration::from_secs(60));
}

#[tokio::test(start_paused = true)]
async fn renewal_is_planned_and_loses_nothing() {
    let mut rig = Rig::new(config());
    *rig.state.renew_after.lock().unwrap() = Some(Duration::from_secs(1_000));
    let mut peer = rig.peer().await;
    peer.bring_up(json!({"$version": 1}), json!({})).await;
    assert_eq!(peer.idle(Duration::from_secs(999)).await, None);
    let first = rig
        .client
        .handle
        .send_telemetry(message("m1"))
        .await
        .unwrap();
    let Packet::Publish { id, dup: false, .. } = peer.next().await else {
        panic!()
    };
    // The token is due now, with m1 still in flight; m2 comes while the link is going down.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let second = rig
        .client
        .handle
        .send_telemetry(message("m2"))
        .await
        .unwrap();
    peer.puback(id).await;
    first.await.unwrap();
    assert_eq!(
        peer.idle(Duration::from_secs(1)).await,
        Some(Packet::Disconnect)
    );
    let down = Instant::now();

    let mut next = rig.peer().await;
    assert_eq!(
        down.elapsed(),
        Duration::ZERO,
        "no back-off for a planned reconnect"
    );
    let (connect, _) = next.accept().await;
    assert!(matches!(connect, Packet::Connect { password, .. } if password == "token 1"));
    let (topic, _, dup) = next.expect_publish("devices/", true).await;
    assert!(topic.contains("mid=m2") && !dup);
    second.await.unwrap();
    let seen: Vec<_> = std::iter::from_fn(|| rig.client.events.try_recv().ok()).collect();
    let planned = |e: &Event| {
        matches!(
            e,
            Event::Disconnected {
                reason: DisconnectReason::Renewal,
                ..
            }
        )
    };
    assert_eq!(seen.iter().filter(|e| planned(e)).count(), 1, "{seen:?}");
    assert!(seen.iter().any(|e| matches!(e, Event::Renewed)), "{seen:?}");
    assert_eq!(rig.client.handle.status().counters.renewals, 1);
}

#[tokio::test(start_paused = true)]
async fn renewal_does_not_wait_for_ever_for_an_acknowledgement() {
    let mut rig = Rig::new(unsuspicious());
    *rig.state.renew_after.lock().unwrap() = Some(Duration::from_secs(100));
    let mut peer = rig.peer().await;
    peer.bring_up(json!({"$version": 1}), json!({})).await;
    assert_eq!(peer.idle(Duration::from_secs(99)).await, None);
    let ack = rig
        .client
        .handle
        .send_telemetry(message("m1"))
        .await
        .unwrap();
    let asked = Instant::now();
    let Packet::Publish { .. } = peer.next().await else {
        panic!()
    };
    assert_eq!(peer.next().await, Packet::Disconnect);
    assert!(
        asked.elapsed() <= Duration::from_secs(7),
        "{:?}",
        asked.elapsed()
    );
    let mut next = rig.peer().await;
    next.accept().await;
    let (topic, _, dup) = next.expect_publish("devices/", true).await;
    assert!(
        topic.contains("mid=m1") && dup,
        "the same id again, marked as a repeat"
    );
    ack.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn without_a_new_token_the_old_link_is_kept() {
    let mut rig = Rig::new(config());
    *rig.state.renew_after.lock().unwrap() = Some(Duration::from_secs(100));
    let mut peer = rig.peer().await;
    peer.bring_up(json!({"$version": 1}), json!({})).await;
    *rig.state.no_credentials.lock().unwrap() = Some(true);
    let started = Instant::now();
    assert_eq!(
        peer.idle(Duration::from_secs(900)).await,
        None,
        "still connected"
    );
    assert_eq!(started.elapsed(), Duration::from_secs(900));
    let refused = rig
        .client
        .handle
        .status()
        .workload_refused_for(Instant::now().into_std());
    assert!(
        refused.is_some_and(|d| d >= Duration::from_secs(700)),
        "{refused:?}"
    );
    // Telemetry still flows meanwhile.
    let ack = rig
        .client
        .handle
        .send_telemetry(message("m1"))
        .await
        .unwrap();
    peer.expect_publish("devices/", true).await;
    ack.await.unwrap();
    // The workload API is back: now the link is replaced.
    *rig.state.no_credentials.lock().unwrap() = None;
    assert_eq!(
        peer.idle(Duration::from_secs(60)).await,
        Some(Packet::Disconnect)
    );
    rig.peer().await.accept().await;
    assert_eq!(rig.state.signed.load(Ordering::Relaxed), 2);
    assert_eq!(rig.client.handle.status().workload_refused_since, None);
}

#[tokio::test(start_paused = true)]
async fn drain_sends_what_is_queued_and_the_last_report_then_disconnects() {
    let mut rig = Rig::new(config());
    let mut peer = rig.peer().await;
    peer.bring_up(json!({"$version": 1}), json!({"n": 0})).await;
    rig.client
        .handle
        .report(json!({"n": 1}), Urgency::Routine)
        .unwrap();
    assert_eq!(
        peer.answer("PATCH", 204, &Value::Null).await,
        json!({"n": 1})
    );
    let handle = rig.client.handle.clone();
    let mut acks = Vec::new();
    for i in 0..14 {
        acks.push(
            handle
                .send_telemetry(message(&format!("m{i}")))
                .await
                .unwrap(),
        );
    }
    // A second patch so soon would wait for a minute otherwise.
    handle
        .report(json!({"n": 2, "state": "offline"}), Urgency::Routine)
        .unwrap();
    let began = Instant::now();
    let drain = tokio::spawn(async move { handle.drain(Duration::from_secs(8)).await });
    let mut ids = Vec::new();
    let mut patch = None;
    loop {
        match peer.next().await {
            Packet::Publish {
                topic, body, id, ..
            } => {
                peer.puback(id).await;
                if let Some((_, rid)) = topic.split_once("/reported/?$rid=") {
                    patch = Some(serde_json::from_str::<Value>(&body).unwrap());
                    peer.send(&publish(
                        &format!("$iothub/twin/res/204/?$rid={rid}"),
                        "",
                        None,
                    ))
                    .await;
                } else {
                    ids.push(body);
                }
            }
            Packet::Disconnect => break,
            other => panic!("{other:?}"),
        }
    }
    let report = drain.await.unwrap();
    assert_eq!((report.unacknowledged, report.reported_settled), (0, true));
    assert!(report.disconnected);
    assert!(began.elapsed() < Duration::from_secs(8));
    let sent: Vec<_> = (0..14)
        .map(|i| json!({"id": format!("m{i}")}).to_string())
        .collect();
    assert_eq!(ids, sent, "in order");
    assert_eq!(patch, Some(json!({"n": 2, "state": "offline"})));
    for ack in acks {
        ack.await.unwrap();
    }
    rig.client.task.await.unwrap();
    assert_eq!(rig.client.handle.status().state, State::Stopped);
}

#[tokio::test(start_paused = true)]
async fn drain_ends_in_time_when_the_hub_acknowledges_nothing_and_at_once_when_offline() {
    let mut rig = Rig::new(config());
    let mut peer = rig.peer().await;
    peer.bring_up(json!({"$version": 1}), json!({})).await;
    let ack = rig
        .client
        .handle
        .send_telemetry(message("m1"))
        .await
        .unwrap();
    let began = Instant::now();
    let report = rig.client.handle.drain(Duration::from_secs(8)).await;
    assert_eq!(
        report.unacknowledged, 1,
        "it must stay in the program's outbox"
    );
    assert!(began.elapsed() <= Duration::from_secs(10));
    assert!(ack.await.is_err());

    let rig = Rig::new(config());
    *rig.state.refuse.lock().unwrap() = true;
    let began = Instant::now();
    let report = rig.client.handle.drain(Duration::from_secs(8)).await;
    assert!(!report.disconnected);
    assert!(began.elapsed() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn dropping_every_handle_ends_the_task() {
    let mut rig = Rig::new(config());
    let mut peer = rig.peer().await;
    peer.bring_up(json!({"$version": 1}), json!({})).await;
    let crate::Client {
        handle,
        task,
        events: _events,
    } = rig.client;
    drop(handle);
    assert_eq!(peer.next().await, Packet::Disconnect);
    task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn methods_are_answered_whatever_the_program_does() {
    let mut rig = Rig::new(config());
    let mut peer = rig.peer().await;
    peer.bring_up(json!({"$version": 1}), json!({})).await;
    let call = |name: &str, rid: &str, body: &str, id| {
        publish(
            &format!("$iothub/methods/POST/{name}/?$rid={rid}"),
            body,
            Some(id),
        )
    };
    peer.send(&call("ping", "a", "{}", 1)).await;
    peer.send(&call("forget", "b", "", 1)).await;
    peer.send(&call("slow", "c", "null", 1)).await;
    peer.send(&call("broken", "d", "{", 1)).await;
    let mut calls = Vec::new();
    while calls.len() < 3 {
        calls.push(
            rig.event_of(|e| match e {
                Event::Method(call) => Some(call),
                _ => None,
            })
            .await,
        );
    }
    let slow = calls.pop().unwrap();
    drop(calls.pop());
    calls
        .pop()
        .unwrap()
        .reply
        .respond(200, json!({"pong": true}));
    let began = Instant::now();
    let mut answers = Vec::new();
    for _ in 0..4 {
        let (topic, body, _) = loop {
            match peer.next().await {
                Packet::Puback { id } => assert_eq!(id, 1, "a repeated packet id is fine"),
                Packet::Publish {
                    topic,
                    body,
                    id,
                    dup,
                } => {
                    peer.puback(id).await;
                    break (topic, body, dup);
                }
                other => panic!("{other:?}"),
            }
        };
        let rest = topic
            .strip_prefix("$iothub/methods/res/")
            .unwrap()
            .to_owned();
        answers.push((rest, body));
    }
    answers.sort();
    let statuses: Vec<_> = answers.iter().map(|(topic, _)| topic.as_str()).collect();
    assert_eq!(
        statuses,
        ["200/?$rid=a", "400/?$rid=d", "500/?$rid=b", "504/?$rid=c"]
    );
    assert!(began.elapsed() < Duration::from_secs(5));
    drop(slow);
}

#[tokio::test(start_paused = true)]
async fn draining_in_the_middle_of_a_renewal_still_sends_what_is_queued() {
    let mut rig = Rig::new(config());
    *rig.state.renew_after.lock().unwrap() = Some(Duration::from_secs(100));
    let mut peer = rig.peer().await;
    peer.bring_up(json!({"$version": 1}), json!({})).await;
    assert_eq!(peer.idle(Duration::from_secs(99)).await, None);
    let first = rig
        .client
        .handle
        .send_telemetry(message("m1"))
        .await
        .unwrap();
    let Packet::Publish { id, .. } = peer.next().await else {
        panic!()
    };
    // The renewal waits for m1 and takes nothing new; m2 is queued behind it.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let second = rig
        .client
        .handle
        .send_telemetry(message("m2"))
        .await
        .unwrap();
    let handle = rig.client.handle.clone();
    let drain = tokio::spawn(async move { handle.drain(Duration::from_secs(8)).await });
    let (topic, ..) = peer.expect_publish("devices/", true).await;
    assert!(topic.contains("mid=m2"), "{topic}");
    peer.puback(id).await;
    assert_eq!(
        peer.idle(Duration::from_secs(5)).await,
        Some(Packet::Disconnect)
    );
    assert!(first.await.is_ok() && second.await.is_ok());
    assert_eq!(drain.await.unwrap().unacknowledged, 0);
}
