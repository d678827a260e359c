//! The control socket, both ends. The running module owns the state; a command beside it asks here
//! instead of opening the store or healing on its own. Only the same user and root may ask.

use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::{SinkExt, StreamExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::codec::{Framed, LinesCodec};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::health::Health;
use super::wire::{ControlEvent, ControlReply, ControlRequest, Line};

/// The socket's name in the state directory.
pub const SOCKET: &str = "control.sock";

/// Requests at a time.
const CONNECTIONS: usize = 8;

/// Longest request, in bytes.
const REQUEST: usize = 64 * 1024;

/// Longest reply, in bytes: findings of a large cluster.
const REPLY: usize = 16 * 1024 * 1024;

/// How long a client may take to ask, and to take a line.
const LINE: Duration = Duration::from_secs(5);

/// How long an answer may take: a whole ladder with its waits.
const ANSWER: Duration = Duration::from_secs(15 * 60);

/// Lines that may wait for a slow client.
const QUEUE: usize = 64;

/// The control socket does not work.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// Another module runs with this state directory.
    #[error("another slice-healer answers on {path}; stop it first", path = .0.display())]
    InUse(PathBuf),
    /// The socket cannot be made.
    #[error("cannot make the control socket {path}: {source}; commands beside the module will not reach it", path = path.display())]
    Bind {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The socket is there, and not for us.
    #[error("cannot use the control socket {path}: {source}; run the command as root or as the module's user", path = path.display())]
    Connect {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The module went away, or said what we do not understand.
    #[error("the running module did not answer properly: {0}")]
    Broken(String),
    /// The module did not answer in time.
    #[error("the running module did not answer within {} s", .0.as_secs())]
    Slow(Duration),
}

/// A request that waits for its reply.
#[derive(Debug)]
pub struct ControlCall {
    /// What is asked.
    pub request: ControlRequest,
    /// Where the reply goes.
    pub responder: Responder,
}

/// Answers one request: any number of events, then one reply. Dropped without a reply, the client is
/// told that there is none.
#[derive(Debug)]
pub struct Responder(mpsc::Sender<Line>);

impl Responder {
    /// Tells what happens meanwhile. `false` when the client is gone or too slow for it.
    pub fn event(&self, message: impl Into<String>) -> bool {
        self.0
            .try_send(Line::Event(ControlEvent {
                message: message.into(),
            }))
            .is_ok()
    }

    /// Whether the client is still there.
    pub fn is_waited_for(&self) -> bool {
        !self.0.is_closed()
    }

    /// Ends the request.
    pub async fn reply(self, reply: ControlReply) {
        // The client may be gone; then nobody waits for this.
        let _ = tokio::time::timeout(LINE, self.0.send(Line::Reply(reply))).await;
    }
}

/// The module's end.
#[derive(Debug)]
pub struct ControlServer {
    listener: UnixListener,
    path: PathBuf,
    uid: u32,
}

impl ControlServer {
    /// Makes the socket in the state directory, mode 0600. One that nobody answers on is replaced.
    ///
    /// # Errors
    /// Somebody answers on it, or the directory does not take sockets.
    pub async fn bind(directory: &Path) -> Result<Self, ControlError> {
        let path = directory.join(SOCKET);
        if UnixStream::connect(&path).await.is_ok() {
            return Err(ControlError::InUse(path));
        }
        let fail = |source| ControlError::Bind {
            path: path.clone(),
            source,
        };
        // Under another name until its mode is right, so that it never is open to all.
        let fresh = directory.join(format!("{SOCKET}.new"));
        remove(&fresh).map_err(fail)?;
        let listener = UnixListener::bind(&fresh).map_err(fail)?;
        std::fs::set_permissions(&fresh, std::fs::Permissions::from_mode(0o600)).map_err(fail)?;
        let uid = std::fs::metadata(&fresh).map_err(fail)?.uid();
        std::fs::rename(&fresh, &path).map_err(fail)?;
        Ok(Self {
            listener,
            path,
            uid,
        })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Passes requests on until `stop`.
    pub async fn run(
        self,
        calls: mpsc::Sender<ControlCall>,
        health: Health,
        stop: CancellationToken,
    ) {
        let beat = health.task("control");
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        let connections = TaskTracker::new();
        loop {
            let accepted = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                accepted = self.listener.accept() => accepted,
                () = tokio::time::sleep(health.beat_interval()) => {
                    beat.beat();
                    continue;
                }
            };
            beat.beat();
            match accepted {
                Ok((stream, _)) => {
                    let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
                        continue;
                    };
                    let (calls, stop, uid) = (calls.clone(), stop.clone(), self.uid);
                    connections.spawn(async move {
                        let _place = place;
                        tokio::select! {
                            result = answer(stream, &calls, uid) => {
                                if let Err(error) = result {
                                    tracing::debug!(%error, "a control connection ended early");
                                }
                            }
                            () = stop.cancelled() => {}
                        }
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "a control connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
        connections.close();
        let _ = tokio::time::timeout(LINE, connections.wait()).await;
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        // Left behind, it would be found unanswered and replaced.
        let _ = remove(&self.path);
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

async fn answer(stream: UnixStream, calls: &mpsc::Sender<ControlCall>, uid: u32) -> io::Result<()> {
    let peer = stream.peer_cred()?.uid();
    let mut lines = Framed::new(stream, LinesCodec::new_with_max_length(REQUEST));
    if peer != uid && peer != 0 {
        return send(
            &mut lines,
            &error("only the module's own user and root may ask"),
        )
        .await;
    }
    let text = match tokio::time::timeout(LINE, lines.next()).await {
        Ok(Some(Ok(text))) => text,
        Ok(Some(Err(fault))) => return send(&mut lines, &error(&fault.to_string())).await,
        Ok(None) | Err(_) => return Ok(()),
    };
    let request = match serde_json::from_str(&text) {
        Ok(request) => request,
        Err(fault) => return send(&mut lines, &error(&format!("not understood: {fault}"))).await,
    };
    let (sender, mut replies) = mpsc::channel(QUEUE);
    let call = ControlCall {
        request,
        responder: Responder(sender),
    };
    if calls.try_send(call).is_err() {
        return send(&mut lines, &Line::Reply(ControlReply::Busy)).await;
    }
    let until = tokio::time::Instant::now() + ANSWER;
    loop {
        let line = tokio::select! {
            line = replies.recv() => line,
            // A client has nothing more to say: a line or an end means that it went away.
            _ = lines.next() => return Ok(()),
            () = tokio::time::sleep_until(until) => None,
        };
        let line = line.unwrap_or_else(|| error("the module gave no answer"));
        send(&mut lines, &line).await?;
        if matches!(line, Line::Reply(_)) {
            return Ok(());
        }
    }
}

fn error(message: &str) -> Line {
    Line::Reply(ControlReply::Error {
        message: message.to_owned(),
    })
}

async fn send(lines: &mut Framed<UnixStream, LinesCodec>, line: &Line) -> io::Result<()> {
    let text = serde_json::to_string(line)?;
    tokio::time::timeout(LINE, lines.send(text))
        .await
        .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
        .map_err(io::Error::other)
}

/// The command line's end.
#[derive(Debug)]
pub struct ControlClient {
    lines: Framed<UnixStream, LinesCodec>,
}

impl ControlClient {
    /// Connects to the module that runs with this state directory; `None` when none runs.
    ///
    /// # Errors
    /// The socket is there, and not for this user.
    pub async fn connect(directory: &Path) -> Result<Option<Self>, ControlError> {
        let path = directory.join(SOCKET);
        match tokio::time::timeout(LINE, UnixStream::connect(&path)).await {
            Ok(Ok(stream)) => {
                let lines = Framed::new(stream, LinesCodec::new_with_max_length(REPLY));
                Ok(Some(Self { lines }))
            }
            Ok(Err(source))
                if matches!(
                    source.kind(),
                    io::ErrorKind::NotFound
                        | io::ErrorKind::ConnectionRefused
                        | io::ErrorKind::NotADirectory
                ) =>
            {
                Ok(None)
            }
            Ok(Err(source)) => Err(ControlError::Connect { path, source }),
            Err(_) => Err(ControlError::Slow(LINE)),
        }
    }

    /// Asks, hands events over as they come, and waits for the reply until the deadline.
    ///
    /// # Errors
    /// The module goes away, answers nonsense, or not in time.
    pub async fn ask(
        mut self,
        request: &ControlRequest,
        deadline: Duration,
        mut on_event: impl FnMut(ControlEvent),
    ) -> Result<ControlReply, ControlError> {
        let broken = |fault: &dyn std::fmt::Display| ControlError::Broken(fault.to_string());
        let exchange = async {
            let text = serde_json::to_string(request).map_err(|fault| broken(&fault))?;
            self.lines
                .send(text)
                .await
                .map_err(|fault| broken(&fault))?;
            loop {
                let line = match self.lines.next().await {
                    Some(line) => line.map_err(|fault| broken(&fault))?,
                    None => return Err(broken(&"the connection was closed")),
                };
                match serde_json::from_str(&line).map_err(|fault| broken(&fault))? {
                    Line::Event(event) => on_event(event),
                    Line::Reply(reply) => return Ok(reply),
                }
            }
        };
        tokio::time::timeout(deadline, exchange)
            .await
            .map_err(|_| ControlError::Slow(deadline))?
    }
}

#[cfg(test)]
#[path = "control_tests.rs"]
mod tests;
