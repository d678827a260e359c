//! Looks at everything that ends: reads the kubeconfig, asks the workload socket, and has the API
//! server, edgeHub and k3s show their certificates. Sends no credential to any of them but the API.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node as ApiNode;
use kube::api::ListParams;
use kube::{Api, Client};
use tokio::net::{TcpStream, UnixStream, lookup_host};

use super::{Credential, Credentials, Ends, ask, der, earliest_end, tls};
use crate::client::Access;
use crate::settings::Settings;

/// How long each step may take.
const STEP: Duration = Duration::from_secs(5);
/// More nodes than an edge cluster has.
const NODES: u32 = 200;

/// Where to look.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// The way to the API server.
    pub access: Access,
    /// Name and port of edgeHub.
    pub gateway: Option<(String, u16)>,
    /// URI and version of the workload API.
    pub workload: Option<(String, String)>,
    /// Which node this is, for k3s.
    pub node: Node,
}

/// What is known of the node that this runs on.
#[derive(Clone, Debug, Default)]
pub struct Node {
    /// Its name, where it is set.
    pub name: Option<String>,
    /// The file with the host's machine id.
    pub machine_id: PathBuf,
}

impl From<&Settings> for Node {
    fn from(settings: &Settings) -> Self {
        Self {
            name: settings.cluster.node_name.get().map(str::to_owned),
            machine_id: PathBuf::from(&settings.journal.machine_id_file),
        }
    }
}

/// Looks everywhere once. What could not be looked at keeps the end that `before` knows.
pub async fn look(places: &Places, client: Option<&Client>, before: &Ends) -> Ends {
    let access = places.access.clone();
    // Files block, and a kubeconfig may lie on a slow disk.
    let read = tokio::task::spawn_blocking(move || Credentials::read(&access)).await;
    let credentials = match read {
        Ok(Ok(credentials)) => credentials,
        Ok(Err(_)) | Err(_) => None,
    };
    let server = credentials.as_ref().map(|read| read.server.clone());
    let server = places
        .access
        .server
        .clone()
        .or(server)
        .and_then(|url| https(&url));
    let (api, k3s, gateway, bundle) = futures::join!(
        end_of(server.as_ref()),
        of_k3s(client, &places.node),
        end_of(places.gateway.as_ref()),
        of_bundle(places.workload.as_ref()),
    );
    let mut ends = Ends {
        looked: before.looked || credentials.is_some() || bundle.is_some(),
        ..Ends::default()
    };
    ends.at
        .extend(credentials.iter().flat_map(Credentials::ends));
    for (credential, seen) in [
        (Credential::ServerCertificate, api),
        (Credential::K3sCertificate, k3s),
        (Credential::TrustBundle, bundle),
        (Credential::GatewayCertificate, gateway),
    ] {
        if let Some(end) = seen.or_else(|| before.at.get(&credential).copied()) {
            ends.at.insert(credential, end);
        }
    }
    ends.looked |= !ends.at.is_empty();
    ends
}

async fn end_of(place: Option<&(String, u16)>) -> Option<Timestamp> {
    let (host, port) = place?;
    shown(host, *port).await.ok()
}

async fn of_k3s(client: Option<&Client>, node: &Node) -> Option<Timestamp> {
    let (host, port) = k3s_node(client?, node).await.ok()??;
    shown(&host, port).await.ok()
}

async fn of_bundle(workload: Option<&(String, String)>) -> Option<Timestamp> {
    let (uri, version) = workload?;
    match trust_bundle(uri, version).await {
        Ok((200, body)) => earliest_end(bundle_pem(&body).as_bytes()),
        Ok(_) | Err(_) => None,
    }
}

/// Host and port of an `https` URL.
pub fn https(url: &str) -> Option<(String, u16)> {
    let uri: http::Uri = url.parse().ok()?;
    if uri.scheme_str() != Some("https") {
        return None;
    }
    let host = uri.host()?.trim_matches(['[', ']']).to_owned();
    Some((host, uri.port_u16().unwrap_or(443)))
}

/// When the certificate ends that a server shows.
///
/// # Errors
/// The server cannot be reached, speaks no TLS, or shows something else.
pub async fn shown(host: &str, port: u16) -> Result<Timestamp> {
    let mut addresses = tokio::time::timeout(STEP, lookup_host((host, port)))
        .await
        .with_context(|| format!("nobody says where {host} is"))??;
    let address = addresses
        .next()
        .with_context(|| format!("{host} has no address"))?;
    let der = tls::server_certificate(address, host).await?;
    der::not_after(&der).context("its certificate cannot be read")
}

/// Where the kubelet of this node listens, if the cluster is k3s.
///
/// # Errors
/// The API does not say.
pub async fn k3s_node(client: &Client, known: &Node) -> Result<Option<(String, u16)>> {
    let version = tokio::time::timeout(STEP, client.apiserver_version()).await??;
    if !version.git_version.contains("+k3s") {
        return Ok(None);
    }
    let nodes: Api<ApiNode> = Api::all(client.clone());
    let page = ListParams::default().limit(NODES);
    let list = tokio::time::timeout(STEP, nodes.list(&page)).await??.items;
    let machine_id = tokio::fs::read_to_string(&known.machine_id).await;
    let machine_id = machine_id.unwrap_or_default().trim().to_owned();
    let is_ours = |node: &ApiNode| match &known.name {
        Some(name) => node.metadata.name.as_ref() == Some(name),
        None => {
            let info = node.status.as_ref().and_then(|s| s.node_info.as_ref());
            !machine_id.is_empty() && info.is_some_and(|info| info.machine_id == machine_id)
        }
    };
    let ours = list
        .iter()
        .find(|node| is_ours(node))
        // A cluster of one node leaves no choice.
        .or_else(|| list.first().filter(|_| list.len() == 1));
    let Some(status) = ours.and_then(|node| node.status.as_ref()) else {
        bail!("this node is not known: set cluster.node_name, or bind the host's machine id");
    };
    let address = status
        .addresses
        .iter()
        .flatten()
        .find(|address| address.type_ == "InternalIP")
        .context("the node has no address")?;
    let port = status
        .daemon_endpoints
        .as_ref()
        .and_then(|daemons| daemons.kubelet_endpoint.as_ref())
        .and_then(|kubelet| u16::try_from(kubelet.port).ok())
        .context("the node names no kubelet")?;
    Ok(Some((address.address.clone(), port)))
}

/// Asks the workload API for the trust bundle: status and body.
///
/// # Errors
/// The socket cannot be used.
pub async fn trust_bundle(uri: &str, version: &str) -> Result<(u16, String)> {
    let path = format!("/trust-bundle?api-version={version}");
    let late = |_| anyhow!("it does not answer");
    if let Some(socket) = uri.strip_prefix("unix://") {
        let stream = tokio::time::timeout(STEP, UnixStream::connect(socket));
        ask::get(stream.await.map_err(late)??, "localhost", &path, STEP).await
    } else {
        let host = uri.trim_start_matches("http://").trim_end_matches('/');
        let stream = tokio::time::timeout(STEP, TcpStream::connect(host));
        ask::get(stream.await.map_err(late)??, host, &path, STEP).await
    }
}

/// The certificates in the answer of [`trust_bundle`].
pub fn bundle_pem(body: &str) -> String {
    serde_json::from_str::<serde_json::Value>(body)
        .ok()
        .and_then(|body| body.get("certificate")?.as_str().map(str::to_owned))
        .unwrap_or_default()
}

#[cfg(test)]
#[path = "look_tests.rs"]
mod tests;
