//! The engine from staleness to proof, on a cluster on paper: what is written, in which order, and
//! above all what is not written.

use crate::rig::{Character, Rig, SVC, key, slice_name};
use serde_json::json;
use slice_core::engine::HealthState;
use slice_core::event::{Act, EventType, HealOutcome, Input, Reply};
use slice_core::heal::gate::HoldReason;
use slice_core::heal::policy::{Mode, Policy};
use slice_core::heal::record::Record;
use slice_core::judge::Severity;
use slice_core::model::Kind;
use slice_core::signal::{Signal, SignalKind};

fn state(rig: &Rig) -> HealthState {
    rig.engine.status(rig.now).health.state
}

#[test]
fn a_right_service_is_left_alone() {
    let mut rig = Rig::new(Character::Right);
    rig.pass(600.0);
    assert!(rig.acts.is_empty(), "{:?}", rig.acts);
    assert!(rig.events.is_empty(), "{:?}", rig.events);
    assert!(
        rig.records.is_empty(),
        "nothing is written when nothing happened"
    );
    assert_eq!(state(&rig), HealthState::Healthy);
}

#[test]
fn staleness_is_healed_by_a_refresh_with_no_journal_line_at_all() {
    let mut rig = Rig::new(Character::Right);
    rig.redeploy_unseen();
    rig.pass(4.9);
    assert!(rig.acts.is_empty(), "the grace is not over: {:?}", rig.acts);
    rig.pass(1.0);
    assert_eq!(rig.writes(), ["refresh model-endpoint"]);
    rig.pass(6.0);
    assert_eq!(rig.outcomes(), [HealOutcome::Healed]);
    assert_eq!(rig.acts.first(), Some(&Act::TakeLease));
    assert_eq!(rig.acts.last(), Some(&Act::ReleaseLease));
    let charged = |r: &Record| matches!(r, Record::Charge(c) if c.service == key());
    assert!(rig.records.iter().any(charged), "charged to the budget");
    assert_eq!(
        rig.records
            .iter()
            .filter(|r| matches!(r, Record::Intent(None)))
            .count(),
        1
    );
    assert_eq!(state(&rig), HealthState::Healthy);
    assert_eq!(rig.engine.status(rig.now).heals.succeeded, 1);
}

#[test]
fn the_whole_ladder_when_only_a_delete_heals() {
    let mut rig = Rig::new(Character::CacheHit);
    rig.redeploy_unseen();
    rig.pass(120.0);
    assert_eq!(
        rig.writes(),
        [
            "refresh model-endpoint",
            "refresh model-endpoint",
            "delete model-endpoint-abc12",
            "refresh model-endpoint",
        ]
    );
    assert_eq!(rig.outcomes(), [HealOutcome::Healed]);
    let canary = rig
        .acts
        .iter()
        .position(|a| *a == Act::Canary)
        .expect("the canary was asked");
    let delete = rig
        .acts
        .iter()
        .position(|a| matches!(a, Act::Delete { .. }))
        .unwrap();
    assert!(canary < delete);
    let evidence = rig.records.iter().find_map(|r| match r {
        Record::Evidence(e) => Some(e),
        _ => None,
    });
    let object = &evidence.expect("the deleted slice is kept").object;
    assert_eq!(object["endpoints"].as_array().unwrap().len(), 3);
    assert_eq!(
        rig.engine
            .status(rig.now)
            .heals
            .last
            .unwrap()
            .action
            .as_str(),
        "delete-slice"
    );
}

#[test]
fn a_delete_waits_for_its_own_grace_and_names_the_version_that_was_judged() {
    let mut rig = Rig::new(Character::CacheHit);
    rig.redeploy_unseen();
    rig.pass(29.0);
    assert!(!rig.writes().iter().any(|w| w.starts_with("delete")));
    rig.pass(60.0);
    let Some(Act::Delete {
        uid,
        resource_version,
        ..
    }) = rig.acts.iter().find(|a| matches!(a, Act::Delete { .. }))
    else {
        panic!("no delete in {:?}", rig.acts);
    };
    assert!(uid.starts_with("uid-") && resource_version.parse::<u64>().is_ok());
}

#[test]
fn observe_decides_the_same_and_writes_nothing() {
    let mut rig = Rig::new(Character::Right);
    let policy = Policy {
        mode: Mode::Observe,
        ..Policy::default()
    };
    rig.feed(Input::Policy(Box::new(policy)));
    rig.redeploy_unseen();
    rig.pass(300.0);
    assert!(rig.acts.is_empty(), "{:?}", rig.acts);
    assert_eq!(rig.holds(), ["observe-mode"]);
    let status = rig.engine.status(rig.now);
    assert_eq!(status.heals.shadow, 1);
    assert_eq!(
        (status.heals.shadow_refreshes, status.heals.shadow_deletes),
        (1, 1)
    );
    let held = rig.events.iter().find(|e| e.heal.is_some()).unwrap();
    let evidence = |name: &str| {
        let found = held.evidence.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str()).unwrap()
    };
    assert!(evidence("would").starts_with("patch services line1/model-endpoint"));
    assert!(evidence("would").contains("delete endpointslices"));
    assert!(evidence("atRisk").starts_with("3 of 3 endpoints"));
    assert_eq!(status.health.state, HealthState::Blocked);
}

#[test]
fn the_twin_can_let_it_go_later() {
    let mut rig = Rig::new(Character::Right);
    rig.mode(Mode::Observe);
    rig.redeploy_unseen();
    rig.pass(60.0);
    rig.mode(Mode::Heal);
    rig.pass(30.0);
    assert_eq!(rig.outcomes(), [HealOutcome::Healed]);
}

#[test]
fn a_rollout_in_motion_is_no_staleness() {
    let mut rig = Rig::new(Character::Right);
    // Each moment something differs, and each time it is something else.
    for i in 10..40 {
        rig.delete_pod(rig.names(Kind::Pod).first().unwrap().clone().as_str());
        rig.pod(&format!("model-{i}"), &format!("10.244.1.{i}"));
        rig.pass(1.0);
        if i % 3 == 0 {
            rig.write_slices();
        }
    }
    rig.write_slices();
    rig.pass(60.0);
    assert!(rig.writes().is_empty(), "{:?}", rig.writes());
    assert!(
        rig.events.is_empty(),
        "nobody is told of a rollout: {:?}",
        rig.events
    );
}

#[test]
fn a_signal_shortens_the_grace_and_becomes_evidence() {
    let mut rig = Rig::new(Character::Right);
    let at = rig.now.wall;
    rig.feed(Input::Signal(Signal {
        rule: "cache-hit".to_owned(),
        kind: SignalKind::CacheHit,
        severity: Severity::Warning,
        at,
        unit: Some("iotedge.service".to_owned()),
        namespace: None,
        service: None,
        slice: None,
        pod: None,
        node: None,
        count: 3,
        message: "Cache hit for endpoint slice, skipping update".to_owned(),
        cursor: "s=1".to_owned(),
    }));
    rig.redeploy_unseen();
    rig.pass(3.5);
    assert_eq!(rig.writes().len(), 1);
    assert_eq!(rig.events[0].kind, EventType::Signal);
    assert_eq!(rig.engine.status(rig.now).journal.signals, 3);
}

#[test]
fn somebody_elses_slice_is_reported_and_never_written_to() {
    for manager in [
        json!("endpointslicemirroring-controller.k8s.io"),
        json!("cilium.io"),
        json!(null),
    ] {
        let mut rig = Rig::new(Character::Right);
        rig.edit(Kind::EndpointSlice, &slice_name(SVC), |s| {
            s["metadata"]["labels"]["endpointslice.kubernetes.io/managed-by"] = manager.clone();
            s["metadata"]["name"] = "by-others".into();
            s["metadata"]["uid"] = json!(null);
            s["endpoints"][0]["targetRef"]["name"] = "nobody".into();
        });
        rig.pass(300.0);
        assert!(rig.writes().is_empty(), "{manager}: {:?}", rig.writes());
    }
}

#[test]
fn an_opt_out_is_respected_and_said() {
    let mut rig = Rig::new(Character::Right);
    rig.edit(Kind::Service, SVC, |s| {
        s["metadata"]["annotations"] = json!({"slice-healer.io/ignore": "true"});
    });
    rig.redeploy_unseen();
    rig.pass(120.0);
    assert!(rig.writes().is_empty());
    let Reply::Held { reason, .. } = rig.heal_by_hand(false) else {
        panic!()
    };
    assert_eq!(reason, HoldReason::OptedOut);
}
