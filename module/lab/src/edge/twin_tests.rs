//! The two layers of a twin, step by step.

use super::*;
use jiff::SignedDuration;

fn doc(value: Value) -> Document {
    value.as_object().unwrap().clone()
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

#[test]
fn a_confirmed_report_is_not_in_the_cloud_before_the_sync() {
    let mut twin = ModuleTwin::new();
    twin.read_from_cloud(at(0));
    twin.report(&doc(json!({"a": 1}))).unwrap();
    assert_eq!(
        twin.read_from_store()["reported"],
        json!({"a": 1, "$version": 1})
    );
    assert!(twin.cloud.reported.is_empty());
    // The read reaches the cloud, shows the older document and overwrites the stored one.
    assert_eq!(
        twin.read_from_cloud(at(1))["reported"],
        json!({"$version": 1})
    );
    assert_eq!(twin.read_from_store()["reported"], json!({"$version": 1}));
    assert_eq!(twin.sync(false), Synced::Taken);
    assert_eq!(
        twin.read_from_cloud(at(2))["reported"],
        json!({"a": 1, "$version": 2})
    );
    assert_eq!(twin.sync(false), Synced::Nothing);
}

#[test]
fn a_patch_that_the_cloud_refuses_holds_up_all_later_ones() {
    let mut twin = ModuleTwin::new();
    let half = |key: &str| {
        doc(
            json!({key: (0..5).map(|n| (format!("k{n}"), json!("x".repeat(4000)))).collect::<Document>()}),
        )
    };
    twin.report(&half("a")).unwrap();
    assert_eq!(twin.sync(false), Synced::Taken);
    twin.report(&half("b")).unwrap();
    assert!(matches!(twin.sync(false), Synced::Refused(_)));
    twin.report(&doc(json!({"small": 1}))).unwrap();
    assert!(
        matches!(twin.sync(false), Synced::Refused(_)),
        "the small patch joined the large one"
    );
    assert!(twin.cloud.reported.get("small").is_none());
    twin.report(&doc(json!({"b": null}))).unwrap();
    assert_eq!(
        twin.sync(false),
        Synced::Taken,
        "a null that makes room frees the queue"
    );
    assert_eq!(twin.cloud.reported["small"], json!(1));
}

#[test]
fn an_empty_store_answers_without_versions() {
    let twin = ModuleTwin::new();
    assert_eq!(
        twin.read_from_store(),
        json!({"desired": {}, "reported": {}})
    );
}

#[test]
fn the_next_desired_version_is_handed_on_and_a_gap_becomes_a_difference() {
    let mut twin = ModuleTwin::new();
    twin.set_desired(doc(json!({"mode": "observe", "old": 1})))
        .unwrap();
    twin.read_from_cloud(at(0));
    let next = twin.patch_desired(&doc(json!({"mode": "heal"}))).unwrap();
    assert_eq!(
        twin.desired_at_edge(&next, at(1), false),
        Some(next.clone())
    );
    assert_eq!(next.body["$version"], json!(3));

    let missed = twin.patch_desired(&doc(json!({"old": null}))).unwrap();
    let seen = twin.patch_desired(&doc(json!({"x": {"y": 1}}))).unwrap();
    let difference = twin.desired_at_edge(&seen, at(2), true).unwrap();
    assert_eq!(missed.version, 4);
    assert_eq!(difference.version, 5);
    assert_eq!(difference.body["old"], Value::Null);
    assert_eq!(difference.body["x"], json!({"y": 1}));
    assert!(difference.body.contains_key("$metadata"));
    assert!(!difference.body.contains_key("mode"));
}

#[test]
fn without_a_stored_twin_any_version_is_handed_on_and_nothing_is_resynced() {
    let mut twin = ModuleTwin::new();
    let patch = twin.patch_desired(&doc(json!({"a": 1}))).unwrap();
    assert_eq!(twin.desired_at_edge(&patch, at(0), false), Some(patch));
    assert_eq!(
        twin.resync(at(1000), SignedDuration::from_secs(120), false),
        None
    );
}

#[test]
fn a_resync_waits_for_its_age_and_skips_what_is_the_same() {
    let mut twin = ModuleTwin::new();
    let age = SignedDuration::from_secs(120);
    twin.read_from_cloud(at(0));
    twin.patch_desired(&doc(json!({"a": 1}))).unwrap();
    assert_eq!(twin.resync(at(60), age, false), None);
    let patch = twin.resync(at(121), age, false).unwrap();
    assert_eq!(patch.body, doc(json!({"a": 1, "$version": 2})));
    assert_eq!(twin.resync(at(300), age, false), None);
}

#[test]
fn a_replacement_names_what_it_removes() {
    let mut twin = ModuleTwin::new();
    twin.set_desired(doc(json!({"a": 1, "b": 2}))).unwrap();
    let patch = twin.set_desired(doc(json!({"b": 2, "c": 3}))).unwrap();
    assert_eq!(
        patch.body,
        doc(json!({"a": null, "b": 2, "c": 3, "$version": 3}))
    );
    assert!(twin.set_desired(doc(json!({"a.b": 1}))).is_err());
    assert_eq!(twin.cloud.desired_version, 3);
}

#[test]
fn a_wiped_store_keeps_the_cloud() {
    let mut twin = ModuleTwin::new();
    twin.read_from_cloud(at(0));
    twin.report(&doc(json!({"a": 1}))).unwrap();
    twin.wipe_store();
    assert!(!twin.is_pending());
    assert_eq!(twin.cloud.desired_version, 1);
    assert_eq!(
        twin.read_from_store(),
        json!({"desired": {}, "reported": {}})
    );
}
