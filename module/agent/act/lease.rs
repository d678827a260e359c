//! The Lease that makes heals of several modules and of the command line follow one another.
//!
//! It is taken for one heal, taken again before each write, and given back. All times in it are the
//! API server's own, so that nodes whose clocks differ agree on when it has ended.

use http::Method;
use jiff::{Timestamp, ToSpan as _};
use serde_json::{Value, json};
use slice_core::event::{LeaseAnswer, Outcome};

use super::call::{Answer, Caller, Failure, Payload, Target};
use super::{FIELD_MANAGER, OWN_NAME, Options};

/// Takes the Lease, or takes it again.
pub(super) async fn take(caller: &Caller, options: &Options, holder: &str) -> Outcome {
    match try_take(caller, options, holder).await {
        Ok(answer) => Outcome::Lease(answer),
        Err(Failure::Forbidden(reason)) => Outcome::Lease(LeaseAnswer::Absent(reason)),
        Err(failure) => failure.outcome(),
    }
}

async fn try_take(
    caller: &Caller,
    options: &Options,
    holder: &str,
) -> Result<LeaseAnswer, Failure> {
    let names = Names::of(options);
    let Some(found) = caller.get(&names.target("get"), &names.path).await? else {
        return create(caller, options, &names, holder).await;
    };
    let now = server_time(&found);
    let spec = found.body.get("spec");
    let other = spec
        .and_then(|s| s.get("holderIdentity"))
        .and_then(Value::as_str);
    let other = other.filter(|h| !h.is_empty());
    if let Some(other) = other
        && other != holder
        && !has_ended(spec, now)
    {
        return Ok(LeaseAnswer::HeldBy(other.to_owned()));
    }
    let mut lease = found.body.clone();
    let transitions = spec
        .and_then(|s| s.get("leaseTransitions"))
        .and_then(Value::as_i64);
    let transitions = transitions.unwrap_or_default();
    let renewed = other == Some(holder);
    let acquired = spec
        .and_then(|s| s.get("acquireTime"))
        .filter(|_| renewed)
        .cloned();
    lease["spec"] = json!({
        "holderIdentity": holder,
        "leaseDurationSeconds": options.lease.as_secs().max(1),
        "acquireTime": acquired.unwrap_or_else(|| micro(now).into()),
        "renewTime": micro(now),
        "leaseTransitions": if renewed { transitions } else { transitions + 1 },
    });
    // The version goes with it: of two that take it at once, one is refused.
    match caller
        .send(
            &names.target("update"),
            &Method::PUT,
            &names.write,
            Payload::Json(&lease),
        )
        .await
    {
        Ok(_) => Ok(LeaseAnswer::Taken),
        Err(Failure::Conflict(_)) => Ok(LeaseAnswer::HeldBy("somebody who was faster".to_owned())),
        Err(failure) => Err(failure),
    }
}

async fn create(
    caller: &Caller,
    options: &Options,
    names: &Names,
    holder: &str,
) -> Result<LeaseAnswer, Failure> {
    // There is no Lease whose answer would have told the server's time.
    let told = caller
        .get(&Target::new("get", "/version"), "/version")
        .await?;
    let now = told.as_ref().map_or_else(Timestamp::now, server_time);
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": OWN_NAME, "namespace": options.namespace},
        "spec": {
            "holderIdentity": holder,
            "leaseDurationSeconds": options.lease.as_secs().max(1),
            "acquireTime": micro(now),
            "renewTime": micro(now),
            "leaseTransitions": 0,
        },
    });
    match caller
        .send(
            &names.target("create"),
            &Method::POST,
            &names.create,
            Payload::Json(&lease),
        )
        .await
    {
        Ok(_) => Ok(LeaseAnswer::Taken),
        Err(Failure::Conflict(_)) => Ok(LeaseAnswer::HeldBy("somebody who was faster".to_owned())),
        Err(Failure::Missing(_)) => Ok(LeaseAnswer::Absent(format!(
            "there is no namespace {}: apply config/kubernetes",
            options.namespace
        ))),
        Err(failure) => Err(failure),
    }
}

/// Gives the Lease back, if it is still ours.
pub(super) async fn release(caller: &Caller, options: &Options, holder: &str) -> Outcome {
    match try_release(caller, options, holder).await {
        Ok(outcome) => outcome,
        Err(failure) => failure.outcome(),
    }
}

async fn try_release(caller: &Caller, options: &Options, holder: &str) -> Result<Outcome, Failure> {
    let names = Names::of(options);
    let Some(found) = caller.get(&names.target("get"), &names.path).await? else {
        return Ok(Outcome::Gone);
    };
    let held = found
        .body
        .get("spec")
        .and_then(|s| s.get("holderIdentity"))
        .and_then(Value::as_str);
    if held != Some(holder) {
        let other = held.unwrap_or("nobody");
        return Ok(Outcome::Conflict(format!(
            "{} is held by {other}",
            names.object
        )));
    }
    let mut lease = found.body.clone();
    // What is left says how often it changed hands.
    let transitions = lease["spec"]["leaseTransitions"]
        .as_i64()
        .unwrap_or_default();
    lease["spec"] = json!({"leaseTransitions": transitions});
    caller
        .send(
            &names.target("update"),
            &Method::PUT,
            &names.write,
            Payload::Json(&lease),
        )
        .await?;
    Ok(Outcome::Written)
}

struct Names {
    object: String,
    path: String,
    write: String,
    create: String,
}

impl Names {
    fn of(options: &Options) -> Self {
        let namespace = &options.namespace;
        let all = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases");
        Self {
            object: format!("leases {namespace}/{OWN_NAME}"),
            path: format!("{all}/{OWN_NAME}"),
            write: format!("{all}/{OWN_NAME}?fieldManager={FIELD_MANAGER}"),
            create: format!("{all}?fieldManager={FIELD_MANAGER}"),
        }
    }

    fn target(&self, verb: &'static str) -> Target {
        Target::new(verb, &self.object)
    }
}

fn server_time(answer: &Answer) -> Timestamp {
    answer.date.unwrap_or_else(Timestamp::now)
}

/// Whether the holder's time is over. A Lease that does not say so has ended.
fn has_ended(spec: Option<&Value>, now: Timestamp) -> bool {
    let field = |name: &str| spec.and_then(|s| s.get(name));
    let seconds = field("leaseDurationSeconds")
        .and_then(Value::as_i64)
        .unwrap_or_default();
    let renewed = field("renewTime").and_then(Value::as_str);
    let Some(renewed) = renewed.and_then(|t| t.parse::<Timestamp>().ok()) else {
        return true;
    };
    // One second more: the server's time has no fractions.
    renewed
        .checked_add((seconds + 1).seconds())
        .is_ok_and(|end| end < now)
}

/// The form of Kubernetes' MicroTime.
fn micro(at: Timestamp) -> String {
    format!("{at:.6}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_ends_with_its_time_and_not_before() {
        let spec = json!({"leaseDurationSeconds": 60, "renewTime": "2026-12-01T10:00:00.500000Z"});
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        assert!(!has_ended(Some(&spec), at("2026-12-01T10:01:01Z")));
        assert!(has_ended(Some(&spec), at("2026-12-01T10:01:02Z")));
        assert!(has_ended(
            Some(&json!({"holderIdentity": "x"})),
            at("2026-12-01T10:00:00Z")
        ));
    }

    #[test]
    fn times_have_six_digits() {
        let at: Timestamp = "2026-12-01T10:00:00Z".parse().unwrap();
        assert_eq!(micro(at), "2026-12-01T10:00:00.000000Z");
    }
}
