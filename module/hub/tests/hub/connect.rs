//! Links that do not come up, break, or stay half dead.

use std::time::Duration;

use serde_json::json;
use slice_hub::{DisconnectReason, Event, State};
use slice_lab::edge::{Edge, EdgeOptions, Way};

use crate::harness::{Rig, ids, message};

#[tokio::test]
async fn comes_up_with_all_subscriptions_and_names_itself() {
    let mut rig = Rig::start(|c| {
        c.product = "slice-healer/0.1 (arm64)".into();
        c.model_id = Some("dtmi:io:slice;1".into());
    })
    .await;
    rig.until_up().await;
    rig.device(|v| v.subscriptions().len() == 4).await;
    rig.deliver("m1").await;
    rig.device(|v| v.telemetry().len() == 1).await;
    let message = rig.edge.telemetry().remove(0);
    assert_eq!(message.model_id.as_deref(), Some("dtmi:io:slice;1"));
    assert_eq!(message.output.as_deref(), Some("events"));
    assert_eq!(message.content_type(), Some("application/json"));
    assert!(message.body_readable, "routes can look into the body");
    let report = rig.client.handle.drain(Duration::from_secs(8)).await;
    assert!(report.disconnected);
    rig.device(|v| v.count(Way::In, "DISCONNECT") == 1).await;
}

#[tokio::test]
async fn kind_01_edge_hub_restarts_and_nothing_is_lost() {
    let mut rig = Rig::up().await;
    let mut acks = Vec::new();
    for round in 0..4 {
        rig.edge.stop_hub().await;
        for n in 0..3 {
            let id = format!("r{round}-{n}");
            acks.push(
                rig.client
                    .handle
                    .send_telemetry(message(&id))
                    .await
                    .unwrap(),
            );
        }
        rig.edge.start_hub().await.unwrap();
        let version = rig
            .edge
            .cloud()
            .patch_desired(json!({"round": round}))
            .unwrap();
        let (_, document) = rig.desired(version).await;
        assert_eq!(document, json!({"round": round}));
        rig.device(|v| v.subscriptions().len() == 4).await;
    }
    for ack in acks {
        ack.await.unwrap();
    }
    rig.device(|v| v.stored_messages() == 0).await;
    let mut seen = rig.edge.look(ids);
    seen.dedup();
    let sent: Vec<_> = (0..12).map(|i| format!("r{}-{}", i / 3, i % 3)).collect();
    assert_eq!(seen, sent, "each id arrived, in order");
}

#[tokio::test]
async fn kind_02_edge_hub_is_not_there_yet_or_refuses() {
    let edge = Edge::start(EdgeOptions::quick()).await.unwrap();
    edge.stop_hub().await;
    let mut rig = Rig::on(edge, |_| {});
    let status = rig.status(|s| s.failures >= 3).await;
    assert_eq!(status.last_failure.unwrap().0, DisconnectReason::Network);
    for code in [5, 3] {
        rig.edge.faults(|f| {
            f.connack_code = Some(code);
            f.connack_times = Some(3);
        });
        rig.edge.start_hub().await.unwrap();
        let mut told = 0;
        while told < 3 {
            let got = rig
                .event(|e| match e {
                    Event::ConnackRefused { code } => Some(code),
                    _ => None,
                })
                .await;
            assert_eq!(got, code);
            told += 1;
        }
        rig.event(|e| matches!(e, Event::Connected { .. }).then_some(()))
            .await;
        rig.edge.stop_hub().await;
    }
}

#[tokio::test]
async fn kind_03_a_connect_that_gets_lost_is_repeated_with_a_pause() {
    let edge = Edge::start(EdgeOptions::quick()).await.unwrap();
    // Every CONNECT within 40 ms after the handshake is swallowed, as edgeHub 1.6.0 can do.
    edge.faults(|f| f.lose_connect_within = Some(Duration::from_millis(40)));
    let mut rig = Rig::on(edge, |c| c.timings.connack = Duration::from_millis(700));
    rig.until_up().await;
    let connections = rig.edge.look(|v| v.connections());
    assert!(connections >= 2, "the first try must have been lost");

    // And one that is never answered at all.
    rig.edge.faults(|f| {
        f.lose_connect_within = None;
        f.connack_never = true;
        f.connack_times = Some(1);
    });
    rig.edge.drop_connections();
    rig.status(|s| {
        s.last_failure
            .as_ref()
            .is_some_and(|(r, _)| *r == DisconnectReason::ConnackTimeout)
    })
    .await;
    rig.until_up().await;
}

#[tokio::test]
async fn a_slow_connack_is_waited_for() {
    let edge = Edge::start(EdgeOptions::quick()).await.unwrap();
    edge.faults(|f| f.connack_delay = Some(Duration::from_millis(1_500)));
    let mut rig = Rig::on(edge, |_| {});
    rig.until_up().await;
    assert_eq!(rig.edge.look(|v| v.connections()), 1);
}

#[tokio::test]
async fn kind_20_accept_and_drop_does_not_become_a_flood() {
    let edge = Edge::start(EdgeOptions::quick()).await.unwrap();
    edge.faults(|f| f.drop_after = Some(Duration::from_millis(1)));
    let mut rig = Rig::on(edge, |c| {
        c.timings.backoff = (Duration::from_millis(50), Duration::from_secs(120));
        c.timings.stable = Duration::from_secs(60);
    });
    rig.status(|s| s.failures >= 5).await;
    let status = rig.client.handle.status();
    // The ceiling doubles although every attempt got as far as CONNACK.
    assert!(
        status.failures >= 5 && status.counters.connects >= 4,
        "{status:?}"
    );
    rig.edge.faults(|f| f.drop_after = None);
    rig.until_up().await;
}

#[tokio::test]
async fn kind_21_a_dead_peer_and_a_cut_packet() {
    let mut rig = Rig::start(|c| {
        c.timings.keep_alive = Duration::from_secs(2);
        c.timings.pingresp = Duration::from_secs(1);
    })
    .await;
    rig.until_up().await;
    rig.edge.faults(|f| f.frozen = true);
    let reason = rig
        .event(|e| match e {
            Event::Disconnected { reason, .. } => Some(reason),
            _ => None,
        })
        .await;
    assert_eq!(reason, DisconnectReason::PingTimeout);
    rig.edge.faults(|f| f.frozen = false);
    rig.until_up().await;

    rig.edge.faults(|f| f.cut_next_publish = true);
    let version = rig
        .edge
        .cloud()
        .patch_desired(json!({"cut": true}))
        .unwrap();
    let (_, document) = rig.desired(version).await;
    assert_eq!(
        document,
        json!({"cut": true}),
        "what was cut came with the next GET"
    );
}

#[tokio::test]
async fn a_second_client_with_our_id_takes_over_and_we_come_back() {
    let mut rig = Rig::up().await;
    let other = slice_hub::Client::spawn({
        let mut config = crate::harness::config(&rig.edge);
        config.timings.backoff = (Duration::from_secs(30), Duration::from_secs(30));
        config
    });
    rig.event(|e| {
        matches!(
            e,
            Event::Disconnected {
                reason: DisconnectReason::Closed,
                ..
            }
        )
        .then_some(())
    })
    .await;
    other.handle.drain(Duration::from_secs(1)).await;
    rig.until_up().await;
    assert!(rig.edge.counters().taken_over >= 1);
    assert_eq!(rig.client.handle.status().state, State::Up);
}
