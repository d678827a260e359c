//! Following a real journald through everything that it does to its files: each entry once, in
//! order, across rotation, vacuum, crash, flush, and restarts of our own.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use slice_journal::{Cursor, Entry, Fields, Follower, Match, Options, Start, State, Status};

use crate::journal_read::read;
use crate::support::journald::{Journald, MACHINE, journalctl, until};

const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn options(directory: &Path, start: Start) -> Result<Options> {
    let mut options = Options::directories([directory]);
    options.matches = vec![
        Match::new("SYSLOG_IDENTIFIER", "edge")?,
        Match::new("_SYSTEMD_UNIT", "iotedge.service")?,
    ];
    options.fields = Fields::Only(vec!["NUMBER".into(), "MESSAGE".into()]);
    options.start = start;
    Ok(options)
}

pub(crate) fn number(entry: &Entry) -> Option<u64> {
    std::str::from_utf8(entry.get("NUMBER")?).ok()?.parse().ok()
}

/// A follower on a thread of its own that collects until it has seen the entry `last`.
struct Collector {
    thread: JoinHandle<(Vec<Entry>, Status)>,
    stop: Arc<AtomicBool>,
}

impl Collector {
    fn start(options: Options, last: Option<u64>) -> Result<Self> {
        let mut follower = Follower::open(options)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut entries = Vec::new();
            loop {
                match follower.next(Duration::from_millis(200)) {
                    Some(entry) => {
                        let seen = number(&entry);
                        entries.push(entry);
                        if seen.is_some() && seen == last {
                            break;
                        }
                    }
                    None if stopped.load(Ordering::Relaxed) => break,
                    None => {}
                }
            }
            (entries, follower.status())
        });
        Ok(Self { thread, stop })
    }

    fn finish(self) -> Result<(Vec<Entry>, Status)> {
        let begun = Instant::now();
        while !self.thread.is_finished() {
            if begun.elapsed() > PATIENCE {
                self.stop.store(true, Ordering::Relaxed);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        self.thread.join().ok().context("the follower panicked")
    }
}

/// Numbers seen, checked to be exactly `0..count` in order.
fn expect_each_once(entries: &[Entry], count: u64, status: &Status) -> Result<()> {
    let seen: Vec<u64> = entries.iter().filter_map(number).collect();
    let wrong = seen.iter().zip(0..count).find(|(seen, n)| **seen != *n);
    ensure!(
        wrong.is_none() && seen.len() as u64 == count,
        "{} of {count} seen, first difference (seen, expected): {wrong:?}, {status:?}",
        seen.len()
    );
    Ok(())
}

/// Writes entries `0..count` at some 500 a second, and does `meanwhile` each `every`.
fn write(
    journald: &mut Journald,
    count: u64,
    padding: usize,
    every: Duration,
    mut meanwhile: impl FnMut(&mut Journald) -> Result<()>,
) -> Result<()> {
    let client = journald.client()?;
    let mut last = Instant::now();
    for n in 0..count {
        client.send_numbered("edge", n, padding)?;
        std::thread::sleep(Duration::from_millis(2));
        if last.elapsed() >= every {
            meanwhile(journald)?;
            last = Instant::now();
        }
    }
    Ok(())
}

fn rotations(inotify: bool) -> Result<()> {
    let mut journald = Journald::start(&["Storage=volatile"], &[])?;
    let mut options = options(&journald.volatile(), Start::Tail)?;
    options.inotify = inotify;
    let collector = Collector::start(options, Some(1999))?;
    let mut count = 0;
    write(
        &mut journald,
        2000,
        40,
        Duration::from_millis(300),
        |journald| {
            count += 1;
            journald.signal("USR2")
        },
    )?;
    let (entries, status) = collector.finish()?;
    expect_each_once(&entries, 2000, &status)?;
    let theirs = journalctl(&journald.volatile(), &["SYSLOG_IDENTIFIER=edge"])?;
    let cursors: Vec<String> = entries.iter().map(|e| e.cursor.to_string()).collect();
    assert!(theirs.iter().map(|(cursor, _)| cursor).eq(&cursors));
    assert!(count >= 5, "{count} rotations");
    assert!(status.files <= 3, "descriptors of {} files", status.files);
    assert_eq!((status.corrupt_files, status.corrupt_entries), (0, 0));
    assert_eq!(status.polling_fallback.is_some(), !inotify);
    Ok(())
}

#[test]
fn nothing_is_lost_while_journald_rotates() -> Result<()> {
    rotations(true)
}

#[test]
fn nothing_is_lost_without_inotify() -> Result<()> {
    rotations(false)
}

#[test]
fn nothing_is_lost_when_size_rotates_and_old_files_are_vacuumed() -> Result<()> {
    let config = [
        "Storage=volatile",
        "RuntimeMaxFileSize=512K",
        "RuntimeMaxUse=2M",
        "Compress=no",
    ];
    let mut journald = Journald::start(&config, &[])?;
    let collector = Collector::start(options(&journald.volatile(), Start::Tail)?, Some(1999))?;
    write(&mut journald, 2000, 3000, PATIENCE, |_| Ok(()))?;
    let (entries, status) = collector.finish()?;
    expect_each_once(&entries, 2000, &status)?;
    let left = journalctl(&journald.volatile(), &["SYSLOG_IDENTIFIER=edge"])?;
    assert!(left.len() < 2000, "nothing was vacuumed");
    assert!(status.files_closed >= 2 && status.files <= 8, "{status:?}");
    Ok(())
}

#[test]
fn what_journald_wrote_is_read_though_it_is_killed() -> Result<()> {
    let mut journald = Journald::start(&["Storage=volatile"], &[])?;
    let collector = Collector::start(options(&journald.volatile(), Start::Tail)?, Some(1000))?;
    for crash in 0..4u64 {
        let client = journald.client()?;
        for n in 0..100 {
            client.send_numbered("edge", crash * 100 + n, 20)?;
        }
        journald.crash()?;
    }
    journald.client()?.send_numbered("edge", 1000, 20)?;
    let (entries, status) = collector.finish()?;
    // What was still in the socket died with journald: its files are the measure.
    let theirs = journalctl(&journald.volatile(), &["SYSLOG_IDENTIFIER=edge"])?;
    let mut expected: Vec<&String> = theirs.iter().map(|(cursor, _)| cursor).collect();
    let ours: Vec<String> = entries.iter().map(|e| e.cursor.to_string()).collect();
    let mut sorted: Vec<&String> = ours.iter().collect();
    sorted.sort();
    expected.sort();
    assert_eq!(sorted, expected, "{status:?}");
    let numbers: Vec<u64> = entries.iter().filter_map(number).collect();
    assert!(numbers.is_sorted(), "{numbers:?}");
    assert!(numbers.len() > 4, "{numbers:?}");
    assert_eq!(status.corrupt_files, 0, "{status:?}");
    Ok(())
}

#[test]
fn a_restart_goes_on_from_the_cursor_while_journald_rotates() -> Result<()> {
    let mut journald = Journald::start(&["Storage=volatile"], &[])?;
    let directory = journald.volatile();
    let done = Arc::new(AtomicBool::new(false));
    let reading = {
        let done = Arc::clone(&done);
        std::thread::spawn(move || -> Result<(Vec<Entry>, u32)> {
            let mut entries: Vec<Entry> = Vec::new();
            let mut cursor: Option<Cursor> = None;
            let mut restarts = 0;
            let begun = Instant::now();
            while begun.elapsed() < PATIENCE * 2 {
                let start = cursor.map_or(Start::Head, Start::After);
                let mut follower = Follower::open(options(&directory, start)?)?;
                // Dies after a few entries, each time at another point.
                for _ in 0..=(restarts * 7 % 40) {
                    let Some(entry) = follower.next(Duration::from_millis(50)) else {
                        break;
                    };
                    cursor = Some(entry.cursor.to_string().parse()?);
                    let last = number(&entry) == Some(1499);
                    entries.push(entry);
                    if last {
                        return Ok((entries, restarts));
                    }
                }
                restarts += 1;
                if done.load(Ordering::Relaxed) && begun.elapsed() > PATIENCE {
                    break;
                }
            }
            Ok((entries, restarts))
        })
    };
    write(
        &mut journald,
        1500,
        40,
        Duration::from_millis(200),
        |journald| journald.signal("USR2"),
    )?;
    done.store(true, Ordering::Relaxed);
    let (entries, restarts) = reading.join().ok().context("the reader panicked")??;
    expect_each_once(&entries, 1500, &Status::default())?;
    assert!(restarts > 20, "{restarts} restarts");
    Ok(())
}

#[test]
fn the_move_from_run_to_var_repeats_nothing() -> Result<()> {
    let journald = Journald::start(&["Storage=auto"], &[])?;
    let mut options = options(&journald.volatile(), Start::Head)?;
    // The persistent directory does not even exist yet.
    options.roots.push(journald.persistent());
    let collector = Collector::start(options.clone(), Some(399))?;
    let client = journald.client()?;
    for n in 0..200 {
        client.send_numbered("edge", n, 20)?;
        // Lines that differ in nothing, read in one go: copies cannot be told by content alone.
        client.send(&[("SYSLOG_IDENTIFIER", b"edge"), ("MESSAGE", b"same")])?;
    }
    until("everything is in /run", || {
        Ok(journalctl(&journald.volatile(), &["NUMBER=199"])?.len() == 1)
    })?;
    std::fs::create_dir(journald.persistent())?;
    journald.signal("USR1")?;
    until("the journal has moved", || Ok(journald.has_flushed()))?;
    assert!(!journald.volatile().join(MACHINE).exists());
    for n in 200..400 {
        client.send_numbered("edge", n, 20)?;
    }
    let (entries, status) = collector.finish()?;
    expect_each_once(&entries, 400, &status)?;
    // A restart at any point: the cursor's numbers are gone with /run, its boot is not.
    let (moved, follower) = read(options.clone())?;
    ensure!(
        moved.len() == entries.len(),
        "{} of {} are in /var: {:?}",
        moved.len(),
        entries.len(),
        follower.status()
    );
    for at in (0..entries.len()).step_by(37) {
        options.start = Start::After(entries[at].cursor);
        let (rest, follower) = read(options.clone())?;
        let missing = entries.len() - at - 1;
        ensure!(
            rest.iter()
                .filter_map(number)
                .eq(entries[at + 1..].iter().filter_map(number)),
            "after entry {at}: {} of {missing}, {:?}",
            rest.len(),
            follower.status()
        );
    }
    let same = entries
        .iter()
        .filter(|e| e.get("MESSAGE") == Some(b"same"))
        .count();
    assert_eq!(same, 200, "{status:?}");
    assert_eq!(status.state, State::Following);
    Ok(())
}

#[test]
fn a_journal_that_comes_later_is_waited_for() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let root = dir.path().join("run/log/journal");
    let mut follower = Follower::open(options(&root, Start::Tail)?)?;
    assert!(follower.next(Duration::from_millis(1)).is_none());
    assert_eq!(follower.status().state, State::Waiting);

    let journald = Journald::start(&["Storage=volatile"], &[])?;
    let source = journald.volatile().join(MACHINE);
    std::fs::create_dir_all(root.parent().context("a parent")?)?;
    std::os::unix::fs::symlink(journald.volatile(), &root)?;
    journald.client()?.send_numbered("edge", 0, 20)?;
    let entry = follower.next(PATIENCE).context("nothing came")?;
    assert_eq!(number(&entry), Some(0));
    assert_eq!(follower.status().state, State::Following);
    assert!(source.is_dir());
    Ok(())
}

#[test]
fn units_are_matched_by_the_field_that_journald_vouches_for() -> Result<()> {
    use std::io::Write;
    let journald = Journald::start(&["Storage=volatile"], &[])?;
    let mut options = options(&journald.volatile(), Start::Tail)?;
    options.matches = vec![Match::new("_SYSTEMD_UNIT", "iotedge.service")?];
    // The unit has no entry yet: the tail of nothing, and its first line must not be lost.
    let mut follower = Follower::open(options)?;
    let mut stream = journald.stream("aziot-edged", "iotedge.service")?;
    for n in 0..50 {
        stream.write_all(format!("<4>line {n}\n").as_bytes())?;
    }
    for n in 0..50 {
        let entry = follower.next(PATIENCE).context("a line is missing")?;
        assert_eq!(entry.get("MESSAGE"), Some(format!("line {n}").as_bytes()));
    }
    Ok(())
}
