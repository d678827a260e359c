//! `slice-healer incidents`: what was stale, what was done about it, and how it ended.

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use serde_json::Value;
use slice_core::heal::story::IncidentRecord;

use super::module::ask;
use super::output::{Form, print, print_json};
use crate::serve::ControlRequest;
use crate::settings::Loaded;

/// Prints the latest incidents with their stories: signal, finding, decision, action, outcome, times.
/// Exit code: 0, 2 error.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// How many at most.
    #[arg(long, default_value_t = 20)]
    limit: usize,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t)]
    output: Form,
}

/// Runs the command.
///
/// # Errors
/// No module runs, or its store fails.
pub async fn run(args: Args, loaded: Loaded) -> anyhow::Result<ExitCode> {
    let request = ControlRequest::Incidents { limit: args.limit };
    let Some(document) = ask(&loaded, &request).await? else {
        bail!("the running module does not know incidents");
    };
    match args.output {
        Form::Json => print_json(&document)?,
        Form::Table => print(&table(&document)?)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn table(document: &Value) -> anyhow::Result<String> {
    let list = document["incidents"].clone();
    let incidents: Vec<IncidentRecord> =
        serde_json::from_value(list).context("the running module speaks another version")?;
    if incidents.is_empty() {
        return Ok("no incident is kept".to_owned());
    }
    let mut out = String::new();
    for incident in &incidents {
        let end = match (incident.outcome, incident.held) {
            (_, Some(held)) => format!("held back ({})", held.as_str()),
            (Some(outcome), None) => outcome.as_str().to_owned(),
            (None, None) => "under way".to_owned(),
        };
        // Writing to a String cannot fail.
        let _ = writeln!(
            out,
            "{} {} {}: {} {}, {end}, {:.1} s, action {}",
            incident.opened,
            incident.id,
            incident.service,
            incident.severity,
            incident.kind,
            incident.seconds,
            incident.action
        );
        for step in incident.story.entries() {
            let what = serde_json::to_value(step.what)?;
            let _ = writeln!(
                out,
                "    {}  {:<8}  {}",
                step.at,
                what.as_str().unwrap_or_default(),
                step.text
            );
        }
    }
    Ok(out)
}
