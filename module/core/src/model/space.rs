//! One namespace of the world: its objects, which pods carry which label, which Services select
//! which label, which slices name which pod.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use super::key::ServiceKey;
use super::labels::Labels;
use super::slice::Slice;
use super::world::Touched;
use super::{Endpoints, Namespace, Pod, Service};

/// The values of one label key, with the pods that carry each.
type Carriers = HashMap<Box<str>, HashSet<Arc<str>>>;

/// Key and value of a label.
type Entry = (Box<str>, Box<str>);

/// Objects of one namespace, indexed.
#[derive(Debug, Default)]
pub(super) struct Space {
    pub(super) object: Option<Namespace>,
    pub(super) services: HashMap<Arc<str>, Service>,
    /// Boxed: a hash table keeps room for as many again.
    pub(super) pods: HashMap<Arc<str>, Box<Pod>>,
    pub(super) slices: HashMap<Arc<str>, Slice>,
    pub(super) endpoints: HashMap<Arc<str>, Endpoints>,
    /// Label key, then value, then the pods that carry it.
    pub(super) carriers: HashMap<Box<str>, Carriers>,
    /// One entry of each Service's selector, then the Services that were filed under it.
    selecting: HashMap<Entry, BTreeSet<Arc<str>>>,
    /// Service, then the slices that name it or are owned by it.
    pub(super) slices_of: HashMap<Arc<str>, BTreeSet<Arc<str>>>,
    /// Pod name, then the Services with a slice that names it, with how often.
    referring: HashMap<Box<str>, Vec<(ServiceKey, usize)>>,
}

impl Space {
    pub(super) fn is_empty(&self) -> bool {
        self.object.is_none()
            && self.services.is_empty()
            && self.pods.is_empty()
            && self.slices.is_empty()
            && self.endpoints.is_empty()
            && self.referring.is_empty()
    }

    /// Every Service that exists or that a slice names.
    pub(super) fn keys<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = ServiceKey> + 'a {
        let namespace: Arc<str> = namespace.into();
        self.services
            .keys()
            .chain(self.slices_of.keys())
            .collect::<BTreeSet<_>>()
            .into_iter()
            .map(move |name| ServiceKey {
                namespace: Arc::clone(&namespace),
                name: Arc::clone(name),
            })
    }

    /// Puts a Service in; whether it is new.
    pub(super) fn put_service(&mut self, service: Service) -> bool {
        let name = Arc::clone(&service.meta.name);
        let existed = self.remove_service(&name);
        if let Some(selector) = service.selector() {
            // Filed under the entry that fewest Services share: `app` rather than `tier`.
            let rarest = selector.iter().min_by_key(|(k, v)| {
                self.selecting
                    .get(&((*k).into(), (*v).into()))
                    .map_or(0, BTreeSet::len)
            });
            if let Some((k, v)) = rarest {
                self.selecting
                    .entry((k.into(), v.into()))
                    .or_default()
                    .insert(Arc::clone(&name));
            }
        }
        self.services.insert(name, service);
        !existed
    }

    pub(super) fn remove_service(&mut self, name: &str) -> bool {
        let Some(old) = self.services.remove(name) else {
            return false;
        };
        for (k, v) in old.selector().iter().flat_map(|s| s.iter()) {
            let entry = (k.into(), v.into());
            if let Some(filed) = self.selecting.get_mut(&entry) {
                filed.remove(name);
                if filed.is_empty() {
                    self.selecting.remove(&entry);
                }
            }
        }
        true
    }

    pub(super) fn put_pod(&mut self, pod: Pod) {
        let name = Arc::clone(&pod.meta.name);
        for (k, v) in pod.meta.labels.iter() {
            if !self.carriers.contains_key(k) {
                self.carriers.insert(k.into(), HashMap::new());
            }
            let Some(values) = self.carriers.get_mut(k) else {
                continue;
            };
            match values.get_mut(v) {
                Some(pods) => {
                    pods.insert(Arc::clone(&name));
                }
                None => {
                    values.insert(v.into(), HashSet::from([Arc::clone(&name)]));
                }
            }
        }
        self.pods.insert(name, Box::new(pod));
    }

    pub(super) fn remove_pod(&mut self, name: &str) -> Option<Box<Pod>> {
        let pod = self.pods.remove(name)?;
        for (k, v) in pod.meta.labels.iter() {
            let Some(values) = self.carriers.get_mut(k) else {
                continue;
            };
            if let Some(pods) = values.get_mut(v) {
                pods.remove(name);
                if pods.is_empty() {
                    values.remove(v);
                }
            }
            if values.is_empty() {
                self.carriers.remove(k);
            }
        }
        Some(pod)
    }

    /// The Services that select this pod or have a slice that names it.
    pub(super) fn touch_pod(&self, namespace: &str, name: &str, touched: &mut Touched) {
        touched.extend(
            self.referring
                .get(name)
                .into_iter()
                .flat_map(|r| r.iter().map(|(key, _)| key.clone())),
        );
        let Some(pod) = self.pods.get(name) else {
            return;
        };
        for (k, v) in pod.meta.labels.iter() {
            for service in self
                .selecting
                .get(&(k.into(), v.into()))
                .into_iter()
                .flatten()
            {
                let selects = self
                    .services
                    .get(service)
                    .and_then(Service::selector)
                    .is_some_and(|s| pod.meta.labels.matches(s));
                if selects {
                    touched.insert(ServiceKey::new(namespace, Arc::clone(service)));
                }
            }
        }
    }

    /// The pods that a selector matches, by name.
    pub(super) fn select(&self, selector: &Labels) -> Vec<&Pod> {
        let mut fewest: Option<&HashSet<Arc<str>>> = None;
        for (k, v) in selector.iter() {
            let Some(pods) = self.carriers.get(k).and_then(|values| values.get(v)) else {
                return Vec::new();
            };
            if fewest.is_none_or(|f| pods.len() < f.len()) {
                fewest = Some(pods);
            }
        }
        let mut selected: Vec<&Pod> = fewest
            .into_iter()
            .flatten()
            .filter_map(|name| self.pods.get(name).map(AsRef::as_ref))
            .filter(|pod| pod.meta.labels.matches(selector))
            .collect();
        selected.sort_unstable_by(|a, b| a.meta.name.cmp(&b.meta.name));
        selected
    }

    /// The Services that a slice concerns: the one it names and the one that owns it.
    pub(super) fn services_of(slice: &Slice) -> Vec<Arc<str>> {
        let named = slice.service_name();
        let owner = slice.owning_service().map(|o| o.name.as_ref());
        named
            .into_iter()
            .chain(owner.filter(|o| Some(*o) != named))
            .map(Arc::from)
            .collect()
    }

    pub(super) fn put_slice(&mut self, slice: Slice, services: &[Arc<str>]) {
        let name = Arc::clone(&slice.meta.name);
        for service in services {
            self.slices_of
                .entry(Arc::clone(service))
                .or_default()
                .insert(Arc::clone(&name));
        }
        self.slices.insert(name, slice);
    }

    pub(super) fn remove_slice(&mut self, name: &str) -> Option<(Slice, Vec<Arc<str>>)> {
        let slice = self.slices.remove(name)?;
        let services = Self::services_of(&slice);
        for service in &services {
            if let Some(slices) = self.slices_of.get_mut(service) {
                slices.remove(name);
                if slices.is_empty() {
                    self.slices_of.remove(service);
                }
            }
        }
        Some((slice, services))
    }

    pub(super) fn refer(&mut self, pod: &str, service: &ServiceKey) {
        let Some(referring) = self.referring.get_mut(pod) else {
            // Nearly always one Service.
            self.referring
                .insert(pod.into(), vec![(service.clone(), 1)]);
            return;
        };
        match referring.iter_mut().find(|(key, _)| key == service) {
            Some((_, times)) => *times += 1,
            None => referring.push((service.clone(), 1)),
        }
    }

    pub(super) fn unrefer(&mut self, pod: &str, service: &ServiceKey) {
        let Some(referring) = self.referring.get_mut(pod) else {
            return;
        };
        if let Some((_, times)) = referring.iter_mut().find(|(key, _)| key == service) {
            *times -= 1;
        }
        referring.retain(|(_, times)| *times > 0);
        if referring.is_empty() {
            self.referring.remove(pod);
        }
    }
}
