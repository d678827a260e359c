//! What a diagnosis is made from, read from Kubernetes JSON: the history of slices in their
//! `managedFields`, the controller's Lease, Events. Reads; judges nothing.

use jiff::Timestamp;
use serde_json::Value;

use crate::model::{MANAGED_BY, SERVICE_NAME};

/// The name under which this product stands in `managedFields`.
const OWN_MANAGER: &str = "slice-healer";

/// A Lease that was not renewed for this many of its own durations, and for at least this many seconds,
/// is over.
const LEASE_DURATIONS: i64 = 4;
const LEASE_SECONDS: i64 = 60;

/// Everything that was read about one Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Clues {
    /// The API server's time.
    pub at: Option<Timestamp>,
    /// When our last refresh was written, by the API server's clock.
    pub refreshed: Option<Timestamp>,
    /// The controller manager's Lease; none where there is none to be seen.
    pub lease: Option<LeaseClue>,
    /// Every slice that names the Service or that it owns.
    pub slices: Vec<SliceClue>,
    /// The Service's Events, the latest first.
    pub events: Vec<EventClue>,
    /// What could not be read, and why.
    pub unread: Vec<String>,
}

/// A leader's Lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseClue {
    /// Who holds it; empty when it was given back.
    pub holder: String,
    /// When it was last renewed.
    pub renewed: Option<Timestamp>,
    /// How long a renewal holds, in seconds.
    pub seconds: i64,
}

/// What one slice says of its past.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SliceClue {
    /// Its name.
    pub name: String,
    /// The Service that its label names.
    pub service: Option<String>,
    /// Its manager by label.
    pub managed_by: Option<String>,
    /// uid of the Service that owns it as its controller; empty for none.
    pub owner: String,
    /// Since when it waits to be deleted.
    pub deleted_at: Option<Timestamp>,
    /// What holds that up.
    pub finalizers: Vec<String>,
    /// Who set its owner: who made it.
    pub made_by: Option<Writer>,
    /// Who last changed its endpoints.
    pub endpoints_by: Option<Writer>,
    /// Who last set the label that names the Service.
    pub service_by: Option<Writer>,
    /// Who last set the label that names the manager.
    pub managed_by_by: Option<Writer>,
}

/// An entry of `managedFields`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Writer {
    /// The field manager.
    pub name: String,
    /// Its last write.
    pub at: Option<Timestamp>,
}

/// What somebody told on the Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventClue {
    /// One word.
    pub reason: String,
    /// One sentence.
    pub text: String,
    /// When it was last told.
    pub at: Option<Timestamp>,
}

impl SliceClue {
    /// Reads an EndpointSlice.
    pub fn read(slice: &Value) -> Self {
        let meta = &slice["metadata"];
        let label = |key: &str| text(&meta["labels"][key]);
        let owner = list(&meta["ownerReferences"])
            .find(|o| o["controller"] == true && o["kind"] == "Service");
        let by = |path: &[&str]| writer(meta, path);
        Self {
            name: text(&meta["name"]).unwrap_or_default(),
            service: label(SERVICE_NAME),
            managed_by: label(MANAGED_BY),
            owner: owner.and_then(|o| text(&o["uid"])).unwrap_or_default(),
            deleted_at: time(&meta["deletionTimestamp"]),
            finalizers: list(&meta["finalizers"]).filter_map(text).collect(),
            made_by: by(&["f:metadata", "f:ownerReferences"]),
            endpoints_by: by(&["f:endpoints"]),
            service_by: by(&["f:metadata", "f:labels", &format!("f:{SERVICE_NAME}")]),
            managed_by_by: by(&["f:metadata", "f:labels", &format!("f:{MANAGED_BY}")]),
        }
    }

    /// Who made it.
    pub fn maker(&self) -> Option<&str> {
        self.made_by.as_ref().map(|w| w.name.as_str())
    }

    /// ` (written by … at …)` for a label, where that is known. A label that was taken away leaves no
    /// trace of who did it.
    pub(super) fn writer_of(&self, label: &str) -> String {
        let writer = match label {
            SERVICE_NAME => &self.service_by,
            _ => &self.managed_by_by,
        };
        match writer {
            Some(Writer { name, at: Some(at) }) => format!(" (written by {name} at {at})"),
            Some(Writer { name, at: None }) => format!(" (written by {name})"),
            None => String::new(),
        }
    }
}

impl EventClue {
    /// Reads an Event of core/v1.
    pub fn read(event: &Value) -> Self {
        let times = [
            &event["series"]["lastObservedTime"],
            &event["lastTimestamp"],
            &event["eventTime"],
            &event["firstTimestamp"],
        ];
        Self {
            reason: text(&event["reason"]).unwrap_or_default(),
            text: text(&event["message"]).unwrap_or_default(),
            at: times.into_iter().find_map(time),
        }
    }
}

impl LeaseClue {
    /// Reads a Lease.
    pub fn read(lease: &Value) -> Self {
        let spec = &lease["spec"];
        Self {
            holder: text(&spec["holderIdentity"]).unwrap_or_default(),
            renewed: time(&spec["renewTime"]),
            seconds: spec["leaseDurationSeconds"].as_i64().unwrap_or_default(),
        }
    }
}

/// For how many seconds a leader's Lease has not been renewed, where that is long enough to say that
/// there is no leader: at least a minute, and four of its own durations. Leaders renew it several times
/// within one (kube-controller-manager: 15 s, renewed every 2 s).
pub fn lease_overdue(renewed: Timestamp, seconds: i64, now: Timestamp) -> Option<i64> {
    let age = now.duration_since(renewed).as_secs();
    let longest = LEASE_DURATIONS.saturating_mul(seconds).max(LEASE_SECONDS);
    (age > longest).then_some(age)
}

/// When this product last wrote to an object, by the API server's clock.
pub fn own_write(object: &Value) -> Option<Timestamp> {
    list(&object["metadata"]["managedFields"])
        .filter(|f| f["manager"] == OWN_MANAGER)
        .filter_map(|f| time(&f["time"]))
        .max()
}

/// The last of those that own a field. Several do after equal writes.
fn writer(meta: &Value, path: &[&str]) -> Option<Writer> {
    list(&meta["managedFields"])
        .filter(|entry| {
            let field = path
                .iter()
                .try_fold(&entry["fieldsV1"], |at, key| at.get(*key));
            field.is_some()
        })
        .map(|entry| Writer {
            name: text(&entry["manager"]).unwrap_or_default(),
            at: time(&entry["time"]),
        })
        .max_by_key(|w| w.at)
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> Option<String> {
    value.as_str().filter(|t| !t.is_empty()).map(str::to_owned)
}

fn time(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}
