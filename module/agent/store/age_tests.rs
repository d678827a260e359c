//! What has waited too long in the outbox is given up, by the clock of the device.

use jiff::SignedDuration;
use slice_core::event::EventType;

use super::tests::{event, ids, open};
use super::*;

#[tokio::test]
async fn what_has_waited_too_long_is_given_up_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let day =
        |days: i64| Timestamp::constant(1_800_000_000, 0) + SignedDuration::from_hours(24 * days);
    let of = |id: &str, kind, accepted_at| Outgoing {
        accepted_at,
        ..event(id, kind)
    };
    let events = vec![
        // A device whose clock was not set yet: this may be a minute old.
        of("unset", EventType::Drain, Some(Timestamp::UNIX_EPOCH)),
        of("status-0", EventType::Status, Some(day(0))),
        of("signal-1", EventType::Signal, Some(day(1))),
        of("heal-2", EventType::Heal, Some(day(2))),
        of("signal-9", EventType::Signal, Some(day(9))),
        of("unknown", EventType::Status, None),
    ];
    let batch = Batch {
        events,
        ..Batch::default()
    };
    store.commit(batch).await.unwrap();
    let written = store.stats().written_bytes;
    assert_eq!(store.outbox_expire(day(0)).await.unwrap(), 0);
    assert_eq!(store.stats().written_bytes, written, "nothing is old");
    assert_eq!(store.outbox_expire(day(3)).await.unwrap(), 2);
    let kept = store.outbox_peek(10).await.unwrap();
    assert_eq!(ids(&kept), ["unset", "heal-2", "signal-9", "unknown"]);
    let stats = store.stats();
    assert_eq!((stats.outbox_messages, stats.outbox_dropped), (4, 2));
    // The one whose clock was unset holds its place; behind it nothing is given up before its turn.
    store.outbox_ack(vec![kept[0].number]).await.unwrap();
    assert_eq!(store.outbox_expire(day(3)).await.unwrap(), 1);
    assert_eq!(
        ids(&store.outbox_peek(10).await.unwrap()),
        ["signal-9", "unknown"]
    );
}
