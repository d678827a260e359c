//! The engine when refreshes do not help: it finds out why, and where only a person can free the
//! controller it says how, and writes no more.

use crate::rig::{Character, Rig, SVC, slice_name};
use serde_json::json;
use slice_core::engine::HealthState;
use slice_core::event::{Act, CanaryAnswer, EventType, HealOutcome, Input};
use slice_core::heal::clues::{Clues, EventClue, LeaseClue, SliceClue};
use slice_core::heal::policy::{Mode, Policy, Step};

/// A slice that lost its manager: the controller waits for it for ever.
fn wedge(rig: &mut Rig) {
    let uid = rig.uid_of(SVC);
    rig.clues = Clues {
        slices: vec![SliceClue::read(
            &json!({"metadata": {"name": "model-endpoint-old",
            "labels": {"kubernetes.io/service-name": SVC},
            "ownerReferences": [{"kind": "Service", "controller": true, "uid": uid}],
            "managedFields": [{"manager": "kube-controller-manager",
                "fieldsV1": {"f:metadata": {"f:ownerReferences": {}}}}]}}),
        )],
        ..Clues::default()
    };
}

fn diagnoses(rig: &Rig) -> usize {
    let diagnose = |a: &&Act| matches!(a, Act::Diagnose { .. });
    rig.acts.iter().filter(diagnose).count()
}

#[test]
fn a_wedge_is_told_with_instructions_and_not_written_to_any_more() {
    let mut rig = Rig::new(Character::CacheHit);
    wedge(&mut rig);
    rig.redeploy_unseen();
    rig.pass(3600.0);
    assert_eq!(
        rig.writes(),
        ["refresh model-endpoint", "refresh model-endpoint"],
        "two refreshes, and nothing in the hour after"
    );
    assert!(!rig.acts.contains(&Act::Canary));
    assert_eq!(rig.holds(), ["wedged"]);
    let told: Vec<&str> = rig
        .events
        .iter()
        .filter(|e| e.kind == EventType::Escalated)
        .map(|e| e.message.as_str())
        .collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("kubectl label --overwrite"), "{told:?}");
    let health = rig.engine.status(rig.now).health;
    assert_eq!(health.state, HealthState::Blocked);
    assert!(health.reason.contains("(wedged)"), "{}", health.reason);
    assert!((3..30).contains(&diagnoses(&rig)), "{}", diagnoses(&rig));

    // Once somebody has freed it, the ladder goes on by itself.
    rig.clues = Clues::default();
    rig.pass(700.0);
    assert_eq!(rig.outcomes(), [HealOutcome::Healed]);
}

/// An admission policy or a quota may be mended the next minute, and nobody tells us: only another
/// refresh can find out.
#[test]
fn what_is_refused_is_refreshed_again_later_and_never_deleted() {
    let mut rig = Rig::new(Character::CacheHit);
    rig.clues = Clues {
        events: vec![EventClue {
            reason: "FailedToUpdateEndpointSlices".to_owned(),
            text: "admission webhook denied the request".to_owned(),
            at: Some("2026-12-01T09:00:00Z".parse().unwrap()),
        }],
        ..Clues::default()
    };
    rig.redeploy_unseen();
    rig.pass(1800.0);
    let writes = rig.writes();
    assert!(
        writes.iter().all(|w| w.starts_with("refresh")),
        "{writes:?}"
    );
    assert!((4..=12).contains(&writes.len()), "{writes:?}");
    assert!(
        rig.holds().iter().any(|h| h == "wedged"),
        "{:?}",
        rig.holds()
    );

    rig.clues = Clues::default();
    rig.pass(3600.0);
    assert_eq!(rig.outcomes(), [HealOutcome::Healed]);
}

#[test]
fn the_seeds_option_a_is_diagnosed_before_it_deletes() {
    let mut rig = Rig::new(Character::CacheHit);
    rig.feed(Input::Policy(Box::new(Policy {
        mode: Mode::Heal,
        ladder: vec![Step::DeleteSlice],
        ..Policy::default()
    })));
    wedge(&mut rig);
    rig.redeploy_unseen();
    rig.pass(300.0);
    assert!(rig.writes().is_empty(), "{:?}", rig.writes());
    assert_eq!(rig.holds(), ["wedged"]);
    assert!(
        rig.names(slice_core::model::Kind::EndpointSlice)
            .contains(&slice_name(SVC))
    );
}

fn old_lease(rig: &mut Rig) {
    rig.clues = Clues {
        at: Some(crate::rig::at("2026-12-01T09:00:00Z")),
        lease: Some(LeaseClue {
            holder: "edge-7_1".to_owned(),
            renewed: Some(crate::rig::at("2026-12-01T08:50:00Z")),
            seconds: 15,
        }),
        ..Clues::default()
    };
}

#[test]
fn a_controller_without_lease_renewals_is_told_if_the_canary_agrees() {
    for (canary, by_setting) in [
        (CanaryAnswer::Unanswered, true),
        (CanaryAnswer::Absent("no Service".to_owned()), true),
        (CanaryAnswer::Answered, false),
    ] {
        let mut rig = Rig::new(Character::Deaf);
        rig.canary = canary;
        old_lease(&mut rig);
        rig.feed(Input::Policy(Box::new(Policy {
            mode: Mode::Heal,
            canary: by_setting,
            ..Policy::default()
        })));
        rig.redeploy_unseen();
        rig.pass(120.0);
        assert!(
            !rig.writes().iter().any(|w| w.starts_with("delete")),
            "{:?}",
            rig.writes()
        );
        assert_eq!(rig.holds(), ["canary-failed"]);
        let held = rig.events.iter().find(|e| e.heal.is_some()).unwrap();
        assert!(
            held.message.contains("has not renewed its Lease") && held.message.contains("edge-7_1"),
            "{}",
            held.message
        );
    }
}

#[test]
fn a_lease_that_is_a_leftover_holds_nothing_up_where_the_canary_answers() {
    let mut rig = Rig::new(Character::CacheHit);
    old_lease(&mut rig);
    rig.redeploy_unseen();
    rig.pass(120.0);
    assert_eq!(rig.outcomes(), [HealOutcome::Healed]);
    assert!(
        rig.writes()
            .contains(&"delete model-endpoint-abc12".to_owned())
    );
}

#[test]
fn what_the_controller_said_is_in_the_story_of_what_stays_stale() {
    let mut rig = Rig::new(Character::Deaf);
    rig.clues.unread = vec!["list events of services line1/model-endpoint: forbidden".to_owned()];
    rig.delete_pod("model-1");
    rig.pod("model-9", "10.244.1.9");
    rig.edit(
        slice_core::model::Kind::EndpointSlice,
        &slice_name(SVC),
        |s| {
            // What is left is only something missing, which no delete mends.
            s["endpoints"].as_array_mut().unwrap().remove(0);
        },
    );
    rig.pass(120.0);
    assert_eq!(rig.outcomes(), [HealOutcome::StillStale]);
    let ended = rig.events.iter().find(|e| e.heal.is_some()).unwrap();
    assert!(ended.message.contains("list events"), "{}", ended.message);
    assert!(
        ended.message.contains("cache is out of date"),
        "{}",
        ended.message
    );
    let story = ended.evidence.iter().find(|(k, _)| k == "story").unwrap();
    assert!(story.1.contains("diagnosis: list events"), "{}", story.1);
}
