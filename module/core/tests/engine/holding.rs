//! The engine when it must not, or must not yet: what holds a heal back, and that it says so.

use crate::rig::{Character, Rig, SVC, key, slice_name};
use slice_core::engine::HealthState;
use slice_core::event::{
    Act, CanaryAnswer, EventType, HealOutcome, Input, LeaseAnswer, Link, Outcome, Reply,
};
use slice_core::heal::gate::HoldReason;
use slice_core::heal::policy::{Mode, Policy, Step};
use slice_core::heal::record::{Charge, History, Intent, Record};
use slice_core::model::{Kind, ServiceKey};

fn state(rig: &Rig) -> HealthState {
    rig.engine.status(rig.now).health.state
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

/// A process that starts after one which was killed right before its delete; a Service, no pods yet.
fn cut_off() -> Rig {
    let at = crate::rig::at("2026-12-01T07:59:00Z");
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
    rig
}

#[test]
fn a_heal_that_was_cut_off_is_taken_up_without_grace() {
    let mut rig = cut_off();
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
fn much_staleness_in_mode_observe_writes_nothing_not_even_a_question() {
    for closed in [false, true] {
        let mut rig = many(Character::Deaf, CanaryAnswer::Answered);
        let hold = (HoldReason::Hold, "hold \"audit\"".to_owned());
        rig.feed(Input::Policy(Box::new(Policy {
            mode: if closed { Mode::Heal } else { Mode::Observe },
            closed: closed.then_some(hold),
            ..Policy::default()
        })));
        rig.pass(300.0);
        assert!(rig.acts.is_empty(), "{:?}", rig.acts);
        // A person who asks for a heal asks for the question as well.
        let service = ServiceKey::new(crate::rig::NS, "svc-00");
        let heal = |rig: &mut Rig| rig.heal_of(&service);
        let Reply::Held { reason, .. } = heal(&mut rig) else {
            panic!()
        };
        if closed {
            assert_eq!(reason, HoldReason::Hold);
            assert!(rig.acts.is_empty(), "{:?}", rig.acts);
            continue;
        }
        assert_eq!(reason, HoldReason::CanaryFailed);
        assert_eq!(rig.acts, [Act::Canary]);
        assert!(matches!(heal(&mut rig), Reply::Accepted { .. }));
    }
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
    rig.mode(Mode::Observe);
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
}

#[test]
fn a_heal_that_was_cut_off_and_came_right_meanwhile_is_forgotten() {
    let mut rig = cut_off();
    rig.pod("model-1", "10.244.1.1");
    rig.write_slices();
    rig.sync();
    assert!(
        rig.records.contains(&Record::Intent(None)),
        "{:?}",
        rig.records
    );
    // What goes stale later has its full grace.
    rig.delete_pod("model-1");
    rig.pod("model-2", "10.244.1.2");
    rig.pass(4.5);
    assert!(rig.acts.is_empty(), "{:?}", rig.acts);
}

#[test]
fn a_redeployment_of_many_services_at_once_asks_no_canary() {
    let mut rig = many(Character::Right, CanaryAnswer::Answered);
    // The controller is only a moment behind.
    rig.pass(2.0);
    rig.write_slices();
    rig.pass(60.0);
    assert!(rig.acts.is_empty(), "{:?}", rig.acts);
}

#[test]
fn an_api_that_does_not_answer_once_calls_nobody() {
    let mut rig = Rig::new(Character::Right);
    rig.fail_next_write = Some(Outcome::Failed("no connection".to_owned()));
    rig.redeploy_unseen();
    rig.pass(200.0);
    assert_eq!(rig.outcomes(), [HealOutcome::Failed, HealOutcome::Healed]);
    assert!(!rig.events.iter().any(|e| e.kind == EventType::Escalated));
}
