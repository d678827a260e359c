//! Builds the parts, owns the channels, pumps the engine, supervises, drains. The only place that
//! knows all parts; it decides nothing about slices.

mod alarm;
mod ask;
mod books;
mod ends;
mod holds;
pub mod hub;
mod outbox;
mod pump;
mod rights;
mod served;
mod signals;
pub mod solo;
mod tell;
mod timeline;
mod twin;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use jiff::Timestamp;
use rand::RngExt;
use slice_core::engine::Engine;
use slice_core::event::ClusterInput;
use slice_hub::Timings;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};
use uuid::Uuid;

use crate::act::recorder::Recorder;
use crate::act::{Actor, Options as ActorOptions};
use crate::client::{self, Access};
use crate::expiry::{Node, Places};
use crate::observe::logs::LogHandle;
use crate::observe::metrics::Metrics;
use crate::sense;
use crate::sense::rules::Rules;
use crate::serve::Health;
use crate::settings::{Enabled, Loaded, Settings};
use crate::store::{Limits, Store};

pub use books::Books;
pub use pump::{Incoming, Parts, Pump, Window};
pub use tell::Teller;
pub use twin::{Desired, Reported};

/// How many inputs may wait for the engine. Where it is full, the senses wait.
const QUEUE: usize = 1024;
/// How many inputs one step takes up, so that they share one transaction.
const AT_ONCE: usize = 256;
/// The whole time from SIGTERM to the end; docker kills after 10 s.
const DRAIN: Duration = Duration::from_secs(8);
/// Of it, for a heal that has deleted a slice which is not there again.
const DRAIN_HEAL: Duration = Duration::from_secs(4);
/// Of it, for the last events to be acknowledged.
const DRAIN_OUTBOX: Duration = Duration::from_millis(1200);
/// Of it, for the hub.
const DRAIN_HUB: Duration = Duration::from_millis(2000);
/// After so long the workload socket of this container is dead for ever: the container must be made
/// again.
const WORKLOAD_REFUSED: Duration = Duration::from_secs(600);

/// What a run needs beside the settings.
pub struct Boot {
    /// The settings below the twin.
    pub loaded: Loaded,
    /// The variables that IoT Edge sets.
    pub vars: hub::Vars,
    /// Shorter waits of the module client, for the lab.
    pub hub_timings: Option<Timings>,
    /// Changes the log level, where logging was set up.
    pub log: Option<LogHandle>,
    /// Told where HTTP listens, for those who gave port 0.
    pub on_http: Option<tokio::sync::oneshot::Sender<std::net::SocketAddr>>,
}

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It was asked to.
    Drained,
    /// The workload socket has refused for so long that only a new container helps.
    WorkloadRefused,
}

/// Runs the module until `stop`.
///
/// # Errors
/// The hub's variables or the state directory cannot be used, or a task that must live has ended.
pub async fn run(boot: Boot, stop: CancellationToken) -> anyhow::Result<End> {
    let settings = boot.loaded.settings.clone();
    let plan = hub::plan(&settings, &boot.vars, boot.hub_timings.clone())?;
    let device = (boot.vars)("IOTEDGE_DEVICEID");
    let module = (boot.vars)("IOTEDGE_MODULEID").unwrap_or_else(|| "slice-healer".to_owned());
    let rules = Rules::of_settings(&settings.journal, &module);
    let metrics = Arc::new(Metrics::new(env!("CARGO_PKG_VERSION"), rules.metric_ids()));
    let books = open_store(&settings, &metrics)?;
    let boot_id = Uuid::new_v4().simple().to_string();
    let boot_id = boot_id.get(..12).unwrap_or(&boot_id).to_owned();
    let history = books
        .history()
        .await
        .context("the state file cannot be read")?;
    let engine = Engine::new(settings.to_policy(), &history, boot_id.clone());

    let (tx, mut rx) = mpsc::channel::<Incoming>(QUEUE);
    let parts_stop = stop.child_token();
    let (supply, supply_task) = client::keep(access(&settings), parts_stop.clone()).await;
    let identity = device.clone().unwrap_or_else(|| module.clone());
    let actor = Actor::new(supply.clone(), ActorOptions::new(identity));
    let recorder = Recorder::new(supply.clone(), actor.holder());

    let places = Places {
        access: access(&settings),
        gateway: plan.gateway(),
        workload: plan.workload(&boot.vars),
        node: Node::from(&settings),
    };
    let ends_task = ends::watch(places, supply.clone(), tx.clone(), parts_stop.clone());
    let hub = match plan {
        hub::Plan::Connect(config) => Some(hub::start(*config, tx.clone(), &parts_stop)),
        hub::Plan::None(why) => {
            info!(why, "no hub: healing without reports to the fleet");
            None
        }
    };
    let report = &settings.report;
    let heartbeat = rand::rng()
        .random_range(report.heartbeat_min.0..=report.heartbeat_max.0.max(report.heartbeat_min.0));
    let health = Health::new(settings.serve.stale_after.0, ["cluster", "journal", "hub"]);
    let (mut pump, _window) = Pump::new(Parts {
        engine,
        desired: Desired::new(boot.loaded),
        books: books.clone(),
        actor,
        recorder: Some(recorder),
        metrics: Arc::clone(&metrics),
        log: boot.log,
        teller: Teller::new(Arc::clone(&metrics), boot_id),
        reported: Reported::new(Timestamp::now(), heartbeat),
        hub: hub.as_ref().map(|h| h.handle.clone()),
        tx: tx.clone(),
        health: health.clone(),
    });
    pump.take_up_holds(
        books
            .holds()
            .await
            .context("the state file cannot be read")?,
    );
    pump.take_up_desired(
        books
            .desired()
            .await
            .context("the state file cannot be read")?,
    )
    .await;

    let rights_task = rights::watch(supply.clone(), health.clone(), parts_stop.clone());
    let (mut cluster, counters) = start_cluster(supply, &tx, &parts_stop, &settings, &boot.vars);
    pump.watch_over(counters, start_units(&tx, &parts_stop, &settings));
    let ear = signals::Ear {
        module,
        cursor: books
            .cursor()
            .await
            .context("the state file cannot be read")?,
        tx: tx.clone(),
        metrics: Arc::clone(&metrics),
        stop: parts_stop.clone(),
    };
    let mut journal = ear.listen(pump.journal_settings());
    let beat = health.task("engine");
    served::start(&settings, &metrics, &health, &tx, &parts_stop, boot.on_http).await;
    let sender = hub.as_ref().map(|h| {
        let wake = Arc::clone(&pump.outbox_filled);
        let sending = outbox::Sending::of(&settings);
        tokio::spawn(outbox::send(h.handle.clone(), books.clone(), wake, sending))
    });

    let mut end = End::Drained;
    let failed = loop {
        let mut batch = Vec::new();
        let nap = pump.sleep().min(health.beat_interval());
        tokio::select! {
            biased;
            () = stop.cancelled() => break None,
            Some(ended) = cluster.join_next() => break Some(format!("a cluster watch ended: {ended:?}")),
            ended = &mut journal => break Some(format!("the journal follower ended: {ended:?}")),
            _ = rx.recv_many(&mut batch, AT_ONCE) => {}
            () = sleep(nap) => {}
        }
        pump.take(batch).await;
        beat.beat();
        let refused = hub.as_ref().filter(|h| h.workload).and_then(|h| {
            h.handle
                .status()
                .workload_refused_for(Instant::now().into_std())
        });
        if refused.is_some_and(|d| d >= WORKLOAD_REFUSED) && !pump.is_healing() {
            error!(
                "the workload socket has refused for 10 minutes: this container must be made again"
            );
            end = End::WorkloadRefused;
            break None;
        }
    };
    if let Some(why) = &failed {
        error!(why, "a part that must live has ended; going down in order");
    }
    health.drain();
    drain(&mut pump, &mut rx, hub.as_ref(), &parts_stop).await;
    for task in sender
        .into_iter()
        .chain([supply_task, ends_task, rights_task])
    {
        task.abort();
    }
    match failed {
        Some(why) => Err(anyhow::anyhow!(why)),
        None => Ok(end),
    }
}

fn open_store(settings: &Settings, metrics: &Metrics) -> anyhow::Result<Books> {
    let limits = Limits {
        bytes: settings.store.outbox_bytes,
        messages: settings.store.outbox_messages,
    };
    let (store, found) = Store::open(&settings.store.directory, limits)?;
    if let Some((aside, why)) = found.set_aside {
        metrics.store_set_aside();
        warn!(aside = %aside.display(), why, "the state file was damaged and is set aside; starting with an empty one");
    }
    Ok(Books::kept(store))
}

/// How the cluster is reached, as the settings say.
pub fn access(settings: &Settings) -> Access {
    Access::from(&settings.cluster)
}

fn start_cluster(
    supply: client::Supply,
    tx: &mpsc::Sender<Incoming>,
    stop: &CancellationToken,
    settings: &Settings,
    vars: &hub::Vars,
) -> (
    tokio::task::JoinSet<()>,
    Arc<crate::sense::cluster::Counters>,
) {
    let (cluster_tx, mut cluster_rx) = mpsc::channel::<ClusterInput>(QUEUE);
    let options = sense::cluster::Options {
        local: sense::cluster::LocalNode {
            name: settings.cluster.node_name.get().map(str::to_owned),
            machine_id: PathBuf::from(&settings.journal.machine_id_file),
            gateway: vars("IOTEDGE_GATEWAYHOSTNAME"),
        },
        ..sense::cluster::Options::default()
    };
    let (mut tasks, counters) = sense::cluster::spawn(supply, cluster_tx, stop, options);
    let tx = tx.clone();
    tasks.spawn(async move {
        while let Some(change) = cluster_rx.recv().await {
            if tx.send(Incoming::Cluster(change)).await.is_err() {
                return;
            }
        }
    });
    (tasks, counters)
}

fn start_units(
    tx: &mpsc::Sender<Incoming>,
    stop: &CancellationToken,
    settings: &Settings,
) -> Option<watch::Receiver<sense::units::BusState>> {
    if settings.dbus.enabled == Enabled::Never {
        return None;
    }
    let (unit_tx, mut unit_rx) = mpsc::channel(64);
    let mut options = sense::units::Options {
        address: settings.dbus.address.get().map(str::to_owned),
        ..sense::units::Options::default()
    };
    let names = settings.dbus.units.as_slice();
    if !names.is_empty() {
        options.units = names.iter().map(|n| unit_name(n)).collect();
    }
    // Units are evidence, no more: their task may end without taking the module along.
    let (state, _task) = sense::units::spawn(unit_tx, stop.clone(), options);
    let tx = tx.clone();
    tokio::spawn(async move {
        while let Some(change) = unit_rx.recv().await {
            if tx.send(Incoming::Unit(change)).await.is_err() {
                return;
            }
        }
    });
    Some(state)
}

fn unit_name(name: &str) -> String {
    if name.contains('.') && name.rsplit('.').next() == Some("service") {
        name.to_owned()
    } else {
        format!("{name}.service")
    }
}

/// Ends in order, within [`DRAIN`]: a deleted slice is brought back first, then everything is on
/// disk, then the hub hears of it.
async fn drain(
    pump: &mut Pump,
    rx: &mut mpsc::Receiver<Incoming>,
    hub: Option<&hub::Hub>,
    parts: &CancellationToken,
) {
    let begun = Instant::now();
    while pump.owes_a_slice() && begun.elapsed() < DRAIN_HEAL {
        let mut batch = Vec::new();
        tokio::select! {
            _ = rx.recv_many(&mut batch, AT_ONCE) => {}
            () = sleep(pump.sleep().min(Duration::from_millis(100))) => {}
        }
        pump.take(batch).await;
    }
    if pump.owes_a_slice() {
        warn!(
            "going down while a deleted slice is not back; the next start refreshes for it at once"
        );
    }
    pump.say_goodbye().await;
    parts.cancel();
    if let Some(hub) = hub {
        // The outbox task hands the last events to the client meanwhile; what is not acknowledged
        // in time stays in the outbox for the next start.
        let begun = Instant::now();
        while hub.handle.status().state.is_connected()
            && pump.books.counters().0 > 0
            && begun.elapsed() < DRAIN_OUTBOX
        {
            sleep(Duration::from_millis(20)).await;
        }
        let left = DRAIN.saturating_sub(begun.elapsed()).min(DRAIN_HUB);
        match timeout(left, hub.handle.drain(left)).await {
            Ok(report) => info!(unacknowledged = report.unacknowledged, "left the hub"),
            Err(_) => warn!("the hub did not take the goodbye in time"),
        }
    }
    info!(seconds = begun.elapsed().as_secs_f64(), "drained");
}
