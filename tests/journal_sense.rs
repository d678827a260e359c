//! The journal sense on a real journald: signals, position and states, in that order.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use slice_core::event::JournalState;
use slice_core::judge::Severity;
use slice_core::signal::{Signal, SignalKind};
use slice_healer::sense::journal::{Journal, JournalInput, Matcher, Options, spawn};
use slice_journal::{Entry, Match};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::support::journald::{Client, Journald};

const PATIENCE: Duration = Duration::from_secs(60);

/// Every line that begins with `stale` is a signal about the Service it names.
fn matcher() -> Matcher {
    Box::new(|entry: &Entry| {
        let message = entry.get("MESSAGE").unwrap_or_default();
        let message = String::from_utf8_lossy(message).into_owned();
        let Some(service) = message.strip_prefix("stale ") else {
            return Vec::new();
        };
        vec![Signal {
            rule: "stale".to_owned(),
            kind: SignalKind::Custom,
            severity: Severity::Warning,
            at: jiff::Timestamp::UNIX_EPOCH,
            unit: None,
            namespace: None,
            service: Some(service.to_owned()),
            slice: None,
            pod: None,
            node: None,
            count: 1,
            message: message.clone(),
            cursor: entry.cursor.to_string(),
        }]
    })
}

fn options(journald: &Journald, cursor: Option<String>) -> Result<Options> {
    Ok(Options {
        directories: vec![journald.volatile()],
        matches: vec![
            Match::new("SYSLOG_IDENTIFIER", "edge")?,
            Match::new("SYSLOG_IDENTIFIER", "healer")?,
        ],
        cursor,
        look_back: Duration::from_secs(3600),
        interval: Duration::from_millis(100),
        own: vec!["healer".to_owned()],
        ..Options::host()
    })
}

fn signals(input: &JournalInput) -> &[Signal] {
    match input {
        JournalInput::Signals { signals, .. } => signals,
        _ => &[],
    }
}

struct Run {
    rx: mpsc::Receiver<JournalInput>,
    stop: CancellationToken,
    journal: Journal,
}

impl Run {
    fn start(options: Options, queue: usize) -> Result<Self> {
        let (tx, rx) = mpsc::channel(queue);
        let stop = CancellationToken::new();
        let journal = spawn(options, matcher(), tx, stop.clone())?;
        Ok(Self { rx, stop, journal })
    }

    async fn next(&mut self) -> Result<JournalInput> {
        let next = timeout(PATIENCE, self.rx.recv()).await;
        next.context("something is told")?
            .context("the thread goes on")
    }

    /// Takes inputs until signals of `service` have been told `n` times; the last position before.
    async fn until(&mut self, service: &str, n: u32) -> Result<Vec<JournalInput>> {
        let (mut told, mut count) = (Vec::new(), 0);
        while count < n {
            let input = self.next().await?;
            for signal in signals(&input) {
                if signal.service.as_deref() == Some(service) {
                    count += signal.count;
                }
            }
            told.push(input);
        }
        ensure!(count == n, "{service} {count} times: {told:?}");
        Ok(told)
    }

    /// Ends the thread, which may still have things to tell.
    async fn end(mut self) -> Result<Vec<JournalInput>> {
        self.stop.cancel();
        let mut rest = Vec::new();
        let ended = async {
            while let Some(input) = self.rx.recv().await {
                rest.push(input);
            }
            self.journal.ended().await;
        };
        timeout(PATIENCE, ended).await.context("the thread ends")?;
        Ok(rest)
    }
}

fn write(client: &Client, identifier: &str, message: &str) -> Result<()> {
    client.send(&[
        ("SYSLOG_IDENTIFIER", identifier.as_bytes()),
        ("MESSAGE", message.as_bytes()),
    ])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signals_come_with_the_position_that_covers_them_and_none_twice_after_a_restart()
-> Result<()> {
    let journald = Journald::start(&["Storage=volatile"], &[])?;
    let client = journald.client()?;
    let mut run = Run::start(options(&journald, None)?, 64)?;
    ensure!(
        matches!(run.next().await?, JournalInput::State(_)),
        "the state is the first thing told"
    );
    write(&client, "edge", "nothing to see")?;
    write(&client, "healer", "stale own-line")?;
    write(&client, "edge", "stale web")?;
    let told = run.until("web", 1).await?;
    let count = told.iter().flat_map(signals).count();
    ensure!(count == 1, "our own line is no signal: {told:?}");
    let Some(JournalInput::Signals { signals, cursor }) = told.last().cloned() else {
        anyhow::bail!("{told:?}")
    };
    ensure!(signals[0].cursor == cursor, "{told:?}");
    run.end().await?;

    write(&client, "edge", "stale db")?;
    let mut run = Run::start(options(&journald, Some(cursor))?, 64)?;
    let told = run.until("db", 1).await?;
    ensure!(!format!("{told:?}").contains("web"), "told again: {told:?}");
    ensure!(
        told.iter()
            .any(|i| matches!(i, JournalInput::State(JournalState::Following))),
        "{told:?}"
    );
    run.end().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_is_counted_and_a_slow_receiver_loses_nothing() -> Result<()> {
    let journald = Journald::start(&["Storage=volatile", "RateLimitIntervalSec=0"], &[])?;
    let client = journald.client()?;
    let count = 500;
    for n in 0..count {
        write(&client, "edge", "stale web")?;
        write(&client, "edge", &format!("stale s{n}"))?;
    }
    // A queue of one: the thread has to wait for almost every signal.
    let mut run = Run::start(options(&journald, None)?, 1)?;
    let (mut web, mut others) = (0, 0);
    while (web, others) != (count, count) {
        for signal in signals(&run.next().await?) {
            match signal.service.as_deref() {
                Some("web") => web += signal.count,
                _ => others += signal.count,
            }
            ensure!(web <= count && others <= count, "{web} and {others}");
        }
    }
    let waits = run
        .journal
        .counters
        .waits
        .load(std::sync::atomic::Ordering::Relaxed);
    ensure!(waits > 0, "the queue was never full");
    run.end().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_queue_does_not_keep_the_thread_from_ending() -> Result<()> {
    let journald = Journald::start(&["Storage=volatile"], &[])?;
    let client = journald.client()?;
    for n in 0..10 {
        write(&client, "edge", &format!("stale s{n}"))?;
    }
    let run = Run::start(options(&journald, None)?, 1)?;
    // The queue is full with the state alone; nobody takes it out.
    let counters = std::sync::Arc::clone(&run.journal.counters);
    let full = async {
        while counters.waits.load(std::sync::atomic::Ordering::Relaxed) == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, full).await.context("the thread waits")?;
    run.stop.cancel();
    timeout(PATIENCE, run.journal.ended())
        .await
        .context("the thread ends")?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_journal_is_a_state_until_there_is_one() -> Result<()> {
    let journald = Journald::start(&["Storage=volatile"], &[])?;
    let folder = tempfile::tempdir()?;
    let later = folder.path().join("journal");
    let mut options = options(&journald, None)?;
    options.directories = vec![later.clone()];
    let mut run = Run::start(options, 64)?;
    let first = run.next().await?;
    ensure!(
        matches!(first, JournalInput::State(JournalState::Waiting)),
        "{first:?}"
    );
    write(&journald.client()?, "edge", "stale web")?;
    std::os::unix::fs::symlink(journald.volatile(), &later)?;
    let told = run.until("web", 1).await?;
    // The state is looked at once an interval, so it may follow the first entries.
    let follows = |i: &JournalInput| matches!(i, JournalInput::State(JournalState::Following));
    let mut following = told.iter().any(follows);
    while !following {
        following = follows(&run.next().await?);
    }
    run.end().await?;
    Ok(())
}
