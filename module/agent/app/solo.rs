//! The engine for one command, where no module runs beside it: the same gate, ladder, Lease and
//! verification; no stored budgets, no hub, no journal.

use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use jiff::Timestamp;
use slice_core::engine::{ClusterState, Engine};
use slice_core::event::{Event, EventType, Reply, Request};
use slice_core::heal::policy::Locality;
use slice_core::heal::record::History;
use tokio::sync::{broadcast, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::books::Books;
use super::pump::{Incoming, Parts, Pump, Window};
use super::tell::Teller;
use super::twin::{Desired, Reported};
use crate::act::{Actor, Options as ActorOptions};
use crate::client;
use crate::observe::metrics::Metrics;
use crate::serve::Health;
use crate::settings::Loaded;

/// How long the first lists may take.
const FIRST_LISTS: Duration = Duration::from_secs(30);

/// An engine with a cluster and nothing else.
pub struct Solo {
    pump: Pump,
    window: Window,
    rx: mpsc::Receiver<Incoming>,
    tx: mpsc::Sender<Incoming>,
    cluster: JoinSet<()>,
    stop: CancellationToken,
}

impl Solo {
    /// Connects and waits until everything has been listed once.
    ///
    /// # Errors
    /// The cluster cannot be seen in time.
    pub async fn start(mut loaded: Loaded) -> anyhow::Result<Self> {
        // A heal by hand looks at the whole scope, whatever the locality.
        loaded.settings.scope.locality = Locality::Cluster;
        let settings = loaded.settings.clone();
        let stop = CancellationToken::new();
        let (tx, rx) = mpsc::channel(super::QUEUE);
        let (supply, _task) = client::keep(super::access(&settings), stop.clone()).await;
        if let Err(why) = supply.current() {
            bail!("{why}");
        }
        let actor = Actor::new(supply.clone(), ActorOptions::new("cli"));
        let vars: super::hub::Vars = Arc::new(|_| None);
        let (cluster, _counters) = super::start_cluster(supply, &tx, &stop, &settings, &vars);
        let id = Uuid::new_v4().simple().to_string();
        let metrics = Arc::new(Metrics::new(env!("CARGO_PKG_VERSION"), []));
        let (pump, window) = Pump::new(Parts {
            engine: Engine::new(
                settings.to_policy(),
                &History::default(),
                format!("cli-{id}"),
            ),
            desired: Desired::new(loaded),
            books: Books::none(),
            actor,
            recorder: None,
            metrics: Arc::clone(&metrics),
            log: None,
            teller: Teller::new(metrics, id),
            reported: Reported::new(Timestamp::now(), FIRST_LISTS),
            hub: None,
            tx: tx.clone(),
            health: Health::new(FIRST_LISTS, []),
        });
        let mut solo = Self {
            pump,
            window,
            rx,
            tx,
            cluster,
            stop,
        };
        solo.wait_for_lists().await?;
        Ok(solo)
    }

    /// Asks the engine.
    ///
    /// # Errors
    /// The cluster was lost.
    pub async fn ask(&mut self, request: Request) -> anyhow::Result<Reply> {
        let (reply, mut answer) = oneshot::channel();
        if self.tx.send(Incoming::Ask(request, reply)).await.is_err() {
            bail!("the engine has stopped");
        }
        loop {
            self.turn().await?;
            match answer.try_recv() {
                Ok(reply) => return Ok(reply),
                Err(oneshot::error::TryRecvError::Empty) => {}
                Err(oneshot::error::TryRecvError::Closed) => bail!("the engine gave no answer"),
            }
        }
    }

    /// What is told from now on; subscribe before asking.
    pub fn events(&self) -> broadcast::Receiver<Event> {
        self.window.events.subscribe()
    }

    /// Waits for the end of the heal of this incident.
    ///
    /// # Errors
    /// The cluster was lost, or the heal takes longer than any heal may.
    pub async fn outcome(
        &mut self,
        incident: &str,
        events: &mut broadcast::Receiver<Event>,
        limit: Duration,
    ) -> anyhow::Result<Event> {
        let begun = Instant::now();
        loop {
            while let Ok(event) = events.try_recv() {
                let ours = event.incident.as_deref() == Some(incident);
                if ours && event.kind == EventType::Heal && !self.pump.is_healing() {
                    // The Lease is given back before the heal ends; nothing is owed.
                    return Ok(event);
                }
            }
            if begun.elapsed() > limit {
                bail!("the heal has not ended within {limit:?}");
            }
            self.turn().await?;
        }
    }

    async fn wait_for_lists(&mut self) -> anyhow::Result<()> {
        let begun = Instant::now();
        loop {
            self.turn().await?;
            let status = self.window.status.borrow().clone();
            let cluster = status.map(|s| s.cluster);
            match cluster {
                Some(c) if c.state == ClusterState::Synced => return Ok(()),
                Some(c) if c.state == ClusterState::Forbidden => {
                    bail!("{}", c.detail.unwrap_or_default())
                }
                c if begun.elapsed() > FIRST_LISTS => bail!(
                    "the cluster could not be listed within {FIRST_LISTS:?}: {}",
                    c.and_then(|c| c.detail).unwrap_or_default()
                ),
                _ => {}
            }
        }
    }

    async fn turn(&mut self) -> anyhow::Result<()> {
        let mut batch = Vec::new();
        let nap = self.pump.sleep().min(Duration::from_millis(200));
        tokio::select! {
            _ = self.rx.recv_many(&mut batch, super::AT_ONCE) => {}
            Some(ended) = self.cluster.join_next() => bail!("a cluster watch ended: {ended:?}"),
            () = sleep(nap) => {}
        }
        self.pump.take(batch).await;
        Ok(())
    }
}

impl Drop for Solo {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
