//! Bytes as they should not be: split, glued, broken, random.

use std::time::Duration;

use proptest::prelude::*;
use serde_json::json;

use super::peer::{Packet, Rig, config, publish};
use crate::session::codec::{Codec, ConnectData};
use crate::{DisconnectReason, Event};

const PATCH: &str = "$iothub/twin/PATCH/properties/desired/?$version=2";

async fn version_after(chunks: Vec<Vec<u8>>) -> u64 {
    let mut rig = Rig::new(config());
    let mut peer = rig.peer().await;
    peer.bring_up(json!({"$version": 1}), json!({})).await;
    for chunk in chunks {
        peer.send(&chunk).await;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    rig.event_of(|e| match e {
        Event::Desired { version, .. } if version > 1 => Some(version),
        _ => None,
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn a_packet_may_be_split_anywhere() {
    let packet = publish(PATCH, r#"{"a":1}"#, Some(7));
    for cut in 1..packet.len() {
        let (head, tail) = packet.split_at(cut);
        assert_eq!(
            version_after(vec![head.to_vec(), tail.to_vec()]).await,
            2,
            "cut at {cut}"
        );
    }
    assert_eq!(
        version_after(packet.iter().map(|b| vec![*b]).collect()).await,
        2
    );
}

#[tokio::test(start_paused = true)]
async fn several_packets_may_come_in_one_segment() {
    let mut bytes = vec![0xd0, 0];
    bytes.extend(publish("some/unknown/topic", "x", Some(9)));
    bytes.extend(publish(PATCH, r#"{"a":1}"#, None));
    assert_eq!(version_after(vec![bytes]).await, 2);
}

async fn ends_with(bytes: &[u8]) -> DisconnectReason {
    let mut rig = Rig::new(config());
    let mut peer = rig.peer().await;
    peer.bring_up(json!({"$version": 1}), json!({})).await;
    peer.send(bytes).await;
    let reason = rig.disconnected().await;
    // And it comes back by itself.
    let mut peer = rig.peer().await;
    peer.bring_up(json!({"$version": 1}), json!({})).await;
    reason
}

#[tokio::test(start_paused = true)]
async fn broken_bytes_end_the_link_and_nothing_else() {
    for bytes in [
        // A remaining length of five bytes.
        &[0x30, 0xff, 0xff, 0xff, 0xff, 0x01][..],
        // Larger than anything that the hub has a reason to send.
        &[0x30, 0xff, 0xff, 0xff, 0x7f],
        // A topic that is longer than the packet.
        &[0x30, 3, 0, 200, b'x'],
        // A topic that is not UTF-8.
        &[0x30, 4, 0, 2, 0xff, 0xfe],
        // QoS 3 does not exist; QoS 2 was not subscribed to.
        &[0x36, 5, 0, 1, b'a', 0, 1],
        &[0x34, 5, 0, 1, b'a', 0, 1],
        // PUBACK for nothing, SUBACK for nothing, a second CONNACK, a server that subscribes.
        &[0x40, 2, 0, 99],
        &[0x90, 3, 0, 99, 0],
        &[0x20, 2, 0, 0],
        &[0x82, 6, 0, 1, 0, 1, b'a', 0],
        // A reserved packet type.
        &[0xf0, 0],
    ] {
        assert_eq!(
            ends_with(bytes).await,
            DisconnectReason::Protocol,
            "{bytes:02x?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn odd_but_legal_messages_are_skipped() {
    let mut bytes = Vec::new();
    bytes.extend([0x30, 2, 0, 0]); // zero-length topic
    bytes.extend(publish("$iothub/twin/res/abc/?$rid=1", "", None));
    bytes.extend(publish("$iothub/methods/POST/x", "", Some(3)));
    bytes.extend(publish(
        "$iothub/methods/POST/x/?$rid=a%2Bb+c",
        "{}",
        Some(3),
    ));
    bytes.extend(publish(
        "$iothub/twin/PATCH/properties/desired/?$version=x",
        "{",
        Some(4),
    ));
    bytes.extend(publish(PATCH, r#"{"a":1}"#, None));
    let mut rig = Rig::new(config());
    let mut peer = rig.peer().await;
    peer.bring_up(json!({"$version": 1}), json!({})).await;
    peer.send(&bytes).await;
    rig.event_of(|e| matches!(e, Event::Desired { version: 2, .. }).then_some(()))
        .await;
    assert!(rig.client.handle.status().state.is_connected());
}

#[tokio::test(start_paused = true)]
async fn a_subscription_that_is_refused_ends_the_attempt() {
    let mut rig = Rig::new(config());
    let mut peer = rig.peer().await;
    peer.next().await;
    peer.send(&[0x20, 2, 1, 0]).await;
    let Packet::Subscribe { id, .. } = peer.next().await else {
        panic!()
    };
    let [high, low] = id.to_be_bytes();
    peer.send(&[0x90, 6, high, low, 1, 1, 0x80, 1]).await;
    rig.status(|s| {
        s.last_failure
            .as_ref()
            .is_some_and(|(r, _)| *r == DisconnectReason::Subscribe)
    })
    .await;
    rig.peer().await.accept().await;
}

fn connecting() -> Codec {
    let mut codec = Codec::new(64 * 1024);
    let data = ConnectData {
        client_id: "d/m",
        user_name: "u",
        password: "p",
        clean_session: false,
        keep_alive_secs: 60,
    };
    codec.connect(&data).unwrap();
    codec
}

proptest! {
    #[test]
    fn random_bytes_never_panic(
        connected in any::<bool>(),
        chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..64), 1..8),
    ) {
        let mut codec = connecting();
        if connected {
            codec.feed(&[0x20, 2, 0, 0]).unwrap();
            codec.publish("t", b"x", false).unwrap();
        }
        for chunk in chunks {
            if codec.feed(&chunk).is_err() {
                break;
            }
        }
    }

    /// A packet of each type with a random content of the right length: the parsers behind the
    /// framing get something to read.
    #[test]
    fn random_packets_never_panic(
        first in any::<u8>(),
        content in proptest::collection::vec(any::<u8>(), 0..127),
    ) {
        let mut codec = connecting();
        codec.feed(&[0x20, 2, 0, 0]).unwrap();
        codec.publish("t", b"x", false).unwrap();
        codec.subscribe(&["a"]).unwrap();
        let mut packet = vec![first, content.len() as u8];
        packet.extend(content);
        let _ = codec.feed(&packet);
    }
}
