//! The knobs over HTTP do what the methods do.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use slice_lab::edge::{Edge, EdgeOptions, TwinFault, WorkloadFault};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::raw::{DEADLINE, Raw};

async fn call(address: SocketAddr, request: &str, body: Value) -> (u16, Value) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    let head = "Host: lab\r\nConnection: close\r\nContent-Type: application/json";
    let text = format!(
        "{request} HTTP/1.1\r\n{head}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut answer = String::new();
    tokio::time::timeout(DEADLINE, stream.read_to_string(&mut answer))
        .await
        .unwrap()
        .unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(body).unwrap_or(Value::Null))
}

/// A device with its control API, and where that is.
async fn driven() -> (Edge, SocketAddr) {
    let edge = Edge::start(EdgeOptions {
        control: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
        ..EdgeOptions::quick()
    })
    .await
    .unwrap();
    let at = edge.control().unwrap();
    (edge, at)
}

#[tokio::test]
async fn the_device_can_be_driven_from_outside() {
    let (edge, at) = driven().await;
    let mut raw = Raw::subscribed(&edge, "slice-healer").await;

    let (status, state) = call(at, "GET /state", Value::Null).await;
    assert_eq!(
        (status, &state["connected"]),
        (200, &json!(["slice-healer"]))
    );
    assert_eq!(state["mqttPort"], json!(edge.mqtt_port()));
    let (_, env) = call(at, "GET /env/slice-healer", Value::Null).await;
    assert_eq!(env["IOTEDGE_GATEWAYHOSTNAME"], "localhost");
    assert_eq!(call(at, "GET /env/nobody", Value::Null).await.0, 404);

    let (status, version) = call(at, "PUT /modules/slice-healer/desired", json!({"a": 1})).await;
    assert_eq!((status, version), (200, json!({"version": 2})));
    assert!(raw.next_publish().await.topic.ends_with("$version=2"));
    let (status, error) = call(at, "PATCH /modules/slice-healer/desired", json!({"a.b": 1})).await;
    assert!(status == 400 && error["error"].is_string());
    let (_, twin) = call(at, "GET /modules/slice-healer/twin", Value::Null).await;
    assert_eq!(twin["desired"], json!({"a": 1}));

    let request = "POST /modules/slice-healer/methods/ping?timeoutMs=5000";
    let (answer, ()) = tokio::join!(call(at, request, json!({"n": 1})), async {
        let request = raw.next_publish().await;
        let rid = request.topic.split_once("?$rid=").unwrap().1;
        raw.publish(
            0,
            &format!("$iothub/methods/res/200/?$rid={rid}"),
            &request.payload,
        )
        .await;
    });
    assert_eq!(
        answer,
        (
            200,
            json!({"status": 200, "payload": {"n": 1}, "errorCode": null})
        )
    );

    assert_eq!(call(at, "POST /drop", Value::Null).await.0, 200);
    while raw.next().await.is_some() {}
    let (_, journal) = call(at, "GET /journal?since=1", Value::Null).await;
    assert_eq!(journal[0]["kind"], "tls");
    assert_eq!(call(at, "POST /explode", Value::Null).await.0, 404);
}

#[tokio::test]
async fn versions_can_be_made_odd_from_outside() {
    let (edge, at) = driven().await;
    let mut raw = Raw::subscribed(&edge, "slice-healer").await;
    let desired = "/modules/slice-healer/desired";
    let post =
        async |how: &str, body: Value| call(at, &format!("POST {desired}/{how}"), body).await;

    assert_eq!(
        post("unnoticed", json!({"a": 1})).await,
        (200, json!({"version": 2}))
    );
    assert_eq!(edge.cloud().desired(), json!({"a": 1}));
    // The first that the module hears is what was sent past both layers.
    assert_eq!(post("send?version=7", json!({"b": 1})).await.0, 200);
    let heard = raw.next_publish().await;
    assert!(heard.topic.ends_with("$version=7"), "{}", heard.topic);
    let storm = post("storm?count=5&perSecond=1000", json!({})).await;
    assert_eq!(storm, (200, json!({"version": 7})));
    assert_eq!(edge.cloud().desired()["storm"], 4);
    assert_eq!(post("reset?version=1", json!({})).await.0, 200);
    assert_eq!(edge.cloud().desired_version(), 1);
    assert_eq!(post("explode", json!({})).await.0, 404);
    let request = "POST /modules/slice-healer/methods/a%20b?timeoutMs=1&encode=true";
    let (status, answer) = call(at, request, json!({})).await;
    assert_eq!((status, &answer["errorCode"]), (200, &json!(504_101)));
    let asked = |view: &slice_lab::edge::View<'_>| {
        view.journal().any(|p| {
            p.topic
                .as_deref()
                .is_some_and(|t| t.contains("/POST/a%20b/"))
        })
    };
    assert!(edge.look(|view| asked(view)));
}

#[tokio::test]
async fn faults_are_patched_by_name() {
    let (edge, at) = driven().await;
    let patch =
        json!({"connackDelay": 20, "twinGet": {"status": 429}, "workload": {"slowSign": 5}});
    assert_eq!(call(at, "PATCH /faults", patch).await.0, 200);
    edge.look(|view| {
        assert_eq!(view.faults().connack_delay, Some(Duration::from_millis(20)));
        assert_eq!(view.faults().twin_get, TwinFault::Status(429));
        assert_eq!(view.faults().workload, WorkloadFault::SlowSign(5));
    });
    let (status, faults) = call(
        at,
        "PATCH /faults",
        json!({"twinGet": "silent", "workload": null}),
    )
    .await;
    assert_eq!(
        (status, &faults["twinGet"], &faults["workload"]),
        (200, &json!("silent"), &json!("none"))
    );
    assert_eq!(faults["connackDelay"], json!(20));
    assert_eq!(
        call(at, "PATCH /faults", json!({"nonsense": 1})).await.0,
        400
    );
}
