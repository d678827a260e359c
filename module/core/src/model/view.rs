//! All that one Service is judged on, read out of the world. Judges nothing.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;

use super::key::{Kind, ServiceKey};
use super::slice::{Slice, TargetRef};
use super::space::Space;
use super::world::World;
use super::{Endpoint, Endpoints, Meta, Namespace, Node, Pod, Service};

/// All that one Service is judged on.
#[derive(Clone, Debug)]
pub struct ServiceView<'a> {
    world: &'a World,
    key: ServiceKey,
    space: Option<&'a Space>,
    service: Option<&'a Service>,
}

impl<'a> ServiceView<'a> {
    pub(super) fn new(world: &'a World, key: &ServiceKey) -> Self {
        let space = world.spaces.get(&key.namespace);
        let service = space.and_then(|s| s.services.get(&key.name));
        Self {
            world,
            key: key.clone(),
            space,
            service,
        }
    }

    /// Which Service.
    pub fn key(&self) -> &ServiceKey {
        &self.key
    }

    /// The Service, if it exists.
    pub fn service(&self) -> Option<&'a Service> {
        self.service
    }

    /// Its namespace object, if it is known.
    pub fn namespace(&self) -> Option<&'a Namespace> {
        self.space.and_then(|s| s.object.as_ref())
    }

    /// Its Endpoints object, if there is one.
    pub fn endpoints(&self) -> Option<&'a Endpoints> {
        self.space.and_then(|s| s.endpoints.get(&self.key.name))
    }

    /// The slices that name it, whoever manages them, by name.
    pub fn slices(&self) -> impl Iterator<Item = &'a Slice> + use<'a> {
        let name = self.key.name.clone();
        self.concerned()
            .filter(move |s| s.service_name() == Some(name.as_ref()))
    }

    /// The slices that it owns but that do not name it, by name.
    pub fn strays(&self) -> impl Iterator<Item = &'a Slice> + use<'a> {
        let name = self.key.name.clone();
        self.concerned()
            .filter(move |s| s.service_name() != Some(name.as_ref()))
    }

    /// One of the slices that name it.
    pub fn slice(&self, name: &str) -> Option<&'a Slice> {
        self.space
            .and_then(|s| s.slices.get(name))
            .filter(|s| s.service_name() == Some(self.key.name.as_ref()))
    }

    /// The pods that it selects, finished ones included, by name.
    pub fn pods(&self) -> Vec<&'a Pod> {
        match (self.space, self.service.and_then(Service::selector)) {
            (Some(space), Some(selector)) => space.select(selector),
            _ => Vec::new(),
        }
    }

    /// The pod that an endpoint of this Service names, whatever its uid.
    pub fn target_pod(&self, target: &TargetRef) -> Option<&'a Pod> {
        let namespace = if target.namespace.is_empty() {
            self.key.namespace.as_ref()
        } else {
            target.namespace.as_ref()
        };
        self.world.pod(namespace, &target.name)
    }

    /// A node.
    pub fn node(&self, name: &str) -> Option<&'a Node> {
        self.world.node(name)
    }

    /// All nodes, in no order.
    pub fn nodes(&self) -> impl Iterator<Item = &'a Node> + use<'a> {
        self.world.nodes()
    }

    /// Another Service of the same namespace.
    pub fn sibling(&self, name: &str) -> Option<&'a Service> {
        self.space.and_then(|s| s.services.get(name))
    }

    /// The pods that have this address, those on their node's own network left out.
    pub fn pods_at(&self, address: IpAddr) -> impl Iterator<Item = &'a Pod> + use<'a> {
        let world = self.world;
        world
            .at_address
            .get(&address)
            .into_iter()
            .flatten()
            .filter_map(|(namespace, name)| world.pod(namespace, name))
    }

    /// The values that pods of the namespace have for a label, with how many have each.
    pub fn label_values(&self, key: &str) -> impl Iterator<Item = (&'a str, usize)> + use<'a> {
        let values = self.space.and_then(|s| s.carriers.get(key));
        values
            .into_iter()
            .flatten()
            .map(|(value, pods)| (value.as_ref(), pods.len()))
    }

    /// The label keys that pods of the namespace have.
    pub fn label_keys(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.space
            .into_iter()
            .flat_map(|s| s.carriers.keys().map(AsRef::as_ref))
    }

    /// Whether a kind has been listed.
    pub fn seen(&self, kind: Kind) -> bool {
        self.world.seen(kind)
    }

    /// A hash of what the judgement depends on: uid and version of the Service, its slices, its
    /// Endpoints object and the pods that are selected or named; of nodes only existence, zone and
    /// readiness. Equal means that nothing changed meanwhile.
    pub fn fingerprint(&self) -> u64 {
        let mut hash = DefaultHasher::new();
        let put = |hash: &mut DefaultHasher, meta: &Meta| {
            (&meta.name, &meta.uid, &meta.resource_version).hash(hash);
        };
        self.service
            .map(|s| put(&mut hash, &s.meta))
            .is_some()
            .hash(&mut hash);
        self.endpoints()
            .map(|e| put(&mut hash, &e.meta))
            .is_some()
            .hash(&mut hash);
        let mut nodes = BTreeSet::new();
        let mut named = BTreeSet::new();
        for slice in self.slices() {
            put(&mut hash, &slice.meta);
            nodes.extend(
                slice
                    .endpoints
                    .iter()
                    .filter_map(|e| e.node_name.as_deref()),
            );
            named.extend(slice.endpoints.iter().filter_map(Endpoint::pod).map(|t| {
                let home = if t.namespace.is_empty() {
                    &self.key.namespace
                } else {
                    &t.namespace
                };
                (home.as_ref(), t.name.as_ref())
            }));
        }
        for pod in self.pods() {
            named.insert((pod.meta.namespace.as_ref(), pod.meta.name.as_ref()));
        }
        for (namespace, name) in named {
            name.hash(&mut hash);
            if let Some(pod) = self.world.pod(namespace, name) {
                put(&mut hash, &pod.meta);
                nodes.extend(pod.spec.node_name.as_deref());
            }
        }
        for name in nodes {
            name.hash(&mut hash);
            self.node(name)
                .map(|n| (n.zone(), n.is_ready()))
                .hash(&mut hash);
        }
        hash.finish()
    }

    fn concerned(&self) -> impl Iterator<Item = &'a Slice> + use<'a> {
        let space = self.space;
        space
            .and_then(|s| s.slices_of.get(&self.key.name))
            .into_iter()
            .flatten()
            .filter_map(move |name| space.and_then(|s| s.slices.get(name)))
    }
}
