//! Watches: taken up again, relisted after 410, cut by an outage, held, selected.

use std::pin::pin;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Service;
use kube::api::{DeleteParams, PostParams};
use kube::runtime::watcher;
use kube::{Api, ResourceExt as _};
use serde_json::json;

use super::super::resource;
use super::{LONG, cluster, service};

async fn next(
    stream: &mut (impl futures::Stream<Item = watcher::Result<watcher::Event<Service>>> + Unpin),
) -> watcher::Event<Service> {
    loop {
        let event = tokio::time::timeout(LONG, stream.next()).await;
        // A watch that ended with an error is taken up again by the next poll.
        if let Ok(event) = event.unwrap().unwrap() {
            return event;
        }
    }
}

async fn watches_and_relists(config: watcher::Config) {
    let (cluster, client) = cluster().await;
    let services: Api<Service> = Api::namespaced(client, "line1");
    services
        .create(&PostParams::default(), &service("a"))
        .await
        .unwrap();
    let mut stream = pin!(watcher(services.clone(), config));
    assert!(matches!(next(&mut stream).await, watcher::Event::Init));
    assert!(matches!(next(&mut stream).await, watcher::Event::InitApply(s) if s.name_any() == "a"));
    assert!(matches!(next(&mut stream).await, watcher::Event::InitDone));
    services
        .create(&PostParams::default(), &service("b"))
        .await
        .unwrap();
    assert!(matches!(next(&mut stream).await, watcher::Event::Apply(s) if s.name_any() == "b"));

    // A watch that ends is taken up where it was: no event twice, none lost.
    cluster.drop_watches();
    services
        .delete("a", &DeleteParams::default())
        .await
        .unwrap();
    assert!(matches!(next(&mut stream).await, watcher::Event::Delete(s) if s.name_any() == "a"));

    // A version that is compacted away makes the client list again.
    cluster.compact();
    assert!(matches!(next(&mut stream).await, watcher::Event::Init));
    assert!(matches!(next(&mut stream).await, watcher::Event::InitApply(s) if s.name_any() == "b"));
    assert!(matches!(next(&mut stream).await, watcher::Event::InitDone));

    // A server that goes away and comes back.
    cluster.stop_listening().await.unwrap();
    assert!(matches!(
        services.get("b").await.unwrap_err(),
        kube::Error::HyperError(_) | kube::Error::Service(_)
    ));
    cluster.start_listening().await.unwrap();
    services
        .delete("b", &DeleteParams::default())
        .await
        .unwrap();
    assert!(matches!(next(&mut stream).await, watcher::Event::Delete(s) if s.name_any() == "b"));
}

#[tokio::test]
async fn a_watcher_relists_after_410() {
    watches_and_relists(watcher::Config::default()).await;
}

#[tokio::test]
async fn a_streaming_watcher_relists_after_410() {
    watches_and_relists(watcher::Config::default().streaming_lists()).await;
}

#[tokio::test]
async fn a_selected_watch_sees_objects_come_and_go() {
    let (cluster, client) = cluster().await;
    let services: Api<Service> = Api::namespaced(client, "line1");
    let config = watcher::Config::default().labels("app=a");
    let mut stream = pin!(watcher(services.clone(), config));
    assert!(matches!(next(&mut stream).await, watcher::Event::Init));
    assert!(matches!(next(&mut stream).await, watcher::Event::InitDone));
    services
        .create(&PostParams::default(), &service("b"))
        .await
        .unwrap();
    let label = |value: &str| {
        let patch = json!({"metadata": {"labels": {"app": value}}});
        cluster
            .patch(&resource::SERVICES, "line1", "b", &patch)
            .unwrap();
    };
    label("a");
    assert!(matches!(next(&mut stream).await, watcher::Event::Apply(s) if s.name_any() == "b"));
    label("c");
    assert!(matches!(next(&mut stream).await, watcher::Event::Delete(s) if s.name_any() == "b"));
}

#[tokio::test]
async fn a_held_watch_tells_nothing_until_it_is_released() {
    let (cluster, client) = cluster().await;
    let services: Api<Service> = Api::namespaced(client, "line1");
    let mut stream = pin!(watcher(services.clone(), watcher::Config::default()));
    assert!(matches!(next(&mut stream).await, watcher::Event::Init));
    assert!(matches!(next(&mut stream).await, watcher::Event::InitDone));
    // The watch is opened by polling; it has answered when its request is in the log.
    let opened = cluster.clone();
    let polled = async {
        while !opened.requests().iter().any(|r| r.verb == "watch") {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        event = next(&mut stream) => panic!("nothing has happened yet: {event:?}"),
        () = polled => {}
    }
    cluster.hold_watches(true);
    for name in ["a", "b"] {
        services
            .create(&PostParams::default(), &service(name))
            .await
            .unwrap();
    }
    let held = tokio::time::timeout(std::time::Duration::from_millis(200), stream.next()).await;
    assert!(held.is_err(), "{held:?}");
    cluster.hold_watches(false);
    assert!(matches!(next(&mut stream).await, watcher::Event::Apply(s) if s.name_any() == "a"));
    assert!(matches!(next(&mut stream).await, watcher::Event::Apply(s) if s.name_any() == "b"));
}
