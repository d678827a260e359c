//! Requests through a ClusterIP at a steady rate, and what became of each.
//!
//! Each request is a connection of its own, as of a client without keep-alive, so that each is routed
//! anew. Never slows down when answers are late.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::support::wait::{Look, eventually};

/// How long a client waits for an answer. Longer, and its kernel's second try would often meet another
/// endpoint.
const PATIENCE: Duration = Duration::from_secs(1);

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reply {
    /// The version that should answer did.
    Right,
    /// Another version answered.
    Wrong,
    /// Nobody was there: no answer in time, or no way to the address.
    Lost,
    /// Refused at once, as kube-proxy does where a Service has no endpoint.
    Refused,
}

/// One request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    /// When it was sent.
    pub(super) at: Instant,
    /// What became of it.
    pub(super) reply: Reply,
}

/// Requests by what became of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// All.
    pub(super) sent: usize,
    /// Answered by another version than the one that should.
    pub(super) wrong: usize,
    /// Not answered.
    pub(super) failed: usize,
    /// Of those, refused for want of any endpoint.
    pub(super) refused: usize,
}

#[derive(Debug, Default)]
struct Book {
    expected: String,
    samples: Vec<Sample>,
}

/// A stream of requests; it ends when dropped.
#[derive(Debug)]
pub(super) struct Traffic {
    book: Arc<Mutex<Book>>,
    sending: AbortHandle,
}

impl Traffic {
    /// Sends a request to `to` each `every`; `expected` is the version that should answer.
    pub(super) fn start(to: SocketAddr, every: Duration, expected: &str) -> Self {
        let book = Arc::new(Mutex::new(Book {
            expected: expected.to_owned(),
            samples: Vec::new(),
        }));
        let sending = tokio::spawn(send(to, every, Arc::clone(&book))).abort_handle();
        Self { book, sending }
    }

    /// From now on `version` should answer.
    pub(super) fn expect(&self, version: &str) {
        lock(&self.book).expected = version.to_owned();
    }

    /// The requests sent from `since` on, in the order of their ends.
    pub(super) fn since(&self, since: Instant) -> Vec<Sample> {
        let book = lock(&self.book);
        book.samples
            .iter()
            .filter(|s| s.at >= since)
            .copied()
            .collect()
    }

    /// Waits until a second's worth of requests in a row was answered as it should be.
    ///
    /// # Errors
    /// When `deadline` passes.
    pub(super) async fn await_right(&self, deadline: Duration) -> Result<()> {
        eventually("all requests are answered rightly", deadline, async || {
            let last = Instant::now().checked_sub(Duration::from_secs(1));
            let seen = count(&last.map(|at| self.since(at)).unwrap_or_default());
            let right = seen.sent >= 5 && seen.wrong + seen.failed == 0;
            Ok(if right {
                Look::Done(())
            } else {
                Look::NotYet(format!("{seen:?}"))
            })
        })
        .await?;
        Ok(())
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.sending.abort();
    }
}

/// Counts requests.
pub(super) fn count(samples: &[Sample]) -> Counts {
    let of = |reply| samples.iter().filter(|s| s.reply == reply).count();
    let refused = of(Reply::Refused);
    Counts {
        sent: samples.len(),
        wrong: of(Reply::Wrong),
        failed: of(Reply::Lost) + refused,
        refused,
    }
}

async fn send(to: SocketAddr, every: Duration, book: Arc<Mutex<Book>>) {
    let mut ticks = interval(every);
    // Requests that the machine had no time for are not made up for.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let book = Arc::clone(&book);
        tokio::spawn(async move {
            let at = Instant::now();
            let expected = lock(&book).expected.clone();
            let reply = match timeout(PATIENCE, request(to)).await {
                Ok(Ok(version)) if version == expected => Reply::Right,
                Ok(Ok(_)) => Reply::Wrong,
                Ok(Err(error)) if error.kind() == ErrorKind::ConnectionRefused => Reply::Refused,
                Ok(Err(_)) | Err(_) => Reply::Lost,
            };
            lock(&book).samples.push(Sample { at, reply });
        });
    }
}

/// The version that answers.
async fn request(to: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(to).await?;
    stream
        .write_all(b"GET /predict HTTP/1.1\r\nHost: model\r\nConnection: close\r\n\r\n")
        .await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let body = answer.rsplit("\r\n").next().unwrap_or_default();
    let body: serde_json::Value = serde_json::from_str(body)?;
    let version = body["model_version"].as_str();
    version
        .map(str::to_owned)
        .ok_or_else(|| ErrorKind::InvalidData.into())
}

fn lock(book: &Mutex<Book>) -> MutexGuard<'_, Book> {
    book.lock().unwrap_or_else(PoisonError::into_inner)
}
