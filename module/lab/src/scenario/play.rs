//! Plays one scenario: product, observer and script side by side, and the report at the end.

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::connections::Connections;
use super::observe::observe;
use super::stage::Stage;
use super::world::{World, WorldError};
use super::{Outcome, Report, find, list};

/// How long the product may take to end after it was asked to.
const DRAIN: Duration = Duration::from_secs(12);

/// Why a scenario could not be played at all.
#[derive(Debug, thiserror::Error)]
pub enum PlayError {
    /// No such scenario.
    #[error("there is no scenario {name:?}; there are: {known}")]
    Unknown {
        /// The name asked for.
        name: String,
        /// The names there are.
        known: String,
    },
    /// The world has no place for the product.
    #[error(transparent)]
    World(#[from] WorldError),
}

/// Plays `name` on `world`. `start` runs the product until it ends by itself or the token says so;
/// a product that ends early is a failed scenario, not an error.
///
/// # Errors
/// There is no such scenario, or the world cannot connect a product.
pub async fn play<F, Fut, E>(world: &World, name: &str, start: F) -> Result<Report, PlayError>
where
    F: FnOnce(Connections, CancellationToken) -> Fut,
    Fut: Future<Output = Result<(), E>>,
    E: fmt::Display,
{
    let scenario = find(name).ok_or_else(|| PlayError::Unknown {
        name: name.to_owned(),
        known: list().iter().map(|s| s.name).collect::<Vec<_>>().join(", "),
    })?;
    let timeline = world.timeline();
    let notes = world.notes().clone();
    let stage = Stage {
        world: world.clone(),
        notes: notes.clone(),
    };
    let stop = CancellationToken::new();
    timeline.add("scenario", scenario.summary);
    let mut product = pin!(start(world.connections()?, stop.clone()));
    let mut observer = pin!(observe(world.clone(), notes));
    let mut script = pin!((scenario.script)(&stage));
    let mut ended = false;
    let result = tokio::select! {
        result = &mut script => result,
        early = &mut product => {
            ended = true;
            Err(match early {
                Ok(()) => "the product ended by itself".to_owned(),
                Err(error) => format!("the product ended: {error}"),
            })
        }
        () = &mut observer => Err("the observer ended".to_owned()),
    };
    let outcome = match result {
        Ok(outcome) => {
            timeline.add(outcome.as_str(), closing(outcome, &stage));
            outcome
        }
        Err(why) => {
            timeline.add("failed", why);
            Outcome::Failed
        }
    };
    world.conclude(outcome);
    // Taken before the product drains, as an operator would see it.
    let twin = world.twin();
    stop.cancel();
    if !ended {
        let drained = async {
            tokio::select! {
                end = &mut product => end.map_err(|error| error.to_string()),
                () = &mut observer => Ok(()),
            }
        };
        match timeout(DRAIN, drained).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => timeline.add("product", format!("ended badly: {error}")),
            Err(_) => timeline.add("product", "did not end in time after it was asked to"),
        }
    }
    Ok(Report {
        scenario: scenario.name,
        outcome,
        expected: scenario.expected,
        timeline: timeline.all(),
        seconds: stage.seconds(),
        requests: world.traffic().total(),
        twin,
        telemetry: world.edge().telemetry().len(),
    })
}

fn closing(outcome: Outcome, stage: &Stage) -> String {
    let writes = stage.product_writes().len();
    match (outcome, stage.seconds().healed) {
        (Outcome::Healed, Some(seconds)) => format!("right again after {seconds:.1} s"),
        (Outcome::Healed, None) => "nothing was stale, nothing was written".to_owned(),
        (Outcome::Held | Outcome::Failed, _) => {
            format!("held back, with {writes} writes and no delete")
        }
    }
}
