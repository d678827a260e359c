//! The handle of the embedded cluster: how tests and scenarios reach its objects and its knobs.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::knobs::{Fault, Forbid, Request};
use super::listener::Listener;
use super::patch::PatchKind;
use super::resource::{ENDPOINT_SLICES, Resource};
use super::selector::Selector;
use super::shared::{Follower, Shared};
use super::status::ApiError;
use super::verbs::{DeleteOptions, Target};
use super::{collector, object};

/// How a cluster is made.
#[derive(Debug, Clone)]
pub struct ClusterOptions {
    /// `gitVersion` that `/version` answers.
    pub server_version: String,
    /// Changes that are kept for watches before the oldest are compacted away.
    pub history: usize,
    /// Time between bookmarks of a watch that asked for them.
    pub bookmark_every: Duration,
    /// Whether the namespaces, the Service and the slice that every cluster has are made.
    pub bootstrap: bool,
    /// Whether a request without any token counts as the admin's. kubectl sends no token over plain
    /// HTTP, so it needs this.
    pub anonymous_admin: bool,
}

impl Default for ClusterOptions {
    fn default() -> Self {
        Self {
            server_version: "v1.36.2".to_owned(),
            history: 20_000,
            bookmark_every: Duration::from_secs(10),
            bootstrap: true,
            anonymous_admin: false,
        }
    }
}

/// An API server in memory. Clones are handles to one cluster, which ends with the last of them.
#[derive(Clone)]
pub struct Cluster {
    shared: Arc<Shared>,
    listener: Arc<Listener>,
    collector: watch::Sender<bool>,
    _stop: Arc<DropGuard>,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster")
            .field("url", &self.url())
            .finish_non_exhaustive()
    }
}

impl Cluster {
    /// Starts serving on a port of its own on loopback.
    ///
    /// # Errors
    /// When no port can be bound.
    pub async fn start(options: ClusterOptions) -> io::Result<Self> {
        let shared = Shared::new(&options);
        let stop = CancellationToken::new();
        let listener = Listener::start(Arc::clone(&shared), stop.clone()).await?;
        let (collector, enabled) = watch::channel(true);
        let collecting = stop
            .clone()
            .run_until_cancelled_owned(collector::run(Arc::clone(&shared), enabled));
        tokio::spawn(collecting);
        let cluster = Self {
            shared,
            listener: Arc::new(listener),
            collector,
            _stop: Arc::new(stop.drop_guard()),
        };
        if options.bootstrap {
            cluster.bootstrap().map_err(io::Error::other)?;
        }
        Ok(cluster)
    }

    /// `http://127.0.0.1:port`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.listener.address())
    }

    /// Token of the user whom the knobs act on: the product's.
    #[must_use]
    pub fn token(&self) -> &str {
        &self.shared.token
    }

    /// Token of a user whom no knob touches: the test's.
    #[must_use]
    pub fn admin_token(&self) -> &str {
        &self.shared.admin_token
    }

    /// A kubeconfig with [`Self::token`].
    #[must_use]
    pub fn kubeconfig_yaml(&self) -> String {
        self.kubeconfig(self.token())
    }

    /// A kubeconfig with [`Self::admin_token`].
    #[must_use]
    pub fn admin_kubeconfig_yaml(&self) -> String {
        self.kubeconfig(self.admin_token())
    }

    fn kubeconfig(&self, token: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\nclusters:\n- name: lab\n  cluster:\n    server: {}\n\
             users:\n- name: lab\n  user:\n    token: {token}\ncontexts:\n- name: lab\n  \
             context:\n    cluster: lab\n    user: lab\n    namespace: default\n\
             current-context: lab\n",
            self.url()
        )
    }

    // --- Objects, from inside the process: past token, knobs and request log ---

    /// Creates an object by its own apiVersion, kind and namespace. Status is kept where the
    /// object carries one, since nobody else in the lab would write it.
    ///
    /// # Errors
    /// As the API refuses it.
    pub fn create(&self, new: Value) -> Result<Arc<Value>, ApiError> {
        let resource = Resource::of(&new)
            .ok_or_else(|| ApiError::bad_request("apiVersion and kind name no served resource"))?;
        let namespace = object::namespace(&new).to_owned();
        let status = new.get("status").filter(|_| resource.status).cloned();
        self.shared.write(|store| {
            let made = store.create(target(resource, &namespace, ""), new)?;
            let Some(status) = status else {
                return Ok(made);
            };
            let mut at = target(resource, &namespace, object::name(&made));
            at.status = true;
            store.patch(at, PatchKind::Merge, &json!({"status": status}))
        })
    }

    /// One object.
    #[must_use]
    pub fn get(&self, resource: &Resource, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.shared.store().get(resource, namespace, name).cloned()
    }

    /// Objects of a namespace, or of all.
    #[must_use]
    pub fn list(&self, resource: &Resource, namespace: Option<&str>) -> Vec<Arc<Value>> {
        let store = self.shared.store();
        store.list(resource, namespace).cloned().collect()
    }

    /// Objects of a namespace that a selector matches.
    #[must_use]
    pub fn select(
        &self,
        resource: &Resource,
        namespace: &str,
        selector: &Selector,
    ) -> Vec<Arc<Value>> {
        let store = self.shared.store();
        let list = store.list(resource, Some(namespace));
        list.filter(|object| selector.matches(object))
            .cloned()
            .collect()
    }

    /// The slices of a Service, by their service-name label, whoever manages them.
    #[must_use]
    pub fn slices_of(&self, namespace: &str, service: &str) -> Vec<Arc<Value>> {
        let selector = Selector::labels([("kubernetes.io/service-name", service)]);
        self.select(&ENDPOINT_SLICES, namespace, &selector)
    }

    /// Replaces an object.
    ///
    /// # Errors
    /// As the API refuses it.
    pub fn update(&self, new: Value) -> Result<Arc<Value>, ApiError> {
        let resource = Resource::of(&new)
            .ok_or_else(|| ApiError::bad_request("apiVersion and kind name no served resource"))?;
        let (namespace, name) = (object::namespace(&new), object::name(&new));
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        self.shared
            .write(|store| store.update(target(resource, &namespace, &name), new))
    }

    /// JSON merge patch; of `status` alone where the resource writes that apart.
    ///
    /// # Errors
    /// As the API refuses it.
    pub fn patch(
        &self,
        resource: &'static Resource,
        namespace: &str,
        name: &str,
        patch: &Value,
    ) -> Result<Arc<Value>, ApiError> {
        let mut at = target(resource, namespace, name);
        at.status = resource.status && patch.get("status").is_some();
        self.shared
            .write(|store| store.patch(at, PatchKind::Merge, patch))
    }

    /// Deletes an object.
    ///
    /// # Errors
    /// As the API refuses it.
    pub fn delete(
        &self,
        resource: &'static Resource,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<(), ApiError> {
        self.shared
            .write(|store| store.delete(target(resource, namespace, name), options))
            .map(|_| ())
    }

    pub(crate) fn pod_ip(&self) -> String {
        self.shared.pod_ip()
    }

    /// Follows all writes from now on.
    #[must_use]
    pub fn follow(&self) -> Follower {
        Follower::new(&self.shared)
    }

    /// Looks again after each write until `found` finds something; `None` after `deadline`.
    pub async fn wait_for<T>(
        &self,
        deadline: Duration,
        mut found: impl FnMut(&Self) -> Option<T>,
    ) -> Option<T> {
        let mut changed = self.shared.changed();
        let search = async {
            loop {
                changed.borrow_and_update();
                if let Some(result) = found(self) {
                    return Some(result);
                }
                changed.changed().await.ok()?;
            }
        };
        tokio::time::timeout(deadline, search).await.ok().flatten()
    }

    /// The revision of the last write.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.shared.store().revision()
    }

    // --- Knobs ---

    /// The next matching requests of the ordinary user fail.
    pub fn fail_next(&self, fault: Fault) {
        self.shared.knobs().faults.push(fault);
    }

    /// Forbids the ordinary user a verb, until [`Self::heal_knobs`].
    pub fn forbid(&self, rule: Forbid) {
        self.shared.knobs().forbids.push(rule);
    }

    /// Every request of the ordinary user takes this much longer.
    pub fn set_latency(&self, latency: Duration) {
        self.shared.knobs().latency = latency;
    }

    /// Watches of the ordinary user stay open but tell nothing, until set back.
    pub fn hold_watches(&self, hold: bool) {
        self.shared.knobs().hold_watches = hold;
        self.shared.wake();
    }

    /// Ends every open watch, as a server does at its time limit.
    pub fn drop_watches(&self) {
        self.shared.drop_watches();
    }

    /// Makes every version read so far too old (410): lists that go on, and watches.
    pub fn compact(&self) {
        self.shared.write(|store| store.compact());
    }

    /// Takes back faults, forbidden verbs, latency and held watches.
    pub fn heal_knobs(&self) {
        let mut knobs = self.shared.knobs();
        knobs.faults.clear();
        knobs.forbids.clear();
        knobs.latency = Duration::ZERO;
        knobs.hold_watches = false;
        drop(knobs);
        self.shared.wake();
    }

    /// Switches the garbage collector; what became garbage meanwhile goes when it is on again.
    pub fn set_garbage_collector(&self, on: bool) {
        self.collector.send_replace(on);
    }

    /// Refuses connections and cuts those that are open.
    ///
    /// # Errors
    /// When the port cannot be kept.
    pub async fn stop_listening(&self) -> io::Result<()> {
        self.listener.stop().await
    }

    /// Serves again, on the same port.
    ///
    /// # Errors
    /// When the port is lost.
    pub async fn start_listening(&self) -> io::Result<()> {
        self.listener.resume().await
    }

    /// Requests over HTTP so far, oldest first, of every user.
    #[must_use]
    pub fn requests(&self) -> Vec<Request> {
        self.shared.knobs().requests()
    }

    /// Requests that the bounded log forgot.
    #[must_use]
    pub fn requests_dropped(&self) -> u64 {
        self.shared.knobs().requests_dropped()
    }

    /// Requests of the ordinary user that asked for a change.
    #[must_use]
    pub fn writes(&self) -> Vec<Request> {
        let mut requests = self.requests();
        requests.retain(|r| r.is_write() && r.user == super::shared::USER);
        requests
    }

    /// Empties the request log.
    pub fn clear_requests(&self) {
        self.shared.knobs().clear_log();
    }

    fn bootstrap(&self) -> Result<(), ApiError> {
        for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
            self.create(namespace(name))?;
        }
        self.create(json!({"apiVersion": "v1", "kind": "Service",
            "metadata": {"namespace": "default", "name": "kubernetes",
                "labels": {"component": "apiserver", "provider": "kubernetes"}},
            "spec": {"clusterIP": "10.96.0.1",
                "ports": [{"name": "https", "port": 443, "targetPort": 6443}]}}))?;
        // As each API server writes it: a fixed name, no manager, no owner, no targetRef.
        self.create(
            json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"namespace": "default", "name": "kubernetes",
                "labels": {"kubernetes.io/service-name": "kubernetes"}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": ["192.0.2.10"], "conditions": {"ready": true}}],
            "ports": [{"name": "https", "port": 6443, "protocol": "TCP"}]}),
        )?;
        Ok(())
    }
}

/// A Namespace object.
#[must_use]
pub fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

fn target<'a>(resource: &'static Resource, namespace: &'a str, name: &'a str) -> Target<'a> {
    Target {
        resource,
        namespace,
        name,
        status: false,
        dry_run: false,
    }
}
