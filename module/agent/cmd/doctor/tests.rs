//! The checks against a host that has little, and the form of their result.

use std::collections::BTreeSet;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener};

use super::*;
use crate::testing::{FakeApi, answer};

fn settings(dir: &Path) -> Settings {
    let mut settings = Loaded::load(None, []).unwrap().settings;
    settings.store.directory = dir.to_owned();
    settings.journal.directories =
        crate::settings::Names(vec![dir.join("journal").display().to_string()]);
    settings.cluster.kubeconfig =
        crate::settings::Unset(dir.join("kubeconfig").display().to_string());
    settings.dbus.address =
        crate::settings::Unset(format!("unix:path={}", dir.join("bus").display()));
    settings
}

async fn look(dir: &Path, env: &[(&str, &str)]) -> Look {
    let env = env
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect();
    Look::new(settings(dir), env).await
}

fn find<'a>(checks: &'a [Check], id: &str) -> &'a Check {
    checks
        .iter()
        .find(|check| check.id == id)
        .unwrap_or_else(|| panic!("{id} is not in {checks:#?}"))
}

#[tokio::test]
async fn a_bare_host_gets_every_check_and_a_fix_for_what_failed() {
    let dir = tempfile::tempdir().unwrap();
    let checks = all(&look(dir.path(), &[]).await).await;
    for check in &checks {
        assert!(!check.message.is_empty(), "{check:?}");
        if matches!(check.status, Status::Fail | Status::Warn) {
            assert!(!check.fix.is_empty(), "{check:?}");
        }
    }
    let ids: BTreeSet<&str> = checks.iter().map(|check| check.id).collect();
    assert_eq!(ids.len(), checks.len(), "each id once");
    assert_eq!(find(&checks, "state-directory").status, Status::Ok);
    assert_eq!(find(&checks, "state-format").status, Status::Ok);
    assert_eq!(find(&checks, "journal").status, Status::Warn);
    assert_eq!(find(&checks, "dbus").status, Status::Warn);
    assert!(find(&checks, "dbus").fix.contains("system_bus_socket"));
    let log = find(&checks, "log-socket");
    assert!(log.status == Status::Ok || log.fix.contains("/run/systemd/journal"));
    assert_eq!(find(&checks, "hub").status, Status::Skipped);
    assert_eq!(find(&checks, "kubeconfig").status, Status::Fail);
    assert_eq!(find(&checks, "rights").status, Status::Skipped);
    assert_eq!(
        std::fs::read_dir(dir.path()).unwrap().count(),
        0,
        "nothing is left behind"
    );

    let document = render::document(&checks);
    assert_eq!(document["schema"], "slice-healer/doctor/v1");
    let first = &document["checks"][0];
    assert_eq!(
        first,
        &json!({"id": "state-directory", "status": "ok", "message": checks[0].message, "fix": ""})
    );
    let table = render::table(&checks);
    assert!(table.contains("FAIL     kubeconfig"), "{table}");
    assert!(
        table
            .lines()
            .any(|line| line.trim_start().starts_with("-> "))
    );
}

#[tokio::test]
async fn a_damaged_state_file_is_reported_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(crate::store::FILE);
    std::fs::write(&path, "no database").unwrap();
    let checks = host::checks(&look(dir.path(), &[]).await).await;
    let check = find(&checks, "state-format");
    assert_eq!(check.status, Status::Warn);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "no database");
}

#[tokio::test]
async fn a_directory_that_is_missing_or_a_file_fails() {
    let dir = tempfile::tempdir().unwrap();
    let checks = host::checks(&look(&dir.path().join("none"), &[]).await).await;
    let check = find(&checks, "state-directory");
    assert_eq!(check.status, Status::Fail);
    assert!(check.fix.contains("store.directory"));
}

#[tokio::test]
async fn rules_that_are_not_in_force_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let mut look = look(dir.path(), &[]).await;
    let checks = journal::checks(&look).await;
    assert_eq!(find(&checks, "journal-rules").status, Status::Ok);
    let path = dir.path().join("rules.toml");
    std::fs::write(
        &path,
        "[rules.mine]\npattern = 'a+'\nkind = \"custom\"\nseverity = \"info\"\nmatches = [\"b\"]\n",
    )
    .unwrap();
    look.settings.journal.rules_file = crate::settings::Unset(path.display().to_string());
    let checks = journal::checks(&look).await;
    let check = find(&checks, "journal-rules");
    assert_eq!(check.status, Status::Fail);
    assert!(check.message.contains("mine"), "{}", check.message);
}

/// A workload socket that answers every request with one status and body.
fn workload(path: &Path, status: &str, body: &str) {
    let listener = UnixListener::bind(path).unwrap();
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).await;
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
}

#[tokio::test]
async fn the_workload_socket_and_the_bundle_are_looked_at() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("workload.sock");
    let uri = format!("unix://{}", socket.display());
    // A gateway that takes connections and speaks no TLS.
    let gateway = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = gateway.local_addr().unwrap().port();
    tokio::spawn(async move { while gateway.accept().await.is_ok() {} });
    let env = [
        ("IOTEDGE_WORKLOADURI", uri.as_str()),
        ("IOTEDGE_DEVICEID", "d"),
        ("IOTEDGE_MODULEID", "m"),
        ("IOTEDGE_MODULEGENERATIONID", "1"),
        ("IOTEDGE_IOTHUBHOSTNAME", "h"),
        ("IOTEDGE_GATEWAYHOSTNAME", "localhost"),
    ];
    let mut look = look(dir.path(), &env).await;
    look.settings.hub.gateway_port = port;
    let checks = hub::checks(&look).await;
    assert_eq!(find(&checks, "workload-socket").status, Status::Fail);
    assert!(find(&checks, "workload-socket").fix.contains("restart"));

    let body =
        json!({"certificate": include_str!("../../expiry/testdata/utc-time.pem")}).to_string();
    workload(&socket, "200 OK", &body);
    look.now = "2026-12-01T00:00:00Z".parse().unwrap();
    let checks = hub::checks(&look).await;
    assert_eq!(find(&checks, "workload-socket").status, Status::Ok);
    assert_eq!(find(&checks, "trust-bundle").status, Status::Ok);
    assert_eq!(find(&checks, "gateway-name").status, Status::Ok);
    assert_eq!(find(&checks, "gateway-certificate").status, Status::Fail);
    look.now = "2031-05-01T00:00:00Z".parse().unwrap();
    let checks = hub::checks(&look).await;
    assert_eq!(find(&checks, "trust-bundle").status, Status::Fail);

    look.env.retain(|(key, _)| key != "IOTEDGE_MODULEID");
    let checks = hub::checks(&look).await;
    assert_eq!((checks.len(), checks[0].status), (1, Status::Fail));
    assert!(checks[0].message.contains("IOTEDGE_MODULEID"));
}

#[tokio::test]
async fn a_loopback_server_inside_a_container_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let kubeconfig = r#"
apiVersion: v1
kind: Config
current-context: c
clusters: [{name: k, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {token: "aaaa.e30.bbbb"}}]
contexts: [{name: c, context: {cluster: k, user: u}}]
"#;
    std::fs::write(dir.path().join("kubeconfig"), kubeconfig).unwrap();
    let mut look = look(dir.path(), &[]).await;
    look.in_container = true;
    let checks = cluster::checks(&look).await;
    let check = find(&checks, "kubeconfig");
    assert_eq!(check.status, Status::Fail);
    assert!(check.message.contains("127.0.0.1") && check.fix.contains("cluster.server"));
    assert_eq!(find(&checks, "api").status, Status::Fail);
    look.in_container = false;
    assert_eq!(
        find(&cluster::checks(&look).await, "kubeconfig").status,
        Status::Ok
    );
    let checks = certificates::checks(&look).await;
    assert_eq!(find(&checks, "token").status, Status::Ok);
    assert!(!format!("{checks:?}").contains("bbbb"));
    assert!(
        cluster::is_loopback("https://[::1]:6443")
            && !cluster::is_loopback("https://192.168.1.10:6443")
    );
}

#[tokio::test]
async fn a_group_that_hangs_is_a_failure() {
    let checks = within("journal", Duration::from_millis(20), std::future::pending()).await;
    assert_eq!((checks[0].id, checks[0].status), ("journal", Status::Fail));
}

#[tokio::test]
async fn a_clock_that_was_never_set_fails() {
    let dir = tempfile::tempdir().unwrap();
    let mut look = look(dir.path(), &[]).await;
    look.now = "2024-01-01T00:00:00Z".parse().unwrap();
    let checks = host::checks(&look).await;
    let check = find(&checks, "clock");
    assert_eq!(check.status, Status::Fail);
    assert!(check.message.contains("2024-01-01") && check.fix.contains("synchronisation"));
}

/// An API server of this version, with or without the policy.
async fn policy_of(version: &'static str, is_there: bool) -> Check {
    let api = FakeApi::start(move |request| match request.path.as_str() {
        "/version" => answer(
            200,
            json!({
                "major": "1", "minor": "", "gitVersion": version, "gitCommit": "", "gitTreeState": "",
                "buildDate": "", "goVersion": "", "compiler": "", "platform": "",
            }),
        ),
        path if path.ends_with("/validatingadmissionpolicies/slice-healer") && is_there => answer(
            200,
            json!({
                "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
                "metadata": {"name": "slice-healer"},
            }),
        ),
        other => answer(
            404,
            json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound",
                "message": other, "code": 404,
            }),
        ),
    })
    .await;
    let dir = tempfile::tempdir().unwrap();
    let mut look = look(dir.path(), &[]).await;
    look.client = Ok(api.client().await);
    look.access.kubeconfig = Some(api.kubeconfig());
    let checks = cluster::checks(&look).await;
    assert_eq!(find(&checks, "api").status, Status::Ok, "{checks:#?}");
    find(&checks, "admission-policy").clone()
}

#[tokio::test]
async fn the_admission_policy_is_asked_for_from_1_30_on() {
    let old = policy_of("v1.29.9+k3s1", true).await;
    assert_eq!(old.status, Status::Warn);
    assert!(
        old.message.contains("1.30") && old.fix.contains("token"),
        "{old:?}"
    );
    let missing = policy_of("v1.30.0", false).await;
    assert_eq!(missing.status, Status::Warn);
    assert!(missing.fix.contains("config/kubernetes"), "{missing:?}");
    assert_eq!(policy_of("v1.30.0", true).await.status, Status::Ok);
}
