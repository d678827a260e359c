//! Keeps objects small: drops what is not judged and shares what many objects have in common
//! (labels and containers of one workload's pods, names of nodes and namespaces).

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;

use super::labels::Labels;
use super::object::Object;
use super::pod::{Containers, Pod, Truth};
use super::{Meta, Node, Slice};

/// Values that objects share.
#[derive(Debug, Default)]
pub(super) struct Share {
    texts: Pool<Arc<str>>,
    labels: Pool<Labels>,
    containers: Pool<Containers>,
}

impl Share {
    /// Makes an object as small as it can be.
    pub(super) fn object(&mut self, object: &mut Object) {
        match object {
            Object::Pod(pod) => self.pod(pod),
            Object::Node(node) => trim_node(node),
            Object::Slice(slice) => self.slice(slice),
            Object::Service(_) | Object::Endpoints(_) | Object::Namespace(_) => {}
        }
        let meta = object.meta_mut();
        self.texts.share(&mut meta.namespace);
        self.labels.share(&mut meta.labels);
        meta.owner_references.shrink_to_fit();
    }

    fn pod(&mut self, pod: &mut Pod) {
        trim(&mut pod.meta);
        let Pod { spec, status, .. } = pod;
        let gates = &spec.readiness_gates;
        status.conditions.retain(|c| {
            matches!(c.name.as_ref(), "Ready" | "ContainersReady")
                || c.status != Truth::True
                || gates
                    .iter()
                    .any(|g| g.condition_type.as_ref() == c.name.as_ref())
        });
        for condition in &mut status.conditions {
            self.texts.share(&mut condition.name);
            if condition.status == Truth::True {
                condition.reason = None;
                condition.message = None;
            }
        }
        status.conditions.shrink_to_fit();
        status.container_statuses.retain(|c| !c.ready);
        status.container_statuses.shrink_to_fit();
        status.pod_ips.shrink_to_fit();
        if let Some(node) = &mut spec.node_name {
            self.texts.share(node);
        }
        self.containers.share(&mut spec.containers);
        self.containers.share(&mut spec.init_containers);
    }

    fn slice(&mut self, slice: &mut Slice) {
        slice.endpoints.shrink_to_fit();
        for endpoint in &mut slice.endpoints {
            endpoint.addresses.shrink_to_fit();
            for text in [&mut endpoint.node_name, &mut endpoint.zone]
                .into_iter()
                .flatten()
            {
                self.texts.share(text);
            }
            if let Some(target) = &mut endpoint.target_ref {
                self.texts.share(&mut target.kind);
                self.texts.share(&mut target.namespace);
            }
        }
    }
}

fn trim(meta: &mut Meta) {
    meta.annotations = Labels::default();
    meta.generate_name = None;
}

fn trim_node(node: &mut Node) {
    trim(&mut node.meta);
    node.status
        .conditions
        .retain(|c| c.name.as_ref() == "Ready");
    node.meta.labels = node.meta.labels.filtered(|key| {
        key.starts_with("topology.kubernetes.io/")
            || key.starts_with("node-role.kubernetes.io/")
            || key.starts_with("node.kubernetes.io/")
            || key == "kubernetes.io/hostname"
    });
}

/// Values in use, each kept once. Those that nobody else holds any more are dropped whenever the
/// pool has doubled since the last look.
#[derive(Debug)]
struct Pool<T> {
    values: HashSet<T>,
    sweep_at: usize,
}

impl<T> Default for Pool<T> {
    fn default() -> Self {
        Self {
            values: HashSet::new(),
            sweep_at: 256,
        }
    }
}

impl<T: Shared> Pool<T> {
    fn share(&mut self, value: &mut T) {
        if let Some(known) = self.values.get(value) {
            *value = known.clone();
            return;
        }
        if self.values.len() >= self.sweep_at {
            self.values.retain(|v| v.holders() > 1);
            self.sweep_at = (self.values.len() * 2).max(256);
        }
        self.values.insert(value.clone());
    }
}

/// A value that is cheap to clone and knows how many clones there are.
trait Shared: Clone + Eq + Hash {
    fn holders(&self) -> usize;
}

impl Shared for Arc<str> {
    fn holders(&self) -> usize {
        Arc::strong_count(self)
    }
}

impl Shared for Containers {
    fn holders(&self) -> usize {
        Arc::strong_count(self)
    }
}

impl Shared for Labels {
    fn holders(&self) -> usize {
        Self::holders(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_equal_is_kept_once_and_let_go_when_nobody_holds_it() {
        let mut pool = Pool::default();
        let mut a: Arc<str> = "edge-7".into();
        let mut b: Arc<str> = "edge-7".into();
        pool.share(&mut a);
        pool.share(&mut b);
        assert!(Arc::ptr_eq(&a, &b));
        for n in 0..10_000 {
            pool.share(&mut format!("gone-{n}").into());
        }
        assert!(pool.values.len() <= 512, "{}", pool.values.len());
        assert!(pool.values.contains(&a));
    }
}
