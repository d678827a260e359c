//! edgeHub's port: accepts connections while the hub runs; stopping it ends them all.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::connection;
use super::error::EdgeError;
use super::world::World;

/// How long a port of our own that is taken is waited for.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(10);

/// A running hub.
pub(crate) struct Listener {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Listener {
    /// Binds the port and accepts connections; the address that was bound.
    ///
    /// # Errors
    /// When the port is taken.
    pub(crate) async fn start(
        world: &Arc<World>,
        address: SocketAddr,
    ) -> Result<(Self, SocketAddr), EdgeError> {
        let failed = |source| EdgeError::Listen {
            address: address.to_string(),
            source,
        };
        let socket = bind(address).await.map_err(failed)?;
        let bound = socket.local_addr().map_err(failed)?;
        let stop = world.stop.child_token();
        let task = tokio::spawn(accept_all(Arc::clone(world), socket, stop.clone()));
        Ok((Self { stop, task }, bound))
    }

    /// Closes the port and drops every connection, including those that have not said CONNECT.
    pub(crate) async fn stop(self, world: &World) {
        self.stop.cancel();
        // A panic of the accept loop has been reported by then; the port is closed either way.
        let _ = self.task.await;
        world.change(|state| {
            state.close_all("edgeHub stops");
            state.live.clear();
            for module in state.modules.values_mut() {
                module.inputs.recall();
            }
        });
    }
}

/// Binds; a port that somebody's outgoing connection has taken since the hub went away is waited for.
async fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    let begun = tokio::time::Instant::now();
    loop {
        match TcpListener::bind(address).await {
            Err(taken)
                if taken.kind() == std::io::ErrorKind::AddrInUse
                    && address.port() != 0
                    && begun.elapsed() < PATIENCE =>
            {
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
            other => return other,
        }
    }
}

async fn accept_all(world: Arc<World>, socket: TcpListener, stop: CancellationToken) {
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            accepted = socket.accept() => accepted,
        };
        let (tcp, from) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "the emulated edgeHub cannot accept a connection");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                continue;
            }
        };
        let _ = tcp.set_nodelay(true);
        let number = world.change(|state| {
            state.connections += 1;
            state
                .packets
                .event(state.connections, None, "accepted", &from.to_string());
            state.connections
        });
        let (shared, stop) = (Arc::clone(&world), stop.clone());
        world.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = connection::serve(shared, tcp, number) => {}
            }
        });
    }
}
