//! The watches against a scripted API server.

use std::collections::VecDeque;
use std::sync::Mutex;

use axum::body::Bytes;
use axum::response::Response;
use futures::channel::mpsc::UnboundedSender;
use serde_json::{Value, json};
use slice_core::event::Link;
use slice_core::model::Object;
use tokio::time::timeout;

use super::*;
use crate::client::{Access, keep};
use crate::testing::{FakeApi, LONG, Seen, answer, event, kubeconfig, list, refusal, stream};

fn pod(name: &str, version: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "line1", "uid": name, "resourceVersion": version}})
}

fn is(kind: Kind, seen: &Seen) -> bool {
    let plural = match kind {
        Kind::Pod => "pods",
        Kind::Node => "nodes",
        Kind::Endpoints => "endpoints",
        other => panic!("no test asks for {other}"),
    };
    seen.path.ends_with(&format!("/{plural}"))
}

/// What a cluster without objects answers.
fn empty(seen: &Seen) -> Response {
    if seen.path == "/version" {
        return answer(
            200,
            json!({"major": "1", "minor": "37", "gitVersion": "v1.37.2", "gitCommit": "",
            "gitTreeState": "", "buildDate": "", "goVersion": "", "compiler": "", "platform": ""}),
        );
    }
    if seen.is_watch() {
        // Kept open for ever: nothing happens.
        let (tx, open) = stream();
        std::mem::forget(tx);
        return open;
    }
    list("1", &[])
}

fn quick() -> Options {
    Options {
        first_pause: Duration::from_millis(10),
        longest_pause: Duration::from_millis(100),
        ..Options::default()
    }
}

struct Run {
    rx: mpsc::Receiver<ClusterInput>,
    counters: Arc<Counters>,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl Run {
    fn start(supply: Supply, options: Options) -> Self {
        let (tx, rx) = mpsc::channel(16);
        let stop = CancellationToken::new();
        let (tasks, counters) = spawn(supply, tx, &stop, options);
        Self {
            rx,
            counters,
            stop,
            tasks,
        }
    }

    async fn against(api: &FakeApi, options: Options) -> Self {
        Self::start(Supply::fixed(api.client().await), options)
    }

    /// The next input about `kind` (none: about the cluster as a whole) in words; skips others.
    async fn next(&mut self, kind: Option<Kind>) -> String {
        loop {
            let input = timeout(LONG, self.rx.recv())
                .await
                .expect("an input comes")
                .unwrap();
            let (of, text) = told(&input);
            if of == kind {
                return text;
            }
        }
    }

    async fn pods(&mut self) -> String {
        self.next(Some(Kind::Pod)).await
    }

    async fn end(mut self) {
        self.stop.cancel();
        let ended = async { while self.tasks.join_next().await.is_some() {} };
        timeout(LONG, ended)
            .await
            .expect("every task ends with the shutdown");
    }
}

fn told(input: &ClusterInput) -> (Option<Kind>, String) {
    let names = |objects: &[Object]| {
        objects
            .iter()
            .map(|o| o.meta().name.to_string())
            .collect::<Vec<_>>()
            .join(",")
    };
    match input {
        ClusterInput::Apply(object) => {
            (Some(object.kind()), format!("apply {}", object.meta().name))
        }
        ClusterInput::Deleted(gone) => (Some(gone.kind), format!("deleted {gone}")),
        ClusterInput::Reset(kind, objects) => (Some(*kind), format!("reset [{}]", names(objects))),
        ClusterInput::Link(kind, link) => (
            Some(*kind),
            match link {
                Link::Syncing => "syncing".to_owned(),
                Link::Synced => "synced".to_owned(),
                Link::Unreachable(why) => format!("unreachable: {why}"),
                Link::Forbidden(why) => format!("forbidden: {why}"),
            },
        ),
        ClusterInput::Version(version) => (None, format!("version {version}")),
        ClusterInput::LocalNode(node) => (None, format!("local {node:?}")),
    }
}

#[tokio::test]
async fn lists_page_by_page_and_follows_from_there_without_listing_again() {
    type Open = UnboundedSender<Result<Bytes, std::io::Error>>;
    let watches: Arc<Mutex<VecDeque<Open>>> = Arc::default();
    let opened = Arc::clone(&watches);
    let api = FakeApi::start(move |seen| {
        if !is(Kind::Pod, seen) {
            return empty(seen);
        }
        if seen.is_watch() {
            let (tx, open) = stream();
            opened.lock().unwrap().push_back(tx);
            return open;
        }
        match seen.parameter("continue") {
            None => answer(200, json!({
                "metadata": {"resourceVersion": "10", "continue": "more"}, "items": [pod("a", "1")],
            })),
            Some(_) => list("10", &[pod("b", "2")]),
        }
    })
    .await;
    let mut run = Run::against(&api, quick()).await;
    assert_eq!(run.pods().await, "syncing");
    assert_eq!(run.pods().await, "reset [a,b]");
    assert_eq!(run.pods().await, "synced");

    let of_pods = |seen: &Seen| is(Kind::Pod, seen) && seen.is_watch();
    let first = api.wait(1, of_pods).await.remove(0);
    assert_eq!(first.parameter("resourceVersion"), Some("10"));
    assert_eq!(first.parameter("allowWatchBookmarks"), Some("true"));
    let seconds: u32 = first.parameter("timeoutSeconds").unwrap().parse().unwrap();
    assert!(
        seconds <= 110,
        "a dead watch is noticed within two minutes: {seconds}"
    );
    let agent = first.headers.get("user-agent").unwrap().to_str().unwrap();
    assert!(agent.starts_with("slice-healer/"), "{agent}");

    let watch = watches.lock().unwrap().pop_front().unwrap();
    watch
        .unbounded_send(event("ADDED", &pod("c", "11")))
        .unwrap();
    assert_eq!(run.pods().await, "apply c");
    watch
        .unbounded_send(event("DELETED", &pod("a", "12")))
        .unwrap();
    assert_eq!(run.pods().await, "deleted Pod line1/a");
    let bookmark =
        json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"resourceVersion": "99"}});
    watch.unbounded_send(event("BOOKMARK", &bookmark)).unwrap();
    drop(watch);

    // A watch that ends in order goes on from the bookmark.
    let second = api.wait(2, of_pods).await.remove(1);
    assert_eq!(second.parameter("resourceVersion"), Some("99"));
    let lists = api
        .seen()
        .into_iter()
        .filter(|s| is(Kind::Pod, s) && !s.is_watch())
        .count();
    assert_eq!(lists, 2, "the two pages of the first list");
    assert_eq!(run.counters.of(Kind::Pod).lists.load(Ordering::Relaxed), 1);
    assert_eq!(run.counters.of(Kind::Pod).events.load(Ordering::Relaxed), 2);
    run.end().await;
}

#[tokio::test]
async fn a_version_that_is_too_old_leads_to_a_new_list() {
    let lists = Mutex::new(VecDeque::from([
        vec![pod("a", "1"), pod("b", "2")],
        vec![pod("b", "2")],
    ]));
    let watches = Mutex::new(0);
    let api = FakeApi::start(move |seen| {
        if !is(Kind::Pod, seen) {
            return empty(seen);
        }
        if !seen.is_watch() {
            return list("10", &lists.lock().unwrap().pop_front().unwrap());
        }
        *watches.lock().unwrap() += 1;
        if *watches.lock().unwrap() > 1 {
            return empty(seen);
        }
        let (tx, open) = stream();
        let gone = json!({"kind": "Status", "status": "Failure", "code": 410, "reason": "Expired",
            "message": "too old resource version"});
        tx.unbounded_send(event("ERROR", &gone)).unwrap();
        open
    })
    .await;
    let mut run = Run::against(&api, quick()).await;
    let mut told = Vec::new();
    for _ in 0..5 {
        told.push(run.pods().await);
    }
    assert_eq!(told[..3], ["syncing", "reset [a,b]", "synced"]);
    // The pod that vanished meanwhile is gone.
    assert_eq!(told[3..], ["syncing", "reset [b]"]);
    run.end().await;
}

#[tokio::test]
async fn a_forbidden_kind_leaves_the_others_working_until_it_is_allowed() {
    let allowed = Arc::new(Mutex::new(false));
    let switch = Arc::clone(&allowed);
    let api = FakeApi::start(move |seen| match is(Kind::Endpoints, seen) {
        true if !*switch.lock().unwrap() => refusal(403, "endpoints is forbidden"),
        _ => empty(seen),
    })
    .await;
    let mut run = Run::against(&api, quick()).await;
    assert_eq!(run.next(Some(Kind::Endpoints)).await, "syncing");
    let refused = run.next(Some(Kind::Endpoints)).await;
    assert_eq!(
        refused,
        "forbidden: list endpoints: endpoints is forbidden (403)"
    );
    let mut run_pods = Run::against(&api, quick()).await;
    assert_eq!(run_pods.pods().await, "syncing");
    assert_eq!(run_pods.pods().await, "reset []");
    run_pods.end().await;
    *allowed.lock().unwrap() = true;
    // Told again only when it changes, however often it was refused.
    assert_eq!(run.next(Some(Kind::Endpoints)).await, "syncing");
    assert_eq!(run.next(Some(Kind::Endpoints)).await, "reset []");
    assert_eq!(run.next(Some(Kind::Endpoints)).await, "synced");
    run.end().await;
}

#[tokio::test]
async fn a_watch_that_died_without_a_word_is_opened_again() {
    // Open, and never a byte: as after a cable was pulled.
    let api = FakeApi::start(empty).await;
    let options = Options {
        watch_timeout: Duration::from_secs(1),
        ..quick()
    };
    let run = Run::against(&api, options).await;
    api.wait(2, |seen| is(Kind::Pod, seen) && seen.is_watch())
        .await;
    run.end().await;
}

#[tokio::test]
async fn a_list_that_does_not_come_is_told_and_tried_again() {
    let hangs = Mutex::new(true);
    let api = FakeApi::start(move |seen| {
        if is(Kind::Pod, seen) && !seen.is_watch() && std::mem::take(&mut *hangs.lock().unwrap()) {
            let (tx, open) = stream();
            std::mem::forget(tx);
            return open;
        }
        empty(seen)
    })
    .await;
    let options = Options {
        list_timeout: Duration::from_millis(300),
        ..quick()
    };
    let mut run = Run::against(&api, options).await;
    assert_eq!(run.pods().await, "syncing");
    assert!(
        run.pods()
            .await
            .starts_with("unreachable: pods: no answer to the list")
    );
    assert_eq!(run.pods().await, "syncing");
    assert_eq!(run.pods().await, "reset []");
    run.end().await;
}

#[tokio::test]
async fn everything_is_listed_again_from_time_to_time_without_a_change_of_state() {
    let api = FakeApi::start(empty).await;
    let options = Options {
        relist: Duration::from_millis(200),
        ..quick()
    };
    let mut run = Run::against(&api, options).await;
    assert_eq!(run.pods().await, "syncing");
    assert_eq!(run.pods().await, "reset []");
    assert_eq!(run.pods().await, "synced");
    assert_eq!(run.pods().await, "reset []");
    assert_eq!(run.pods().await, "reset []");
    run.end().await;
}

#[tokio::test]
async fn an_object_that_cannot_be_decoded_is_left_out_and_counted() {
    let api = FakeApi::start(|seen| {
        if is(Kind::Pod, seen) && !seen.is_watch() {
            let mut bad = pod("bad", "2");
            bad["status"] = json!({"podIPs": "none"});
            return list("10", &[pod("a", "1"), bad]);
        }
        empty(seen)
    })
    .await;
    let mut run = Run::against(&api, quick()).await;
    assert_eq!(run.pods().await, "syncing");
    assert_eq!(run.pods().await, "reset [a]");
    assert_eq!(
        run.counters
            .of(Kind::Pod)
            .undecodable
            .load(Ordering::Relaxed),
        1
    );
    run.end().await;
}

#[tokio::test]
async fn version_and_local_node_are_told() {
    let api = FakeApi::start(|seen| {
        if is(Kind::Node, seen) && !seen.is_watch() {
            return list(
                "10",
                &[json!({"metadata": {"name": "edge-7", "resourceVersion": "1"}})],
            );
        }
        empty(seen)
    })
    .await;
    let local = LocalNode {
        name: None,
        machine_id: PathBuf::from("/nonexistent/machine-id"),
        gateway: Some("edge-7.factory.example".to_owned()),
    };
    let mut run = Run::against(&api, Options { local, ..quick() }).await;
    let mut told = [run.next(None).await, run.next(None).await];
    told.sort();
    assert_eq!(told, ["local Some(\"edge-7\")", "version v1.37.2"]);
    run.end().await;
}

#[tokio::test]
async fn a_kubeconfig_that_comes_later_and_changes_is_picked_up() {
    let one = FakeApi::start(empty).await;
    let two = FakeApi::start(move |seen| {
        if is(Kind::Pod, seen) && !seen.is_watch() {
            return list("10", &[pod("of-two", "1")]);
        }
        empty(seen)
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("k3s.yaml");
    let settings = Access {
        kubeconfig: Some(path.clone()),
        poll: Duration::from_millis(20),
        ..Access::default()
    };
    let stop = CancellationToken::new();
    let (supply, keeper) = keep(settings, stop.clone()).await;
    let mut run = Run::start(supply, quick());
    let missing = run.pods().await;
    assert!(
        missing.starts_with("unreachable: the kubeconfig"),
        "{missing}"
    );
    assert!(missing.contains("mount it"), "{missing}");

    std::fs::write(&path, "users: [{token: a-secret-token").unwrap();
    let broken = run.pods().await;
    assert!(broken.contains("not valid YAML"), "{broken}");
    assert!(!broken.contains("a-secret-token"), "{broken}");

    std::fs::write(&path, kubeconfig(&one.url)).unwrap();
    assert_eq!(run.pods().await, "syncing");
    assert_eq!(run.pods().await, "reset []");
    assert_eq!(run.pods().await, "synced");

    std::fs::write(&path, kubeconfig(&two.url) + "\n").unwrap();
    assert_eq!(
        run.pods().await,
        "reset [of-two]",
        "the other cluster's objects"
    );
    run.end().await;
    stop.cancel();
    timeout(LONG, keeper).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_server_that_is_not_there_is_told_with_advice() {
    // Nobody listens on a port that was just given back.
    let port = std::net::TcpListener::bind(("127.0.0.1", 0))
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config");
    std::fs::write(&path, kubeconfig(&format!("http://127.0.0.1:{port}"))).unwrap();
    let settings = Access {
        kubeconfig: Some(path),
        ..Access::default()
    };
    let client = crate::client::connect(&settings).await.unwrap();
    let mut run = Run::start(Supply::fixed(client), quick());
    assert_eq!(run.pods().await, "syncing");
    let told = run.pods().await;
    assert!(
        told.starts_with("unreachable: pods:") && told.contains("cluster.server"),
        "{told}"
    );
    run.end().await;
}
