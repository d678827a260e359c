//! Verbs, defaults, refusals, lists, collection of garbage.

use std::pin::pin;

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{Event, Namespace, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::PartialObjectMeta;
use kube::runtime::watcher;
use kube::{Api, ResourceExt as _};
use serde_json::json;

use super::super::{Cluster, DeleteOptions, object, resource};
use super::{LONG, cluster, code, service, slice};

#[tokio::test]
async fn create_defaults_conflicts_and_preconditions() {
    let (_cluster, client) = cluster().await;
    let services: Api<Service> = Api::namespaced(client.clone(), "line1");
    let made = services
        .create(&PostParams::default(), &service("web"))
        .await
        .unwrap();
    let spec = made.spec.clone().unwrap();
    assert_eq!(spec.type_.as_deref(), Some("ClusterIP"));
    assert!(spec.cluster_ip.unwrap().starts_with("10.96."));
    assert_eq!(spec.ip_families.unwrap(), ["IPv4"]);

    let again = services
        .create(&PostParams::default(), &service("web"))
        .await;
    assert_eq!(code(&again.unwrap_err()), (409, "AlreadyExists".to_owned()));
    let nowhere: Api<Service> = Api::namespaced(client.clone(), "nowhere");
    let error = nowhere
        .create(&PostParams::default(), &service("web"))
        .await
        .unwrap_err();
    assert_eq!(code(&error), (404, "NotFound".to_owned()));

    // An update from an old version is refused; one from the newest is taken.
    let mut newer = made.clone();
    newer.labels_mut().insert("x".into(), "1".into());
    let newer = services
        .replace("web", &PostParams::default(), &newer)
        .await
        .unwrap();
    let error = services
        .replace("web", &PostParams::default(), &made)
        .await
        .unwrap_err();
    assert_eq!(code(&error), (409, "Conflict".to_owned()));

    // A patch that changes nothing makes no new version.
    let same = services
        .patch(
            "web",
            &PatchParams::default(),
            &Patch::Merge(json!({"metadata": {"labels": {"x": "1"}}})),
        )
        .await
        .unwrap();
    assert_eq!(same.resource_version(), newer.resource_version());

    let slices: Api<EndpointSlice> = Api::namespaced(client, "line1");
    let slice = slices
        .create(&PostParams::default(), &slice("web", "10.1.0.4"))
        .await
        .unwrap();
    let name = slice.name_any();
    assert!(name.starts_with("web-") && name.len() == 9, "{name}");
    let wrong = DeleteParams {
        preconditions: Some(Preconditions {
            uid: slice.uid(),
            resource_version: Some("1".into()),
        }),
        ..DeleteParams::default()
    };
    let error = slices.delete(&name, &wrong).await.unwrap_err();
    assert_eq!(code(&error), (409, "Conflict".to_owned()));
    let right = DeleteParams {
        preconditions: Some(Preconditions {
            uid: slice.uid(),
            resource_version: slice.resource_version(),
        }),
        ..DeleteParams::default()
    };
    let status = slices.delete(&name, &right).await.unwrap().right().unwrap();
    assert_eq!(status.details.unwrap().uid, slice.uid().unwrap());
    let error = slices.get(&name).await.unwrap_err();
    assert_eq!(code(&error), (404, "NotFound".to_owned()));
}

#[tokio::test]
async fn slice_generation_follows_content_and_labels_only() {
    let (cluster, client) = cluster().await;
    let slices: Api<EndpointSlice> = Api::namespaced(client, "line1");
    let made = slices
        .create(&PostParams::default(), &slice("web", "10.1.0.4"))
        .await
        .unwrap();
    let name = made.name_any();
    let generation = |patch: serde_json::Value| {
        let patched = cluster
            .patch(&resource::ENDPOINT_SLICES, "line1", &name, &patch)
            .unwrap();
        object::generation(&patched)
    };
    assert_eq!(made.metadata.generation, Some(1));
    assert_eq!(
        generation(json!({"metadata": {"annotations": {"a": "1"}, "finalizers": ["x/y"]}})),
        1
    );
    assert_eq!(generation(json!({"metadata": {"labels": {"a": "1"}}})), 2);
    assert_eq!(
        generation(
            json!({"endpoints": [{"addresses": ["10.1.0.5"], "conditions": {"ready": true}}]})
        ),
        3
    );
    let immutable = json!({"addressType": "IPv6"});
    let refused = cluster.patch(&resource::ENDPOINT_SLICES, "line1", &name, &immutable);
    assert_eq!(refused.unwrap_err().code, 422);

    // The finalizer holds the slice until it is taken away.
    slices
        .delete(&name, &DeleteParams::default())
        .await
        .unwrap();
    let held = slices.get(&name).await.unwrap();
    assert!(held.metadata.deletion_timestamp.is_some());
    assert_eq!(held.metadata.generation, Some(4));
    cluster
        .patch(
            &resource::ENDPOINT_SLICES,
            "line1",
            &name,
            &json!({"metadata": {"finalizers": null}}),
        )
        .unwrap();
    assert_eq!(code(&slices.get(&name).await.unwrap_err()).0, 404);
}

#[tokio::test]
async fn a_pod_ends_with_grace_and_status_is_written_apart() {
    let (cluster, client) = cluster().await;
    let pods: Api<Pod> = Api::namespaced(client, "line1");
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "a", "labels": {"app": "web"}},
        "spec": {"nodeName": "edge-7", "containers": [{"name": "c", "image": "i"}]},
        "status": {"phase": "Running"},
    }))
    .unwrap();
    let made = pods.create(&PostParams::default(), &pod).await.unwrap();
    assert_eq!(made.status.unwrap().phase.as_deref(), Some("Pending"));
    let running = json!({"status": {"phase": "Running", "podIP": "10.1.0.4"},
        "spec": {"nodeName": "other"}});
    let running = pods
        .patch_status("a", &PatchParams::default(), &Patch::Merge(running))
        .await
        .unwrap();
    assert_eq!(running.status.unwrap().phase.as_deref(), Some("Running"));
    assert_eq!(running.spec.unwrap().node_name.as_deref(), Some("edge-7"));

    let ending = pods.delete("a", &DeleteParams::default()).await.unwrap();
    let ending = ending.left().unwrap();
    assert_eq!(ending.metadata.deletion_grace_period_seconds, Some(30));
    assert!(pods.get_opt("a").await.unwrap().is_some());
    cluster
        .delete(&resource::PODS, "line1", "a", &DeleteOptions::now())
        .unwrap();
    assert!(pods.get_opt("a").await.unwrap().is_none());
}

#[tokio::test]
async fn a_chunked_list_is_one_snapshot() {
    let (cluster, client) = cluster().await;
    let services: Api<Service> = Api::namespaced(client, "line1");
    for n in 0..7 {
        let service = service(&format!("s{n}"));
        services
            .create(&PostParams::default(), &service)
            .await
            .unwrap();
    }
    let mut page = ListParams::default().limit(3);
    let first = services.list(&page).await.unwrap();
    assert_eq!(first.metadata.remaining_item_count, Some(4));
    services
        .delete("s5", &DeleteParams::default())
        .await
        .unwrap();
    services
        .create(&PostParams::default(), &service("s55"))
        .await
        .unwrap();
    let mut names: Vec<_> = first.items.iter().map(Service::name_any).collect();
    let mut token = first.metadata.continue_;
    while let Some(next) = token {
        page.continue_token = Some(next);
        let more = services.list(&page).await.unwrap();
        assert_eq!(
            more.metadata.resource_version,
            first.metadata.resource_version
        );
        names.extend(more.items.iter().map(Service::name_any));
        token = more.metadata.continue_;
    }
    assert_eq!(names, ["s0", "s1", "s2", "s3", "s4", "s5", "s6"]);

    let first = services
        .list(&ListParams::default().limit(3))
        .await
        .unwrap();
    cluster.compact();
    page.continue_token = first.metadata.continue_;
    let error = services.list(&page).await.unwrap_err();
    assert_eq!(code(&error), (410, "Expired".to_owned()));

    let labelled = ListParams::default().labels("app in (s1,s2),gone!=x");
    assert_eq!(services.list(&labelled).await.unwrap().items.len(), 2);
    let named = ListParams::default().fields("metadata.name=s3");
    assert_eq!(services.list(&named).await.unwrap().items.len(), 1);
}

#[tokio::test]
async fn garbage_goes_with_its_owner_and_a_namespace_with_its_contents() {
    let (cluster, client) = cluster().await;
    let services: Api<Service> = Api::namespaced(client.clone(), "line1");
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), "line1");
    let owner = services
        .create(&PostParams::default(), &service("web"))
        .await
        .unwrap();
    let mut owned = slice("web", "10.1.0.4");
    owned.metadata.owner_references = Some(vec![
        serde_json::from_value(json!({"apiVersion": "v1", "kind": "Service", "name": "web",
            "uid": owner.uid(), "controller": true}))
        .unwrap(),
    ]);
    slices.create(&PostParams::default(), &owned).await.unwrap();
    let gone = |cluster: &Cluster| {
        let left = cluster.list(&resource::ENDPOINT_SLICES, Some("line1"));
        left.is_empty().then_some(())
    };

    // While the collector is off, a recreated Service stands beside slices of its predecessor.
    cluster.set_garbage_collector(false);
    services
        .delete("web", &DeleteParams::default())
        .await
        .unwrap();
    services
        .create(&PostParams::default(), &service("web"))
        .await
        .unwrap();
    assert_eq!(gone(&cluster), None);
    cluster.set_garbage_collector(true);
    cluster.wait_for(LONG, gone).await.unwrap();

    let namespaces: Api<Namespace> = Api::all(client);
    namespaces
        .delete("line1", &DeleteParams::default())
        .await
        .unwrap();
    cluster
        .wait_for(LONG, |c| {
            c.get(&resource::NAMESPACES, "", "line1")
                .is_none()
                .then_some(())
        })
        .await
        .unwrap();
    assert!(
        services
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
            .is_empty()
    );
}

#[tokio::test]
async fn events_are_one_store_under_two_groups_and_metadata_comes_alone() {
    let (_cluster, client) = cluster().await;
    let new: Api<k8s_openapi::api::events::v1::Event> = Api::namespaced(client.clone(), "line1");
    let event = serde_json::from_value(json!({
        "metadata": {"name": "e"}, "eventTime": "2026-11-30T10:00:00.000000Z", "note": "healed",
        "regarding": {"kind": "Service", "name": "web"}, "reason": "Healed",
        "reportingController": "slice-healer", "reportingInstance": "x", "action": "Heal",
        "type": "Normal"}))
    .unwrap();
    new.create(&PostParams::default(), &event).await.unwrap();
    let core: Api<Event> = Api::namespaced(client.clone(), "line1");
    let seen = core.get("e").await.unwrap();
    assert_eq!(seen.message.as_deref(), Some("healed"));
    assert_eq!(seen.involved_object.name.as_deref(), Some("web"));

    let services: Api<Service> = Api::namespaced(client.clone(), "line1");
    services
        .create(&PostParams::default(), &service("web"))
        .await
        .unwrap();
    let listed = services
        .list_metadata(&ListParams::default())
        .await
        .unwrap();
    assert_eq!(listed.items[0].name_any(), "web");
    let metadata: Api<PartialObjectMeta<Service>> = Api::namespaced(client, "line1");
    let stream = watcher(metadata, watcher::Config::default());
    let mut first = pin!(stream.try_filter_map(async |event| Ok(match event {
        watcher::Event::InitApply(object) => Some(object.name_any()),
        _ => None,
    })));
    let seen = tokio::time::timeout(LONG, first.next()).await.unwrap();
    assert_eq!(seen.unwrap().unwrap(), "web");
}
