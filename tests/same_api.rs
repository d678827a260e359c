//! The lab's API server answers as the real one does, to everything that slice-healer asks of it.
//!
//! One script of requests is sent to both; the transcripts must be equal but for what any two
//! clusters differ in (uids, versions, times, addresses). The lab is only worth as much as this.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _};
use http::Method;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Client;
use kube::api::{Api, WatchEvent, WatchParams};
use serde_json::{Value, json};

use crate::support::cluster::{TestCluster, call};

/// What differs between any two clusters, or is not the lab's business.
const VOLATILE: [&str; 10] = [
    "clusterIP",
    "clusterIPs",
    "continue",
    "creationTimestamp",
    "deletionTimestamp",
    "managedFields",
    "message",
    "namespace",
    "resourceVersion",
    "uid",
];

/// One cluster, and what it has answered so far.
struct Side {
    client: Client,
    namespace: String,
    transcript: Vec<String>,
}

impl Side {
    async fn new(cluster: &TestCluster) -> Result<Self> {
        Ok(Self {
            client: cluster.client().await?,
            namespace: cluster.namespace("same").await?,
            transcript: Vec::new(),
        })
    }

    /// Sends a request and notes the answer under `what`; returns it as it was.
    async fn ask(&mut self, what: &str, method: Method, path: &str, body: Value) -> Result<Value> {
        let (group, rest) = path.split_once(' ').context("group and rest")?;
        let path = format!("{group}/namespaces/{}/{rest}", self.namespace);
        let body = Some(&body).filter(|body| !body.is_null());
        let (status, answer) = call(&self.client, method, &path, body).await?;
        let mut shown = answer.clone();
        calm(&mut shown);
        self.transcript
            .push(format!("{what}: {} {shown:#}", status.as_u16()));
        Ok(answer)
    }
}

/// Puts what differs anywhere to the same text: that it is there still counts.
fn calm(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (key, inner) in map.iter_mut() {
                if VOLATILE.contains(&key.as_str()) {
                    *inner = json!("…");
                } else {
                    calm(inner);
                }
            }
            // Who wrote which field is of no interest to us, and the lab does not keep it.
            map.remove("managedFields");
        }
        Value::Array(list) => list.iter_mut().for_each(calm),
        _ => {}
    }
}

/// Runs `script` on both clusters and compares what they said, step by step.
async fn same(script: impl AsyncFn(&mut Side) -> Result<()>) -> Result<()> {
    let mut transcripts = Vec::new();
    for cluster in [TestCluster::lab().await?, TestCluster::real().await?] {
        let mut side = Side::new(&cluster).await?;
        let ran = script(&mut side).await;
        ran.with_context(|| format!("on {}: {:#?}", cluster.name(), side.transcript.last()))?;
        transcripts.push(side.transcript);
    }
    let (lab, real) = (&transcripts[0], &transcripts[1]);
    ensure!(
        lab.len() == real.len() && !lab.is_empty(),
        "not the same steps"
    );
    let steps = lab.iter().zip(real).filter(|(lab, real)| lab != real);
    let differ: Vec<String> = steps
        .map(|(lab, real)| format!("the lab says\n{lab}\nand the real one\n{real}"))
        .collect();
    ensure!(differ.is_empty(), "{}", differ.join("\n\n"));
    Ok(())
}

const CORE: &str = "/api/v1";
const DISCOVERY: &str = "/apis/discovery.k8s.io/v1";
const LEASES: &str = "/apis/coordination.k8s.io/v1";

fn service() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "model", "labels": {"app": "model"}},
        "spec": {"selector": {"app": "model"}, "ports": [{"name": "http", "port": 80}]},
    })
}

/// A slice of somebody's own, so that no controller has a say in it.
fn slice(name: &str) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": "elsewhere"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.9.9.9"], "conditions": {"ready": true}}],
        "ports": [{"name": "http", "port": 80, "protocol": "TCP"}],
    })
}

#[tokio::test]
async fn services_are_made_patched_and_refused_alike() -> Result<()> {
    same(async |side| {
        let (all, one) = (format!("{CORE} services"), format!("{CORE} services/model"));
        side.ask("make", Method::POST, &all, service()).await?;
        side.ask("make twice", Method::POST, &all, service())
            .await?;
        let made = side.ask("read", Method::GET, &one, Value::Null).await?;
        let refresh = json!({"metadata": {"annotations": {"slice-healer.io/refresh": "1"}}});
        let patched = side
            .ask("refresh", Method::PATCH, &one, refresh.clone())
            .await?;
        let again = side
            .ask("refresh with the same", Method::PATCH, &one, refresh)
            .await?;
        let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
        ensure!(version(&patched) != version(&made), "a refresh is a write");
        ensure!(
            version(&patched) == version(&again),
            "the same value is none"
        );
        let old = json!({"metadata": {"resourceVersion": version(&made), "labels": {"a": "b"}}});
        side.ask("patch of an old version", Method::PATCH, &one, old)
            .await?;
        side.ask("put of an old version", Method::PUT, &one, made)
            .await?;
        let nobody = format!("{CORE} services/nobody");
        side.ask("read nobody", Method::GET, &nobody, Value::Null)
            .await?;
        side.ask(
            "patch nobody",
            Method::PATCH,
            &nobody,
            json!({"metadata": {}}),
        )
        .await?;
        side.ask("delete nobody", Method::DELETE, &nobody, Value::Null)
            .await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn the_generation_of_a_slice_follows_its_content_and_labels_alike() -> Result<()> {
    same(async |side| {
        let (all, one) = (
            format!("{DISCOVERY} endpointslices"),
            "endpointslices/custom",
        );
        let one = format!("{DISCOVERY} {one}");
        side.ask("make", Method::POST, &all, slice("custom"))
            .await?;
        let steps = [
            ("annotate", json!({"metadata": {"annotations": {"a": "b"}}})),
            ("label", json!({"metadata": {"labels": {"a": "b"}}})),
            (
                "change",
                json!({"endpoints": [{"addresses": ["10.9.9.8"]}]}),
            ),
            (
                "keep",
                json!({"metadata": {"finalizers": ["example.com/keep"]}}),
            ),
            (
                "remove a label",
                json!({"metadata": {"labels": {"a": null}}}),
            ),
            ("another family", json!({"addressType": "IPv6"})),
        ];
        for (what, patch) in steps {
            side.ask(what, Method::PATCH, &one, patch).await?;
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_slice_is_deleted_under_preconditions_alike() -> Result<()> {
    same(async |side| {
        let (all, one) = (format!("{DISCOVERY} endpointslices"), "endpointslices/custom");
        let one = format!("{DISCOVERY} {one}");
        let made = side.ask("make", Method::POST, &all, slice("custom")).await?;
        let change = json!({"metadata": {"annotations": {"a": "b"}}});
        let changed = side.ask("change", Method::PATCH, &one, change).await?;
        let only_if = |uid: &Value, version: &Value| {
            json!({"preconditions": {"uid": uid, "resourceVersion": version}})
        };
        let (uid, old) = (&made["metadata"]["uid"], &made["metadata"]["resourceVersion"]);
        let new = &changed["metadata"]["resourceVersion"];
        let foreign = json!("00000000-0000-4000-8000-000000000000");
        side.ask("wrong uid", Method::DELETE, &one, only_if(&foreign, new)).await?;
        side.ask("old version", Method::DELETE, &one, only_if(uid, old)).await?;
        side.ask("right", Method::DELETE, &one, only_if(uid, new)).await?;
        side.ask("gone", Method::GET, &one, Value::Null).await?;
        side.ask("once more", Method::DELETE, &one, only_if(uid, new)).await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_finalizer_holds_a_slice_alike() -> Result<()> {
    same(async |side| {
        let (all, one) = (
            format!("{DISCOVERY} endpointslices"),
            "endpointslices/custom",
        );
        let one = format!("{DISCOVERY} {one}");
        side.ask("make", Method::POST, &all, slice("custom"))
            .await?;
        let finalizers = |list: Value| json!({"metadata": {"finalizers": list}});
        let keep = finalizers(json!(["example.com/keep"]));
        side.ask("keep", Method::PATCH, &one, keep).await?;
        side.ask("delete", Method::DELETE, &one, Value::Null)
            .await?;
        side.ask("still there", Method::GET, &one, Value::Null)
            .await?;
        side.ask("let go", Method::PATCH, &one, finalizers(json!(null)))
            .await?;
        side.ask("gone", Method::GET, &one, Value::Null).await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn lists_are_selected_and_cut_alike() -> Result<()> {
    same(async |side| {
        let all = format!("{DISCOVERY} endpointslices");
        for name in ["a", "b", "c"] {
            side.ask("make", Method::POST, &all, slice(name)).await?;
        }
        let by = "?labelSelector=kubernetes.io%2Fservice-name%3D";
        side.ask("all", Method::GET, &all, Value::Null).await?;
        for (what, query) in [
            ("of the Service", format!("{by}elsewhere")),
            ("of no Service", format!("{by}nobody")),
            ("one by name", "?fieldSelector=metadata.name%3Db".to_owned()),
            ("a bad selector", "?labelSelector=%3D%3D%3D".to_owned()),
        ] {
            side.ask(what, Method::GET, &format!("{all}{query}"), Value::Null)
                .await?;
        }
        let first = side
            .ask("two", Method::GET, &format!("{all}?limit=2"), Value::Null)
            .await?;
        let token = first["metadata"]["continue"].as_str().context("no token")?;
        let token = url_encode(token);
        let rest = format!("{all}?limit=2&continue={token}");
        side.ask("the rest", Method::GET, &rest, Value::Null)
            .await?;
        Ok(())
    })
    .await
}

fn url_encode(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

#[tokio::test]
async fn a_watch_tells_the_same_story_alike() -> Result<()> {
    same(async |side| {
        let all = format!("{DISCOVERY} endpointslices");
        let list = side.ask("list", Method::GET, &all, Value::Null).await?;
        let from = list["metadata"]["resourceVersion"]
            .as_str()
            .context("no version")?;
        side.ask("make", Method::POST, &all, slice("kept")).await?;
        side.ask("make", Method::POST, &all, slice("moved")).await?;
        let moved = format!("{DISCOVERY} endpointslices/moved");
        // It leaves what is watched, and comes back: to the watcher it is deleted and added.
        for owner in ["nobody", "elsewhere"] {
            let label = json!({"metadata": {"labels": {"kubernetes.io/service-name": owner}}});
            side.ask("give away", Method::PATCH, &moved, label).await?;
        }
        side.ask("delete", Method::DELETE, &moved, Value::Null)
            .await?;
        let api: Api<EndpointSlice> = Api::namespaced(side.client.clone(), &side.namespace);
        let params = WatchParams::default().labels("kubernetes.io/service-name=elsewhere");
        let mut events = api.watch(&params, from).await?.boxed();
        for _ in 0..5 {
            let event = tokio::time::timeout(Duration::from_secs(30), events.try_next()).await??;
            let told = match event.context("the watch ended")? {
                WatchEvent::Added(slice) => format!("added {:?}", slice.metadata.name),
                WatchEvent::Modified(slice) => format!("modified {:?}", slice.metadata.name),
                WatchEvent::Deleted(slice) => format!(
                    "deleted {:?} of {:?}",
                    slice.metadata.name, slice.metadata.labels
                ),
                WatchEvent::Bookmark(_) => continue,
                WatchEvent::Error(status) => format!("{} {}", status.code, status.reason),
            };
            side.transcript.push(told);
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_lease_is_taken_once_alike() -> Result<()> {
    same(async |side| {
        let (all, one) = (
            format!("{LEASES} leases"),
            format!("{LEASES} leases/slice-healer"),
        );
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "slice-healer"},
            "spec": {"holderIdentity": "me", "leaseDurationSeconds": 60},
        });
        let made = side.ask("take", Method::POST, &all, lease.clone()).await?;
        side.ask("take twice", Method::POST, &all, lease).await?;
        let mut mine = made.clone();
        mine["spec"]["holderIdentity"] = json!("other");
        side.ask("renew", Method::PUT, &one, mine.clone()).await?;
        side.ask("renew an old one", Method::PUT, &one, mine)
            .await?;
        side.ask(
            "release",
            Method::PATCH,
            &one,
            json!({"spec": {"holderIdentity": null}}),
        )
        .await?;
        Ok(())
    })
    .await
}
