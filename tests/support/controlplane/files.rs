//! The files a control plane needs before it starts: binaries, folders, keys, tokens, kubeconfigs.
//!
//! Nothing here is secret: all of it is made for one run and serves one loopback port.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, Result, bail};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair,
};
use serde_json::json;

use super::process::Scratch;

/// The token of the user `admin` in `system:masters`.
pub const ADMIN_TOKEN: &str = "test-admin";
const MANAGER_TOKEN: &str = "test-controller-manager";
const PROXY_TOKEN: &str = "test-proxy";

/// The room that etcd's preallocated log and its database take on a memory file system.
const ETCD_BYTES: u64 = 1 << 30;

static INSTANCES: AtomicU32 = AtomicU32::new(0);

/// Where the binaries are: `KUBEBUILDER_ASSETS`, else what `tests/controlplane/build.sh` built.
pub fn binary(name: &str) -> Result<PathBuf> {
    let folder = match env::var_os("KUBEBUILDER_ASSETS") {
        Some(folder) => PathBuf::from(folder),
        None => cache()?.join("controlplane").join(pinned_version()?),
    };
    let path = folder.join(name);
    if !path.is_file() {
        bail!(
            "{} is missing: run tests/controlplane/build.sh once",
            path.display()
        );
    }
    Ok(path)
}

pub fn cache() -> Result<PathBuf> {
    if let Some(cache) = env::var_os("SLICE_HEALER_CACHE") {
        return Ok(PathBuf::from(cache));
    }
    let base = match env::var_os("XDG_CACHE_HOME") {
        Some(base) => PathBuf::from(base),
        None => PathBuf::from(env::var_os("HOME").context("HOME is not set")?).join(".cache"),
    };
    Ok(base.join("slice-healer"))
}

/// The version that `tests/controlplane/go.mod` requires, as the build names its folder.
fn pinned_version() -> Result<String> {
    include_str!("../../controlplane/go.mod")
        .lines()
        .find_map(|line| {
            line.trim()
                .strip_prefix("k8s.io/kubernetes ")?
                .split(' ')
                .next()
        })
        .map(String::from)
        .context("tests/controlplane/go.mod requires no k8s.io/kubernetes")
}

/// The folders of one instance: `state` goes with it, `logs` stays for whoever asks why.
#[derive(Debug)]
pub struct Folders {
    /// Keys, tokens, kubeconfigs and logs; under the target folder.
    pub logs: PathBuf,
    /// etcd's data and socket; in memory where there is room.
    pub state: PathBuf,
    _state_goes: Scratch,
}

impl Folders {
    /// Makes them, and clears away the logs of runs whose process is gone.
    pub fn make() -> Result<Self> {
        let base = Path::new(env!("CARGO_TARGET_TMPDIR")).join("controlplane");
        fs::create_dir_all(&base)?;
        sweep(&base);
        let name = format!(
            "{}-{}",
            std::process::id(),
            INSTANCES.fetch_add(1, Ordering::Relaxed)
        );
        let logs = base.join(&name);
        fs::create_dir_all(&logs)?;
        let state = memory_folder().join(format!("slice-healer-{name}"));
        fs::create_dir_all(&state)?;
        Ok(Self {
            logs,
            _state_goes: Scratch::of(&state)?,
            state,
        })
    }
}

fn sweep(base: &Path) {
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.split('-').next());
        if owner.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// A container's `/dev/shm` may hold as little as 64 MB.
fn memory_folder() -> PathBuf {
    let memory = Path::new("/dev/shm");
    match rustix::fs::statvfs(memory) {
        Ok(room) if room.f_bavail * room.f_frsize >= ETCD_BYTES => memory.to_owned(),
        Ok(_) | Err(_) => env::temp_dir(),
    }
}

/// Who signs what.
#[derive(Debug)]
pub struct Keys {
    /// The authority that signed the API server's certificate.
    pub ca_pem: String,
    /// The authority's file, for components.
    pub ca: PathBuf,
    /// The API server's certificate and key.
    pub server: (PathBuf, PathBuf),
    /// Private and public key of ServiceAccount tokens.
    pub accounts: (PathBuf, PathBuf),
    /// The file of static tokens.
    pub tokens: PathBuf,
}

impl Keys {
    /// Makes a new authority, certificate, token key and token file in `folder`.
    pub fn make(folder: &Path) -> Result<Self> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name = name("slice-healer test authority");
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let ca_pem = authority.pem();

        let names = ["127.0.0.1", "localhost", "kubernetes.default.svc"];
        let mut params = CertificateParams::new(names.map(String::from))?;
        params.distinguished_name = name("kube-apiserver");
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &authority)?;

        let accounts = KeyPair::generate()?;
        let tokens = format!(
            "{ADMIN_TOKEN},admin,admin,\"system:masters\"\n\
             {MANAGER_TOKEN},system:kube-controller-manager,manager\n\
             {PROXY_TOKEN},system:kube-proxy,proxy\n"
        );
        let write = |file: &str, text: &str| -> Result<PathBuf> {
            let path = folder.join(file);
            fs::write(&path, text).with_context(|| path.display().to_string())?;
            Ok(path)
        };
        Ok(Self {
            ca: write("ca.crt", &ca_pem)?,
            ca_pem,
            server: (
                write("server.crt", &certificate.pem())?,
                write("server.key", &key.serialize_pem())?,
            ),
            accounts: (
                write("accounts.key", &accounts.serialize_pem())?,
                write("accounts.pub", &accounts.public_key_pem())?,
            ),
            tokens: write("tokens.csv", &tokens)?,
        })
    }
}

fn name(common: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common);
    name
}

/// Writes a kubeconfig for `token` against the server at `port`; its context's namespace is
/// `default`, its authority the file `ca`.
pub fn write_kubeconfig(path: &Path, port: u16, ca: &Path, token: &str) -> Result<()> {
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": {
            "server": format!("https://127.0.0.1:{port}"),
            "certificate-authority": ca,
        }}],
        "users": [{"name": "test", "user": {"token": token}}],
        "contexts": [{"name": "test", "context": {
            "cluster": "test", "user": "test", "namespace": "default",
        }}],
        "current-context": "test",
    });
    // JSON is YAML.
    fs::write(path, serde_json::to_vec_pretty(&config)?).with_context(|| path.display().to_string())
}

/// As [`write_kubeconfig`], for kube-controller-manager's own user.
pub fn write_manager_kubeconfig(path: &Path, port: u16, ca: &Path) -> Result<()> {
    write_kubeconfig(path, port, ca, MANAGER_TOKEN)
}

/// As [`write_kubeconfig`], for kube-proxy's own user.
pub fn write_proxy_kubeconfig(path: &Path, port: u16, ca: &Path) -> Result<()> {
    write_kubeconfig(path, port, ca, PROXY_TOKEN)
}
