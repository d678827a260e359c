//! `slice-healer release`: ends a hold before its time.

use std::process::ExitCode;

use super::module::ask;
use crate::serve::ControlRequest;
use crate::settings::Loaded;

/// Ends a hold that was set by `hold` or the direct method. Exit code: 0 released, 1 there is no such
/// hold, 2 error.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Its name.
    name: String,
}

/// Runs the command.
///
/// # Errors
/// No module runs, or the hold is one of file or twin.
pub async fn run(args: Args, loaded: Loaded) -> anyhow::Result<ExitCode> {
    let request = ControlRequest::Release {
        name: args.name.clone(),
    };
    Ok(match ask(&loaded, &request).await? {
        Some(released) => {
            println!("hold {:?} released", args.name);
            if let Some(warning) = released["warning"].as_str() {
                eprintln!("warning: {warning}");
            }
            ExitCode::SUCCESS
        }
        None => {
            println!("there is no hold {:?}", args.name);
            ExitCode::FAILURE
        }
    })
}
