//! The workload API as aziot-edged serves it: what a request means and what it is answered. The
//! sockets are in `workload_server.rs`.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use http::{Method, StatusCode, Uri, header};
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use super::faults::{BundleFault, WorkloadFault};
use super::pki::Pki;
use super::sas::hmac_sha256;
use super::world::World;

/// Versions that aziot-edged 1.6 knows.
const VERSIONS: [&str; 7] = [
    "2018-06-28",
    "2019-01-30",
    "2019-10-22",
    "2019-11-05",
    "2020-07-07",
    "2021-12-07",
    "2022-08-03",
];

/// An answer: status and JSON body.
pub(crate) type Answer = (StatusCode, Value);

/// A request with its body read.
pub(crate) struct Request {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: Bytes,
}

/// Answers a request; waits only where a fault says so. `None`: never answer.
pub(crate) async fn answer(world: &World, request: Request) -> Option<Answer> {
    let fault = world.look(|state| state.faults.workload);
    let answer = match fault {
        WorkloadFault::Hang => {
            world.change(|state| state.counters.workload_failed += 1);
            return None;
        }
        WorkloadFault::Status(status) => {
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            Err((status, "the test asked for this status".to_owned()))
        }
        _ => route(world, &request).await,
    };
    Some(answer.unwrap_or_else(|(status, message)| {
        world.change(|state| state.counters.workload_failed += 1);
        (status, json!({"message": message}))
    }))
}

type Refusal = (StatusCode, String);

async fn route(world: &World, request: &Request) -> Result<Answer, Refusal> {
    let query = request.uri.query().unwrap_or("");
    let version = query
        .split('&')
        .find_map(|pair| pair.strip_prefix("api-version="));
    let version = version.ok_or_else(|| bad("the query has no api-version"))?;
    if !VERSIONS.contains(&version) {
        return Err(bad("invalid api-version"));
    }
    let path: Vec<String> = request
        .uri
        .path()
        .trim_start_matches('/')
        .split('/')
        .map(|part| percent_decode_str(part).decode_utf8_lossy().into_owned())
        .collect();
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    let wanted = match path.as_slice() {
        ["trust-bundle" | "manifest-trust-bundle" | "modules"] => Method::GET,
        ["modules", _, "genid", _, "sign" | "encrypt" | "decrypt"]
        | ["modules", _, "genid", _, "certificate", "server"]
        | ["modules", _, "certificate", "identity"] => Method::POST,
        _ => return Err((StatusCode::NOT_FOUND, "not found".into())),
    };
    if request.method != wanted {
        return Err(bad("the method is not supported here"));
    }
    match path.as_slice() {
        ["trust-bundle"] => bundle(world),
        ["manifest-trust-bundle"] => Ok((StatusCode::OK, json!({"certificate": ""}))),
        ["modules"] => Ok((StatusCode::OK, modules(world))),
        ["modules", module, .., "sign"] => sign(world, module, request).await,
        ["modules", module, .., "encrypt"] => {
            cipher(world, module, request, "plaintext", "ciphertext")
        }
        ["modules", module, .., "decrypt"] => {
            cipher(world, module, request, "ciphertext", "plaintext")
        }
        ["modules", module, .., "server"] => server_certificate(world, module, request),
        ["modules", module, ..] => identity_certificate(world, module, request),
        _ => Err((StatusCode::NOT_FOUND, "not found".into())),
    }
}

fn bad(message: &str) -> Refusal {
    (StatusCode::BAD_REQUEST, message.to_owned())
}

/// The body as JSON. A content type that is not JSON makes the daemon overlook the body; none at all
/// is accepted, since the Python SDK sends none.
fn body(request: &Request) -> Result<Value, Refusal> {
    let kind = request
        .headers
        .get(header::CONTENT_TYPE)
        .map(|value| value.to_str().unwrap_or(""));
    let json = kind.is_none_or(|kind| {
        kind.split(';')
            .next()
            .unwrap_or("")
            .trim()
            .eq_ignore_ascii_case("application/json")
    });
    if !json || request.body.is_empty() {
        return Err(bad("the request has no JSON body"));
    }
    serde_json::from_slice(&request.body).map_err(|error| {
        (
            StatusCode::UNPROCESSABLE_ENTITY,
            format!("the body does not parse: {error}"),
        )
    })
}

fn text<'a>(body: &'a Value, field: &str) -> Result<&'a str, Refusal> {
    body.get(field).and_then(Value::as_str).ok_or_else(|| {
        (
            StatusCode::UNPROCESSABLE_ENTITY,
            format!("the body has no text field `{field}`"),
        )
    })
}

fn bytes(body: &Value, field: &str) -> Result<Vec<u8>, Refusal> {
    BASE64
        .decode(text(body, field)?)
        .map_err(|_| bad(&format!("`{field}` is no base64")))
}

fn key(world: &World, module: &str) -> Result<Vec<u8>, Refusal> {
    world
        .look(|state| state.modules.get(module).map(|found| found.keys[0].clone()))
        .ok_or_else(|| {
            (
                StatusCode::FORBIDDEN,
                "the caller is not this module".into(),
            )
        })
}

async fn sign(world: &World, module: &str, request: &Request) -> Result<Answer, Refusal> {
    let body = body(request)?;
    let data = bytes(&body, "data")?;
    let digest = BASE64.encode(hmac_sha256(&key(world, module)?, &data));
    let fault = world.look(|state| state.faults.workload);
    if let WorkloadFault::SlowSign(ms) = fault {
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }
    let digest = if fault == WorkloadFault::BadBase64 {
        "?no base64?".into()
    } else {
        digest
    };
    world.change(|state| state.counters.signed += 1);
    Ok((StatusCode::OK, json!({"digest": digest})))
}

fn bundle(world: &World) -> Result<Answer, Refusal> {
    let own = world.pki().bundle_pem();
    let certificate = match world.look(|state| state.faults.bundle) {
        BundleFault::None => own,
        BundleFault::Two => {
            let stranger = Pki::new("stranger", "stranger").map_err(internal)?;
            format!("{}{own}", stranger.bundle_pem())
        }
        BundleFault::Empty => String::new(),
        BundleFault::Missing => {
            return Err((
                StatusCode::NOT_FOUND,
                "no trust bundle is configured".into(),
            ));
        }
        BundleFault::Outdated => world.outdated_pki().map_or(own, |pki| pki.bundle_pem()),
    };
    world.change(|state| state.counters.bundles += 1);
    Ok((StatusCode::OK, json!({"certificate": certificate})))
}

fn internal(error: impl std::fmt::Display) -> Refusal {
    (StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
}

fn modules(world: &World) -> Value {
    let list = world.look(|state| {
        let modules = state.modules.iter().map(|(name, module)| {
            json!({
                "id": name, "name": name, "type": "docker", "generationId": module.generation,
                "config": {"settings": {}, "env": []},
                "status": {"runtimeStatus": {"status": "running"}},
            })
        });
        modules.collect::<Vec<_>>()
    });
    json!({"modules": list})
}

fn server_certificate(world: &World, module: &str, request: &Request) -> Result<Answer, Refusal> {
    key(world, module)?;
    let body = body(request)?;
    let (name, expiration) = (text(&body, "commonName")?, text(&body, "expiration")?);
    issue(world, name, module, expiration)
}

fn identity_certificate(world: &World, module: &str, request: &Request) -> Result<Answer, Refusal> {
    key(world, module)?;
    let body = if request.body.is_empty() {
        json!({})
    } else {
        body(request)?
    };
    let expiration = body.get("expiration").and_then(Value::as_str).unwrap_or("");
    issue(world, module, module, expiration)
}

fn issue(world: &World, name: &str, module: &str, expiration: &str) -> Result<Answer, Refusal> {
    let issued = world.pki().issue(name, module).map_err(internal)?;
    let body = json!({
        "privateKey": {"type": "key", "bytes": issued.key_pem},
        "certificate": issued.chain_pem,
        "expiration": expiration,
    });
    Ok((StatusCode::CREATED, body))
}

/// Encrypts or decrypts with a key stream of the module's own. Callers see opaque bytes; only the
/// round trip and the dependence on the vector are the real service's behaviour.
fn cipher(
    world: &World,
    module: &str,
    request: &Request,
    from: &str,
    to: &str,
) -> Result<Answer, Refusal> {
    let body = body(request)?;
    let data = bytes(&body, from)?;
    let vector = bytes(&body, "initializationVector")?;
    let key = hmac_sha256(&key(world, module)?, &vector);
    let mut output = Vec::with_capacity(data.len());
    for (counter, block) in data.chunks(32).enumerate() {
        let stream = hmac_sha256(&key, &(counter as u64).to_be_bytes());
        output.extend(block.iter().zip(&stream).map(|(byte, mask)| byte ^ mask));
    }
    Ok((StatusCode::OK, json!({to: BASE64.encode(output)})))
}
