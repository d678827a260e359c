//! The twin with edgeHub's two layers behind it.

use std::time::Duration;

use serde_json::json;
use slice_hub::{Event, ReportError, State, Urgency};
use slice_lab::edge::{Edge, EdgeOptions, TwinFault};

use crate::harness::Rig;

#[tokio::test]
async fn reported_document_reaches_the_cloud_and_what_vanishes_goes() {
    let rig = Rig::up().await;
    let handle = &rig.client.handle;
    handle
        .report(
            json!({"health": {"state": "ok"}, "pods": {"a.b": 1}}),
            Urgency::Routine,
        )
        .unwrap();
    rig.device(|v| v.reported() == json!({"health": {"state": "ok"}, "pods": {"a%2Eb": 1}}))
        .await;
    handle
        .report(json!({"health": {"state": "bad"}}), Urgency::Alarm)
        .unwrap();
    rig.device(|v| v.reported() == json!({"health": {"state": "bad"}}))
        .await;
}

#[tokio::test]
async fn kind_09_a_document_that_the_hub_would_refuse_never_leaves() {
    let rig = Rig::start(|c| c.limits.reported_bytes = 2_000).await;
    let handle = &rig.client.handle;
    handle.report(json!({"n": 1}), Urgency::Alarm).unwrap();
    rig.device(|v| v.reported() == json!({"n": 1})).await;
    let error = handle
        .report(json!({"n": "x".repeat(2_000)}), Urgency::Alarm)
        .unwrap_err();
    assert!(
        matches!(error, ReportError::TooLarge { budget: 2_000, .. }),
        "{error}"
    );
    assert!(handle.report(json!({"n": null}), Urgency::Alarm).is_err());
    // Large keys come and go; the cloud's copy never holds more than the budget.
    for n in 0..20 {
        handle
            .report(json!({format!("k{n}"): "x".repeat(1_500)}), Urgency::Alarm)
            .unwrap();
        rig.device(|v| {
            let reported = v.reported();
            assert!(reported.to_string().len() < 2_000, "{reported}");
            reported.get(format!("k{n}")).is_some()
        })
        .await;
    }
    assert_eq!(rig.edge.counters().reported_refused, 0);
}

#[tokio::test]
async fn a_poisoned_store_is_found_and_its_end_as_well() {
    let mut rig = Rig::up().await;
    rig.edge.faults(|f| f.poison_reported = true);
    rig.client
        .handle
        .report(json!({"a": 1}), Urgency::Alarm)
        .unwrap();
    rig.event(|e| matches!(e, Event::ReportedStuck).then_some(()))
        .await;
    rig.status(|s| s.reported_stuck).await;
    assert_eq!(rig.edge.cloud().reported(), json!({}));
    rig.edge.faults(|f| f.poison_reported = false);
    rig.edge.wipe_store();
    rig.event(|e| matches!(e, Event::ReportedRecovered).then_some(()))
        .await;
    rig.device(|v| v.reported() == json!({"a": 1})).await;
}

#[tokio::test]
async fn a_refused_patch_is_narrowed_down_and_a_busy_hub_is_asked_again() {
    let mut rig = Rig::up().await;
    rig.edge.faults(|f| {
        f.twin_report = TwinFault::Status(429);
        f.twin_times = Some(2);
    });
    rig.client
        .handle
        .report(json!({"a": 1}), Urgency::Alarm)
        .unwrap();
    rig.device(|v| v.reported() == json!({"a": 1})).await;
    rig.edge.faults(|f| {
        f.twin_report = TwinFault::Status(400);
        f.twin_times = Some(2);
    });
    rig.client
        .handle
        .report(json!({"a": 1, "b": 1, "c": 1}), Urgency::Alarm)
        .unwrap();
    let section = rig
        .event(|e| match e {
            Event::ReportedRefused {
                section,
                status: 400,
            } => Some(section),
            _ => None,
        })
        .await;
    assert_eq!(section, "b", "the first that was tried alone");
    rig.device(|v| v.reported() == json!({"a": 1, "c": 1}))
        .await;
}

#[tokio::test]
async fn kind_10_twin_requests_without_answer_do_not_stop_the_rest() {
    let edge = Edge::start(EdgeOptions::quick()).await.unwrap();
    edge.faults(|f| f.twin_get = TwinFault::Silent);
    let mut rig = Rig::on(edge, |c| c.timings.twin_answer = Duration::from_millis(600));
    rig.status(|s| s.state == State::Syncing).await;
    rig.deliver("while syncing").await;
    rig.status(|s| s.counters.twin_gets >= 5).await;
    assert!(
        rig.client.handle.status().counters.connects >= 2,
        "silence ends the link at last"
    );
    rig.edge.faults(|f| f.twin_get = TwinFault::Status(500));
    rig.client
        .handle
        .report(json!({"a": 1}), Urgency::Alarm)
        .unwrap();
    rig.edge.faults(|f| f.twin_get = TwinFault::None);
    rig.until_up().await;
    rig.device(|v| v.reported() == json!({"a": 1})).await;
    // A patch without answer.
    rig.edge.faults(|f| {
        f.twin_report = TwinFault::Silent;
        f.twin_times = Some(1);
    });
    rig.client
        .handle
        .report(json!({"a": 2}), Urgency::Alarm)
        .unwrap();
    rig.device(|v| v.reported() == json!({"a": 2})).await;
    // Offline, a GET blocks first and comes from edgeHub's store then.
    rig.edge.faults(|f| f.cloud_offline = true);
    rig.client.handle.refresh_twin().await;
    rig.deliver("while offline").await;
}

#[tokio::test]
async fn kind_11_an_empty_twin_is_not_taken_for_a_deletion() {
    let mut rig = Rig::up().await;
    let version = rig
        .edge
        .cloud()
        .set_desired(json!({"mode": "heal"}))
        .unwrap();
    rig.desired(version).await;
    rig.edge.faults(|f| f.twin_get = TwinFault::Empty);
    rig.edge.drop_connections();
    rig.event(|e| matches!(e, Event::Connected { .. }).then_some(()))
        .await;
    let gets = rig.client.handle.status().counters.twin_gets;
    rig.status(|s| s.counters.twin_gets >= gets + 3).await;
    assert_eq!(rig.client.handle.status().state, State::Syncing);
    rig.edge.faults(|f| f.twin_get = TwinFault::None);
    let version = rig.edge.cloud().patch_desired(json!({"more": 1})).unwrap();
    // The first document after all that is whole again; none came in between.
    let first = rig
        .event(|e| match e {
            Event::Desired {
                version, document, ..
            } => Some((version, document)),
            _ => None,
        })
        .await;
    assert_eq!(first, (version, json!({"mode": "heal", "more": 1})));
}

#[tokio::test]
async fn kind_12_a_change_that_was_missed_is_found() {
    let mut rig = Rig::up().await;
    rig.edge.stop_hub().await;
    let version = rig.edge.cloud().set_desired(json!({"a": 1})).unwrap();
    rig.edge.start_hub().await.unwrap();
    assert_eq!(rig.desired(version).await, (version, json!({"a": 1})));
    // Lost on the way to edgeHub, found at the next one by the version.
    rig.edge
        .cloud()
        .patch_desired_unnoticed(json!({"b": 2}))
        .unwrap();
    let version = rig.edge.cloud().patch_desired(json!({"c": 3})).unwrap();
    assert_eq!(
        rig.desired(version).await,
        (version, json!({"a": 1, "b": 2, "c": 3}))
    );
    // Lost with nothing after it: found when asked.
    rig.edge
        .cloud()
        .patch_desired_unnoticed(json!({"d": 4}))
        .unwrap();
    rig.client.handle.refresh_twin().await;
    let (_, document) = rig.desired(version + 1).await;
    assert_eq!(document, json!({"a": 1, "b": 2, "c": 3, "d": 4}));
}

#[tokio::test]
async fn a_computed_difference_with_metadata_and_a_jump_is_asked_for() {
    let mut rig = Rig::up().await;
    rig.edge.faults(|f| f.diff_metadata = true);
    let version = rig.edge.cloud().set_desired(json!({"a": 1})).unwrap();
    rig.desired(version).await;
    let odd = json!({"b": 2, "$metadata": {"b": {}}, "$version": version + 3});
    rig.edge.cloud().send_desired(version + 3, odd).unwrap();
    let gets = rig.client.handle.status().counters.twin_gets;
    rig.status(|s| s.counters.twin_gets > gets).await;
    let version = rig.edge.cloud().patch_desired(json!({"c": 3})).unwrap();
    assert_eq!(
        rig.desired(version).await,
        (version, json!({"a": 1, "c": 3}))
    );
}

#[tokio::test]
async fn kind_13_a_version_that_goes_back_is_followed_at_the_next_get() {
    let mut rig = Rig::up().await;
    for n in 0..5 {
        rig.edge.cloud().set_desired(json!({"n": n})).unwrap();
    }
    let version = rig.edge.cloud().desired_version();
    rig.desired(version).await;
    // The module identity was made anew.
    rig.edge.cloud().reset_desired_version(1);
    rig.edge.wipe_store();
    rig.edge.drop_connections();
    let back = rig
        .event(|e| match e {
            Event::Desired {
                version, document, ..
            } => Some((version, document)),
            _ => None,
        })
        .await;
    assert_eq!(back, (1, json!({"n": 4})));
    let version = rig.edge.cloud().set_desired(json!({"n": 9})).unwrap();
    assert_eq!(rig.desired(version).await, (version, json!({"n": 9})));
}

#[tokio::test]
async fn kind_14_a_storm_of_changes_ends_with_the_newest_and_few_events() {
    let mut rig = Rig::start(|c| c.timings.desired_spacing = Duration::from_millis(200)).await;
    rig.until_up().await;
    let last = rig
        .edge
        .cloud()
        .storm(500, 1_000, |n| json!({"n": n, "same": true}))
        .await
        .unwrap();
    let mut events = 0;
    loop {
        let (version, document) = rig.desired(0).await;
        events += 1;
        if version == last {
            assert_eq!(document, json!({"n": 499, "same": true}));
            break;
        }
    }
    assert!(events < 100, "{events} events for 500 changes");
    // The same again: a duplicate does nothing.
    rig.edge
        .cloud()
        .send_desired(last, json!({"n": 0}))
        .unwrap();
    let version = rig.edge.cloud().patch_desired(json!({"end": 1})).unwrap();
    let expected = json!({"n": 499, "same": true, "end": 1});
    assert_eq!(rig.desired(version).await, (version, expected));
}
