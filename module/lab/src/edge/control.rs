//! The knobs over HTTP, for a test or a person in another process: JSON in, JSON out, on loopback.
//! Offers nothing that [`Edge`] does not; never serve it where strangers can reach it.
//!
//! | request | does |
//! | --- | --- |
//! | `GET /state` | ports, counters, who is connected |
//! | `GET /env/{module}` | the environment of a module |
//! | `GET /telemetry?since=N`, `GET /journal?since=N` | messages at the cloud, packets; from the Nth |
//! | `GET /faults`, `PATCH /faults` | faults in force; changes the ones named |
//! | `GET /modules/{m}/twin` | the cloud's copy |
//! | `PUT /modules/{m}/desired`, `PATCH …` | replaces, patches; `{"version": N}` |
//! | `POST /modules/{m}/desired/unnoticed`, `…/send?version=N`, `…/reset?version=N`, `…/storm?count=N&perSecond=N` | a patch whose notice is lost; any body past both layers; another version counter; the body as a patch again and again, with `storm` counted up |
//! | `POST /modules/{m}/methods/{name}?timeoutMs=N&connectMs=N&encode=B` | calls a method with the body |
//! | `POST /modules/{m}/inputs/{input}` | puts the body on an input |
//! | `POST /drop`, `/stop`, `/start`, `/restart`, `/rotate`, `/wipe`, `/advance?seconds=N`, `/resetClock` | as the methods of [`Edge`] |

use std::net::SocketAddr;
use std::time::Duration;

use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Json, Router};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::device::Edge;
use super::document::{Document, Nulls, merge};
use super::error::EdgeError;
use super::faults::Faults;
use super::methods::MethodCall;

/// Serves the control API until the device ends; the address that was bound.
///
/// # Errors
/// When the address is taken.
pub(crate) async fn start(edge: Edge, address: SocketAddr) -> Result<SocketAddr, EdgeError> {
    let failed = |source| EdgeError::Listen {
        address: address.to_string(),
        source,
    };
    let socket = TcpListener::bind(address).await.map_err(failed)?;
    let bound = socket.local_addr().map_err(failed)?;
    let routes = routes(edge.clone());
    edge.world.spawn(async move {
        if let Err(error) = axum::serve(socket, routes).await {
            tracing::warn!(%error, "the control API of the emulated device has ended");
        }
    });
    Ok(bound)
}

fn routes(edge: Edge) -> Router {
    Router::new()
        .route("/state", get(state))
        .route("/env/{module}", get(env))
        .route("/telemetry", get(telemetry))
        .route("/journal", get(journal))
        .route("/faults", get(faults).patch(patch_faults))
        .route("/modules/{module}/twin", get(twin))
        .route(
            "/modules/{module}/desired",
            put(set_desired).patch(patch_desired),
        )
        .route("/modules/{module}/desired/{how}", post(odd_desired))
        .route("/modules/{module}/methods/{name}", post(method))
        .route("/modules/{module}/inputs/{input}", post(input))
        .route("/{action}", post(act))
        .with_state(edge)
}

/// An error as an answer: 404 for a module that is not there, else 400.
struct Failure(StatusCode, String);

impl From<EdgeError> for Failure {
    fn from(error: EdgeError) -> Self {
        let status = match error {
            EdgeError::UnknownModule(_) => StatusCode::NOT_FOUND,
            _ => StatusCode::BAD_REQUEST,
        };
        Self(status, error.to_string())
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        (self.0, Json(json!({"error": self.1}))).into_response()
    }
}

type Answer = Result<Json<Value>, Failure>;

async fn state(State(edge): State<Edge>) -> Json<Value> {
    let mqtt = edge.mqtt_port();
    let connected: Vec<String> = edge.world.look(|state| {
        state
            .live
            .values()
            .map(|live| live.module.clone())
            .collect()
    });
    Json(edge.look(|view| {
        json!({
            "mqttPort": mqtt,
            "connected": connected,
            "connections": view.connections(),
            "storedMessages": view.stored_messages(),
            "telemetry": view.telemetry().len(),
            "counters": view.counters(),
        })
    }))
}

async fn env(State(edge): State<Edge>, Path(module): Path<String>) -> Answer {
    let pairs = edge.module_env(&module)?;
    Ok(Json(
        pairs
            .into_iter()
            .map(|(name, value)| (name, Value::from(value)))
            .collect(),
    ))
}

#[derive(Deserialize)]
struct Since {
    #[serde(default)]
    since: usize,
}

async fn telemetry(State(edge): State<Edge>, Query(from): Query<Since>) -> Json<Value> {
    Json(edge.look(|view| json!(view.telemetry().get(from.since..).unwrap_or_default())))
}

async fn journal(State(edge): State<Edge>, Query(from): Query<Since>) -> Json<Value> {
    Json(edge.look(|view| json!(view.journal().skip(from.since).collect::<Vec<_>>())))
}

async fn faults(State(edge): State<Edge>) -> Json<Value> {
    Json(edge.look(|view| json!(view.faults())))
}

/// Unknown names are refused; a null sets the default back.
async fn patch_faults(State(edge): State<Edge>, Json(patch): Json<Document>) -> Answer {
    let mut document = edge.look(|view| json!(view.faults()));
    if let Value::Object(document) = &mut document {
        // A variant such as {"status": 429} is replaced and not merged with another.
        patch.keys().for_each(|key| {
            document.remove(key);
        });
        merge(document, &patch, Nulls::Delete);
    }
    let new: Faults = serde_json::from_value(document)
        .map_err(|error| Failure(StatusCode::BAD_REQUEST, error.to_string()))?;
    edge.faults(|faults| *faults = new.clone());
    Ok(Json(json!(new)))
}

fn known(edge: &Edge, module: &str) -> Result<(), EdgeError> {
    let found = edge.world.look(|state| state.modules.contains_key(module));
    if found {
        Ok(())
    } else {
        Err(EdgeError::UnknownModule(module.to_owned()))
    }
}

async fn twin(State(edge): State<Edge>, Path(module): Path<String>) -> Answer {
    known(&edge, &module)?;
    let cloud = edge.cloud_of(&module);
    Ok(Json(json!({
        "desired": cloud.desired(),
        "desiredVersion": cloud.desired_version(),
        "reported": cloud.reported(),
        "reportedVersion": cloud.reported_version(),
        "reportedPending": cloud.reported_pending(),
    })))
}

async fn set_desired(
    State(edge): State<Edge>,
    Path(module): Path<String>,
    Json(body): Json<Value>,
) -> Answer {
    known(&edge, &module)?;
    Ok(Json(
        json!({"version": edge.cloud_of(&module).set_desired(body)?}),
    ))
}

async fn patch_desired(
    State(edge): State<Edge>,
    Path(module): Path<String>,
    Json(body): Json<Value>,
) -> Answer {
    known(&edge, &module)?;
    Ok(Json(
        json!({"version": edge.cloud_of(&module).patch_desired(body)?}),
    ))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Odd {
    #[serde(default)]
    version: u64,
    #[serde(default)]
    count: u32,
    #[serde(default)]
    per_second: u32,
}

/// The oddities of versions that a hub can produce.
async fn odd_desired(
    State(edge): State<Edge>,
    Path((module, how)): Path<(String, String)>,
    Query(odd): Query<Odd>,
    Json(body): Json<Value>,
) -> Answer {
    known(&edge, &module)?;
    let cloud = edge.cloud_of(&module);
    let version = match how.as_str() {
        "unnoticed" => cloud.patch_desired_unnoticed(body)?,
        "send" => {
            cloud.send_desired(odd.version, body)?;
            odd.version
        }
        "reset" => {
            cloud.reset_desired_version(odd.version);
            odd.version
        }
        "storm" => {
            let patch = |number: u32| {
                let mut patch = body.clone();
                if let Value::Object(fields) = &mut patch {
                    fields.insert("storm".into(), number.into());
                }
                patch
            };
            cloud.storm(odd.count, odd.per_second, patch).await?
        }
        other => {
            let text = format!("desired properties cannot be changed by `{other}`");
            return Err(Failure(StatusCode::NOT_FOUND, text));
        }
    };
    Ok(Json(json!({"version": version})))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Timeouts {
    timeout_ms: Option<u64>,
    #[serde(default)]
    connect_ms: u64,
    #[serde(default)]
    encode: bool,
}

async fn method(
    State(edge): State<Edge>,
    Path((module, name)): Path<(String, String)>,
    Query(timeouts): Query<Timeouts>,
    body: Bytes,
) -> Answer {
    known(&edge, &module)?;
    let mut call = MethodCall::new(name);
    call.module = Some(module);
    call.body = body;
    call.encode_name = timeouts.encode;
    call.connect_timeout = Duration::from_millis(timeouts.connect_ms);
    if let Some(ms) = timeouts.timeout_ms {
        call.response_timeout = Duration::from_millis(ms);
    }
    Ok(Json(json!(edge.invoke(call).await)))
}

async fn input(
    State(edge): State<Edge>,
    Path((module, input)): Path<(String, String)>,
    body: Bytes,
) -> Answer {
    edge.send_input(&module, &input, body, &[])?;
    Ok(Json(json!({})))
}

#[derive(Deserialize)]
struct Amount {
    #[serde(default)]
    seconds: u64,
}

async fn act(
    State(edge): State<Edge>,
    Path(action): Path<String>,
    Query(amount): Query<Amount>,
) -> Answer {
    match action.as_str() {
        "drop" => edge.drop_connections(),
        "stop" => edge.stop_hub().await,
        "start" => edge.start_hub().await?,
        "restart" => edge.restart().await?,
        "rotate" => edge.rotate_certificates().await?,
        "wipe" => edge.wipe_store(),
        "resetClock" => edge.reset_clock(),
        "advance" => edge.advance_clock(Duration::from_secs(amount.seconds)),
        other => {
            return Err(Failure(
                StatusCode::NOT_FOUND,
                format!("there is no action `{other}`"),
            ));
        }
    }
    Ok(Json(json!({})))
}
