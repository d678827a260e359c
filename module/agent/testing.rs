//! A scripted API server for the tests of this crate: real HTTP on a free port, each request seen,
//! each answer the test's own. Knows nothing of Kubernetes.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::Request;
use axum::response::{IntoResponse as _, Response};
use futures::channel::mpsc::{UnboundedSender, unbounded};
use http::{HeaderMap, Method, StatusCode};
use kube::Client;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::client::{Access, connect};

/// Deadline of what has to happen.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// A request that came in.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
}

impl Seen {
    pub(crate) fn is_watch(&self) -> bool {
        self.query.contains("watch=true")
    }

    /// A parameter of the query, not decoded.
    pub(crate) fn parameter(&self, name: &str) -> Option<&str> {
        self.query
            .split('&')
            .find_map(|p| p.split_once('=').filter(|(k, _)| *k == name))
            .map(|p| p.1)
    }
}

/// The server; ends with the test's runtime.
pub(crate) struct FakeApi {
    pub(crate) url: String,
    seen: Arc<Mutex<Vec<Seen>>>,
    count: watch::Receiver<usize>,
    folder: TempDir,
}

impl FakeApi {
    /// Starts a server that answers every request by `answer`.
    pub(crate) async fn start(answer: impl Fn(&Seen) -> Response + Send + Sync + 'static) -> Self {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (tx, count) = watch::channel(0);
        let (kept, answer) = (Arc::clone(&seen), Arc::new(answer));
        let app = Router::new().fallback(move |request: Request| {
            let (kept, answer, tx) = (Arc::clone(&kept), Arc::clone(&answer), tx.clone());
            async move {
                let (parts, body) = request.into_parts();
                let body = to_bytes(body, 1 << 20).await.unwrap();
                let request = Seen {
                    method: parts.method,
                    path: parts.uri.path().to_owned(),
                    query: parts.uri.query().unwrap_or_default().to_owned(),
                    headers: parts.headers,
                    body: serde_json::from_slice(&body).unwrap_or(Value::Null),
                };
                kept.lock().unwrap().push(request.clone());
                tx.send_modify(|n| *n += 1);
                answer(&request)
            }
        });
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self {
            url,
            seen,
            count,
            folder: tempfile::tempdir().unwrap(),
        }
    }

    /// All requests so far.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// Waits until the requests that pass are at least `n`, and returns them.
    pub(crate) async fn wait(&self, n: usize, pass: impl Fn(&Seen) -> bool) -> Vec<Seen> {
        let mut count = self.count.clone();
        let wanted = async {
            loop {
                let found: Vec<Seen> = self.seen().into_iter().filter(|r| pass(r)).collect();
                if found.len() >= n {
                    return found;
                }
                count.changed().await.unwrap();
            }
        };
        timeout(LONG, wanted).await.expect("the request comes")
    }

    /// Writes a kubeconfig that leads here.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        let path = self.folder.path().join("config");
        std::fs::write(&path, kubeconfig(&self.url)).unwrap();
        path
    }

    /// The product's own client to this server.
    pub(crate) async fn client(&self) -> Client {
        let kubeconfig = Some(self.kubeconfig());
        connect(&Access {
            kubeconfig,
            ..Access::default()
        })
        .await
        .unwrap()
    }
}

/// The text of a kubeconfig that leads to `url`.
pub(crate) fn kubeconfig(url: &str) -> String {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": url}}],
        "users": [{"name": "test", "user": {"token": "a-secret-token"}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
    })
    .to_string()
}

/// A JSON answer.
pub(crate) fn answer(code: u16, body: Value) -> Response {
    let status = StatusCode::from_u16(code).unwrap();
    (
        status,
        [("content-type", "application/json")],
        body.to_string(),
    )
        .into_response()
}

/// A refusal in the API's own form.
pub(crate) fn refusal(code: u16, message: &str) -> Response {
    answer(
        code,
        json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code,
            "reason": "Test",
        }),
    )
}

/// A list of objects, the newest of which has this version.
pub(crate) fn list(version: &str, items: &[Value]) -> Response {
    answer(
        200,
        json!({"kind": "List", "metadata": {"resourceVersion": version}, "items": items}),
    )
}

/// An answer that stays open; what is sent goes out as a line. It ends when the sender is dropped.
pub(crate) fn stream() -> (UnboundedSender<Result<Bytes, std::io::Error>>, Response) {
    let (tx, rx) = unbounded();
    (tx, Response::new(Body::from_stream(rx)))
}

/// One line of a watch.
pub(crate) fn event(kind: &str, object: &Value) -> Result<Bytes, std::io::Error> {
    Ok(Bytes::from(format!(
        "{}\n",
        json!({"type": kind, "object": object})
    )))
}
