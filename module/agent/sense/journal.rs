//! Follows the host's journal on a thread of its own and turns what the rules match into signals.
//!
//! Which entry means what is the matcher's business. Nothing is lost or doubled between reading and
//! the receiver: signals are told in one piece with the position that they bring the reading to,
//! and where the receiver is slow the thread waits, since the journal keeps.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use slice_core::event::JournalState;
use slice_core::signal::Signal;
use slice_journal::{Cursor, Entry, Fields, Follower, Match, Start, State, Status};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

/// How long the thread waits for an entry before it looks whether it should end.
const BREATH: Duration = Duration::from_millis(200);
/// Different lines told one by one in one interval; beyond, they are only counted by rule.
const MOST_KEYS: usize = 1024;

/// What the rules make of an entry: usually nothing.
pub type Matcher = Box<dyn FnMut(&Entry) -> Vec<Signal> + Send>;

/// What is followed.
#[derive(Clone, Debug)]
pub struct Options {
    /// Folders that hold journals.
    pub directories: Vec<PathBuf>,
    /// Which entries: any of these. None at all would be every entry of the host.
    pub matches: Vec<Match>,
    /// Further fields to decode: those that rules look at.
    pub fields: Vec<String>,
    /// Where an earlier process ended.
    pub cursor: Option<String>,
    /// How far back to read without a cursor.
    pub look_back: Duration,
    /// How often to look where inotify does not tell.
    pub poll: Duration,
    /// How often the position is told at most; repeated signals are counted together for as long.
    pub interval: Duration,
    /// `SYSLOG_IDENTIFIER` and `CONTAINER_NAME` of this module: what it logs is never a signal.
    pub own: Vec<String>,
}

impl Options {
    /// The host's journals, from two minutes ago where there is no cursor.
    pub fn host() -> Self {
        Self {
            directories: vec!["/var/log/journal".into(), "/run/log/journal".into()],
            matches: Vec::new(),
            fields: Vec::new(),
            cursor: None,
            look_back: Duration::from_secs(120),
            poll: Duration::from_millis(250),
            interval: Duration::from_secs(1),
            own: Vec::new(),
        }
    }

    fn follower(&self) -> slice_journal::Options {
        let mut options = slice_journal::Options::directories(self.directories.iter());
        options.matches.clone_from(&self.matches);
        options.start = self.start();
        options.poll = self.poll;
        let always = FIELDS.iter().map(|name| (*name).to_owned());
        options.fields = Fields::Only(always.chain(self.fields.iter().cloned()).collect());
        options
    }

    fn start(&self) -> Start {
        if let Some(cursor) = &self.cursor {
            match cursor.parse::<Cursor>() {
                Ok(cursor) => return Start::After(cursor),
                Err(error) => warn!(%error, "the stored position is not used"),
            }
        }
        let back = i64::try_from(self.look_back.as_micros()).unwrap_or(i64::MAX);
        let since = Timestamp::now().as_microsecond().saturating_sub(back);
        Start::Since(u64::try_from(since).unwrap_or_default())
    }
}

/// What is said where inotify cannot be had.
pub const POLLING: &str =
    "new entries are polled for; raise fs.inotify.max_user_instances or max_user_watches";

/// The fields that are decoded: what rules look at, and what tells our own entries apart.
pub const FIELDS: [&str; 7] = [
    "MESSAGE",
    "PRIORITY",
    "SYSLOG_IDENTIFIER",
    "CONTAINER_NAME",
    "_SYSTEMD_UNIT",
    "UNIT",
    "_PID",
];

/// The matches for the entries of units, named with or without `.service`.
pub fn unit_matches<'a>(
    units: impl IntoIterator<Item = &'a str>,
) -> Result<Vec<Match>, slice_journal::Error> {
    let full = |unit: &str| match has_suffix(unit) {
        true => unit.to_owned(),
        false => format!("{unit}.service"),
    };
    units
        .into_iter()
        .map(|unit| Match::new("_SYSTEMD_UNIT", full(unit)))
        .collect()
}

fn has_suffix(unit: &str) -> bool {
    const SUFFIXES: [&str; 4] = [".service", ".scope", ".slice", ".socket"];
    SUFFIXES.iter().any(|suffix| unit.ends_with(suffix))
}

/// What comes out, in the order of the journal.
#[derive(Clone, Debug)]
pub enum JournalInput {
    /// Rules matched. Everything up to the position has been told with it: who keeps both in one
    /// transaction has each entry once, whenever the process dies.
    Signals {
        /// At least one, oldest first.
        signals: Vec<Signal>,
        /// The last entry's cursor.
        cursor: String,
    },
    /// The follower changed its state.
    State(JournalState),
    /// Everything up to here has been told, and nothing that matched is new: to be kept for the
    /// next start.
    Read {
        /// The last entry's cursor.
        cursor: String,
    },
}

/// What has been counted. Never goes down.
#[derive(Debug, Default)]
pub struct JournalCounters {
    /// Entries that were read.
    pub entries: AtomicU64,
    /// Entries that matched a rule.
    pub matched: AtomicU64,
    /// Times that the receiver's queue was full.
    pub waits: AtomicU64,
}

/// The running follower.
#[derive(Debug)]
pub struct Journal {
    /// What has been counted.
    pub counters: Arc<JournalCounters>,
    /// How the follower itself fares, for people.
    pub status: watch::Receiver<Status>,
    ended: oneshot::Receiver<()>,
}

impl Journal {
    /// Waits until the thread has ended; without a shutdown that is a fault of the program.
    pub async fn ended(self) {
        // The thread only ever drops its end.
        drop(self.ended.await);
    }
}

/// Starts the thread. It ends with `shutdown`, or when nobody listens any more.
///
/// # Errors
/// When the system gives no thread, or the folders are none.
pub fn spawn(
    options: Options,
    matcher: Matcher,
    tx: mpsc::Sender<JournalInput>,
    shutdown: CancellationToken,
) -> std::io::Result<Journal> {
    let follower = Follower::open(options.follower()).map_err(std::io::Error::other)?;
    let counters = Arc::new(JournalCounters::default());
    let (status, seen) = watch::channel(Status::default());
    let (alive, ended) = oneshot::channel();
    let reader = Reader {
        follower,
        matcher,
        out: Out {
            tx,
            shutdown,
            runtime: Handle::current(),
            counters: Arc::clone(&counters),
        },
        status,
        own: options.own.into_iter().map(String::into_bytes).collect(),
        interval: options.interval,
        state: None,
        polling: false,
        position: None,
        repeated: Repeated::default(),
    };
    std::thread::Builder::new()
        .name("journal".to_owned())
        .spawn(move || {
            reader.run();
            drop(alive);
        })?;
    Ok(Journal {
        counters,
        status: seen,
        ended,
    })
}

/// It is time to end.
struct Ended;

struct Out {
    tx: mpsc::Sender<JournalInput>,
    shutdown: CancellationToken,
    runtime: Handle,
    counters: Arc<JournalCounters>,
}

impl Out {
    fn send(&self, input: JournalInput) -> Result<(), Ended> {
        match self.tx.try_send(input) {
            Ok(()) => Ok(()),
            Err(mpsc::error::TrySendError::Closed(_)) => Err(Ended),
            Err(mpsc::error::TrySendError::Full(input)) => {
                self.counters.waits.fetch_add(1, Ordering::Relaxed);
                let sent = self.shutdown.run_until_cancelled(self.tx.send(input));
                match self.runtime.block_on(sent) {
                    Some(Ok(())) => Ok(()),
                    Some(Err(_)) | None => Err(Ended),
                }
            }
        }
    }
}

struct Reader {
    follower: Follower,
    matcher: Matcher,
    out: Out,
    status: watch::Sender<Status>,
    own: Vec<Vec<u8>>,
    interval: Duration,
    state: Option<JournalState>,
    /// It has been told that inotify is not to be had.
    polling: bool,
    /// The last entry that was read and not yet told as read.
    position: Option<Cursor>,
    repeated: Repeated,
}

impl Reader {
    fn run(mut self) {
        while let Ok(()) = self.round() {}
    }

    /// One interval: entries as they come, then what was repeated, then the position.
    fn round(&mut self) -> Result<(), Ended> {
        self.tell_state()?;
        let until = Instant::now() + self.interval;
        loop {
            if self.out.shutdown.is_cancelled() {
                self.close()?;
                return Err(Ended);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            if let Some(entry) = self.follower.next(left.min(BREATH)) {
                self.take(&entry)?;
            }
        }
        self.close()
    }

    fn take(&mut self, entry: &Entry) -> Result<(), Ended> {
        self.out.counters.entries.fetch_add(1, Ordering::Relaxed);
        let ours = [entry.get("SYSLOG_IDENTIFIER"), entry.get("CONTAINER_NAME")];
        if !ours
            .into_iter()
            .flatten()
            .any(|name| self.own.iter().any(|own| own == name))
        {
            let mut fresh = Vec::new();
            for signal in (self.matcher)(entry) {
                self.out.counters.matched.fetch_add(1, Ordering::Relaxed);
                fresh.extend(self.repeated.first(signal));
            }
            if !fresh.is_empty() {
                // The position passes what was only counted so far, so that goes along.
                let mut signals = self.repeated.counted();
                signals.append(&mut fresh);
                self.position = None;
                return self.out.send(JournalInput::Signals {
                    signals,
                    cursor: entry.cursor.to_string(),
                });
            }
        }
        self.position = Some(entry.cursor);
        Ok(())
    }

    fn close(&mut self) -> Result<(), Ended> {
        let signals = self.repeated.rest();
        // What is counted has an entry behind it, so no position means no signals.
        let Some(position) = self.position.take() else {
            return Ok(());
        };
        let cursor = position.to_string();
        self.out.send(if signals.is_empty() {
            JournalInput::Read { cursor }
        } else {
            JournalInput::Signals { signals, cursor }
        })
    }

    fn tell_state(&mut self) -> Result<(), Ended> {
        let status = self.follower.status();
        let state = match status.state {
            State::Waiting => JournalState::Waiting,
            State::Following => JournalState::Following,
            State::Denied => JournalState::Denied,
        };
        self.status.send_if_modified(|old| {
            let news = *old != status;
            if news {
                old.clone_from(&status);
            }
            news
        });
        let polling = status.polling_fallback.is_some();
        if polling && !self.polling {
            let why = status.polling_fallback.as_deref().unwrap_or_default();
            warn!(why, "{POLLING}");
        }
        self.polling = polling;
        if self.state == Some(state) {
            return Ok(());
        }
        match (state, &status.denied) {
            (JournalState::Denied, Some(path)) => error!(
                path = %path.display(),
                "the journal may not be read: run the module with the group systemd-journal"
            ),
            (JournalState::Waiting, _) => warn!("there is no journal yet: bind /var/log/journal"),
            _ => info!(started_by = ?status.started_by, "following the journal"),
        }
        self.state = Some(state);
        self.out.send(JournalInput::State(state))
    }
}

/// What makes two signals the same for a person.
type Key = (String, Option<String>, [Option<String>; 5]);

/// Counts the signals of one interval that only repeat another one.
#[derive(Default)]
struct Repeated(HashMap<Key, Option<Signal>>);

impl Repeated {
    /// The signal itself if it is the first of its kind; otherwise it is counted.
    fn first(&mut self, signal: Signal) -> Option<Signal> {
        let all = [
            &signal.namespace,
            &signal.service,
            &signal.slice,
            &signal.pod,
            &signal.node,
        ];
        let mut key = (
            signal.rule.clone(),
            signal.unit.clone(),
            all.map(Option::clone),
        );
        if self.0.len() >= MOST_KEYS && !self.0.contains_key(&key) {
            key = (key.0, None, [const { None }; 5]);
        }
        match self.0.entry(key) {
            Slot::Vacant(free) => {
                free.insert(None);
                Some(signal)
            }
            Slot::Occupied(mut seen) => {
                let count = seen.get().as_ref().map_or(0, |s| s.count);
                // The last one stands for all: its cursor is the newest.
                let count = count.saturating_add(signal.count);
                seen.insert(Some(Signal { count, ..signal }));
                None
            }
        }
    }

    /// What was counted, oldest first; what is known stays known.
    fn counted(&mut self) -> Vec<Signal> {
        sorted(self.0.values_mut().filter_map(Option::take).collect())
    }

    /// What was counted, oldest first; begins anew.
    fn rest(&mut self) -> Vec<Signal> {
        sorted(self.0.drain().filter_map(|(_, counted)| counted).collect())
    }
}

fn sorted(mut signals: Vec<Signal>) -> Vec<Signal> {
    signals.sort_by(|a, b| (a.at, &a.rule).cmp(&(b.at, &b.rule)));
    signals
}

#[cfg(test)]
mod tests {
    use slice_core::judge::Severity;
    use slice_core::signal::SignalKind;

    use super::*;

    fn signal(service: &str, second: i64) -> Signal {
        Signal {
            rule: "cache-hit".to_owned(),
            kind: SignalKind::CacheHit,
            severity: Severity::Warning,
            at: Timestamp::from_second(second).unwrap(),
            unit: Some("iotedge.service".to_owned()),
            namespace: None,
            service: Some(service.to_owned()),
            slice: None,
            pod: None,
            node: None,
            count: 1,
            message: String::new(),
            cursor: second.to_string(),
        }
    }

    #[test]
    fn the_first_is_told_at_once_and_the_rest_are_counted() {
        let mut repeated = Repeated::default();
        assert!(repeated.first(signal("web", 1)).is_some());
        assert!(repeated.first(signal("web", 2)).is_none());
        assert!(repeated.first(signal("db", 3)).is_some());
        assert!(repeated.first(signal("web", 4)).is_none());
        let rest = repeated.rest();
        assert_eq!(rest.len(), 1);
        assert_eq!((rest[0].count, rest[0].cursor.as_str()), (2, "4"));
        assert!(repeated.first(signal("web", 5)).is_some(), "a new interval");
        assert!(repeated.first(signal("web", 6)).is_none());
        assert_eq!(repeated.counted().len(), 1);
        assert!(repeated.first(signal("web", 7)).is_none(), "still known");
        assert_eq!(repeated.rest()[0].count, 1, "counted once");
    }

    #[test]
    fn a_storm_of_different_lines_stays_bounded() {
        let mut repeated = Repeated::default();
        let told = (0..5000).filter(|n| repeated.first(signal(&format!("s{n}"), *n)).is_some());
        assert_eq!(told.count(), MOST_KEYS + 1);
        let rest = repeated.rest();
        assert_eq!(rest.len(), 1);
        assert_eq!(u64::from(rest[0].count), 5000 - (MOST_KEYS as u64 + 1));
    }

    #[test]
    fn units_are_named_in_full() {
        let expected: Vec<Match> = [
            "k3s.service",
            "snap.microk8s.daemon-kubelite.service",
            "a.scope",
        ]
        .iter()
        .map(|unit| Match::new("_SYSTEMD_UNIT", unit).unwrap())
        .collect();
        let named = unit_matches(["k3s", "snap.microk8s.daemon-kubelite", "a.scope"]).unwrap();
        assert_eq!(named, expected);
    }
}
