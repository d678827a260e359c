//! Telemetry and inputs: acknowledged, lost, repeated, too large, late.

use std::time::{Duration, SystemTime};

use serde_json::json;
use slice_hub::{DisconnectReason, Event, SendError, Telemetry, TelemetryError};
use slice_lab::edge::{Edge, EdgeOptions};

use crate::harness::{MODULE, Rig, ids, message};

#[tokio::test]
async fn kind_15_what_is_sent_again_has_the_same_id() {
    let mut rig = Rig::up().await;
    rig.edge.faults(|f| f.withhold_puback = true);
    let mut acks = Vec::new();
    for n in 0..5 {
        acks.push(
            rig.client
                .handle
                .send_telemetry(message(&format!("m{n}")))
                .await
                .unwrap(),
        );
    }
    // The hub has taken them, and we do not know.
    rig.device(|v| v.telemetry().len() == 5).await;
    rig.edge.drop_connections();
    rig.edge.faults(|f| f.withhold_puback = false);
    for ack in acks {
        ack.await.unwrap();
    }
    rig.device(|v| v.telemetry().len() == 10).await;
    let seen = rig.edge.look(ids);
    let once: Vec<_> = (0..5).map(|n| format!("m{n}")).collect();
    assert_eq!(seen[..5], once[..]);
    assert_eq!(
        seen[5..],
        once[..],
        "in order, so that one look at the id drops the repeats"
    );
    let repeats = rig.edge.telemetry();
    assert!(
        repeats[5..]
            .iter()
            .all(|t| t.properties.contains_key("mqtt-dup")),
        "{repeats:?}"
    );
    assert_eq!(rig.client.handle.status().counters.telemetry_resent, 5);
    rig.until_up().await;
}

#[tokio::test]
async fn kind_16_the_largest_message_passes_and_a_larger_one_is_refused_here() {
    let rig = Rig::up().await;
    let body = |bytes: usize| Telemetry {
        body: "x".repeat(bytes).into(),
        content_type: None,
        ..message("big")
    };
    let error = rig
        .client
        .handle
        .send_telemetry(body(250_000))
        .await
        .unwrap_err();
    assert!(
        matches!(error, SendError::Message(TelemetryError::TooLarge { .. })),
        "{error}"
    );
    let ack = rig
        .client
        .handle
        .send_telemetry(body(249_700))
        .await
        .unwrap();
    ack.await.unwrap();
    rig.device(|v| v.telemetry().len() == 1).await;
    assert_eq!(rig.edge.counters().connected, 1, "the link stayed");
    assert_eq!(rig.edge.telemetry()[0].body.len(), 249_700);
}

#[tokio::test]
async fn kind_18_a_full_disk_is_back_pressure() {
    let mut rig = Rig::up().await;
    rig.edge.faults(|f| f.disk_full = true);
    let ack = rig
        .client
        .handle
        .send_telemetry(message("m1"))
        .await
        .unwrap();
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
    let connections = rig.edge.counters().connected;
    rig.device(|v| v.counters().connected >= connections + 2)
        .await;
    rig.edge.faults(|f| f.disk_full = false);
    ack.await.unwrap();
    rig.device(|v| ids(v) == ["m1"]).await;
}

#[tokio::test]
async fn kind_19_and_21_a_hub_without_its_cloud_still_takes_and_keeps_messages() {
    let mut rig = Rig::up().await;
    rig.edge.faults(|f| f.cloud_offline = true);
    for n in 0..20 {
        rig.deliver(&format!("m{n}")).await;
    }
    assert!(rig.client.handle.status().state.is_connected());
    assert_eq!(rig.edge.telemetry().len(), 0);
    rig.edge.faults(|f| f.cloud_offline = false);
    rig.device(|v| v.telemetry().len() == 20).await;
    rig.until_up().await;
}

#[tokio::test]
async fn kind_22_a_late_message_says_when_it_was_made() {
    let edge = Edge::start(EdgeOptions::quick()).await.unwrap();
    edge.stop_hub().await;
    let rig = Rig::on(edge, |_| {});
    let made = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    let old = Telemetry {
        created_at: Some(made),
        ..message("old")
    }
    .property("site", "Brno / 1");
    let ack = rig.client.handle.send_telemetry(old).await.unwrap();
    rig.status(|s| s.failures >= 2).await;
    rig.edge.start_hub().await.unwrap();
    ack.await.unwrap();
    rig.device(|v| v.telemetry().len() == 1).await;
    let seen = rig.edge.telemetry().remove(0);
    assert_eq!(seen.system["ctime"], "2023-11-14T22:13:20.000Z");
    assert_eq!(seen.properties["site"], "Brno / 1");
}

#[tokio::test]
async fn kind_23_every_input_is_acknowledged() {
    let mut rig = Rig::up().await;
    for n in 0..60 {
        rig.edge
            .send_input(MODULE, "in", n.to_string(), &[("from", "a&b=c d")])
            .unwrap();
    }
    for n in 0..60 {
        let input = rig
            .event(|e| match e {
                Event::Input(input) => Some(input),
                _ => None,
            })
            .await;
        assert_eq!(input.body, n.to_string());
        let property = |name: &str| {
            input
                .properties
                .iter()
                .find(|(n, _)| n == name)
                .map(|(_, v)| v.as_str())
        };
        assert_eq!(property("from"), Some("a&b=c d"));
        assert_eq!(property("$.cdid"), Some("edge1"));
    }
    rig.device(|v| v.pending_inputs(MODULE).is_empty()).await;
    assert_eq!(rig.edge.counters().redelivered, 0);
}

#[tokio::test]
async fn inputs_that_found_no_room_come_again() {
    let mut rig = Rig::start(|c| c.limits.events = 4).await;
    rig.until_up().await;
    for n in 0..12 {
        rig.edge
            .send_input(MODULE, "in", n.to_string(), &[])
            .unwrap();
    }
    rig.status(|s| s.counters.inputs_deferred > 0).await;
    let mut seen = std::collections::BTreeSet::new();
    while seen.len() < 12 {
        let input = rig
            .event(|e| match e {
                Event::Input(input) => Some(input),
                _ => None,
            })
            .await;
        seen.insert(String::from_utf8(input.body.to_vec()).unwrap());
    }
    rig.device(|v| v.pending_inputs(MODULE).is_empty()).await;
}

#[tokio::test]
async fn a_long_run_of_telemetry_through_drops_arrives_each_once_by_id() {
    let rig = Rig::up().await;
    let sender = {
        let handle = rig.client.handle.clone();
        tokio::spawn(async move {
            let mut acks = Vec::new();
            for n in 0..300 {
                let message = Telemetry::json(n.to_string(), "events", &json!(n)).unwrap();
                acks.push(handle.send_telemetry(message).await.unwrap());
            }
            for ack in acks {
                ack.await.unwrap();
            }
        })
    };
    for drops in 1..=8 {
        let want = drops * 30;
        rig.device(|v| v.telemetry().len() >= want).await;
        rig.edge.drop_connections();
    }
    sender.await.unwrap();
    rig.device(|v| v.stored_messages() == 0).await;
    let mut seen: Vec<u32> = rig
        .edge
        .look(ids)
        .iter()
        .map(|id| id.parse().unwrap())
        .collect();
    let total = seen.len();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen, (0..300).collect::<Vec<_>>());
    assert!(
        total <= 300 + 8 * 10,
        "{total}: only what was in flight is repeated"
    );
}

#[tokio::test]
async fn a_local_route_brings_an_alarm_to_another_module_without_the_cloud() {
    let route = r#"FROM /messages/modules/slice-healer/outputs/events INTO BrokeredEndpoint("/modules/lamp/inputs/alarm")"#;
    let options = EdgeOptions {
        modules: vec![MODULE.into(), "lamp".into()],
        routes: vec![route.into()],
        ..EdgeOptions::quick()
    };
    let edge = Edge::start(options).await.unwrap();
    edge.faults(|f| f.cloud_offline = true);
    let healer = Rig::on(edge.clone(), |_| {});
    let mut lamp = Rig::on(edge, |c| {
        c.identity.module_id = "lamp".into();
        if let slice_hub::Credentials::Workload { generation_id, .. } = &mut c.credentials {
            let vars = healer.edge.module_env("lamp").unwrap();
            let generation = vars
                .iter()
                .find(|(n, _)| n == "IOTEDGE_MODULEGENERATIONID")
                .unwrap();
            generation_id.clone_from(&generation.1);
        }
    });
    lamp.event(|e| matches!(e, Event::Connected { .. }).then_some(()))
        .await;
    healer.deliver("alarm 1").await;
    let input = lamp
        .event(|e| match e {
            Event::Input(input) => Some(input),
            _ => None,
        })
        .await;
    assert_eq!(input.name, "alarm");
    assert_eq!(input.body, r#"{"id":"alarm 1"}"#);
}
