//! `slice-healer heal`: one heal by hand, through the running module where there is one.

use std::io::{BufRead, Write};
use std::process::ExitCode;

use anyhow::{Context, bail};
use slice_core::event::HealOutcome;
use slice_core::judge::RemedyAction;
use slice_core::model::ServiceKey;

use crate::client;
use crate::serve::ControlReply;
use crate::settings::Loaded;

use super::way::Way;

/// Heals one Service by hand, also in mode `observe`, through the same gate, ladder and verification
/// as `run`. Exit code: 0 healed or nothing to do, 1 not healed, held back, or `--dry-run` would act,
/// 2 error.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The Service's name.
    service: String,
    /// Its namespace; without one, the namespace of the kubeconfig's context.
    #[arg(short, long)]
    namespace: Option<String>,
    /// Which step.
    #[arg(long, value_enum, default_value_t = Step::Auto)]
    action: Step,
    /// Say what would be done and why; write nothing.
    #[arg(long)]
    dry_run: bool,
    /// Do not ask before writing.
    #[arg(long)]
    yes: bool,
}

/// A step that can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Step {
    /// The whole ladder.
    Auto,
    /// Only the refresh of the Service.
    RefreshService,
    /// Only the delete of the stale slice, with what brings it back.
    DeleteSlice,
}

impl Step {
    fn remedy(self) -> Option<RemedyAction> {
        match self {
            Self::Auto => None,
            Self::RefreshService => Some(RemedyAction::RefreshService),
            Self::DeleteSlice => Some(RemedyAction::DeleteSlice),
        }
    }
}

/// Runs the command.
///
/// # Errors
/// The cluster or the running module cannot be reached.
pub async fn run(args: Args, loaded: Loaded) -> anyhow::Result<ExitCode> {
    let namespace = match &args.namespace {
        Some(namespace) => namespace.clone(),
        None => client::default_namespace(&crate::app::access(&loaded.settings))
            .await
            .context("the kubeconfig's namespace cannot be read; give -n")?,
    };
    let service = ServiceKey::new(namespace, args.service.as_str());
    let mut way = Way::find(loaded).await?;
    match way.heal(&service, args.action.remedy(), true).await? {
        ControlReply::WouldAct {
            action,
            detail,
            writes,
        } => would(&service, action, &detail, &writes),
        other => return ended(&service, other),
    }
    if args.dry_run {
        return Ok(ExitCode::FAILURE);
    }
    if !args.yes && !confirmed()? {
        bail!("not confirmed; nothing was written");
    }
    let reply = way.heal(&service, args.action.remedy(), false).await?;
    ended(&service, reply)
}

pub(super) fn ended(service: &ServiceKey, reply: ControlReply) -> anyhow::Result<ExitCode> {
    Ok(match reply {
        ControlReply::NothingToDo => {
            println!("{service}: nothing to do, the slices say what they should");
            ExitCode::SUCCESS
        }
        ControlReply::Ended {
            outcome, message, ..
        } => {
            println!("{message}");
            if matches!(outcome, HealOutcome::Healed | HealOutcome::HealedByItself) {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            }
        }
        ControlReply::Held { reason, detail } => {
            println!("{service}: held back ({}): {detail}", reason.as_str());
            ExitCode::FAILURE
        }
        ControlReply::Busy => {
            println!("{service}: another heal is under way; try again when it has ended");
            ExitCode::FAILURE
        }
        ControlReply::Error { message } => bail!("{service}: {message}"),
        ControlReply::NotFound => bail!("there is no Service {service}; check the name and -n"),
        other => bail!("the running module answered {other:?}, which is no answer to a heal"),
    })
}

/// What would be done and why, then every write of it.
pub(super) fn would(service: &ServiceKey, action: RemedyAction, why: &str, writes: &[String]) {
    println!("{service}: would {}: {why}", in_words(action));
    for write in writes {
        println!("  {write}");
    }
}

pub(super) fn in_words(action: RemedyAction) -> &'static str {
    match action {
        RemedyAction::RefreshService => {
            "patch the annotation slice-healer.io/refresh of the Service"
        }
        RemedyAction::DeleteSlice => "delete the stale slice and refresh until a new one is there",
        RemedyAction::None => "do nothing",
    }
}

pub(super) fn confirmed() -> anyhow::Result<bool> {
    eprint!("Go on? [y/N] ");
    std::io::stderr().flush()?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    Ok(matches!(line.trim(), "y" | "Y" | "yes"))
}
