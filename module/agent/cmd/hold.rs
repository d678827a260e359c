//! `slice-healer hold`: the running module writes nothing for a while.

use std::process::ExitCode;

use anyhow::bail;

use super::module::ask;
use crate::serve::ControlRequest;
use crate::settings::Loaded;

/// Has the running module write nothing for a while: it goes on to watch, to judge and to tell. A hold
/// has a name, outlives a restart, and ends by itself. Exit code: 0 held, 2 error.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// What to call it; the same name again sets another end.
    name: String,
    /// How long.
    #[arg(long, default_value_t = 60)]
    minutes: u32,
}

/// Runs the command.
///
/// # Errors
/// No module runs, or it refuses.
pub async fn run(args: Args, loaded: Loaded) -> anyhow::Result<ExitCode> {
    let Args { name, minutes } = args;
    let request = ControlRequest::Hold {
        name: name.clone(),
        minutes,
    };
    let Some(held) = ask(&loaded, &request).await? else {
        bail!("the running module does not know holds");
    };
    println!(
        "hold {name:?} until {}",
        held["until"].as_str().unwrap_or("?")
    );
    if let Some(warning) = held["warning"].as_str() {
        eprintln!("warning: {warning}");
    }
    Ok(ExitCode::SUCCESS)
}
