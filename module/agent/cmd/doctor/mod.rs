//! `doctor`: checks what `run` needs and what makes staleness likely, and says what to do. One file a
//! group of checks. Looks only; what it makes (a probe file, a handshake) it takes away again.

mod certificates;
mod cluster;
mod control_plane;
mod host;
mod hub;
mod journal;
mod render;
mod workloads;

use std::future::Future;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::Timestamp;
use kube::Client;
use serde::Serialize;

use super::output::{Form, print, print_json};
use crate::client::{self, Access};
use crate::settings::{Loaded, Settings};

/// How long one group of checks may take.
const GROUP: Duration = Duration::from_secs(20);

/// Arguments of `doctor`.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Output form
    #[arg(short = 'o', long, value_enum, default_value_t)]
    pub output: Form,
}

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// As it should be.
    Ok,
    /// It works, and may not for long or not for all.
    Warn,
    /// It does not work.
    Fail,
    /// It could not be looked at, or is not used here.
    Skipped,
}

/// One line of the result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Which check; a contract for scripts.
    pub id: &'static str,
    /// How it ended.
    pub status: Status,
    /// What was seen.
    pub message: String,
    /// What to do; empty where there is nothing to do.
    pub fix: String,
}

impl Check {
    fn new(
        id: &'static str,
        status: Status,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self {
            id,
            status,
            message: message.into(),
            fix: fix.into(),
        }
    }

    fn ok(id: &'static str, message: impl Into<String>) -> Self {
        Self::new(id, Status::Ok, message, "")
    }

    fn warn(id: &'static str, message: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::new(id, Status::Warn, message, fix)
    }

    fn fail(id: &'static str, message: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::new(id, Status::Fail, message, fix)
    }

    fn skipped(id: &'static str, message: impl Into<String>) -> Self {
        Self::new(id, Status::Skipped, message, "")
    }
}

/// What the checks look at.
pub(super) struct Look {
    settings: Settings,
    /// The API, or why there is no way to it.
    client: Result<Client, String>,
    access: Access,
    env: Vec<(String, String)>,
    in_container: bool,
    now: Timestamp,
}

impl Look {
    async fn new(settings: Settings, env: Vec<(String, String)>) -> Self {
        let access = Access::from(&settings.cluster);
        let client = match tokio::time::timeout(GROUP, client::connect(&access)).await {
            Ok(result) => result.map_err(|error| error.to_string()),
            Err(_) => Err("the kubeconfig's helper did not answer".to_owned()),
        };
        let in_container =
            Path::new("/.dockerenv").exists() || Path::new("/run/.containerenv").exists();
        Self {
            settings,
            client,
            access,
            env,
            in_container,
            now: Timestamp::now(),
        }
    }

    fn var(&self, name: &str) -> Option<&str> {
        let found = self.env.iter().find(|(key, _)| key == name);
        found
            .map(|(_, value)| value.as_str())
            .filter(|value| !value.is_empty())
    }
}

type Group = for<'a> fn(&'a Look) -> BoxFuture<'a, Vec<Check>>;

/// Every group, in the order in which a person would fix things.
const GROUPS: [(&str, Group); 7] = [
    ("host", |look| host::checks(look).boxed()),
    ("journal", |look| journal::checks(look).boxed()),
    ("hub", |look| hub::checks(look).boxed()),
    ("cluster", |look| cluster::checks(look).boxed()),
    ("certificates", |look| certificates::checks(look).boxed()),
    ("control-plane", |look| control_plane::checks(look).boxed()),
    ("workloads", |look| workloads::checks(look).boxed()),
];

/// Runs every check and prints the result. Exit code 1 when one failed.
///
/// # Errors
/// Stdout is closed.
pub async fn run(args: Args, loaded: Loaded) -> Result<ExitCode> {
    let look = Look::new(loaded.settings, std::env::vars().collect()).await;
    let checks = all(&look).await;
    match args.output {
        Form::Json => print_json(&render::document(&checks))?,
        Form::Table => print(&render::table(&checks))?,
    }
    let failed = checks.iter().any(|check| check.status == Status::Fail);
    Ok(if failed {
        ExitCode::from(1)
    } else {
        ExitCode::SUCCESS
    })
}

async fn all(look: &Look) -> Vec<Check> {
    let groups = GROUPS.map(|(name, group)| within(name, GROUP, group(look)));
    futures::future::join_all(groups)
        .await
        .into_iter()
        .flatten()
        .collect()
}

async fn within(
    name: &'static str,
    deadline: Duration,
    checks: impl Future<Output = Vec<Check>>,
) -> Vec<Check> {
    match tokio::time::timeout(deadline, checks).await {
        Ok(checks) => checks,
        Err(_) => vec![Check::fail(
            name,
            format!("these checks did not end within {} s", deadline.as_secs()),
            "something hangs: look at the network, the disk and the sockets",
        )],
    }
}

#[cfg(test)]
mod tests;
