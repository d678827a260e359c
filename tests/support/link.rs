//! A network namespace beside the test's own, and a link to it that can be slow, lossy or cut.
//!
//! Only for a test that runs in a namespace of its own already (see `netns::inside`).

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context as _, Result, ensure};

/// The test's own address on the link.
pub const NEAR: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 1));

/// The far side and the way to it. Everything ends when it is dropped.
pub struct Link {
    holder: Child,
    carrier: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Link {
    /// Makes the far side, and a link that is up, fast and sound.
    ///
    /// # Errors
    /// When no namespace or TUN device can be made.
    pub fn start() -> Result<Self> {
        let mut holder = Command::new("unshare")
            .args(["--net", "sh", "-c", "echo there; exec sleep infinity"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("unshare (package util-linux)")?;
        let mut said = BufReader::new(holder.stdout.take().context("no output")?);
        let mut line = String::new();
        said.read_line(&mut line)?;
        ensure!(line == "there\n", "no namespace: {line}");
        let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/support/link.py");
        let mut carrier = Command::new("python3")
            .arg(script)
            .arg(holder.id().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("python3")?;
        let orders = carrier.stdin.take().context("no input")?;
        let answers = BufReader::new(carrier.stdout.take().context("no output")?);
        let mut link = Self {
            holder,
            carrier,
            orders,
            answers,
        };
        link.expect("ready")?;
        Ok(link)
    }

    /// What stands before a command that is to run on the far side.
    pub fn enter(&self) -> Vec<String> {
        let namespace = format!("--net=/proc/{}/ns/net", self.holder.id());
        ["nsenter".to_owned(), namespace, "--".to_owned()].into()
    }

    /// Cuts the link, or mends it.
    ///
    /// # Errors
    /// When the carrier has ended.
    pub fn set_up(&mut self, up: bool) -> Result<()> {
        self.order(if up { "up" } else { "down" })
    }

    /// How late each packet comes, and how many of a hundred never do.
    ///
    /// # Errors
    /// When the carrier has ended.
    pub fn shape(&mut self, one_way_ms: u32, loss_percent: u32) -> Result<()> {
        self.order(&format!("delay {one_way_ms}"))?;
        self.order(&format!("loss {loss_percent}"))
    }

    fn order(&mut self, order: &str) -> Result<()> {
        writeln!(self.orders, "{order}")?;
        self.expect("ok")
    }

    fn expect(&mut self, wanted: &str) -> Result<()> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        ensure!(line.trim() == wanted, "the link says {line:?}");
        Ok(())
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        for child in [&mut self.carrier, &mut self.holder] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
