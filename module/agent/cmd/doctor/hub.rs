//! The IoT Edge side: environment, workload socket, trust bundle, gateway.

use std::time::Duration;

use tokio::net::{TcpStream, UnixStream, lookup_host};

use super::{Check, Look, der, tls};
use crate::cmd::ask;
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
    let path = format!("/trust-bundle?api-version={version}");
    let answer = if let Some(socket) = uri.strip_prefix("unix://") {
        match tokio::time::timeout(STEP, UnixStream::connect(socket)).await {
            Ok(Ok(stream)) => ask::get(stream, "localhost", &path, STEP).await,
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Err(anyhow::anyhow!("it does not answer")),
        }
    } else {
        let host = uri.trim_start_matches("http://").trim_end_matches('/');
        match tokio::time::timeout(STEP, TcpStream::connect(host)).await {
            Ok(Ok(stream)) => ask::get(stream, host, &path, STEP).await,
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Err(anyhow::anyhow!("it does not answer")),
        }
    };
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
    let id = "trust-bundle";
    let pem = serde_json::from_str::<serde_json::Value>(body)
        .ok()
        .and_then(|body| body.get("certificate")?.as_str().map(str::to_owned))
        .unwrap_or_default();
    let certificates = der::certificates(pem.as_bytes());
    let Some(end) = certificates
        .iter()
        .filter_map(|der| der::not_after(der))
        .min()
    else {
        return Check::fail(
            id,
            "it holds no certificate",
            "aziotctl check on the host says more",
        );
    };
    super::certificates::expiry(
        id,
        "the gateway's trust bundle",
        end,
        look.now,
        "renew the Edge CA, then restart IoT Edge",
    )
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
    let seen = tls::server_certificate(address, &host).await;
    checks.push(match seen {
        Ok(der) => match der::not_after(&der) {
            Some(end) => super::certificates::expiry(
                "gateway-certificate",
                "edgeHub's certificate",
                end,
                look.now,
                "edgeHub renews it by itself before its end; restart edgeHub if it did not",
            ),
            None => Check::warn(
                "gateway-certificate",
                "edgeHub's certificate cannot be read",
                "openssl s_client shows it",
            ),
        },
        Err(error) => Check::fail(
            "gateway-certificate",
            format!("{host}:{port} does not take TLS: {error}"),
            "is edgeHub running? iotedge list on the host",
        ),
    });
    checks
}
