//! Entries on their way to the host's journal: a bounded queue and one thread of its own, because
//! the socket blocks while journald is slow. What does not fit is dropped and counted; stdout has it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use log::Record;
use systemd_journal_logger::JournalLog;
use tracing::Level;

use super::entry::Entry;

/// Entries that may wait.
const QUEUE: usize = 1024;

/// How long the end of the process waits for the queue.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The sending side.
#[derive(Clone, Debug)]
pub(super) struct Journal {
    queue: SyncSender<Message>,
    lost: Arc<AtomicU64>,
}

enum Message {
    Entry(Box<Entry>),
    End,
}

impl Journal {
    /// Connects to journald and starts the thread.
    ///
    /// # Errors
    /// There is no socket, or nobody listens on it: stdout is all there is.
    pub(super) fn connect(module_id: &str) -> std::io::Result<(Self, JoinHandle<()>)> {
        let log = JournalLog::empty()?
            .with_syslog_identifier(module_id.to_owned())
            .with_extra_fields([("CONTAINER_NAME", module_id)]);
        Self::start(move |entry| send(&log, entry))
    }

    fn start(
        mut sink: impl FnMut(&Entry) -> std::io::Result<()> + Send + 'static,
    ) -> std::io::Result<(Self, JoinHandle<()>)> {
        let (queue, entries) = sync_channel(QUEUE);
        let lost = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&lost);
        let thread = std::thread::Builder::new()
            .name("log-journal".to_owned())
            .spawn(move || pump(&entries, &mut sink, &counter))?;
        Ok((Self { queue, lost }, thread))
    }

    /// Hands over an entry, without waiting.
    pub(super) fn send(&self, entry: Entry) {
        if self
            .queue
            .try_send(Message::Entry(Box::new(entry)))
            .is_err()
        {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Entries that the journal did not get.
    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Lets the thread finish what waits, for a second at most.
    pub(super) fn close(&self, thread: JoinHandle<()>) {
        let until = Instant::now() + LAST_WORDS;
        if self.queue.try_send(Message::End).is_ok() {
            while !thread.is_finished() && Instant::now() < until {
                std::thread::park_timeout(Duration::from_millis(5));
            }
        }
    }
}

fn pump(
    entries: &Receiver<Message>,
    sink: &mut impl FnMut(&Entry) -> std::io::Result<()>,
    lost: &AtomicU64,
) {
    loop {
        match entries.recv_timeout(Duration::from_secs(3600)) {
            Ok(Message::Entry(entry)) => {
                if sink(&entry).is_err() {
                    lost.fetch_add(1, Ordering::Relaxed);
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Ok(Message::End) | Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

fn send(journal: &JournalLog, entry: &Entry) -> std::io::Result<()> {
    let level = match entry.level {
        Level::ERROR => log::Level::Error,
        Level::WARN => log::Level::Warn,
        Level::INFO => log::Level::Info,
        Level::DEBUG => log::Level::Debug,
        Level::TRACE => log::Level::Trace,
    };
    let fields: Vec<(&str, &str)> = entry
        .fields
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect();
    journal.journal_send(
        &Record::builder()
            .level(level)
            .target(&entry.target)
            .module_path(entry.module.as_deref())
            .file(entry.file.as_deref())
            .line(entry.line)
            .key_values(&fields.as_slice())
            .args(format_args!("{}", entry.message))
            .build(),
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    fn entry(message: &str) -> Entry {
        Entry {
            level: Level::INFO,
            target: "t".to_owned(),
            module: None,
            file: None,
            line: None,
            message: message.to_owned(),
            fields: Vec::new(),
        }
    }

    #[test]
    fn what_waits_is_written_at_the_end_and_failures_are_counted() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&seen);
        let (journal, thread) = Journal::start(move |entry| {
            sink.lock().unwrap().push(entry.message.clone());
            if entry.message == "bad" {
                Err(std::io::Error::other("full"))
            } else {
                Ok(())
            }
        })
        .unwrap();
        for message in ["a", "bad", "b"] {
            journal.send(entry(message));
        }
        journal.close(thread);
        assert_eq!(*seen.lock().unwrap(), ["a", "bad", "b"]);
        assert_eq!(journal.lost(), 1);
    }

    #[test]
    fn a_stuck_journal_costs_entries_and_no_time() {
        let (release, stuck) = sync_channel::<()>(0);
        let (journal, thread) = Journal::start(move |_| {
            let _ = stuck.recv();
            Ok(())
        })
        .unwrap();
        for _ in 0..QUEUE + 10 {
            journal.send(entry("x"));
        }
        assert!(journal.lost() >= 9, "{}", journal.lost());
        drop(release);
        thread.thread().unpark();
        drop(journal);
        thread.join().unwrap();
    }
}
