//! The IoT Edge side: environment, workload socket, trust bundle, gateway.

use std::time::Duration;

use tokio::net::lookup_host;

use super::certificates::expiry_of;
use super::{Check, Look};
use crate::expiry::{self, Credential};
use crate::settings::Enabled;

/// Without these a module cannot connect.
const VARIABLES: [&str; 6] = [
    "IOTEDGE_WORKLOADURI",
    "IOTEDGE_DEVICEID",
    "IOTEDGE_MODULEID",
    "IOTEDGE_MODULEGENERATIONID",
    "IOTEDGE_IOTHUBHOSTNAME",
    "IOTEDGE_GATEWAYHOSTNAME",
];

/// How long each step may take.
const STEP: Duration = Duration::from_secs(5);

pub(super) async fn checks(look: &Look) -> Vec<Check> {
    let hub = &look.settings.hub;
    let missing: Vec<&str> = VARIABLES
        .into_iter()
        .filter(|name| look.var(name).is_none())
        .collect();
    if hub.enabled == Enabled::Never {
        return vec![Check::skipped("hub", "hub.enabled is never")];
    }
    if let Some(path) = hub.connection_string_file.get() {
        return vec![match std::fs::metadata(path) {
            Ok(_) => Check::ok(
                "hub",
                "a module connection string is used, without IoT Edge",
            ),
            Err(error) => Check::fail(
                "hub",
                format!("{path} cannot be read: {error}"),
                "check hub.connection_string_file",
            ),
        }];
    }
    if missing.len() == VARIABLES.len() {
        let message = "not a module of IoT Edge: none of its variables is set";
        let fix = "deploy it as a module, or set hub.enabled to never";
        return vec![match hub.enabled {
            Enabled::Always => Check::fail("hub", message, fix),
            Enabled::Auto | Enabled::Never => Check::skipped("hub", message),
        }];
    }
    if !missing.is_empty() {
        let message = format!("not set: {}", missing.join(", "));
        return vec![Check::fail(
            "hub",
            message,
            "edgeAgent sets all of them; is the module started by something else?",
        )];
    }
    let mut checks = vec![Check::ok("hub", "all variables of IoT Edge are set")];
    checks.extend(workload(look).await);
    checks.extend(gateway(look).await);
    checks
}

async fn workload(look: &Look) -> Vec<Check> {
    let uri = look.var("IOTEDGE_WORKLOADURI").unwrap_or_default();
    let version = look.var("IOTEDGE_APIVERSION").unwrap_or("2019-01-30");
    let answer = expiry::trust_bundle(uri, version).await;
    let id = "workload-socket";
    match answer {
        Err(error) => vec![
            Check::fail(
                id,
                format!("{uri} cannot be used: {error:#}"),
                "aziot-edged makes a new socket when it restarts, and an old container keeps the dead one: restart the module (iotedge restart slice-healer)",
            ),
            Check::skipped("trust-bundle", "needs the workload socket"),
        ],
        Ok((200, body)) => vec![Check::ok(id, format!("{uri} answers")), bundle(look, &body)],
        Ok((404, _)) => vec![
            Check::ok(id, format!("{uri} answers")),
            Check::fail(
                "trust-bundle",
                "none is configured",
                "set trust_bundle_cert or edge_ca in /etc/aziot/config.toml",
            ),
        ],
        Ok((status, _)) => vec![
            Check::fail(
                id,
                format!("{uri} answers {status}"),
                "a 403 means that the daemon does not know this process as the module",
            ),
            Check::skipped("trust-bundle", "needs the workload socket"),
        ],
    }
}

fn bundle(look: &Look, body: &str) -> Check {
    match expiry::earliest_end(expiry::bundle_pem(body).as_bytes()) {
        Some(end) => expiry_of(Credential::TrustBundle, end, look.now),
        None => Check::fail(
            Credential::TrustBundle.as_str(),
            "it holds no certificate",
            "aziotctl check on the host says more",
        ),
    }
}

async fn gateway(look: &Look) -> Vec<Check> {
    let host = look
        .var("IOTEDGE_GATEWAYHOSTNAME")
        .unwrap_or_default()
        .to_owned();
    let port = look.settings.hub.gateway_port;
    let address = match tokio::time::timeout(STEP, lookup_host((host.as_str(), port))).await {
        Ok(Ok(mut addresses)) => addresses.next(),
        Ok(Err(_)) | Err(_) => None,
    };
    let Some(address) = address else {
        return vec![Check::fail(
            "gateway-name",
            format!("{host} is not known here"),
            "the module must be on the docker network azure-iot-edge, where edgeHub has that name",
        )];
    };
    let mut checks = vec![Check::ok(
        "gateway-name",
        format!("{host} is {}", address.ip()),
    )];
    checks.push(match expiry::shown(&host, port).await {
        Ok(end) => expiry_of(Credential::GatewayCertificate, end, look.now),
        Err(error) => Check::fail(
            Credential::GatewayCertificate.as_str(),
            format!("{host}:{port} does not take TLS: {error:#}"),
            "is edgeHub running? iotedge list on the host",
        ),
    });
    checks
}
