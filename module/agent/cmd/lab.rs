//! `slice-healer lab`: the whole loop on an embedded cluster, hub and journal, for watching. The only
//! place of the product that knows the lab.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail};
use slice_lab::scenario::view::{self, Style};
use slice_lab::scenario::{self, Connections, Report, Scenario, World, WorldOptions};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::app::{self, Boot, End};
use crate::observe::logs::{self, LogOptions, LogTo};
use crate::settings::Loaded;

/// Plays a story of staleness on an embedded cluster, hub and journal, and heals it: no cluster, hub,
/// journal, root or network is needed. Exit code: 0 when it ends as the scenario says, 1 otherwise.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Which story.
    #[arg(long, value_name = "NAME", default_value = "redeploy-stale-slice")]
    scenario: String,
    /// Name the stories and end.
    #[arg(long)]
    list: bool,
    /// End with the summary; without it, a terminal stays open for looking around.
    #[arg(long)]
    once: bool,
    /// Table for a person, JSON for a program (implies --once).
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
    /// Show what the module logs, on stderr.
    #[arg(long)]
    logs: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// For a person.
    Table,
    /// For a program.
    Json,
}

/// Runs the command.
///
/// # Errors
/// There is no such story, or the lab cannot be set up.
pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    if args.list {
        for scenario in scenario::list() {
            println!("{:<22} {}", scenario.name, scenario.summary);
        }
        return Ok(ExitCode::SUCCESS);
    }
    let Some(story) = scenario::find(&args.scenario) else {
        bail!(
            "there is no scenario {:?}; --list names them",
            args.scenario
        );
    };
    if args.logs {
        logs::init(&LogOptions {
            level: crate::settings::LogLevel::Info,
            to: LogTo::Stderr,
            journal_as: None,
        })?;
    }
    let world = World::start(WorldOptions::default()).await?;
    let json = args.output == Format::Json;
    let terminal = std::io::stdout().is_terminal();
    let seen = CancellationToken::new();
    let viewer = (!json).then(|| watch(&world, story, terminal, seen.clone()));
    let played = scenario::play(&world, story.name, product).await;
    if let Some(viewer) = viewer {
        if terminal && !args.once && played.is_ok() {
            invite(&world)?;
            tokio::signal::ctrl_c()
                .await
                .context("Ctrl-C cannot be caught")?;
        }
        seen.cancel();
        // A terminal that is gone is no failure of the story.
        let _ = viewer.await;
    }
    let report = played?;
    if json {
        println!("{}", serde_json::to_string_pretty(&report.json())?);
    } else {
        summary(&report)?;
    }
    Ok(if report.as_expected() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The module itself, exactly as `run` starts it, with the lab's places and shortened waits.
async fn product(connections: Connections, stop: CancellationToken) -> anyhow::Result<()> {
    let environment: BTreeMap<String, String> = connections.environment().into_iter().collect();
    let loaded = Loaded::load(None, environment.clone())?;
    let boot = Boot {
        loaded,
        vars: Arc::new(move |name| environment.get(name).cloned()),
        hub_timings: None,
        log: None,
        on_http: None,
    };
    match app::run(boot, stop).await? {
        End::Drained => Ok(()),
        End::WorkloadRefused => bail!("the workload socket refused for too long"),
    }
}

fn watch(
    world: &World,
    story: &'static Scenario,
    terminal: bool,
    stop: CancellationToken,
) -> JoinHandle<std::io::Result<()>> {
    let world = world.clone();
    tokio::spawn(async move {
        let mut out = std::io::stdout();
        if terminal {
            view::live(&world, story, &mut out, style(true), stop).await
        } else {
            view::lines(&world, &mut out, style(false), stop).await
        }
    })
}

fn style(terminal: bool) -> Style {
    let size = rustix::termios::tcgetwinsize(std::io::stdout())
        .ok()
        .filter(|s| s.ws_col > 0);
    Style {
        width: size.map_or(100, |s| usize::from(s.ws_col)),
        height: size.map_or(50, |s| usize::from(s.ws_row)),
        colour: terminal && std::env::var_os("NO_COLOR").is_none(),
    }
}

fn invite(world: &World) -> anyhow::Result<()> {
    let kubeconfig = world.connections()?.kubeconfig;
    let look = |text: String| world.timeline().add("look", text);
    look(format!("export KUBECONFIG={}", kubeconfig.display()));
    look("kubectl get endpointslices -A in another terminal; Ctrl-C ends".to_owned());
    Ok(())
}

fn summary(report: &Report) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    let seconds = |s: Option<f64>| s.map_or_else(|| "-".to_owned(), |s| format!("{s:.1} s"));
    writeln!(out)?;
    writeln!(out, "scenario   {}", report.scenario)?;
    writeln!(
        out,
        "outcome    {} (expected {})",
        report.outcome.as_str(),
        report.expected.as_str()
    )?;
    writeln!(
        out,
        "seconds    signal {}, finding {}, right again {}",
        seconds(report.seconds.signal),
        seconds(report.seconds.finding),
        seconds(report.seconds.healed)
    )?;
    writeln!(
        out,
        "requests   {} sent, {} wrong version, {} failed",
        report.requests.sent, report.requests.wrong, report.requests.failed
    )?;
    writeln!(
        out,
        "twin       health {}, {} heals succeeded; telemetry {} messages",
        report.twin["health"]["state"].as_str().unwrap_or("-"),
        report.twin["heals"]["succeeded"],
        report.telemetry
    )
}
