//! Looks at servers that show certificates of the test's own.

use std::net::TcpListener;
use std::sync::Arc;

use jiff::SignedDuration;
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixListener;

use super::*;
use crate::testing::{FakeApi, answer, kubeconfig};

const NOW: &str = "2026-12-01T00:00:00Z";

fn in_days(days: i64) -> Timestamp {
    NOW.parse::<Timestamp>().unwrap() + SignedDuration::from_hours(24 * days)
}

/// A server that shows a certificate which ends then, as often as it is asked. Returns its port.
fn server(end: Timestamp) -> u16 {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let date = end.to_zoned(jiff::tz::TimeZone::UTC).date();
    let (month, day) = (date.month() as u8, date.day() as u8);
    params.not_after = rcgen::date_time_ymd(i32::from(date.year()), month, day);
    let certificate = params.self_signed(&key).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    // Ends with the process of the tests.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut connection = ServerConnection::new(Arc::clone(&config)).unwrap();
            let _ = connection.complete_io(&mut stream.unwrap());
        }
    });
    port
}

/// A workload socket that hands out this bundle.
fn workload(path: &std::path::Path, bundle: &str) {
    let listener = UnixListener::bind(path).unwrap();
    let body = json!({"certificate": bundle}).to_string();
    let length = body.len();
    let text =
        format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 4096]).await;
            let _ = stream.write_all(text.as_bytes()).await;
        }
    });
}

/// An API server of this version with one node, whose kubelet listens there.
async fn api(version: &'static str, kubelet: u16) -> FakeApi {
    FakeApi::start(move |request| match request.path.as_str() {
        "/version" => answer(200, json!({
            "major": "1", "minor": "34", "gitVersion": version, "gitCommit": "", "gitTreeState": "",
            "buildDate": "", "goVersion": "", "compiler": "", "platform": "",
        })),
        "/api/v1/nodes" => answer(200, json!({
            "kind": "NodeList", "apiVersion": "v1", "metadata": {},
            "items": [{
                "metadata": {"name": "edge-7"},
                "status": {
                    "addresses": [
                        {"type": "Hostname", "address": "edge-7"},
                        {"type": "InternalIP", "address": "127.0.0.1"},
                    ],
                    "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet}},
                },
            }],
        })),
        other => crate::testing::refusal(404, other),
    })
    .await
}

#[tokio::test]
async fn everything_that_shows_itself_is_looked_at() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kubeconfig");
    std::fs::write(
        &path,
        kubeconfig(&format!("https://localhost:{}", server(in_days(50)))),
    )
    .unwrap();
    let socket = folder.path().join("workload.sock");
    workload(&socket, include_str!("testdata/utc-time.pem"));
    let mut places = Places {
        access: Access {
            kubeconfig: Some(path),
            ..Access::default()
        },
        gateway: Some(("localhost".to_owned(), server(in_days(20)))),
        workload: Some((
            format!("unix://{}", socket.display()),
            "2019-01-30".to_owned(),
        )),
        node: Node::default(),
    };
    let client = api("v1.34.1+k3s1", server(in_days(70)))
        .await
        .client()
        .await;
    let ends = look(&places, Some(&client), &Ends::default()).await;
    let expected = [
        (Credential::ServerCertificate, in_days(50)),
        (Credential::K3sCertificate, in_days(70)),
        (
            Credential::TrustBundle,
            "2031-05-06T07:08:09Z".parse().unwrap(),
        ),
        (Credential::GatewayCertificate, in_days(20)),
    ];
    assert_eq!(ends.at, expected.into(), "its token says no end");
    assert!(ends.looked && ends.covers(&places));
    assert_eq!(
        ends.first(),
        Some((Credential::GatewayCertificate, in_days(20)))
    );

    // What cannot be looked at now keeps the end that was seen.
    let closed = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    places.gateway = Some(("localhost".to_owned(), closed.port()));
    assert_eq!(look(&places, None, &ends).await, ends);
    let only_hub = Places {
        gateway: places.gateway.clone(),
        ..Places::default()
    };
    let nothing = look(&only_hub, None, &Ends::default()).await;
    assert!(!nothing.covers(&only_hub));
}

#[tokio::test]
async fn only_k3s_is_asked_for_its_kubelet() {
    let node = |name: &str| Node {
        name: Some(name.to_owned()),
        ..Node::default()
    };
    let client = api("v1.34.1", 1).await.client().await;
    assert_eq!(k3s_node(&client, &Node::default()).await.unwrap(), None);
    let client = api("v1.34.1+k3s1", 10250).await.client().await;
    let found = k3s_node(&client, &node("edge-7")).await.unwrap();
    assert_eq!(found, Some(("127.0.0.1".to_owned(), 10250)));
}

#[test]
fn only_https_shows_a_certificate() {
    let place = |host: &str, port| Some((host.to_owned(), port));
    assert_eq!(https("https://[::1]:6443"), place("::1", 6443));
    assert_eq!(
        https("https://kubernetes.example"),
        place("kubernetes.example", 443)
    );
    assert_eq!(https("http://127.0.0.1:8080"), None);
    assert_eq!(https("no url"), None);
}
