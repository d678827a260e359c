//! A seeded generator of Services, pods and nodes with everything that the slice controller's
//! answer depends on, and a writer that puts them into a cluster. The seed alone decides what is
//! made; it judges nothing.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use futures::stream::{self, TryStreamExt as _};
use http::Request;
use kube::Client;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Value, json};

/// Requests at a time.
const AT_ONCE: usize = 24;
/// One Service selects this many pods: more than one slice holds.
const MANY: usize = 130;

/// A cluster that was thought up.
pub struct Plan {
    rng: StdRng,
    namespace: String,
    /// Nodes, by name.
    pub nodes: Vec<Value>,
    /// Services.
    pub services: Vec<Value>,
    /// Endpoints objects of Services without a selector.
    pub endpoints: Vec<Value>,
    /// Pods with the status that a kubelet would write, and whether they are to be terminating.
    pub pods: Vec<(Value, bool)>,
}

impl Plan {
    /// Thinks up a cluster.
    pub fn new(seed: u64, namespace: &str, services: usize) -> Self {
        let mut plan = Self {
            rng: StdRng::seed_from_u64(seed),
            namespace: namespace.to_owned(),
            nodes: Vec::new(),
            services: Vec::new(),
            endpoints: Vec::new(),
            pods: Vec::new(),
        };
        for n in 0..6 {
            let node = plan.node(n);
            plan.nodes.push(node);
        }
        // Apps overlap: about three pods each, several Services for some of them.
        let apps = services.div_ceil(2).max(2);
        for n in 0..apps * 3 {
            let pod = plan.pod(&format!("pod-{n}"), n % apps);
            plan.pods.push(pod);
        }
        for n in 0..MANY {
            let mut pod = plan.pod(&format!("many-{n}"), apps);
            pod.0["metadata"]["labels"]["app"] = json!("many");
            plan.pods.push(pod);
        }
        for n in 0..services {
            plan.service(n, apps);
        }
        plan
    }

    fn one_in(&mut self, n: u32) -> bool {
        self.rng.random_range(0..n) == 0
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from.get(self.rng.random_range(0..from.len()))
            .copied()
            .unwrap_or_default()
    }

    fn node(&mut self, n: usize) -> Value {
        let name = format!("{}-n{n}", self.namespace);
        let mut labels = json!({"kubernetes.io/hostname": name});
        // Half of the nodes are in no zone.
        if n.is_multiple_of(2) {
            labels["topology.kubernetes.io/zone"] = json!(format!("z{}", n / 2));
        }
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": labels},
            "status": {
                "addresses": [{"type": "InternalIP", "address": format!("172.16.0.{}", n + 1)}],
                "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            },
        })
    }

    fn pod(&mut self, name: &str, app: usize) -> (Value, bool) {
        let number = self.pods.len();
        let (high, low) = (number / 250, number % 250 + 1);
        // One node in twelve does not exist.
        let node = match self.rng.random_range(0..12_usize) {
            11 => format!("{}-lost", self.namespace),
            n => format!("{}-n{}", self.namespace, n % 6),
        };
        let host = self.one_in(12);
        let v4 = if host {
            format!("172.16.0.{}", node.bytes().last().unwrap_or(b'1') % 6 + 1)
        } else {
            format!("10.{}.{high}.{low}", 1 + high / 250)
        };
        let v6 = format!("fd00:1::{:x}", number + 1);
        let ips: Vec<String> = match self.rng.random_range(0..4) {
            0 => vec![v4, v6],
            1 if self.one_in(3) => vec![],
            2 if self.one_in(4) => vec![v6],
            _ => vec![v4],
        };
        let phase = match self.rng.random_range(0..20) {
            0 => "Succeeded",
            1 => "Failed",
            2 => "Pending",
            3 => "Unknown",
            _ => "Running",
        };
        let gated = self.one_in(8);
        let gate_open = !gated || self.one_in(2);
        let containers_ready = !self.one_in(4);
        let ready = containers_ready && gate_open;
        let mut ports = vec![];
        for (port, number) in [("http", 8080), ("metrics", 9100)] {
            if !self.one_in(3) {
                // A rollout that changes ports leaves pods with either number.
                let number = if self.one_in(4) { number + 1 } else { number };
                ports.push(json!({"name": port, "containerPort": number, "protocol": "TCP"}));
            }
        }
        if self.one_in(4) {
            ports.push(json!({"name": "dns", "containerPort": 5353, "protocol": "UDP"}));
        }
        let mut spec = json!({
            "nodeName": node,
            "terminationGracePeriodSeconds": 3600,
            "containers": [{"name": "main", "image": "registry.invalid/main:1", "ports": ports}],
        });
        if self.one_in(5) {
            spec["initContainers"] = json!([{
                "name": "side", "image": "registry.invalid/side:1", "restartPolicy": "Always",
                "ports": [{"name": "side", "containerPort": 15020, "protocol": "TCP"}],
            }]);
        }
        if host {
            spec["hostNetwork"] = json!(true);
            for port in spec["containers"][0]["ports"]
                .as_array_mut()
                .into_iter()
                .flatten()
            {
                port["hostPort"] = port["containerPort"].clone();
            }
            for container in spec["initContainers"].as_array_mut().into_iter().flatten() {
                container["ports"][0]["hostPort"] = json!(15020);
            }
        }
        if gated {
            spec["readinessGates"] = json!([{"conditionType": "example.com/gate"}]);
        }
        if self.one_in(3) {
            spec["hostname"] = json!(name);
            // Of a Service that may exist, and may be headless.
            spec["subdomain"] = json!(format!("svc-{app}"));
        }
        let truth = |yes: bool| if yes { "True" } else { "False" };
        let status = json!({
            "phase": phase,
            "podIP": ips.first(),
            "podIPs": ips.iter().map(|ip| json!({"ip": ip})).collect::<Vec<_>>(),
            "conditions": [
                {"type": "Ready", "status": truth(ready)},
                {"type": "ContainersReady", "status": truth(containers_ready)},
                {"type": "example.com/gate", "status": truth(gate_open)},
            ],
        });
        let tier = self.pick(&["front", "back"]);
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": name, "namespace": self.namespace,
                "labels": {"app": format!("app-{app}"), "tier": tier},
            },
            "spec": spec, "status": status,
        });
        let terminating = self.one_in(8);
        (pod, terminating)
    }

    fn service(&mut self, n: usize, apps: usize) {
        let name = format!("svc-{n}");
        let mut selector = json!({"app": format!("app-{}", self.rng.random_range(0..apps))});
        if self.one_in(4) {
            selector["tier"] = json!(self.pick(&["front", "back", "none"]));
        }
        if n == 0 {
            selector = json!({"app": "many"});
        }
        let mut ports = vec![];
        let targets = [
            json!(8080),
            json!("http"),
            json!("metrics"),
            json!("side"),
            json!("none"),
        ];
        for at in 0..self.rng.random_range(1..4_usize) {
            let target = targets[self.rng.random_range(0..targets.len())].clone();
            let mut port = json!({
                "name": format!("p{at}"), "port": 80 + at, "targetPort": target, "protocol": "TCP",
            });
            if self.one_in(4) {
                port["appProtocol"] = json!("kubernetes.io/h2c");
            }
            ports.push(port);
        }
        if self.one_in(5) {
            ports.push(json!({"name": "dns", "port": 53, "targetPort": "dns", "protocol": "UDP"}));
        }
        let mut spec = json!({"selector": selector, "ports": ports});
        let headless = self.one_in(4);
        if headless {
            spec["clusterIP"] = json!("None");
            if self.one_in(3) {
                spec["ports"] = json!([]);
            }
        }
        match self.rng.random_range(0..4) {
            0 => {
                spec["ipFamilyPolicy"] = json!("RequireDualStack");
                spec["ipFamilies"] = json!(["IPv4", "IPv6"]);
            }
            1 if self.one_in(2) => spec["ipFamilies"] = json!(["IPv6"]),
            _ => {}
        }
        if self.one_in(5) {
            spec["publishNotReadyAddresses"] = json!(true);
        }
        if self.one_in(4) {
            let how = self.pick(&["PreferClose", "PreferSameZone", "PreferSameNode"]);
            spec["trafficDistribution"] = json!(how);
        }
        let mut labels = BTreeMap::from([("team", "a")]);
        if self.one_in(3) {
            labels.insert("line", "1");
        }
        let mut metadata = json!({"name": name, "namespace": self.namespace, "labels": labels});
        if self.one_in(10) {
            metadata["annotations"] = json!({"service.kubernetes.io/topology-mode": "Auto"});
        }
        if n > 0 && self.one_in(10) {
            if let Some(spec) = spec.as_object_mut() {
                spec.remove("selector");
            }
            self.endpoints(&name, &metadata);
        }
        self.services.push(
            json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}),
        );
    }

    fn endpoints(&mut self, name: &str, metadata: &Value) {
        let address = |n: usize| json!({"ip": format!("192.168.9.{n}")});
        let mut labels = metadata["labels"].clone();
        if self.one_in(5) {
            labels["endpointslice.kubernetes.io/skip-mirror"] = json!("true");
        }
        let first = self.rng.random_range(1..100);
        self.endpoints.push(json!({
            "apiVersion": "v1", "kind": "Endpoints",
            "metadata": {"name": name, "namespace": self.namespace, "labels": labels},
            "subsets": [
                {"addresses": [address(first), address(first + 1)],
                 "notReadyAddresses": [address(first + 2)],
                 "ports": [{"name": "a", "port": 8080, "protocol": "TCP"}]},
                {"addresses": [address(first + 3)],
                 "ports": [{"name": "a", "port": 8081, "protocol": "TCP"}]},
            ],
        }));
    }

    /// Writes everything into a cluster: half of the Services before the pods, half after.
    ///
    /// # Errors
    /// What the API server refuses.
    pub async fn write(&self, client: &Client) -> Result<()> {
        let core = "/api/v1";
        let space = format!("{core}/namespaces/{}", self.namespace);
        let (before, after) = self.services.split_at(self.services.len() / 2);
        each(&self.nodes, async |node| {
            create(client, &format!("{core}/nodes"), node).await?;
            status(client, &format!("{core}/nodes"), node).await
        })
        .await?;
        let services = format!("{space}/services");
        each(before, async |service| {
            create(client, &services, service).await
        })
        .await?;
        each(&self.pods, async |(pod, terminating)| {
            let pods = format!("{space}/pods");
            create(client, &pods, pod).await?;
            status(client, &pods, pod).await?;
            if *terminating {
                let uri = format!("{pods}/{}", name(pod));
                send(client, "DELETE", &uri, "application/json", &json!({})).await?;
            }
            Ok(())
        })
        .await?;
        each(after, async |service| {
            create(client, &services, service).await
        })
        .await?;
        let endpoints = format!("{space}/endpoints");
        each(&self.endpoints, async |object| {
            create(client, &endpoints, object).await
        })
        .await
    }

    /// Changes a part of what is there: selectors, ports, readiness, pods that go and come.
    ///
    /// # Errors
    /// What the API server refuses.
    pub async fn roll(&mut self, client: &Client) -> Result<()> {
        let space = format!("/api/v1/namespaces/{}", self.namespace);
        let mut patches = Vec::new();
        for n in 0..self.services.len() {
            let uri = format!("{space}/services/{}", name(&self.services[n]));
            let selects = self.services[n]["spec"].get("selector").is_some();
            match self.rng.random_range(0..8) {
                0 if selects => {
                    let app = format!("app-{}", self.rng.random_range(0..self.services.len() / 2));
                    patches.push((uri, json!({"spec": {"selector": {"app": app}}})));
                }
                1 => patches.push((uri, json!({"metadata": {"labels": {"team": "b"}}}))),
                2 if selects => {
                    patches.push((uri, json!({"spec": {"publishNotReadyAddresses": true}})));
                }
                _ => {}
            }
        }
        let mut gone = Vec::new();
        for n in 0..self.pods.len() {
            let pod = name(&self.pods[n].0);
            let uri = format!("{space}/pods/{pod}");
            match self.rng.random_range(0..8) {
                0 => gone.push(uri),
                1 => {
                    let truth = if self.one_in(2) { "True" } else { "False" };
                    let conditions = json!([
                        {"type": "Ready", "status": truth},
                        {"type": "ContainersReady", "status": truth},
                    ]);
                    let status = json!({"status": {"conditions": conditions}});
                    patches.push((format!("{uri}/status"), status));
                }
                2 => {
                    let tier = self.pick(&["front", "back"]);
                    patches.push((uri, json!({"metadata": {"labels": {"tier": tier}}})));
                }
                _ => {}
            }
        }
        each(&patches, async |(uri, patch)| {
            send(
                client,
                "PATCH",
                uri,
                "application/strategic-merge-patch+json",
                patch,
            )
            .await
        })
        .await?;
        each(&gone, async |uri| {
            let now = json!({"gracePeriodSeconds": 0});
            send(client, "DELETE", uri, "application/json", &now).await
        })
        .await
    }
}

/// Every object that is judged, as a list each.
///
/// # Errors
/// What the API server refuses.
pub async fn dump(client: &Client, namespace: &str) -> Result<Vec<Value>> {
    let space = format!("namespaces/{namespace}");
    let mut lists = Vec::new();
    for path in [
        "/api/v1/nodes".to_owned(),
        format!("/api/v1/{space}/services"),
        format!("/api/v1/{space}/pods"),
        format!("/api/v1/{space}/endpoints"),
        format!("/apis/discovery.k8s.io/v1/{space}/endpointslices"),
    ] {
        let request = Request::get(&path).body(Vec::new())?;
        let mut list: Value = client.request(request).await.context(path)?;
        // Half of a dump is bookkeeping that nobody judges.
        for item in list["items"].as_array_mut().into_iter().flatten() {
            if let Some(meta) = item["metadata"].as_object_mut() {
                meta.remove("managedFields");
            }
        }
        lists.push(list);
    }
    Ok(lists)
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

async fn create(client: &Client, collection: &str, object: &Value) -> Result<()> {
    send(client, "POST", collection, "application/json", object).await
}

async fn status(client: &Client, collection: &str, object: &Value) -> Result<()> {
    let uri = format!("{collection}/{}/status", name(object));
    let patch = json!({"status": object["status"]});
    send(
        client,
        "PATCH",
        &uri,
        "application/merge-patch+json",
        &patch,
    )
    .await
}

async fn send(client: &Client, method: &str, uri: &str, kind: &str, body: &Value) -> Result<()> {
    let request = Request::builder()
        .method(method)
        .uri(uri)
        .header("content-type", kind)
        .body(serde_json::to_vec(body)?)?;
    match client.request::<Value>(request).await {
        // A finished pod goes at once when it is deleted, whatever its grace.
        Err(kube::Error::Api(status)) if status.code == 404 && uri.contains("/pods/") => Ok(()),
        answer => answer.map(drop).with_context(|| format!("{method} {uri}")),
    }
}

async fn each<T>(all: &[T], act: impl AsyncFn(&T) -> Result<()>) -> Result<()> {
    stream::iter(all.iter().map(Ok))
        .try_for_each_concurrent(AT_ONCE, |one| act(one))
        .await
}
