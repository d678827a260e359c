//! `/metrics`, `/livez`, `/readyz`. Read-only; every connection has deadlines and a place limit.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::health::Health;
use crate::observe::metrics::{self, Metrics};

/// Connections at a time; a scraper and a few people.
const CONNECTIONS: usize = 32;

/// How long a request line and its headers may take.
const HEADERS: Duration = Duration::from_secs(5);

/// How long a connection may last.
const CONNECTION: Duration = Duration::from_secs(60);

/// How long answers under way may take at the end.
const DRAIN: Duration = Duration::from_secs(2);

/// The server could not be started.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address cannot be listened on.
    #[error(
        "cannot listen on {address}: {source}; set serve.address and serve.port to what is free"
    )]
    Bind {
        /// Which address.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
}

/// A bound server.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
}

#[derive(Clone)]
struct Shared {
    metrics: Arc<Metrics>,
    health: Health,
}

impl Server {
    /// Takes the address; port 0 takes a free one.
    ///
    /// # Errors
    /// The address is taken or not ours.
    pub async fn bind(address: SocketAddr) -> Result<Self, ServeError> {
        let fail = |source| ServeError::Bind { address, source };
        let listener = TcpListener::bind(address).await.map_err(fail)?;
        let address = listener.local_addr().map_err(fail)?;
        Ok(Self { listener, address })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until `stop`, then lets answers under way end.
    pub async fn run(self, metrics: Arc<Metrics>, health: Health, stop: CancellationToken) {
        let beat = health.task("http");
        let interval = health.beat_interval();
        let router = router(Shared { metrics, health });
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        let connections = TaskTracker::new();
        loop {
            let accepted = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                accepted = self.listener.accept() => accepted,
                () = tokio::time::sleep(interval) => {
                    beat.beat();
                    continue;
                }
            };
            beat.beat();
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Out of descriptors: others will be closed; do not spin meanwhile.
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            // Without a free place the connection is closed, which a scraper shows as a failure.
            let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
                continue;
            };
            let service = TowerToHyperService::new(router.clone());
            let stop = stop.clone();
            connections.spawn(async move {
                let _place = place;
                let mut connection = std::pin::pin!(
                    http1::Builder::new()
                        .timer(TokioTimer::new())
                        .header_read_timeout(HEADERS)
                        .serve_connection(TokioIo::new(stream), service)
                );
                // What goes wrong on a connection is the client's to see.
                tokio::select! {
                    _ = connection.as_mut() => return,
                    () = stop.cancelled() => {}
                    () = tokio::time::sleep(CONNECTION) => {}
                }
                connection.as_mut().graceful_shutdown();
                let _ = tokio::time::timeout(DRAIN, connection).await;
            });
        }
        connections.close();
        let _ = tokio::time::timeout(DRAIN, connections.wait()).await;
    }
}

fn router(shared: Shared) -> Router {
    Router::new()
        .route("/metrics", get(scrape))
        .route("/livez", get(live))
        .route("/readyz", get(ready))
        .fallback(unknown)
        .with_state(shared)
}

async fn scrape(State(shared): State<Shared>) -> Response {
    (
        [(header::CONTENT_TYPE, metrics::CONTENT_TYPE)],
        shared.metrics.render(),
    )
        .into_response()
}

async fn live(State(shared): State<Shared>) -> Response {
    let (live, body) = shared.health.live(Instant::now());
    (status(live), Json(body)).into_response()
}

async fn ready(State(shared): State<Shared>) -> Response {
    let (ready, body) = shared.health.ready();
    (status(ready), Json(body)).into_response()
}

async fn unknown() -> Response {
    let body = serde_json::json!({"error": "there are /metrics, /livez and /readyz"});
    (StatusCode::NOT_FOUND, Json(body)).into_response()
}

fn status(fine: bool) -> StatusCode {
    if fine {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use super::super::health::Part;
    use super::*;

    async fn ask(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        tokio::time::timeout(Duration::from_secs(30), stream.read_to_string(&mut answer))
            .await
            .unwrap()
            .unwrap();
        answer
    }

    async fn get(address: SocketAddr, path: &str) -> String {
        ask(
            address,
            &format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"),
        )
        .await
    }

    #[tokio::test]
    async fn it_answers_and_stops() {
        let local: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let server = Server::bind(local).await.unwrap();
        let address = server.address();
        let health = Health::new(Duration::from_secs(60), ["cluster"]);
        let metrics = Arc::new(Metrics::new("0.1.0", []));
        let stop = CancellationToken::new();
        let task = tokio::spawn(server.run(metrics, health.clone(), stop.clone()));

        let text = get(address, "/metrics").await;
        assert!(text.starts_with("HTTP/1.1 200"), "{text}");
        assert!(
            text.contains("content-type: text/plain; version=0.0.4"),
            "{text}"
        );
        assert!(text.contains("slice_healer_build_info{version=\"0.1.0\"} 1\n"));
        assert!(get(address, "/livez").await.contains("\"live\":true"));
        let text = get(address, "/readyz").await;
        assert!(
            text.starts_with("HTTP/1.1 503") && text.contains("cluster has not reported yet"),
            "{text}"
        );
        health.report("cluster", Part::new("unreachable"));
        assert!(get(address, "/readyz").await.starts_with("HTTP/1.1 200"));
        assert!(get(address, "/nothing").await.starts_with("HTTP/1.1 404"));
        let text = ask(
            address,
            "POST /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        )
        .await;
        assert!(text.starts_with("HTTP/1.1 405"), "read-only: {text}");

        // An idle connection does not hold up the end.
        let _idle = TcpStream::connect(address).await.unwrap();
        stop.cancel();
        tokio::time::timeout(Duration::from_secs(30), task)
            .await
            .unwrap()
            .unwrap();
        assert!(TcpStream::connect(address).await.is_err());
        assert_eq!(
            health.live(Instant::now()).1["tasks"],
            serde_json::json!({}),
            "the task left the list"
        );
    }

    #[tokio::test]
    async fn a_taken_address_is_named() {
        let local: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let first = Server::bind(local).await.unwrap();
        let error = Server::bind(first.address()).await.unwrap_err();
        assert!(
            error.to_string().contains(&first.address().to_string()),
            "{error}"
        );
        assert!(error.to_string().contains("serve.port"));
    }
}
