//! Findings that depend on settings, or on the node that the judge runs on: what `inspect -f` of the
//! catalogue cannot show.

use jiff::Timestamp;
use serde_json::{Value, json};
use slice_core::judge::{Finding, FindingKind, JudgeContext, RemedyAction, Severity, judge_world};
use slice_core::model::{Endpoints, Kind, Node, Pod, ServerVersion, Service, Slice, World};

/// Two nodes and one pod on the first.
struct Cluster {
    world: World,
    service: Value,
}

fn cluster(spec: &Value) -> Cluster {
    let mut world = World::default();
    for kind in Kind::ALL {
        world.set_seen(kind, true);
    }
    for name in ["edge-1", "edge-2"] {
        world.apply(decode::<Node>(json!({
            "metadata": {"name": name, "uid": name},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        })));
    }
    let mut service = json!({
        "metadata": {"name": "model", "namespace": "line1", "uid": "service"},
        "spec": {"type": "ClusterIP", "clusterIP": "10.96.0.10", "ipFamilies": ["IPv4"],
            "selector": {"app": "model"},
            "ports": [{"name": "http", "protocol": "TCP", "port": 80, "targetPort": 8080}]},
    });
    for (key, value) in spec.as_object().into_iter().flatten() {
        service["spec"][key] = value.clone();
    }
    world.apply(decode::<Service>(service.clone()));
    world.apply(decode::<Pod>(json!({
        "metadata": {"name": "model-1", "namespace": "line1", "uid": "pod", "labels": {"app": "model"}},
        "spec": {"nodeName": "edge-1", "containers": [{"name": "m", "image": "model:2"}]},
        "status": {"phase": "Running", "podIP": "10.244.1.1", "podIPs": [{"ip": "10.244.1.1"}],
            "conditions": [{"type": "Ready", "status": "True"}]},
    })));
    let mut cluster = Cluster { world, service };
    cluster.slice("model-a", "IPv4", "10.244.1.1");
    cluster
}

impl Cluster {
    fn slice(&mut self, name: &str, family: &str, address: &str) {
        let slice = self.like_controller(name, family, address);
        self.world.apply(decode::<Slice>(slice));
    }

    fn like_controller(&self, name: &str, family: &str, address: &str) -> Value {
        let mut slice = json!({
            "metadata": {"name": name, "namespace": "line1", "uid": name,
                "labels": {"kubernetes.io/service-name": "model",
                    "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"},
                "ownerReferences": [{"apiVersion": "v1", "kind": "Service", "name": "model",
                    "uid": "service", "controller": true}]},
            "addressType": family,
            "ports": [{"name": "http", "protocol": "TCP", "port": 8080}],
            "endpoints": [{"addresses": [address], "nodeName": "edge-1",
                "conditions": {"ready": true, "serving": true, "terminating": false},
                "targetRef": {"kind": "Pod", "namespace": "line1", "name": "model-1", "uid": "pod"}}],
        });
        if self.service["spec"]["clusterIP"] == "None" {
            slice["metadata"]["labels"]["service.kubernetes.io/headless"] = json!("");
        }
        slice
    }

    fn findings(&self, node: Option<&str>, delete_leftover: bool) -> Vec<Finding> {
        self.findings_on("v1.36.2", node, delete_leftover)
    }

    fn findings_on(
        &self,
        version: &str,
        node: Option<&str>,
        delete_leftover: bool,
    ) -> Vec<Finding> {
        let now: Timestamp = "2026-12-01T08:00:00Z".parse().unwrap();
        let ctx = JudgeContext {
            server: ServerVersion::parse(version),
            node: node.map(str::to_owned),
            delete_leftover,
            ..JudgeContext::at(now)
        };
        judge_world(&self.world, &ctx)
    }
}

fn decode<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn severity_of_no_local(spec: &Value, node: Option<&str>) -> Option<Severity> {
    let findings = cluster(spec).findings(node, false);
    assert!(findings.len() <= 1, "{findings:?}");
    findings.first().map(|f| {
        assert_eq!(f.kind, FindingKind::NoLocalEndpoint);
        assert_eq!(f.remedy.action, RemedyAction::None);
        f.severity
    })
}

#[test]
fn a_local_policy_is_held_against_the_node_that_judges() {
    let inside = json!({"internalTrafficPolicy": "Local"});
    let outside = json!({"type": "NodePort", "externalTrafficPolicy": "Local"});
    let warning = Some(Severity::Warning);
    for policy in [&inside, &outside] {
        assert_eq!(severity_of_no_local(policy, Some("edge-2")), warning);
        assert_eq!(severity_of_no_local(policy, Some("edge-1")), None);
    }
    // Without a node of one's own: clients in pods are there, those outside choose their node.
    assert_eq!(severity_of_no_local(&inside, None), Some(Severity::Info));
    assert_eq!(severity_of_no_local(&outside, None), None);
}

#[test]
fn a_local_policy_counts_only_where_it_has_an_effect() {
    for spec in [
        json!({"internalTrafficPolicy": "Cluster"}),
        json!({"type": "NodePort", "externalTrafficPolicy": "Cluster"}),
        // A field that is left from when the Service had a node port.
        json!({"externalTrafficPolicy": "Local"}),
        json!({"clusterIP": "None", "internalTrafficPolicy": "Local"}),
    ] {
        assert_eq!(severity_of_no_local(&spec, Some("edge-2")), None, "{spec}");
    }
}

#[test]
fn a_leftover_is_only_cured_where_the_settings_allow_it() {
    let mut given_up = cluster(&json!({}));
    given_up.slice("model-b", "IPv6", "fd00::1");
    let mut no_selector = cluster(&json!({}));
    let mut service = no_selector.service.clone();
    service["spec"].as_object_mut().unwrap().remove("selector");
    no_selector.world.apply(decode::<Service>(service));

    for (cluster, slice, cure) in [
        (&given_up, "model-b", RemedyAction::RefreshService),
        (&no_selector, "model-a", RemedyAction::DeleteSlice),
    ] {
        for (allowed, action) in [(false, RemedyAction::None), (true, cure)] {
            let findings = cluster.findings(None, allowed);
            let [finding] = &findings[..] else {
                panic!("not one finding: {findings:?}");
            };
            assert_eq!(finding.kind, FindingKind::LeftoverSlice);
            assert_eq!(finding.slice.as_deref(), Some(slice));
            assert_eq!(finding.remedy.action, action, "{}", finding.remedy.reason);
            assert!(!finding.remedy.reason.is_empty());
        }
    }
}

#[test]
fn an_ending_endpoint_gets_traffic_where_nothing_is_ready_for_one_of_its_ports() {
    let http = json!([{"name": "http", "protocol": "TCP", "port": 8080}]);
    let both = json!([{"name": "http", "protocol": "TCP", "port": 8080},
        {"name": "grpc", "protocol": "TCP", "port": 9090}]);
    let grpc = json!([{"name": "grpc", "protocol": "TCP", "port": 9090}]);
    let nowhere = json!([{"name": "grpc", "protocol": "TCP"}]);
    for (cluster_ip, ports, routed) in [
        ("10.96.0.10", &http, false),
        ("10.96.0.10", &both, true),
        ("10.96.0.10", &grpc, true),
        // Proxies leave a port without a number out.
        ("10.96.0.10", &nowhere, false),
        // DNS publishes only what is ready.
        ("None", &grpc, false),
    ] {
        // Without a selector the slices are leftovers, whose severity follows the traffic.
        let mut cluster = cluster(&json!({"clusterIP": cluster_ip}));
        let mut service = cluster.service.clone();
        service["spec"].as_object_mut().unwrap().remove("selector");
        cluster.world.apply(decode::<Service>(service));
        let mut slice = cluster.like_controller("model-b", "IPv4", "10.244.1.1");
        slice["ports"] = ports.clone();
        slice["endpoints"][0]["conditions"] =
            json!({"ready": false, "serving": true, "terminating": true});
        cluster.world.apply(decode::<Slice>(slice));

        let findings = cluster.findings(None, false);
        let ending = findings
            .iter()
            .find(|f| f.slice.as_deref() == Some("model-b"))
            .unwrap();
        let severity = if routed {
            Severity::Warning
        } else {
            Severity::Info
        };
        assert_eq!(
            ending.severity, severity,
            "{cluster_ip} {ports}: {ending:?}"
        );
    }
}

#[test]
fn the_legacy_object_lists_ports_of_sidecars_only_on_servers_that_know_them() {
    let mut cluster = cluster(&json!({"ports":
        [{"name": "http", "protocol": "TCP", "port": 80, "targetPort": "side"}]}));
    cluster.world.apply(decode::<Pod>(json!({
        "metadata": {"name": "model-1", "namespace": "line1", "uid": "pod", "labels": {"app": "model"}},
        "spec": {"nodeName": "edge-1", "containers": [{"name": "m", "image": "model:2"}],
            "initContainers": [{"name": "side", "image": "side:1", "restartPolicy": "Always",
                "ports": [{"name": "side", "containerPort": 8080, "protocol": "TCP"}]}]},
        "status": {"phase": "Running", "podIP": "10.244.1.1", "podIPs": [{"ip": "10.244.1.1"}],
            "conditions": [{"type": "Ready", "status": "True"}]},
    })));
    // What the controller writes where no pod has the port.
    cluster.world.apply(decode::<Endpoints>(json!({
        "metadata": {"name": "model", "namespace": "line1", "uid": "endpoints"},
    })));
    let mut old = cluster.like_controller("model-a", "IPv4", "10.244.1.1");
    for (version, ports, due) in [
        ("v1.32.2", json!([]), None),
        (
            "v1.33.0",
            old["ports"].clone(),
            Some(FindingKind::EndpointsDrift),
        ),
    ] {
        old["ports"] = ports;
        cluster.world.apply(decode::<Slice>(old.clone()));
        let findings = cluster.findings_on(version, None, false);
        let drift = findings
            .iter()
            .find(|f| f.kind == FindingKind::EndpointsDrift);
        assert_eq!(drift.map(|f| f.kind), due, "{version}: {findings:?}");
    }
}
