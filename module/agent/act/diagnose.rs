//! Reads what may say why refreshes of a Service did not help: its Events, the slices of its
//! namespace with their history, the controller manager's Lease. What may not be read is said and
//! left out; the rest still counts.

use http::Method;
use jiff::Timestamp;
use slice_core::heal::clues::{Clues, EventClue, LeaseClue, SliceClue, own_write};
use slice_core::model::{Service, ServiceKey, Slice};

use super::call::{Caller, Failure, Payload, Target};
use super::read::{escape, list};
use crate::client::CONTROLLER_LEASE;
use crate::client::objects::collection;

/// Where kube-controller-manager elects its leader. k3s has no such Lease.
const LEASE: &str = "kube-system/kube-controller-manager";
/// Events that are looked at: the API server keeps those of an hour.
const EVENTS: usize = 100;

/// Reads all of it.
pub(super) async fn clues(caller: &Caller, key: &ServiceKey) -> Result<Clues, Failure> {
    let space = Some(key.namespace.as_ref());
    let service = Target::new("get", format!("services {key}"));
    let service_path = format!("{}/{}", collection::<Service>(space), key.name);
    let (service, slices, events, lease) = futures::try_join!(
        caller.get(&service, &service_path),
        list::<Slice>(caller, space, ""),
        permitted(events(caller, key)),
        permitted(lease(caller)),
    )?;
    let mut clues = Clues {
        at: service.as_ref().and_then(|s| s.date),
        refreshed: service.as_ref().and_then(|s| own_write(&s.body)),
        ..Clues::default()
    };
    let uid = service
        .as_ref()
        .and_then(|s| s.body["metadata"]["uid"].as_str())
        .unwrap_or_default();
    let concerned = |s: &SliceClue| s.owner == uid || s.service.as_deref() == Some(&*key.name);
    clues.slices = slices
        .iter()
        .map(SliceClue::read)
        .filter(concerned)
        .collect();
    match events {
        Ok(events) => clues.events = events,
        Err(why) => clues.unread.push(why),
    }
    match lease {
        Ok(lease) => clues.lease = lease,
        Err(why) => clues.unread.push(why),
    }
    Ok(clues)
}

/// The Events of the Service, the latest first.
async fn events(caller: &Caller, key: &ServiceKey) -> Result<Vec<EventClue>, Failure> {
    let target = Target::new("list", format!("events of services {key}"));
    let fields = format!(
        "involvedObject.kind=Service,involvedObject.name={}",
        key.name
    );
    let path = format!(
        "/api/v1/namespaces/{}/events?limit={EVENTS}&fieldSelector={}",
        key.namespace,
        escape(&fields)
    );
    let answer = caller
        .send(&target, &Method::GET, &path, Payload::None)
        .await?;
    let items = answer.body["items"].as_array();
    let mut events: Vec<EventClue> = items.into_iter().flatten().map(EventClue::read).collect();
    events.sort_by_key(|e| std::cmp::Reverse(e.at.unwrap_or(Timestamp::MIN)));
    Ok(events)
}

async fn lease(caller: &Caller) -> Result<Option<LeaseClue>, Failure> {
    let target = Target::new("get", format!("leases {LEASE}"));
    let found = caller.get(&target, CONTROLLER_LEASE).await?;
    Ok(found.map(|answer| LeaseClue::read(&answer.body)))
}

/// What this account may not read, in words.
async fn permitted<T>(
    read: impl Future<Output = Result<T, Failure>>,
) -> Result<Result<T, String>, Failure> {
    match read.await {
        Ok(read) => Ok(Ok(read)),
        Err(failure @ (Failure::Forbidden(_) | Failure::Missing(_))) => {
            Ok(Err(failure.to_string()))
        }
        Err(failure) => Err(failure),
    }
}
