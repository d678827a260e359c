//! The embedded cluster against kube-rs, the client that slice-healer uses.

mod api;
mod knobs;
mod watch;

use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::json;

use super::{Cluster, ClusterOptions, namespace};

const LONG: Duration = Duration::from_secs(30);

async fn cluster() -> (Cluster, Client) {
    let options = ClusterOptions {
        bookmark_every: Duration::from_millis(50),
        ..ClusterOptions::default()
    };
    let cluster = Cluster::start(options).await.unwrap();
    cluster.create(namespace("line1")).unwrap();
    let client = client(&cluster.kubeconfig_yaml()).await;
    (cluster, client)
}

async fn client(kubeconfig: &str) -> Client {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig).unwrap();
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .unwrap();
    Client::try_from(config).unwrap()
}

fn service(name: &str) -> Service {
    serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"selector": {"app": name}, "ports": [{"port": 80}]},
    }))
    .unwrap()
}

fn slice(name: &str, address: &str) -> EndpointSlice {
    serde_json::from_value(json!({
        "metadata": {"generateName": format!("{name}-"),
            "labels": {"kubernetes.io/service-name": name}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address], "conditions": {"ready": true}}],
        "ports": [{"port": 8080}],
    }))
    .unwrap()
}

fn code(error: &kube::Error) -> (u16, String) {
    match error {
        kube::Error::Api(status) => (status.code, status.reason.clone()),
        other => panic!("no answer of the server: {other}"),
    }
}
