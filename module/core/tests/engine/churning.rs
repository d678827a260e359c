//! A Service whose slices change all the time: it is told once, nothing is written, and it is over
//! when the changes are.

use crate::rig::{Character, Rig, SVC, slice_name};
use slice_core::event::{Event, EventType, Input};
use slice_core::heal::policy::{Mode, Policy};
use slice_core::judge::{FindingKind, RemedyAction, Severity};
use slice_core::model::Kind;

fn told(rig: &Rig, kind: EventType) -> Vec<&Event> {
    rig.events
        .iter()
        .filter(|e| e.kind == kind && e.finding == Some(FindingKind::HighChurn))
        .collect()
}

fn is_churning(rig: &Rig) -> bool {
    let findings = rig.engine.findings();
    findings.iter().any(|f| f.kind == FindingKind::HighChurn)
}

/// So many updates of the slice, two a second. They change nothing that matters.
fn update(rig: &mut Rig, times: usize) {
    for n in 0..times {
        rig.edit(Kind::EndpointSlice, &slice_name(SVC), |slice| {
            slice["metadata"]["annotations"]["endpoints.kubernetes.io/last-change-trigger-time"] =
                n.to_string().into();
        });
        rig.pass(0.5);
    }
}

#[test]
fn churn_is_told_once_and_is_over_when_it_calms_down() {
    let mut rig = Rig::new(Character::Right);
    let usual = Policy::default().churn_per_minute as usize;
    // Writing the slice in the first place was a change as well.
    rig.pass(60.0);
    update(&mut rig, usual);
    assert!(!is_churning(&rig));

    update(&mut rig, 20);
    let findings = rig.engine.findings();
    let [finding] = &findings[..] else {
        panic!("not one finding: {findings:?}");
    };
    assert_eq!(finding.kind, FindingKind::HighChurn);
    assert_eq!(finding.severity, Severity::Info);
    assert_eq!(finding.service.as_deref(), Some(SVC));
    assert_eq!(finding.remedy.action, RemedyAction::None);
    assert_eq!(told(&rig, EventType::Finding).len(), 1);
    assert!(told(&rig, EventType::Resolved).is_empty());

    rig.pass(62.0);
    assert!(!is_churning(&rig));
    assert_eq!(told(&rig, EventType::Finding).len(), 1);
    assert_eq!(told(&rig, EventType::Resolved).len(), 1);
    assert!(rig.writes().is_empty(), "{:?}", rig.writes());
}

#[test]
fn what_a_watch_repeats_and_what_other_objects_do_is_no_churn() {
    let mut rig = Rig::new(Character::Right);
    for _ in 0..200 {
        rig.sync();
        rig.edit(Kind::Pod, "model-1", |_| {});
        rig.pass(0.1);
    }
    assert!(!is_churning(&rig));
}

#[test]
fn the_threshold_is_a_setting() {
    let mut rig = Rig::new(Character::Right);
    rig.feed(Input::Policy(Box::new(Policy {
        mode: Mode::Heal,
        churn_per_minute: 3,
        ..Policy::default()
    })));
    update(&mut rig, 4);
    assert!(is_churning(&rig));
    rig.feed(Input::Policy(Box::default()));
    assert!(!is_churning(&rig));
}
