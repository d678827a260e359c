//! The emulated IoT Edge device, judged by SDKs that others wrote: the same list of scenes for each,
//! unmodified, over the unix socket and port 8883. A scene that fails is the emulator's fault.
//!
//! The crate azure_iot_sdk can play some of the scenes. That it cannot be the product's client is
//! shown at the end.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;
use slice_lab::edge::{Edge, MethodCall, PacketRecord, Way};

use crate::support::netns::inside;
use crate::support::peer::{DEADLINE, Peer, Sdk, edge};

fn connects(journal: &[PacketRecord]) -> Vec<&PacketRecord> {
    journal
        .iter()
        .filter(|record| record.kind == "CONNECT")
        .collect()
}

/// Calls `echo` and waits for the SDK to hand it over and answer.
async fn call_echo(edge: &Edge, peer: &mut Peer) -> Result<()> {
    let payload = json!({"namespace": "line1", "n": 7});
    let mut call = MethodCall::new("echo").json(&payload);
    call.response_timeout = DEADLINE;
    // The SDKs connect again in their own time.
    call.connect_timeout = DEADLINE;
    let (result, event) = tokio::join!(edge.invoke(call), peer.event("method"));
    ensure!(event?["payload"] == payload);
    ensure!(
        (result.status, &result.payload) == (200, &payload),
        "{result:?}"
    );
    Ok(())
}

/// Changes the desired section and waits for the SDK to hand the patch over.
async fn push_desired(edge: &Edge, peer: &mut Peer, mode: &str) -> Result<()> {
    let version = edge
        .cloud()
        .patch_desired(json!({"settings": {"mode": mode}}))?;
    // The Node SDK begins with the whole section as it was.
    let patch = loop {
        let patch = peer.event("desired").await?["patch"].clone();
        if patch["$version"].as_u64() >= Some(version) {
            break patch;
        }
    };
    ensure!(
        patch["settings"]["mode"] == mode && patch["$version"] == version,
        "{patch}"
    );
    Ok(())
}

/// Sends one message and waits until the cloud has it as it was meant.
async fn send(edge: &Edge, peer: &mut Peer, id: &str) -> Result<()> {
    let body = json!({"id": id, "line": "größe 1"});
    let properties = json!({"severity": "critical", "site name": "brno /1&2=3"});
    peer.order(
        json!({"do": "send", "output": "events", "id": id, "body": body, "properties": properties}),
    )
    .await?;
    edge.wait_for(
        |view| {
            view.telemetry()
                .iter()
                .any(|record| record.message_id() == Some(id))
        },
        DEADLINE,
    )
    .await?;
    let found = edge
        .telemetry()
        .into_iter()
        .rfind(|record| record.message_id() == Some(id));
    let Some(record) = found else {
        anyhow::bail!("the message is gone")
    };
    ensure!(record.output.as_deref() == Some("events"), "{record:?}");
    ensure!(
        record.content_type() == Some("application/json") && record.body_readable,
        "{record:?}"
    );
    ensure!(
        record.properties.get("severity").map(String::as_str) == Some("critical"),
        "{record:?}"
    );
    ensure!(
        record.properties.get("site name").map(String::as_str) == Some("brno /1&2=3"),
        "{record:?}"
    );
    ensure!(record.json() == Some(body), "{record:?}");
    Ok(())
}

/// All scenes of an official SDK.
async fn play(sdk: Sdk) -> Result<()> {
    let edge = edge().await?;
    edge.cloud()
        .set_desired(json!({"settings": {"mode": "observe"}, "deep": {"a": {"b": 1}}}))?;
    let mut peer = Peer::start(sdk, &edge, &[])?;

    // Connect and subscribe.
    peer.order(json!({"do": "connect"})).await?;
    let counters = edge.counters();
    ensure!(
        counters.connected == 1 && counters.signed >= 1 && counters.bundles >= 1,
        "{counters:?}"
    );

    // Twin, both ways.
    let twin = peer.order(json!({"do": "twin"})).await?["twin"].clone();
    ensure!(twin["desired"]["deep"]["a"]["b"] == 1, "{twin}");
    ensure!(
        twin["desired"]["$version"] == edge.cloud().desired_version(),
        "{twin}"
    );
    // Some subscribe to a thing only when they are first asked for it.
    let wanted = [
        "$iothub/methods/POST/#",
        "$iothub/twin/PATCH/properties/desired/#",
        "$iothub/twin/res/#",
    ];
    edge.wait_for(
        |view| {
            let granted = view.subscriptions();
            wanted
                .iter()
                .all(|filter| granted.iter().any(|(have, _)| have == filter))
        },
        DEADLINE,
    )
    .await?;

    peer.order(json!({"do": "report", "patch": {"health": {"state": "healthy"}, "n": 1}}))
        .await?;
    edge.wait_for(
        |view| view.reported() == json!({"health": {"state": "healthy"}, "n": 1}),
        DEADLINE,
    )
    .await?;
    peer.order(json!({"do": "report", "patch": {"n": null}}))
        .await?;
    edge.wait_for(
        |view| view.reported() == json!({"health": {"state": "healthy"}}),
        DEADLINE,
    )
    .await?;
    push_desired(&edge, &mut peer, "heal").await?;

    // Methods, telemetry, an input.
    call_echo(&edge, &mut peer).await?;
    send(&edge, &mut peer, "before").await?;
    edge.send_input(
        "slice-healer",
        "alarm",
        r#"{"lamp":"on"}"#,
        &[("colour", "dark red")],
    )?;
    let input = peer.event("input").await?;
    ensure!(
        input["input"] == "alarm" && input["body"] == r#"{"lamp":"on"}"#,
        "{input}"
    );
    ensure!(input["properties"]["colour"] == "dark red", "{input}");
    edge.wait_for(
        |view| view.pending_inputs("slice-healer").is_empty(),
        DEADLINE,
    )
    .await?;

    // The server goes away and comes back: everything works again.
    edge.restart().await?;
    edge.wait_for(
        |view| view.connected() && view.counters().connected == 2,
        DEADLINE,
    )
    .await?;
    call_echo(&edge, &mut peer).await?;
    push_desired(&edge, &mut peer, "observe").await?;
    send(&edge, &mut peer, "after").await?;

    peer.quit().await?;
    edge.wait_for(|view| !view.connected(), DEADLINE).await?;
    let journal = edge.journal();
    ensure!(
        journal
            .iter()
            .any(|record| record.kind == "DISCONNECT" && record.way == Way::In)
    );
    ensure!(
        edge.counters().tls_failed == 0 && edge.counters().unknown_topics == 0,
        "{:?}",
        edge.counters()
    );
    Ok(())
}

/// A token that ends soon is renewed by the SDK before it does, and the session works on.
async fn renew(sdk: Sdk, seconds: &str) -> Result<()> {
    let edge = edge().await?;
    let mut peer = Peer::start(sdk, &edge, &[("PEER_TOKEN_SECONDS", seconds)])?;
    peer.order(json!({"do": "connect"})).await?;
    edge.wait_for(
        |view| view.counters().connected == 2 && view.connected(),
        DEADLINE,
    )
    .await?;
    ensure!(edge.counters().token_expired == 0 && edge.counters().refused == 0);
    let journal = edge.journal();
    let tokens: Vec<_> = connects(&journal)
        .iter()
        .map(|record| record.detail.clone())
        .collect();
    ensure!(
        tokens.len() == 2 && tokens[0] != tokens[1],
        "the second token is the first: {tokens:?}"
    );
    send(&edge, &mut peer, "renewed").await?;
    call_echo(&edge, &mut peer).await?;
    peer.quit().await
}

#[tokio::test]
async fn the_python_sdk_plays_all_scenes() -> Result<()> {
    if inside("peers::the_python_sdk_plays_all_scenes")? {
        play(Sdk::Python).await?;
    }
    Ok(())
}

#[tokio::test]
async fn the_python_sdk_renews_its_token() -> Result<()> {
    // It renews 120 s before the end.
    if inside("peers::the_python_sdk_renews_its_token")? {
        renew(Sdk::Python, "125").await?;
    }
    Ok(())
}

#[tokio::test]
async fn the_node_sdk_plays_all_scenes() -> Result<()> {
    if inside("peers::the_node_sdk_plays_all_scenes")? {
        play(Sdk::Node).await?;
    }
    Ok(())
}

#[tokio::test]
async fn the_node_sdk_renews_its_token() -> Result<()> {
    if inside("peers::the_node_sdk_renews_its_token")? {
        renew(Sdk::Node, "20").await?;
    }
    Ok(())
}

/// Starts the crate as a module. OpenSSL finds the trust bundle only through the environment.
async fn start_crate(edge: &Edge) -> Result<(Peer, tempfile::TempDir)> {
    let folder = tempfile::tempdir()?;
    let bundle = folder.path().join("bundle.pem");
    std::fs::write(&bundle, edge.trust_bundle())?;
    let bundle = bundle.to_string_lossy().into_owned();
    let mut peer = Peer::start(Sdk::Crate, edge, &[("SSL_CERT_FILE", &bundle)])?;
    peer.order(json!({"do": "connect"})).await?;
    edge.wait_for(|view| view.subscriptions().len() == 3, DEADLINE)
        .await?;
    Ok((peer, folder))
}

/// What the crate azure_iot_sdk can do once it takes the gateway for its hub and `device/module` for
/// its device id.
#[tokio::test]
async fn the_crate_azure_iot_sdk_takes_desired_patches_and_methods_and_reports() -> Result<()> {
    if !inside("peers::the_crate_azure_iot_sdk_takes_desired_patches_and_methods_and_reports")? {
        return Ok(());
    }
    let edge = edge().await?;
    let (mut peer, _folder) = start_crate(&edge).await?;
    push_desired(&edge, &mut peer, "heal").await?;
    call_echo(&edge, &mut peer).await?;
    peer.order(json!({"do": "report", "patch": {"health": "good"}}))
        .await?;
    edge.wait_for(
        |view| view.reported() == json!({"health": "good"}),
        DEADLINE,
    )
    .await?;
    peer.quit().await
}

/// Why the crate azure_iot_sdk is not the product's client: what it sends as telemetry is lost at
/// edgeHub while it believes that all is well, answers to twin requests never reach its caller, and a
/// lost connection is never made again while its loop spins.
#[tokio::test]
async fn the_crate_azure_iot_sdk_cannot_be_a_module() -> Result<()> {
    if !inside("peers::the_crate_azure_iot_sdk_cannot_be_a_module")? {
        return Ok(());
    }
    let edge = edge().await?;
    let (mut peer, _folder) = start_crate(&edge).await?;

    let order =
        json!({"do": "send", "output": "events", "id": "m", "body": {"id": "m"}, "properties": {}});
    peer.order(order).await?;
    edge.wait_for(|view| view.counters().unknown_topics == 1, DEADLINE)
        .await?;
    let journal = edge.journal();
    // Its twin request goes out by another task, before or after.
    let sent = journal.iter().find(|record| {
        let topic = record.topic.as_deref().unwrap_or("");
        record.way == Way::In && record.kind == "PUBLISH" && topic.contains("/messages/events/")
    });
    let Some(sent) = sent else {
        anyhow::bail!("nothing was sent")
    };
    let topic = sent.topic.as_deref().unwrap_or("");
    ensure!(
        topic.starts_with("devices/edge1/slice-healer/messages/events/"),
        "{topic}"
    );
    ensure!(sent.qos == Some(0), "nothing would tell it of the loss");
    ensure!(
        edge.telemetry().is_empty(),
        "the cloud has {:?}",
        edge.telemetry()
    );

    // It asked for its twin when it connected. edgeHub answered, and the crate told nobody: the first
    // thing that it hands over is a method that came later on the same connection.
    let answered = |record: &PacketRecord| {
        let topic = record.topic.as_deref().unwrap_or("");
        record.way == Way::Out && topic.starts_with("$iothub/twin/res/200/")
    };
    edge.wait_for(|view| view.journal().any(answered), DEADLINE)
        .await?;
    let (result, first) = tokio::join!(edge.invoke(MethodCall::new("echo")), peer.next_event());
    ensure!(result.status == 200 && first?["event"] == "method");

    // After a drop it connects no more; one core is busy with nothing.
    let before = peer.ticks()?;
    edge.drop_connections();
    edge.wait_for(|view| !view.connected(), DEADLINE).await?;
    let spun = wait_for_ticks(&peer, before + 100).await?;
    ensure!(spun, "its loop was expected to spin");
    ensure!(
        edge.look(|view| view.connections()) == 1,
        "it has connected again"
    );
    Ok(())
}

/// Waits until a peer has used so much processor time.
async fn wait_for_ticks(peer: &Peer, ticks: u64) -> Result<bool> {
    for _ in 0..600 {
        if peer.ticks()? >= ticks {
            return Ok(true);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(false)
}
