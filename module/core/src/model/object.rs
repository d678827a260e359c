//! One object of any kind that is judged.

use super::endpoints::Endpoints;
use super::key::{Kind, ObjectRef};
use super::meta::Meta;
use super::namespace::Namespace;
use super::node::Node;
use super::pod::Pod;
use super::service::Service;
use super::slice::Slice;

/// An object that is judged, or that others are judged by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Object {
    /// A Service.
    Service(Service),
    /// A pod.
    Pod(Pod),
    /// A node.
    Node(Node),
    /// An EndpointSlice.
    Slice(Slice),
    /// An Endpoints object.
    Endpoints(Endpoints),
    /// A namespace.
    Namespace(Namespace),
}

impl Object {
    /// Its metadata.
    pub fn meta(&self) -> &Meta {
        match self {
            Self::Service(o) => &o.meta,
            Self::Pod(o) => &o.meta,
            Self::Node(o) => &o.meta,
            Self::Slice(o) => &o.meta,
            Self::Endpoints(o) => &o.meta,
            Self::Namespace(o) => &o.meta,
        }
    }

    /// Its metadata, to be changed.
    pub fn meta_mut(&mut self) -> &mut Meta {
        match self {
            Self::Service(o) => &mut o.meta,
            Self::Pod(o) => &mut o.meta,
            Self::Node(o) => &mut o.meta,
            Self::Slice(o) => &mut o.meta,
            Self::Endpoints(o) => &mut o.meta,
            Self::Namespace(o) => &mut o.meta,
        }
    }

    /// Its kind.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Service(_) => Kind::Service,
            Self::Pod(_) => Kind::Pod,
            Self::Node(_) => Kind::Node,
            Self::Slice(_) => Kind::EndpointSlice,
            Self::Endpoints(_) => Kind::Endpoints,
            Self::Namespace(_) => Kind::Namespace,
        }
    }

    /// Its name.
    pub fn reference(&self) -> ObjectRef {
        let (kind, meta) = (self.kind(), self.meta());
        ObjectRef {
            kind,
            namespace: kind.is_namespaced().then(|| meta.namespace.to_string()),
            name: meta.name.to_string(),
        }
    }
}

macro_rules! from_kinds {
    ($($kind:ident),*) => {$(
        impl From<$kind> for Object {
            fn from(object: $kind) -> Self {
                Self::$kind(object)
            }
        }
    )*};
}
from_kinds!(Service, Pod, Node, Slice, Endpoints, Namespace);
