//! Empties the outbox into the module client. A message leaves the outbox only when the hub has
//! acknowledged it, or when it is too old to be of use; it keeps its id over every sending. In order,
//! a few at a time, and not faster than the settings say: what a day's outage has left behind must
//! not hold up the other devices of the fleet.

use std::collections::HashSet;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures::FutureExt as _;
use futures::stream::{FuturesUnordered, StreamExt as _};
use jiff::Timestamp;
use slice_hub::{Handle, SendError, Telemetry};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, error, warn};

use super::books::Books;
use crate::report::model;
use crate::settings::Settings;
use crate::store::{Outgoing, Waiting};

/// Messages handed to the client at one time.
const IN_FLIGHT: usize = 8;
/// How long one message may wait for a place in the client before the outbox is looked at anew.
const PLACE: Duration = Duration::from_secs(5);
/// How often the outbox is looked at although nobody says that there is something in it.
const LOOK: Duration = Duration::from_secs(30);
/// So much can go out at once after a quiet time, in seconds of the rate.
const BURST: f64 = 5.0;

/// What the settings say of sending.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sending {
    /// Messages a second, on average.
    per_second: u32,
    /// What has waited longer than this is given up.
    age: Duration,
}

impl Sending {
    /// As the settings have it.
    pub(super) fn of(settings: &Settings) -> Self {
        Self {
            per_second: settings.report.telemetry_per_second,
            age: settings.store.outbox_age.0,
        }
    }
}

/// A token bucket.
#[derive(Debug)]
struct Pace {
    rate: f64,
    tokens: f64,
    at: Instant,
}

impl Pace {
    fn new(per_second: u32, now: Instant) -> Self {
        let rate = f64::from(per_second);
        Self {
            rate,
            tokens: rate * BURST,
            at: now,
        }
    }

    /// Takes one place, or says how long until there is one.
    fn take(&mut self, now: Instant) -> Result<(), Duration> {
        let gained = now.duration_since(self.at).as_secs_f64() * self.rate;
        self.tokens = (self.tokens + gained).min(self.rate * BURST);
        self.at = now;
        if self.tokens >= 1.0 {
            self.tokens -= 1.0;
            return Ok(());
        }
        Err(Duration::from_secs_f64((1.0 - self.tokens) / self.rate))
    }

    /// Puts a place back that was not used.
    fn give_back(&mut self) {
        self.tokens += 1.0;
    }
}

/// Empties the outbox for as long as the process lives. `wake` is notified when something was put in.
pub(super) async fn send(handle: Handle, books: Books, wake: Arc<Notify>, sending: Sending) {
    // Handed to the client, and not taken out of the outbox yet.
    let mut flying: HashSet<u64> = HashSet::new();
    // Of them, those that the hub has: where the disk does not take that, they must not be sent again
    // and again meanwhile.
    let mut delivered: Vec<u64> = Vec::new();
    let mut acks = FuturesUnordered::new();
    let mut pace = Pace::new(sending.per_second, Instant::now());
    let mut looked = None;
    loop {
        let connected = handle.status().state.is_connected();
        if connected && looked.is_none_or(|at: Instant| at.elapsed() >= LOOK) {
            looked = Some(Instant::now());
            give_up(&books, sending.age).await;
        }
        let mut again = LOOK;
        if flying.len() < IN_FLIGHT {
            match books.outbox_peek(IN_FLIGHT * 2).await {
                Ok(messages) => {
                    for message in messages {
                        if flying.len() >= IN_FLIGHT || flying.contains(&message.number) {
                            continue;
                        }
                        if let Err(wait) = pace.take(Instant::now()) {
                            again = wait;
                            break;
                        }
                        match place(&handle, &books, message).await {
                            Placed::Flying(number, ack) => {
                                flying.insert(number);
                                acks.push(ack);
                            }
                            Placed::Dropped => {}
                            Placed::Stopped => return,
                            Placed::NoPlace => {
                                pace.give_back();
                                break;
                            }
                        }
                    }
                }
                Err(failed) => {
                    warn!(error = %failed, "the outbox cannot be read; trying again");
                    again = PLACE;
                }
            }
        }
        tokio::select! {
            Some(first) = acks.next(), if !acks.is_empty() => {
                // What has come in the meantime goes in one transaction: each costs a flush.
                let mut ended = vec![first];
                while let Some(Some(more)) = acks.next().now_or_never() {
                    ended.push(more);
                }
                for (number, id, acked) in ended {
                    if acked {
                        debug!(id, "acknowledged by the hub");
                        delivered.push(number);
                    } else {
                        flying.remove(&number);
                    }
                }
            }
            () = wake.notified() => {}
            () = sleep(again) => {}
        }
        take_out(&books, &mut flying, &mut delivered).await;
    }
}

enum Placed<F> {
    Flying(u64, F),
    Dropped,
    NoPlace,
    Stopped,
}

/// An acknowledged message: its number, its id, and whether the hub has it.
type Acked = (u64, String, bool);

/// Hands one message to the client.
async fn place(
    handle: &Handle,
    books: &Books,
    Waiting { number, message }: Waiting,
) -> Placed<impl Future<Output = Acked> + use<>> {
    let id = message.id.clone();
    match timeout(PLACE, handle.send_telemetry(telemetry(message))).await {
        Ok(Ok(ack)) => Placed::Flying(number, async move { (number, id, ack.await.is_ok()) }),
        Ok(Err(SendError::Stopped)) => Placed::Stopped,
        Ok(Err(cannot)) => {
            // It can never be sent; keeping it would block what follows.
            error!(id, error = %cannot, "event dropped from the outbox");
            let _ = books.outbox_ack(vec![number]).await;
            Placed::Dropped
        }
        Err(_) => Placed::NoPlace,
    }
}

async fn take_out(books: &Books, flying: &mut HashSet<u64>, delivered: &mut Vec<u64>) {
    if delivered.is_empty() {
        return;
    }
    match books.outbox_ack(delivered.clone()).await {
        Ok(()) => {
            for number in delivered.drain(..) {
                flying.remove(&number);
            }
        }
        Err(failed) => {
            warn!(error = %failed, "acknowledged events stay in the outbox; the next start may send them again");
        }
    }
}

/// Only called while the hub is there: it takes no token and shows no certificate by a clock that is
/// far off, and by such a clock everything would look old.
async fn give_up(books: &Books, age: Duration) {
    let Ok(before) = Timestamp::now().checked_sub(age) else {
        return;
    };
    match books.outbox_expire(before).await {
        Ok(0) => {}
        Ok(count) => warn!(
            count,
            "events dropped that have waited too long for the hub"
        ),
        Err(failed) => warn!(error = %failed, "the outbox cannot be looked at"),
    }
}

fn telemetry(message: Outgoing) -> Telemetry {
    Telemetry {
        id: message.id,
        output: Some(message.output),
        content_type: Some("application/json".to_owned()),
        content_encoding: Some("utf-8".to_owned()),
        component: Some(model::EVENTS.to_owned()),
        created_at: happened_at(&message.body),
        properties: message.properties,
        body: message.body.into(),
    }
}

/// The hub may see a message days after it happened.
fn happened_at(body: &str) -> Option<SystemTime> {
    let body: serde_json::Value = serde_json::from_str(body).ok()?;
    let at: Timestamp = body.get("at")?.as_str()?.parse().ok()?;
    Some(at.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_burst_the_rate_holds() {
        let start = Instant::now();
        let mut pace = Pace::new(10, start);
        let mut sent = 0;
        for millis in 0..10_000 {
            let now = start + Duration::from_millis(millis);
            while pace.take(now).is_ok() {
                sent += 1;
            }
        }
        assert!(
            (149..=150).contains(&sent),
            "{sent} in 10 s, 50 of them at once"
        );
        let wait = pace
            .take(start + Duration::from_secs(10))
            .map_err(|w| w.as_millis());
        assert!(wait.is_ok() || wait.is_err_and(|w| w <= 100), "{wait:?}");
        // A long quiet time gives no more than the burst.
        let now = start + Duration::from_secs(86_400);
        assert_eq!((0..1000).filter(|_| pace.take(now).is_ok()).count(), 50);
        pace.give_back();
        assert!(pace.take(now).is_ok() && pace.take(now).is_err());
    }
}
