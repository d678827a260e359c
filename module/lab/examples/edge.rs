//! An emulated IoT Edge device that stands alone, for SDKs in other processes:
//!
//! ```text
//! cargo run -p slice-lab --example edge -- [PORT [CONTROL_PORT]]
//! ```
//!
//! Prints the environment of the module as `export` lines, then serves until Ctrl-C. The port is 8883
//! by default, since most SDKs know no other; the control API (see `src/edge/control.rs`) is on 9884.

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context as _, Result};
use slice_lab::edge::{Edge, EdgeOptions};

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut port = |default: u16| match arguments.next() {
        Some(text) => text
            .parse::<u16>()
            .with_context(|| format!("`{text}` is no port")),
        None => Ok(default),
    };
    let local = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let (mqtt, control) = (local(port(8883)?), Some(local(port(9884)?)));
    let edge = Edge::start(EdgeOptions {
        mqtt,
        control,
        ..EdgeOptions::default()
    })
    .await?;

    let mut out = std::io::stdout().lock();
    for (name, value) in edge.module_env("slice-healer")? {
        writeln!(out, "export {name}='{value}'")?;
    }
    let control = edge.control().context("the control API was asked for")?;
    writeln!(
        out,
        "# mqtt on port {}, control on http://{control}",
        edge.mqtt_port()
    )?;
    out.flush()?;
    drop(out);

    tokio::signal::ctrl_c().await?;
    edge.shut_down().await;
    Ok(())
}
