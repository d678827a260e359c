//! The listening socket, which can go away and come back on the same port.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::body::Body;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Mutex;
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use super::server;
use super::shared::Shared;

/// Backlog of the socket, in connections.
const BACKLOG: u32 = 128;

/// Serves, or keeps the port while nobody is served.
pub(crate) struct Listener {
    address: SocketAddr,
    shared: Arc<Shared>,
    state: Mutex<State>,
    shutdown: CancellationToken,
}

enum State {
    Serving(CancellationToken, JoinHandle<()>),
    /// Bound but not listening: connections are refused and nobody else takes the port.
    Parked(TcpSocket),
    /// Between the two; stays only when the parked socket could not listen.
    Lost,
}

impl Listener {
    pub(crate) async fn start(
        shared: Arc<Shared>,
        shutdown: CancellationToken,
    ) -> io::Result<Self> {
        let socket = bound(SocketAddr::from(([127, 0, 0, 1], 0)))?.listen(BACKLOG)?;
        let address = socket.local_addr()?;
        let state = serve(socket, Arc::clone(&shared), &shutdown);
        Ok(Self {
            address,
            shared,
            state: Mutex::new(state),
            shutdown,
        })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Closes every connection and refuses new ones.
    pub(crate) async fn stop(&self) -> io::Result<()> {
        let mut state = self.state.lock().await;
        if let State::Serving(stop, task) = &mut *state {
            // Before the other one goes, so that at no moment somebody else can take the port.
            let parked = bound(self.address)?;
            stop.cancel();
            // A task that was cancelled and joined has dropped its socket.
            let _ = task.await;
            *state = State::Parked(parked);
        }
        Ok(())
    }

    /// Serves again on the same port.
    pub(crate) async fn resume(&self) -> io::Result<()> {
        let mut state = self.state.lock().await;
        let socket = match std::mem::replace(&mut *state, State::Lost) {
            State::Parked(socket) => socket.listen(BACKLOG)?,
            State::Lost => bound(self.address)?.listen(BACKLOG)?,
            serving @ State::Serving(..) => {
                *state = serving;
                return Ok(());
            }
        };
        *state = serve(socket, Arc::clone(&self.shared), &self.shutdown);
        Ok(())
    }
}

/// Shares its port with the next socket of ours, for the moment in which both exist.
fn bound(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(true)?;
    socket.bind(address)?;
    Ok(socket)
}

fn serve(socket: TcpListener, shared: Arc<Shared>, shutdown: &CancellationToken) -> State {
    let stop = shutdown.child_token();
    let task = tokio::spawn(accept(socket, shared, stop.clone()));
    State::Serving(stop, task)
}

async fn accept(socket: TcpListener, shared: Arc<Shared>, stop: CancellationToken) {
    // Dropped with this task, and with it every connection.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            accepted = socket.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(connection(stream, Arc::clone(&shared)));
                }
                // Out of descriptors or a connection that went away: the next one may do.
                Err(error) => {
                    tracing::warn!(%error, "the lab's API server could not accept a connection");
                    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn connection(stream: TcpStream, shared: Arc<Shared>) {
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
        let shared = Arc::clone(&shared);
        async move {
            let answer = server::handle(shared, request.map(Body::new)).await;
            Ok::<_, std::convert::Infallible>(answer)
        }
    });
    // An error here is a client that went away.
    let _ = http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}
