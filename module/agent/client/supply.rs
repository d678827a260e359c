//! Hands out the client that counts now, and makes another when the kubeconfig appears or changes.
//!
//! A missing or broken kubeconfig is a state with a reason, never the end.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use kube::Client;
use kube::config::Kubeconfig;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{Access, connect};

/// The longest pause between two attempts to build a client of settings that have not changed.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

type State = Result<Client, Arc<str>>;

/// The client that counts now, or why there is none. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Supply(watch::Receiver<Held>);

#[derive(Clone)]
struct Held(State);

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            Ok(_) => f.write_str("client"),
            Err(reason) => f.write_str(reason),
        }
    }
}

impl Supply {
    /// One client for ever.
    pub fn fixed(client: Client) -> Self {
        Self(watch::channel(Held(Ok(client))).1)
    }

    /// The client that counts now.
    ///
    /// # Errors
    /// Why there is none, with what to do.
    pub fn current(&self) -> Result<Client, Arc<str>> {
        self.0.borrow().0.clone()
    }

    /// The same as [`Self::current`], and marks it as seen for [`Self::changed`].
    pub(crate) fn take(&mut self) -> Result<Client, Arc<str>> {
        self.0.borrow_and_update().0.clone()
    }

    /// Waits until it is another one than was last taken. Waits for ever once it cannot change.
    pub(crate) async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Starts the task that keeps a [`Supply`] up to date until `shutdown`. The first attempt has been
/// made when this returns.
pub async fn keep(settings: Access, shutdown: CancellationToken) -> (Supply, JoinHandle<()>) {
    let stamps = Stamps::take(&settings);
    let (tx, rx) = watch::channel(Held(attempt(&settings).await));
    let task = tokio::spawn(async move {
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = refresh(settings, stamps, tx) => {}
        }
    });
    (Supply(rx), task)
}

async fn refresh(settings: Access, mut seen: Stamps, tx: watch::Sender<Held>) {
    let mut pause = settings.poll;
    let mut quiet = Duration::ZERO;
    loop {
        tokio::time::sleep(settings.poll).await;
        quiet += settings.poll;
        let stamps = Stamps::take(&settings);
        let changed = stamps != seen;
        // What is broken for another reason than the files' is tried again, more and more rarely.
        let retry = tx.borrow().0.is_err() && quiet >= pause;
        if !changed && !retry {
            continue;
        }
        quiet = Duration::ZERO;
        pause = if changed {
            settings.poll
        } else {
            (pause * 2).min(LONGEST_PAUSE)
        };
        seen = stamps;
        let next = attempt(&settings).await;
        if changed && next.is_ok() {
            info!("the kubeconfig has changed: connecting anew");
        }
        // The same failure again is no news.
        tx.send_if_modified(|held| {
            let news = match (&held.0, &next) {
                (Err(old), Err(new)) => old != new,
                _ => true,
            };
            if news {
                *held = Held(next.clone());
            }
            news
        });
    }
}

async fn attempt(settings: &Access) -> State {
    connect(settings).await.map_err(|error| {
        warn!(%error, "no way to the Kubernetes API");
        Arc::from(error.to_string())
    })
}

/// What the files that a client is made of look like from outside.
#[derive(Debug, PartialEq, Eq)]
struct Stamps(Vec<(PathBuf, Option<(SystemTime, u64)>)>);

impl Stamps {
    fn take(settings: &Access) -> Self {
        let mut all = Vec::new();
        for file in settings.files() {
            // Certificates that are named, not enclosed, are replaced without the kubeconfig.
            if let Ok(config) = Kubeconfig::read_from(&file) {
                let of_clusters = config
                    .clusters
                    .into_iter()
                    .filter_map(|c| c.cluster?.certificate_authority);
                let of_users = config.auth_infos.into_iter().filter_map(|u| u.auth_info);
                let of_users = of_users
                    .flat_map(|u| [u.client_certificate, u.client_key])
                    .flatten();
                all.extend(of_clusters.chain(of_users).map(|p| stamp(Path::new(&p))));
            }
            all.push(stamp(&file));
        }
        Self(all)
    }
}

fn stamp(path: &Path) -> (PathBuf, Option<(SystemTime, u64)>) {
    let meta = std::fs::metadata(path).ok();
    let seen = meta.and_then(|m| Some((m.modified().ok()?, m.len())));
    (path.to_owned(), seen)
}
