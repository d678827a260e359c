//! The way to the Kubernetes API: where its settings are found and how a client is made of them.
//!
//! Never asks the API anything by itself, and never puts what a kubeconfig says of credentials into
//! an error.

pub mod objects;
mod supply;
mod trouble;

use std::path::{Path, PathBuf};
use std::time::Duration;

use http::HeaderValue;
use http::header::USER_AGENT;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};

use crate::settings::ClusterSettings;
pub use supply::{Supply, keep};
pub use trouble::explain;

/// What slice-healer calls itself at the API server.
pub const AGENT: &str = concat!("slice-healer/", env!("CARGO_PKG_VERSION"));

/// The Lease of kube-controller-manager's leader. k3s may run without one.
pub const CONTROLLER_LEASE: &str =
    "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-controller-manager";

/// The moment that a `Date` header tells: the server's own clock.
pub fn http_date(text: &str) -> Option<jiff::Timestamp> {
    jiff::fmt::rfc2822::parse(text)
        .ok()
        .map(|zoned| zoned.timestamp())
}

/// Where the API is and how long it may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// The kubeconfig. Without one: `KUBECONFIG`, `~/.kube/config`, then the account of the pod
    /// that this runs in.
    pub kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig; without one its current context.
    pub context: Option<String>,
    /// Another URL than the kubeconfig's: in a container its 127.0.0.1 is the container itself.
    pub server: Option<String>,
    /// The name to look for in the server's certificate, if it is not the one of the URL.
    pub tls_server_name: Option<String>,
    /// For making a connection.
    pub connect_timeout: Duration,
    /// For hearing anything on a connection. Longer than a watch may be quiet: servers send a
    /// bookmark about once a minute, and end a watch when its time is over.
    pub read_timeout: Duration,
    /// How often to look whether a kubeconfig has appeared or changed.
    pub poll: Duration,
}

impl Default for Access {
    fn default() -> Self {
        Self {
            kubeconfig: None,
            context: None,
            server: None,
            tls_server_name: None,
            connect_timeout: Duration::from_secs(10),
            read_timeout: Duration::from_secs(150),
            poll: Duration::from_secs(10),
        }
    }
}

/// Why there is no client. Each text says what to do.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The file is not there, or cannot be read.
    #[error(
        "the kubeconfig {path} cannot be read ({source}): mount it into the module, readable for its user"
    )]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Its text is not a kubeconfig. The parser's own words are left out: they quote the file.
    #[error(
        "the kubeconfig {0} is not valid YAML of a kubeconfig: write it again with `kubectl config view --raw`"
    )]
    Malformed(String),
    /// It is one, but it leads nowhere.
    #[error(
        "the kubeconfig {path} cannot be used ({source}): check its contexts, clusters and users"
    )]
    Unusable {
        /// Which.
        path: String,
        /// Why.
        source: KubeconfigError,
    },
    /// No kubeconfig, and not inside a pod.
    #[error("no kubeconfig was found and this is not a pod: set cluster.kubeconfig")]
    Nowhere,
    /// The other URL is not one.
    #[error("cluster.server is not a URL ({0}): write it like https://192.168.1.10:6443")]
    Server(http::uri::InvalidUri),
    /// The TLS or HTTP parts could not be built.
    #[error("no client could be made of the kubeconfig ({0}): check its certificates and keys")]
    Client(String),
}

/// Makes a client. Reads files, but does not connect yet: an API that is down shows with the first
/// request.
///
/// # Errors
/// When there are no usable settings; see [`ConnectError`].
pub async fn connect(settings: &Access) -> Result<Client, ConnectError> {
    // A second installation changes nothing, so the refusal of one is no error.
    drop(rustls::crypto::ring::default_provider().install_default());
    let mut config = load(settings).await?;
    if let Some(server) = &settings.server {
        config.cluster_url = server.parse().map_err(ConnectError::Server)?;
    }
    if let Some(name) = &settings.tls_server_name {
        config.tls_server_name = Some(name.clone());
    }
    config.connect_timeout = Some(settings.connect_timeout);
    config.read_timeout = Some(settings.read_timeout);
    // Otherwise the time that a connection waited in the pool counts against the next answer.
    config.reset_reader_on_write = true;
    // Retries belong to the callers: a write must never be repeated behind their back.
    config.default_retry = false;
    config
        .headers
        .push((USER_AGENT, HeaderValue::from_static(AGENT)));
    Client::try_from(config).map_err(|error| ConnectError::Client(explain(&error)))
}

/// The namespace of the kubeconfig's context, as kubectl takes it.
///
/// # Errors
/// As [`connect`].
pub async fn default_namespace(settings: &Access) -> Result<String, ConnectError> {
    Ok(load(settings).await?.default_namespace)
}

async fn load(settings: &Access) -> Result<Config, ConnectError> {
    let files = settings.files();
    let present = settings.kubeconfig.is_some() || files.iter().any(|f| f.exists());
    if !present {
        return Config::incluster().map_err(|_| ConnectError::Nowhere);
    }
    let mut merged = Kubeconfig::default();
    for file in &files {
        let next = Kubeconfig::read_from(file).map_err(|error| unusable(file, error))?;
        merged = merged.merge(next).map_err(|error| unusable(file, error))?;
    }
    let options = KubeConfigOptions {
        context: settings.context.clone(),
        ..Default::default()
    };
    let asks_for_proxy = merged
        .clusters
        .iter()
        .filter_map(|c| c.cluster.as_ref())
        .any(|c| c.proxy_url.as_deref().is_some_and(|p| !p.is_empty()));
    let mut config = Config::from_custom_kubeconfig(merged, &options)
        .await
        .map_err(|source| {
            let path = files
                .iter()
                .map(|f| f.display().to_string())
                .collect::<Vec<_>>()
                .join(":");
            ConnectError::Unusable { path, source }
        })?;
    if !asks_for_proxy {
        // HTTPS_PROXY is for the way out of the factory; the API is inside.
        config.proxy_url = None;
    }
    Ok(config)
}

fn unusable(path: &Path, error: KubeconfigError) -> ConnectError {
    match error {
        KubeconfigError::ReadConfig(source, path) => ConnectError::Unreadable { path, source },
        KubeconfigError::Parse(error) => {
            let place = error.location().map_or_else(String::new, |at| {
                format!(" (line {}, column {})", at.line(), at.column())
            });
            ConnectError::Malformed(format!("{}{place}", path.display()))
        }
        source => ConnectError::Unusable {
            path: path.display().to_string(),
            source,
        },
    }
}

impl From<&ClusterSettings> for Access {
    fn from(section: &ClusterSettings) -> Self {
        let text = |value: &crate::settings::Unset| value.get().map(str::to_owned);
        Self {
            kubeconfig: section.kubeconfig.get().map(PathBuf::from),
            context: text(&section.context),
            server: text(&section.server),
            tls_server_name: text(&section.tls_server_name),
            ..Self::default()
        }
    }
}

impl Access {
    /// The kubeconfig files that count, whether they exist or not.
    pub fn files(&self) -> Vec<PathBuf> {
        if let Some(path) = &self.kubeconfig {
            return vec![path.clone()];
        }
        let listed: Vec<PathBuf> = std::env::var_os("KUBECONFIG")
            .map(|list| std::env::split_paths(&list).collect())
            .unwrap_or_default();
        let listed: Vec<PathBuf> = listed
            .into_iter()
            .filter(|p| !p.as_os_str().is_empty())
            .collect();
        if !listed.is_empty() {
            return listed;
        }
        std::env::home_dir()
            .map(|home| home.join(".kube/config"))
            .into_iter()
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{FakeApi, answer, kubeconfig};

    fn access(text: &str) -> (tempfile::TempDir, Access) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        std::fs::write(&path, text).unwrap();
        (
            folder,
            Access {
                kubeconfig: Some(path),
                ..Access::default()
            },
        )
    }

    #[tokio::test]
    async fn another_server_takes_the_place_of_the_kubeconfigs_and_gets_its_token() {
        let api = FakeApi::start(|_| answer(200, json!({"items": []}))).await;
        let (_folder, mut access) = access(&kubeconfig("https://127.0.0.1:6443"));
        access.server = Some(api.url.clone());
        let client = connect(&access).await.unwrap();
        let request = http::Request::get("/api/v1/pods").body(Vec::new()).unwrap();
        client.request_text(request).await.unwrap();
        let seen = api.seen().remove(0);
        assert_eq!(seen.headers["authorization"], "Bearer a-secret-token");
        assert_eq!(seen.headers["user-agent"], AGENT);
    }

    #[tokio::test]
    async fn a_busy_server_is_left_to_the_caller() {
        let api = FakeApi::start(|_| crate::testing::refusal(503, "busy")).await;
        let client = api.client().await;
        let request = http::Request::get("/api/v1/pods").body(Vec::new()).unwrap();
        assert!(client.request_text(request).await.is_err());
        assert_eq!(api.seen().len(), 1, "the client repeats nothing by itself");
    }

    #[tokio::test]
    async fn a_wrong_context_is_named_and_no_secret_is() {
        let (_folder, mut access) = access(&kubeconfig("https://127.0.0.1:6443"));
        access.context = Some("elsewhere".to_owned());
        let Err(error) = connect(&access).await else {
            panic!("there is no such context");
        };
        let text = error.to_string();
        assert!(text.contains("elsewhere"), "{text}");
        assert!(
            !format!("{error:?} {text}").contains("a-secret-token"),
            "{text}"
        );
        access.server = Some("not a url".to_owned());
        access.context = None;
        let Err(error) = connect(&access).await else {
            panic!("that is no URL");
        };
        assert!(error.to_string().contains("cluster.server"), "{error}");
    }
}
