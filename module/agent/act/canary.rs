//! Asks the slice controller to prove that it works: a label that does not belong on the canary's
//! slice has to be stripped again. A running process or a fresh lease would prove nothing.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use slice_core::event::{CanaryAnswer, Outcome};
use slice_core::model::{CONTROLLER, MANAGED_BY, SERVICE_NAME, Service, Slice};
use tokio::time::{Instant, sleep};

use super::call::{Caller, Failure, Payload, Target};
use super::{FIELD_MANAGER, OWN_NAME, Options};
use crate::client::objects::collection;

/// The label that the controller has to strip.
const LABEL: &str = "slice-healer.io/canary";
/// Between two looks.
const LOOK: Duration = Duration::from_millis(250);

/// Puts the label on and watches it go. `number` makes each value another one, so that a label left
/// from before does not count.
pub(super) async fn ask(caller: &Caller, options: &Options, holder: &str, number: u64) -> Outcome {
    match prove(caller, options, holder, number).await {
        Ok(answer) => Outcome::Canary(answer),
        Err(failure) => failure.outcome(),
    }
}

async fn prove(
    caller: &Caller,
    options: &Options,
    holder: &str,
    number: u64,
) -> Result<CanaryAnswer, Failure> {
    let namespace = &options.namespace;
    let name = format!("{namespace}/{OWN_NAME}");
    let service = format!("{}/{OWN_NAME}", collection::<Service>(Some(namespace)));
    let found = caller
        .get(&Target::new("get", format!("services {name}")), &service)
        .await?;
    if found.is_none() {
        return Ok(CanaryAnswer::Absent(format!(
            "there is no canary Service {name}: apply config/kubernetes"
        )));
    }
    let slices = collection::<Slice>(Some(namespace));
    let selector = format!("{SERVICE_NAME}%3D{OWN_NAME}%2C{MANAGED_BY}%3D{CONTROLLER}");
    let target = Target::new("list", format!("endpointslices of {name}"));
    let list = caller
        .get(&target, &format!("{slices}?labelSelector={selector}"))
        .await?;
    let slice = list.and_then(|l| Some(l.body.get("items")?.get(0)?.get("metadata")?.clone()));
    let Some(slice) = slice else {
        return Ok(CanaryAnswer::Absent(format!(
            "the canary Service {name} has no slice of the slice controller"
        )));
    };
    let text = |key: &str| slice.get(key).and_then(Value::as_str).unwrap_or_default();
    let object = format!("endpointslices {namespace}/{}", text("name"));
    let path = format!("{slices}/{}", text("name"));
    let value = label_value(holder, number);
    let patch = json!({"metadata": {"uid": text("uid"), "labels": {LABEL: value}}});
    let target = Target::new("patch", &object);
    let patched = format!("{path}?fieldManager={FIELD_MANAGER}");
    caller
        .send(&target, &Method::PATCH, &patched, Payload::Merge(&patch))
        .await?;

    let until = (Instant::now() + options.canary).min(caller.deadline());
    let target = Target::new("get", &object);
    loop {
        // A look that fails is not an answer: the next one may be.
        if let Ok(seen) = caller.until(until).get(&target, &path).await {
            let still = seen
                .as_ref()
                .and_then(|s| s.body.get("metadata")?.get("labels")?.get(LABEL));
            // A slice that was replaced altogether is the controller's work as well.
            if still.and_then(Value::as_str) != Some(value.as_str()) {
                return Ok(CanaryAnswer::Answered);
            }
        }
        if Instant::now() + LOOK >= until {
            return Ok(CanaryAnswer::Unanswered);
        }
        sleep(LOOK).await;
    }
}

/// A label's value is at most 63 letters and digits: the end of the holder's uuid, and the number.
fn label_value(holder: &str, number: u64) -> String {
    let tail: Vec<char> = holder
        .chars()
        .rev()
        .filter(char::is_ascii_alphanumeric)
        .take(12)
        .collect();
    let tail: String = tail.into_iter().rev().collect();
    format!("{tail}-{number}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_question_has_a_value_of_its_own_that_is_a_legal_label() {
        let holder = "dev ice/mod_6a3c6a6e-3c6f-4a4c-9d3b-0123456789ab";
        assert_eq!(label_value(holder, 0), "0123456789ab-0");
        assert_ne!(label_value(holder, 1), label_value(holder, 2));
        assert!(label_value(holder, u64::MAX).len() <= 63);
    }
}
