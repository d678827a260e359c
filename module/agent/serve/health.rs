//! Signs of life of tasks and states of parts, as `/livez` and `/readyz` tell them. A part that is
//! missing but says so is ready: the module works without hub, journal or cluster and reports it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::{Value, json};

/// The state of one part, in the words of the twin where it has some.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Part {
    /// Such as `synced`, `unreachable`, `connected`, `waiting`.
    pub state: String,
    /// Why, where there is a why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Part {
    /// A state that explains itself.
    pub fn new(state: impl Into<String>) -> Self {
        Self {
            state: state.into(),
            reason: None,
        }
    }

    /// A state with its reason.
    pub fn because(state: impl Into<String>, reason: impl Into<String>) -> Self {
        Self {
            state: state.into(),
            reason: Some(reason.into()),
        }
    }
}

/// Shared by all tasks.
#[derive(Clone, Debug)]
pub struct Health {
    inner: Arc<Mutex<Inner>>,
    stale_after: Duration,
}

#[derive(Debug, Default)]
struct Inner {
    beats: BTreeMap<&'static str, Instant>,
    parts: BTreeMap<&'static str, Option<Part>>,
    draining: bool,
}

/// A task's sign of life. Dropping it takes the task off the list: it has ended in order.
#[derive(Debug)]
pub struct Beat {
    name: &'static str,
    inner: Arc<Mutex<Inner>>,
}

impl Beat {
    /// The task moves. Cheap; to be called at least every third of `serve.stale_after`.
    pub fn beat(&self) {
        lock(&self.inner).beats.insert(self.name, Instant::now());
    }
}

impl Drop for Beat {
    fn drop(&mut self) {
        lock(&self.inner).beats.remove(self.name);
    }
}

impl Health {
    /// Nothing is known yet; `parts` have to report before the module is ready.
    pub fn new(stale_after: Duration, parts: impl IntoIterator<Item = &'static str>) -> Self {
        let parts = parts.into_iter().map(|part| (part, None)).collect();
        Self {
            inner: Arc::new(Mutex::new(Inner {
                parts,
                ..Inner::default()
            })),
            stale_after,
        }
    }

    /// Puts a task on the list.
    pub fn task(&self, name: &'static str) -> Beat {
        let beat = Beat {
            name,
            inner: Arc::clone(&self.inner),
        };
        beat.beat();
        beat
    }

    /// How often a task should show that it moves.
    pub fn beat_interval(&self) -> Duration {
        self.stale_after / 3
    }

    /// What a part reports of itself.
    pub fn report(&self, part: &'static str, state: Part) {
        lock(&self.inner).parts.insert(part, Some(state));
    }

    /// The module goes down: not ready any more, still alive.
    pub fn drain(&self) {
        lock(&self.inner).draining = true;
    }

    /// Whether every task moves, and the body that says so.
    pub fn live(&self, now: Instant) -> (bool, Value) {
        let inner = lock(&self.inner);
        let mut stuck = Vec::new();
        let mut tasks = serde_json::Map::new();
        for (name, at) in &inner.beats {
            let age = now.saturating_duration_since(*at);
            tasks.insert((*name).to_owned(), json!({"ageSeconds": age.as_secs()}));
            if age > self.stale_after {
                stuck.push(format!("task {name} has not moved for {} s", age.as_secs()));
            }
        }
        (
            stuck.is_empty(),
            json!({"live": stuck.is_empty(), "reasons": stuck, "tasks": tasks}),
        )
    }

    /// Whether every part is up or in a reported state, and the body that says so.
    pub fn ready(&self) -> (bool, Value) {
        let inner = lock(&self.inner);
        let mut reasons: Vec<String> = inner
            .parts
            .iter()
            .filter(|(_, state)| state.is_none())
            .map(|(name, _)| format!("{name} has not reported yet"))
            .collect();
        if inner.draining {
            reasons.push("the module goes down".to_owned());
        }
        let ready = reasons.is_empty();
        (
            ready,
            json!({"ready": ready, "reasons": reasons, "parts": inner.parts}),
        )
    }
}

/// What the lock guards is whole after each statement, so a panic elsewhere does not spoil it.
fn lock(inner: &Mutex<Inner>) -> MutexGuard<'_, Inner> {
    inner.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_that_stands_still_is_named() {
        let health = Health::new(Duration::from_secs(30), []);
        let engine = health.task("engine");
        let _journal = health.task("journal");
        let now = Instant::now();
        assert!(health.live(now).0);
        let later = now + Duration::from_secs(31);
        let (live, body) = health.live(later);
        assert!(!live);
        assert_eq!(body["reasons"].as_array().unwrap().len(), 2);
        drop(engine);
        let (live, body) = health.live(later);
        assert!(!live, "the other one still stands");
        assert!(body["reasons"][0].as_str().unwrap().contains("journal"));
        assert_eq!(health.beat_interval(), Duration::from_secs(10));
    }

    #[test]
    fn a_missing_cluster_is_ready_once_it_is_reported() {
        let health = Health::new(Duration::from_secs(30), ["cluster", "hub"]);
        let (ready, body) = health.ready();
        assert!(!ready);
        assert_eq!(
            body["reasons"],
            json!(["cluster has not reported yet", "hub has not reported yet"])
        );
        health.report(
            "cluster",
            Part::because("unreachable", "connection refused"),
        );
        health.report("hub", Part::new("connected"));
        let (ready, body) = health.ready();
        assert!(ready);
        assert_eq!(
            body["parts"]["cluster"],
            json!({"state": "unreachable", "reason": "connection refused"})
        );
        assert_eq!(body["parts"]["hub"], json!({"state": "connected"}));
        health.drain();
        assert!(!health.ready().0);
    }
}
