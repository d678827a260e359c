//! The program: parses the command line, starts the runtime, prints what failed.

use std::process::ExitCode;

use clap::Parser;
use slice_healer::cli::Cli;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let failure = cli.failure();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        // An edge device has better things to do than to run one thread a core for this.
        .worker_threads(2)
        .enable_all()
        .build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(cli.run()),
        Err(error) => Err(anyhow::Error::from(error).context("no runtime could be started")),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            report(&error);
            ExitCode::from(failure)
        }
    }
}

/// One line for what failed, one more for each cause.
#[expect(clippy::print_stderr, reason = "the end of a command that failed")]
fn report(error: &anyhow::Error) {
    eprintln!("slice-healer: {error}");
    for cause in error.chain().skip(1) {
        eprintln!("  because: {cause}");
    }
}
