//! The node's network and the containers of its pods: small HTTP servers that tell their version.
//!
//! Only for a test inside [`crate::support::netns`]: addresses and routes are set for good.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

/// The node's own address.
pub(super) const NODE_IP: &str = "192.168.77.1";
/// The port that the pods of `support::objects` name.
const PORT: u16 = 8080;

fn ip(arguments: &str) -> Result<()> {
    let output = Command::new("ip").args(arguments.split(' ')).output()?;
    let told = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "ip {arguments}: {told}");
    Ok(())
}

/// The containers that run on the node, by address.
#[derive(Debug, Default)]
pub(super) struct Containers {
    running: BTreeMap<String, AbortHandle>,
}

impl Containers {
    /// Gives the node its address, a way out for ClusterIPs, and a network for pods in which nobody
    /// answers for an address that no container has, as with the usual network plugins.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(super) fn on_a_new_node() -> Result<Self> {
        ip("link add edge0 type veth peer name edge1")?;
        ip("link set edge1 up")?;
        ip("link set edge0 up")?;
        ip(&format!("address add {NODE_IP}/24 dev edge0"))?;
        ip("route add default dev edge0")?;
        ip("route add unreachable 10.244.0.0/16")?;
        Ok(Self::default())
    }

    /// Runs a container of `version` at `address`.
    ///
    /// # Errors
    /// When the address is taken.
    pub(super) async fn run(&mut self, address: &str, version: &str) -> Result<()> {
        ip(&format!("address add {address}/32 dev lo"))?;
        let at = SocketAddr::new(address.parse::<IpAddr>()?, PORT);
        let listener = TcpListener::bind(at)
            .await
            .context("the container's port")?;
        let serving = tokio::spawn(serve(listener, version.to_owned()));
        self.running
            .insert(address.to_owned(), serving.abort_handle());
        Ok(())
    }

    /// Ends the container at `address`, and its network with it.
    ///
    /// # Errors
    /// When none runs there.
    pub(super) fn end(&mut self, address: &str) -> Result<()> {
        let serving = self.running.remove(address);
        serving
            .with_context(|| format!("no container at {address}"))?
            .abort();
        ip(&format!("address delete {address}/32 dev lo"))
    }
}

async fn serve(listener: TcpListener, version: String) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(answer(stream, version.clone()));
    }
}

async fn answer(mut stream: TcpStream, version: String) -> std::io::Result<()> {
    let mut request = [0_u8; 512];
    // The whole request is in the first segment.
    if stream.read(&mut request).await? == 0 {
        return Ok(());
    }
    let body = format!(r#"{{"model_version":"{version}"}}"#);
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n";
    let answer = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await
}
