//! A real control plane: etcd, kube-apiserver and kube-controller-manager on free loopback ports.
//!
//! No kubelet and no scheduler: nodes and pods are plain objects whose status the test writes.
//! One instance is shared by the tests of a binary, each in a namespace of its own; a test that
//! stops or freezes a component starts one for itself. Needs no root and no network.

pub mod audit;
mod component;
pub mod files;
mod process;
mod proxy;

use std::io::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::api::{Api, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::json;
use tokio::sync::OnceCell;

pub use component::Component;
use files::{Folders, Keys};

use super::objects;
use super::wait::{Look, eventually};

/// How long a component may take to get ready on a busy machine.
const READY: Duration = Duration::from_secs(120);

/// The controllers that have to do with slices; the others would need kubelets.
const CONTROLLERS: &str = "endpointslice-controller,endpointslice-mirroring-controller,\
    endpoints-controller,garbage-collector-controller,namespace-controller,\
    serviceaccount-controller";

/// The user as whom the real controller writes slices.
pub const SLICE_CONTROLLER: &str = "system:serviceaccount:kube-system:endpointslice-controller";

/// What an instance can differ in.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Take the Lease `kube-system/kube-controller-manager`, for 4 s at a time. k3s runs without;
    /// a restarted controller waits for the old Lease to end.
    pub leader_election: bool,
}

/// A running control plane. Dropping it, or the end of the test process, ends it.
#[derive(Debug)]
pub struct ControlPlane {
    // Dropped in this order: the ones that call before the one that is called.
    /// kube-controller-manager.
    pub manager: Component,
    /// kube-apiserver.
    pub apiserver: Component,
    /// etcd.
    pub etcd: Component,
    folders: Folders,
    keys: Keys,
    port: u16,
    version: String,
    canaries: AtomicU32,
}

impl ControlPlane {
    /// The instance that the tests of this binary share; the first caller starts it.
    ///
    /// # Errors
    /// When the binaries are missing or a component does not get ready, with the end of its log.
    pub async fn shared() -> Result<&'static Self> {
        static SHARED: OnceCell<ControlPlane> = OnceCell::const_new();
        SHARED
            .get_or_try_init(|| Self::start(Options::default()))
            .await
    }

    /// Starts an instance of its own and waits until its controllers answer.
    ///
    /// # Errors
    /// As [`Self::shared`].
    pub async fn start(options: Options) -> Result<Self> {
        // The port is found by binding it and letting it go again: somebody else may be faster.
        let mut tries = 3;
        loop {
            tries -= 1;
            let mut plane = Self::prepare(options)?;
            match plane.bring_up().await {
                Ok(()) => return Ok(plane),
                Err(_) if tries > 0 && plane.apiserver.log().contains("address already in use") => {
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn prepare(options: Options) -> Result<Self> {
        let folders = Folders::make()?;
        let keys = Keys::make(&folders.logs)?;
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let logs = &folders.logs;
        files::write_kubeconfig(&logs.join("admin.conf"), port, &keys.ca, files::ADMIN_TOKEN)?;
        let manager = logs.join("manager.conf");
        files::write_manager_kubeconfig(&manager, port, &keys.ca)?;
        audit::write_policy(logs)?;
        Ok(Self {
            etcd: Component::new("etcd", etcd(&folders), logs)?,
            apiserver: Component::new("kube-apiserver", apiserver(&folders, &keys, port), logs)?,
            manager: Component::new(
                "kube-controller-manager",
                controller_manager(&manager, &keys, options),
                logs,
            )?,
            folders,
            keys,
            port,
            version: String::new(),
            canaries: AtomicU32::new(0),
        })
    }

    async fn bring_up(&mut self) -> Result<()> {
        self.etcd.start()?;
        self.apiserver.start()?;
        self.await_apiserver().await?;
        self.version = self.client().await?.apiserver_version().await?.git_version;
        // Past the capture of the test harness: the log of a green run has to name the version.
        let logs = self.folders.logs.display();
        writeln!(
            std::io::stderr(),
            "kube-apiserver {} (logs: {logs})",
            self.version
        )?;
        self.manager.start()?;
        self.await_manager().await
    }

    /// What the API server says of itself, such as `v1.37.2`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The URL of the API server.
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// The authority that signed the API server's certificate, PEM.
    pub fn ca_pem(&self) -> &str {
        &self.keys.ca_pem
    }

    /// A kubeconfig that may do everything.
    pub fn admin_kubeconfig(&self) -> PathBuf {
        self.folders.logs.join("admin.conf")
    }

    /// A client that may do everything. It belongs to the calling test's runtime.
    pub async fn client(&self) -> Result<Client> {
        self.client_as(None).await
    }

    /// A client that acts as `user`: for asking what another may do.
    pub async fn client_as(&self, user: Option<&str>) -> Result<Client> {
        let file = Kubeconfig::read_from(self.admin_kubeconfig())?;
        let options = KubeConfigOptions::default();
        let mut config = Config::from_custom_kubeconfig(file, &options).await?;
        config.auth_info.impersonate = user.map(String::from);
        Ok(Client::try_from(config)?)
    }

    /// Makes a namespace whose name begins with `stem` and that no other test has.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn namespace(&self, stem: &str) -> Result<String> {
        let namespace = Namespace {
            metadata: kube::api::ObjectMeta {
                generate_name: Some(format!("{stem}-")),
                ..Default::default()
            },
            ..Default::default()
        };
        let api: Api<Namespace> = Api::all(self.client().await?);
        let made = api.create(&PostParams::default(), &namespace).await?;
        made.metadata.name.context("a namespace without a name")
    }

    /// A kubeconfig with a token of the ServiceAccount `name`, which is made where it is missing.
    /// Its rights are what RBAC objects give it.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn service_account_kubeconfig(&self, namespace: &str, name: &str) -> Result<PathBuf> {
        let api: Api<ServiceAccount> = Api::namespaced(self.client().await?, namespace);
        let account: ServiceAccount =
            serde_json::from_value(json!({"metadata": {"name": name, "namespace": namespace}}))?;
        objects::ignore_existing(api.create(&PostParams::default(), &account).await)?;
        let request: TokenRequest =
            serde_json::from_value(json!({"spec": {"audiences": [], "expirationSeconds": 7200}}))?;
        let answer = api
            .create_token_request(name, &PostParams::default(), &request)
            .await?;
        let token = answer.status.and_then(|status| status.token);
        let token = token.context("a TokenRequest without a token")?;
        let path = self.folders.logs.join(format!("{namespace}-{name}.conf"));
        files::write_kubeconfig(&path, self.port, &self.keys.ca, &token)?;
        Ok(path)
    }

    /// Kills kube-controller-manager, starts it again and waits until it works.
    ///
    /// # Errors
    /// When it does not get ready.
    pub async fn restart_manager(&self) -> Result<()> {
        self.manager.stop();
        self.manager.start()?;
        self.await_manager().await
    }

    /// Waits until the API server answers `/readyz`.
    ///
    /// # Errors
    /// When it ends or is not ready within two minutes, with the end of its log.
    pub async fn await_apiserver(&self) -> Result<()> {
        let client = self.client().await?;
        eventually("kube-apiserver gets ready", READY, async || {
            self.etcd.check_alive()?;
            self.apiserver.check_alive()?;
            let request = http::Request::get("/readyz").body(Vec::new())?;
            Ok(match client.request_text(request).await {
                Ok(_) => Look::Done(()),
                Err(error) => Look::NotYet(error.to_string()),
            })
        })
        .await?;
        Ok(())
    }

    /// Waits until the slice controller has made a slice and, when that was deleted, another one.
    ///
    /// The second takes it the second that it waits after any event of a slice. So on return the
    /// syncs that its start put off for as long are done, and the Services that were there before
    /// are as untracked as they stay.
    ///
    /// # Errors
    /// When it ends or does not answer within two minutes.
    pub async fn await_manager(&self) -> Result<()> {
        const NAMESPACE: &str = "controlplane-canary";
        let client = self.client().await?;
        let api: Api<Namespace> = Api::all(client.clone());
        let namespace = json!({"metadata": {"name": NAMESPACE}});
        let namespace: Namespace = serde_json::from_value(namespace)?;
        objects::ignore_existing(api.create(&PostParams::default(), &namespace).await)?;
        let name = format!("canary-{}", self.canaries.fetch_add(1, Ordering::Relaxed));
        objects::create_service(&client, NAMESPACE, &name).await?;
        let slice = async || {
            let look = async || {
                self.manager.check_alive()?;
                let slices = objects::slices(&client, NAMESPACE, &name).await?;
                Ok(match slices.is_empty() {
                    false => Look::Done(()),
                    true => Look::NotYet(self.manager.log_path().display().to_string()),
                })
            };
            eventually("kube-controller-manager makes a slice", READY, look).await
        };
        slice().await?;
        objects::delete_slices(&client, NAMESPACE, &name).await?;
        slice().await?;
        Ok(())
    }
}

fn etcd(folders: &Folders) -> Vec<String> {
    let client = format!("unix://{}", folders.state.join("client.sock").display());
    let peer = format!("unix://{}", folders.state.join("peer.sock").display());
    vec![
        format!("--data-dir={}", folders.state.join("data").display()),
        // Nothing here has to survive a power cut.
        "--unsafe-no-fsync".into(),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=default={peer}"),
        "--log-level=warn".into(),
    ]
}

fn apiserver(folders: &Folders, keys: &Keys, port: u16) -> Vec<String> {
    vec![
        format!(
            "--etcd-servers=unix://{}",
            folders.state.join("client.sock").display()
        ),
        "--bind-address=127.0.0.1".into(),
        format!("--secure-port={port}"),
        // Not a loopback address, so that default/kubernetes has the slice it has everywhere.
        "--advertise-address=192.0.2.1".into(),
        format!("--cert-dir={}", folders.logs.display()),
        format!("--tls-cert-file={}", keys.server.0.display()),
        format!("--tls-private-key-file={}", keys.server.1.display()),
        format!("--token-auth-file={}", keys.tokens.display()),
        "--anonymous-auth=false".into(),
        "--authorization-mode=RBAC".into(),
        "--service-account-issuer=https://kubernetes.default.svc".into(),
        format!(
            "--service-account-signing-key-file={}",
            keys.accounts.0.display()
        ),
        format!("--service-account-key-file={}", keys.accounts.1.display()),
        "--service-cluster-ip-range=10.96.0.0/16,fd00:10:96::/112".into(),
        format!(
            "--audit-policy-file={}",
            audit::policy(&folders.logs).display()
        ),
        format!("--audit-log-path={}", audit::log(&folders.logs).display()),
        // Pods are objects only: no token to mount, no kubelet to wait for.
        "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition".into(),
    ]
}

fn controller_manager(kubeconfig: &Path, keys: &Keys, options: Options) -> Vec<String> {
    let mut args = vec![
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--controllers={CONTROLLERS}"),
        // As kubeadm and k3s have it: each controller is a user of its own.
        "--use-service-account-credentials=true".into(),
        format!(
            "--service-account-private-key-file={}",
            keys.accounts.0.display()
        ),
        "--kube-api-qps=500".into(),
        "--kube-api-burst=1000".into(),
        "--secure-port=0".into(),
        "--v=2".into(),
    ];
    if options.leader_election {
        args.extend(
            [
                "",
                "-lease-duration=4s",
                "-renew-deadline=3s",
                "-retry-period=1s",
            ]
            .map(|option| format!("--leader-elect{option}")),
        );
    } else {
        args.push("--leader-elect=false".into());
    }
    args
}
