//! What would run on the cluster: nodes, Deployments and their pods, as objects that are already
//! scheduled, started and ready. There is no scheduler, kubelet or Deployment controller behind
//! them; a rollout is played step by step.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::cluster::Cluster;
use super::object;
use super::resource::{DEPLOYMENTS, PODS, REPLICA_SETS, Resource};
use super::selector::Selector;
use super::status::ApiError;
use super::verbs::{DeleteOptions, suffix};

/// A model server to deploy.
#[derive(Debug, Clone)]
pub struct Deployment {
    /// Namespace; must exist.
    pub namespace: String,
    /// Name of the Deployment and prefix of its pods.
    pub name: String,
    /// Labels of the pods, and its selector.
    pub labels: BTreeMap<String, String>,
    /// Model version; the pods carry it as the label `version` and answer with it.
    pub version: String,
    /// Number of pods.
    pub replicas: usize,
    /// Port of the container, named `http`.
    pub port: u16,
    /// Node that all pods are on; must exist.
    pub node: String,
}

impl Deployment {
    /// `replicas` pods with the label `app: name` on port 8080.
    #[must_use]
    pub fn new(namespace: &str, name: &str, version: &str, replicas: usize, node: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            labels: BTreeMap::from([("app".to_owned(), name.to_owned())]),
            version: version.to_owned(),
            replicas,
            port: 8080,
            node: node.to_owned(),
        }
    }
}

/// One pod replaced by another.
#[derive(Debug, Clone)]
pub struct Rollout {
    /// The pod that is gone.
    pub old: Arc<Value>,
    /// The pod that came.
    pub new: Arc<Value>,
}

impl Cluster {
    /// Creates a Node that is Ready, in `zone` if that is not empty.
    ///
    /// # Errors
    /// As the API refuses it.
    pub fn add_node(&self, name: &str, zone: &str) -> Result<Arc<Value>, ApiError> {
        let now = object::time(Timestamp::now());
        let mut node = json!({"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "spec": {"podCIDR": "10.244.0.0/16"},
            "status": {
                "addresses": [{"type": "InternalIP", "address": "192.0.2.10"},
                    {"type": "Hostname", "address": name}],
                "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady",
                    "lastHeartbeatTime": now, "lastTransitionTime": now}],
                "nodeInfo": {"machineID": uuid::Uuid::new_v4().simple().to_string(),
                    "kubeletVersion": "v1.36.2", "architecture": "arm64",
                    "operatingSystem": "linux", "osImage": "lab", "kernelVersion": "6.1",
                    "containerRuntimeVersion": "containerd://2.0", "bootID": "", "systemUUID": "",
                    "kubeProxyVersion": ""}}});
        if !zone.is_empty() {
            object::set_label(&mut node, "topology.kubernetes.io/zone", zone);
        }
        self.create(node)
    }

    /// Creates a Service of one port 80 that selects `app: name` and targets the port `http`.
    ///
    /// # Errors
    /// As the API refuses it.
    pub fn add_service(&self, namespace: &str, name: &str) -> Result<Arc<Value>, ApiError> {
        self.create(json!({"apiVersion": "v1", "kind": "Service",
            "metadata": {"namespace": namespace, "name": name, "labels": {"app": name}},
            "spec": {"selector": {"app": name},
                "ports": [{"name": "http", "port": 80, "targetPort": "http"}]}}))
    }

    /// Creates a Deployment, its ReplicaSet and its pods, all of them ready.
    ///
    /// # Errors
    /// As the API refuses it.
    pub fn deploy(&self, deployment: &Deployment) -> Result<Vec<Arc<Value>>, ApiError> {
        let made = self.create(json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"namespace": deployment.namespace, "name": deployment.name,
                "labels": deployment.labels},
            "spec": {"replicas": deployment.replicas,
                "selector": {"matchLabels": deployment.labels},
                "strategy": {"type": "RollingUpdate"},
                "template": template(deployment)}}))?;
        let set = self.replica_set(&made, deployment, deployment.replicas)?;
        let pods = (0..deployment.replicas).map(|_| self.pod(&set, deployment));
        let pods = pods.collect::<Result<Vec<_>, _>>()?;
        self.finish(deployment)?;
        Ok(pods)
    }

    /// Replaces every pod of a Deployment by one of another version, one after the other.
    ///
    /// # Errors
    /// As the API refuses it; 404 where there is no such Deployment.
    pub fn redeploy(
        &self,
        namespace: &str,
        name: &str,
        version: &str,
    ) -> Result<Vec<Rollout>, ApiError> {
        let mut steps = Vec::new();
        while let Some(step) = self.redeploy_one(namespace, name, version)? {
            steps.push(step);
        }
        Ok(steps)
    }

    /// Replaces one pod of another version: the new one becomes ready, then the old one goes.
    /// `None` when every pod has that version.
    ///
    /// # Errors
    /// As the API refuses it; 404 where there is no such Deployment.
    pub fn redeploy_one(
        &self,
        namespace: &str,
        name: &str,
        version: &str,
    ) -> Result<Option<Rollout>, ApiError> {
        let found = self
            .get(&DEPLOYMENTS, namespace, name)
            .ok_or_else(|| ApiError::not_found(&DEPLOYMENTS, name))?;
        let mut deployment = read(&found);
        let old = self
            .select(
                &PODS,
                namespace,
                &Selector::labels(deployment.labels.clone()),
            )
            .into_iter()
            .find(|pod| object::label(pod, "version") != Some(version));
        let Some(old) = old else {
            return Ok(None);
        };
        version.clone_into(&mut deployment.version);
        let change = json!({"spec": {"template": template(&deployment)}});
        let found = self.patch(&DEPLOYMENTS, namespace, name, &change)?;
        let current = self
            .list(&REPLICA_SETS, Some(namespace))
            .into_iter()
            .find(|set| {
                object::owners(set).any(|owner| owner["uid"] == object::uid(&found))
                    && set["spec"]["template"]["metadata"]["labels"]["version"] == version
            });
        let set = match current {
            Some(set) => set,
            None => self.replica_set(&found, &deployment, 0)?,
        };
        let new = self.pod(&set, &deployment)?;
        self.end_pod(namespace, object::name(&old))?;
        self.finish(&deployment)?;
        Ok(Some(Rollout { old, new }))
    }

    /// Ends a pod as a kubelet does: it terminates, then it is gone.
    ///
    /// # Errors
    /// As the API refuses it.
    pub fn end_pod(&self, namespace: &str, name: &str) -> Result<(), ApiError> {
        self.delete(&PODS, namespace, name, &DeleteOptions::default())?;
        match self.delete(&PODS, namespace, name, &DeleteOptions::now()) {
            // Without a node it was gone at once.
            Err(error) if error.code == 404 => Ok(()),
            other => other,
        }
    }

    fn replica_set(
        &self,
        owner: &Value,
        deployment: &Deployment,
        replicas: usize,
    ) -> Result<Arc<Value>, ApiError> {
        let hash = suffix();
        let mut labels = deployment.labels.clone();
        labels.insert("pod-template-hash".to_owned(), hash.clone());
        self.create(json!({"apiVersion": "apps/v1", "kind": "ReplicaSet",
            "metadata": {"namespace": deployment.namespace,
                "name": format!("{}-{hash}", deployment.name), "labels": labels,
                "ownerReferences": [owner_of(owner)]},
            "spec": {"replicas": replicas, "selector": {"matchLabels": labels},
                "template": template(deployment)}}))
    }

    fn pod(&self, set: &Value, deployment: &Deployment) -> Result<Arc<Value>, ApiError> {
        let now = object::time(Timestamp::now());
        let ip = self.pod_ip();
        let mut pod = template(deployment);
        pod["apiVersion"] = json!("v1");
        pod["kind"] = json!("Pod");
        pod["metadata"]["namespace"] = json!(deployment.namespace);
        pod["metadata"]["generateName"] = json!(format!("{}-", object::name(set)));
        pod["metadata"]["ownerReferences"] = json!([owner_of(set)]);
        if let Some(hash) = object::label(set, "pod-template-hash") {
            object::set_label(&mut pod, "pod-template-hash", hash);
        }
        pod["spec"]["nodeName"] = json!(deployment.node);
        let conditions: Vec<Value> = ["Initialized", "PodScheduled", "ContainersReady", "Ready"]
            .iter()
            .map(|kind| json!({"type": kind, "status": "True", "lastTransitionTime": now}))
            .collect();
        pod["status"] = json!({"phase": "Running", "hostIP": "192.0.2.10",
            "podIP": ip, "podIPs": [{"ip": ip}], "startTime": now,
            "conditions": conditions,
            "containerStatuses": [{"name": "model", "ready": true, "restartCount": 0,
                "started": true, "image": "", "imageID": "",
                "state": {"running": {"startedAt": now}}}]});
        self.create(pod)
    }

    /// Brings the counts of ReplicaSets and Deployment in line with the pods.
    fn finish(&self, deployment: &Deployment) -> Result<(), ApiError> {
        let namespace = deployment.namespace.as_str();
        let selector = Selector::labels(deployment.labels.clone());
        let pods = self.select(&PODS, namespace, &selector);
        let mut updated = 0;
        for set in self.select(&REPLICA_SETS, namespace, &selector) {
            let owned = |pod: &&Arc<Value>| {
                object::owners(pod).any(|owner| owner["uid"] == object::uid(&set))
            };
            let count = pods.iter().filter(owned).count();
            if set["spec"]["template"]["metadata"]["labels"]["version"] == deployment.version {
                updated = count;
            }
            self.count(&REPLICA_SETS, &set, count, &json!({}))?;
        }
        if let Some(found) = self.get(&DEPLOYMENTS, namespace, &deployment.name) {
            let more = json!({"updatedReplicas": updated,
                "observedGeneration": object::generation(&found)});
            self.count(&DEPLOYMENTS, &found, pods.len(), &more)?;
        }
        Ok(())
    }

    fn count(
        &self,
        resource: &'static Resource,
        counted: &Value,
        count: usize,
        more: &Value,
    ) -> Result<(), ApiError> {
        let (namespace, name) = (object::namespace(counted), object::name(counted));
        if resource == &REPLICA_SETS {
            let spec = json!({"spec": {"replicas": count}});
            self.patch(resource, namespace, name, &spec)?;
        }
        let mut status = json!({"replicas": count, "readyReplicas": count,
            "availableReplicas": count});
        super::patch::merge(&mut status, more);
        self.patch(resource, namespace, name, &json!({"status": status}))?;
        Ok(())
    }
}

fn template(deployment: &Deployment) -> Value {
    let mut labels = deployment.labels.clone();
    labels.insert("version".to_owned(), deployment.version.clone());
    json!({
        "metadata": {"labels": labels},
        "spec": {"nodeName": deployment.node, "containers": [{"name": "model",
            "image": format!("registry.example/{}:{}", deployment.name, deployment.version),
            "ports": [{"name": "http", "containerPort": deployment.port}]}]},
    })
}

/// The parts of a Deployment object that its next pods need.
fn read(found: &Value) -> Deployment {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let spec = &found["spec"];
    let pod = &spec["template"]["spec"];
    let labels = spec["selector"]["matchLabels"].as_object();
    Deployment {
        namespace: object::namespace(found).to_owned(),
        name: object::name(found).to_owned(),
        labels: labels
            .into_iter()
            .flatten()
            .map(|(key, value)| (key.clone(), text(value)))
            .collect(),
        version: text(&spec["template"]["metadata"]["labels"]["version"]),
        replicas: spec["replicas"]
            .as_u64()
            .and_then(|n| usize::try_from(n).ok())
            .unwrap_or(1),
        port: pod["containers"][0]["ports"][0]["containerPort"]
            .as_u64()
            .and_then(|n| u16::try_from(n).ok())
            .unwrap_or(8080),
        node: text(&pod["nodeName"]),
    }
}

fn owner_of(owner: &Value) -> Value {
    json!({"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": object::name(owner),
        "uid": object::uid(owner), "controller": true, "blockOwnerDeletion": true})
}
