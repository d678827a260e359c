//! The workload API request by request, and its faults.

use std::io::ErrorKind;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::json;
use slice_lab::edge::{BundleFault, Edge, EdgeOptions, WorkloadFault};

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::raw::{DEADLINE, QUIET, get, http, http_text, post};

const SIGN: &str = "/modules/slice-healer/genid/1/sign?api-version=2018-06-28";

#[tokio::test]
async fn requests_are_answered_with_the_daemons_statuses() {
    let edge = Edge::start(EdgeOptions::quick()).await.unwrap();
    let good = r#"{"keyId":"primary","algo":"HMACSHA256","data":"aGVsbG8="}"#;
    assert_eq!(post(&edge, SIGN, good).await.status, 200);
    assert_eq!(
        post(&edge, SIGN, r#"{"data":"aGVsbG8="}"#).await.status,
        200
    );
    let cases = [
        (
            post(&edge, "/modules/slice-healer/genid/1/sign", good).await,
            400,
            "no api-version",
        ),
        (
            post(&edge, &SIGN.replace("2018", "2017"), good).await,
            400,
            "unknown api-version",
        ),
        (
            post(&edge, "/nowhere?api-version=2018-06-28", good).await,
            404,
            "unknown path",
        ),
        (get(&edge, SIGN).await, 400, "wrong verb"),
        (post(&edge, SIGN, "").await, 400, "no body"),
        (post(&edge, SIGN, "{no").await, 422, "no JSON"),
        (post(&edge, SIGN, "{}").await, 422, "no data"),
        (
            post(&edge, &SIGN.replace("slice-healer", "stranger"), good).await,
            403,
            "another module",
        ),
    ];
    for (reply, status, what) in cases {
        assert_eq!(reply.status, status, "{what}");
        assert!(reply.body["message"].is_string(), "{what}");
    }
    for (kind, status) in [("application/json", 200), ("text/plain", 400)] {
        let head = format!("POST {SIGN} HTTP/1.1\r\nContent-Type: {kind}");
        assert_eq!(
            http(&edge, &head, good).await.unwrap().status,
            status,
            "{kind}"
        );
    }
}

#[tokio::test]
async fn chunked_bodies_are_read() {
    let edge = Edge::start(EdgeOptions::quick()).await.unwrap();
    let head = format!("POST {SIGN} HTTP/1.1\r\nConnection: close\r\nTransfer-Encoding: chunked");
    let (one, two) = (r#"{"data":"#, r#""aGVsbG8="}"#);
    let chunks = format!(
        "{:x}\r\n{one}\r\n{:x}\r\n{two}\r\n0\r\n\r\n",
        one.len(),
        two.len()
    );
    let reply = http_text(&edge, &format!("{head}\r\n\r\n{chunks}"))
        .await
        .unwrap();
    assert_eq!(reply.status, 200);
}

#[tokio::test]
async fn the_names_in_the_path_are_percent_decoded() {
    let options = EdgeOptions {
        modules: vec!["$edgeHub".into()],
        ..EdgeOptions::quick()
    };
    let edge = Edge::start(options).await.unwrap();
    let reply = post(
        &edge,
        &SIGN.replace("slice-healer", "%24edgeHub"),
        r#"{"data":"aGVsbG8="}"#,
    )
    .await;
    assert_eq!(reply.status, 200);
}

#[tokio::test]
async fn certificates_and_ciphers_are_given_out() {
    let edge = Edge::start(EdgeOptions::quick()).await.unwrap();
    let path = |end: &str| format!("/modules/slice-healer/genid/1/{end}?api-version=2022-08-03");
    let order = json!({"commonName": "gw", "expiration": "2027-01-01T00:00:00Z"}).to_string();
    let reply = post(&edge, &path("certificate/server"), &order).await;
    assert_eq!(reply.status, 201);
    assert_eq!(reply.body["privateKey"]["type"], "key");
    assert_eq!(
        reply.body["certificate"]
            .as_str()
            .unwrap()
            .matches("BEGIN CERTIFICATE")
            .count(),
        2
    );

    let vector = BASE64.encode("vector");
    let plain = BASE64.encode(vec![7u8; 100]);
    let body = json!({"plaintext": plain, "initializationVector": vector}).to_string();
    let cipher = post(&edge, &path("encrypt"), &body).await.body["ciphertext"].clone();
    assert_ne!(cipher, json!(plain));
    let body = json!({"ciphertext": cipher, "initializationVector": vector}).to_string();
    assert_eq!(
        post(&edge, &path("decrypt"), &body).await.body["plaintext"],
        json!(plain)
    );
    let list = get(&edge, "/modules?api-version=2018-06-28").await;
    assert_eq!(list.body["modules"][0]["id"], "slice-healer");
    let manifest = get(&edge, "/manifest-trust-bundle?api-version=2018-06-28").await;
    assert_eq!(manifest.body["certificate"], "");
}

#[tokio::test]
async fn the_bundle_can_hold_two_none_or_the_wrong_certificate() {
    let edge = Edge::start(EdgeOptions::quick()).await.unwrap();
    let path = "/trust-bundle?api-version=2019-01-30";
    let first = get(&edge, path).await.body["certificate"].clone();
    assert_eq!(first, json!(edge.trust_bundle()));
    edge.faults(|faults| faults.bundle = BundleFault::Two);
    let two = get(&edge, path).await.body["certificate"].clone();
    assert_eq!(
        two.as_str().unwrap().matches("BEGIN CERTIFICATE").count(),
        2
    );
    edge.faults(|faults| faults.bundle = BundleFault::Empty);
    assert_eq!(get(&edge, path).await.body["certificate"], "");
    edge.faults(|faults| faults.bundle = BundleFault::Missing);
    assert_eq!(get(&edge, path).await.status, 404);
    edge.rotate_certificates().await.unwrap();
    edge.faults(|faults| faults.bundle = BundleFault::Outdated);
    assert_eq!(get(&edge, path).await.body["certificate"], first);
}

#[tokio::test]
async fn the_socket_can_be_absent_stale_closed_or_silent() {
    let edge = Edge::start(EdgeOptions::quick()).await.unwrap();
    let path = "/trust-bundle?api-version=2019-01-30";
    let head = format!("GET {path} HTTP/1.1");
    let set = |fault| edge.faults(|faults| faults.workload = fault);
    let becomes = async |kinds: &[ErrorKind]| {
        // The socket follows the fault a moment later.
        for _ in 0..400 {
            match http(&edge, &head, "").await {
                Err(error) if kinds.contains(&error.kind()) => return,
                _ => tokio::time::sleep(std::time::Duration::from_millis(10)).await,
            }
        }
        panic!("the workload socket never answered with {kinds:?}");
    };
    set(WorkloadFault::Absent);
    becomes(&[ErrorKind::NotFound]).await;
    set(WorkloadFault::None);
    while http(&edge, &head, "").await.is_err() {
        tokio::task::yield_now().await;
    }
    set(WorkloadFault::Stale);
    becomes(&[ErrorKind::ConnectionRefused]).await;
    set(WorkloadFault::Closed);
    becomes(&[
        ErrorKind::UnexpectedEof,
        ErrorKind::ConnectionReset,
        ErrorKind::BrokenPipe,
    ])
    .await;
    set(WorkloadFault::Hang);
    assert!(
        tokio::time::timeout(QUIET, http(&edge, &head, ""))
            .await
            .is_err()
    );
    set(WorkloadFault::Status(403));
    assert_eq!(get(&edge, path).await.status, 403);
    set(WorkloadFault::BadBase64);
    let digest = post(&edge, SIGN, r#"{"data":"aGVsbG8="}"#).await.body["digest"].clone();
    assert!(BASE64.decode(digest.as_str().unwrap()).is_err());
    set(WorkloadFault::SlowSign(200));
    let begun = std::time::Instant::now();
    post(&edge, SIGN, r#"{"data":"aGVsbG8="}"#).await;
    assert!(begun.elapsed() >= std::time::Duration::from_millis(200));
}

#[tokio::test]
async fn an_eleventh_connection_is_closed_without_an_answer() {
    let edge = Edge::start(EdgeOptions::quick()).await.unwrap();
    let mut open = Vec::new();
    for _ in 0..10 {
        open.push(
            tokio::net::UnixStream::connect(edge.workload_socket())
                .await
                .unwrap(),
        );
    }
    // Each of the ten is served: a request on the last one shows that all have been accepted.
    let head = "GET /trust-bundle?api-version=2019-01-30 HTTP/1.1";
    assert!(http(&edge, head, "").await.is_err());
    drop(open);
    while http(&edge, head, "").await.is_err() {
        tokio::task::yield_now().await;
    }
}

/// The C SDK puts the socket's path there.
#[tokio::test]
async fn any_host_header_will_do() {
    let edge = Edge::start(EdgeOptions::quick()).await.unwrap();
    let head = "GET /trust-bundle?api-version=2018-06-28 HTTP/1.1\r\nConnection: close";
    for host in [
        "Host: /var/run/iotedge/workload.sock",
        "Host: ",
        "Host: a b",
    ] {
        let reply = http_text(&edge, &format!("{head}\r\n{host}\r\n\r\n"))
            .await
            .unwrap();
        assert_eq!(reply.status, 200, "{host}");
    }
}

#[tokio::test]
async fn a_body_that_does_not_arrive_is_answered_with_408() {
    let edge = Edge::start(EdgeOptions::quick()).await.unwrap();
    let text = format!("POST {SIGN} HTTP/1.1\r\nConnection: close\r\nContent-Length: 90\r\n\r\n{{");
    assert_eq!(http_text(&edge, &text).await.unwrap().status, 408);
}

#[tokio::test]
async fn the_api_can_be_had_over_tcp_as_well() {
    let workload_http = Some(std::net::SocketAddr::from(([127, 0, 0, 1], 0)));
    let edge = Edge::start(EdgeOptions {
        workload_http,
        ..EdgeOptions::quick()
    })
    .await
    .unwrap();
    let address = edge.workload_http().unwrap();
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let request =
        "GET /modules?api-version=2018-06-28 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    tokio::time::timeout(DEADLINE, stream.read_to_string(&mut answer))
        .await
        .unwrap()
        .unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 200") && answer.contains("slice-healer"),
        "{answer}"
    );
}
