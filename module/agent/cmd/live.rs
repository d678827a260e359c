//! Gathers one look at a living cluster: lists each kind once, page by page. Watches nothing and
//! writes nothing.

use std::time::Duration;

use anyhow::{Context as _, anyhow};
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use kube::Client;
use kube::client::Body;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use slice_core::heal::clues::LeaseClue;
use slice_core::judge::{ControllerSign, JudgeContext};
use slice_core::model::{
    Endpoints, Namespace, Node, Object, Pod, ServerVersion, Service, Slice, World,
};
use tokio::time::timeout;

use super::inspect::{Args, Gathered, controller_sign};
use crate::client::objects::{Slim, Typed, collection};
use crate::client::{self, CONTROLLER_LEASE};
use crate::settings::Loaded;

/// Objects a page.
const PAGE: usize = 500;
/// How long one page may take.
const DEADLINE: Duration = Duration::from_secs(30);

#[derive(Deserialize)]
struct Page<T: Slim> {
    #[serde(default)]
    metadata: PageMeta,
    #[serde(bound(deserialize = "Typed<T>: Deserialize<'de>"))]
    items: Vec<Typed<T>>,
}

#[derive(Default, Deserialize)]
struct PageMeta {
    #[serde(rename = "continue")]
    next: Option<String>,
}

/// Lists what `inspect` looks at, in the namespaces that it was given or in all.
///
/// # Errors
/// The cluster cannot be reached, or refuses to list Services, slices, pods or nodes.
pub(super) async fn gather(args: &Args, loaded: &Loaded) -> anyhow::Result<Gathered> {
    let client = client::connect(&crate::app::access(&loaded.settings))
        .await
        .context("no cluster to look at; give a kubeconfig, or objects with -f")?;
    let server = match &args.server_version {
        Some(version) => Some(version.clone()),
        None => {
            let info = timeout(DEADLINE, client.apiserver_version())
                .await
                .map_err(|_| anyhow!("the API server did not say its version in {DEADLINE:?}"))?
                .map_err(|e| anyhow!("the API server does not answer: {}", client::explain(&e)))?;
            ServerVersion::parse(&info.git_version)
        }
    };
    let mut gathered = Gathered {
        world: World::default(),
        context: JudgeContext::at(Timestamp::now()),
        notes: Vec::new(),
    };
    let spaces = &args.namespaces;
    need::<Service>(&client, spaces, &mut gathered).await?;
    need::<Slice>(&client, spaces, &mut gathered).await?;
    need::<Pod>(&client, spaces, &mut gathered).await?;
    need::<Node>(&client, spaces, &mut gathered).await?;
    may::<Endpoints>(&client, spaces, &mut gathered).await;
    may::<Namespace>(&client, spaces, &mut gathered).await;
    // Slices may have been written while the pods were listed: judged as of after the last list.
    gathered.context = JudgeContext::at(Timestamp::now());
    gathered.context.server = server;
    match lease(&client).await {
        Ok(sign) => gathered.context.controller = sign,
        Err(why) => gathered
            .notes
            .push(format!("the controller's Lease is not looked at: {why:#}")),
    }
    gathered.context.scope.namespaces.clone_from(spaces);
    Ok(gathered)
}

/// What the Lease of kube-controller-manager says, by the API server's own clock. k3s has none.
async fn lease(client: &Client) -> anyhow::Result<ControllerSign> {
    let request = http::Request::get(CONTROLLER_LEASE).body(Body::empty())?;
    let answer = timeout(DEADLINE, client.send(request))
        .await
        .map_err(|_| anyhow!("no answer in {DEADLINE:?}"))?
        .map_err(|e| anyhow!(client::explain(&e)))?;
    let status = answer.status();
    if status == http::StatusCode::NOT_FOUND {
        return Ok(ControllerSign::Unknown);
    }
    anyhow::ensure!(status.is_success(), "the API server answers {status}");
    let date = answer.headers().get(http::header::DATE);
    let now = date.and_then(|d| client::http_date(d.to_str().ok()?));
    let body = answer.into_body().collect().await?.to_bytes();
    let lease = LeaseClue::read(&serde_json::from_slice(&body)?);
    Ok(match (lease.renewed, now) {
        (Some(renewed), Some(now)) => controller_sign(renewed, lease.seconds, now),
        _ => ControllerSign::Unknown,
    })
}

async fn need<T: Slim>(
    client: &Client,
    spaces: &[String],
    into: &mut Gathered,
) -> anyhow::Result<()> {
    let listed = list::<T>(client, spaces)
        .await
        .with_context(|| format!("cannot list {}", T::PLURAL))?;
    keep::<T>(listed, into);
    Ok(())
}

async fn may<T: Slim>(client: &Client, spaces: &[String], into: &mut Gathered) {
    match list::<T>(client, spaces).await {
        Ok(listed) => keep::<T>(listed, into),
        Err(error) => into
            .notes
            .push(format!("{} are not looked at: {error:#}", T::PLURAL)),
    }
}

fn keep<T: Slim>(listed: Vec<Typed<T>>, into: &mut Gathered) {
    let mut objects: Vec<Object> = Vec::with_capacity(listed.len());
    for typed in listed {
        match typed.object {
            Ok(object) => objects.push(object.into()),
            Err(ref why) => into.notes.push(format!(
                "{} cannot be read and is not judged: {why}",
                typed.reference()
            )),
        }
    }
    into.world.reset(T::KIND, objects);
}

async fn list<T: Slim>(client: &Client, spaces: &[String]) -> anyhow::Result<Vec<Typed<T>>> {
    if spaces.is_empty() || !T::KIND.is_namespaced() {
        return pages(client, &collection::<T>(None)).await;
    }
    let mut all = Vec::new();
    for space in spaces {
        all.append(&mut pages(client, &collection::<T>(Some(space))).await?);
    }
    Ok(all)
}

async fn pages<T: Slim>(client: &Client, path: &str) -> anyhow::Result<Vec<Typed<T>>> {
    let mut all = Vec::new();
    let mut next: Option<String> = None;
    loop {
        let token =
            next.map(|n| format!("&continue={}", utf8_percent_encode(&n, NON_ALPHANUMERIC)));
        let uri = format!("{path}?limit={PAGE}{}", token.unwrap_or_default());
        let request = http::Request::get(uri).body(Vec::new())?;
        let page: Page<T> = timeout(DEADLINE, client.request(request))
            .await
            .map_err(|_| anyhow!("no answer in {DEADLINE:?}"))?
            .map_err(|e| anyhow!(client::explain(&e)))?;
        all.extend(page.items);
        next = page.metadata.next.filter(|n| !n.is_empty());
        if next.is_none() {
            return Ok(all);
        }
    }
}
