//! Understands documents: lists, objects that are judged, the controller's lease; counts the rest.

use jiff::Timestamp;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;
use slice_core::model::{Endpoints, Kind, Namespace, Node, Object, Pod, Service, Slice};

use super::text::Document;
use super::{Fault, Found};

/// Lists within lists. kubectl prints one; each level is read once more, so depth costs.
const MAX_LISTS: usize = 4;

/// Takes in one document.
pub(super) fn document(document: &Document<'_>, found: &mut Found) -> Result<(), Fault> {
    match document {
        Document::Json(raw) => item(Item::Raw(raw), None, MAX_LISTS, found),
        Document::Yaml(value) => item(Item::Tree(value), None, MAX_LISTS, found),
    }
}

#[derive(Clone, Copy)]
enum Item<'a> {
    Raw(&'a RawValue),
    Tree(&'a Value),
}

impl Item<'_> {
    fn decode<T: DeserializeOwned>(self) -> Result<T, serde_json::Error> {
        match self {
            Self::Raw(raw) => serde_json::from_str(raw.get()),
            Self::Tree(value) => T::deserialize(value),
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Head {
    api_version: Option<String>,
    kind: Option<String>,
    metadata: Option<Named>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Named {
    namespace: Option<String>,
    name: Option<String>,
}

#[derive(Deserialize)]
struct RawItems<'a> {
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

/// One object or list; items of a typed list carry neither kind nor version of their own.
fn item(
    item: Item<'_>,
    inherited: Option<(&str, &str)>,
    lists: usize,
    found: &mut Found,
) -> Result<(), Fault> {
    if let Item::Raw(raw) = item
        && raw.get().starts_with('[')
    {
        let lists = deeper(lists)?;
        let all: Vec<&RawValue> = serde_json::from_str(raw.get()).map_err(syntax)?;
        return all
            .into_iter()
            .try_for_each(|raw| self::item(Item::Raw(raw), None, lists, found));
    }
    let head: Head = item.decode().map_err(|e| Fault::Object {
        object: describe_loosely(item),
        why: e.to_string(),
    })?;
    let kind = head.kind.as_deref().or(inherited.map(|(_, kind)| kind));
    let version = head
        .api_version
        .as_deref()
        .or(inherited.map(|(version, _)| version));
    let (Some(kind), Some(version)) = (kind, version) else {
        return Err(Fault::Object {
            object: describe("object", &head),
            why: "it has no kind and apiVersion".into(),
        });
    };
    if let Some(of) = kind.strip_suffix("List") {
        return list(item, version, of, deeper(lists)?, found);
    }
    object(item, version, kind, &head, found)
}

fn deeper(lists: usize) -> Result<usize, Fault> {
    lists
        .checked_sub(1)
        .ok_or_else(|| Fault::Syntax("lists within lists within lists".to_owned()))
}

fn list(
    item: Item<'_>,
    version: &str,
    of: &str,
    lists: usize,
    found: &mut Found,
) -> Result<(), Fault> {
    let inherited = (!of.is_empty()).then_some((version, of));
    if let Some(kind) = judged(version, of) {
        found.listed.push(kind);
    }
    match item {
        Item::Raw(raw) => {
            let items: RawItems<'_> = serde_json::from_str(raw.get()).map_err(syntax)?;
            items
                .items
                .unwrap_or_default()
                .into_iter()
                .try_for_each(|raw| self::item(Item::Raw(raw), inherited, lists, found))
        }
        Item::Tree(value) => match value.get("items") {
            None | Some(Value::Null) => Ok(()),
            Some(Value::Array(items)) => items
                .iter()
                .try_for_each(|value| self::item(Item::Tree(value), inherited, lists, found)),
            Some(_) => Err(Fault::Object {
                object: format!("the {of}List"),
                why: "its items are not a list".into(),
            }),
        },
    }
}

fn judged(version: &str, kind: &str) -> Option<Kind> {
    match (version, kind) {
        ("v1", "Service") => Some(Kind::Service),
        ("v1", "Pod") => Some(Kind::Pod),
        ("v1", "Node") => Some(Kind::Node),
        ("v1", "Endpoints") => Some(Kind::Endpoints),
        ("v1", "Namespace") => Some(Kind::Namespace),
        ("discovery.k8s.io/v1", "EndpointSlice") => Some(Kind::EndpointSlice),
        _ => None,
    }
}

fn object(
    item: Item<'_>,
    version: &str,
    kind: &str,
    head: &Head,
    found: &mut Found,
) -> Result<(), Fault> {
    let broken = |e: serde_json::Error| Fault::Object {
        object: describe(kind, head),
        why: e.to_string(),
    };
    let Some(judged) = judged(version, kind) else {
        match (version, kind) {
            ("coordination.k8s.io/v1", "Lease") => lease(item, head, found),
            ("discovery.k8s.io/v1beta1", "EndpointSlice") => found.old_slices += 1,
            _ => *found.other_kinds.entry(kind.to_owned()).or_default() += 1,
        }
        return Ok(());
    };
    let mut object: Object = match judged {
        Kind::Service => item.decode::<Service>().map_err(broken)?.into(),
        Kind::Pod => item.decode::<Pod>().map_err(broken)?.into(),
        Kind::Node => item.decode::<Node>().map_err(broken)?.into(),
        Kind::EndpointSlice => item.decode::<Slice>().map_err(broken)?.into(),
        Kind::Endpoints => item.decode::<Endpoints>().map_err(broken)?.into(),
        Kind::Namespace => item.decode::<Namespace>().map_err(broken)?.into(),
    };
    if object.meta().name.is_empty() {
        return Err(Fault::Object {
            object: describe(kind, head),
            why: "it has no metadata.name".into(),
        });
    }
    if judged.is_namespaced() && object.meta().namespace.is_empty() {
        object.meta_mut().namespace = "default".into();
    }
    found.objects.push(object);
    Ok(())
}

#[derive(Deserialize)]
struct Lease {
    spec: LeaseSpec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LeaseSpec {
    renew_time: Option<Timestamp>,
    lease_duration_seconds: Option<i64>,
}

/// Only the lease of kube-controller-manager says something; a strange one says nothing.
fn lease(item: Item<'_>, head: &Head, found: &mut Found) {
    let named = head.metadata.as_ref();
    let is_it = named.and_then(|m| m.namespace.as_deref()) == Some("kube-system")
        && named.and_then(|m| m.name.as_deref()) == Some("kube-controller-manager");
    if is_it && let Ok(lease) = item.decode::<Lease>() {
        let seconds = lease.spec.lease_duration_seconds.unwrap_or(15);
        found.lease = lease.spec.renew_time.map(|at| (at, seconds));
    }
}

fn describe(kind: &str, head: &Head) -> String {
    let named = head.metadata.as_ref();
    let name = named
        .and_then(|m| m.name.as_deref())
        .unwrap_or("without a name");
    match named.and_then(|m| m.namespace.as_deref()) {
        Some(namespace) => format!("{kind} {namespace}/{name}"),
        None => format!("{kind} {name}"),
    }
}

/// For an object whose own kind or name is broken.
fn describe_loosely(item: Item<'_>) -> String {
    let value: Value = item.decode().unwrap_or_default();
    let kind = value
        .get("kind")
        .and_then(Value::as_str)
        .unwrap_or("an object");
    let name = value.pointer("/metadata/name").map(ToString::to_string);
    match name {
        Some(name) => format!("{kind} {name}"),
        None => kind.to_owned(),
    }
}

fn syntax(error: serde_json::Error) -> Fault {
    Fault::Syntax(error.to_string())
}
