//! The knobs of the connection itself.

use std::time::Duration;

use slice_lab::edge::mqtt::{Packet, encode};
use slice_lab::edge::{Edge, EdgeOptions};

use crate::raw::{ACK, DEADLINE, EVENTS, Raw, connect_packet, publish};

#[tokio::test]
async fn connack_can_be_late_wrong_or_never_come() {
    let edge = Edge::start(EdgeOptions::quick()).await.unwrap();
    let connect = Packet::Connect(Box::new(connect_packet(&edge, "slice-healer").await));
    edge.faults(|faults| {
        faults.connack_code = Some(3);
        faults.connack_times = Some(1);
    });
    let mut raw = Raw::tls(&edge).await.unwrap();
    raw.send(&connect).await;
    assert_eq!(raw.next().await, Some(Packet::ConnAck(false, 3)));
    edge.faults(|faults| {
        faults.connack_never = true;
        faults.connack_times = Some(1);
    });
    let mut raw = Raw::tls(&edge).await.unwrap();
    raw.send(&connect).await;
    raw.quiet().await;
    edge.faults(|faults| faults.connack_delay = Some(Duration::from_millis(300)));
    let begun = std::time::Instant::now();
    Raw::module(&edge, "slice-healer").await;
    assert!(begun.elapsed() >= Duration::from_millis(300));
}

#[tokio::test]
async fn a_connect_right_behind_the_handshake_can_be_lost() {
    let edge = Edge::start(EdgeOptions::quick()).await.unwrap();
    let within = Duration::from_millis(300);
    edge.faults(|faults| faults.lose_connect_within = Some(within));
    let connect = Packet::Connect(Box::new(connect_packet(&edge, "slice-healer").await));
    let mut raw = Raw::tls(&edge).await.unwrap();
    raw.send(&connect).await;
    raw.quiet().await;
    let mut raw = Raw::tls(&edge).await.unwrap();
    tokio::time::sleep(within * 2).await;
    raw.send(&connect).await;
    assert_eq!(raw.next().await, Some(Packet::ConnAck(false, 0)));
}

#[tokio::test]
async fn a_connection_can_be_dropped_after_a_while_or_in_the_middle_of_a_packet() {
    let edge = Edge::start(EdgeOptions::quick()).await.unwrap();
    edge.faults(|faults| faults.drop_after = Some(Duration::from_millis(50)));
    let mut raw = Raw::module(&edge, "slice-healer").await;
    assert_eq!(raw.next().await, None);
    edge.faults(|faults| {
        faults.drop_after = None;
        faults.cut_next_publish = true;
    });
    let mut raw = Raw::subscribed(&edge, "slice-healer").await;
    edge.cloud()
        .set_desired(serde_json::json!({"a": 1}))
        .unwrap();
    assert_eq!(raw.next().await, None);
    assert!(raw.leftover() > 0, "half of a packet had come");
    assert!(!edge.look(|view| view.faults().cut_next_publish));
}

#[tokio::test]
async fn withheld_acknowledgements_stop_the_reading_at_sixteen() {
    let edge = Edge::start(EdgeOptions::quick()).await.unwrap();
    edge.faults(|faults| faults.withhold_puback = true);
    let mut raw = Raw::module(&edge, "slice-healer").await;
    let bytes = encode(&publish(1, EVENTS, b"x"));
    raw.send_bytes(&bytes.repeat(20)).await;
    edge.wait_for(|view| view.telemetry().len() == 16, DEADLINE)
        .await
        .unwrap();
    raw.quiet().await;
    assert_eq!(edge.telemetry().len(), 16);
    edge.faults(|faults| faults.withhold_puback = false);
    for _ in 0..20 {
        assert_eq!(raw.next().await, Some(ACK));
    }
    assert_eq!(edge.telemetry().len(), 20);
}

#[tokio::test]
async fn a_frozen_hub_keeps_the_connection_and_says_nothing() {
    let edge = Edge::start(EdgeOptions::quick()).await.unwrap();
    let mut raw = Raw::module(&edge, "slice-healer").await;
    edge.faults(|faults| faults.frozen = true);
    raw.send(&Packet::PingReq).await;
    raw.quiet().await;
    edge.faults(|faults| faults.frozen = false);
    assert_eq!(raw.next().await, Some(Packet::PingResp));
}

#[tokio::test]
async fn a_stopped_hub_refuses_connections_and_comes_back_on_its_port() {
    let edge = Edge::start(EdgeOptions::quick()).await.unwrap();
    let port = edge.mqtt_port();
    let mut raw = Raw::module(&edge, "slice-healer").await;
    edge.stop_hub().await;
    assert_eq!(raw.next().await, None);
    assert!(Raw::tls(&edge).await.is_err());
    edge.start_hub().await.unwrap();
    assert_eq!(edge.mqtt_port(), port);
    Raw::module(&edge, "slice-healer").await;
}

#[tokio::test]
async fn a_device_that_is_shut_down_leaves_nothing_behind() {
    let edge = Edge::start(EdgeOptions::quick()).await.unwrap();
    let socket = edge.workload_socket().to_owned();
    assert!(socket.exists());
    edge.shut_down().await;
    assert!(!socket.exists());
}
