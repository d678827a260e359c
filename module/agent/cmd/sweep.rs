//! `slice-healer sweep`: after a deployment, heals stale slices that are older than it.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use slice_core::heal::gate::HoldReason;
use slice_core::judge::{Finding, RemedyAction};
use slice_core::model::ServiceKey;

use super::heal::{confirmed, ended, would};
use super::way::Way;
use crate::client;
use crate::serve::ControlReply;
use crate::settings::{Loaded, Span};

/// How long a canary that is being asked is waited for.
const CANARY: Duration = Duration::from_secs(15);

/// After a CI/CD deployment: heals the stale slices whose creationTimestamp is older than that,
/// through the same gate as `run`. A right slice is never touched, whatever its age. Exit code: 0
/// nothing is left to do, 1 something was not healed, held back, or `--dry-run` would act, 2 error.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// How old a slice must be: PT5M, 5m, 30s.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    older_than: Duration,
    /// Only this namespace.
    #[arg(short, long)]
    namespace: Option<String>,
    /// Only this Service.
    #[arg(short, long)]
    service: Option<String>,
    /// Say what would be done and why; write nothing.
    #[arg(long)]
    dry_run: bool,
    /// Do not ask before writing.
    #[arg(long)]
    yes: bool,
}

fn duration(text: &str) -> Result<Duration, String> {
    text.parse::<Span>()
        .map(|span| span.0)
        .map_err(|e| e.to_string())
}

/// Runs the command.
///
/// # Errors
/// The cluster or the running module cannot be reached.
pub async fn run(args: Args, loaded: Loaded) -> anyhow::Result<ExitCode> {
    let client = client::connect(&crate::app::access(&loaded.settings)).await?;
    let mut way = Way::find(loaded).await?;
    let findings = way
        .findings(args.namespace.clone(), args.service.clone())
        .await?;
    let oldest = Timestamp::now()
        - SignedDuration::try_from(args.older_than).context("--older-than is too long")?;
    let stale = older(&client, findings, oldest).await?;
    if stale.is_empty() {
        println!("nothing to do: no stale slice is older than {oldest}");
        return Ok(ExitCode::SUCCESS);
    }
    for service in stale.keys() {
        match way.heal(service, None, true).await? {
            ControlReply::WouldAct {
                action,
                detail,
                writes,
            } => would(service, action, &detail, &writes),
            other => {
                ended(service, other)?;
            }
        }
    }
    if args.dry_run {
        return Ok(ExitCode::FAILURE);
    }
    if !args.yes && !confirmed()? {
        anyhow::bail!("not confirmed; nothing was written");
    }
    let mut all = ExitCode::SUCCESS;
    for service in stale.keys() {
        // One after the other: the module heals one Service at a time, and says busy meanwhile.
        let begun = Instant::now();
        let mut reply = way.heal(service, None, false).await?;
        for _ in 0..60 {
            // With much stale at once the canary is asked first, and answers within seconds.
            let asked = matches!(
                &reply,
                ControlReply::Held {
                    reason: HoldReason::CanaryFailed,
                    ..
                } if begun.elapsed() < CANARY
            );
            if reply != ControlReply::Busy && !asked {
                break;
            }
            tokio::time::sleep(Duration::from_secs(2)).await;
            reply = way.heal(service, None, false).await?;
        }
        if ended(service, reply)? != ExitCode::SUCCESS {
            all = ExitCode::FAILURE;
        }
    }
    Ok(all)
}

/// The first finding of each Service that can be healed and is in a slice older than `oldest`.
async fn older(
    client: &kube::Client,
    findings: Vec<Finding>,
    oldest: Timestamp,
) -> anyhow::Result<BTreeMap<ServiceKey, Finding>> {
    let mut stale = BTreeMap::new();
    for finding in findings {
        let (Some(key), Some(slice)) = (finding.service_key(), finding.slice.clone()) else {
            continue;
        };
        if finding.remedy.action == RemedyAction::None || stale.contains_key(&key) {
            continue;
        }
        let api: Api<EndpointSlice> = Api::namespaced(client.clone(), &key.namespace);
        let found = api
            .get_metadata_opt(&slice)
            .await
            .with_context(|| format!("EndpointSlice {}/{slice} cannot be read", key.namespace))?;
        let created = found
            .and_then(|s| s.metadata.creation_timestamp)
            .map(|t| t.0);
        if created.is_some_and(|at| at < oldest) {
            stale.insert(key, finding);
        }
    }
    Ok(stale)
}
