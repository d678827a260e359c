//! The form in which objects leave the server: whole or metadata only, and for events in the group
//! that was asked for.

use serde_json::{Value, json};

use super::object;
use super::resource::{EVENTS_V1, Resource};

/// How objects are written to this client.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Form {
    resource: &'static Resource,
    metadata_only: bool,
}

impl Form {
    /// By resource and `Accept` header.
    pub(crate) fn new(resource: &'static Resource, accept: &str) -> Self {
        Self {
            resource,
            metadata_only: accept.contains("as=PartialObjectMetadata"),
        }
    }

    /// One object, with its apiVersion and kind.
    pub(crate) fn object(self, stored: &Value) -> Value {
        if self.metadata_only {
            let (api_version, kind) = self.type_of(self.resource);
            return json!({"apiVersion": api_version, "kind": kind,
                "metadata": stored["metadata"]});
        }
        let mut object = stored.clone();
        if self.resource == &EVENTS_V1 {
            super::events::from_core(&mut object);
        }
        object
    }

    /// A list. Items of a whole list carry no apiVersion and kind, as the real server has it.
    pub(crate) fn list<'a>(
        self,
        items: impl Iterator<Item = &'a Value>,
        revision: u64,
        rest: Option<(String, usize)>,
    ) -> Value {
        let items: Vec<Value> = items
            .map(|stored| {
                let mut item = self.object(stored);
                if !self.metadata_only {
                    object::map(&mut item).remove("kind");
                    object::map(&mut item).remove("apiVersion");
                }
                item
            })
            .collect();
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if let Some((token, remaining)) = rest {
            metadata["continue"] = json!(token);
            metadata["remainingItemCount"] = json!(remaining);
        }
        let (api_version, kind) = self.type_of(self.resource);
        json!({"apiVersion": api_version, "kind": format!("{kind}List"),
            "metadata": metadata, "items": items})
    }

    /// apiVersion and kind of an object in this form.
    pub(crate) fn type_of(self, resource: &Resource) -> (String, &'static str) {
        if self.metadata_only {
            ("meta.k8s.io/v1".to_owned(), "PartialObjectMetadata")
        } else {
            (resource.api_version(), resource.kind)
        }
    }
}
