//! The metrics of a running module, and the commands beside it. Reads; starts nothing that stays.

use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::module::Module;

/// How long an answer may take on a slow machine.
const LONG: Duration = Duration::from_secs(120);

/// The metrics as text.
///
/// # Errors
/// When nobody answers in time.
pub async fn scrape(address: &str) -> Result<String> {
    let asked = async {
        let mut stream = TcpStream::connect(address).await?;
        let request =
            format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        Ok(text)
    };
    tokio::time::timeout(LONG, asked)
        .await
        .context("no metrics")?
}

/// The sum of a metric's series whose labels hold `label`.
///
/// # Errors
/// As [`scrape`].
pub async fn metric(address: &str, name: &str, label: &str) -> Result<f64> {
    let text = scrape(address).await?;
    let of_name = |line: &&str| {
        let rest = line.strip_prefix(name);
        rest.is_some_and(|r| r.starts_with(['{', ' '])) && line.contains(label)
    };
    let values = text.lines().filter(of_name);
    Ok(values
        .filter_map(|l| l.rsplit(' ').next()?.parse::<f64>().ok())
        .sum())
}

impl Module {
    /// Where it serves its metrics.
    ///
    /// # Errors
    /// When it does not say so in time.
    pub async fn metrics_address(&mut self) -> Result<String> {
        let texts = ["serving metrics and health", "address="];
        self.await_line(&texts, LONG).await?;
        // The log goes on over a restart, and the port is another one then.
        let log = self.log();
        let mut lines = log.lines().rev();
        let line = lines.find(|l| texts.iter().all(|t| l.contains(t)));
        let line = line.context("no address")?.to_owned();
        let address = line.rsplit("address=").next();
        let address = address.and_then(|t| t.split_whitespace().next());
        Ok(address.context(line.clone())?.trim_matches('"').to_owned())
    }

    /// A command beside it, with its settings and state.
    ///
    /// # Errors
    /// When it cannot be started.
    pub async fn beside(&self, arguments: &[&str]) -> Result<Output> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_slice-healer"));
        command
            .args(arguments)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .envs(self.variables())
            .env("SLICE_HEALER__STORE__DIRECTORY", self.directory());
        Ok(tokio::task::spawn_blocking(move || command.output()).await??)
    }
}
