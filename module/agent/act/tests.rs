//! Actions against a scripted API server: what goes over the wire, and what each answer becomes.

use std::sync::Mutex;

use axum::response::{IntoResponse as _, Response};
use http::Method;
use serde_json::{Value, json};
use slice_core::event::{ActionId, Snapshot};
use slice_core::model::ServiceKey;

use super::*;
use crate::testing::{FakeApi, Seen, answer, list, refusal, stream};

fn web() -> ServiceKey {
    ServiceKey::new("line1", "web")
}

async fn run_within(api: &FakeApi, act: Act, deadline: Duration) -> Outcome {
    let actor = Actor::new(Supply::fixed(api.client().await), Options::new("test"));
    actor
        .run(Action {
            id: ActionId(1),
            deadline,
            act,
        })
        .await
}

async fn run(api: &FakeApi, act: Act) -> Outcome {
    run_within(api, act, Duration::from_secs(30)).await
}

fn refresh() -> Act {
    Act::Refresh {
        service: web(),
        uid: "u-1".to_owned(),
        value: "i-7".to_owned(),
    }
}

fn delete() -> Act {
    Act::Delete {
        service: web(),
        slice: "web-abc".to_owned(),
        uid: "s-1".to_owned(),
        resource_version: "42".to_owned(),
    }
}

#[tokio::test]
async fn a_refresh_patches_one_annotation_and_says_whose() {
    let api = FakeApi::start(|_| answer(200, json!({}))).await;
    let done = run(&api, refresh()).await;
    assert!(matches!(done, Outcome::Written), "{done:?}");
    let sent = api.seen().remove(0);
    assert_eq!(
        (sent.method, sent.path.as_str()),
        (Method::PATCH, "/api/v1/namespaces/line1/services/web")
    );
    assert_eq!(sent.query, "fieldManager=slice-healer");
    assert_eq!(sent.headers["content-type"], "application/merge-patch+json");
    assert_eq!(
        sent.body,
        json!({"metadata": {"uid": "u-1", "annotations": {"slice-healer.io/refresh": "i-7"}}})
    );
}

#[tokio::test]
async fn a_delete_is_bound_to_uid_and_version() {
    let api = FakeApi::start(|_| answer(200, json!({"kind": "Status"}))).await;
    let done = run(&api, delete()).await;
    assert!(matches!(done, Outcome::Written), "{done:?}");
    let sent = api.seen().remove(0);
    assert_eq!(sent.method, Method::DELETE);
    assert_eq!(
        sent.path,
        "/apis/discovery.k8s.io/v1/namespaces/line1/endpointslices/web-abc"
    );
    assert_eq!(
        sent.body["preconditions"],
        json!({"uid": "s-1", "resourceVersion": "42"})
    );
}

#[tokio::test]
async fn answers_become_outcomes() {
    for (code, expected) in [
        (401, "Forbidden"),
        (403, "Forbidden"),
        (404, "Gone"),
        (409, "Conflict"),
        (500, "Failed"),
    ] {
        let api = FakeApi::start(move |_| refusal(code, "because")).await;
        for act in [refresh(), delete()] {
            let outcome = format!("{:?}", run(&api, act).await);
            assert!(outcome.starts_with(expected), "{code}: {outcome}");
        }
        assert_eq!(api.seen().len(), 2, "{code}: nothing is sent twice");
    }
}

#[tokio::test]
async fn a_busy_server_is_asked_again_when_it_says() {
    let calls = Mutex::new(0);
    let api = FakeApi::start(move |_| {
        *calls.lock().unwrap() += 1;
        match *calls.lock().unwrap() {
            1 => (
                http::StatusCode::TOO_MANY_REQUESTS,
                [("retry-after", "1")],
                "busy",
            )
                .into_response(),
            _ => answer(200, json!({})),
        }
    })
    .await;
    let begun = Instant::now();
    let done = run(&api, refresh()).await;
    assert!(matches!(done, Outcome::Written), "{done:?}");
    assert!(
        begun.elapsed() >= Duration::from_secs(1),
        "the server's wait was kept"
    );
    assert_eq!(api.seen().len(), 2);
}

#[tokio::test]
async fn a_server_that_stays_busy_past_the_deadline_ends_the_action_at_once() {
    let api = FakeApi::start(|_| {
        (
            http::StatusCode::TOO_MANY_REQUESTS,
            [("retry-after", "50")],
            "busy",
        )
            .into_response()
    })
    .await;
    let done = run(&api, refresh()).await;
    let Outcome::Failed(text) = done else {
        panic!("{done:?}")
    };
    assert!(
        text.contains("429") && text.contains("patch services line1/web"),
        "{text}"
    );
    assert!(!text.contains("not known"), "nothing was written: {text}");
    assert_eq!(api.seen().len(), 1);
}

#[tokio::test]
async fn a_write_without_an_answer_is_not_known_and_not_repeated() {
    let api = FakeApi::start(|_| {
        let (tx, open) = stream();
        std::mem::forget(tx);
        open
    })
    .await;
    let done = run_within(&api, refresh(), Duration::from_millis(300)).await;
    let Outcome::Failed(text) = done else {
        panic!("{done:?}")
    };
    assert!(
        text.contains("whether it was written is not known"),
        "{text}"
    );
    assert_eq!(api.seen().len(), 1);
}

#[tokio::test]
async fn no_server_is_a_failure_that_says_what_to_do() {
    let port = std::net::TcpListener::bind(("127.0.0.1", 0))
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let mut api = FakeApi::start(|_| answer(200, json!({}))).await;
    api.url = format!("http://127.0.0.1:{port}");
    let done = run(&api, Act::Read { service: web() }).await;
    let Outcome::Failed(text) = done else {
        panic!("{done:?}")
    };
    assert!(text.contains("is the API server running"), "{text}");
}

/// A cluster in which the Service's slice names `pods` pods, none of which it selects.
fn cluster(pods: usize) -> impl Fn(&Seen) -> Response + Send + Sync + 'static {
    let name = |n: usize| format!("p{n}");
    let endpoint = move |n: usize| {
        json!({"addresses": [format!("10.0.{}.{}", n / 200, n % 200)],
            "targetRef": {"kind": "Pod", "namespace": "line1", "name": name(n), "uid": name(n)}})
    };
    let slice = json!({
        "metadata": {"name": "web-abc", "namespace": "line1", "uid": "s-1", "resourceVersion": "42",
            "labels": {"kubernetes.io/service-name": "web"}, "managedFields": [{"manager": "x"}]},
        "addressType": "IPv4",
        "endpoints": (0..pods).map(endpoint).collect::<Vec<_>>(),
    });
    let pod = move |n: usize| {
        json!({"metadata": {"name": name(n), "namespace": "line1", "uid": name(n)},
            "spec": {"nodeName": "edge-7"}})
    };
    move |seen| {
        let (_, last) = seen.path.rsplit_once('/').unwrap();
        match (seen.path.as_str(), last) {
            ("/api/v1/namespaces/line1/services/web", _) => answer(
                200,
                json!({
                    "metadata": {"name": "web", "namespace": "line1", "uid": "u-1"},
                    "spec": {"selector": {"app": "web"}},
                }),
            ),
            (_, "endpointslices") => list("50", std::slice::from_ref(&slice)),
            (_, "pods") if seen.query.contains("labelSelector") => list("50", &[]),
            (_, "pods") => list("50", &(0..pods + 7).map(pod).collect::<Vec<Value>>()),
            ("/api/v1/nodes/edge-7", _) => answer(200, json!({"metadata": {"name": "edge-7"}})),
            ("/api/v1/namespaces/line1/endpoints/web", _) => refusal(403, "endpoints is forbidden"),
            ("/api/v1/namespaces/line1", _) => answer(200, json!({"metadata": {"name": "line1"}})),
            (path, _) if path.starts_with("/api/v1/namespaces/line1/pods/p") => {
                let n: usize = last.trim_start_matches('p').parse().unwrap();
                // The first of them is gone.
                if n == 0 {
                    refusal(404, "not found")
                } else {
                    answer(200, pod(n))
                }
            }
            (path, _) => panic!("nobody should ask for {path}"),
        }
    }
}

async fn snapshot(api: &FakeApi) -> Snapshot {
    match run(api, Act::Read { service: web() }).await {
        Outcome::Snapshot(snapshot) => *snapshot,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_read_fetches_the_pods_that_only_a_slice_names() {
    let api = FakeApi::start(cluster(3)).await;
    let seen = snapshot(&api).await;
    let pods: Vec<&str> = seen.pods.iter().map(|p| p.meta.name.as_ref()).collect();
    assert_eq!(pods, ["p1", "p2"], "and not the one that is gone");
    assert_eq!(seen.nodes.len(), 1);
    assert!(seen.namespace.is_some());
    assert!(seen.endpoints.is_none(), "not readable, so not known");
    let raw = &seen.raw_slices["web-abc"];
    assert_eq!(raw["kind"], "EndpointSlice");
    assert!(raw["metadata"].get("managedFields").is_none());
    for request in api.seen() {
        assert!(
            !request.query.contains("resourceVersion"),
            "past every cache: {request:?}"
        );
    }
}

#[tokio::test]
async fn a_read_lists_the_namespace_when_a_slice_names_very_many_pods() {
    let api = FakeApi::start(cluster(200)).await;
    let seen = snapshot(&api).await;
    assert_eq!(seen.pods.len(), 200, "those that are named and no others");
    assert!(api.seen().len() < 20, "{} requests", api.seen().len());
}

#[tokio::test]
async fn a_list_whose_next_page_has_expired_is_begun_anew() {
    let whole = cluster(1);
    let expired = Mutex::new(true);
    let api = FakeApi::start(move |seen| {
        if !seen.path.ends_with("/endpointslices") {
            return whole(seen);
        }
        let named = |name: &str| json!({"metadata": {"name": name, "namespace": "line1"}});
        match seen.parameter("continue") {
            None => answer(
                200,
                json!({"metadata": {"continue": "more"}, "items": [named("web-1")]}),
            ),
            Some(_) if std::mem::take(&mut *expired.lock().unwrap()) => refusal(410, "expired"),
            Some(_) => list("50", &[named("web-2")]),
        }
    })
    .await;
    let seen = snapshot(&api).await;
    let names: Vec<&str> = seen.slices.iter().map(|s| s.meta.name.as_ref()).collect();
    assert_eq!(names, ["web-1", "web-2"], "each once");
}

#[tokio::test]
async fn a_read_that_cannot_be_whole_fails() {
    let whole = cluster(1);
    let api = FakeApi::start(move |seen| match seen.path.ends_with("/endpointslices") {
        true => list(
            "50",
            &[json!({"metadata": {"name": "web-abc"}, "endpoints": "none"})],
        ),
        false => whole(seen),
    })
    .await;
    let done = run(&api, Act::Read { service: web() }).await;
    let Outcome::Failed(text) = done else {
        panic!("{done:?}")
    };
    assert!(
        text.contains("web-abc") && text.contains("cannot be decoded"),
        "{text}"
    );
}

#[tokio::test]
async fn without_a_namespace_there_is_no_lease_and_without_rights_neither() {
    let api = FakeApi::start(|seen| match seen.path.as_str() {
        "/version" => answer(200, json!({})),
        _ => refusal(404, "namespaces \"slice-healer\" not found"),
    })
    .await;
    let taken = run(&api, Act::TakeLease).await;
    let Outcome::Lease(slice_core::event::LeaseAnswer::Absent(text)) = taken else {
        panic!("{taken:?}")
    };
    assert!(text.contains("config/kubernetes"), "{text}");

    let api = FakeApi::start(|_| refusal(403, "leases is forbidden")).await;
    let taken = run(&api, Act::TakeLease).await;
    let Outcome::Lease(slice_core::event::LeaseAnswer::Absent(text)) = taken else {
        panic!("{taken:?}")
    };
    assert!(
        text.starts_with("get leases slice-healer/slice-healer"),
        "{text}"
    );
}
