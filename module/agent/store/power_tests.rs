//! The store against a power cut: a disk that keeps what was flushed, loses some of what was not, and
//! tears the write that it was at. Whatever was accepted before must be there afterwards.

use std::io;

use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use redb::{BackendError, StorageBackend};
use slice_core::event::EventType;

use super::file::on_backend;
use super::*;

/// A disk writes whole sectors.
const SECTOR: usize = 512;
const LIMITS: Limits = Limits {
    bytes: 1 << 20,
    messages: 1000,
};

#[derive(Clone, Debug)]
enum Op {
    Write(u64, Vec<u8>),
    Length(u64),
    Flush,
}

/// A disk that remembers all that it was told, in order.
#[derive(Clone, Debug, Default)]
struct Disk(Arc<Mutex<(Vec<u8>, Vec<Op>)>>);

impl Disk {
    fn tell(&self, op: Op) {
        let mut state = self.0.lock().unwrap();
        apply(&mut state.0, &op, usize::MAX);
        state.1.push(op);
    }

    fn told(&self) -> usize {
        self.0.lock().unwrap().1.len()
    }

    /// What is on it after a power cut at operation `at`: everything up to the last flush, and of the
    /// rest what chance has left, the last of it torn.
    fn after_cut(&self, at: usize, rng: &mut SmallRng) -> Vec<u8> {
        let state = self.0.lock().unwrap();
        let ops = &state.1[..at];
        let flushed = ops
            .iter()
            .rposition(|op| matches!(op, Op::Flush))
            .map_or(0, |n| n + 1);
        let mut bytes = Vec::new();
        for op in &ops[..flushed] {
            apply(&mut bytes, op, usize::MAX);
        }
        let kept: Vec<&Op> = ops[flushed..]
            .iter()
            .filter(|op| matches!(op, Op::Length(_)) || rng.random_bool(0.5))
            .collect();
        for (n, op) in kept.iter().enumerate() {
            let most = match op {
                Op::Write(_, data) if n + 1 == kept.len() => {
                    rng.random_range(0..=data.len() / SECTOR) * SECTOR
                }
                _ => usize::MAX,
            };
            apply(&mut bytes, op, most);
        }
        bytes
    }
}

fn apply(bytes: &mut Vec<u8>, op: &Op, most: usize) {
    match op {
        Op::Write(offset, data) => {
            let data = &data[..data.len().min(most)];
            let start = *offset as usize;
            let end = start + data.len();
            if bytes.len() < end {
                bytes.resize(end, 0);
            }
            bytes[start..end].copy_from_slice(data);
        }
        Op::Length(length) => bytes.resize(*length as usize, 0),
        Op::Flush => {}
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> Result<u64, io::Error> {
        Ok(self.0.lock().unwrap().0.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        let start = offset as usize;
        let state = self.0.lock().unwrap();
        let found = state.0.get(start..start + out.len());
        out.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, length: u64) -> Result<(), io::Error> {
        self.tell(Op::Length(length));
        Ok(())
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        self.tell(Op::Flush);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        self.tell(Op::Write(offset, data.to_vec()));
        Ok(())
    }

    fn close(&self) -> Result<(), io::Error> {
        Ok(())
    }

    fn try_lock_range(
        &self,
        _: std::ops::Bound<u64>,
        _: std::ops::Bound<u64>,
    ) -> Result<bool, BackendError> {
        Ok(true)
    }

    fn lock_range(
        &self,
        _: std::ops::Bound<u64>,
        _: std::ops::Bound<u64>,
    ) -> Result<(), BackendError> {
        Ok(())
    }

    fn unlock_range(
        &self,
        _: std::ops::Bound<u64>,
        _: std::ops::Bound<u64>,
    ) -> Result<(), BackendError> {
        Ok(())
    }
}

/// One commit: what is in the outbox after it, and when it was said to be done.
struct Done {
    told: usize,
    waiting: Vec<String>,
}

/// Puts messages in and takes some out, as life does.
async fn live(disk: &Disk) -> Vec<Done> {
    let database = on_backend(Path::new("disk"), disk.clone()).unwrap();
    let outbox = Outbox::open(&database, LIMITS)
        .map_err(|_| "outbox")
        .unwrap();
    let store = Store {
        shared: Arc::new(Shared {
            database: Mutex::new(Some(database)),
            written: Written::default(),
            outbox,
            directory: PathBuf::from("disk"),
            path: PathBuf::from("disk"),
        }),
    };
    let mut done = vec![Done {
        told: disk.told(),
        waiting: Vec::new(),
    }];
    for n in 0..40 {
        let event = Outgoing {
            id: format!("e{n}"),
            kind: EventType::Heal,
            output: "events".to_owned(),
            properties: Vec::new(),
            body: "x".repeat(n * 97 % 3000),
            accepted_at: None,
        };
        let batch = Batch {
            events: vec![event],
            cursor: Some(format!("c{n}")),
            ..Batch::default()
        };
        store.commit(batch).await.unwrap();
        if n % 3 == 2 {
            let first = store.outbox_peek(1).await.unwrap()[0].number;
            store.outbox_ack(vec![first]).await.unwrap();
        }
        let waiting = store.outbox_peek(1000).await.unwrap();
        done.push(Done {
            told: disk.told(),
            waiting: waiting.into_iter().map(|w| w.message.id).collect(),
        });
    }
    done
}

#[tokio::test]
async fn a_power_cut_at_any_moment_loses_nothing_that_was_accepted() {
    let disk = Disk::default();
    let done = live(&disk).await;
    let rounds = 100;
    let mut rng = SmallRng::seed_from_u64(20_261_201);
    let dir = tempfile::tempdir().unwrap();
    let mut torn = 0;
    for round in 0..rounds {
        let first = done[0].told;
        let at = rng.random_range(first..=disk.told());
        let bytes = disk.after_cut(at, &mut rng);
        std::fs::write(dir.path().join(FILE), bytes).unwrap();
        let (store, found) = Store::open(dir.path(), LIMITS).unwrap();
        assert_eq!(found, Found::default(), "round {round}, cut at {at}");
        let waiting = store.outbox_peek(1000).await.unwrap();
        let ids: Vec<String> = waiting.into_iter().map(|w| w.message.id).collect();
        // It is as it was after the last commit that was done, or after what was under way: one more
        // message, or one fewer that the hub had already acknowledged.
        let last = done.iter().rposition(|d| d.told <= at).unwrap();
        let is_whole = |d: &Done| ids == d.waiting;
        let under_way = done.get(last + 1).is_some_and(|next| {
            let mut added = done[last].waiting.clone();
            added.extend(next.waiting.last().cloned());
            ids == next.waiting || ids == added
        });
        assert!(
            is_whole(&done[last]) || under_way,
            "round {round}, cut at {at} of {}: {ids:?} after {:?}",
            disk.told(),
            done[last].waiting
        );
        torn += usize::from(!is_whole(&done[last]));
    }
    assert!(torn > 5 && torn < rounds, "cuts inside a commit: {torn}");
}
