//! Tests of the reported section: a hub in a few lines, and time as a number.

use super::*;
use crate::twin::merge::tests::document;
use proptest::prelude::*;
use serde_json::json;

fn pace() -> Pace {
    Pace {
        interval: Duration::from_secs(60),
        alarm_interval: Duration::from_secs(5),
        backoff: (Duration::from_secs(5), Duration::from_secs(20)),
        verify_after: Duration::from_secs(30),
        verify_spacing: Duration::from_secs(100),
        patch_bytes: 4_096,
    }
}

struct Clock(Instant);

impl Clock {
    fn at(&self, secs: u64) -> Instant {
        self.0 + Duration::from_secs(secs)
    }
}

fn connected(hub: &Value) -> (Reported, Clock) {
    let clock = Clock(Instant::now());
    let mut reported = Reported::new(pace());
    reported.begin_epoch();
    assert!(reported.needs_get());
    reported.on_get(clock.at(0), hub);
    (reported, clock)
}

#[test]
fn sends_nothing_before_the_hub_told_what_it_has() {
    let mut reported = Reported::new(pace());
    let now = Instant::now();
    reported.want(json!({"a": 1}), Urgency::Alarm);
    assert_eq!(reported.due_at(now, true), None);
    assert_eq!(reported.take_patch(now), None);
    reported.on_get(now, &json!({"a": 1, "$version": 4}));
    assert!(reported.is_settled(), "the hub has it already");
}

#[test]
fn one_minimal_patch_at_a_time_then_spacing() {
    let (mut reported, clock) = connected(&json!({"a": 1, "old": {"x": 1}, "$version": 3}));
    reported.want(json!({"a": 1, "b": 2}), Urgency::Routine);
    assert_eq!(reported.due_at(clock.at(0), false), Some(clock.at(0)));
    assert_eq!(
        reported.take_patch(clock.at(0)),
        Some(json!({"b": 2, "old": null}))
    );
    reported.want(json!({"a": 1, "b": 3}), Urgency::Routine);
    assert_eq!(reported.due_at(clock.at(1), false), None, "one in flight");
    assert_eq!(
        reported.on_answer(clock.at(1), 204),
        Acknowledged::Nothing,
        "b is already old"
    );
    assert_eq!(reported.due_at(clock.at(1), false), Some(clock.at(60)));
    reported.want(json!({"a": 1, "b": 4}), Urgency::Alarm);
    assert_eq!(reported.due_at(clock.at(2), false), Some(clock.at(5)));
    assert_eq!(reported.due_at(clock.at(2), true), Some(clock.at(2)));
    assert_eq!(reported.take_patch(clock.at(5)), Some(json!({"b": 4})));
    assert_eq!(reported.on_answer(clock.at(6), 204), Acknowledged::Settled);
    assert!(reported.is_settled());
}

#[test]
fn a_refused_section_is_found_and_left_out_until_it_changes() {
    let (mut reported, clock) = connected(&json!({}));
    reported.want(json!({"bad": "x", "good": 1, "more": 2}), Urgency::Routine);
    let mut at = 0;
    let mut refused = Vec::new();
    let mut sent = Vec::new();
    while let Some(due) = reported.due_at(clock.at(at), false) {
        at = due.duration_since(clock.0).as_secs();
        let patch = reported.take_patch(due).unwrap();
        let status = if patch.get("bad").is_some() { 400 } else { 204 };
        if let Acknowledged::Refused { section, status } = reported.on_answer(due, status) {
            refused.push((section, status));
        }
        sent.push(patch);
    }
    assert_eq!(refused, [("bad".to_owned(), 400)]);
    assert_eq!(
        sent,
        [
            json!({"bad": "x", "good": 1, "more": 2}),
            json!({"bad": "x"}),
            json!({"good": 1}),
            json!({"more": 2}),
        ]
    );
    reported.want(json!({"bad": "x", "good": 1, "more": 2}), Urgency::Routine);
    assert!(reported.is_settled(), "the same value is not tried again");
    reported.want(json!({"bad": "y", "good": 1, "more": 2}), Urgency::Routine);
    assert_eq!(
        reported.take_patch(clock.at(999)),
        Some(json!({"bad": "y"}))
    );
}

#[test]
fn busy_answers_back_off_and_the_patch_is_built_anew() {
    let (mut reported, clock) = connected(&json!({}));
    reported.want(json!({"a": 1}), Urgency::Alarm);
    for (status, from, next) in [
        (429, 0, 5),
        (500, 100, 110),
        (503, 200, 220),
        (500, 300, 320),
    ] {
        assert!(reported.take_patch(clock.at(from)).is_some());
        reported.on_answer(clock.at(from), status);
        reported.want(json!({"a": status}), Urgency::Alarm);
        assert_eq!(reported.due_at(clock.at(from), false), Some(clock.at(next)));
        assert_eq!(
            reported.due_at(clock.at(from), true),
            Some(clock.at(next)),
            "even at the end"
        );
    }
    assert_eq!(reported.take_patch(clock.at(400)), Some(json!({"a": 500})));
}

#[test]
fn a_patch_without_answer_asks_the_hub_first() {
    let (mut reported, clock) = connected(&json!({}));
    reported.want(json!({"a": 1}), Urgency::Routine);
    reported.take_patch(clock.at(0));
    reported.on_timeout(clock.at(60));
    assert!(reported.needs_get());
    assert_eq!(reported.due_at(clock.at(500), false), None);
    // It had arrived after all.
    reported.on_get(clock.at(61), &json!({"a": 1}));
    assert!(reported.is_settled());
    assert!(!reported.is_stuck());
}

#[test]
fn accepted_but_never_in_the_cloud_is_found_by_get() {
    let (mut reported, clock) = connected(&json!({}));
    reported.want(json!({"a": 1}), Urgency::Routine);
    let mut outcomes = Vec::new();
    for round in 0..3_u64 {
        let at = 200 * round;
        assert_eq!(
            reported.take_patch(clock.at(at)),
            Some(json!({"a": 1})),
            "sent again"
        );
        assert_eq!(reported.on_answer(clock.at(at), 204), Acknowledged::Settled);
        let verify = reported.verify_at(clock.at(at)).unwrap();
        assert_eq!(verify, clock.at(at + 100));
        outcomes.push(reported.on_get(verify, &json!({})));
    }
    assert_eq!(
        outcomes,
        [
            Acknowledged::Nothing,
            Acknowledged::Stuck,
            Acknowledged::Nothing
        ]
    );
    reported.take_patch(clock.at(900));
    reported.on_answer(clock.at(900), 204);
    assert_eq!(
        reported.on_get(clock.at(1_000), &json!({"a": 1})),
        Acknowledged::Recovered
    );
    assert_eq!(reported.verify_at(clock.at(1_000)), None);
}

#[test]
fn a_get_too_soon_after_the_answer_proves_nothing() {
    let (mut reported, clock) = connected(&json!({}));
    reported.want(json!({"a": 1}), Urgency::Routine);
    for at in [0, 10, 20, 29] {
        reported.take_patch(clock.at(at));
        reported.on_answer(clock.at(at), 204);
        assert_eq!(
            reported.on_get(clock.at(at + 1), &json!({})),
            Acknowledged::Nothing
        );
    }
    assert!(!reported.is_stuck());
}

#[test]
fn reconnecting_forgets_what_was_under_way_and_heals_by_get() {
    let (mut reported, clock) = connected(&json!({"a": 1}));
    reported.want(json!({"a": 2, "b": 2}), Urgency::Routine);
    reported.take_patch(clock.at(0));
    reported.begin_epoch();
    assert_eq!(reported.on_answer(clock.at(1), 204), Acknowledged::Nothing);
    reported.on_get(clock.at(90), &json!({"a": 1}));
    assert_eq!(
        reported.take_patch(clock.at(90)),
        Some(json!({"a": 2, "b": 2}))
    );
}

#[test]
fn a_large_change_is_split_with_removals_first() {
    let mut hub = json!({});
    let mut wanted = json!({});
    for i in 0..6 {
        hub[format!("old{i}")] = json!("x".repeat(1_000));
        wanted[format!("new{i}")] = json!("y".repeat(1_000));
    }
    let (mut reported, clock) = connected(&hub);
    reported.want(wanted.clone(), Urgency::Routine);
    let mut at = 0;
    let mut rounds = 0;
    while let Some(patch) = reported.take_patch(clock.at(at)) {
        assert!(patch.to_string().len() <= 4_096);
        if rounds == 0 {
            assert!((0..6).all(|i| patch[format!("old{i}")].is_null()));
        }
        merge(&mut hub, &patch);
        reported.on_answer(clock.at(at), 204);
        at += 60;
        rounds += 1;
    }
    assert_eq!(hub, wanted);
    assert_eq!(rounds, 2);
}

proptest! {
    /// Whatever the hub answers and whatever is lost, once it answers again it gets the document.
    #[test]
    fn the_hub_ends_up_with_what_is_wanted(
        start in document(),
        wishes in proptest::collection::vec(document(), 1..6),
        statuses in proptest::collection::vec(prop_oneof![Just(204), Just(429), Just(500), Just(0)], 20),
    ) {
        let clock = Clock(Instant::now());
        let mut hub = start;
        let mut reported = Reported::new(pace());
        reported.begin_epoch();
        let mut at = 0;
        let mut fate = statuses.into_iter();
        for wish in &wishes {
            reported.want(wish.clone(), Urgency::Routine);
            for _ in 0..4 {
                at += 1_000;
                if reported.needs_get() {
                    reported.on_get(clock.at(at), &hub);
                }
                let Some(patch) = reported.take_patch(clock.at(at)) else { break };
                match fate.next().unwrap_or(204) {
                    // Lost on the way there or on the way back.
                    0 => {
                        if at % 2_000 == 0 { merge(&mut hub, &patch); }
                        reported.on_timeout(clock.at(at));
                    }
                    204 => {
                        merge(&mut hub, &patch);
                        reported.on_answer(clock.at(at), 204);
                    }
                    status => { reported.on_answer(clock.at(at), status); }
                }
            }
        }
        for _ in 0..4 {
            at += 1_000;
            if reported.needs_get() {
                reported.on_get(clock.at(at), &hub);
            }
            if let Some(patch) = reported.take_patch(clock.at(at)) {
                merge(&mut hub, &patch);
                reported.on_answer(clock.at(at), 204);
            }
        }
        prop_assert_eq!(&hub, wishes.last().unwrap());
        prop_assert!(reported.is_settled());
    }
}
