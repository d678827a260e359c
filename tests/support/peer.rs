//! A foreign SDK in a process of its own, in a network of its own.
//!
//! The SDKs insist on port 8883, so a test that needs one runs itself again inside a network
//! namespace and starts the emulated device there. Never judges what a peer says.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use slice_lab::edge::{Edge, EdgeOptions};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::controlplane::files::cache;

/// Longest wait for an answer or an event: the SDKs retry after many seconds.
pub const DEADLINE: Duration = Duration::from_secs(90);

/// Which SDK.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sdk {
    /// azure-iot-device of PyPI.
    Python,
    /// azure-iot-device of npm.
    Node,
    /// The crate azure_iot_sdk.
    Crate,
}

impl Sdk {
    fn command(self) -> Result<Command> {
        let installed = cache()?.join("peers");
        let here = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/peers");
        let (program, script) = match self {
            Self::Python => (installed.join("python/bin/python"), Some("python/peer.py")),
            Self::Node => (PathBuf::from("node"), Some("node/peer.js")),
            Self::Crate => (
                installed.join("azure_iot_sdk/debug/azure-iot-sdk-peer"),
                None,
            ),
        };
        let present = if self == Self::Node {
            installed.join("node/node_modules")
        } else {
            program.clone()
        };
        ensure!(
            present.exists(),
            "{} is missing; run tests/peers/setup.sh",
            present.display()
        );
        let mut command = Command::new(program);
        command.args(script.map(|script| here.join(script)));
        command.env("NODE_PATH", installed.join("node/node_modules"));
        Ok(command)
    }
}

/// A running peer.
pub struct Peer {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    events: VecDeque<Value>,
}

impl Peer {
    /// Starts the SDK as the module `slice-healer` of `edge` with further environment.
    ///
    /// # Errors
    /// When it is not installed or does not start.
    pub fn start(sdk: Sdk, edge: &Edge, more: &[(&str, &str)]) -> Result<Self> {
        Self::start_by(&[], sdk, edge, more)
    }

    /// As [`Self::start`], by another program with arguments, such as one that enters a namespace.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_by(
        starter: &[String],
        sdk: Sdk,
        edge: &Edge,
        more: &[(&str, &str)],
    ) -> Result<Self> {
        let own = sdk.command()?;
        let mut command = match starter {
            [] => own,
            [program, rest @ ..] => {
                let own = own.as_std();
                let mut command = Command::new(program);
                command
                    .args(rest)
                    .arg(own.get_program())
                    .args(own.get_args());
                let variables = own.get_envs();
                command.envs(variables.filter_map(|(key, value)| Some((key, value?))));
                command
            }
        };
        command
            .envs(edge.module_env("slice-healer")?)
            .envs(more.iter().copied());
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .kill_on_drop(true);
        let mut child = command
            .spawn()
            .with_context(|| format!("the {sdk:?} peer"))?;
        let input = child.stdin.take().context("no standard input")?;
        let output = BufReader::new(child.stdout.take().context("no standard output")?).lines();
        Ok(Self {
            child,
            input,
            output,
            events: VecDeque::new(),
        })
    }

    /// Gives an order and waits for the answer; an error of the SDK is an error here.
    pub async fn order(&mut self, order: Value) -> Result<Value> {
        let name = order["do"].clone();
        self.input
            .write_all(format!("{order}\n").as_bytes())
            .await?;
        loop {
            let line = self.line(&format!("the answer to {name}")).await?;
            if line["done"] == name {
                ensure!(line.get("error").is_none(), "{name}: {}", line["error"]);
                return Ok(line);
            }
            self.events.push_back(line);
        }
    }

    /// Waits for the next event of a kind; others before it are dropped.
    pub async fn event(&mut self, kind: &str) -> Result<Value> {
        loop {
            let event = self
                .next_event()
                .await
                .with_context(|| format!("the event {kind}"))?;
            if event["event"] == kind {
                return Ok(event);
            }
        }
    }

    /// Waits for the next event of any kind.
    pub async fn next_event(&mut self) -> Result<Value> {
        match self.events.pop_front() {
            Some(event) => Ok(event),
            None => self.line("an event").await,
        }
    }

    /// Says goodbye and waits for the end of the process.
    pub async fn quit(mut self) -> Result<()> {
        self.order(json!({"do": "quit"})).await?;
        let status = tokio::time::timeout(DEADLINE, self.child.wait()).await??;
        ensure!(status.success(), "the peer ended with {status}");
        Ok(())
    }

    /// Processor time used so far, in the kernel's ticks of 10 ms.
    pub fn ticks(&self) -> Result<u64> {
        let id = self.child.id().context("the peer has ended")?;
        super::usage::ticks(id)
    }

    async fn line(&mut self, what: &str) -> Result<Value> {
        let line = tokio::time::timeout(DEADLINE, self.output.next_line()).await;
        match line.with_context(|| format!("{what} did not come within {DEADLINE:?}"))?? {
            Some(line) => serde_json::from_str(&line).with_context(|| format!("the line {line}")),
            None => bail!("the peer ended before {what}"),
        }
    }
}

/// An emulated device on the port that the SDKs insist on.
///
/// # Errors
/// When the port is taken, which cannot be inside a namespace of its own.
pub async fn edge() -> Result<Edge> {
    let mqtt = SocketAddr::from((Ipv4Addr::LOCALHOST, 8883));
    let routes = vec!["FROM /messages/modules/slice-healer/outputs/* INTO $upstream".into()];
    Ok(Edge::start(EdgeOptions {
        mqtt,
        routes,
        ..EdgeOptions::quick()
    })
    .await?)
}
