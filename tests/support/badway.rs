//! A way to the API server that can be made bad: a proxy that the module under test goes through.
//!
//! Reads always pass. Each write is shown to a rule, which may answer it instead of the server, or
//! hold it before or after the server has it, for as long as the test wants. Plain HTTP, as nobody
//! but the module under test gets to know the port.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use http::{Method, StatusCode, header};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

/// More than any object here.
const LARGEST: usize = 4 << 20;

/// A write on its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// `take-lease`, `refresh`, `canary`, `delete`, or the method and path of something else.
    pub name: String,
    /// The path without its query.
    pub path: String,
}

/// What becomes of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// The server answers.
    Pass,
    /// It never reaches the server, and is not answered while the test lasts.
    HoldBefore,
    /// The server does it, and its answer does not come while the test lasts.
    HoldAfter,
    /// Answered with this status and one second to wait; the server never hears of it.
    Refuse(StatusCode),
    /// Answered as if it had been done: the object as it is.
    Swallow,
}

type Rule = Box<dyn FnMut(&Step) -> Fate + Send>;

struct Way {
    client: Client,
    rule: Mutex<Rule>,
    held: mpsc::UnboundedSender<Step>,
    steps: Mutex<Vec<(Step, Fate)>>,
}

/// The proxy. It ends when dropped.
pub struct BadWay {
    way: Arc<Way>,
    held: mpsc::UnboundedReceiver<Step>,
    serving: AbortHandle,
    folder: tempfile::TempDir,
}

impl BadWay {
    /// A way for whoever `kubeconfig` is of; everything passes at first.
    ///
    /// # Errors
    /// When no port can be bound.
    pub async fn open(kubeconfig: &PathBuf) -> Result<Self> {
        let file = Kubeconfig::read_from(kubeconfig)?;
        let mut changed = serde_json::to_value(&file)?;
        let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
        let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await?;
        let server = format!("http://{}", listener.local_addr()?);
        changed["clusters"][0]["cluster"] = json!({"server": server});
        let folder = tempfile::tempdir()?;
        std::fs::write(folder.path().join("config"), changed.to_string())?;
        let (tx, held) = mpsc::unbounded_channel();
        let way = Arc::new(Way {
            client: Client::try_from(config)?,
            rule: Mutex::new(Box::new(|_| Fate::Pass)),
            held: tx,
            steps: Mutex::default(),
        });
        let router = Router::new().fallback(carry).with_state(Arc::clone(&way));
        let serving = tokio::spawn(async move { axum::serve(listener, router).await });
        let serving = serving.abort_handle();
        Ok(Self {
            way,
            held,
            serving,
            folder,
        })
    }

    /// A kubeconfig that goes this way.
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("config")
    }

    /// From now on this decides.
    pub fn rule(&self, rule: impl FnMut(&Step) -> Fate + Send + 'static) {
        *self.way.rule.lock().unwrap_or_else(PoisonError::into_inner) = Box::new(rule);
    }

    /// The writes so far and what became of them.
    pub fn steps(&self) -> Vec<(Step, Fate)> {
        let steps = self.way.steps.lock();
        steps.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits for a write to be held; with none after `deadline`, there is none.
    pub async fn held(&mut self, deadline: Duration) -> Option<Step> {
        tokio::time::timeout(deadline, self.held.recv())
            .await
            .ok()?
    }
}

impl Drop for BadWay {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// What a write is, by method and path. Questions that are asked by POST are no writes.
fn step(method: &Method, path: &str) -> Option<Step> {
    let about = |part: &str| path.contains(part);
    let name = match *method {
        Method::GET | Method::HEAD | Method::OPTIONS => return None,
        _ if about("subjectaccessreviews") => return None,
        _ if about("/events") => return None,
        Method::PATCH if about("/services/") => "refresh".to_owned(),
        Method::PATCH if about("/endpointslices/") => "canary".to_owned(),
        Method::DELETE if about("/endpointslices/") => "delete".to_owned(),
        _ if about("/leases") => "lease".to_owned(),
        _ => format!("{method} {path}"),
    };
    Some(Step {
        name,
        path: path.to_owned(),
    })
}

async fn carry(State(way): State<Arc<Way>>, request: Request) -> Response {
    let Some(step) = step(request.method(), request.uri().path()) else {
        return pass(&way, request).await;
    };
    let fate = (way.rule.lock().unwrap_or_else(PoisonError::into_inner))(&step);
    way.steps
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push((step.clone(), fate));
    match fate {
        Fate::Pass => pass(&way, request).await,
        Fate::Refuse(status) => refuse(status),
        Fate::Swallow => {
            let seen = Request::get(step.path).body(Body::empty());
            match seen {
                Ok(seen) => pass(&way, seen).await,
                Err(_) => refuse(StatusCode::BAD_REQUEST),
            }
        }
        Fate::HoldBefore => hold(&way, step).await,
        Fate::HoldAfter => {
            // The answer is read to its end: then the server has done it.
            let done = pass(&way, request).await;
            let _ = to_bytes(done.into_body(), LARGEST).await;
            hold(&way, step).await
        }
    }
}

async fn hold(way: &Way, step: Step) -> Response {
    let _ = way.held.send(step);
    std::future::pending().await
}

async fn pass(way: &Way, request: Request) -> Response {
    match forward(way, request).await {
        Ok(response) => response,
        // As of a load balancer whose server is gone.
        Err(_) => refuse(StatusCode::BAD_GATEWAY),
    }
}

async fn forward(way: &Way, request: Request) -> Result<Response> {
    let (head, body) = request.into_parts();
    let bytes = to_bytes(body, LARGEST).await?;
    let path = head.uri.path_and_query().context("no path")?.as_str();
    let mut sent = Request::builder().method(head.method).uri(path);
    for name in [header::CONTENT_TYPE, header::ACCEPT] {
        if let Some(value) = head.headers.get(&name) {
            sent = sent.header(name, value);
        }
    }
    let sent = sent.body(kube::client::Body::from(bytes.to_vec()))?;
    let answer = way.client.send(sent).await?;
    Ok(answer.map(Body::new).into_response())
}

fn refuse(status: StatusCode) -> Response {
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status.as_u16(),
        "reason": status.canonical_reason().unwrap_or_default().replace(' ', ""),
        "message": "refused on the way by a test",
    });
    let head = [
        (header::CONTENT_TYPE, "application/json"),
        (header::RETRY_AFTER, "1"),
    ];
    (status, head, body.to_string()).into_response()
}
