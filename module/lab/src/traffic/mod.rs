//! Requests through a Service of the embedded cluster, and what became of them.
//!
//! Where a request goes is decided as kube-proxy decides it, by the slices as they are at that
//! moment; who answers there is decided by the pods as they are. Nothing here leaves the process,
//! but for the HTTP front that a Service can be given.

mod front;
mod network;
mod proxy;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::{CancellationToken, DropGuard};

pub use front::Front;
pub use network::{PodNetwork, Reply};
pub use proxy::{Backend, backends};

/// How requests come.
#[derive(Debug, Clone)]
pub struct TrafficOptions {
    /// Namespace of the Service.
    pub namespace: String,
    /// The Service.
    pub service: String,
    /// Time between two requests.
    pub every: Duration,
    /// Length of the windows that are counted apart.
    pub window: Duration,
}

impl TrafficOptions {
    /// Fifty requests a second, counted by half seconds.
    #[must_use]
    pub fn new(namespace: &str, service: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            service: service.to_owned(),
            every: Duration::from_millis(20),
            window: Duration::from_millis(500),
        }
    }
}

/// Requests by what became of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counts {
    /// All of them.
    pub sent: u64,
    /// Answered by another version than the one that should answer.
    pub wrong: u64,
    /// Not answered.
    pub failed: u64,
}

impl Counts {
    /// Answered as they should be.
    #[must_use]
    pub fn right(&self) -> u64 {
        self.sent - self.wrong - self.failed
    }

    fn add(&mut self, other: Self) {
        self.sent += other.sent;
        self.wrong += other.wrong;
        self.failed += other.failed;
    }
}

/// Windows that are kept; older ones are in the total only.
const WINDOWS: usize = 1200;

#[derive(Debug, Default)]
struct Book {
    expected: Option<String>,
    total: Counts,
    windows: VecDeque<Counts>,
}

/// A stream of requests at a steady rate; it ends with the last handle.
#[derive(Debug, Clone)]
pub struct Traffic {
    book: Arc<Mutex<Book>>,
    network: PodNetwork,
    _stop: Arc<DropGuard>,
}

impl Traffic {
    /// Starts sending.
    #[must_use]
    pub fn start(network: &PodNetwork, options: TrafficOptions) -> Self {
        let book = Arc::new(Mutex::new(Book::default()));
        let stop = CancellationToken::new();
        let sending = send(network.clone(), options, Arc::clone(&book));
        tokio::spawn(stop.clone().run_until_cancelled_owned(sending));
        Self {
            book,
            network: network.clone(),
            _stop: Arc::new(stop.drop_guard()),
        }
    }

    /// From now on another version's answer is a wrong one. Until the first call none is.
    pub fn expect(&self, version: &str) {
        lock(&self.book).expected = Some(version.to_owned());
    }

    /// Everything since the start.
    #[must_use]
    pub fn total(&self) -> Counts {
        lock(&self.book).total
    }

    /// The windows so far, oldest first; the last one is still open.
    #[must_use]
    pub fn windows(&self) -> Vec<Counts> {
        lock(&self.book).windows.iter().copied().collect()
    }

    /// The pods that answer.
    #[must_use]
    pub fn network(&self) -> &PodNetwork {
        &self.network
    }
}

async fn send(network: PodNetwork, options: TrafficOptions, book: Arc<Mutex<Book>>) {
    let mut ticks = interval(options.every);
    // Requests that the machine had no time for are not made up for.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut window_ends = Instant::now();
    let mut turn = 0_usize;
    loop {
        ticks.tick().await;
        let reply = network.request(&options.namespace, &options.service, turn);
        turn = turn.wrapping_add(1);
        let mut book = lock(&book);
        let one = Counts {
            sent: 1,
            wrong: u64::from(reply.as_ref().is_some_and(|reply| {
                book.expected
                    .as_ref()
                    .is_some_and(|want| *want != reply.version)
            })),
            failed: u64::from(reply.is_none()),
        };
        book.total.add(one);
        let now = Instant::now();
        if now >= window_ends {
            window_ends = now + options.window;
            if book.windows.len() >= WINDOWS {
                book.windows.pop_front();
            }
            book.windows.push_back(Counts::default());
        }
        if let Some(window) = book.windows.back_mut() {
            window.add(one);
        }
    }
}

fn lock(book: &Mutex<Book>) -> MutexGuard<'_, Book> {
    book.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::kube::controller::{Controller, ControllerOptions, NoLog};
    use crate::kube::{Cluster, ClusterOptions, Deployment, namespace};

    const LONG: Duration = Duration::from_secs(30);

    async fn until(traffic: &Traffic, what: impl Fn(Counts) -> bool) {
        let seen = async {
            while !what(traffic.total()) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let in_time = tokio::time::timeout(LONG, seen).await;
        assert!(in_time.is_ok(), "{:?}", traffic.total());
    }

    #[tokio::test]
    async fn a_stale_slice_costs_requests_and_an_old_container_answers_wrongly() {
        let cluster = Cluster::start(ClusterOptions::default()).await.unwrap();
        cluster.create(namespace("line1")).unwrap();
        cluster.add_node("edge-7", "").unwrap();
        let log = Arc::new(NoLog);
        let controller = Controller::start(&cluster, ControllerOptions::quick(), log);
        cluster.add_service("line1", "model").unwrap();
        let pods = cluster
            .deploy(&Deployment::new("line1", "model", "v2.0", 2, "edge-7"))
            .unwrap();
        assert!(controller.settle(LONG).await);

        let network = PodNetwork::new(&cluster);
        let mut options = TrafficOptions::new("line1", "model");
        options.every = Duration::from_millis(1);
        let traffic = Traffic::start(&network, options);
        traffic.expect("v2.0");
        until(&traffic, |c| c.sent >= 10).await;
        assert_eq!(traffic.total().right(), traffic.total().sent);

        controller.cache_hits("line1", "model");
        let old = pods[0]["status"]["podIP"].as_str().unwrap().to_owned();
        network.linger(&old, "v2.0");
        cluster.redeploy("line1", "model", "v2.1").unwrap();
        traffic.expect("v2.1");
        until(&traffic, |c| c.wrong >= 3 && c.failed >= 3).await;
        let front = Front::start(&network, "line1", "model").await.unwrap();
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..4 {
            seen.insert(get(&front).await);
        }
        assert_eq!(seen, [(200, Some("v2.0".into())), (502, None)].into());

        for slice in cluster.slices_of("line1", "model") {
            let name = crate::kube::object::name(&slice);
            let slices = &crate::kube::resource::ENDPOINT_SLICES;
            cluster
                .delete(slices, "line1", name, &Default::default())
                .unwrap();
        }
        assert_eq!(get(&front).await.0, 503, "no slice, no backend");
        cluster
            .wait_for(LONG, |c| {
                (!c.slices_of("line1", "model").is_empty()).then_some(())
            })
            .await
            .unwrap();
        assert_eq!(get(&front).await, (200, Some("v2.1".into())));
        let before = traffic.total();
        until(&traffic, |c| c.right() >= before.right() + 20).await;
        let after = traffic.total();
        assert_eq!(after.wrong, before.wrong);
        let windows = traffic.windows();
        assert!(windows.iter().map(|w| w.sent).sum::<u64>() >= after.sent);
    }

    async fn get(front: &Front) -> (u16, Option<String>) {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let mut stream = tokio::net::TcpStream::connect(front.address())
            .await
            .unwrap();
        let request = "GET /predict HTTP/1.1\r\nHost: model\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        let version = answer
            .lines()
            .find_map(|line| line.strip_prefix("x-model-version: "))
            .map(str::to_owned);
        if let Some(version) = &version {
            assert!(answer.contains(&format!("\"model_version\":\"{version}\"")));
        }
        (status, version)
    }
}
