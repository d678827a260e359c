//! Messages: where routes take them, what is dropped though acknowledged, and inputs of modules.

use serde_json::json;
use slice_lab::edge::mqtt::{Packet, Publish};
use slice_lab::edge::{Edge, EdgeOptions};

use crate::raw::{ACK, DEADLINE, EVENTS, Raw, connect_packet, publish};

fn options(routes: &[&str]) -> EdgeOptions {
    EdgeOptions {
        modules: vec!["slice-healer".into(), "lamp".into()],
        routes: routes.iter().map(|route| (*route).to_owned()).collect(),
        ..EdgeOptions::quick()
    }
}

#[tokio::test]
async fn a_message_arrives_with_its_properties_taken_apart() {
    let edge = Edge::start(EdgeOptions::quick()).await.unwrap();
    let mut raw = Raw::module(&edge, "slice-healer").await;
    let bag = "type=heal&site=brno%20%2F1&%24.on=events&%24.mid=m-1&%24.ct=application%2Fjson&%24.ce=utf-8";
    raw.publish(1, &format!("{EVENTS}{bag}"), br#"{"id":"m-1"}"#)
        .await;
    assert_eq!(raw.next().await, Some(ACK));
    let [record] = edge.telemetry().try_into().unwrap();
    assert_eq!(record.output.as_deref(), Some("events"));
    assert_eq!(record.message_id(), Some("m-1"));
    assert_eq!(record.content_type(), Some("application/json"));
    assert_eq!(record.properties["site"], "brno /1");
    assert_eq!(record.json(), Some(json!({"id": "m-1"})));
    assert!(record.body_readable);
    assert_eq!(record.module, "slice-healer");
}

#[tokio::test]
async fn the_connection_counts_and_not_the_topic() {
    let edge = Edge::start(EdgeOptions::quick()).await.unwrap();
    let mut raw = Raw::module(&edge, "slice-healer").await;
    for topic in [
        "devices/other/modules/stranger/messages/events/",
        "devices/edge1/messages/events/",
    ] {
        raw.publish(1, topic, b"x").await;
        assert_eq!(raw.next().await, Some(ACK));
    }
    assert!(
        edge.telemetry()
            .iter()
            .all(|record| record.module == "slice-healer")
    );
    assert_eq!(edge.telemetry().len(), 2);
}

#[tokio::test]
async fn what_nobody_wants_is_dropped_and_acknowledged() {
    let edge = Edge::start(options(&[
        "FROM /messages/modules/slice-healer/outputs/* INTO $upstream",
    ]))
    .await
    .unwrap();
    let mut raw = Raw::module(&edge, "slice-healer").await;
    for topic in [
        EVENTS,
        "devices/edge1/slice-healer/messages/events/",
        "$iothub/nonsense",
        "a",
    ] {
        raw.publish(1, topic, b"x").await;
        assert_eq!(raw.next().await, Some(ACK), "{topic}");
    }
    assert!(edge.telemetry().is_empty());
    assert_eq!(
        (edge.counters().unrouted, edge.counters().unknown_topics),
        (1, 3)
    );
}

#[tokio::test]
async fn retain_and_dup_become_properties_and_qos_two_is_taken_and_ends_it() {
    let edge = Edge::start(EdgeOptions::quick()).await.unwrap();
    let mut raw = Raw::module(&edge, "slice-healer").await;
    let Packet::Publish(plain) = publish(1, EVENTS, b"x") else {
        unreachable!()
    };
    raw.send(&Packet::Publish(Publish {
        dup: true,
        retain: true,
        ..plain
    }))
    .await;
    assert_eq!(raw.next().await, Some(ACK));
    let record = edge.telemetry().remove(0);
    assert_eq!(record.properties["mqtt-retain"], "true");
    assert_eq!(record.properties["mqtt-dup"], "true");
    raw.publish(2, EVENTS, b"y").await;
    assert_eq!(raw.next().await, None);
    assert_eq!(edge.telemetry().len(), 2);
}

#[tokio::test]
async fn a_full_disk_ends_the_connection_without_an_acknowledgement() {
    let edge = Edge::start(EdgeOptions::quick()).await.unwrap();
    edge.faults(|faults| faults.disk_full = true);
    let mut raw = Raw::module(&edge, "slice-healer").await;
    raw.publish(1, EVENTS, b"x").await;
    assert_eq!(raw.next().await, None);
    assert!(edge.telemetry().is_empty());
}

#[tokio::test]
async fn messages_wait_for_the_cloud_and_survive_a_restart() {
    let edge = Edge::start(EdgeOptions::quick()).await.unwrap();
    edge.faults(|faults| faults.cloud_offline = true);
    let mut raw = Raw::module(&edge, "slice-healer").await;
    raw.publish(1, EVENTS, b"x").await;
    assert_eq!(raw.next().await, Some(ACK));
    assert!(edge.telemetry().is_empty());
    edge.restart().await.unwrap();
    assert_eq!(edge.look(|view| view.stored_messages()), 1);
    edge.faults(|faults| faults.cloud_offline = false);
    edge.wait_for(|view| view.telemetry().len() == 1, DEADLINE)
        .await
        .unwrap();
}

#[tokio::test]
async fn without_persistent_storage_a_restart_loses_what_waits() {
    let options = EdgeOptions {
        persistent_storage: false,
        ..EdgeOptions::quick()
    };
    let edge = Edge::start(options).await.unwrap();
    edge.faults(|faults| faults.cloud_offline = true);
    let mut raw = Raw::module(&edge, "slice-healer").await;
    raw.publish(1, EVENTS, b"x").await;
    assert_eq!(raw.next().await, Some(ACK));
    edge.restart().await.unwrap();
    assert_eq!(edge.look(|view| view.stored_messages()), 0);
}

#[tokio::test]
async fn a_route_to_a_local_module_needs_no_cloud() {
    let edge = Edge::start(options(&[
        "FROM /messages/modules/slice-healer/outputs/events WHERE severity = 'critical' INTO BrokeredEndpoint(\"/modules/lamp/inputs/alarm\")",
    ]))
    .await
    .unwrap();
    edge.faults(|faults| faults.cloud_offline = true);
    let mut healer = Raw::module(&edge, "slice-healer").await;
    let bag = "severity=critical&%24.on=events&%24.mid=7";
    healer.publish(1, &format!("{EVENTS}{bag}"), b"on").await;
    assert_eq!(healer.next().await, Some(ACK));
    assert_eq!(edge.look(|view| view.pending_inputs("lamp").len()), 1);

    let mut lamp = Raw::subscribed(&edge, "lamp").await;
    let message = lamp.next_publish().await;
    assert!(
        message
            .topic
            .starts_with("devices/edge1/modules/lamp/inputs/alarm/"),
        "{}",
        message.topic
    );
    for part in [
        "severity=critical",
        "%24.cdid=edge1",
        "%24.cmid=slice-healer",
        "%24.mid=7",
    ] {
        assert!(message.topic.contains(part), "{part} in {}", message.topic);
    }
    assert_eq!(message.payload, "on");
    edge.wait_for(|view| view.pending_inputs("lamp").is_empty(), DEADLINE)
        .await
        .unwrap();
}

#[tokio::test]
async fn an_input_message_without_acknowledgement_comes_again() {
    let edge = Edge::start(options(&[])).await.unwrap();
    let mut lamp = Raw::subscribed(&edge, "lamp").await;
    edge.send_input("lamp", "alarm", "on", &[("colour", "red")])
        .unwrap();
    for _ in 0..2 {
        let Some(Packet::Publish(message)) = lamp.next().await else {
            panic!("the message")
        };
        assert!(
            message.topic.contains("/inputs/alarm/colour=red"),
            "{}",
            message.topic
        );
        assert!(!message.dup && message.packet_id == 1);
    }
    let mut again = Raw::subscribed(&edge, "lamp").await;
    assert_eq!(again.next_publish().await.payload, "on");
    edge.wait_for(|view| view.pending_inputs("lamp").is_empty(), DEADLINE)
        .await
        .unwrap();
    assert!(edge.counters().redelivered >= 2);
}

#[tokio::test]
async fn at_most_twenty_input_messages_are_under_way() {
    let mut options = options(&[]);
    options.message_ack_timeout = DEADLINE * 10;
    let edge = Edge::start(options).await.unwrap();
    let mut lamp = Raw::subscribed(&edge, "lamp").await;
    for number in 0..25 {
        edge.send_input("lamp", "alarm", format!("{number}"), &[])
            .unwrap();
    }
    for number in 0..20 {
        let Some(Packet::Publish(message)) = lamp.next().await else {
            panic!("the message")
        };
        assert_eq!(message.payload, format!("{number}"));
    }
    lamp.quiet().await;
    lamp.send(&Packet::PubAck(1)).await;
    let Some(Packet::Publish(message)) = lamp.next().await else {
        panic!("the message")
    };
    assert_eq!(message.payload, "20");
}

#[tokio::test]
async fn the_will_of_a_lost_client_is_a_message() {
    let edge = Edge::start(EdgeOptions::quick()).await.unwrap();
    let will = |body: &str| {
        let Packet::Publish(will) = publish(0, EVENTS, body.as_bytes()) else {
            unreachable!()
        };
        will
    };
    for goodbye in [true, false] {
        let mut raw = Raw::tls(&edge).await.unwrap();
        let mut connect = connect_packet(&edge, "slice-healer").await;
        connect.will = Some(will(if goodbye { "never" } else { "gone" }));
        raw.send(&Packet::Connect(Box::new(connect))).await;
        assert_eq!(raw.next().await, Some(Packet::ConnAck(false, 0)));
        if goodbye {
            raw.send(&Packet::Disconnect).await;
            assert_eq!(raw.next().await, None);
        }
    }
    edge.wait_for(|view| !view.telemetry().is_empty(), DEADLINE)
        .await
        .unwrap();
    let [record] = edge.telemetry().try_into().unwrap();
    assert_eq!(record.body, "gone");
    assert_eq!(record.properties["messageType"], "Will");
}
