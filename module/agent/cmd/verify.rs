//! `slice-healer verify`: asks a Service many times which version answers.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use http::Uri;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::client;
use crate::settings::Loaded;

/// How long one request may take.
const REQUEST: Duration = Duration::from_secs(5);
/// How much of an answer is read.
const BODY: usize = 1024 * 1024;

/// Sends requests to a Service and counts the versions that answer, each over a connection of its
/// own so that each is routed anew. Exit code: 0 when all answer the expected version, 1 otherwise,
/// 2 error.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The Service's name.
    service: String,
    /// Its namespace; without one, the namespace of the kubeconfig's context.
    #[arg(short, long)]
    namespace: Option<String>,
    /// The version that must answer.
    #[arg(long, value_name = "V")]
    expect_version: String,
    /// Where to ask; without it the Service's cluster IP and first port. http only.
    #[arg(long)]
    url: Option<Uri>,
    /// How many requests.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    requests: u32,
    /// The header that names the version.
    #[arg(long, default_value = "x-model-version")]
    header: String,
    /// The field of a JSON answer that names it, where there is no such header.
    #[arg(long, default_value = "model_version")]
    field: String,
    /// Table or JSON.
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Format {
    /// For a person.
    Table,
    /// For a pipeline.
    Json,
}

/// Runs the command.
///
/// # Errors
/// The Service cannot be found, or the URL cannot be used.
pub async fn run(args: Args, loaded: Loaded) -> anyhow::Result<ExitCode> {
    let url = match &args.url {
        Some(url) => url.clone(),
        None => service_url(&args, &loaded).await?,
    };
    if url.scheme_str() != Some("http") {
        bail!("{url}: only http:// can be asked; for TLS give the URL of a plain listener");
    }
    let mut versions: BTreeMap<String, u32> = BTreeMap::new();
    let mut failures: BTreeMap<String, u32> = BTreeMap::new();
    for _ in 0..args.requests {
        match timeout(REQUEST, ask(&url, &args)).await {
            Ok(Ok(version)) => *versions.entry(version).or_default() += 1,
            Ok(Err(why)) => *failures.entry(format!("{why:#}")).or_default() += 1,
            Err(_) => {
                *failures
                    .entry(format!("no answer within {REQUEST:?}"))
                    .or_default() += 1
            }
        }
    }
    let right = versions
        .get(&args.expect_version)
        .copied()
        .unwrap_or_default();
    match args.output {
        Format::Json => println!(
            "{}",
            serde_json::json!({
                "url": url.to_string(), "requests": args.requests, "expected": args.expect_version,
                "versions": versions, "failures": failures,
            })
        ),
        Format::Table => {
            println!(
                "{url}, {} requests, expecting {}",
                args.requests, args.expect_version
            );
            for (version, count) in &versions {
                let mark = if *version == args.expect_version {
                    "ok   "
                } else {
                    "wrong"
                };
                println!("  {mark} {count:>6}  {version}");
            }
            for (why, count) in &failures {
                println!("  fail  {count:>6}  {why}");
            }
        }
    }
    Ok(if right == args.requests {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

async fn service_url(args: &Args, loaded: &Loaded) -> anyhow::Result<Uri> {
    let access = crate::app::access(&loaded.settings);
    let namespace = match &args.namespace {
        Some(namespace) => namespace.clone(),
        None => client::default_namespace(&access).await?,
    };
    let name = &args.service;
    let api: Api<Service> = Api::namespaced(client::connect(&access).await?, &namespace);
    let service = api
        .get(name)
        .await
        .with_context(|| format!("Service {namespace}/{name} cannot be read"))?;
    let spec = service.spec.unwrap_or_default();
    let ip = spec.cluster_ip.filter(|ip| !ip.is_empty() && ip != "None");
    let port = spec.ports.unwrap_or_default().first().map(|p| p.port);
    let (Some(ip), Some(port)) = (ip, port) else {
        bail!("Service {namespace}/{name} has no cluster IP or no port; give --url");
    };
    let host = if ip.contains(':') {
        format!("[{ip}]")
    } else {
        ip
    };
    Ok(format!("http://{host}:{port}/").parse()?)
}

async fn ask(url: &Uri, args: &Args) -> anyhow::Result<String> {
    let host = url.host().context("the URL has no host")?;
    let port = url.port_u16().unwrap_or(80);
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let stream = TcpStream::connect((bare, port))
        .await
        .context("no connection")?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let driver = tokio::spawn(connection);
    let path = url.path_and_query().map_or("/", |p| p.as_str());
    let request = http::Request::get(path)
        .header(http::header::HOST, format!("{host}:{port}"))
        .header(http::header::CONNECTION, "close")
        .body(Empty::<Bytes>::new())?;
    let response = sender.send_request(request).await.context("no answer")?;
    let status = response.status();
    let header = response
        .headers()
        .get(&args.header)
        .and_then(|v| v.to_str().ok())
        .map(str::to_owned);
    let body = Limited::new(response.into_body(), BODY).collect().await;
    driver.abort();
    if !status.is_success() {
        bail!("status {}", status.as_u16());
    }
    if let Some(version) = header {
        return Ok(version);
    }
    let body = body
        .map_err(|e| anyhow::anyhow!("the answer could not be read: {e}"))?
        .to_bytes();
    let json: Value = serde_json::from_slice(&body)
        .with_context(|| format!("no header {} and no JSON", args.header))?;
    match json.get(&args.field) {
        Some(Value::String(version)) => Ok(version.clone()),
        Some(other) => Ok(other.to_string()),
        None => bail!("no header {} and no field {}", args.header, args.field),
    }
}
