//! What the program tells the client. Handles can be cloned; when the last one goes, the client ends.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use serde_json::Value;
use thiserror::Error;
use tokio::sync::{Notify, mpsc, oneshot, watch};

use crate::clock::now;
use crate::config::Identity;
use crate::event::Status;
use crate::message::{Telemetry, TelemetryError};
use crate::twin::{ReportError, Urgency, check_document, escape_document};

/// Gives commands to a running client.
#[derive(Clone)]
pub struct Handle {
    pub(crate) identity: Identity,
    pub(crate) publish_bytes: usize,
    pub(crate) reported_bytes: usize,
    pub(crate) telemetry: mpsc::Sender<Outgoing>,
    pub(crate) wanted: Arc<WantedSlot>,
    pub(crate) control: mpsc::Sender<Control>,
    pub(crate) status: watch::Receiver<Status>,
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle")
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

/// Telemetry on its way into the session.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) topic: String,
    pub(crate) message: Telemetry,
    pub(crate) acked: oneshot::Sender<()>,
}

/// The newest document that the session has not taken yet: a queue of depth one, the last wins.
#[derive(Debug, Default)]
pub(crate) struct WantedSlot {
    slot: Mutex<Option<(Value, Urgency)>>,
    filled: Notify,
}

impl WantedSlot {
    fn put(&self, document: Value, urgency: Urgency) {
        let mut slot = self.slot.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = slot
            .as_ref()
            .map_or(Urgency::Routine, |(_, waiting)| *waiting);
        *slot = Some((document, urgency.max(waiting)));
        self.filled.notify_one();
    }

    pub(crate) fn take(&self) -> Option<(Value, Urgency)> {
        self.slot
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    /// Waits until something may be there to take.
    pub(crate) async fn filled(&self) {
        self.filled.notified().await;
    }
}

#[derive(Debug)]
pub(crate) enum Control {
    AskTwin,
    ReportInterval(Duration),
    Drain {
        deadline: Instant,
        done: oneshot::Sender<DrainReport>,
    },
}

/// Telemetry that was not taken.
#[derive(Debug, Error)]
pub enum SendError {
    /// It can never be sent.
    #[error(transparent)]
    Message(#[from] TelemetryError),
    /// [`Handle::try_send_telemetry`] only: the queue is full, try again later.
    #[error("the telemetry queue is full")]
    Full,
    /// The client has stopped.
    #[error("the client has stopped")]
    Stopped,
}

/// How an orderly end went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DrainReport {
    /// Telemetry that the hub has not acknowledged; it must stay in the program's outbox.
    pub unacknowledged: usize,
    /// Whether the hub has accepted the last reported document.
    pub reported_settled: bool,
    /// Whether DISCONNECT was sent.
    pub disconnected: bool,
}

/// The client stopped before the hub acknowledged the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "the client stopped before the hub acknowledged the message; it may or may not have arrived"
)]
pub struct Unacknowledged;

/// Resolves when the hub has acknowledged a message (PUBACK). Only then may it leave the program's
/// outbox. Dropping it does not take the message back.
#[derive(Debug)]
#[must_use = "the message may leave the outbox only when this resolves"]
pub struct Ack(oneshot::Receiver<()>);

impl Future for Ack {
    type Output = Result<(), Unacknowledged>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0)
            .poll(context)
            .map(|result| result.map_err(|_| Unacknowledged))
    }
}

impl Handle {
    /// Hands telemetry to the client, in order. Waits while the queue is full, which it is during
    /// an outage: give it a deadline, or use [`Self::try_send_telemetry`]. Cancelling takes nothing.
    ///
    /// # Errors
    /// When the message can never be sent, or the client has stopped.
    pub async fn send_telemetry(&self, message: Telemetry) -> Result<Ack, SendError> {
        let topic = message.topic(&self.identity, self.publish_bytes)?;
        let place = self
            .telemetry
            .reserve()
            .await
            .map_err(|_| SendError::Stopped)?;
        let (acked, ack) = oneshot::channel();
        place.send(Outgoing {
            topic,
            message,
            acked,
        });
        Ok(Ack(ack))
    }

    /// As [`Self::send_telemetry`], without waiting.
    ///
    /// # Errors
    /// Also when the queue is full.
    pub fn try_send_telemetry(&self, message: Telemetry) -> Result<Ack, SendError> {
        let topic = message.topic(&self.identity, self.publish_bytes)?;
        let (acked, ack) = oneshot::channel();
        match self.telemetry.try_send(Outgoing {
            topic,
            message,
            acked,
        }) {
            Ok(()) => Ok(Ack(ack)),
            Err(mpsc::error::TrySendError::Full(_)) => Err(SendError::Full),
            Err(mpsc::error::TrySendError::Closed(_)) => Err(SendError::Stopped),
        }
    }

    /// Sets the whole document that the module wants to report. The client sends what differs from
    /// what the hub has, when spacing allows, and takes out what vanished. Keys are escaped with
    /// [`crate::twin::escape_key`]. The last call wins; an urgency that has not been served stays.
    ///
    /// # Errors
    /// When the document breaks a rule of the hub or the budget; the one before stays in force.
    pub fn report(&self, document: Value, urgency: Urgency) -> Result<(), ReportError> {
        let document = escape_document(document);
        check_document(&document, self.reported_bytes)?;
        if self.telemetry.is_closed() {
            return Err(ReportError::Stopped);
        }
        self.wanted.put(document, urgency);
        Ok(())
    }

    /// Changes the least time between two routine reported patches, at once.
    pub async fn set_report_interval(&self, interval: Duration) {
        // An error means that the client has stopped, and then there is nothing to set.
        let _ = self.control.send(Control::ReportInterval(interval)).await;
    }

    /// As [`Self::set_report_interval`], without waiting; false when it was not taken and is to be
    /// tried again.
    #[must_use]
    pub fn try_set_report_interval(&self, interval: Duration) -> bool {
        self.control
            .try_send(Control::ReportInterval(interval))
            .is_ok()
    }

    /// Asks the hub for the whole twin soon, besides the times when the client does so by itself.
    pub async fn refresh_twin(&self) {
        let _ = self.control.send(Control::AskTwin).await;
    }

    /// The current status.
    pub fn status(&self) -> Status {
        self.status.borrow().clone()
    }

    /// Follows the status.
    pub fn watch_status(&self) -> watch::Receiver<Status> {
        self.status.clone()
    }

    /// Ends the client in order: what is queued goes out, the last reported document is sent
    /// without spacing, then DISCONNECT. Stops waiting after `limit`, and at once when offline.
    pub async fn drain(&self, limit: Duration) -> DrainReport {
        let (done, report) = oneshot::channel();
        let gone = DrainReport {
            unacknowledged: 0,
            reported_settled: false,
            disconnected: false,
        };
        let command = Control::Drain {
            deadline: now() + limit,
            done,
        };
        if self.control.send(command).await.is_err() {
            return gone;
        }
        report.await.unwrap_or(gone)
    }
}
