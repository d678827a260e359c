//! Fresh reads of all that one Service is judged on: straight from the store behind the API server,
//! past its caches and ours.

use std::collections::{BTreeMap, BTreeSet};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use futures::stream::{self, StreamExt, TryStreamExt};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use slice_core::event::Snapshot;
use slice_core::model::{
    Endpoints, Labels, Namespace, Node, Pod, SERVICE_NAME, Service, ServiceKey, Slice, TargetRef,
};

use super::call::{Caller, Failure, Target};
use crate::client::objects::{Slim, Typed, collection};

/// Objects a page.
const PAGE: usize = 500;
/// More single reads than this, and the whole collection is listed instead.
const SINGLES: usize = 50;
/// Single reads at a time.
const AT_ONCE: usize = 4;

/// Reads the Service, its slices, their pods and nodes, its Endpoints and namespace.
pub(super) async fn snapshot(caller: &Caller, key: &ServiceKey) -> Result<Snapshot, Failure> {
    let space = Some(key.namespace.as_ref());
    let (service, slices, namespace, endpoints) = futures::try_join!(
        get::<Service>(caller, space, &key.name),
        slices(caller, key),
        optional(get::<Namespace>(caller, None, &key.namespace)),
        optional(get::<Endpoints>(caller, space, &key.name)),
    )?;
    let (slices, raw_slices) = slices;
    let pods = pods(caller, key, service.as_ref(), &slices, endpoints.as_ref()).await?;
    let nodes = nodes(caller, &pods, &slices).await?;
    Ok(Snapshot {
        service,
        namespace,
        slices,
        pods,
        nodes,
        endpoints,
        raw_slices,
    })
}

async fn slices(
    caller: &Caller,
    key: &ServiceKey,
) -> Result<(Vec<Slice>, BTreeMap<String, Value>), Failure> {
    let selector = escape(&format!("{SERVICE_NAME}={}", key.name));
    let query = format!("labelSelector={selector}");
    let mut slices = Vec::new();
    let mut raw = BTreeMap::new();
    for mut value in list::<Slice>(caller, Some(&key.namespace), &query).await? {
        let slice = decode::<Slice>(&value)?;
        if let Some(meta) = value.get_mut("metadata").and_then(Value::as_object_mut) {
            meta.remove("managedFields");
        }
        // Items of a list do not say what they are; what is kept to restore from has to.
        if let Some(object) = value.as_object_mut() {
            object.insert("apiVersion".to_owned(), "discovery.k8s.io/v1".into());
            object.insert("kind".to_owned(), Slice::KIND.as_str().into());
        }
        raw.insert(slice.meta.name.to_string(), value);
        slices.push(slice);
    }
    Ok((slices, raw))
}

async fn pods(
    caller: &Caller,
    key: &ServiceKey,
    service: Option<&Service>,
    slices: &[Slice],
    endpoints: Option<&Endpoints>,
) -> Result<Vec<Pod>, Failure> {
    let space = Some(key.namespace.as_ref());
    let mut pods = match service.and_then(Service::selector) {
        Some(selector) => {
            let query = format!("labelSelector={}", escape(&equals(selector)));
            typed::<Pod>(list::<Pod>(caller, space, &query).await?)?
        }
        None => Vec::new(),
    };
    let mut named: BTreeSet<&str> = targets(slices, endpoints)
        .filter(|t| t.kind.as_ref() == "Pod" && t.namespace == key.namespace)
        .map(|t| t.name.as_ref())
        .collect();
    for pod in &pods {
        named.remove(pod.meta.name.as_ref());
    }
    let more = named_ones::<Pod>(caller, space, &named).await?;
    pods.extend(more);
    Ok(pods)
}

async fn nodes(caller: &Caller, pods: &[Pod], slices: &[Slice]) -> Result<Vec<Node>, Failure> {
    let of_pods = pods.iter().filter_map(|p| p.spec.node_name.as_deref());
    let of_endpoints = slices
        .iter()
        .flat_map(|s| &s.endpoints)
        .filter_map(|e| e.node_name.as_deref());
    let of_targets = targets(slices, None).filter(|t| t.kind.as_ref() == "Node");
    let named = of_pods
        .chain(of_endpoints)
        .chain(of_targets.map(|t| t.name.as_ref()));
    let named: BTreeSet<&str> = named.filter(|name| !name.is_empty()).collect();
    named_ones::<Node>(caller, None, &named).await
}

fn targets<'a>(
    slices: &'a [Slice],
    endpoints: Option<&'a Endpoints>,
) -> impl Iterator<Item = &'a TargetRef> {
    let of_slices = slices
        .iter()
        .flat_map(|s| &s.endpoints)
        .filter_map(|e| e.target_ref.as_ref());
    let of_endpoints = endpoints
        .into_iter()
        .flat_map(|e| &e.subsets)
        .flat_map(|s| s.addresses.iter().chain(&s.not_ready_addresses))
        .filter_map(|a| a.target_ref.as_ref());
    of_slices.chain(of_endpoints)
}

/// Those of the named objects that exist, one by one while they are few.
async fn named_ones<T: Slim>(
    caller: &Caller,
    namespace: Option<&str>,
    names: &BTreeSet<&str>,
) -> Result<Vec<T>, Failure> {
    if names.len() > SINGLES {
        let mut found = Vec::new();
        for value in list::<T>(caller, namespace, "").await? {
            let name = value
                .get("metadata")
                .and_then(|m| m.get("name"))
                .and_then(Value::as_str);
            if name.is_some_and(|n| names.contains(n)) {
                found.push(decode(&value)?);
            }
        }
        return Ok(found);
    }
    // Boxed: otherwise nobody can tell that the whole is Send.
    let gets: Vec<BoxFuture<'_, Result<Option<T>, Failure>>> = names
        .iter()
        .map(|name| get::<T>(caller, namespace, name).boxed())
        .collect();
    stream::iter(gets)
        .buffered(AT_ONCE)
        .try_filter_map(|found| std::future::ready(Ok(found)))
        .try_collect()
        .await
}

async fn get<T: Slim>(
    caller: &Caller,
    namespace: Option<&str>,
    name: &str,
) -> Result<Option<T>, Failure> {
    let target = Target::new("get", named::<T>(namespace, name));
    let path = format!("{}/{name}", collection::<T>(namespace));
    match caller.get(&target, &path).await? {
        Some(answer) => decode(&answer.body).map(Some),
        None => Ok(None),
    }
}

/// What may be missing: an object that this account must not read counts as none.
async fn optional<T>(
    read: impl Future<Output = Result<Option<T>, Failure>>,
) -> Result<Option<T>, Failure> {
    match read.await {
        Err(Failure::Forbidden(_)) => Ok(None),
        other => other,
    }
}

pub(super) async fn list<T: Slim>(
    caller: &Caller,
    namespace: Option<&str>,
    query: &str,
) -> Result<Vec<Value>, Failure> {
    // Between two pages the server may have dropped the state that the first was of.
    match pages::<T>(caller, namespace, query).await {
        Err(Failure::Expired(_)) => pages::<T>(caller, namespace, query).await,
        other => other,
    }
}

async fn pages<T: Slim>(
    caller: &Caller,
    namespace: Option<&str>,
    query: &str,
) -> Result<Vec<Value>, Failure> {
    let target = Target::new("list", named::<T>(namespace, ""));
    let path = collection::<T>(namespace);
    let mut all = Vec::new();
    let mut token = String::new();
    loop {
        // No resourceVersion: the newest state, never a cache's. A later page is of the same state.
        let page = format!("{path}?limit={PAGE}&{query}{token}");
        let Some(mut answer) = caller.get(&target, &page).await? else {
            return Err(Failure::Failed(format!(
                "{target}: the API server does not serve them"
            )));
        };
        match answer.body.get_mut("items").map(Value::take) {
            Some(Value::Array(items)) => all.extend(items),
            Some(Value::Null) => {}
            _ => {
                return Err(Failure::Failed(format!(
                    "{target}: the answer is not a list"
                )));
            }
        }
        let next = answer.body.get("metadata").and_then(|m| m.get("continue"));
        match next.and_then(Value::as_str).filter(|t| !t.is_empty()) {
            Some(next) => token = format!("&continue={}", escape(next)),
            None => return Ok(all),
        }
    }
}

fn typed<T: Slim>(values: Vec<Value>) -> Result<Vec<T>, Failure> {
    values.iter().map(decode).collect()
}

/// Judging on a part of the objects could find what is not there: one bad object fails the read.
fn decode<T: Slim>(value: &Value) -> Result<T, Failure> {
    let typed = Typed::<T>::decode(value);
    let name = typed.reference();
    typed
        .object
        .map_err(|error| Failure::Failed(format!("{name} cannot be decoded: {error}")))
}

fn named<T: Slim>(namespace: Option<&str>, name: &str) -> String {
    match namespace {
        Some(namespace) if name.is_empty() => format!("{} in {namespace}", T::PLURAL),
        Some(namespace) => format!("{} {namespace}/{name}", T::PLURAL),
        None if name.is_empty() => T::PLURAL.to_owned(),
        None => format!("{} {name}", T::PLURAL),
    }
}

fn equals(selector: &Labels) -> String {
    let all: Vec<String> = selector.iter().map(|(k, v)| format!("{k}={v}")).collect();
    all.join(",")
}

pub(super) fn escape(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selector_becomes_a_query() {
        let selector: Labels = [("app", "web"), ("tier", "")].into_iter().collect();
        assert_eq!(escape(&equals(&selector)), "app%3Dweb%2Ctier%3D");
    }
}
