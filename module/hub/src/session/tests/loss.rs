//! Attempts that fail, links that break, messages that get lost on the way.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::peer::{Packet, Rig, config, publish, unsuspicious};
use crate::{DisconnectReason, Event, SendError, State, Telemetry};

fn message(id: &str) -> Telemetry {
    Telemetry::json(id, "events", &json!({"id": id})).unwrap()
}

async fn up(rig: &mut Rig) -> super::peer::Peer {
    let mut peer = rig.peer().await;
    peer.bring_up(json!({"$version": 1}), json!({})).await;
    peer
}

#[tokio::test(start_paused = true)]
async fn unacknowledged_telemetry_goes_out_again_in_order_with_its_id() {
    let mut rig = Rig::new(config());
    let mut peer = up(&mut rig).await;
    let mut acks = Vec::new();
    for i in 0..3 {
        acks.push(
            rig.client
                .handle
                .send_telemetry(message(&format!("m{i}")))
                .await
                .unwrap(),
        );
    }
    // Only the second is acknowledged before the link breaks.
    for i in 0..3 {
        let Packet::Publish { id, dup: false, .. } = peer.next().await else {
            panic!()
        };
        if i == 1 {
            peer.puback(id).await;
        }
    }
    acks.remove(1).await.unwrap();
    drop(peer);
    let mut peer = rig.peer().await;
    peer.accept().await;
    let mut again = Vec::new();
    for _ in 0..2 {
        let (topic, body, dup) = peer.expect_publish("devices/", true).await;
        assert!(dup);
        let mid = topic
            .split('&')
            .find(|p| p.starts_with("%24.mid="))
            .unwrap()
            .to_owned();
        again.push((mid, body));
    }
    assert_eq!(
        again,
        [
            ("%24.mid=m0".to_owned(), r#"{"id":"m0"}"#.to_owned()),
            ("%24.mid=m2".to_owned(), r#"{"id":"m2"}"#.to_owned()),
        ]
    );
    for ack in acks {
        ack.await.unwrap();
    }
    let counters = rig.client.handle.status().counters;
    assert_eq!(
        (counters.telemetry_acked, counters.telemetry_resent),
        (3, 2)
    );
}

#[tokio::test(start_paused = true)]
async fn at_most_ten_are_in_flight_and_the_queue_is_bounded() {
    let mut rig = Rig::new(unsuspicious());
    let mut peer = up(&mut rig).await;
    let mut acks = Vec::new();
    loop {
        match rig
            .client
            .handle
            .try_send_telemetry(message(&acks.len().to_string()))
        {
            Ok(ack) => acks.push(ack),
            Err(SendError::Full) if acks.len() < 26 => tokio::task::yield_now().await,
            Err(error) => {
                assert!(matches!(error, SendError::Full), "{error}");
                break;
            }
        }
    }
    assert_eq!(acks.len(), 26, "ten in flight, sixteen waiting");
    let mut ids = Vec::new();
    for _ in 0..10 {
        let Packet::Publish { id, .. } = peer.next().await else {
            panic!()
        };
        ids.push(id);
    }
    assert_eq!(
        peer.idle(Duration::from_secs(20)).await,
        None,
        "no eleventh"
    );
    // Acknowledged in another order than sent: each ack belongs to its own message.
    peer.puback(ids[4]).await;
    acks.remove(4).await.unwrap();
    assert!(matches!(peer.next().await, Packet::Publish { .. }));
}

#[tokio::test(start_paused = true)]
async fn a_withheld_puback_ends_the_link_and_the_message_goes_again() {
    let mut rig = Rig::new(config());
    let mut peer = up(&mut rig).await;
    let ack = rig
        .client
        .handle
        .send_telemetry(message("m"))
        .await
        .unwrap();
    let Packet::Publish { .. } = peer.next().await else {
        panic!()
    };
    assert_eq!(peer.idle(Duration::from_secs(600)).await, None);
    let mut peer = rig.peer().await;
    peer.accept().await;
    assert!(peer.expect_publish("devices/", true).await.2);
    ack.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn connack_that_never_comes_costs_a_minute_and_later_connects_wait_a_little() {
    let mut rig = Rig::new(config());
    let mut first = rig.peer().await;
    let Packet::Connect { .. } = first.next().await else {
        panic!()
    };
    let asked = Instant::now();
    assert!(
        asked - first.accepted_at < Duration::from_millis(1),
        "no pause at first"
    );
    assert_eq!(first.try_next().await, None, "given up");
    assert_eq!(asked.elapsed().as_secs(), 60);
    let mut second = rig.peer().await;
    second.accept().await;
    let pause = Instant::now() - second.accepted_at;
    assert!((50..=200).contains(&pause.as_millis()), "{pause:?}");
    rig.status(|s| s.state == State::Syncing).await;
}

#[tokio::test(start_paused = true)]
async fn refusals_are_never_final() {
    let mut rig = Rig::new(config());
    for code in [5_u8, 3, 1, 2, 4, 5, 5] {
        let mut peer = rig.peer().await;
        let Packet::Connect { .. } = peer.next().await else {
            panic!()
        };
        peer.send(&[0x20, 2, 0, code]).await;
        let told = rig
            .event_of(|e| match e {
                Event::ConnackRefused { code } => Some(code),
                _ => None,
            })
            .await;
        assert_eq!(told, code);
    }
    let status = rig.client.handle.status();
    let (reason, detail) = status.last_failure.unwrap();
    assert_eq!(reason, DisconnectReason::Refused);
    assert!(
        detail.contains("not authorised") && !detail.contains("token"),
        "{detail}"
    );
    let mut peer = rig.peer().await;
    let (connect, _) = peer.accept().await;
    // Each attempt is signed anew: the clock may have been set meanwhile.
    assert!(matches!(connect, Packet::Connect { password, .. } if password == "token 7"));
}

#[tokio::test(start_paused = true)]
async fn attempts_spread_out_up_to_two_minutes() {
    let rig = Rig::new(config());
    *rig.state.refuse.lock().unwrap() = true;
    tokio::time::sleep(Duration::from_secs(24 * 3_600)).await;
    let attempts = rig.state.attempts.lock().unwrap().clone();
    // The mean wait is a minute; 24 hours bring about 1,440 attempts.
    assert!(
        (1_000..2_000).contains(&attempts.len()),
        "{}",
        attempts.len()
    );
    let longest = attempts.windows(2).map(|w| w[1] - w[0]).max().unwrap();
    assert!(longest <= Duration::from_secs(121), "{longest:?}");
    assert!(longest >= Duration::from_secs(90), "{longest:?}");
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_accepts_and_drops_does_not_get_a_flood() {
    let mut rig = Rig::new(config());
    let began = Instant::now();
    let mut links = 0;
    while began.elapsed() < Duration::from_secs(3_600) {
        let mut peer = rig.peer().await;
        peer.accept().await;
        links += 1;
    }
    assert!(links < 130, "{links} links in an hour");
    // A link that was stable for a minute starts the back-off from its first step.
    let mut peer = up(&mut rig).await;
    assert_eq!(peer.idle(Duration::from_secs(70)).await, None);
    drop(peer);
    let lost = Instant::now();
    rig.peer().await;
    assert!(
        lost.elapsed() <= Duration::from_secs(1),
        "{:?}",
        lost.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn a_refusing_workload_socket_is_visible_with_its_beginning() {
    let mut rig = Rig::new(config());
    *rig.state.no_credentials.lock().unwrap() = Some(true);
    rig.status(|s| s.state == State::WaitWorkload).await;
    tokio::time::sleep(Duration::from_secs(601)).await;
    let status = rig.client.handle.status();
    let refused = status
        .workload_refused_for(Instant::now().into_std())
        .unwrap();
    assert!(refused >= Duration::from_secs(600), "{refused:?}");
    // An answer of any kind means that the socket lives.
    *rig.state.no_credentials.lock().unwrap() = Some(false);
    rig.status(|s| s.workload_refused_since.is_none()).await;
    *rig.state.no_credentials.lock().unwrap() = None;
    let _peer = up(&mut rig).await;
    rig.status(|s| s.state == State::Up && s.last_failure.is_none())
        .await;
}

#[tokio::test(start_paused = true)]
async fn every_reconnect_subscribes_and_asks_again() {
    let mut rig = Rig::new(config());
    for round in 1..=4 {
        let mut peer = rig.peer().await;
        let (_, subscribe) = peer.accept().await;
        let Packet::Subscribe { filters, .. } = subscribe else {
            panic!()
        };
        assert_eq!(filters.len(), 4);
        let twin = json!({"desired": {"n": round, "$version": round}, "reported": {}});
        peer.answer("GET", 200, &twin).await;
        let version = rig
            .event_of(|e| match e {
                Event::Desired { version, .. } => Some(version),
                _ => None,
            })
            .await;
        assert_eq!(version, round);
    }
}

#[tokio::test(start_paused = true)]
async fn inputs_are_acknowledged_and_when_nobody_takes_them_left_for_redelivery() {
    let mut settings = config();
    settings.limits.events = 8;
    let mut rig = Rig::new(settings);
    let mut peer = up(&mut rig).await;
    let topic = "devices/edge1/modules/lamp/inputs/in/%24.cdid=edge1&k=a%20b";
    let mut acked = Vec::new();
    for id in 1..=30 {
        peer.send(&publish(topic, &id.to_string(), Some(id))).await;
    }
    // Nobody reads events: Connected and Desired take two of the eight places.
    while let Some(Packet::Puback { id }) = peer.idle(Duration::from_secs(5)).await {
        acked.push(id);
    }
    assert_eq!(
        acked,
        [1, 2, 3, 4, 5, 6],
        "in order, and only what was taken"
    );
    for id in 1..=6 {
        let input = rig
            .event_of(|e| match e {
                Event::Input(input) => Some(input),
                _ => None,
            })
            .await;
        assert_eq!(input.body, id.to_string());
        let properties = [("$.cdid", "edge1"), ("k", "a b")];
        assert_eq!(
            input.properties,
            properties.map(|(k, v)| (k.to_owned(), v.to_owned()))
        );
    }
    // The hub brings the others again, and now there is room.
    peer.send(&publish(topic, "7", Some(1))).await;
    assert_eq!(
        peer.idle(Duration::from_secs(5)).await,
        Some(Packet::Puback { id: 1 })
    );
    let counters = rig.client.handle.status().counters;
    assert_eq!((counters.inputs, counters.inputs_deferred), (7, 24));
}

#[tokio::test(start_paused = true)]
async fn nothing_secret_is_in_debug_output_or_status() {
    let mut rig = Rig::new(config());
    let mut peer = rig.peer().await;
    peer.next().await;
    peer.send(&[0x20, 2, 0, 5]).await;
    rig.status(|s| s.last_failure.is_some()).await;
    let shown = format!("{:?} {:?}", rig.client, rig.client.handle.status());
    assert!(!shown.contains("token 0"), "{shown}");
}

#[tokio::test(start_paused = true)]
async fn a_message_that_is_too_large_is_refused_here_and_the_link_stays() {
    let mut rig = Rig::new(config());
    let mut peer = up(&mut rig).await;
    let big = Telemetry::json("big", "events", &"x".repeat(250_000)).unwrap();
    assert!(matches!(
        rig.client.handle.send_telemetry(big).await,
        Err(SendError::Message(crate::TelemetryError::TooLarge { .. }))
    ));
    let ack = rig
        .client
        .handle
        .send_telemetry(message("small"))
        .await
        .unwrap();
    peer.expect_publish("devices/", true).await;
    ack.await.unwrap();
}
