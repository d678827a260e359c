//! What a script works with: the world, a way to wait, a way to say.

use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::look;
use super::observe::Notes;
use super::world::{NAMESPACE, SERVICE, World};
use super::{Outcome, Seconds};
use crate::kube::{ApiError, Request};

/// How a scenario is written down: `Err` says what did not happen.
pub(super) type Script = for<'a> fn(&'a Stage) -> BoxFuture<'a, Result<Outcome, String>>;

/// Deadline of every wait for the product.
pub(super) const LONG: Duration = Duration::from_secs(60);
/// Right answers before and after a story.
const REQUESTS: u64 = 75;
/// Between two looks.
const LOOK: Duration = Duration::from_millis(25);

/// The world with the notes of its observer.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) world: World,
    pub(super) notes: Notes,
}

impl Stage {
    /// Writes on the timeline.
    pub(super) fn say(&self, event: &str, detail: impl Into<String>) {
        self.world.timeline().add(event, detail);
    }

    /// Waits until `holds`.
    pub(super) async fn until(
        &self,
        what: &str,
        deadline: Duration,
        mut holds: impl FnMut(&Self) -> bool,
    ) -> Result<(), String> {
        let end = Instant::now() + deadline;
        while !holds(self) {
            if Instant::now() >= end {
                let seconds = deadline.as_secs();
                return Err(format!("not within {seconds} s: {what}"));
            }
            sleep(LOOK).await;
        }
        Ok(())
    }

    /// Sees that `holds` all the time.
    pub(super) async fn throughout(
        &self,
        what: &str,
        time: Duration,
        mut holds: impl FnMut(&Self) -> bool,
    ) -> Result<(), String> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            if !holds(self) {
                return Err(format!("no longer true: {what}"));
            }
            sleep(LOOK).await;
        }
        Ok(())
    }

    /// Waits until the product says that it sees the cluster, and nothing wrong with the Service.
    pub(super) async fn product_ready(&self) -> Result<(), String> {
        self.until("the product reports a synced cluster", LONG, |stage| {
            stage.world.twin()["cluster"]["state"] == "synced" && stage.told_well()
        })
        .await?;
        self.say(
            "ready",
            "the product is connected and sees that all is well",
        );
        self.more_requests().await
    }

    /// Lets some requests through, so that the picture shows how it is before and after.
    async fn more_requests(&self) -> Result<(), String> {
        let before = self.world.traffic().total().right();
        self.until("requests are answered", LONG, |stage| {
            stage.world.traffic().total().right() >= before + REQUESTS
        })
        .await
    }

    /// Whether the fleet sees no finding on the Service in the twin.
    pub(super) fn told_well(&self) -> bool {
        let twin = self.world.twin();
        let state = twin["health"]["state"].as_str().unwrap_or_default();
        let worst = &twin["findings"]["worst"][format!("{NAMESPACE}/{SERVICE}")];
        matches!(state, "healthy" | "degraded") && worst.is_null()
    }

    /// Waits until the controller has looked at everything.
    pub(super) async fn controller_settled(&self) -> Result<(), String> {
        let settled = self.world.controller().settle(LONG).await;
        settled
            .then_some(())
            .ok_or_else(|| "the lab's controller does not come to rest".to_owned())
    }

    /// From here on the Service is stale; checks that it is.
    pub(super) fn stale(&self, detail: &str) -> Result<(), String> {
        if look::right(self.world.cluster()) {
            return Err("the story did not make anything stale".to_owned());
        }
        let before = self.world.endpoints();
        let mut seen = self.notes.lock();
        seen.before = before;
        seen.stale_at = Some(self.world.timeline().now_ms());
        drop(seen);
        self.say("stale", detail);
        Ok(())
    }

    /// Waits until the slices are right and the fleet was told that this was a heal.
    pub(super) async fn healed(&self) -> Result<Outcome, String> {
        self.until("the slices are right", LONG, |stage| {
            stage.notes.lock().healed_at.is_some()
        })
        .await?;
        self.until("telemetry says that it was healed", LONG, |stage| {
            stage
                .events("heal")
                .iter()
                .any(|event| event["heal"]["outcome"] == "healed" && event["service"] == SERVICE)
        })
        .await?;
        self.until("the twin says that all is well", LONG, |stage| {
            let succeeded = stage.world.twin()["heals"]["succeeded"].as_u64();
            stage.told_well() && succeeded.is_some_and(|count| count > 0)
        })
        .await?;
        self.more_requests().await?;
        Ok(Outcome::Healed)
    }

    /// Telemetry of one type so far.
    pub(super) fn events(&self, kind: &str) -> Vec<Value> {
        let seen = self.notes.lock();
        let events = seen.telemetry.iter();
        events
            .filter(|event| event["type"] == kind)
            .cloned()
            .collect()
    }

    /// Whether the fleet was told that a heal is held back.
    pub(super) fn told_held(&self) -> bool {
        let held = |event: &Value| {
            event["service"] == SERVICE
                && event["heal"]["outcome"].is_null()
                && event["heal"]["reason"].is_string()
        };
        self.events("heal").iter().any(held)
            || self.world.twin()["heals"]["held"].as_u64().unwrap_or(0) > 0
    }

    /// Writes of the product to the model server's Service and slices.
    pub(super) fn product_writes(&self) -> Vec<Request> {
        let mut writes = self.world.cluster().writes();
        writes.retain(|write| {
            let about = write
                .resource
                .is_some_and(|r| matches!(r.plural, "services" | "endpointslices"));
            about && write.namespace == NAMESPACE
        });
        writes
    }

    /// Slices of the model server that the product deleted.
    pub(super) fn product_deletes(&self) -> usize {
        let writes = self.product_writes();
        writes
            .iter()
            .filter(|write| write.verb == "delete" && write.status < 300)
            .count()
    }

    pub(super) fn seconds(&self) -> Seconds {
        self.notes.seconds()
    }
}

/// An object that the lab itself could not write.
pub(super) fn refused(error: ApiError) -> String {
    format!("the lab's own cluster refuses: {error}")
}
