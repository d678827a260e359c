//! `health`: whether the module in this container lives, for the image's health check. Asks `/livez`
//! where the settings say that it is, and nothing else.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tokio::net::TcpStream;

use super::output::print;
use crate::expiry::ask;
use crate::serve::{ControlClient, ControlReply, ControlRequest};
use crate::settings::{Loaded, Settings};

/// How long the answer may take; Docker's own limit is 30 s.
const ANSWER: Duration = Duration::from_secs(5);

/// Asks. Exit code 0 when the module says that it lives.
///
/// # Errors
/// It does not answer, or says that a task stands still. Exit code 1.
pub async fn run(loaded: Loaded) -> Result<ExitCode> {
    print(&alive(&loaded.settings).await?)?;
    Ok(ExitCode::SUCCESS)
}

async fn alive(settings: &Settings) -> Result<String> {
    // A port that was chosen by the system is known only to the module itself.
    if settings.serve.port == 0 {
        let client = ControlClient::connect(&settings.store.directory)
            .await?
            .context("no module answers on the control socket")?;
        let reply = client.ask(&ControlRequest::Ping, ANSWER, |_| {}).await?;
        ensure!(
            matches!(reply, ControlReply::Pong { .. }),
            "the module did not answer: {reply:?}"
        );
        return Ok("alive".to_owned());
    }
    let address = SocketAddr::new(reachable(settings.serve.address), settings.serve.port);
    let stream = tokio::time::timeout(ANSWER, TcpStream::connect(address))
        .await
        .with_context(|| format!("{address} does not answer within {} s", ANSWER.as_secs()))?
        .with_context(|| format!("nothing listens on {address}"))?;
    let (status, body) = ask::get(stream, &address.to_string(), "/livez", ANSWER).await?;
    ensure!(status == 200, "{address}/livez answers {status}: {body}");
    Ok(body)
}

/// A server on all addresses is asked on the loopback.
fn reachable(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(address) if address.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(address) if address.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::observe::Metrics;
    use crate::serve::{Health, Server};

    fn settings(address: SocketAddr) -> Settings {
        let mut settings = Loaded::load(None, []).unwrap().settings;
        settings.serve.address = address.ip();
        settings.serve.port = address.port();
        settings
    }

    #[tokio::test]
    async fn it_says_what_livez_says() {
        let server = Server::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let settings = settings(server.address());
        let health = Health::new(Duration::from_millis(1), []);
        let stop = CancellationToken::new();
        let task = tokio::spawn(server.run(
            Arc::new(Metrics::new("v", [])),
            health.clone(),
            stop.clone(),
        ));
        let stuck = health.task("engine");
        // The engine gives no further sign of life; the server's own task does.
        let error = tokio::time::timeout(Duration::from_secs(30), async {
            loop {
                match alive(&settings).await {
                    Err(error) if error.to_string().contains("engine") => return error.to_string(),
                    _ => tokio::task::yield_now().await,
                }
            }
        })
        .await
        .unwrap();
        assert!(error.contains("503"), "{error}");
        drop(stuck);
        stop.cancel();
        task.await.unwrap();
        let error = alive(&settings).await.unwrap_err().to_string();
        assert!(error.contains("nothing listens"), "{error}");
    }

    #[tokio::test]
    async fn a_living_module_is_alive() {
        let server = Server::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let settings = settings(server.address());
        let stop = CancellationToken::new();
        let health = Health::new(Duration::from_secs(60), []);
        let task = tokio::spawn(server.run(Arc::new(Metrics::new("v", [])), health, stop.clone()));
        assert!(alive(&settings).await.unwrap().contains("\"live\":true"));
        stop.cancel();
        task.await.unwrap();
    }
}
