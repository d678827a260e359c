//! What a slice holds: selection, conditions, ports, families, placeholder, labels, fill.

use serde_json::{Value, json};

use super::super::super::resource::{ENDPOINT_SLICES, NODES, PODS, SERVICES};
use super::super::super::{DeleteOptions, Deployment, namespace, object};
use super::super::{ControllerOptions, TRIGGER_TIME};
use super::{Rig, addresses};

#[tokio::test]
async fn a_slice_names_pods_ports_labels_and_owner() {
    let rig = Rig::new().await;
    let slice = rig.deployed().await;
    assert_eq!(rig.addresses(), rig.pod_addresses());
    let service = rig
        .cluster
        .get(&SERVICES, "line1", "model-endpoint")
        .unwrap();
    assert!(object::name(&slice).starts_with("model-endpoint-"));
    assert_eq!(
        slice["metadata"]["labels"],
        json!({"app": "model-endpoint", "kubernetes.io/service-name": "model-endpoint",
            "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"})
    );
    assert_eq!(
        slice["metadata"]["ownerReferences"],
        json!([{"apiVersion": "v1", "kind": "Service", "name": "model-endpoint",
            "uid": object::uid(&service), "controller": true, "blockOwnerDeletion": true}])
    );
    assert_eq!(
        slice["ports"],
        json!([{"name": "http", "port": 8080, "protocol": "TCP"}])
    );
    assert!(object::annotation(&slice, TRIGGER_TIME).is_some());
    let endpoint = &slice["endpoints"][0];
    assert_eq!(
        endpoint["conditions"],
        json!({"ready": true, "serving": true, "terminating": false})
    );
    assert_eq!(endpoint["nodeName"], "edge-7");
    assert_eq!(endpoint["zone"], "z1");
    let pod = endpoint["targetRef"]["name"].as_str().unwrap();
    let pod = rig.cluster.get(&PODS, "line1", pod).unwrap();
    assert_eq!(endpoint["targetRef"]["uid"], object::uid(&pod));
}

#[tokio::test]
async fn conditions_follow_the_pod() {
    let rig = Rig::new().await;
    rig.deployed().await;
    let pods = rig.cluster.list(&PODS, Some("line1"));
    let conditions = |name: &str| -> Value {
        let slice = rig.only_slice();
        let endpoints = object::list(&slice["endpoints"]);
        let found = endpoints.iter().find(|e| e["targetRef"]["name"] == name);
        found.map_or(Value::Null, |e| e["conditions"].clone())
    };
    let patch = |name: &str, patch: Value| {
        rig.cluster.patch(&PODS, "line1", name, &patch).unwrap();
    };
    let names: Vec<_> = pods.iter().map(|pod| object::name(pod)).collect();

    // Terminating, still serving.
    rig.cluster
        .delete(&PODS, "line1", names[0], &DeleteOptions::default())
        .unwrap();
    // Not ready.
    let conditions_of = json!([{"type": "Ready", "status": "False"}]);
    patch(names[1], json!({"status": {"conditions": conditions_of}}));
    rig.settle().await;
    assert_eq!(
        conditions(names[0]),
        json!({"ready": false, "serving": true, "terminating": true})
    );
    assert_eq!(
        conditions(names[1]),
        json!({"ready": false, "serving": false, "terminating": false})
    );

    // A phase alone is no event; the next one takes the failed pod out.
    patch(names[2], json!({"status": {"phase": "Failed"}}));
    rig.settle().await;
    assert_eq!(conditions(names[2])["ready"], true);
    rig.touch("1");
    rig.settle().await;
    assert_eq!(conditions(names[2]), Value::Null);

    let publish = json!({"spec": {"publishNotReadyAddresses": true}});
    rig.cluster
        .patch(&SERVICES, "line1", "model-endpoint", &publish)
        .unwrap();
    rig.settle().await;
    assert_eq!(
        conditions(names[1]),
        json!({"ready": true, "serving": false, "terminating": false})
    );
}

#[tokio::test]
async fn a_missing_node_hides_its_pods_until_it_is_there() {
    let rig = Rig::new().await;
    rig.cluster.add_service("line1", "model-endpoint").unwrap();
    for node in ["edge-7", "edge-8"] {
        let mut deployment = Deployment::new("line1", "model-endpoint", "v2.0", 1, node);
        deployment.name = format!("model-{node}");
        rig.cluster.deploy(&deployment).unwrap();
    }
    rig.settle().await;
    assert_eq!(addresses(&rig.only_slice()).len(), 1);
    assert!(
        rig.log()[0].contains("Node edge-8 Not Found"),
        "{:?}",
        rig.log()
    );
    // A Node's arrival wakes nobody; the retry does.
    rig.cluster.add_node("edge-8", "").unwrap();
    rig.until(|rig| rig.addresses() == rig.pod_addresses())
        .await;
    assert!(rig.cluster.get(&NODES, "", "edge-8").is_some());
}

#[tokio::test]
async fn named_ports_make_groups_and_no_pod_makes_a_placeholder() {
    let rig = Rig::new().await;
    let slice = rig.deployed().await;
    let mut other = Deployment::new("line1", "other", "v2.0", 1, "edge-7");
    other.labels.insert("app".into(), "model-endpoint".into());
    other.port = 9090;
    rig.cluster.deploy(&other).unwrap();
    rig.settle().await;
    let mut groups: Vec<_> = rig
        .slices()
        .iter()
        .map(|s| (s["ports"][0]["port"].as_i64().unwrap(), addresses(s).len()))
        .collect();
    groups.sort_unstable();
    assert_eq!(groups, [(8080, 3), (9090, 1)]);
    assert!(
        rig.slices()
            .iter()
            .any(|s| object::name(s) == object::name(&slice))
    );

    for pod in rig.cluster.list(&PODS, Some("line1")) {
        rig.cluster.end_pod("line1", object::name(&pod)).unwrap();
    }
    rig.settle().await;
    let placeholder = rig.only_slice();
    assert_eq!(placeholder["ports"], json!([]));
    assert_eq!(addresses(&placeholder).len(), 0);
    // It is kept, not written again.
    rig.touch("1");
    rig.settle().await;
    assert_eq!(*rig.only_slice(), *placeholder);
}

#[tokio::test]
async fn each_family_has_its_slice() {
    let rig = Rig::new().await;
    rig.deployed().await;
    let dual = json!({"spec": {"ipFamilyPolicy": "PreferDualStack", "ipFamilies": ["IPv4", "IPv6"],
        "clusterIPs": null}});
    rig.cluster
        .patch(&SERVICES, "line1", "model-endpoint", &dual)
        .unwrap();
    rig.settle().await;
    let of = |family: &str| {
        let slices = rig.slices();
        let mut slices = slices.into_iter().filter(|s| s["addressType"] == family);
        let slice = slices.next().unwrap();
        assert!(slices.next().is_none());
        slice
    };
    assert_eq!(addresses(&of("IPv4")).len(), 3);
    assert_eq!(addresses(&of("IPv6")).len(), 0);
    let pod = &rig.cluster.list(&PODS, Some("line1"))[0];
    let ips = json!([{"ip": pod["status"]["podIP"]}, {"ip": "FD00:0::5"}]);
    let patch = json!({"status": {"podIPs": ips}});
    rig.cluster
        .patch(&PODS, "line1", object::name(pod), &patch)
        .unwrap();
    rig.settle().await;
    assert_eq!(addresses(&of("IPv6")), ["fd00::5"]);
    assert_eq!(addresses(&of("IPv4")).len(), 3);
}

#[tokio::test]
async fn slices_fill_up_and_do_not_rebalance() {
    let options = ControllerOptions {
        max_endpoints: 4,
        ..ControllerOptions::quick()
    };
    let rig = Rig::with(options).await;
    rig.cluster.add_service("line1", "model-endpoint").unwrap();
    let deployment = Deployment::new("line1", "model-endpoint", "v2.0", 10, "edge-7");
    rig.cluster.deploy(&deployment).unwrap();
    rig.settle().await;
    assert_eq!(rig.addresses(), rig.pod_addresses());
    assert!(rig.slices().iter().all(|s| addresses(s).len() <= 4));
    for pod in rig.cluster.list(&PODS, Some("line1")).iter().take(5) {
        rig.cluster.end_pod("line1", object::name(pod)).unwrap();
    }
    rig.settle().await;
    assert_eq!(rig.addresses(), rig.pod_addresses());

    // A second copy of an endpoint goes with the next sync.
    let slices = rig.slices();
    let full = slices.iter().find(|s| !addresses(s).is_empty()).unwrap();
    let mut copy = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"namespace": "line1", "name": "copy", "labels": full["metadata"]["labels"],
            "ownerReferences": full["metadata"]["ownerReferences"]},
        "addressType": "IPv4", "endpoints": full["endpoints"], "ports": full["ports"]});
    copy["endpoints"] = json!([full["endpoints"][0]]);
    rig.cluster.create(copy).unwrap();
    rig.until(|rig| {
        let count: usize = rig.slices().iter().map(|s| addresses(s).len()).sum();
        count == rig.pod_addresses().len() && rig.addresses() == rig.pod_addresses()
    })
    .await;
}

#[tokio::test]
async fn foreign_slices_and_services_out_of_scope_are_left_alone() {
    let rig = Rig::new().await;
    let slice = rig.deployed().await;
    let foreign = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"namespace": "line1", "name": "own",
            "labels": {"kubernetes.io/service-name": "model-endpoint"}},
        "addressType": "IPv4", "endpoints": [{"addresses": ["10.9.9.9"]}], "ports": []});
    let foreign = rig.cluster.create(foreign).unwrap();
    rig.touch("1");
    rig.settle().await;
    let get = |name: &str| rig.cluster.get(&ENDPOINT_SLICES, "line1", name).unwrap();
    assert_eq!(*get("own"), *foreign);
    assert_eq!(*get(object::name(&slice)), *slice);

    // Without a selector nothing is made and nothing is cleaned.
    let none = json!({"spec": {"selector": null}});
    rig.cluster
        .patch(&SERVICES, "line1", "model-endpoint", &none)
        .unwrap();
    rig.cluster
        .redeploy("line1", "model-endpoint", "v2.1")
        .unwrap();
    rig.settle().await;
    assert_eq!(*get(object::name(&slice)), *slice);

    // The API server's own Service is none of its business.
    rig.cluster.create(namespace("line2")).unwrap();
    assert_eq!(rig.cluster.slices_of("default", "kubernetes").len(), 1);
}
