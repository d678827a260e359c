//! Watches cluster, twin and telemetry while a scenario plays, and writes the timeline.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::time::{MissedTickBehavior, interval};

use super::look;
use super::world::{NAMESPACE, SERVICE, World};
use super::{Endpoint, Seconds};
use crate::kube::controller::{MANAGED_BY, MANAGER, SERVICE_NAME};
use crate::kube::{Batch, Change, ChangeKind, object, resource};

/// How often the cloud is looked at.
const LOOK: Duration = Duration::from_millis(50);
/// The one annotation that the product writes.
const REFRESH: &str = "slice-healer.io/refresh";

/// What was seen so far; times are milliseconds of the timeline.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) stale_at: Option<u64>,
    signal_at: Option<u64>,
    finding_at: Option<u64>,
    pub(super) healed_at: Option<u64>,
    /// Telemetry bodies so far.
    pub(super) telemetry: Vec<Value>,
    /// The slices when they were stale, for the view.
    pub(super) before: Vec<Endpoint>,
    health: String,
}

/// Shared by the observer, which writes, and the script, which reads.
#[derive(Debug, Clone, Default)]
pub(super) struct Notes(Arc<Mutex<Seen>>);

impl Notes {
    pub(super) fn lock(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn seconds(&self) -> Seconds {
        let seen = self.lock();
        let since = |at: Option<u64>| {
            let passed = at?.saturating_sub(seen.stale_at?);
            Some(f64::from(u32::try_from(passed).ok()?) / 1000.0)
        };
        Seconds {
            signal: since(seen.signal_at),
            finding: since(seen.finding_at),
            healed: since(seen.healed_at),
        }
    }
}

/// Runs until it is dropped.
pub(super) async fn observe(world: World, notes: Notes) {
    let mut follower = world.cluster().follow();
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            batch = follower.next() => {
                if let Batch::Changes(changes) = batch {
                    for change in changes {
                        note_change(&world, &change);
                    }
                }
                note_state(&world, &notes);
            }
            _ = looks.tick() => {
                note_telemetry(&world, &notes);
                note_twin(&world, &notes);
            }
        }
    }
}

fn note_change(world: &World, change: &Change) {
    let timeline = world.timeline();
    let (now, before) = (&*change.object, change.previous.as_deref());
    let name = object::name(now);
    if change.resource == &resource::SERVICES
        && let Some(value) = object::annotation(now, REFRESH)
        && before.and_then(|b| object::annotation(b, REFRESH)) != Some(value)
    {
        let namespace = object::namespace(now);
        timeline.add(
            "refresh",
            format!("Service {namespace}/{name} is refreshed"),
        );
    }
    if change.resource != &resource::ENDPOINT_SLICES
        || object::namespace(now) != NAMESPACE
        || object::label(now, SERVICE_NAME) != Some(SERVICE)
    {
        return;
    }
    let addresses = |slice: &Value| -> Vec<String> {
        let endpoints = object::list(&slice["endpoints"]).iter();
        endpoints
            .filter_map(|e| e["addresses"][0].as_str().map(str::to_owned))
            .collect()
    };
    let list = |slice: &Value| {
        let addresses = addresses(slice);
        if addresses.is_empty() {
            "nobody".to_owned()
        } else {
            addresses.join(", ")
        }
    };
    let whose = match object::label(now, MANAGED_BY) {
        Some(MANAGER) => "",
        _ => "custom ",
    };
    match change.kind {
        ChangeKind::Deleted => timeline.add("slice-deleted", format!("{whose}{name} is deleted")),
        ChangeKind::Added => timeline.add(
            "slice-created",
            format!("{whose}{name} routes to {}", list(now)),
        ),
        ChangeKind::Modified => {
            if before.map(addresses) != Some(addresses(now)) {
                let what = format!("{whose}{name} routes to {}", list(now));
                timeline.add("slice-updated", what);
            }
        }
    }
}

fn note_state(world: &World, notes: &Notes) {
    let mut seen = notes.lock();
    if seen.stale_at.is_some() && seen.healed_at.is_none() && look::right(world.cluster()) {
        seen.healed_at = Some(world.timeline().now_ms());
        drop(seen);
        world
            .timeline()
            .add("right", "the slices say what the pods are");
    }
}

fn note_telemetry(world: &World, notes: &Notes) {
    let records = world.edge().telemetry();
    let known = notes.lock().telemetry.len();
    for record in records.into_iter().skip(known) {
        let body = record.json().unwrap_or(Value::Null);
        let text = |key: &str| body[key].as_str().unwrap_or_default().to_owned();
        let kind = text("type");
        let now = world.timeline().now_ms();
        {
            let mut seen = notes.lock();
            // What was said before anything was stale is about something else.
            if seen.stale_at.is_some() {
                if kind == "signal" {
                    seen.signal_at.get_or_insert(now);
                }
                if kind == "finding" && body["service"] == SERVICE {
                    seen.finding_at.get_or_insert(now);
                }
            }
            seen.telemetry.push(body.clone());
        }
        let mut detail = kind;
        if !text("kind").is_empty() {
            detail = format!("{detail} {}", text("kind"));
        }
        if let Some(heal) = body["heal"].as_object() {
            let part = |key: &str| heal.get(key).and_then(Value::as_str).unwrap_or_default();
            let result = if part("outcome").is_empty() {
                format!("held: {}", part("reason"))
            } else {
                part("outcome").to_owned()
            };
            detail = format!("{detail} {} {result}", part("action"));
        }
        let message = text("message");
        world
            .timeline()
            .add("telemetry", format!("{detail}: {message}"));
    }
}

fn note_twin(world: &World, notes: &Notes) {
    let twin = world.twin();
    let health = &twin["health"];
    let state = health["state"].as_str().unwrap_or_default();
    let mut seen = notes.lock();
    if state.is_empty() || seen.health == state {
        return;
    }
    state.clone_into(&mut seen.health);
    drop(seen);
    let reason = health["reason"].as_str().unwrap_or_default();
    world
        .timeline()
        .add("twin", format!("health {state}: {reason}"));
}
