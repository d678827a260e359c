//! `config`: the settings in force and where each came from, or their JSON schema.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;

use super::output::{Form, print, print_json};
use crate::serve::{ControlClient, ControlReply, ControlRequest};
use crate::settings::{self, Loaded, Row};

/// How long a running module may take to tell its settings.
const ANSWER: Duration = Duration::from_secs(5);

/// Arguments of `config`.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Print the JSON schema of a settings file instead
    #[arg(long)]
    pub schema: bool,
    /// Output form
    #[arg(short = 'o', long, value_enum, default_value_t)]
    pub output: Form,
}

/// Prints the settings; of the running module where one answers, since only it knows the twin's.
///
/// # Errors
/// The settings do not load: every mistake is in the error. Exit code 2.
pub async fn run(args: Args, load: impl FnOnce() -> Result<Loaded>) -> Result<ExitCode> {
    if args.schema {
        print_json(&settings::schema())?;
        return Ok(ExitCode::SUCCESS);
    }
    let loaded = load()?;
    let rows = match of_the_module(&loaded).await {
        Some(rows) => rows,
        None => loaded.rows(&loaded.settings),
    };
    match args.output {
        Form::Json => print_json(&rows)?,
        Form::Table => print(&table(&rows))?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn of_the_module(loaded: &Loaded) -> Option<Vec<Row>> {
    let client = ControlClient::connect(&loaded.settings.store.directory)
        .await
        .ok()
        .flatten()?;
    match client.ask(&ControlRequest::Settings, ANSWER, |_| {}).await {
        Ok(ControlReply::Settings { rows }) => Some(rows),
        _ => None,
    }
}

fn table(rows: &[Row]) -> String {
    let cells: Vec<(String, &str)> = rows
        .iter()
        .map(|row| (format!("{} = {}", row.key, row.value), row.origin.as_str()))
        .collect();
    let width = cells
        .iter()
        .map(|(left, _)| left.chars().count())
        .filter(|n| *n <= 60)
        .max()
        .unwrap_or(0);
    let mut out = String::new();
    for (left, origin) in cells {
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{left:width$}  # {origin}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_setting_is_one_line_with_its_origin() {
        let env = vec![("SLICE_HEALER__MODE".to_owned(), "heal".to_owned())];
        let loaded = Loaded::load(None, env).unwrap();
        let text = table(&loaded.rows(&loaded.settings));
        let mode = text
            .lines()
            .find(|line| line.starts_with("mode = "))
            .unwrap();
        assert!(
            mode.starts_with("mode = \"heal\"")
                && mode.ends_with("# environment SLICE_HEALER__MODE"),
            "{mode}"
        );
        let port = text
            .lines()
            .find(|line| line.starts_with("serve.port = "))
            .unwrap();
        assert!(
            port.starts_with("serve.port = 9600") && port.ends_with("# default"),
            "{port}"
        );
        assert!(text.lines().all(|line| line.contains("  # ")));
    }
}
