//! Sets up logging once per process and lets the level be changed while it runs.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use jiff::Timestamp;
use tracing::{Event, Subscriber, span};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::{LookupSpan, Registry};
use tracing_subscriber::reload;

use super::entry::{Entry, SpanFields};
use super::journal::Journal;
use super::stdout;
use crate::settings::LogLevel;

/// How the targets of our own crates begin; others are heard from `warn` on, whatever the level: what
/// they say below that is not checked for secrets by us.
const OWN: &str = "slice_";

/// Where the lines go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogTo {
    /// The module: edgeAgent reads its stdout.
    Stdout,
    /// The other commands: stdout is theirs.
    Stderr,
}

/// How to log.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// From which level on.
    pub level: LogLevel,
    /// Where the lines go.
    pub to: LogTo,
    /// The module id, to log to the host's journal as well where its socket is there.
    pub journal_as: Option<String>,
}

/// Logging could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// Something logs already.
    #[error("logging was set up before in this process")]
    Twice,
}

/// Changes logging while the process runs.
#[derive(Clone, Debug)]
pub struct LogHandle {
    filter: reload::Handle<Targets, Registry>,
    level: Arc<Mutex<LogLevel>>,
    journal: Option<Journal>,
}

impl LogHandle {
    /// The level in force.
    pub fn level(&self) -> LogLevel {
        *self
            .level
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Puts another level in force.
    pub fn set_level(&self, level: LogLevel) {
        *self
            .level
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner) = level;
        // Fails only when the subscriber is gone, and then nothing is logged any more.
        let _ = self.filter.reload(targets(level));
    }

    /// Whether entries go to the host's journal.
    pub fn to_journal(&self) -> bool {
        self.journal.is_some()
    }

    /// Entries that the host's journal did not get.
    pub fn lost(&self) -> u64 {
        self.journal.as_ref().map_or(0, Journal::lost)
    }
}

/// Ends logging in order when dropped.
#[derive(Debug)]
pub struct LogGuard(Option<(Journal, JoinHandle<()>)>);

impl Drop for LogGuard {
    fn drop(&mut self) {
        if let Some((journal, thread)) = self.0.take() {
            journal.close(thread);
        }
    }
}

/// Sets up logging for the whole process. A journal that is not there is no error.
///
/// # Errors
/// It was set up before.
pub fn init(options: &LogOptions) -> Result<(LogHandle, LogGuard), LogError> {
    let to = options.to;
    let write = move |line: &str| {
        // A closed pipe is no reason to stop healing.
        let _ = match to {
            LogTo::Stdout => std::io::stdout().lock().write_all(line.as_bytes()),
            LogTo::Stderr => std::io::stderr().lock().write_all(line.as_bytes()),
        };
    };
    let connected = options
        .journal_as
        .as_deref()
        .and_then(|id| Journal::connect(id).ok());
    let (journal, thread) = match connected {
        Some((journal, thread)) => (Some(journal), Some(thread)),
        None => (None, None),
    };
    let (subscriber, handle) = build(options.level, write, journal.clone());
    tracing::subscriber::set_global_default(subscriber).map_err(|_| LogError::Twice)?;
    Ok((handle, LogGuard(journal.zip(thread))))
}

fn build(
    level: LogLevel,
    write: impl Fn(&str) + Send + Sync + 'static,
    journal: Option<Journal>,
) -> (impl Subscriber + Send + Sync, LogHandle) {
    let (filter, handle) = reload::Layer::new(targets(level));
    let subscriber = Registry::default().with(filter).with(Output {
        write: Box::new(write),
        journal: journal.clone(),
    });
    let handle = LogHandle {
        filter: handle,
        level: Arc::new(Mutex::new(level)),
        journal,
    };
    (subscriber, handle)
}

fn targets(level: LogLevel) -> Targets {
    let level = match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    Targets::new()
        .with_default(level.min(LevelFilter::WARN))
        .with_target(OWN, level)
}

struct Output {
    write: Box<dyn Fn(&str) + Send + Sync>,
    journal: Option<Journal>,
}

impl<S> Layer<S> for Output
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_new_span(
        &self,
        attributes: &span::Attributes<'_>,
        id: &span::Id,
        context: Context<'_, S>,
    ) {
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(SpanFields::of(attributes));
        }
    }

    fn on_record(&self, id: &span::Id, values: &span::Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(fields) = span.extensions_mut().get_mut::<SpanFields>()
        {
            fields.add(values);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let entry = Entry::of(event, &context);
        (self.write)(&stdout::line(&entry, Timestamp::now()));
        if let Some(journal) = &self.journal {
            journal.send(entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("outer")]
    struct Outer(#[source] std::io::Error);

    #[test]
    fn lines_have_fields_of_spans_and_levels_change_while_running() {
        let lines = Arc::new(Mutex::new(Vec::<String>::new()));
        let sink = Arc::clone(&lines);
        let (subscriber, handle) = build(
            LogLevel::Info,
            move |line| sink.lock().unwrap().push(line.to_owned()),
            None,
        );
        tracing::subscriber::with_default(subscriber, || {
            let span = tracing::info_span!("task", task = "journal", unit = tracing::field::Empty);
            span.record("unit", "k3s");
            let _inside = span.enter();
            let error = Outer(std::io::Error::other("inner"));
            tracing::info!(error = &error as &dyn std::error::Error, n = 3, "read");
            tracing::debug!("not shown");
            tracing::info!(target: "kube_client", "not shown either");
            tracing::warn!(target: "kube_client", token = "SharedAccessKey=abc", "foreign");
            handle.set_level(LogLevel::Debug);
            tracing::debug!("shown now");
            handle.set_level(LogLevel::Error);
            tracing::warn!("not shown any more");
        });
        let lines = lines.lock().unwrap();
        let ends: Vec<&str> = lines
            .iter()
            .map(|line| line.split_once(" - ").unwrap().1)
            .collect();
        assert_eq!(
            ends,
            [
                "read task=journal unit=k3s error=\"outer: inner\" n=3\n",
                "foreign task=journal unit=k3s token=\"SharedAccessKey=…\"\n",
                "shown now task=journal unit=k3s\n",
            ]
        );
        assert_eq!(handle.level(), LogLevel::Error);
        assert_eq!((handle.lost(), handle.to_journal()), (0, false));
    }
}
