//! The watches on the real API server: everything comes in, also after the server was away.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use slice_core::event::{ClusterInput, Link};
use slice_core::model::{Kind, Object};
use slice_healer::client::Supply;
use slice_healer::sense::cluster::{Counters, LocalNode, Options, spawn};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::support::controlplane::ControlPlane;
use crate::support::product::account;
use crate::support::stale::{self, SERVICE};
use crate::support::{objects, stale::Stale};

const DEADLINE: Duration = Duration::from_secs(120);

struct Watched {
    rx: mpsc::Receiver<ClusterInput>,
    stop: CancellationToken,
    tasks: JoinSet<()>,
    counters: Arc<Counters>,
}

impl Watched {
    async fn start(plane: &ControlPlane, node: &str) -> Result<Self> {
        let (tx, rx) = mpsc::channel(64);
        let stop = CancellationToken::new();
        let local = LocalNode {
            name: None,
            machine_id: "/nonexistent".into(),
            gateway: Some(node.to_owned()),
        };
        // Small pages, so that the first list has several.
        let options = Options {
            local,
            page_size: 2,
            ..Options::default()
        };
        let supply = Supply::fixed(account(plane).await?);
        let (tasks, counters) = spawn(supply, tx, &stop, options);
        Ok(Self {
            rx,
            stop,
            tasks,
            counters,
        })
    }

    /// Takes inputs until `done` says so.
    async fn until(
        &mut self,
        what: &str,
        mut done: impl FnMut(&ClusterInput) -> bool,
    ) -> Result<()> {
        let wanted = async {
            while let Some(input) = self.rx.recv().await {
                if done(&input) {
                    return Ok(());
                }
            }
            anyhow::bail!("the watches ended")
        };
        timeout(DEADLINE, wanted)
            .await
            .with_context(|| what.to_owned())?
    }

    /// Takes inputs until every kind has told a state that passes.
    async fn until_all(&mut self, what: &str, pass: impl Fn(&Link) -> bool) -> Result<()> {
        let mut left: BTreeSet<Kind> = Kind::ALL.into_iter().collect();
        self.until(what, |input| {
            if let ClusterInput::Link(kind, link) = input
                && pass(link)
            {
                left.remove(kind);
            }
            left.is_empty()
        })
        .await
    }

    async fn end(mut self) -> Result<()> {
        self.stop.cancel();
        let ended = async { while self.tasks.join_next().await.is_some() {} };
        timeout(Duration::from_secs(10), ended)
            .await
            .context("the tasks end")
    }
}

fn is_synced(link: &Link) -> bool {
    *link == Link::Synced
}

#[tokio::test]
async fn everything_that_is_judged_comes_in_and_every_change_after_it() -> Result<()> {
    let plane = ControlPlane::shared().await?;
    let state: Stale = stale::healthy(plane, "watch").await?;
    let space = state.namespace.as_str();
    let mut watched = Watched::start(plane, &state.node).await?;
    let (mut version, mut node) = (String::new(), None);
    let (mut pods, mut slices) = (0, 0);
    let mut synced = BTreeSet::new();
    watched
        .until("the first lists come in", |input| {
            match input {
                ClusterInput::Reset(_, objects) => {
                    let ours = objects
                        .iter()
                        .filter(|o| o.meta().namespace.as_ref() == space);
                    for object in ours {
                        match object {
                            Object::Pod(_) => pods += 1,
                            Object::Slice(_) => slices += 1,
                            _ => {}
                        }
                    }
                }
                ClusterInput::Link(kind, Link::Synced) => {
                    synced.insert(*kind);
                }
                ClusterInput::Version(told) => version = told.to_string(),
                ClusterInput::LocalNode(found) => node.clone_from(found),
                _ => {}
            }
            synced.len() == Kind::ALL.len() && !version.is_empty() && node.is_some()
        })
        .await?;
    ensure!((pods, slices) == (3, 1), "{pods} pods, {slices} slices");
    ensure!(version == plane.version(), "{version}");
    ensure!(node.as_deref() == Some(state.node.as_str()), "{node:?}");

    // One pod goes: the pod is deleted, and its slice changes.
    let gone = state.pod("2.0", 0, 10).name;
    objects::delete_pod(&state.client, space, &gone).await?;
    let (mut deleted, mut changed) = (false, false);
    watched
        .until("the change comes in", |input| {
            match input {
                ClusterInput::Deleted(object) => {
                    deleted |= object.kind == Kind::Pod && object.name == gone;
                }
                ClusterInput::Apply(Object::Slice(slice)) => {
                    changed |= slice.service_name() == Some(SERVICE) && slice.endpoints.len() == 2;
                }
                _ => {}
            }
            deleted && changed
        })
        .await?;
    let failures = Kind::ALL.map(|kind| {
        watched
            .counters
            .of(kind)
            .failures
            .load(std::sync::atomic::Ordering::Relaxed)
    });
    ensure!(failures == [0; 6], "{failures:?}");
    watched.end().await
}

#[tokio::test]
async fn a_server_that_was_away_is_told_and_everything_is_listed_again() -> Result<()> {
    let plane = ControlPlane::start(Default::default()).await?;
    let state = stale::healthy(&plane, "away").await?;
    let mut watched = Watched::start(&plane, &state.node).await?;
    watched
        .until_all("everything is followed", is_synced)
        .await?;
    plane.apiserver.stop();
    watched
        .until_all("the loss is told", |link| {
            matches!(link, Link::Unreachable(_))
        })
        .await?;
    plane.apiserver.start()?;
    let (mut pods, mut synced) = (0, BTreeSet::new());
    watched
        .until("everything comes back", |input| {
            match input {
                ClusterInput::Reset(Kind::Pod, objects) => {
                    let ours = |o: &&Object| o.meta().namespace.as_ref() == state.namespace;
                    pods = objects.iter().filter(ours).count();
                }
                ClusterInput::Link(kind, Link::Synced) => {
                    synced.insert(*kind);
                }
                _ => {}
            }
            synced.len() == Kind::ALL.len()
        })
        .await?;
    ensure!(pods == 3, "{pods} pods");
    watched.end().await
}
