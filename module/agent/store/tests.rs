//! The store against reopening, crashes, damage and a full outbox.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use slice_core::event::{EventType, HealOutcome};
use slice_core::heal::policy::Step;
use slice_core::heal::record::{Charge, Ended, Intent};
use slice_core::heal::story::Story;
use slice_core::judge::{FindingKind, RemedyAction, Severity};
use slice_core::model::ServiceKey;

use super::*;

const LIMITS: Limits = Limits {
    bytes: 1 << 20,
    messages: 1000,
};

/// Says to the child of the crash test where its store is.
const CHILD: &str = "SLICE_HEALER_TEST_STORE";

pub(super) fn open(directory: &Path) -> Store {
    let (store, found) = Store::open(directory, LIMITS).unwrap();
    assert_eq!(found, Found::default());
    store
}

pub(super) fn event(id: &str, kind: EventType) -> Outgoing {
    Outgoing {
        id: id.to_owned(),
        kind,
        output: "events".to_owned(),
        properties: vec![("type".to_owned(), kind.as_str().to_owned())],
        body: format!("{{\"id\":\"{id}\"}}"),
        accepted_at: None,
    }
}

fn at(hours: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_hours(hours)
}

fn charge(name: &str, hours: i64) -> Record {
    Record::Charge(Charge {
        service: ServiceKey::new("line1", name),
        at: at(hours),
    })
}

pub(super) fn ids(waiting: &[Waiting]) -> Vec<&str> {
    waiting
        .iter()
        .map(|waiting| waiting.message.id.as_str())
        .collect()
}

#[tokio::test]
async fn what_was_committed_is_there_after_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    assert_eq!(store.cursor().await.unwrap(), None);
    assert_eq!(store.history().await.unwrap(), History::default());
    let intent = Intent {
        incident: "i1".to_owned(),
        service: ServiceKey::new("line1", "model"),
        step: Step::DeleteSlice,
        slice: Some("model-abc".to_owned()),
        at: at(1),
    };
    let ended = Ended {
        service: ServiceKey::new("line1", "other"),
        at: at(1),
        action: RemedyAction::RefreshService,
        outcome: HealOutcome::Healed,
        seconds: 3.5,
    };
    let batch = Batch {
        holds: Some(json!({"audit": "2026-12-01T08:00:00Z"})),
        records: vec![
            charge("model", 1),
            Record::Ended(ended.clone()),
            Record::Intent(Some(intent.clone())),
        ],
        events: vec![event("a", EventType::Heal), event("b", EventType::Signal)],
        cursor: Some("s=1;i=2".to_owned()),
        desired: Some(json!({"mode": "heal"})),
    };
    store.commit(batch).await.unwrap();
    drop(store);

    let store = open(dir.path());
    let history = store.history().await.unwrap();
    assert_eq!(history.charges.len(), 1);
    assert_eq!(history.ended, [ended]);
    assert_eq!(history.intent, Some(intent));
    assert_eq!(store.cursor().await.unwrap().as_deref(), Some("s=1;i=2"));
    assert_eq!(
        store.desired().await.unwrap(),
        Some(json!({"mode": "heal"}))
    );
    let waiting = store.outbox_peek(10).await.unwrap();
    assert_eq!(ids(&waiting), ["a", "b"]);
    assert_eq!(waiting[0].message, event("a", EventType::Heal));
    assert_eq!(store.stats().outbox_messages, 2);

    store
        .outbox_ack(vec![waiting[0].number, 999_999])
        .await
        .unwrap();
    store
        .commit(Batch {
            records: vec![Record::Intent(None)],
            ..Batch::default()
        })
        .await
        .unwrap();
    drop(store);
    let store = open(dir.path());
    assert_eq!(ids(&store.outbox_peek(10).await.unwrap()), ["b"]);
    assert_eq!(store.history().await.unwrap().intent, None);
}

#[tokio::test]
async fn nothing_is_written_when_nothing_changed() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let batch = Batch {
        cursor: Some("c1".to_owned()),
        desired: Some(json!({"a": 1})),
        ..Batch::default()
    };
    store.commit(batch.clone()).await.unwrap();
    let written = store.stats().written_bytes;
    assert!(written > 0);
    for _ in 0..10 {
        store.commit(batch.clone()).await.unwrap();
        store.commit(Batch::default()).await.unwrap();
        store.outbox_ack(vec![7]).await.unwrap();
        store.outbox_ack(Vec::new()).await.unwrap();
        assert!(store.outbox_peek(5).await.unwrap().is_empty());
    }
    assert_eq!(store.stats().written_bytes, written);
    store
        .commit(Batch {
            cursor: Some("c2".to_owned()),
            ..Batch::default()
        })
        .await
        .unwrap();
    assert!(store.stats().written_bytes > written);
}

#[tokio::test]
async fn a_full_outbox_gives_up_status_then_signals_then_the_oldest() {
    let dir = tempfile::tempdir().unwrap();
    let limits = Limits {
        bytes: 1 << 20,
        messages: 4,
    };
    let (store, _) = Store::open(dir.path(), limits).unwrap();
    let add = |id: &str, kind| {
        let batch = Batch {
            events: vec![event(id, kind)],
            ..Batch::default()
        };
        store.commit(batch)
    };
    for (id, kind) in [
        ("heal-1", EventType::Heal),
        ("signal-1", EventType::Signal),
        ("status-1", EventType::Status),
        ("finding-1", EventType::Finding),
    ] {
        add(id, kind).await.unwrap();
    }
    assert_eq!(store.stats().outbox_dropped, 0);
    let mut expect = Vec::new();
    for (id, kind) in [
        ("status-2", EventType::Status),
        ("heal-2", EventType::Heal),
        ("signal-2", EventType::Signal),
        ("heal-3", EventType::Heal),
        ("heal-4", EventType::Heal),
    ] {
        add(id, kind).await.unwrap();
        expect.push(ids(&store.outbox_peek(10).await.unwrap()).join(" "));
    }
    assert_eq!(
        expect,
        [
            "heal-1 signal-1 finding-1 status-2",
            "heal-1 signal-1 finding-1 heal-2",
            "heal-1 finding-1 heal-2 signal-2",
            "heal-1 finding-1 heal-2 heal-3",
            "finding-1 heal-2 heal-3 heal-4",
        ]
    );
    let stats = store.stats();
    assert_eq!((stats.outbox_messages, stats.outbox_dropped), (4, 5));
}

#[tokio::test]
async fn the_outbox_is_bounded_by_bytes_as_well() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(
        dir.path(),
        Limits {
            bytes: 2000,
            messages: 1000,
        },
    )
    .unwrap();
    for n in 0..50 {
        let batch = Batch {
            events: vec![event(&format!("e{n}"), EventType::Heal)],
            ..Batch::default()
        };
        store.commit(batch).await.unwrap();
    }
    let stats = store.stats();
    assert!(
        stats.outbox_bytes <= 2000 && stats.outbox_messages > 5,
        "{stats:?}"
    );
    assert_eq!(stats.outbox_messages + stats.outbox_dropped, 50);
    drop(store);
    let (store, _) = Store::open(
        dir.path(),
        Limits {
            bytes: 2000,
            messages: 1000,
        },
    )
    .unwrap();
    assert_eq!(
        store.stats().outbox_bytes,
        stats.outbox_bytes,
        "the counts are those of the disk"
    );
}

#[tokio::test]
async fn old_charges_and_slices_leave() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    for hours in [0, 1, 30] {
        store
            .commit(Batch {
                records: vec![charge("m", hours)],
                ..Batch::default()
            })
            .await
            .unwrap();
    }
    let charges = store.history().await.unwrap().charges;
    assert_eq!(charges.iter().map(|c| c.at).collect::<Vec<_>>(), [at(30)]);
    let records = (0..60)
        .map(|n| {
            Record::Evidence(DeletedSlice {
                service: ServiceKey::new("line1", "m"),
                slice: format!("s{n}"),
                at: at(n),
                incident: "i".to_owned(),
                object: json!({"n": n}),
            })
        })
        .collect();
    store
        .commit(Batch {
            records,
            ..Batch::default()
        })
        .await
        .unwrap();
    let deleted = store.deleted_slices().await.unwrap();
    assert_eq!(deleted.len(), 50);
    assert_eq!(
        (deleted[0].slice.as_str(), deleted[49].slice.as_str()),
        ("s59", "s10")
    );
    assert_eq!(deleted[0].object, json!({"n": 59}));
}

#[tokio::test]
async fn an_incident_is_kept_once_as_it_was_last_told() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let incident = |n: usize, attempts| {
        Record::Incident(Box::new(IncidentRecord {
            id: format!("i-{n}"),
            service: ServiceKey::new("line1", "m"),
            slice: None,
            kind: FindingKind::GhostEndpoint,
            severity: Severity::Critical,
            message: String::new(),
            opened: at(1),
            closed: None,
            attempts,
            action: RemedyAction::None,
            outcome: None,
            held: None,
            seconds: 0.0,
            story: Story::default(),
        }))
    };
    let mut records: Vec<Record> = (0..120).map(|n| incident(n, 1)).collect();
    records.push(incident(60, 2));
    store
        .commit(Batch {
            records,
            ..Batch::default()
        })
        .await
        .unwrap();
    let kept = store.incidents().await.unwrap();
    assert_eq!(kept.len(), 100);
    assert_eq!((kept[0].id.as_str(), kept[0].attempts), ("i-60", 2));
    assert_eq!(kept.iter().filter(|i| i.id == "i-60").count(), 1);
    assert_eq!(kept[1].id, "i-119");
}

#[tokio::test]
async fn a_second_process_is_told_that_the_file_is_in_use() {
    let dir = tempfile::tempdir().unwrap();
    let _first = open(dir.path());
    let error = Store::open(dir.path(), LIMITS).unwrap_err();
    assert!(matches!(error, StoreError::InUse { .. }), "{error}");
    assert!(error.to_string().contains("control socket"));
}

#[tokio::test]
async fn a_damaged_file_is_kept_under_another_name() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let events: Vec<Outgoing> = (0..200)
        .map(|n| event(&format!("e{n}"), EventType::Heal))
        .collect();
    store
        .commit(Batch {
            events,
            ..Batch::default()
        })
        .await
        .unwrap();
    drop(store);
    let path = dir.path().join(FILE);
    let whole = std::fs::read(&path).unwrap();

    let no_file: Vec<u8> = b"not a database at all".to_vec();
    let cut = whole[..whole.len() / 3].to_vec();
    let mut scrambled = whole.clone();
    for byte in scrambled.iter_mut().skip(4096) {
        *byte ^= 0x5a;
    }
    for bytes in [no_file, cut, scrambled] {
        std::fs::write(&path, &bytes).unwrap();
        let (store, found) = Store::open(dir.path(), LIMITS).unwrap();
        let (aside, reason) = found.set_aside.expect("damage must be seen");
        assert!(!reason.is_empty());
        assert!(
            aside
                .file_name()
                .unwrap()
                .to_str()
                .unwrap()
                .contains("damaged")
        );
        assert!(aside.exists());
        assert_eq!(store.stats().outbox_messages, 0);
        store
            .commit(Batch {
                cursor: Some("c".to_owned()),
                ..Batch::default()
            })
            .await
            .unwrap();
    }
    // A fourth one makes room, and says which went.
    std::fs::write(&path, b"again no database").unwrap();
    let (_, found) = Store::open(dir.path(), LIMITS).unwrap();
    assert!(found.removed.is_some_and(|path| !path.exists()));
    assert!(found.set_aside.is_some());
}

#[tokio::test]
async fn a_newer_format_is_not_touched() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path()));
    let path = dir.path().join(FILE);
    let database = redb::Database::open(&path).unwrap();
    let write = database.begin_write().unwrap();
    write
        .open_table(tables::NUMBERS)
        .unwrap()
        .insert(tables::FORMAT_KEY, 99)
        .unwrap();
    write.commit().unwrap();
    drop(database);
    let (_, found) = Store::open(dir.path(), LIMITS).unwrap();
    let (aside, reason) = found.set_aside.unwrap();
    assert!(reason.contains("format 99"), "{reason}");
    assert!(redb::Database::open(aside).is_ok());
}

#[test]
fn a_directory_that_cannot_be_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "x").unwrap();
    let error = Store::open(&file.join("state"), LIMITS).unwrap_err();
    assert!(matches!(error, StoreError::Directory { .. }), "{error}");
    assert!(error.to_string().contains("store.directory"));
}

/// The child of the test below: commits without end and says what it committed.
#[tokio::test]
async fn crash_child() {
    let Some(directory) = std::env::var_os(CHILD) else {
        return;
    };
    let store = open(Path::new(&directory));
    for n in 0_i64.. {
        let batch = Batch {
            records: vec![charge("m", 0)],
            events: vec![event(&format!("e{n}"), EventType::Heal)],
            cursor: Some(format!("c{n}")),
            ..Batch::default()
        };
        store.commit(batch).await.unwrap();
        println!("committed {n}");
    }
}

#[tokio::test]
async fn what_was_acknowledged_survives_kill_9() {
    for round in 1..=4 {
        let dir = tempfile::tempdir().unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "store::tests::crash_child",
                "--nocapture",
                "--test-threads=1",
            ])
            .env(CHILD, dir.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut acknowledged = None;
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            if let Some(n) = line.unwrap().strip_prefix("committed ") {
                acknowledged = n.parse::<u64>().ok();
            }
            if acknowledged >= Some(round * 7) {
                break;
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();

        let store = open(dir.path());
        let waiting = store.outbox_peek(1000).await.unwrap();
        let last = acknowledged.expect("the child must have committed");
        assert!(waiting.len() as u64 > last, "{} of {last}", waiting.len());
        for (n, waiting) in waiting.iter().enumerate() {
            assert_eq!(waiting.message.id, format!("e{n}"), "none lost, none twice");
        }
        // Records, events and cursor are of one piece.
        assert_eq!(store.history().await.unwrap().charges.len(), waiting.len());
        assert_eq!(
            store.cursor().await.unwrap(),
            Some(format!("c{}", waiting.len() - 1))
        );
    }
}
