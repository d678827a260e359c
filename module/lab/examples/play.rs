//! Plays one scenario against a product in a process of its own:
//! `cargo run -p slice-lab --example play -- SCENARIO COMMAND [ARGUMENT]...`
//! The command gets the world as environment variables; its output goes to stderr.

use std::io::{self, IsTerminal as _, Write as _};
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use slice_lab::scenario::{World, WorldOptions, find, play, view};
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(name), Some(command)) = (arguments.next(), arguments.next()) else {
        return Err("usage: play SCENARIO COMMAND [ARGUMENT]...".into());
    };
    let arguments: Vec<String> = arguments.collect();
    let world = World::start(WorldOptions::default()).await?;
    let seen = CancellationToken::new();
    let style = view::Style {
        width: 160,
        height: 45,
        colour: io::stderr().is_terminal(),
    };
    let viewer = {
        let (world, seen) = (world.clone(), seen.clone());
        let scenario = find(&name);
        tokio::spawn(async move {
            let mut out = io::stderr();
            match scenario {
                Some(scenario) if style.colour => {
                    view::live(&world, scenario, &mut out, style, seen).await
                }
                _ => view::lines(&world, &mut out, style, seen).await,
            }
        })
    };
    let report = play(&world, &name, |connections, stop| async move {
        let quiet = style.colour;
        let mut child = tokio::process::Command::new(command)
            .args(arguments)
            .envs(connections.environment())
            .stdout(if quiet {
                Stdio::null()
            } else {
                io::stderr().into()
            })
            .kill_on_drop(true)
            .spawn()?;
        tokio::select! {
            ended = child.wait() => Err(io::Error::other(format!("{}", ended?))),
            () = stop.cancelled() => {
                // Asked in the way a container runtime asks.
                let pid = child.id().unwrap_or_default().to_string();
                let asked = tokio::process::Command::new("kill").args(["-TERM", &pid]).status();
                asked.await?;
                let ended = tokio::time::timeout(Duration::from_secs(10), child.wait()).await??;
                ended.success().then_some(()).ok_or_else(|| io::Error::other(format!("{ended}")))
            }
        }
    })
    .await?;
    seen.cancel();
    viewer.await??;
    writeln!(io::stdout(), "{:#}", report.json())?;
    Ok(if report.as_expected() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
