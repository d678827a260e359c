//! The objects as they stand, indexed so that a change names the Services to judge again without
//! looking at the others. Judges nothing.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use super::key::{Kind, ObjectRef, ServiceKey};
use super::object::Object;
use super::share::Share;
use super::slice::Slice;
use super::space::Space;
use super::view::ServiceView;
use super::{Endpoints, Namespace, Node, Pod, Service};

/// The Services to judge again after a change.
pub type Touched = BTreeSet<ServiceKey>;

/// Names a pod: namespace and name.
pub(super) type PodKey = (Arc<str>, Arc<str>);

/// The objects as they stand.
#[derive(Debug, Default)]
pub struct World {
    pub(super) spaces: HashMap<Arc<str>, Space>,
    pub(super) nodes: HashMap<Arc<str>, Node>,
    /// Which pods a node runs, so that a node's change finds its Services.
    on_node: HashMap<Arc<str>, HashSet<PodKey>>,
    /// Which pods say that they have an address; more than one is worth a note.
    pub(super) at_address: HashMap<IpAddr, Vec<PodKey>>,
    /// Services whose endpoints are judged against nodes rather than pods.
    by_node_address: BTreeSet<ServiceKey>,
    /// Services that keep traffic on the node: every node matters to them.
    local: BTreeSet<ServiceKey>,
    seen: [bool; Kind::ALL.len()],
    counts: Counts,
    share: Share,
}

/// How much there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Services.
    pub services: usize,
    /// Slices.
    pub slices: usize,
    /// Endpoints in all slices.
    pub endpoints: usize,
    /// Pods.
    pub pods: usize,
}

impl World {
    /// Takes in an object, new or changed.
    pub fn apply(&mut self, object: impl Into<Object>) -> Touched {
        let mut object = object.into();
        self.share.object(&mut object);
        let mut touched = Touched::new();
        match object {
            Object::Service(o) => self.put_service(o, &mut touched),
            Object::Pod(o) => self.put_pod(o, &mut touched),
            Object::Node(o) => self.put_node(o, &mut touched),
            Object::Slice(o) => self.put_slice(o, &mut touched),
            Object::Endpoints(o) => self.put_endpoints(o, &mut touched),
            Object::Namespace(o) => self.put_namespace(o, &mut touched),
        }
        touched
    }

    /// Forgets an object.
    pub fn delete(&mut self, object: &ObjectRef) -> Touched {
        let mut touched = Touched::new();
        let name = object.name.as_str();
        if object.kind == Kind::Node {
            if self.nodes.remove(name).is_some() {
                self.touch_node(name, &mut touched);
            }
            return touched;
        }
        let namespace = match object.kind {
            Kind::Namespace => name,
            _ => object.namespace.as_deref().unwrap_or_default(),
        };
        match object.kind {
            Kind::Service => {
                if self
                    .space(namespace)
                    .is_some_and(|s| s.remove_service(name))
                {
                    self.counts.services -= 1;
                    let key = ServiceKey::new(namespace, name);
                    self.local.remove(&key);
                    touched.insert(key);
                }
            }
            Kind::Pod => self.take_pod(namespace, name, &mut touched),
            Kind::EndpointSlice => self.take_slice(namespace, name, &mut touched),
            Kind::Endpoints => {
                if self
                    .space(namespace)
                    .is_some_and(|s| s.endpoints.remove(name).is_some())
                {
                    touched.insert(ServiceKey::new(namespace, name));
                }
            }
            Kind::Namespace => {
                if let Some(space) = self.space(namespace)
                    && space.object.take().is_some()
                {
                    touched.extend(space.keys(namespace));
                }
            }
            Kind::Node => {}
        }
        if self.spaces.get(namespace).is_some_and(Space::is_empty) {
            self.spaces.remove(namespace);
        }
        touched
    }

    /// Whether a kind has been listed. Nothing is concluded from what was not seen.
    pub fn seen(&self, kind: Kind) -> bool {
        self.seen.get(kind as usize).copied().unwrap_or(false)
    }

    /// Notes whether a kind has been listed.
    pub fn set_seen(&mut self, kind: Kind, seen: bool) {
        if let Some(slot) = self.seen.get_mut(kind as usize) {
            *slot = seen;
        }
    }

    /// Every Service, and every name of a Service that a slice gives, in order.
    pub fn services(&self) -> impl Iterator<Item = ServiceKey> + use<> {
        let mut keys: Vec<ServiceKey> = self
            .spaces
            .iter()
            .flat_map(|(name, space)| space.keys(name))
            .collect();
        keys.sort_unstable();
        keys.dedup();
        keys.into_iter()
    }

    /// All that one Service is judged on.
    pub fn view(&self, key: &ServiceKey) -> ServiceView<'_> {
        ServiceView::new(self, key)
    }

    /// How much there is.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The node of this name.
    pub fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.get(name)
    }

    /// All nodes, in no order.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.values()
    }

    /// The pod of this name.
    pub fn pod(&self, namespace: &str, name: &str) -> Option<&Pod> {
        self.spaces
            .get(namespace)?
            .pods
            .get(name)
            .map(AsRef::as_ref)
    }

    /// The slice of this name.
    pub fn slice(&self, namespace: &str, name: &str) -> Option<&Slice> {
        self.spaces.get(namespace)?.slices.get(name)
    }

    /// The namespace object of this name.
    pub fn namespace(&self, name: &str) -> Option<&Namespace> {
        self.spaces.get(name)?.object.as_ref()
    }

    fn space(&mut self, namespace: &str) -> Option<&mut Space> {
        self.spaces.get_mut(namespace)
    }

    fn space_mut(&mut self, namespace: &Arc<str>) -> &mut Space {
        self.spaces.entry(Arc::clone(namespace)).or_default()
    }

    fn put_service(&mut self, service: Service, touched: &mut Touched) {
        let key = ServiceKey {
            namespace: Arc::clone(&service.meta.namespace),
            name: Arc::clone(&service.meta.name),
        };
        let spec = &service.spec;
        let keeps_local = [spec.external_traffic_policy, spec.internal_traffic_policy]
            .contains(&super::TrafficPolicy::Local);
        if keeps_local {
            self.local.insert(key.clone());
        } else {
            self.local.remove(&key);
        }
        if self.space_mut(&key.namespace).put_service(service) {
            self.counts.services += 1;
        }
        touched.insert(key);
    }

    fn put_endpoints(&mut self, endpoints: Endpoints, touched: &mut Touched) {
        let (namespace, name) = (
            Arc::clone(&endpoints.meta.namespace),
            Arc::clone(&endpoints.meta.name),
        );
        self.space_mut(&namespace)
            .endpoints
            .insert(Arc::clone(&name), endpoints);
        touched.insert(ServiceKey { namespace, name });
    }

    fn put_namespace(&mut self, namespace: Namespace, touched: &mut Touched) {
        let name = Arc::clone(&namespace.meta.name);
        let space = self.space_mut(&name);
        let before = space.object.replace(namespace);
        let judged = |n: &Namespace| (n.meta.is_deleting(), n.meta.annotations.clone());
        if before.as_ref().map(judged) != space.object.as_ref().map(judged) {
            touched.extend(space.keys(&name));
        }
    }

    fn put_pod(&mut self, pod: Pod, touched: &mut Touched) {
        let (namespace, name) = (Arc::clone(&pod.meta.namespace), Arc::clone(&pod.meta.name));
        self.take_pod(&namespace, &name, touched);
        let key: PodKey = (Arc::clone(&namespace), Arc::clone(&name));
        if let Some(node) = &pod.spec.node_name {
            self.on_node
                .entry(Arc::clone(node))
                .or_default()
                .insert(key.clone());
        }
        let addresses: Vec<IpAddr> = if pod.spec.host_network {
            Vec::new()
        } else {
            pod.addresses().collect()
        };
        let space = self.space_mut(&namespace);
        space.put_pod(pod);
        space.touch_pod(&namespace, &name, touched);
        self.counts.pods += 1;
        for address in addresses {
            self.touch_address(address, touched);
            let pods = self
                .at_address
                .entry(address)
                .or_insert_with(|| Vec::with_capacity(1));
            if !pods.contains(&key) {
                pods.push(key.clone());
            }
        }
    }

    fn take_pod(&mut self, namespace: &str, name: &str, touched: &mut Touched) {
        let Some(space) = self.spaces.get_mut(namespace) else {
            return;
        };
        // Slices may name a pod that does not exist.
        space.touch_pod(namespace, name, touched);
        let Some(pod) = space.remove_pod(name) else {
            return;
        };
        self.counts.pods -= 1;
        let is_it = |key: &PodKey| key.0.as_ref() == namespace && key.1.as_ref() == name;
        if let Some(node) = &pod.spec.node_name
            && let Some(pods) = self.on_node.get_mut(node)
        {
            pods.remove(&(Arc::clone(&pod.meta.namespace), Arc::clone(&pod.meta.name)));
            if pods.is_empty() {
                self.on_node.remove(node);
            }
        }
        for address in pod.addresses() {
            if let Some(pods) = self.at_address.get_mut(&address) {
                pods.retain(|key| !is_it(key));
                if pods.is_empty() {
                    self.at_address.remove(&address);
                } else {
                    self.touch_address(address, touched);
                }
            }
        }
    }

    fn put_node(&mut self, node: Node, touched: &mut Touched) {
        let name = Arc::clone(&node.meta.name);
        let judged = |n: &Node| {
            (
                n.is_ready(),
                n.zone().map(str::to_owned),
                n.status.addresses.clone(),
                n.is_control_plane(),
            )
        };
        let before = self.nodes.get(&name).map(judged);
        let after = judged(&node);
        self.nodes.insert(Arc::clone(&name), node);
        if before != Some(after) {
            self.touch_node(&name, touched);
        }
    }

    fn touch_node(&self, name: &str, touched: &mut Touched) {
        touched.extend(self.by_node_address.iter().chain(&self.local).cloned());
        for (namespace, pod) in self.on_node.get(name).into_iter().flatten() {
            if let Some(space) = self.spaces.get(namespace) {
                space.touch_pod(namespace, pod, touched);
            }
        }
    }

    fn touch_address(&self, address: IpAddr, touched: &mut Touched) {
        for (namespace, pod) in self.at_address.get(&address).into_iter().flatten() {
            if let Some(space) = self.spaces.get(namespace) {
                space.touch_pod(namespace, pod, touched);
            }
        }
    }

    fn put_slice(&mut self, slice: Slice, touched: &mut Touched) {
        let (namespace, name) = (
            Arc::clone(&slice.meta.namespace),
            Arc::clone(&slice.meta.name),
        );
        self.take_slice(&namespace, &name, touched);
        self.counts.slices += 1;
        self.counts.endpoints += slice.endpoints.len();
        let keys = Space::services_of(&slice);
        let on_nodes = slice.service_name().is_some_and(|service| {
            Service::is_kubernetes(&namespace, service)
                || slice.manager() != super::Manager::Controller
        });
        for service in &keys {
            let key = ServiceKey {
                namespace: Arc::clone(&namespace),
                name: Arc::clone(service),
            };
            // A reference to a pod of another namespace is kept with that pod.
            for target in slice.endpoints.iter().filter_map(super::Endpoint::pod) {
                let home = if target.namespace.is_empty() {
                    &namespace
                } else {
                    &target.namespace
                };
                self.space_mut(home).refer(&target.name, &key);
            }
            if on_nodes {
                self.by_node_address.insert(key.clone());
            }
            touched.insert(key);
        }
        self.space_mut(&namespace).put_slice(slice, &keys);
    }

    fn take_slice(&mut self, namespace: &str, name: &str, touched: &mut Touched) {
        let Some(space) = self.spaces.get_mut(namespace) else {
            return;
        };
        let Some((slice, services)) = space.remove_slice(name) else {
            return;
        };
        self.counts.slices -= 1;
        self.counts.endpoints -= slice.endpoints.len();
        for service in services {
            let key = ServiceKey {
                namespace: Arc::clone(&slice.meta.namespace),
                name: service,
            };
            for target in slice.endpoints.iter().filter_map(super::Endpoint::pod) {
                let home = if target.namespace.is_empty() {
                    namespace
                } else {
                    &target.namespace
                };
                if let Some(space) = self.spaces.get_mut(home) {
                    space.unrefer(&target.name, &key);
                }
            }
            let judged_on_nodes = self.view(&key).slices().any(|s| {
                Service::is_kubernetes(namespace, &key.name)
                    || s.manager() != super::Manager::Controller
            });
            if !judged_on_nodes {
                self.by_node_address.remove(&key);
            }
            touched.insert(key);
        }
    }
}

#[cfg(test)]
#[path = "world_tests.rs"]
mod tests;
