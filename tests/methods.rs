//! Direct methods of the whole product while everything around it goes wrong: a heal against an API
//! server that answers 409 and 429, a hub that drops its connections, a journal that floods. Each call
//! gets its answer within five seconds.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use slice_lab::edge::{MethodCall, MethodResult, PacketRecord, Way};
use slice_lab::kube::resource::SERVICES;
use slice_lab::kube::{Deployment, Failure, Fault};
use slice_lab::scenario::{NAMESPACE, NODE, SERVICE, World, WorldOptions};

use crate::support::dtdl::Model;
use crate::support::module::{Module, Setup};

/// How long anything may take on a slow machine.
const LONG: Duration = Duration::from_secs(90);
/// The contract's limit of an answer.
const PROMPT: Duration = Duration::from_secs(5);
const OTHER: &str = "other-endpoint";

/// The embedded world with a second Service, and the product beside it as a process.
async fn start(more: &[(&str, &str)]) -> Result<(World, Module)> {
    let world = World::start(WorldOptions::default()).await?;
    let cluster = world.cluster();
    cluster.add_service(NAMESPACE, OTHER)?;
    cluster.deploy(&Deployment::new(NAMESPACE, OTHER, "v1", 2, NODE))?;
    ensure!(
        world.controller().settle(LONG).await,
        "the lab's controller"
    );
    let connections = world.connections()?;
    let mut setup = Setup::new(&connections.kubeconfig);
    for (key, value) in connections.environment() {
        if !key.ends_with("STORE__DIRECTORY") {
            setup = setup.variable(&key, &value);
        }
    }
    for (key, value) in more {
        setup = setup.set(key, value);
    }
    let module = setup.start()?;
    world
        .edge()
        .wait_for(|view| view.reported()["cluster"]["state"] == "synced", LONG)
        .await
        .with_context(|| module.log())?;
    Ok((world, module))
}

/// One call; the answer, which must be a prompt one that fits the model.
async fn call(world: &World, name: &str, payload: Value) -> Result<(i32, Value)> {
    let mut call = MethodCall::new(name).json(&payload);
    call.response_timeout = LONG;
    // A call that comes while the module is away is held by edgeHub; that is not our time.
    call.connect_timeout = LONG;
    let MethodResult {
        status,
        payload: body,
        latency,
        error_code,
    } = world.edge().invoke(call).await;
    ensure!(error_code.is_none(), "{name} {payload}: {error_code:?}");
    ensure!(
        latency < PROMPT,
        "{name} {payload}: {status} after {latency:?}"
    );
    if status < 500 {
        Model::shipped()?
            .check_command(name, "response", &body)
            .with_context(|| format!("{status} {body}"))?;
    }
    Ok((status, body))
}

/// The longest time between a call on the wire and its answer on the wire, of the calls answered.
fn slowest_answer(packets: &[PacketRecord]) -> Duration {
    let id = |record: &PacketRecord, start: &str, way: Way| {
        let topic = record.topic.as_deref()?;
        (record.way == way && topic.starts_with(start))
            .then(|| topic.rsplit_once("$rid=").map(|(_, id)| id.to_owned()))?
    };
    let mut asked = BTreeMap::new();
    let mut slowest = Duration::ZERO;
    for record in packets {
        if let Some(id) = id(record, "$iothub/methods/POST/", Way::Out) {
            asked.insert(id, record.at);
        } else if let Some(id) = id(record, "$iothub/methods/res/", Way::In)
            && let Some(at) = asked.remove(&id)
        {
            let took = record.at.duration_since(at);
            slowest = slowest.max(took.try_into().unwrap_or_default());
        }
    }
    slowest
}

fn target(service: &str) -> Value {
    json!({"namespace": NAMESPACE, "service": service})
}

/// Makes both Services stale: the runtime's cache answers in place of the controller.
fn make_stale(world: &World) -> Result<()> {
    for service in [SERVICE, OTHER] {
        world.controller().cache_hits(NAMESPACE, service);
        world.cluster().redeploy(NAMESPACE, service, "v9")?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_come_while_a_heal_fights_and_the_hub_drops() -> Result<()> {
    // Observing, so that only the method heals; no delete, so that the heal lasts.
    let more = [
        ("MODE", "observe"),
        ("LADDER", "refresh-service"),
        ("HEAL__PACE__LOOK_AGAIN", "PT5M,PT5M"),
    ];
    let (world, module) = start(&more).await?;
    world
        .edge()
        .cloud()
        .set_desired(json!({"settings": {"mode": "observe"}}))?;
    world
        .edge()
        .wait_for(|view| view.reported()["module"]["mode"] == "observe", LONG)
        .await
        .with_context(|| module.log())?;
    make_stale(&world)?;
    // Both are found stale, and by name.
    for service in [SERVICE, OTHER] {
        world
            .edge()
            .wait_for(
                |view| {
                    view.telemetry()
                        .iter()
                        .filter_map(|t| t.json())
                        .any(|b| b["type"] == "finding" && b["service"] == service)
                },
                LONG,
            )
            .await
            .with_context(|| module.log())?;
    }
    for failure in [
        Failure::Conflict,
        Failure::TooManyRequests { retry_after: 1 },
    ] {
        world.cluster().fail_next(Fault {
            verb: "patch",
            resource: Some(&SERVICES),
            times: 3,
            failure,
        });
    }
    let (status, body) = call(&world, "heal", target(SERVICE)).await?;
    ensure!(
        status == 202 && body["incident"].is_string(),
        "{status} {body}\n{}",
        module.log()
    );
    // The same wish again is the same heal, another one is too much.
    let (again, same) = call(&world, "heal", target(SERVICE)).await?;
    ensure!(
        again == 202 && same["incident"] == body["incident"],
        "{again} {same}"
    );
    let (status, body) = call(&world, "heal", target(OTHER)).await?;
    ensure!(status == 429, "{status} {body}");

    // A flood of signals, and drops of the connection, while everything is asked for.
    for round in 0..20 {
        for n in 0..25 {
            let line = format!("Cache hit for endpoint slice, skipping update {round}-{n}");
            world
                .journal()
                .quietly("iotedge.service", "iotedge", &line)?;
        }
        if round % 20 == 9 {
            world.edge().drop_connections();
        }
        let (name, payload, expected) = match round % 5 {
            0 => ("ping", Value::Null, 200),
            1 => ("inspect", json!({}), 200),
            2 => ("getTimeline", json!({"namespace": NAMESPACE}), 200),
            3 => ("selfDestruct", json!({}), 404),
            _ => ("inspect", json!({"nameSpace": "x"}), 400),
        };
        let mut request = MethodCall::new(name).json(&payload);
        (request.response_timeout, request.connect_timeout) = (LONG, LONG);
        let answer = world.edge().invoke(request).await;
        // A call that a drop has cut off is for the caller to repeat.
        let cut = matches!(answer.error_code, Some(504_101 | 404_103));
        ensure!(cut || answer.status == expected, "{name}: {answer:?}");
    }
    let slow = slowest_answer(&world.edge().journal());
    ensure!(slow < PROMPT, "an answer took the module {slow:?}");
    // The other Service is stale and nobody may heal it: that is the worse of the two states.
    let (status, body) = call(&world, "ping", Value::Null).await?;
    ensure!(
        status == 200 && body["health"] == "blocked",
        "{status} {body}\n{}",
        module.log()
    );
    Ok(())
}
