//! `inspect`: one look at a cluster, or at a dump of one, without writing anything.

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use jiff::Timestamp;
use slice_core::heal::clues::lease_overdue;
use slice_core::judge::{ControllerSign, Finding, JudgeContext, judge_world};
use slice_core::model::{ServerVersion, World};

use super::findings::Look;
use super::{live, table};
use crate::load::{Dump, Source, load};
use crate::settings::Loaded;

/// What `inspect` is told.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Look only at this namespace (repeatable; all by default)
    #[arg(short, long = "namespace", value_name = "NS")]
    pub namespaces: Vec<String>,
    /// Tell only about this Service (repeatable): a name, or namespace/name
    #[arg(short, long = "service", value_name = "SERVICE")]
    pub services: Vec<String>,
    /// Judge these objects and contact nothing: a file in any form kubectl prints, or - for stdin
    /// (repeatable)
    #[arg(short, long = "file", value_name = "FILE")]
    pub files: Vec<String>,
    /// The API server's version, where the objects do not tell it, such as v1.36.2
    #[arg(long, value_name = "V", value_parser = server_version)]
    pub server_version: Option<ServerVersion>,
    /// Judge as of this moment (RFC 3339), or of the newest past moment that the objects mention
    #[arg(long, value_name = "T|newest", value_parser = at, requires = "files")]
    pub at: Option<At>,
    /// How to print
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub output: Format,
}

/// The moment to judge as of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// This one.
    Moment(Timestamp),
    /// The newest that the objects mention.
    Newest,
}

/// How to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For a person.
    Table,
    /// For a program.
    Json,
    /// For a program, or a patient person.
    Yaml,
}

/// What a look is taken at, however it was gathered.
#[derive(Debug)]
pub struct Gathered {
    /// The objects.
    pub world: World,
    /// What else the judge is told.
    pub context: JudgeContext,
    /// What could not be gathered.
    pub notes: Vec<String>,
}

/// Looks and prints; 0 for clean, 1 for a finding of severity warning or critical. An error is
/// exit code 2: could not look. The settings are only needed to reach a cluster.
///
/// # Errors
/// What could not be read or gathered, or a Service that does not exist.
pub async fn run(
    args: &Args,
    settings: impl FnOnce() -> anyhow::Result<Loaded>,
) -> anyhow::Result<ExitCode> {
    let gathered = if args.files.is_empty() {
        live::gather(args, &settings()?).await?
    } else {
        offline(args)?
    };
    let look = look(args, gathered)?;
    print(args.output, &look)?;
    for note in &look.notes {
        // Best effort: a closed stderr must not change the result.
        let _ = writeln!(std::io::stderr(), "note: {note}");
    }
    Ok(if look.summary.is_clean() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    })
}

/// Gathers from files; contacts nothing.
///
/// # Errors
/// What cannot be read.
pub fn offline(args: &Args) -> anyhow::Result<Gathered> {
    let sources: Vec<Source> = args.files.iter().map(|f| Source::new(f)).collect();
    let wall = Timestamp::now();
    let dump = load(&sources, wall)?;
    let now = match args.at {
        None => wall,
        Some(At::Moment(at)) => at,
        Some(At::Newest) => dump
            .newest
            .context("the objects mention no past moment: give one with --at")?,
    };
    let mut context = JudgeContext::at(now);
    context.server = args.server_version.clone();
    context.scope.namespaces = args.namespaces.clone();
    context.controller = controller_sign_of(&dump, args.at.map(|_| now));
    Ok(Gathered {
        world: dump.world,
        context,
        notes: dump.notes,
    })
}

/// Judges what was gathered and keeps what was asked for.
///
/// # Errors
/// A Service that was named and does not exist.
pub fn look(args: &Args, gathered: Gathered) -> anyhow::Result<Look> {
    let Gathered {
        world,
        context,
        notes,
    } = gathered;
    for wanted in &args.services {
        let exists = world.services().any(|key| {
            (*key.name == **wanted || key.to_string() == *wanted)
                && (args.namespaces.is_empty()
                    || args.namespaces.iter().any(|n| *n == *key.namespace))
        });
        if !exists {
            bail!("there is no Service {wanted} in what was looked at: check the name and -n");
        }
    }
    let mut findings = judge_world(&world, &context);
    findings.retain(|f| is_wanted(&args.services, f));
    Ok(Look::new(
        context.now,
        context.server.as_ref(),
        world.counts(),
        findings,
        notes,
    ))
}

fn is_wanted(services: &[String], finding: &Finding) -> bool {
    services.is_empty()
        || finding.service_key().is_none_or(|key| {
            services
                .iter()
                .any(|s| *s == *key.name || *s == key.to_string())
        })
}

/// What the lease of kube-controller-manager says, measured against the moment of judging where it
/// was given, else against the newest moment in the dump: a dump that has lain for an hour says
/// nothing about a controller that was well when it was made.
fn controller_sign_of(dump: &Dump, at: Option<Timestamp>) -> ControllerSign {
    match (dump.controller_lease, at.or(dump.newest)) {
        (Some((renewed, duration)), Some(now)) => controller_sign(renewed, duration, now),
        _ => ControllerSign::Unknown,
    }
}

/// What a Lease says that was last renewed then, for so many seconds. One that is renewed says nothing:
/// the slice controller may stand still all the same.
pub(super) fn controller_sign(renewed: Timestamp, seconds: i64, now: Timestamp) -> ControllerSign {
    match lease_overdue(renewed, seconds, now) {
        Some(age) => ControllerSign::Down(format!(
            "kube-controller-manager has not renewed its lease for {age} seconds"
        )),
        None => ControllerSign::Unknown,
    }
}

fn print(format: Format, look: &Look) -> anyhow::Result<()> {
    let stdout = std::io::stdout();
    let text = match format {
        Format::Table => {
            let colour = stdout.is_terminal() && std::env::var_os("NO_COLOR").is_none();
            table::render(look, colour)
        }
        Format::Json => serde_json::to_string_pretty(look)? + "\n",
        Format::Yaml => serde_saphyr::to_string(look)?,
    };
    let mut out = stdout.lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    match written {
        // Whoever reads has had enough; the exit code still says what was found.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => written.context("cannot write the result to stdout"),
    }
}

fn server_version(text: &str) -> Result<ServerVersion, String> {
    ServerVersion::parse(text).ok_or_else(|| "not a version such as v1.36.2".into())
}

fn at(text: &str) -> Result<At, String> {
    if text == "newest" {
        return Ok(At::Newest);
    }
    text.parse()
        .map(At::Moment)
        .map_err(|e| format!("neither `newest` nor a moment such as 2026-11-30T10:00:00Z: {e}"))
}
