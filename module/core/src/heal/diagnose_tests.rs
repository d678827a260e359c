//! One test for each thing that a diagnosis can find, and for what it must not take for one.

use serde_json::{Value, json};

use super::*;
use crate::heal::clues::LeaseClue;

const SERVICE_UID: &str = "svc-uid";

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// A slice as the API server returns it, made by the controller at 08:00.
fn slice(maker: &str) -> Value {
    json!({"metadata": {"name": "model-x1",
        "labels": {SERVICE_NAME: "model", MANAGED_BY: CONTROLLER},
        "ownerReferences": [{"kind": "Service", "name": "model", "uid": SERVICE_UID,
            "controller": true}],
        "managedFields": [{"manager": maker, "operation": "Update", "time": "2026-12-01T08:00:00Z",
            "fieldsV1": {"f:addressType": {}, "f:endpoints": {}, "f:ports": {},
                "f:metadata": {"f:generateName": {}, "f:ownerReferences": {".": {}},
                    "f:labels": {".": {}, "f:kubernetes.io/service-name": {},
                        "f:endpointslice.kubernetes.io/managed-by": {}}}}}]}})
}

/// Somebody else owns these fields since then.
fn written(mut slice: Value, manager: &str, time: &str, fields: Value) -> Value {
    let entries = slice["metadata"]["managedFields"].as_array_mut().unwrap();
    entries.push(
        json!({"manager": manager, "operation": "Update", "time": time,
        "fieldsV1": fields}),
    );
    slice
}

/// Read at 09:00:30 after a refresh at 09:00:00; the controller renews its Lease.
fn clues(slices: &[Value]) -> Clues {
    Clues {
        at: Some(at("2026-12-01T09:00:30Z")),
        refreshed: Some(at("2026-12-01T09:00:00Z")),
        lease: Some(LeaseClue {
            holder: "edge-7_1".to_owned(),
            renewed: Some(at("2026-12-01T09:00:29Z")),
            seconds: 15,
        }),
        slices: slices.iter().map(SliceClue::read).collect(),
        ..Clues::default()
    }
}

fn verdict(clues: &Clues) -> Verdict {
    diagnose(&ServiceKey::new("line1", "model"), SERVICE_UID, clues).verdict
}

#[track_caller]
fn wedged(clues: &Clues, texts: &[&str]) {
    let Verdict::Wedged(text) = verdict(clues) else {
        panic!("{:?}", verdict(clues))
    };
    for part in texts {
        assert!(text.contains(part), "{part} is not in: {text}");
    }
}

#[track_caller]
fn contested(clues: &Clues, texts: &[&str]) {
    let Verdict::Contested(text) = verdict(clues) else {
        panic!("{:?}", verdict(clues))
    };
    for part in texts {
        assert!(text.contains(part), "{part} is not in: {text}");
    }
}

#[test]
fn a_slice_as_the_controller_left_it_says_nothing() {
    assert_eq!(
        verdict(&clues(&[slice("kube-controller-manager")])),
        Verdict::Clear
    );
    assert_eq!(verdict(&Clues::default()), Verdict::Clear);
}

#[test]
fn a_finalizer_that_holds_a_deletion_up_is_named_with_the_way_to_take_it_off() {
    let mut held = slice("kube-controller-manager");
    held["metadata"]["finalizers"] = json!(["example.com/keep"]);
    assert_eq!(verdict(&clues(std::slice::from_ref(&held))), Verdict::Clear);
    held["metadata"]["deletionTimestamp"] = "2026-12-01T08:59:00Z".into();
    wedged(
        &clues(&[held]),
        &[
            "example.com/keep",
            "2026-12-01T08:59:00Z",
            "kubectl patch endpointslice -n line1 model-x1",
        ],
    );
}

#[test]
fn a_slice_given_to_another_service_is_given_back() {
    let mut moved = slice("kube-controller-manager");
    moved["metadata"]["labels"][SERVICE_NAME] = "other".into();
    let fields = json!({"f:metadata": {"f:labels": {"f:kubernetes.io/service-name": {}}}});
    let moved = written(moved, "kubectl-label", "2026-12-01T08:30:00Z", fields);
    wedged(
        &clues(&[moved]),
        &[
            "names other now",
            "written by kubectl-label at 2026-12-01T08:30:00Z",
            "kubectl label --overwrite -n line1 endpointslice model-x1 \
             kubernetes.io/service-name=model",
            "restart kube-controller-manager",
        ],
    );
}

#[test]
fn a_slice_that_lost_its_manager_gets_it_back_and_who_made_it_tells_whose_it_was() {
    for (label, says) in [
        (json!("acme.example"), "says acme.example now"),
        (json!(null), "was removed"),
    ] {
        for maker in CONTROLLERS {
            let mut lost = slice(maker);
            lost["metadata"]["labels"][MANAGED_BY] = label.clone();
            wedged(
                &clues(&[lost]),
                &[
                    says,
                    "endpointslice.kubernetes.io/managed-by=endpointslice-controller.k8s.io",
                ],
            );
        }
    }
    // A slice that somebody else made for this Service is none of the controller's business.
    let mut foreign = slice("acme-operator");
    foreign["metadata"]["labels"][MANAGED_BY] = "acme.example".into();
    assert_eq!(verdict(&clues(&[foreign])), Verdict::Clear);
}

#[test]
fn a_distribution_may_call_its_controller_otherwise() {
    let sound = slice("acme-kube");
    let mut lost = slice("acme-kube");
    lost["metadata"]["labels"][MANAGED_BY] = json!(null);
    wedged(&clues(&[sound, lost]), &["was removed"]);
}

#[test]
fn who_writes_the_endpoints_after_a_refresh_must_stop() {
    let fields = json!({"f:endpoints": {}});
    let by = |time: &str| {
        let ours = slice("kube-controller-manager");
        written(ours, "acme-operator", time, fields.clone())
    };
    contested(
        &clues(&[by("2026-12-01T09:00:10Z")]),
        &["acme-operator writes to slice model-x1", "Stop it"],
    );
    // An edit from before the refresh is what the refresh is there to mend.
    assert_eq!(
        verdict(&clues(&[by("2026-12-01T08:30:00Z")])),
        Verdict::Clear
    );
}

#[test]
fn an_api_server_that_refuses_the_controller_is_told_and_old_trouble_is_not() {
    let event = |time: &str, text: &str| EventClue {
        reason: FAILED_WRITE.to_owned(),
        text: text.to_owned(),
        at: Some(at(time)),
    };
    let denied = "Error updating Endpoint Slices for Service line1/model: admission webhook denied";
    let mut seen = clues(&[slice("kube-controller-manager")]);
    seen.events = vec![event("2026-12-01T09:00:05Z", denied)];
    contested(&seen, &["the API server refuses", denied]);
    seen.events = vec![event("2026-12-01T08:30:00Z", denied)];
    assert_eq!(verdict(&seen), Verdict::Clear);
    // A conflict passes by itself; it is worth a note.
    seen.events = vec![event(
        "2026-12-01T09:00:05Z",
        "the object has been modified",
    )];
    let found = diagnose(&ServiceKey::new("line1", "model"), SERVICE_UID, &seen);
    assert_eq!(found.verdict, Verdict::Clear);
    assert!(found.notes[0].contains("has been modified"), "{found:?}");
}

#[test]
fn a_lease_that_nobody_renews_means_that_nobody_writes_slices() {
    let mut seen = clues(&[]);
    let renewed = |text: &str| LeaseClue {
        holder: "edge-7_1".to_owned(),
        renewed: Some(at(text)),
        seconds: 15,
    };
    seen.lease = Some(renewed("2026-12-01T08:59:29Z"));
    let Verdict::NoLeader(text) = verdict(&seen) else {
        panic!("{:?}", verdict(&seen))
    };
    assert!(text.contains("edge-7_1") && text.contains("61 s"), "{text}");
    seen.lease = Some(renewed("2026-12-01T08:59:31Z"));
    assert_eq!(verdict(&seen), Verdict::Clear);
    seen.lease = Some(LeaseClue::default());
    assert!(matches!(verdict(&seen), Verdict::NoLeader(_)));
    // k3s has none.
    seen.lease = None;
    assert_eq!(verdict(&seen), Verdict::Clear);
}

#[test]
fn slices_of_an_earlier_service_of_that_name_say_nothing() {
    let mut orphan = slice("kube-controller-manager");
    orphan["metadata"]["ownerReferences"][0]["uid"] = "old-uid".into();
    orphan["metadata"]["labels"][MANAGED_BY] = json!(null);
    assert_eq!(verdict(&clues(&[orphan])), Verdict::Clear);
}
