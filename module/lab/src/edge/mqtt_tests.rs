//! Bytes that every decoder must survive, and packets there and back.

use super::*;

const LIMIT: usize = 262_144;

fn publish(topic: &str, qos: u8, payload: &[u8]) -> Packet {
    let payload = Bytes::copy_from_slice(payload);
    let packet_id = if qos == 0 { 0 } else { 7 };
    Packet::Publish(Publish {
        topic: topic.into(),
        qos,
        dup: false,
        retain: false,
        packet_id,
        payload,
    })
}

fn samples() -> Vec<Packet> {
    let will = Publish {
        topic: "w".into(),
        qos: 1,
        dup: false,
        retain: true,
        packet_id: 0,
        payload: Bytes::from_static(b"bye"),
    };
    vec![
        Packet::Connect(Box::new(Connect {
            level: 4,
            client_id: "edge1/slice-healer".into(),
            clean: false,
            keep_alive: 60,
            username: Some("hub/edge1/slice-healer/?api-version=2021-04-12".into()),
            password: Some(Bytes::from_static(b"secret")),
            will: Some(will),
        })),
        Packet::ConnAck(true, 0),
        publish("a/b", 0, b""),
        publish("a/b", 1, &[0xff; 300]),
        Packet::PubAck(1),
        Packet::PubRec(2),
        Packet::PubRel(3),
        Packet::PubComp(4),
        Packet::Subscribe(
            5,
            vec![("$iothub/methods/POST/#".into(), 1), ("x".into(), 0)],
        ),
        Packet::SubAck(5, vec![1, 0x80]),
        Packet::Unsubscribe(6, vec!["x".into()]),
        Packet::UnsubAck(6),
        Packet::PingReq,
        Packet::PingResp,
        Packet::Disconnect,
    ]
}

#[test]
fn every_packet_survives_encoding_whole_split_and_glued() {
    let mut glued = BytesMut::new();
    for packet in samples() {
        let bytes = encode(&packet);
        for cut in 0..bytes.len() {
            let mut buf = BytesMut::from(&bytes[..cut]);
            assert_eq!(decode(&mut buf, LIMIT), Ok(None), "{packet:?} cut at {cut}");
            buf.extend_from_slice(&bytes[cut..]);
            assert_eq!(decode(&mut buf, LIMIT), Ok(Some(packet.clone())));
            assert!(buf.is_empty());
        }
        glued.extend_from_slice(&bytes);
    }
    for packet in samples() {
        assert_eq!(decode(&mut glued, LIMIT), Ok(Some(packet)));
    }
    assert!(glued.is_empty());
}

/// Bytes written by hand from the standard's own tables, so that encoder and decoder do not merely
/// agree with each other.
#[test]
fn bytes_are_those_of_the_standard() {
    let bytes = [0x82, 0x08, 0x00, 0x0a, 0x00, 0x03, b'a', b'/', b'b', 0x01];
    let packet = Packet::Subscribe(10, vec![("a/b".into(), 1)]);
    assert_eq!(encode(&packet), Bytes::copy_from_slice(&bytes));
    assert_eq!(
        decode(&mut BytesMut::from(&bytes[..]), LIMIT),
        Ok(Some(packet))
    );
    assert_eq!(
        encode(&publish("t", 1, b"x")),
        Bytes::from_static(&[0x32, 6, 0, 1, b't', 0, 7, b'x'])
    );
    assert_eq!(encode(&publish("t", 0, &[0; 125]))[..3], [0x30, 0x80, 0x01]);
}

#[test]
fn malformed_bytes_are_refused() {
    let refused: &[&[u8]] = &[
        &[0x30, 0xff, 0xff, 0xff, 0xff, 0x01], // remaining length of five bytes
        &[0x00, 0x00],                         // type 0
        &[0xf0, 0x00],                         // type 15
        &[0x30, 0x02, 0x00, 0x00],             // empty topic
        &[0x30, 0x03, 0x00, 0x01, b'#'],       // wildcard in a topic name
        &[0x32, 0x05, 0x00, 0x01, b'a', 0x00, 0x00], // packet id 0
        &[0x36, 0x05, 0x00, 0x01, b'a', 0x00, 0x01], // QoS 3
        &[0x80, 0x06, 0x00, 0x01, 0x00, 0x01, b'a', 0x00], // SUBSCRIBE without its flag
        &[0x82, 0x02, 0x00, 0x01],             // SUBSCRIBE without a filter
        &[0x82, 0x06, 0x00, 0x01, 0x00, 0x01, b'a', 0x03], // QoS 3 asked for
        &[0x40, 0x03, 0x00, 0x01, 0x00],       // bytes left over
        &[0x30, 0x04, 0x00, 0x05, b'a', b'b'], // topic cut short
        &[0x10, 0x08, 0x00, 0x06, b'M', b'Q', b'I', b's', b'd', b'p'], // MQTT 3.1
    ];
    for bytes in refused {
        assert!(
            decode(&mut BytesMut::from(*bytes), LIMIT).is_err(),
            "{bytes:02x?}"
        );
    }
}

#[test]
fn the_limit_counts_the_whole_packet_and_is_seen_before_it_has_arrived() {
    let fits = encode(&publish("t", 0, &vec![0; LIMIT - 4 - 3]));
    assert_eq!(fits.len(), LIMIT);
    assert!(
        decode(&mut BytesMut::from(&fits[..]), LIMIT)
            .unwrap()
            .is_some()
    );
    let long = encode(&publish("t", 0, &vec![0; LIMIT - 4 - 2]));
    assert!(decode(&mut BytesMut::from(&long[..8]), LIMIT).is_err());
}

#[test]
fn another_protocol_level_is_recognised_by_the_level_alone() {
    let bytes = [
        0x10, 0x0d, 0, 4, b'M', b'Q', b'T', b'T', 5, 2, 0, 60, 0, 0, 0,
    ];
    let Ok(Some(Packet::Connect(connect))) = decode(&mut BytesMut::from(&bytes[..]), LIMIT) else {
        panic!("level 5 must decode far enough to be refused");
    };
    assert_eq!(connect.level, 5);
}

/// A fixed pseudo-random walk: the decoder answers or asks for more, and never panics.
#[test]
fn noise_never_panics() {
    let mut seed = 0x2545_f491_4f6c_dd1du64;
    for _ in 0..20_000 {
        let bytes: Vec<u8> = (0..24)
            .map(|_| {
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                (seed >> 32) as u8
            })
            .collect();
        let mut buf = BytesMut::from(&bytes[..]);
        while let Ok(Some(_)) = decode(&mut buf, LIMIT) {}
    }
}
