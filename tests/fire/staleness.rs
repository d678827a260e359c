//! Staleness of all kinds that can be healed, injected one after the other: all of it is healed, and
//! how long that takes.
//!
//! Default settings but for the hour's budget of the node. `FIRE_EVENTS` says how many events,
//! `FIRE_EVERY` how many seconds apart: heals follow one another, and what waits for its turn would
//! say nothing of a heal.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use jiff::Timestamp;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

use super::{note, size};
use crate::support::ban::WriteBan;
use crate::support::controlplane::{ControlPlane, Options};
use crate::support::module::Setup;
use crate::support::objects;
use crate::support::product;
use crate::support::stale::{self, SERVICE, Stale};
use crate::support::wait::{Look, eventually};

/// How long a heal may take on a slow machine, with others before it.
const LONG: Duration = Duration::from_secs(180);
/// Until then the controller would not come back by itself. More, and it would often have to be driven
/// past the 15 failures at which it counts anew.
const BACK_OFF: Duration = Duration::from_secs(60);

/// What happens to a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// Redeployed while an admission policy refuses the controller's writes.
    BackOff,
    /// A slice is deleted that the controller does not have in mind.
    UntrackedDelete,
    /// A slice's owner is somebody who is gone; the garbage collector takes it away.
    OrphanOwner,
    /// A pod finishes without the controller's notice.
    TerminalPod,
}

const EVENTS: [Event; 4] = [
    Event::BackOff,
    Event::UntrackedDelete,
    Event::OrphanOwner,
    Event::TerminalPod,
];

/// Lets a pod's readiness flap until the controller, whose writes are refused, has put its next try
/// off for long.
async fn back_off(
    plane: &ControlPlane,
    state: &Stale,
    since: Timestamp,
    version: &str,
) -> Result<()> {
    eventually("the controller's back-off is long", LONG, async || {
        let left = state.back_off_left(plane, since)?;
        if left >= BACK_OFF {
            return Ok(Look::Done(()));
        }
        state.flap(version, 2).await?;
        Ok(Look::NotYet(format!("{left:?}")))
    })
    .await?;
    Ok(())
}

/// Makes it stale; returns since when nothing changes any more, and nothing but a nudge is wanting.
async fn inject(plane: &ControlPlane, event: Event, state: &mut Stale) -> Result<Instant> {
    match event {
        Event::BackOff => {
            let ban = WriteBan::impose(plane, &state.namespace).await?;
            let since = Timestamp::now();
            state.redeploy().await?;
            back_off(plane, state, since, "2.1").await?;
            ban.lift().await?;
            Ok(Instant::now())
        }
        Event::UntrackedDelete => {
            let begun = Instant::now();
            state.delete_slices().await?;
            Ok(begun)
        }
        Event::OrphanOwner => {
            // Allowed to write, the controller would mend it by itself: it looks at each change of a
            // slice that it does not have in mind.
            let ban = WriteBan::impose(plane, &state.namespace).await?;
            let since = Timestamp::now();
            let api: Api<EndpointSlice> = Api::namespaced(state.client.clone(), &state.namespace);
            for slice in state.slices().await? {
                let mut owners = slice.metadata.owner_references.unwrap_or_default();
                for owner in &mut owners {
                    "00000000-0000-4000-8000-000000000000".clone_into(&mut owner.uid);
                }
                let name = slice.metadata.name.unwrap_or_default();
                let patch = Patch::Merge(json!({"metadata": {"ownerReferences": owners}}));
                api.patch(&name, &PatchParams::default(), &patch).await?;
            }
            back_off(plane, state, since, "2.0").await?;
            ban.lift().await?;
            Ok(Instant::now())
        }
        Event::TerminalPod => {
            state.finish_pod(0).await?;
            Ok(Instant::now())
        }
    }
}

/// Waits until the Service's own slices, and no others, say what they should.
async fn await_own(state: &Stale) -> Result<()> {
    let service = objects::service(&state.client, &state.namespace, SERVICE).await?;
    let uid = service.metadata.uid.unwrap_or_default();
    eventually("its own slices are right", LONG, async || {
        let slices = state.slices().await?;
        let owned = |slice: &EndpointSlice| {
            let mut owners = slice.metadata.owner_references.iter().flatten();
            owners.any(|owner| owner.uid == uid)
        };
        let right = !slices.is_empty()
            && slices.iter().all(owned)
            && objects::routed(&slices) == state.expected;
        let seen = format!("{}: {} slices", state.namespace, slices.len());
        Ok(if right {
            Look::Done(())
        } else {
            Look::NotYet(seen)
        })
    })
    .await?;
    Ok(())
}

/// Median and 99th percentile of what was measured, in seconds.
fn percentiles(times: &mut [Duration]) -> String {
    times.sort();
    let at = |share: usize| times[(times.len() * share).div_ceil(100).saturating_sub(1)];
    format!("p50 {:.1?}, p99 {:.1?}", at(50), at(99))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_that_can_be_healed_is_healed() -> Result<()> {
    tokio::task::LocalSet::new().run_until(play()).await
}

async fn play() -> Result<()> {
    let events = size("FIRE_EVENTS", 4)?;
    let every = Duration::from_millis(1000 * size("FIRE_EVERY", 0)? as u64);
    let plane = ControlPlane::start(Options::default()).await?;
    let mut states = Vec::new();
    for n in 0..events {
        let block = u8::try_from(1 + n % 250)?;
        let namespace = plane.namespace("event").await?;
        states.push(stale::healthy_on(plane.client().await?, namespace, block).await?);
    }
    // From now on the controller has none of their slices in mind, as after a reboot.
    plane.restart_manager().await?;
    let mut module = Setup::new(&product::install(&plane).await?)
        .set("SCOPE__LOCALITY", "cluster")
        .set("BUDGETS__PER_NODE_PER_HOUR", "100000")
        .start()?;
    module.await_line(&["serving"], LONG).await?;

    let mut under_way = Vec::new();
    for (mut state, event) in states.into_iter().zip(EVENTS.into_iter().cycle()) {
        let next = Instant::now() + every;
        let begun = inject(&plane, event, &mut state).await?;
        under_way.push(tokio::task::spawn_local(async move {
            await_own(&state)
                .await
                .with_context(|| format!("{event:?}"))?;
            anyhow::Ok((event, begun.elapsed()))
        }));
        tokio::time::sleep(next.saturating_duration_since(Instant::now())).await;
    }
    let mut times: BTreeMap<Event, Vec<Duration>> = BTreeMap::new();
    for ended in try_join_all(under_way).await? {
        let (event, took) = ended.with_context(|| module.log())?;
        times.entry(event).or_default().push(took);
    }
    let healed = |log: &str| {
        let of = |line: &&str| line.contains("kind=heal") && line.contains("outcome=healed");
        log.lines().filter(of).count()
    };
    // Of many, now and then the controller puts one right before it is found; then nothing is healed.
    eventually("each is verified", LONG, async || {
        let seen = healed(&module.log());
        Ok(if seen + events.div_ceil(50) >= events {
            Look::Done(())
        } else {
            Look::NotYet(seen.to_string())
        })
    })
    .await
    .with_context(|| module.log())?;
    for (event, times) in &mut times {
        note(&format!(
            "{} of {event:?} healed: {}",
            times.len(),
            percentiles(times)
        ));
    }
    let mut all: Vec<Duration> = times.into_values().flatten().collect();
    note(&format!(
        "all {} of {events} events healed: {}",
        all.len(),
        percentiles(&mut all)
    ));
    ensure!(all.len() == events);
    Ok(())
}
