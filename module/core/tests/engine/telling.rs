//! What the engine tells of its heals: the story of an incident, what a dry run would write, what
//! holds by hand as well, and that nobody is told two things by turns.

use crate::rig::{Character, Rig, SVC, key, slice_name};
use slice_core::engine::HealthState;
use slice_core::event::{EventType, HealOutcome, Input, Link, Reply};
use slice_core::heal::gate::HoldReason;
use slice_core::heal::policy::{Mode, Policy, Step};
use slice_core::heal::record::Record;
use slice_core::heal::story::{IncidentRecord, What};
use slice_core::judge::{FindingKind, RemedyAction, Severity};
use slice_core::signal::{Signal, SignalKind};

fn kept(rig: &Rig) -> Vec<&IncidentRecord> {
    let mut kept = Vec::new();
    for record in &rig.records {
        if let Record::Incident(incident) = record {
            kept.push(&**incident);
        }
    }
    kept
}

fn signal(rig: &Rig) -> Signal {
    Signal {
        rule: "cache-hit".to_owned(),
        kind: SignalKind::CacheHit,
        severity: Severity::Warning,
        at: rig.now.wall,
        unit: None,
        namespace: None,
        service: None,
        slice: None,
        pod: None,
        node: None,
        count: 1,
        message: "Cache hit for endpoint slice, skipping update".to_owned(),
        cursor: "s=1".to_owned(),
    }
}

#[test]
fn an_incident_is_kept_with_its_whole_story() {
    let mut rig = Rig::new(Character::CacheHit);
    // The line comes before the watch shows anything wrong.
    rig.feed(Input::Signal(signal(&rig)));
    rig.redeploy_unseen();
    rig.pass(200.0);
    assert_eq!(rig.outcomes(), [HealOutcome::Healed]);
    let kept = kept(&rig);
    assert_eq!(kept.len(), 1, "one write, with the end of the heal");
    let incident = kept[0];
    assert_eq!(incident.service, key());
    assert_eq!(incident.kind, FindingKind::GhostEndpoint);
    assert_eq!(incident.action, RemedyAction::DeleteSlice);
    assert_eq!(incident.outcome, Some(HealOutcome::Healed));
    assert!(incident.closed.unwrap() > incident.opened);
    assert!(incident.seconds > 30.0, "{}", incident.seconds);
    let mut order: Vec<What> = incident.story.entries().iter().map(|e| e.what).collect();
    order.dedup();
    let first = order.iter().position(|w| *w == What::Decision).unwrap();
    assert!(order[..first].contains(&What::Signal) && order[..first].contains(&What::Finding));
    assert_eq!(order[first + 1], What::Action);
    assert_eq!(order.last(), Some(&What::Outcome));
    let texts: Vec<&str> = incident
        .story
        .entries()
        .iter()
        .map(|e| e.text.as_str())
        .collect();
    let story = texts.join("\n");
    for part in [
        "cache-hit: Cache hit for endpoint slice",
        "refresh 1",
        "refresh 2",
        "nothing speaks against the next step",
        "answered the canary",
        "delete slice model-endpoint-abc12",
        "a new slice is there",
        "healed",
    ] {
        assert!(story.contains(part), "{part} is not in\n{story}");
    }
    let times: Vec<_> = incident.story.entries().iter().map(|e| e.at).collect();
    assert!(times.is_sorted(), "{times:?}");
}

#[test]
fn what_is_held_back_and_then_comes_right_is_kept_as_well() {
    let mut rig = Rig::new(Character::Right);
    rig.mode(Mode::Observe);
    rig.redeploy_unseen();
    rig.pass(30.0);
    assert_eq!(
        kept(&rig).iter().map(|i| i.held).collect::<Vec<_>>(),
        [Some(HoldReason::ObserveMode)]
    );
    assert_eq!(rig.engine.incidents(rig.now).len(), 1);
    rig.write_slices();
    rig.pass(1.0);
    let last = kept(&rig).pop().unwrap();
    assert_eq!(last.outcome, Some(HealOutcome::HealedByItself));
    assert!(last.closed.is_some() && last.held.is_none());
    assert!(rig.engine.incidents(rig.now).is_empty());
}

#[test]
fn a_heal_that_is_faster_than_the_grace_of_its_finding_tells_the_finding_first() {
    let mut rig = Rig::new(Character::Right);
    rig.feed(Input::Signal(signal(&rig)));
    rig.redeploy_unseen();
    rig.pass(20.0);
    assert_eq!(rig.outcomes(), [HealOutcome::Healed]);
    let order: Vec<EventType> = rig.events.iter().map(|e| e.kind).collect();
    let at = |kind| order.iter().position(|k| *k == kind);
    assert!(at(EventType::Finding) < at(EventType::Heal), "{order:?}");
    assert!(order.contains(&EventType::Resolved), "{order:?}");
}

#[test]
fn a_dry_run_names_every_write_and_makes_none() {
    let mut rig = Rig::new(Character::CacheHit);
    rig.redeploy_unseen();
    let writes = rig.dry_run();
    assert_eq!(writes.len(), 3, "{writes:#?}");
    let uid = rig.uid_of(SVC);
    assert!(
        writes[0].starts_with(&format!(
            "patch services line1/model-endpoint (uid {uid}): annotation slice-healer.io/refresh = \
             \"2026-12-01T08:00:00Z t-1\""
        )),
        "{}",
        writes[0]
    );
    assert!(
        writes[1].contains("after 10 s: the same patch"),
        "{}",
        writes[1]
    );
    assert!(
        writes[2].contains("and 30 s old: delete endpointslices line1/model-endpoint-abc12 (uid ")
            && writes[2].contains("answered the canary"),
        "{}",
        writes[2]
    );
    // One ghost among three right endpoints: the delete would not come.
    let mut rig = Rig::new(Character::CacheHit);
    rig.delete_pod("model-1");
    let writes = rig.dry_run();
    assert!(
        writes[2].starts_with("no delete after that: deleting"),
        "{writes:#?}"
    );
    // The seeds' Option A.
    rig.redeploy_rest();
    rig.feed(Input::Policy(Box::new(Policy {
        mode: Mode::Heal,
        ladder: vec![Step::DeleteSlice],
        ..Policy::default()
    })));
    let writes = rig.dry_run();
    assert!(
        writes[0].starts_with("delete endpointslices"),
        "{writes:#?}"
    );
    assert!(rig.acts.is_empty(), "{:?}", rig.acts);
}

#[test]
fn windows_holds_and_a_fresh_connection_hold_by_hand_too() {
    let mut rig = Rig::new(Character::Right);
    rig.redeploy_unseen();
    for reason in [HoldReason::Hold, HoldReason::OutsideWindow] {
        rig.feed(Input::Policy(Box::new(Policy {
            mode: Mode::Heal,
            closed: Some((reason, "hold \"audit\" until then".to_owned())),
            ..Policy::default()
        })));
        for dry in [true, false] {
            let Reply::Held {
                reason: held,
                detail,
            } = rig.heal_by_hand(dry)
            else {
                panic!()
            };
            assert_eq!(held, reason);
            assert!(detail.contains("audit"), "{detail}");
        }
        rig.pass(60.0);
        assert!(rig.acts.is_empty(), "{:?}", rig.acts);
        assert_eq!(rig.holds().last().unwrap(), reason.as_str());
        let status = rig.engine.status(rig.now);
        assert_eq!(status.health.state, HealthState::Blocked);
        assert!(
            status.health.reason.contains(reason.as_str()),
            "{}",
            status.health.reason
        );
        assert_eq!(status.closed.unwrap().0, reason);
        assert_eq!(status.heals.held_by_reason[&reason], 1);
    }
    rig.link(Link::Unreachable("gone".to_owned()));
    rig.mode(Mode::Heal);
    rig.sync();
    let Reply::Held { reason, .. } = rig.heal_by_hand(false) else {
        panic!()
    };
    assert_eq!(reason, HoldReason::Reconnected);
}

#[test]
fn a_heal_that_is_held_back_on_its_way_again_and_again_is_blocked_all_the_time() {
    let mut rig = Rig::new(Character::CacheHit);
    rig.canary = slice_core::event::CanaryAnswer::Unanswered;
    rig.redeploy_unseen();
    let mut states = Vec::new();
    for _ in 0..1200 {
        rig.pass(1.0);
        states.push(rig.engine.status(rig.now).health.state);
    }
    states.dedup();
    assert_eq!(states, [HealthState::Healing, HealthState::Blocked]);
    let refreshes = rig.writes().len();
    assert!(
        (4..=12).contains(&refreshes),
        "it did try again: {refreshes}"
    );
    assert!(
        rig.names(slice_core::model::Kind::EndpointSlice)
            .contains(&slice_name(SVC))
    );
}
