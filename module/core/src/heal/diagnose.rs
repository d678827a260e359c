//! Why refreshes did not help: what the Service's Events, the controller's Lease and the history of
//! the slices say, and what a person has to do about it. Pure; writes nothing, waits for nothing.
//!
//! A slice controller that is wedged on a Service answers no refresh and would not bring a deleted
//! slice back, although it works for every other Service (`tests/real_wedges.rs`).

use jiff::{SignedDuration, Timestamp};

use super::clues::{Clues, EventClue, SliceClue, lease_overdue};
use crate::model::{CONTROLLER, MANAGED_BY, SERVICE_NAME, ServiceKey};

/// Without a trace of our refresh, an Event counts for so long: past the longest back-off of the
/// controller (1000 s), which tells nothing new before it tries again.
const EVENT_COUNTS: SignedDuration = SignedDuration::from_mins(20);
/// Times in `managedFields` have no fractions, and Events are written by the controller's clock.
const SLACK: SignedDuration = SignedDuration::from_secs(2);
/// Programs that the slice controller runs in: upstream, k3s, MicroK8s. The start of a client's user
/// agent is its name in `managedFields`.
const CONTROLLERS: [&str; 3] = ["kube-controller-manager", "k3s", "kubelite"];
/// What the controller tells when it cannot write slices
/// (pkg/controller/endpointslice/endpointslice_controller.go).
const FAILED_WRITE: &str = "FailedToUpdateEndpointSlices";
/// Words of an API server that refuses for good, and not for a conflict that passes.
const REFUSALS: [&str; 4] = ["forbidden", "denied", "admission webhook", "quota"];

/// What a diagnosis says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The controller cannot sync this Service before somebody frees it; the text says how.
    Wedged(String),
    /// Since our last refresh the controller's write was refused, or overwritten. Whether that still
    /// holds only another refresh can tell; a slice that was deleted meanwhile would not come back.
    Contested(String),
    /// The controller manager does not renew its Lease. Where a canary can be asked, it decides: the
    /// Lease may be a leftover of another set-up.
    NoLeader(String),
    /// Nothing speaks against the next rung.
    Clear,
}

/// A verdict, and what else is worth telling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnosis {
    /// What follows.
    pub verdict: Verdict,
    /// Sentences for the story of the incident.
    pub notes: Vec<String>,
}

/// Works out what is the matter with a Service that refreshes did not help. `uid` is the Service's.
pub fn diagnose(key: &ServiceKey, uid: &str, clues: &Clues) -> Diagnosis {
    let owned = || clues.slices.iter().filter(|s| s.owner == uid);
    let controller = Controller::seen_in(&clues.slices);
    let mut notes: Vec<String> = clues.unread.clone();
    let wedge = owned()
        .find_map(|s| finalizer(key, s))
        .or_else(|| owned().find_map(|s| moved(key, s, &controller)))
        .or_else(|| owned().find_map(|s| unmanaged(key, s, &controller)));
    let contested = owned()
        .find_map(|s| rewritten(key, s, &controller, clues))
        .or_else(|| clues.events.iter().find_map(|e| refused(key, e, clues)));
    let verdict = match (wedge, contested, no_leader(clues)) {
        (Some(text), _, _) => Verdict::Wedged(text),
        (None, Some(text), _) => Verdict::Contested(text),
        (None, None, Some(text)) => Verdict::NoLeader(text),
        (None, None, None) => Verdict::Clear,
    };
    for event in clues.events.iter().filter(|e| e.reason == FAILED_WRITE) {
        notes.push(format!(
            "the controller said at {}: {}",
            shown(event.at),
            event.text
        ));
    }
    Diagnosis { verdict, notes }
}

/// Who the slice controller is in `managedFields`.
struct Controller<'a>(Vec<&'a str>);

impl<'a> Controller<'a> {
    /// The known names, and whoever set the owner of a slice that is marked as the controller's: a
    /// distribution may run it under a name of its own.
    fn seen_in(slices: &'a [SliceClue]) -> Self {
        let marked = slices
            .iter()
            .filter(|s| s.managed_by.as_deref() == Some(CONTROLLER));
        let makers = marked.filter_map(SliceClue::maker);
        Self(CONTROLLERS.into_iter().chain(makers).collect())
    }

    fn is(&self, writer: &str) -> bool {
        self.0.contains(&writer)
    }

    fn made(&self, slice: &SliceClue) -> bool {
        slice.maker().is_some_and(|m| self.is(m))
    }
}

fn finalizer(key: &ServiceKey, slice: &SliceClue) -> Option<String> {
    let since = slice.deleted_at?;
    if slice.finalizers.is_empty() {
        return None;
    }
    let names = slice.finalizers.join(", ");
    Some(format!(
        "slice {name} has been waiting to be deleted since {since} behind the finalizer {names}, and \
         the controller does not sync {key} until it is gone. Let the program that set it finish; if \
         that program is gone: kubectl patch endpointslice -n {space} {name} --type=merge -p \
         '{{\"metadata\":{{\"finalizers\":null}}}}'",
        name = slice.name,
        space = key.namespace,
    ))
}

fn moved(key: &ServiceKey, slice: &SliceClue, controller: &Controller<'_>) -> Option<String> {
    let names = slice.service.as_deref();
    if names == Some(key.name.as_ref()) || !controller.made(slice) {
        return None;
    }
    let to = names.map_or("was removed".to_owned(), |n| format!("names {n} now"));
    let label = relabel(key, slice, SERVICE_NAME, &key.name);
    Some(format!(
        "slice {} of {key} was given away: its label {SERVICE_NAME} {to}{}. The controller waits for \
         it and does not sync {key}. {label}",
        slice.name,
        slice.writer_of(SERVICE_NAME),
    ))
}

fn unmanaged(key: &ServiceKey, slice: &SliceClue, controller: &Controller<'_>) -> Option<String> {
    let manager = slice.managed_by.as_deref();
    if manager == Some(CONTROLLER) || !controller.made(slice) {
        return None;
    }
    let to = manager.map_or("was removed".to_owned(), |m| format!("says {m} now"));
    let label = relabel(key, slice, MANAGED_BY, CONTROLLER);
    Some(format!(
        "slice {} was made by the controller, and its label {MANAGED_BY} {to}{}. The controller \
         waits for it and does not sync {key}. {label}",
        slice.name,
        slice.writer_of(MANAGED_BY),
    ))
}

fn relabel(key: &ServiceKey, slice: &SliceClue, label: &str, value: &str) -> String {
    format!(
        "Put it back: kubectl label --overwrite -n {} endpointslice {} {label}={value}; or restart \
         kube-controller-manager",
        key.namespace, slice.name
    )
}

/// Somebody wrote the endpoints after our refresh: what the controller would write, it would lose
/// again.
fn rewritten(
    key: &ServiceKey,
    slice: &SliceClue,
    controller: &Controller<'_>,
    clues: &Clues,
) -> Option<String> {
    let writer = slice.endpoints_by.as_ref()?;
    let at = writer.at.filter(|at| is_recent(*at, clues))?;
    if controller.is(&writer.name) || !controller.made(slice) {
        return None;
    }
    Some(format!(
        "{} writes to slice {} of {key}, which is the controller's (last at {at}): whatever is \
         healed is overwritten. Stop it, or have it write a slice of its own with another \
         {MANAGED_BY} label",
        writer.name, slice.name
    ))
}

fn refused(key: &ServiceKey, event: &EventClue, clues: &Clues) -> Option<String> {
    let says = |word: &str| event.text.to_lowercase().contains(word);
    let recent = event.at.is_some_and(|at| is_recent(at, clues));
    if event.reason != FAILED_WRITE || !recent || !REFUSALS.iter().any(|w| says(w)) {
        return None;
    }
    Some(format!(
        "the API server refuses what the controller writes for {key}: {}. Mend the rule that refuses \
         it (admission policy, webhook, quota, or rights of the controller); the controller tries \
         again by itself",
        event.text
    ))
}

fn no_leader(clues: &Clues) -> Option<String> {
    let lease = clues.lease.as_ref()?;
    let Some(renewed) = lease.renewed.filter(|_| !lease.holder.is_empty()) else {
        return Some(
            "no kube-controller-manager holds its Lease (kube-system/kube-controller-manager): start \
             it"
            .to_owned(),
        );
    };
    let age = lease_overdue(renewed, lease.seconds, clues.at?)?;
    Some(format!(
        "kube-controller-manager ({}) has not renewed its Lease \
         (kube-system/kube-controller-manager) since {renewed}, for {age} s: start it, or look at its \
         connection to the API server",
        lease.holder
    ))
}

fn is_recent(at: Timestamp, clues: &Clues) -> bool {
    let (from, slack) = match (clues.refreshed, clues.at) {
        (Some(refreshed), _) => (refreshed, SLACK),
        (None, Some(now)) => (now, EVENT_COUNTS),
        (None, None) => return true,
    };
    from.checked_sub(slack).map_or(true, |from| at >= from)
}

fn shown(at: Option<Timestamp>) -> String {
    at.map_or("an unknown time".to_owned(), |at| at.to_string())
}

#[cfg(test)]
#[path = "diagnose_tests.rs"]
mod tests;
