//! `signals`: which journal entries match which rule, of this host's journal, of files, or of what
//! journalctl prints. Reads only; changes no position of the running module.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use jiff::{SignedDuration, Timestamp, Zoned};
use slice_core::signal::{Line, Signal};
use slice_journal::{Fields, Follower, Start, State};

use super::output::Form;
use crate::sense::journal::{FIELDS, POLLING};
use crate::sense::rules::{self, Rules};
use crate::sense::stream::{Record, Records};
use crate::settings::Loaded;

/// How long a damaged file is tried again before the rest counts as all there is.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often a followed journal looks whether it should end.
const BREATH: Duration = Duration::from_millis(200);

/// Which journal entries match which rule. Without a source: the journal and units of the settings,
/// as `run` follows them. With one: its entries of those units, and entries of no unit. Exit code: 0
/// none matches, 1 some do, 2 error.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// A folder of journal files, such as /var/log/journal
    #[arg(long, value_name = "DIR")]
    pub journal: Vec<PathBuf>,
    /// A journal file
    #[arg(long, value_name = "FILE")]
    pub file: Vec<PathBuf>,
    /// What `journalctl -o export` or `-o json` prints
    #[arg(long, conflicts_with_all = ["journal", "file"])]
    pub stdin: bool,
    /// Only entries since then: 2026-12-01T10:00:00Z, "2026-12-01 10:00" in local time, or how long
    /// ago (15m, "2 hours ago")
    #[arg(long, value_name = "TIME", value_parser = since)]
    pub since: Option<Timestamp>,
    /// A file of rules instead of those of the settings
    #[arg(long, value_name = "FILE")]
    pub rules: Option<PathBuf>,
    /// Go on as entries are written
    #[arg(long)]
    pub follow: bool,
    /// Output form; JSON is one object a line
    #[arg(short = 'o', long, value_enum, default_value_t)]
    pub output: Form,
}

/// Prints the signals.
///
/// # Errors
/// The rules or the source cannot be read. Exit code 2.
pub async fn run(args: Args, loaded: Loaded) -> Result<ExitCode> {
    let module = std::env::var("IOTEDGE_MODULEID").unwrap_or_else(|_| "slice-healer".to_owned());
    let rules = match &args.rules {
        Some(path) => Rules::of_file(path, &module)?,
        None => Rules::of_settings(&loaded.settings.journal, &module),
    };
    for bad in &rules.bad {
        eprintln!("slice-healer: not in force: {bad}");
    }
    if rules.set.ids().next().is_none() {
        bail!("no rule is in force");
    }
    let stop = Arc::new(AtomicBool::new(false));
    if args.follow && !args.stdin {
        // The usual end of it: what was found still decides the exit code.
        let stopped = Arc::clone(&stop);
        tokio::spawn(async move {
            if tokio::signal::ctrl_c().await.is_ok() {
                stopped.store(true, Ordering::Relaxed);
            }
        });
    }
    // Journal files are read with plain system calls.
    tokio::task::spawn_blocking(move || look(&args, &loaded, &rules, &stop))
        .await
        .context("the reader ended early")?
}

fn look(args: &Args, loaded: &Loaded, rules: &Rules, stop: &AtomicBool) -> Result<ExitCode> {
    let mut out = Out::new(args.output);
    let looked = if args.stdin {
        of_stdin(args, loaded, rules, &mut out)
    } else {
        of_files(args, loaded, rules, stop, &mut out)
    };
    match looked {
        // Whoever reads us (`head`) has seen enough.
        Err(error) if is_closed_pipe(&error) => {}
        looked => looked?,
    }
    Ok(ExitCode::from(u8::from(out.any)))
}

fn of_stdin(args: &Args, loaded: &Loaded, rules: &Rules, out: &mut Out) -> Result<()> {
    let origin = Origin::new(loaded, rules);
    let mut records = Records::new(std::io::stdin().lock());
    while let Some(record) = records.read().context("standard input")? {
        let at = time(record.realtime_usec().unwrap_or_default());
        if args.since.is_some_and(|since| at < since) || !origin.counts(|name| record.get(name)) {
            continue;
        }
        let fields: Vec<(&[u8], &[u8])> = fields(&record);
        let line = Line {
            fields: &fields,
            at,
        };
        let cursor = || {
            let cursor = record.get("__CURSOR").unwrap_or_default();
            String::from_utf8_lossy(cursor).into_owned()
        };
        out.put(&rules.set.signals(&line, cursor))?;
    }
    Ok(())
}

fn fields(record: &Record) -> Vec<(&[u8], &[u8])> {
    record
        .0
        .iter()
        .map(|(name, value)| (name.as_slice(), value.as_slice()))
        .collect()
}

fn of_files(
    args: &Args,
    loaded: &Loaded,
    rules: &Rules,
    stop: &AtomicBool,
    out: &mut Out,
) -> Result<()> {
    let mut follower = Follower::open(options(args, loaded, rules)?)?;
    if !args.follow {
        must_be_readable(&follower, args)?;
    }
    let given = !args.journal.is_empty() || !args.file.is_empty();
    let origin = Origin::new(loaded, rules);
    let mut retrying_since: Option<Instant> = None;
    let mut told = State::Following;
    let mut told_polling = false;
    while !stop.load(Ordering::Relaxed) {
        let wait = if args.follow { BREATH } else { Duration::ZERO };
        if let Some(entry) = follower.next(wait) {
            if !given || origin.counts(|name| entry.get(name)) {
                out.put(&rules::signals(&rules.set, &entry))?;
            }
            continue;
        }
        if args.follow {
            let status = follower.status();
            if status.state != told {
                eprintln!("slice-healer: {}", state_in_words(&follower));
                told = status.state;
            }
            if let Some(why) = status.polling_fallback.filter(|_| !told_polling) {
                eprintln!("slice-healer: {POLLING}: {why}");
                told_polling = true;
            }
            continue;
        }
        let since = *retrying_since.get_or_insert_with(Instant::now);
        if !follower.is_retrying() || since.elapsed() > PATIENCE {
            break;
        }
        std::thread::sleep(BREATH / 4);
    }
    warn_of_gaps(&follower);
    Ok(())
}

fn options(args: &Args, loaded: &Loaded, rules: &Rules) -> Result<slice_journal::Options> {
    let settings = &loaded.settings.journal;
    let given = !args.journal.is_empty() || !args.file.is_empty();
    let mut options = slice_journal::Options::directories(if given {
        args.journal.clone()
    } else {
        settings
            .directories
            .as_slice()
            .iter()
            .map(PathBuf::from)
            .collect()
    });
    options.files.clone_from(&args.file);
    if !given {
        let units = settings.units.as_slice();
        options.matches = rules.matches(units.iter().map(String::as_str))?;
    }
    let names = FIELDS.iter().map(|name| (*name).to_owned());
    options.fields = Fields::Only(names.chain(rules.fields()).collect());
    options.start = match args.since {
        Some(since) => Start::Since(u64::try_from(since.as_microsecond()).unwrap_or_default()),
        None if args.follow => Start::Tail,
        None => Start::Head,
    };
    options.inotify = args.follow;
    Ok(options)
}

fn must_be_readable(follower: &Follower, args: &Args) -> Result<()> {
    if let Some(missing) = args.journal.iter().find(|path| !path.is_dir()) {
        bail!("{} is no folder", missing.display());
    }
    match follower.status().state {
        State::Following => Ok(()),
        State::Waiting | State::Denied => bail!(state_in_words(follower)),
    }
}

fn state_in_words(follower: &Follower) -> String {
    let status = follower.status();
    match (status.state, &status.denied, &status.last_problem) {
        (State::Following, ..) => "the journal is there".to_owned(),
        (State::Denied, Some(path), _) => format!(
            "{} may not be read: be root, or in the group systemd-journal",
            path.display()
        ),
        (_, _, Some(problem)) => format!("there is no journal that can be read: {problem}"),
        _ => "there is no journal file".to_owned(),
    }
}

/// What was not seen must not look like silence.
fn warn_of_gaps(follower: &Follower) {
    let status = follower.status();
    if let Some(path) = &status.denied {
        eprintln!(
            "slice-healer: {} may not be read, what it holds is missing",
            path.display()
        );
    }
    let unseen = status.unsupported_files + status.corrupt_files;
    if unseen > 0 || status.corrupt_entries > 0 {
        eprintln!(
            "slice-healer: {unseen} files and {} entries could not be read: {}",
            status.corrupt_entries,
            status.last_problem.unwrap_or_default()
        );
    }
}

/// Whose entries count where a source is given: those of the units of settings and rules, and
/// entries of no unit.
struct Origin {
    units: Vec<Vec<u8>>,
    fields: Vec<(String, String)>,
}

impl Origin {
    fn new(loaded: &Loaded, rules: &Rules) -> Self {
        let settings = loaded.settings.journal.units.as_slice().iter();
        let of_rules = rules.set.specs().flat_map(|(_, spec)| &spec.units);
        let units = settings
            .chain(of_rules)
            .flat_map(|unit| [unit.clone(), format!("{unit}.service")])
            .map(String::into_bytes)
            .collect();
        let fields = rules
            .set
            .wanted_fields()
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        Self { units, fields }
    }

    fn counts<'a>(&self, get: impl Fn(&str) -> Option<&'a [u8]>) -> bool {
        let unit = get("_SYSTEMD_UNIT").or(get("UNIT"));
        let wanted = |unit: &[u8]| self.units.iter().any(|known| known == unit);
        unit.is_none_or(wanted)
            || self
                .fields
                .iter()
                .any(|(name, value)| get(name) == Some(value.as_bytes()))
    }
}

/// Where signals are printed.
struct Out {
    form: Form,
    any: bool,
    header: bool,
}

impl Out {
    fn new(form: Form) -> Self {
        Self {
            form,
            any: false,
            header: std::io::stdout().is_terminal(),
        }
    }

    fn put(&mut self, signals: &[Signal]) -> Result<()> {
        let mut out = std::io::stdout().lock();
        for signal in signals {
            self.any = true;
            match self.form {
                Form::Json => serde_json::to_writer(&mut out, signal)?,
                Form::Table => {
                    if std::mem::take(&mut self.header) {
                        writeln!(
                            out,
                            "{}",
                            ROW.map(|(name, width)| format!("{name:width$}")).join(" ")
                        )?;
                    }
                    write!(out, "{}", row(signal))?;
                }
            }
            out.write_all(b"\n")?;
        }
        if !signals.is_empty() {
            out.flush()?;
        }
        Ok(())
    }
}

const ROW: [(&str, usize); 6] = [
    ("TIME", 24),
    ("SEVERITY", 8),
    ("RULE", 20),
    ("UNIT", 20),
    ("ABOUT", 28),
    ("MESSAGE", 0),
];

fn row(signal: &Signal) -> String {
    let name = signal
        .service
        .as_ref()
        .or(signal.slice.as_ref())
        .or(signal.pod.as_ref())
        .or(signal.node.as_ref());
    let about = match (&signal.namespace, name) {
        (Some(namespace), Some(name)) => format!("{namespace}/{name}"),
        (None, Some(name)) => name.clone(),
        (Some(namespace), None) => format!("{namespace}/"),
        (None, None) => "-".to_owned(),
    };
    let cells = [
        format!("{:.3}", signal.at),
        signal.severity.to_string(),
        signal.rule.clone(),
        signal.unit.clone().unwrap_or_else(|| "-".to_owned()),
        about,
        signal.message.clone(),
    ];
    let cells = cells.iter().zip(ROW);
    let padded = cells.map(|(cell, (_, width))| format!("{cell:width$}"));
    padded.collect::<Vec<_>>().join(" ")
}

fn time(usec: u64) -> Timestamp {
    let usec = i64::try_from(usec).unwrap_or(i64::MAX);
    Timestamp::from_microsecond(usec).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// A time or a length of time ago.
fn since(text: &str) -> Result<Timestamp, String> {
    let text = text.trim();
    if let Ok(at) = text.parse::<Timestamp>() {
        return Ok(at);
    }
    let now = Zoned::now();
    if let Ok(civil) = text.parse::<jiff::civil::DateTime>() {
        let zoned = civil.to_zoned(now.time_zone().clone());
        return zoned.map(|at| at.timestamp()).map_err(|e| e.to_string());
    }
    if let Ok(length) = text.parse::<SignedDuration>() {
        let at = now.timestamp().checked_sub(length.abs());
        return at.map_err(|e| e.to_string());
    }
    let days = match text {
        "now" => return Ok(now.timestamp()),
        "today" => 0,
        "yesterday" => 1,
        _ => {
            return Err(
                "neither a time (2026-12-01T10:00:00Z) nor a length of time (15m)".to_owned(),
            );
        }
    };
    let day = now.checked_sub(jiff::Span::new().days(days));
    day.and_then(|day| day.start_of_day())
        .map(|at| at.timestamp())
        .map_err(|e| e.to_string())
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let io = cause
            .downcast_ref::<std::io::Error>()
            .map(std::io::Error::kind);
        let json = cause
            .downcast_ref::<serde_json::Error>()
            .and_then(|e| e.io_error_kind());
        io.or(json) == Some(std::io::ErrorKind::BrokenPipe)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_people_write_them() {
        let exact: Timestamp = "2026-12-01T10:00:00Z".parse().unwrap();
        assert_eq!(since("2026-12-01T10:00:00Z"), Ok(exact));
        assert_eq!(since("2026-12-01T12:00:00+02:00"), Ok(exact));
        let ago = |text: &str| {
            Timestamp::now()
                .duration_since(since(text).unwrap())
                .as_secs()
        };
        for text in ["15m", "PT15M", "15 minutes ago", "-15m"] {
            let seconds = ago(text);
            assert!((899..=901).contains(&seconds), "{text}: {seconds}");
        }
        assert!(ago("yesterday") >= ago("today"));
        assert!(since("2026-12-01 10:00").is_ok() && since("2026-12-01").is_ok());
        assert!(since("last tuesday").is_err());
    }
}
