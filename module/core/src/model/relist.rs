//! A full list of one kind replaces what was known: works out what vanished and what is new.

use std::collections::HashSet;
use std::sync::Arc;

use super::key::{Kind, ObjectRef};
use super::object::Object;
use super::world::{Touched, World};

impl World {
    /// Replaces everything of a kind by a full list, works out what vanished, and notes that the
    /// kind has been seen. What is unchanged touches nothing.
    pub fn reset(&mut self, kind: Kind, objects: Vec<Object>) -> Touched {
        let listed: HashSet<ObjectRef> = objects
            .iter()
            .filter(|o| o.kind() == kind)
            .map(Object::reference)
            .collect();
        let mut touched = Touched::new();
        for gone in self.references(kind) {
            if !listed.contains(&gone) {
                touched.append(&mut self.delete(&gone));
            }
        }
        for object in objects {
            if object.kind() == kind && !self.is_same(&object) {
                touched.append(&mut self.apply(object));
            }
        }
        if !self.seen(kind) {
            // Until now nothing was concluded from this kind.
            self.set_seen(kind, true);
            touched.extend(self.services());
        }
        touched
    }

    fn references(&self, kind: Kind) -> Vec<ObjectRef> {
        let named = |namespace: Option<&Arc<str>>, name: &Arc<str>| ObjectRef {
            kind,
            namespace: namespace.map(|n| n.to_string()),
            name: name.to_string(),
        };
        if kind == Kind::Node {
            return self.nodes.keys().map(|name| named(None, name)).collect();
        }
        let mut all = Vec::new();
        for (namespace, space) in &self.spaces {
            let space_of = Some(namespace);
            match kind {
                Kind::Service => all.extend(space.services.keys().map(|n| named(space_of, n))),
                Kind::Pod => all.extend(space.pods.keys().map(|n| named(space_of, n))),
                Kind::EndpointSlice => all.extend(space.slices.keys().map(|n| named(space_of, n))),
                Kind::Endpoints => all.extend(space.endpoints.keys().map(|n| named(space_of, n))),
                Kind::Namespace => {
                    all.extend(space.object.iter().map(|o| named(None, &o.meta.name)));
                }
                Kind::Node => {}
            }
        }
        all
    }

    /// Whether this very version of an object is known already.
    pub(crate) fn is_same(&self, object: &Object) -> bool {
        let new = object.meta();
        let space = self.spaces.get(&new.namespace);
        let name = &new.name;
        let old = match object {
            Object::Service(_) => space.and_then(|s| s.services.get(name)).map(|o| &o.meta),
            Object::Pod(_) => space.and_then(|s| s.pods.get(name)).map(|o| &o.meta),
            Object::Slice(_) => space.and_then(|s| s.slices.get(name)).map(|o| &o.meta),
            Object::Endpoints(_) => space.and_then(|s| s.endpoints.get(name)).map(|o| &o.meta),
            Object::Node(_) => self.nodes.get(name).map(|o| &o.meta),
            Object::Namespace(_) => self.namespace(name).map(|o| &o.meta),
        };
        old.is_some_and(|old| {
            !new.resource_version.is_empty()
                && old.uid == new.uid
                && old.resource_version == new.resource_version
        })
    }
}
