//! `slice-healer timeline`: what happened, in order.

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::bail;
use serde_json::Value;

use super::module::ask;
use super::output::{Form, print, print_json};
use crate::serve::ControlRequest;
use crate::settings::Loaded;

/// Prints signals, findings, decisions, actions and outcomes in the order in which they happened. Exit
/// code: 0, 2 error.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Only this namespace.
    #[arg(short, long)]
    namespace: Option<String>,
    /// Only what speaks of this pod.
    #[arg(long)]
    pod: Option<String>,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t)]
    output: Form,
}

/// Runs the command.
///
/// # Errors
/// No module runs, or its store fails.
pub async fn run(args: Args, loaded: Loaded) -> anyhow::Result<ExitCode> {
    let request = ControlRequest::Timeline {
        namespace: args.namespace,
        pod: args.pod,
    };
    let Some(document) = ask(&loaded, &request).await? else {
        bail!("the running module does not know timelines");
    };
    match args.output {
        Form::Json => print_json(&document)?,
        Form::Table => print(&table(&document))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn table(document: &Value) -> String {
    let mut out = String::new();
    for entry in document["timeline"].as_array().into_iter().flatten() {
        let text = |key: &str| entry[key].as_str().unwrap_or("-");
        // Writing to a String cannot fail.
        let _ = writeln!(
            out,
            "{}  {:<9}  {}/{}  {}",
            text("at"),
            text("type"),
            text("namespace"),
            text("service"),
            text("message")
        );
    }
    if out.is_empty() {
        out.push_str("nothing has happened");
    }
    out
}
