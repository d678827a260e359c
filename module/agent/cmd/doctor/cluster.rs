//! The way to the cluster: kubeconfig, API, version, rights, admission policy.

use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use kube::{Api, Client};
use slice_core::heal::policy::Mode;
use slice_core::model::ServerVersion;

use super::{Check, Look};
use crate::act::permissions::{self, Need, Right};
use crate::client::{Supply, explain};
use crate::expiry::Credentials;

/// The namespace, Lease and canary of our own (contract: cluster objects).
const OWN: &str = "slice-healer";

/// How long the API server may take to tell every right.
const RIGHTS: Duration = Duration::from_secs(15);

const FIX_RIGHTS: &str = "kubectl apply -k config/kubernetes grants what is needed, and a kubeconfig of that account uses it";

pub(super) async fn checks(look: &Look) -> Vec<Check> {
    let skipped = |ids: &[&'static str], why: &str| -> Vec<Check> {
        ids.iter().map(|id| Check::skipped(id, why)).collect()
    };
    let client = match &look.client {
        Ok(client) => client,
        Err(reason) => {
            let fix = "config/kubernetes makes the account; set cluster.kubeconfig to its file";
            let mut checks = vec![Check::fail("kubeconfig", reason.clone(), fix)];
            checks.extend(skipped(
                &["api", "api-version", "rights", "admission-policy"],
                "needs a kubeconfig",
            ));
            return checks;
        }
    };
    let version = match client.apiserver_version().await {
        Ok(version) => version,
        Err(error) => {
            let reason = explain(&error);
            let fix = api_fix(&reason);
            let mut checks = vec![kubeconfig(look, false), Check::fail("api", reason, fix)];
            checks.extend(skipped(
                &["api-version", "rights", "admission-policy"],
                "needs the API",
            ));
            return checks;
        }
    };
    let mut checks = vec![kubeconfig(look, true)];
    checks.push(Check::ok("api", "the API server answers"));
    let known = ServerVersion::parse(&version.git_version);
    checks.push(match &known {
        Some(seen) if !seen.is_at_least(1, 21) => Check::fail(
            "api-version",
            format!("{} has no discovery.k8s.io/v1", version.git_version),
            "Kubernetes 1.21 or newer is needed",
        ),
        Some(_) => Check::ok("api-version", version.git_version.clone()),
        None => Check::warn(
            "api-version",
            format!("`{}` is no version", version.git_version),
            "newer rules are assumed",
        ),
    });
    checks.push(rights(client, look.settings.mode).await);
    checks.push(admission_policy(client, known.as_ref()).await);
    checks
}

/// What to do about an API that does not answer.
fn api_fix(reason: &str) -> &'static str {
    if reason.contains("not valid for name") {
        "set cluster.tls_server_name (SLICE_HEALER__CLUSTER__TLS_SERVER_NAME) to a name that the certificate has, such as kubernetes, or add the address with --tls-san on k3s"
    } else if reason.contains("UnknownIssuer") {
        "make a fresh kubeconfig with config/kubernetes/make-kubeconfig.sh: the cluster has another CA"
    } else if reason.contains("(401)") {
        "the token or certificate is not accepted any more: make a fresh kubeconfig with config/kubernetes/make-kubeconfig.sh"
    } else {
        "start the API server, or set cluster.server to an address that is reached from here; the module goes on and heals once it answers"
    }
}

/// A loopback address is wrong in a container of its own network, and right on the host's: what
/// answers tells them apart.
fn kubeconfig(look: &Look, answers: bool) -> Check {
    let id = "kubeconfig";
    let credentials = match Credentials::read(&look.access) {
        Ok(Some(credentials)) => credentials,
        Ok(None) => return Check::ok(id, "the account of the pod is used"),
        Err(reason) => {
            return Check::fail(id, reason, "set cluster.kubeconfig and cluster.context");
        }
    };
    let server = look.access.server.clone().unwrap_or(credentials.server);
    if !answers && look.in_container && is_loopback(&server) {
        return Check::fail(
            id,
            format!("its server is {server}, which inside this container is the container itself"),
            "set cluster.server to an address of the host, and cluster.tls_server_name to a name in the certificate such as kubernetes",
        );
    }
    Check::ok(id, format!("its server is {server}"))
}

pub(super) fn is_loopback(server: &str) -> bool {
    let host = server.split("://").last().unwrap_or(server);
    host.starts_with("127.") || host.starts_with("localhost") || host.starts_with("[::1]")
}

async fn rights(client: &Client, mode: Mode) -> Check {
    let id = "rights";
    let missing = match permissions::missing(&Supply::fixed(client.clone()), RIGHTS).await {
        Ok(missing) => missing,
        Err(reason) => return Check::warn(id, format!("cannot be asked: {reason}"), FIX_RIGHTS),
    };
    let list = |of: &dyn Fn(Need) -> bool| {
        let named: Vec<String> = missing
            .iter()
            .filter(|right| of(right.need))
            .map(Right::to_string)
            .collect();
        (!named.is_empty()).then(|| named.join(", "))
    };
    if let Some(rights) = list(&|need| need == Need::Judge) {
        return Check::fail(
            id,
            format!("nothing can be judged without: {rights}"),
            FIX_RIGHTS,
        );
    }
    if let Some(rights) = list(&|need| matches!(need, Need::Refresh | Need::Delete | Need::Lease)) {
        let message = format!("not every heal is possible without: {rights}");
        return match mode {
            Mode::Heal => Check::fail(id, message, FIX_RIGHTS),
            Mode::Observe => Check::warn(
                id,
                format!("{message}; mode observe needs none of it"),
                FIX_RIGHTS,
            ),
        };
    }
    match list(&|_| true) {
        Some(rights) => Check::warn(
            id,
            format!("less is known or told without: {rights}"),
            FIX_RIGHTS,
        ),
        None => Check::ok(id, "every right that is needed is granted"),
    }
}

async fn admission_policy(client: &Client, version: Option<&ServerVersion>) -> Check {
    let id = "admission-policy";
    if version.is_some_and(|version| !version.is_at_least(1, 30)) {
        return Check::warn(
            id,
            "ValidatingAdmissionPolicy v1 came with Kubernetes 1.30",
            "the module's own gate holds; guard the account's token, which can do more than the module does",
        );
    }
    match Api::<ValidatingAdmissionPolicy>::all(client.clone())
        .get_opt(OWN)
        .await
    {
        Ok(Some(_)) => Check::ok(id, "the API server itself limits what the module may write"),
        Ok(None) => Check::warn(
            id,
            format!("there is no policy {OWN}"),
            "kubectl apply -k config/kubernetes",
        ),
        Err(error) => Check::skipped(id, format!("cannot be read: {}", explain(&error))),
    }
}
