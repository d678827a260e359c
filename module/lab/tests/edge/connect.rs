//! Connecting: who gets in, with what code others are sent away, sessions and takeover.

use std::time::Duration;

use bytes::Bytes;
use slice_lab::edge::mqtt::{Connect, Packet};
use slice_lab::edge::{CertificateFault, Edge, EdgeOptions};

use crate::raw::{ACK, DEADLINE, EVENTS, Raw, connect_packet, now, publish, token};

async fn code_of(edge: &Edge, connect: Connect) -> Option<Packet> {
    let mut raw = Raw::tls(edge).await.unwrap();
    raw.send(&Packet::Connect(Box::new(connect))).await;
    let answer = raw.next().await;
    if !matches!(answer, Some(Packet::ConnAck(_, 0))) {
        assert_eq!(raw.next().await, None, "a refused connection ends");
    }
    answer
}

#[tokio::test]
async fn a_module_with_a_fresh_token_gets_in() {
    let edge = Edge::start(EdgeOptions::quick()).await.unwrap();
    let connect = connect_packet(&edge, "slice-healer").await;
    assert_eq!(
        code_of(&edge, connect).await,
        Some(Packet::ConnAck(false, 0))
    );
    assert_eq!(edge.counters().connected, 1);
}

#[tokio::test]
async fn others_are_sent_away_with_the_code_of_their_fault() {
    let edge = Edge::start(EdgeOptions::quick()).await.unwrap();
    let good = connect_packet(&edge, "slice-healer").await;
    let with = |change: &dyn Fn(&mut Connect)| {
        let mut connect = good.clone();
        change(&mut connect);
        connect
    };
    let expired = Bytes::from(token(&edge, "slice-healer", now() - 301).await);
    let within_skew = Bytes::from(token(&edge, "slice-healer", now() - 200).await);
    let user = |text: &str| Some(text.to_owned());
    let cases: Vec<(&str, Connect, u8)> = vec![
        ("level 3", with(&|c| c.level = 3), 1),
        ("level 5", with(&|c| c.level = 5), 1),
        ("no password", with(&|c| c.password = None), 5),
        (
            "a wrong password",
            with(&|c| c.password = Some(Bytes::from_static(b"secret"))),
            5,
        ),
        (
            "a token past the tolerance",
            with(&|c| c.password = Some(expired.clone())),
            5,
        ),
        (
            "another client id",
            with(&|c| c.client_id = "edge1/other".into()),
            5,
        ),
        (
            "an unknown module",
            with(&|c| {
                c.client_id = "edge1/other".into();
                c.username = user("h/edge1/other/?api-version=1");
            }),
            5,
        ),
        (
            "a raw slash",
            with(&|c| {
                c.username = user("h/edge1/slice-healer/?api-version=1&DeviceClientType=a/b")
            }),
            5,
        ),
        (
            "no api-version",
            with(&|c| c.username = user("h/edge1/slice-healer/?x=1")),
            5,
        ),
    ];
    for (what, connect, code) in cases {
        assert_eq!(
            code_of(&edge, connect).await,
            Some(Packet::ConnAck(false, code)),
            "{what}"
        );
    }
    let tolerated = with(&|c| c.password = Some(within_skew.clone()));
    assert_eq!(
        code_of(&edge, tolerated).await,
        Some(Packet::ConnAck(false, 0))
    );
}

#[tokio::test]
async fn what_is_not_connect_or_no_packet_ends_the_connection_without_an_answer() {
    let edge = Edge::start(EdgeOptions::quick()).await.unwrap();
    let mut raw = Raw::tls(&edge).await.unwrap();
    raw.send(&Packet::PingReq).await;
    assert_eq!(raw.next().await, None);

    let second = Packet::Connect(Box::new(connect_packet(&edge, "slice-healer").await));
    let mut raw = Raw::module(&edge, "slice-healer").await;
    raw.send(&second).await;
    assert_eq!(raw.next().await, None);

    for bytes in [
        &[0x30, 0xff, 0xff, 0xff, 0xff, 1][..],
        &[0x30, 2, 0, 0],
        &[0xf0, 0],
        &[0x20, 2, 0, 0],
    ] {
        let mut raw = Raw::module(&edge, "slice-healer").await;
        raw.send_bytes(bytes).await;
        assert_eq!(raw.next().await, None, "{bytes:02x?}");
    }
}

#[tokio::test]
async fn packets_may_be_split_anywhere_and_glued() {
    let edge = Edge::start(EdgeOptions::quick()).await.unwrap();
    let mut raw = Raw::module(&edge, "slice-healer").await;
    let bytes = slice_lab::edge::mqtt::encode(&publish(1, EVENTS, b"{}"));
    for byte in bytes.iter() {
        raw.send_bytes(&[*byte]).await;
    }
    assert_eq!(raw.next().await, Some(ACK));
    raw.send_bytes(&[bytes.clone(), Bytes::from_static(&[0xc0, 0]), bytes].concat())
        .await;
    assert_eq!(raw.next().await, Some(ACK));
    assert_eq!(raw.next().await, Some(Packet::PingResp));
    assert_eq!(raw.next().await, Some(ACK));
    assert_eq!(edge.telemetry().len(), 3);
}

#[tokio::test]
async fn a_packet_over_the_limit_ends_the_connection() {
    let edge = Edge::start(EdgeOptions::quick()).await.unwrap();
    let header = 1 + 3 + 2 + EVENTS.len() + 2;
    let mut raw = Raw::module(&edge, "slice-healer").await;
    raw.publish(1, EVENTS, &vec![b'x'; 262_144 - header]).await;
    assert_eq!(raw.next().await, Some(ACK));
    raw.publish(1, EVENTS, &vec![b'x'; 262_144 - header + 1])
        .await;
    assert_eq!(raw.next().await, None);
}

#[tokio::test]
async fn the_same_client_again_takes_over() {
    let edge = Edge::start(EdgeOptions::quick()).await.unwrap();
    let mut old = Raw::module(&edge, "slice-healer").await;
    let mut new = Raw::module(&edge, "slice-healer").await;
    assert_eq!(old.next().await, None);
    new.send(&Packet::PingReq).await;
    assert_eq!(new.next().await, Some(Packet::PingResp));
    assert_eq!(edge.counters().taken_over, 1);
    assert!(edge.look(|view| view.connected()));
}

#[tokio::test]
async fn a_session_that_is_not_clean_keeps_its_subscriptions() {
    let edge = Edge::start(EdgeOptions::quick()).await.unwrap();
    let again = |clean: bool, present: bool| {
        let edge = edge.clone();
        async move {
            let mut raw = Raw::tls(&edge).await.unwrap();
            let mut connect = connect_packet(&edge, "slice-healer").await;
            connect.clean = clean;
            raw.send(&Packet::Connect(Box::new(connect))).await;
            assert_eq!(raw.next().await, Some(Packet::ConnAck(present, 0)));
            raw
        }
    };
    let mut raw = again(false, false).await;
    raw.subscribe(&["$iothub/twin/res/#"]).await;
    drop(raw);
    edge.restart().await.unwrap();
    let mut raw = again(false, true).await;
    raw.publish(0, "$iothub/twin/GET/?$rid=7", b"").await;
    assert_eq!(
        raw.next_publish().await.topic,
        "$iothub/twin/res/200/?$rid=7"
    );
    raw.send(&Packet::Unsubscribe(3, vec!["$iothub/twin/res/#".into()]))
        .await;
    assert_eq!(raw.next().await, Some(Packet::UnsubAck(3)));
    raw.publish(1, "$iothub/twin/GET/?$rid=8", b"").await;
    assert_eq!(raw.next().await, Some(ACK));
    raw.quiet().await;
    again(true, false).await;
    again(false, false).await;
}

#[tokio::test]
async fn unknown_filters_are_granted_and_qos_two_becomes_one() {
    let edge = Edge::start(EdgeOptions::quick()).await.unwrap();
    let mut raw = Raw::module(&edge, "slice-healer").await;
    let filters = vec![("#".to_owned(), 0), ("$iothub/twin/res/#".to_owned(), 2)];
    raw.send(&Packet::Subscribe(2, filters)).await;
    assert_eq!(raw.next().await, Some(Packet::SubAck(2, vec![0, 1])));
    edge.cloud()
        .set_desired(serde_json::json!({"a": 1}))
        .unwrap();
    raw.quiet().await;
}

#[tokio::test]
async fn a_token_that_has_run_out_drops_the_client_at_the_next_tick() {
    let edge = Edge::start(EdgeOptions::quick()).await.unwrap();
    let mut raw = Raw::module(&edge, "slice-healer").await;
    edge.advance_clock(Duration::from_secs(3700));
    raw.quiet().await;
    edge.advance_clock(Duration::from_secs(301));
    assert_eq!(raw.next().await, None);
    assert_eq!(edge.counters().token_expired, 1);
    let stale = connect_packet(&edge, "slice-healer").await;
    assert_eq!(code_of(&edge, stale).await, Some(Packet::ConnAck(false, 5)));
}

#[tokio::test]
async fn a_silent_client_is_dropped_after_one_and_a_half_keep_alives() {
    let edge = Edge::start(EdgeOptions::quick()).await.unwrap();
    let mut raw = Raw::tls(&edge).await.unwrap();
    let mut connect = connect_packet(&edge, "slice-healer").await;
    connect.keep_alive = 1;
    raw.send(&Packet::Connect(Box::new(connect))).await;
    assert_eq!(raw.next().await, Some(Packet::ConnAck(false, 0)));
    assert_eq!(raw.next().await, None);
    let closed = |line: &slice_lab::edge::PacketRecord| {
        line.kind == "closed" && line.detail == "no packet for 1.5s"
    };
    edge.wait_for(|view| view.journal().any(closed), DEADLINE)
        .await
        .unwrap();
}

#[tokio::test]
async fn after_a_rotation_the_old_root_is_worth_nothing() {
    let edge = Edge::start(EdgeOptions::quick()).await.unwrap();
    let old = edge.trust_bundle();
    Raw::module(&edge, "slice-healer").await;
    edge.rotate_certificates().await.unwrap();
    assert!(
        Raw::tls_with(&edge, &old).await.is_err(),
        "the old root must not do"
    );
    Raw::module(&edge, "slice-healer").await;
    edge.wait_for(|view| view.counters().tls_failed == 1, DEADLINE)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_faulty_certificate_is_sent_and_lifted_without_a_restart() {
    let edge = Edge::start(EdgeOptions::quick()).await.unwrap();
    for (fault, words) in [
        (CertificateFault::WrongName, "not valid for name"),
        (CertificateFault::NotYetValid, "not valid yet"),
        (CertificateFault::Expired, "expired"),
    ] {
        edge.faults(|faults| faults.certificate = fault);
        let Err(error) = Raw::tls(&edge).await else {
            panic!("{fault:?} was accepted")
        };
        assert!(error.to_string().contains(words), "{fault:?}: {error}");
    }
    edge.faults(|faults| faults.certificate = CertificateFault::None);
    Raw::module(&edge, "slice-healer").await;
}

#[tokio::test]
async fn the_packet_journal_goes_to_a_file_line_by_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("packets.jsonl");
    let options = EdgeOptions {
        journal_file: Some(path.clone()),
        ..EdgeOptions::quick()
    };
    let edge = Edge::start(options).await.unwrap();
    let mut raw = Raw::module(&edge, "slice-healer").await;
    raw.publish(1, EVENTS, b"{}").await;
    assert_eq!(raw.next().await, Some(ACK));
    let text = std::fs::read_to_string(&path).unwrap();
    let kinds: Vec<String> = text
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .map(|line| {
            format!(
                "{} {}",
                line["way"].as_str().unwrap(),
                line["kind"].as_str().unwrap()
            )
        })
        .collect();
    let wanted = [
        "event accepted",
        "event tls",
        "in CONNECT",
        "out CONNACK",
        "in PUBLISH",
        "out PUBACK",
    ];
    assert_eq!(kinds, wanted);
    assert!(!text.contains("sig="), "a signature was written down");
}
