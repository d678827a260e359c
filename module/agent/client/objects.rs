//! How the API's JSON becomes the core's slim types, for lists and watches alike.
//!
//! One object that cannot be decoded never takes the others with it: it is kept as its name and the
//! reason.

use std::borrow::Cow;

use kube::Resource;
use kube::core::{ClusterResourceScope, ObjectMeta};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use slice_core::model::{Endpoints, Kind, Namespace, Node, Object, ObjectRef, Pod, Service, Slice};

/// A slim type of the core, and where the API keeps its objects.
pub trait Slim: DeserializeOwned + Into<Object> + Clone + std::fmt::Debug + Send + 'static {
    /// Its kind.
    const KIND: Kind;
    /// Its API group; empty for the core group.
    const GROUP: &'static str;
    /// Its name in URLs and rights.
    const PLURAL: &'static str;
}

macro_rules! slim {
    ($($type:ident: $kind:ident, $group:literal, $plural:literal;)*) => {$(
        impl Slim for $type {
            const KIND: Kind = Kind::$kind;
            const GROUP: &'static str = $group;
            const PLURAL: &'static str = $plural;
        }
    )*};
}
slim! {
    Service: Service, "", "services";
    Pod: Pod, "", "pods";
    Node: Node, "", "nodes";
    Slice: EndpointSlice, "discovery.k8s.io", "endpointslices";
    Endpoints: Endpoints, "", "endpoints";
    Namespace: Namespace, "", "namespaces";
}

/// The path of a collection; of all namespaces where `namespace` is none.
pub fn collection<T: Slim>(namespace: Option<&str>) -> String {
    Typed::<T>::url_path(&(), namespace)
}

/// An object as it came from the API: decoded, or the reason why it could not be.
#[derive(Clone, Debug)]
pub struct Typed<T> {
    meta: ObjectMeta,
    /// The object, or why it cannot be decoded.
    pub object: Result<T, String>,
}

impl<T: Slim> Typed<T> {
    /// Names the object, decoded or not.
    pub fn reference(&self) -> ObjectRef {
        ObjectRef {
            kind: T::KIND,
            namespace: self
                .meta
                .namespace
                .clone()
                .filter(|_| T::KIND.is_namespaced()),
            name: self.meta.name.clone().unwrap_or_default(),
        }
    }

    /// Decodes an object of which the whole JSON is there.
    pub fn decode(value: &Value) -> Self {
        let field = |name: &str| {
            let text = value
                .get("metadata")
                .and_then(|m| m.get(name))
                .and_then(Value::as_str);
            text.map(str::to_owned)
        };
        Self {
            meta: ObjectMeta {
                name: field("name"),
                namespace: field("namespace"),
                resource_version: field("resourceVersion"),
                ..ObjectMeta::default()
            },
            object: T::deserialize(value).map_err(|error| error.to_string()),
        }
    }
}

impl<'de, T: Slim> Deserialize<'de> for Typed<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        // The detour over a value is what lets one bad object be skipped.
        let value = Value::deserialize(from)?;
        if !value.is_object() {
            return Err(D::Error::custom("an object of the API is a JSON object"));
        }
        Ok(Self::decode(&value))
    }
}

impl<T: Slim> Resource for Typed<T> {
    type DynamicType = ();
    // Only ever used across all namespaces; a path with one is asked for by name.
    type Scope = ClusterResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        T::KIND.as_str().into()
    }

    fn group((): &()) -> Cow<'_, str> {
        T::GROUP.into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        T::PLURAL.into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.meta
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_bad_object_keeps_its_name_and_does_not_spoil_the_list() {
        let list = json!([
            {"metadata": {"name": "web", "namespace": "line1", "resourceVersion": "7"},
             "spec": {"selector": {"app": "web"}}},
            {"metadata": {"name": "odd", "namespace": "line1"}, "spec": {"ports": "none"}},
        ]);
        let list: Vec<Typed<Service>> = serde_json::from_value(list).unwrap();
        let good = list[0].object.as_ref().unwrap();
        assert_eq!(good.selector().and_then(|s| s.get("app")), Some("web"));
        assert_eq!(list[0].meta.resource_version.as_deref(), Some("7"));
        assert!(list[1].object.is_err());
        assert_eq!(list[1].reference().to_string(), "Service line1/odd");
    }

    #[test]
    fn collections_are_where_the_api_has_them() {
        assert_eq!(
            collection::<Pod>(Some("line1")),
            "/api/v1/namespaces/line1/pods"
        );
        assert_eq!(
            collection::<Slice>(None),
            "/apis/discovery.k8s.io/v1/endpointslices"
        );
    }
}
