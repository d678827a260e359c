//! The engine from staleness to proof, on a cluster on paper: what is written, in which order, and
//! above all what is not written.

#[allow(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a module of a test binary"
)]
mod rig;

use rig::{Character, NS, Rig, SVC, key, slice_name};
use serde_json::json;
use slice_core::engine::HealthState;
use slice_core::event::{
    Act, CanaryAnswer, EventType, HealOutcome, Input, LeaseAnswer, Link, Outcome, Reply,
};
use slice_core::heal::gate::HoldReason;
use slice_core::heal::policy::{Mode, Policy, Step};
use slice_core::heal::record::{Charge, History, Intent, Record};
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
    assert_eq!(status.health.state, HealthState::Blocked);
}

#[test]
fn the_twin_can_let_it_go_later() {
    let mut rig = Rig::new(Character::Right);
    rig.feed(Input::Policy(Box::new(Policy {
        mode: Mode::Observe,
        ..Policy::default()
    })));
    rig.redeploy_unseen();
    rig.pass(60.0);
    rig.feed(Input::Policy(Box::new(Policy {
        mode: Mode::Heal,
        ..Policy::default()
    })));
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

#[test]
fn without_an_answer_of_the_canary_nothing_is_deleted() {
    for answer in [
        CanaryAnswer::Unanswered,
        CanaryAnswer::Absent("no Service".to_owned()),
    ] {
        let mut rig = Rig::new(Character::CacheHit);
        rig.canary = answer;
        rig.redeploy_unseen();
        rig.pass(400.0);
        assert!(
            !rig.writes().iter().any(|w| w.starts_with("delete")),
            "{:?}",
            rig.writes()
        );
        assert!(
            rig.holds().contains(&"canary-failed".to_owned()),
            "{:?}",
            rig.holds()
        );
        assert_eq!(state(&rig), HealthState::Blocked);
    }
}

#[test]
fn a_delete_that_takes_more_than_it_mends_is_held_back() {
    let mut rig = Rig::new(Character::CacheHit);
    // One ghost among three right endpoints.
    rig.delete_pod("model-1");
    rig.pass(300.0);
    assert!(
        !rig.writes().iter().any(|w| w.starts_with("delete")),
        "{:?}",
        rig.writes()
    );
    assert!(
        rig.holds().contains(&"lost-endpoints".to_owned()),
        "{:?}",
        rig.holds()
    );
}

#[test]
fn a_slice_that_does_not_come_back_calls_a_person() {
    let mut rig = Rig::new(Character::CacheHit);
    rig.redeploy_unseen();
    rig.pass(31.0);
    while !rig.writes().iter().any(|w| w.starts_with("delete")) {
        rig.pass(1.0);
    }
    rig.controller = Character::Deaf;
    rig.pass(1.0);
    // The refresh at once may already have brought it back; make it vanish for good.
    if rig.names(Kind::EndpointSlice).contains(&slice_name(SVC)) {
        return;
    }
    rig.pass(90.0);
    assert_eq!(rig.outcomes(), [HealOutcome::NotRecreated]);
    assert!(rig.events.iter().any(|e| e.kind == EventType::Escalated));
    let deletes = rig
        .writes()
        .iter()
        .filter(|w| w.starts_with("delete"))
        .count();
    assert_eq!(deletes, 1);
    // It goes on trying with refreshes, which is all that can help now.
    rig.controller = Character::Right;
    rig.pass(400.0);
    assert!(rig.names(Kind::EndpointSlice).contains(&slice_name(SVC)));
}

#[test]
fn a_conflict_ends_the_heal_and_everything_is_judged_anew() {
    let mut rig = Rig::new(Character::Right);
    rig.fail_next_write = Some(Outcome::Conflict("resourceVersion".to_owned()));
    rig.redeploy_unseen();
    rig.pass(10.0);
    assert_eq!(rig.outcomes(), [HealOutcome::Conflict]);
    rig.pass(200.0);
    assert_eq!(rig.outcomes(), [HealOutcome::Conflict, HealOutcome::Healed]);
}

#[test]
fn another_healer_holds_the_lease() {
    let mut rig = Rig::new(Character::Right);
    rig.lease = LeaseAnswer::HeldBy("edge-8".to_owned());
    rig.redeploy_unseen();
    rig.pass(30.0);
    assert!(rig.writes().is_empty());
    assert_eq!(rig.holds(), ["lease"]);
    rig.lease = LeaseAnswer::Taken;
    rig.pass(30.0);
    assert_eq!(rig.outcomes(), [HealOutcome::Healed]);
}

#[test]
fn nothing_is_written_right_after_the_api_came_back() {
    let mut rig = Rig::new(Character::Right);
    rig.link(Link::Unreachable("connection refused".to_owned()));
    assert_eq!(state(&rig), HealthState::Offline);
    rig.redeploy_unseen();
    rig.pass(30.0);
    rig.sync();
    rig.pass(59.0);
    assert!(rig.writes().is_empty(), "{:?}", rig.writes());
    assert_eq!(rig.holds(), ["reconnected"]);
    rig.pass(20.0);
    assert_eq!(rig.outcomes(), [HealOutcome::Healed]);
}

#[test]
fn a_heal_that_was_cut_off_is_taken_up_without_grace() {
    let at = "2026-12-01T07:59:00Z".parse().unwrap();
    let history = History {
        charges: vec![Charge { service: key(), at }],
        intent: Some(Intent {
            incident: "t-0".to_owned(),
            service: key(),
            step: Step::DeleteSlice,
            slice: Some(slice_name(SVC)),
            at,
        }),
        ..History::default()
    };
    let policy = Policy {
        mode: Mode::Heal,
        ..Policy::default()
    };
    let mut rig = Rig::empty(Character::Right, policy, &history);
    rig.service(SVC);
    rig.pod("model-4", "10.244.1.4");
    rig.sync();
    rig.pass(0.1);
    assert_eq!(rig.writes(), ["refresh model-endpoint"]);
    rig.pass(10.0);
    assert_eq!(rig.outcomes(), [HealOutcome::Healed]);
    assert_eq!(rig.events.last().unwrap().incident.as_deref(), Some("t-0"));
}

fn many(character: Character, canary: CanaryAnswer) -> Rig {
    let services = 12;
    let policy = Policy {
        mode: Mode::Heal,
        ..Policy::default()
    };
    let mut rig = Rig::empty(character, policy, &History::default());
    rig.canary = canary;
    for i in 0..services {
        let name = format!("svc-{i:02}");
        rig.service(&name);
        rig.pod_of(&name, &format!("{name}-a"), &format!("10.244.2.{i}"));
    }
    rig.write_slices();
    rig.sync();
    for i in 0..services {
        let name = format!("svc-{i:02}");
        rig.delete_pod(&format!("{name}-a"));
        rig.pod_of(&name, &format!("{name}-b"), &format!("10.244.3.{i}"));
    }
    rig
}

#[test]
fn much_staleness_and_a_dead_controller_is_one_finding_and_no_write() {
    let mut rig = many(Character::Deaf, CanaryAnswer::Unanswered);
    rig.pass(300.0);
    assert!(rig.writes().is_empty(), "{:?}", rig.writes());
    let status = rig.engine.status(rig.now);
    assert!(
        status
            .findings
            .by_kind
            .keys()
            .any(|(k, _)| k.as_str() == "ControllerDown")
    );
    assert_eq!(status.health.state, HealthState::Blocked);
}

#[test]
fn much_staleness_and_a_working_controller_is_refreshed_one_by_one() {
    let mut rig = many(Character::Right, CanaryAnswer::Answered);
    rig.pass(200.0);
    let mut writes = rig.writes();
    writes.sort();
    let expected: Vec<String> = (0..12).map(|i| format!("refresh svc-{i:02}")).collect();
    assert_eq!(writes, expected);
    assert_eq!(rig.outcomes().len(), 12);
}

#[test]
fn a_heal_by_hand_works_in_observe_and_a_dry_run_writes_nothing() {
    let mut rig = Rig::new(Character::Right);
    rig.feed(Input::Policy(Box::new(Policy {
        mode: Mode::Observe,
        ..Policy::default()
    })));
    assert!(matches!(rig.heal_by_hand(false), Reply::NothingToDo));
    rig.redeploy_unseen();
    let Reply::WouldAct { action, .. } = rig.heal_by_hand(true) else {
        panic!()
    };
    assert_eq!(action.as_str(), "refresh-service");
    assert!(rig.acts.is_empty());
    assert!(matches!(rig.heal_by_hand(false), Reply::Accepted { .. }));
    rig.pass(10.0);
    assert_eq!(rig.outcomes(), [HealOutcome::Healed]);
    assert_eq!(rig.writes(), ["refresh model-endpoint"]);
}

#[test]
fn a_budget_that_is_used_up_holds_back_and_says_so() {
    let mut rig = Rig::new(Character::Deaf);
    rig.redeploy_unseen();
    rig.pass(3600.0);
    assert!(
        rig.outcomes().iter().all(|o| !o.is_success()),
        "{:?}",
        rig.outcomes()
    );
    let limit = Policy::default().budgets.per_service_per_hour as usize;
    assert!(rig.outcomes().len() <= limit);
    let holds = rig.holds();
    assert!(
        holds
            .iter()
            .any(|h| h == "cool-down" || h == "breaker-open" || h == "budget-service"),
        "{holds:?}"
    );
    assert_eq!(
        rig.events
            .iter()
            .filter(|e| e.kind == EventType::Escalated)
            .count(),
        1
    );
}

#[test]
fn the_seeds_option_a_still_ends_in_refresh_and_verification() {
    let mut rig = Rig::new(Character::CacheHit);
    let policy = Policy {
        mode: Mode::Heal,
        ladder: vec![Step::DeleteSlice],
        ..Policy::default()
    };
    rig.feed(Input::Policy(Box::new(policy)));
    rig.redeploy_unseen();
    rig.pass(90.0);
    assert_eq!(
        rig.writes(),
        ["delete model-endpoint-abc12", "refresh model-endpoint"]
    );
    assert_eq!(rig.outcomes(), [HealOutcome::Healed]);
}

#[test]
fn a_service_that_is_gone_in_mid_heal_ends_it() {
    let mut rig = Rig::new(Character::Deaf);
    rig.redeploy_unseen();
    rig.pass(6.0);
    rig.remove(Kind::EndpointSlice, &slice_name(SVC));
    rig.remove(Kind::Service, SVC);
    rig.pass(120.0);
    assert!(!rig.engine.is_healing());
    assert_eq!(rig.writes().len(), 1, "{:?}", rig.writes());
    assert_eq!(state(&rig), HealthState::Healthy);
    let _ = NS;
}
