//! The controller by what it leaves in the cluster.

mod content;
mod traps;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use super::super::resource::ENDPOINT_SLICES;
use super::super::{Cluster, ClusterOptions, Deployment, namespace, object};
use super::{Controller, ControllerOptions, LogLine};

const LONG: Duration = Duration::from_secs(30);

/// A cluster with a node and a namespace, and a controller in a hurry whose log is kept.
struct Rig {
    cluster: Cluster,
    controller: Controller,
    log: Arc<Mutex<Vec<LogLine>>>,
}

impl Rig {
    async fn new() -> Self {
        Self::with(ControllerOptions::quick()).await
    }

    async fn with(options: ControllerOptions) -> Self {
        let cluster = Cluster::start(ClusterOptions::default()).await.unwrap();
        cluster.create(namespace("line1")).unwrap();
        cluster.add_node("edge-7", "z1").unwrap();
        let log = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&log);
        let sink = move |line: LogLine| kept.lock().unwrap().push(line);
        let controller = Controller::start(&cluster, options, Arc::new(sink));
        Self {
            cluster,
            controller,
            log,
        }
    }

    /// Three pods behind the Service `model-endpoint`, and their slice.
    async fn deployed(&self) -> Arc<Value> {
        self.cluster.add_service("line1", "model-endpoint").unwrap();
        let deployment = Deployment::new("line1", "model-endpoint", "v2.0", 3, "edge-7");
        self.cluster.deploy(&deployment).unwrap();
        self.settle().await;
        self.only_slice()
    }

    async fn settle(&self) {
        assert!(self.controller.settle(LONG).await, "{:?}", self.controller);
    }

    fn slices(&self) -> Vec<Arc<Value>> {
        self.cluster.slices_of("line1", "model-endpoint")
    }

    fn only_slice(&self) -> Arc<Value> {
        let mut slices = self.slices();
        assert_eq!(slices.len(), 1, "{slices:?}");
        slices.remove(0)
    }

    fn addresses(&self) -> BTreeSet<String> {
        self.slices().iter().flat_map(|s| addresses(s)).collect()
    }

    fn pod_addresses(&self) -> BTreeSet<String> {
        let pods = self
            .cluster
            .list(&super::super::resource::PODS, Some("line1"));
        pods.iter()
            .map(|pod| pod["status"]["podIP"].as_str().unwrap().to_owned())
            .collect()
    }

    fn touch(&self, value: &str) {
        let patch = json!({"metadata": {"annotations": {"slice-healer.io/refresh": value}}});
        self.cluster
            .patch(
                &super::super::resource::SERVICES,
                "line1",
                "model-endpoint",
                &patch,
            )
            .unwrap();
    }

    fn delete(&self, slice: &Value) {
        let options = super::super::DeleteOptions::default();
        self.cluster
            .delete(&ENDPOINT_SLICES, "line1", object::name(slice), &options)
            .unwrap();
    }

    fn log(&self) -> Vec<String> {
        let log = self.log.lock().unwrap();
        log.iter().map(|line| line.message.clone()).collect()
    }

    async fn until(&self, what: impl Fn(&Self) -> bool) {
        let held = self.cluster.wait_for(LONG, |_| what(self).then_some(()));
        assert!(held.await.is_some(), "{:?}", self.slices());
    }
}

fn addresses(slice: &Value) -> Vec<String> {
    object::list(&slice["endpoints"])
        .iter()
        .flat_map(|endpoint| object::list(&endpoint["addresses"]))
        .filter_map(|address| address.as_str().map(str::to_owned))
        .collect()
}
