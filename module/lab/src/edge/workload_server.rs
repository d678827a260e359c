//! The sockets of the workload API: a unix socket, and a TCP port on request. They open and close
//! with the faults in force; what is answered is decided in `workload.rs`.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;

use super::error::EdgeError;
use super::faults::WorkloadFault;
use super::workload::{self, Request};
use super::world::World;

/// Connections at once per socket; one more is closed without an answer.
const MAX_CONNECTIONS: usize = 10;
/// Time for a request's body.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);

/// Where a server listens.
pub(crate) enum Place {
    /// A path.
    Unix(PathBuf),
    /// A TCP address.
    Tcp(SocketAddr),
}

enum Socket {
    Unix(UnixListener),
    Tcp(TcpListener),
}

impl Socket {
    async fn bind(place: &Place) -> io::Result<Self> {
        match place {
            Place::Unix(path) => {
                remove(path)?;
                let socket = UnixListener::bind(path)?;
                // Modules may run as any user.
                std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666))?;
                Ok(Self::Unix(socket))
            }
            Place::Tcp(address) => Ok(Self::Tcp(TcpListener::bind(address).await?)),
        }
    }

    async fn accept(&self) -> io::Result<Box<dyn Stream>> {
        Ok(match self {
            Self::Unix(socket) => Box::new(socket.accept().await?.0),
            Self::Tcp(socket) => Box::new(socket.accept().await?.0),
        })
    }
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Starts a server; the place with the port that was bound.
///
/// # Errors
/// When the socket cannot be bound.
pub(crate) async fn start(world: &Arc<World>, mut place: Place) -> Result<Place, EdgeError> {
    let socket = Socket::bind(&place).await.map_err(|source| {
        let address = match &place {
            Place::Unix(path) => path.display().to_string(),
            Place::Tcp(address) => address.to_string(),
        };
        EdgeError::Listen { address, source }
    })?;
    if let (Socket::Tcp(listener), Place::Tcp(address)) = (&socket, &mut place) {
        *address = listener.local_addr().unwrap_or(*address);
    }
    let bound = match &place {
        Place::Unix(path) => Place::Unix(path.clone()),
        Place::Tcp(address) => Place::Tcp(*address),
    };
    let shared = Arc::clone(world);
    world.spawn(async move { serve(shared, socket, place).await });
    Ok(bound)
}

/// Accepts while the faults allow it; closes and opens the socket as they change.
async fn serve(world: Arc<World>, first: Socket, place: Place) {
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut changes = world.changes();
    let mut socket = Some(first);
    loop {
        changes.borrow_and_update();
        let fault = world.look(|state| state.faults.workload);
        let open = !matches!(fault, WorkloadFault::Absent | WorkloadFault::Stale);
        if open && socket.is_none() {
            match Socket::bind(&place).await {
                Ok(new) => socket = Some(new),
                Err(error) => tracing::warn!(%error, "the workload socket cannot be opened again"),
            }
        }
        if !open {
            // The file of a dropped unix listener stays: that is the stale socket.
            socket = None;
            if let (WorkloadFault::Absent, Place::Unix(path)) = (fault, &place) {
                let _ = remove(path);
            }
        }
        let accepted = tokio::select! {
            changed = changes.changed() => {
                if changed.is_err() {
                    return;
                }
                continue;
            }
            accepted = accept(socket.as_ref()) => accepted,
        };
        let Ok(stream) = accepted else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let Ok(slot) = Arc::clone(&slots).try_acquire_owned() else {
            continue;
        };
        if fault == WorkloadFault::Closed {
            world.change(|state| state.counters.workload_failed += 1);
            continue;
        }
        let shared = Arc::clone(&world);
        world.spawn(async move {
            converse(shared, stream).await;
            drop(slot);
        });
    }
}

async fn accept(socket: Option<&Socket>) -> io::Result<Box<dyn Stream>> {
    match socket {
        Some(socket) => socket.accept().await,
        None => std::future::pending().await,
    }
}

async fn converse(world: Arc<World>, stream: Box<dyn Stream>) {
    let service = service_fn(move |request| {
        let world = Arc::clone(&world);
        async move { Ok::<_, Infallible>(respond(&world, request).await) }
    });
    // A client that goes away in the middle is no concern of the server.
    let _ = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

async fn respond(world: &World, request: http::Request<Incoming>) -> Response<Full<Bytes>> {
    let (parts, body) = request.into_parts();
    let answer = match tokio::time::timeout(BODY_TIMEOUT, body.collect()).await {
        Err(_) => {
            let message = serde_json::json!({"message": "the body did not arrive in time"});
            (StatusCode::REQUEST_TIMEOUT, message)
        }
        Ok(Err(error)) => (
            StatusCode::BAD_REQUEST,
            serde_json::json!({"message": error.to_string()}),
        ),
        Ok(Ok(body)) => {
            let body = body.to_bytes();
            let request = Request {
                method: parts.method,
                uri: parts.uri,
                headers: parts.headers,
                body,
            };
            match workload::answer(world, request).await {
                Some(answer) => answer,
                None => std::future::pending().await,
            }
        }
    };
    let mut response = Response::new(Full::new(Bytes::from(answer.1.to_string())));
    *response.status_mut() = answer.0;
    let json = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
