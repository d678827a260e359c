//! A Service as HTTP on loopback, for clients outside of this process: each request goes where the
//! slices say at that moment.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::Body;
use hyper::Response;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::network::PodNetwork;

/// A listening front of one Service; it ends with this value.
#[derive(Debug)]
pub struct Front {
    address: SocketAddr,
    _stop: DropGuard,
}

impl Front {
    /// Listens on a free port of loopback.
    ///
    /// # Errors
    /// When no port can be bound.
    pub async fn start(network: &PodNetwork, namespace: &str, service: &str) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let stop = CancellationToken::new();
        let place = Arc::new(Place {
            network: network.clone(),
            namespace: namespace.to_owned(),
            service: service.to_owned(),
            turn: AtomicUsize::new(0),
        });
        tokio::spawn(
            stop.clone()
                .run_until_cancelled_owned(serve(listener, place)),
        );
        Ok(Self {
            address,
            _stop: stop.drop_guard(),
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

struct Place {
    network: PodNetwork,
    namespace: String,
    service: String,
    turn: AtomicUsize,
}

impl Place {
    fn answer(&self) -> Response<Body> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let backends = self.network.backends(&self.namespace, &self.service);
        let Some(at) = turn.checked_rem(backends.len()) else {
            return respond(503, &json!({"error": "the Service has no endpoint"}));
        };
        match self.network.reach(&backends[at]) {
            None => respond(
                502,
                &json!({"error": "nobody answers", "at": backends[at].ip}),
            ),
            Some(reply) => {
                let body = json!({"model_version": reply.version, "pod": reply.from});
                let mut response = respond(200, &body);
                if let Ok(version) = HeaderValue::from_str(&reply.version) {
                    response.headers_mut().insert("x-model-version", version);
                }
                response
            }
        }
    }
}

fn respond(code: u16, body: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = hyper::StatusCode::from_u16(code).unwrap_or_default();
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

async fn serve(listener: TcpListener, place: Arc<Place>) {
    // Dropped with this task, and with it every connection.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else {
                    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
                    continue;
                };
                let place = Arc::clone(&place);
                connections.spawn(async move {
                    let service = service_fn(move |_| {
                        let response = place.answer();
                        async move { Ok::<_, Infallible>(response) }
                    });
                    // An error here is a client that went away.
                    let _ = http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}
